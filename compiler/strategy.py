"""How memory is shared between buffers that are kept, work that is prepared, and the rest: what is tried, in turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from npukit.compiler.cost import CostModel
from npukit.compiler.errors import CompileError
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.verify import verify_graph
from npukit.compiler.passes.allocate import AllocatePass, DoesNotFit
from npukit.compiler.passes.base import PassRunner
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.fuse import FusePass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.tasks import Allocation, Plan
from npukit.compiler.tiling import ConvShape, ConvTiling
from npukit.compiler.verify import verify_allocation, verify_plan
from npukit.isa.program import Program

__all__ = ["LEVELS", "Fitted", "Strategy", "first_that_fits", "fit"]


@dataclass(frozen=True)
class Strategy:
    """keep: share of memory for kept buffers. rooms: shares that may be in use, of which the first that fits is taken;
    0 for the plan's own order. fuse: layers computed together. resident: share of ACT for tensors that stay on chip
    from layer to layer."""

    keep: float
    rooms: tuple[float, ...] = (0.0,)
    fuse: bool = True
    resident: float = 0.0


_ROOMS = (0.54, 0.6, 0.66, 0.48, 0.4, 0.0)
"""Whether banks have gaps of the right size when tasks come in another order is nearly chance, and a try is cheap."""


LEVELS: dict[int, tuple[Strategy, ...]] = {
    0: tuple(Strategy(keep, fuse=False) for keep in (0.5, 0.25, 0.0)),
    1: (
        Strategy(0.5, _ROOMS, resident=0.35), Strategy(0.5, _ROOMS), Strategy(0.25), Strategy(0.25, fuse=False),
        Strategy(0.0, fuse=False),
    ),
}  # fmt: skip
"""What each level of optimisation tries in turn until the allocation succeeds; level 2 searches on from level 1."""


@dataclass(frozen=True)
class Fitted:
    """What fusion, scheduling, interleaving, allocation and emission made of a graph."""

    fused: Graph
    plan: Plan
    mixed: Plan
    allocation: Allocation
    program: Program


def first_that_fits(cost: CostModel, graph: Graph, level: int, run: PassRunner) -> Fitted:
    """The first of a level's strategies that fits.

    Raises:
        CompileError: none fits.
    """
    problem = CompileError("no strategy")
    for strategy in LEVELS[min(level, 1)]:
        try:
            return fit(cost, graph, strategy, run)
        except DoesNotFit as error:
            problem = CompileError(f"{graph.name} does not fit on chip: {error}; use a larger configuration")
        except CompileError as error:  # sizes that instructions cannot express, which other strategies may not have
            problem = error
    raise problem


def fit(
    cost: CostModel, graph: Graph, strategy: Strategy, run: PassRunner,
    tilings: Mapping[ConvShape, ConvTiling] | None = None,
) -> Fitted:  # fmt: skip
    """A graph's program. Raises DoesNotFit, or CompileError for what instructions cannot express."""
    config = cost.config
    fused = run(FusePass(config, strategy.fuse), graph, verify_graph)
    schedule = SchedulePass(cost, strategy.keep, strategy.resident, tilings or {})
    plan = run(schedule, fused, partial(verify_plan, config))
    problem = DoesNotFit("no room")
    for room in strategy.rooms:
        mixed = run(InterleavePass(cost, room), plan)
        try:
            allocation = run(AllocatePass(config, graph), mixed, partial(verify_allocation, config, mixed))
        except DoesNotFit as error:
            problem = error
            continue
        return Fitted(fused, plan, mixed, allocation, run(EmitPass(config, graph, mixed), allocation))
    raise problem
