"""How memory is shared between buffers that are kept, work that is prepared, and the rest: what is tried, in turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npukit.compiler.cost import CostModel
from npukit.compiler.errors import CompileError
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Normalization, Softmax
from npukit.compiler.pass_base import Pass, PassRunner
from npukit.compiler.passes.allocate import AllocatePass, DoesNotFit
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.fuse import FusePass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.tiling import ConvShape, ConvTiling
from npukit.isa.program import Program

__all__ = ["LEVELS", "Fitted", "Order", "Strategy", "back_end", "first_that_fits", "fit", "has_long_work"]


@dataclass(frozen=True)
class Order:
    """In what order tasks come, and where their buffers lie.

    Attributes:
        room: share of each memory that may be in use at once, or with `ahead`, by tasks before their turn; 0 for the
            plan's own order.
        ahead: tasks by which an engine may look ahead; see `InterleavePass`.
        compact: words as low as can be, in place of those that rested longest; with `ahead`, places are chosen then.
    """

    room: float = 0.0
    ahead: int = 0
    compact: bool = False


@dataclass(frozen=True)
class Strategy:
    """keep: share of memory for kept buffers. orders: of which the first that fits is taken. fuse: layers computed
    together. resident: share of ACT for tensors that stay on chip from layer to layer."""

    keep: float
    orders: tuple[Order, ...] = (Order(),)
    fuse: bool = True
    resident: float = 0.0


_LAST = Strategy(0.0, (Order(compact=True),), fuse=False)
"""Where memory is so small that nothing else fits."""
_AHEAD = (Order(0.9, 400), Order(0.8, 300), Order(0.7, 150), Order(0.6, 60))
"""Where VECTOR has long operations of its own, which the array need not wait for."""
_ORDERS = (*_AHEAD, *(Order(room) for room in (0.6, 0.54, 0.66, 0.48, 0.4, 0.0)))
"""Whether banks have gaps of the right size when tasks come in another order is nearly chance, and a try is cheap."""


LEVELS: dict[int, tuple[Strategy, ...]] = {
    0: (*(Strategy(keep, fuse=False) for keep in (0.5, 0.25, 0.0)), _LAST),
    1: (
        Strategy(0.5, _ORDERS, resident=0.35), Strategy(0.5, _ORDERS), Strategy(0.25), Strategy(0.25, fuse=False),
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
    cost: CostModel, strategy: Strategy, order: Order, tilings: Mapping[ConvShape, ConvTiling] | None = None
) -> tuple[Pass[Any, Any], ...]:
    """The passes from a graph to its program, in their order."""
    config = cost.config
    return (
        FusePass(config, strategy.fuse),
        SchedulePass(cost, strategy.keep, strategy.resident, tilings or {}),
        InterleavePass(cost, order.room, order.ahead),
        AllocatePass(config, order.compact),
        EmitPass(config),
    )


def has_long_work(graph: Graph) -> bool:
    """Whether VECTOR has operations of its own that take long, for which an engine may look ahead."""
    return any(isinstance(one, Normalization | Softmax) for one in graph.operations)


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
    long = has_long_work(graph)
    for order in strategy.orders:
        if order.ahead and not long:
            continue
        stages: dict[str, object] = {}
        made: Any = graph
        try:
            for one in back_end(cost, strategy, order, tilings):
                if one.name in planned:  # it does not depend on the order
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
