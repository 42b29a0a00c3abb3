"""How memory is shared between buffers that are kept, work that is prepared, and the rest: what is tried, in turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npukit.compiler.cost import CostModel
from npukit.compiler.errors import CompileError
from npukit.compiler.ir.graph import Graph
from npukit.compiler.pass_base import Pass, PassRunner
from npukit.compiler.passes.allocate import AllocatePass, DoesNotFit
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.fuse import FusePass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.tiling import ConvShape, ConvTiling
from npukit.isa.program import Program

__all__ = ["LEVELS", "Fitted", "Strategy", "back_end", "first_that_fits", "fit"]


@dataclass(frozen=True)
class Strategy:
    """keep: share of memory for kept buffers. rooms: shares that may be in use, of which the first that fits is taken;
    0 for the plan's own order. fuse: layers computed together. resident: share of ACT for tensors that stay on chip
    from layer to layer. compact: words as low as can be, in place of those that rested longest."""

    keep: float
    rooms: tuple[float, ...] = (0.0,)
    fuse: bool = True
    resident: float = 0.0
    compact: bool = False


_LAST = Strategy(0.0, fuse=False, compact=True)
"""Where memory is so small that nothing else fits."""
_ROOMS = (0.6, 0.54, 0.66, 0.48, 0.4, 0.0)
"""Whether banks have gaps of the right size when tasks come in another order is nearly chance, and a try is cheap."""


LEVELS: dict[int, tuple[Strategy, ...]] = {
    0: (*(Strategy(keep, fuse=False) for keep in (0.5, 0.25, 0.0)), _LAST),
    1: (
        Strategy(0.5, _ROOMS, resident=0.35), Strategy(0.5, _ROOMS), Strategy(0.25), Strategy(0.25, fuse=False),
        Strategy(0.0, fuse=False), _LAST,
    ),
}  # fmt: skip
"""What each level of optimisation tries in turn until the allocation succeeds; level 2 searches on from level 1."""


@dataclass(frozen=True)
class Fitted:
    """A graph's program, and what each of the passes behind `fold` made on the way to it, by name."""

    program: Program
    stages: Mapping[str, object]


def back_end(
    cost: CostModel, strategy: Strategy, room: float = 0.0, tilings: Mapping[ConvShape, ConvTiling] | None = None
) -> tuple[Pass[Any, Any], ...]:
    """The passes from a graph to its program, in their order."""
    config = cost.config
    return (
        FusePass(config, strategy.fuse),
        SchedulePass(cost, strategy.keep, strategy.resident, tilings or {}),
        InterleavePass(cost, room),
        AllocatePass(config, strategy.compact),
        EmitPass(config),
    )


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
    problem = DoesNotFit("no room")
    planned: dict[str, object] = {}
    for room in strategy.rooms:
        stages: dict[str, object] = {}
        made: Any = graph
        try:
            for one in back_end(cost, strategy, room, tilings):
                if one.name in planned:  # it does not depend on the room
                    made = planned[one.name]
                else:
                    made = run(one, made)
                stages[one.name] = made
        except DoesNotFit as error:
            problem = error
            planned = {name: stage for name, stage in stages.items() if name in (FusePass.name, SchedulePass.name)}
            continue
        return Fitted(made, stages)
    raise problem
