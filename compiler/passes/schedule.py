"""schedule: operations, alone or in groups, become tasks in program order, tiled to fit on chip."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npukit.compiler.cost import CostModel
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    ByElement,
    Convolution,
    DepthwiseConvolution,
    Elementwise,
    MaxPool,
    Rearrange,
    Softmax,
    TensorOperation,
)
from npukit.compiler.pass_base import Pass
from npukit.compiler.schedule import SCHEDULERS, Builder
from npukit.compiler.schedule.attention import schedule_attention
from npukit.compiler.schedule.conv import convolution_steps, schedule_convolution
from npukit.compiler.schedule.in_parts import to_compute_in_parts
from npukit.compiler.schedule.rearrange import rearrange_steps
from npukit.compiler.schedule.residency import choose_residents
from npukit.compiler.schedule.strips import Chain, plan_chain, schedule_chain
from npukit.compiler.schedule.window import schedule_depthwise, schedule_maxpool
from npukit.compiler.tasks import Plan
from npukit.compiler.tiling import ConvShape, ConvTiling
from npukit.compiler.verify import verify_plan
from npukit.isa.config import NpuConfig

__all__ = ["SchedulePass"]

_WITH_FOLLOWERS: Mapping[type[TensorOperation], Callable[[Builder, Any, tuple[int, ...]], None]] = {
    Convolution: schedule_convolution,
    DepthwiseConvolution: schedule_depthwise,
    MaxPool: schedule_maxpool,
}
_MOST = 0.9
"""Share of ACT for a chain's buffers and for the tensors that stay meanwhile."""


@dataclass(frozen=True)
class SchedulePass(Pass[Graph, Plan]):
    """The tasks of a graph whose operations are in groups.

    Attributes:
        cost: what to compile for, and what it costs there.
        keep: share of each memory for buffers kept between tiles; the rest is for those in work.
        resident: share of ACT for tensors that stay on chip between layers.
        tilings: of convolutions for which the estimate is not to decide.
    """

    cost: CostModel
    keep: float = 0.5
    resident: float = 0.0
    tilings: Mapping[ConvShape, ConvTiling] = field(default_factory=dict)
    name = "schedule"

    def run(self, graph: Graph) -> Plan:
        """The tasks of all operations. Engines overlap by themselves: queues decouple what order allows."""
        config = self.cost.config
        units = [_Unit.of(config, graph, numbers) for numbers in graph.units()]
        total = config.act_depth * config.act_banks
        room = [min(self.resident * total, _MOST * total - (unit.chain.words if unit.chain else 0)) for unit in units]
        residents = choose_residents(config, graph, room)
        whole = Builder(self.cost, graph, self.keep, residents, self.tilings, to_compute_in_parts(graph))
        postponed = _for_attention(graph, units) - {unit.last for unit in units if unit.result(graph) in residents}
        for unit in units:
            layer = graph.operations[unit.first]
            if unit.last in postponed:
                whole.postpone(unit.result(graph), _steps(whole.of(unit.first), layer, unit.followers))
            elif unit.attention:
                schedule_attention(whole, unit.numbers)
                whole.finish()
            elif unit.chain is not None:
                schedule_chain(whole, unit.chain, unit.followers)
            elif unit.followers:
                schedule = _WITH_FOLLOWERS[type(layer)]
                schedule(whole.of(unit.first), layer, unit.followers)
            else:
                SCHEDULERS[type(layer)](whole.of(unit.first), layer)
        return whole.plan

    def check(self, made: Plan) -> None:
        """Raise a VerifyError where an operand leaves its buffer, or a buffer its bank."""
        verify_plan(self.cost.config, made)


@dataclass(frozen=True)
class _Unit:
    """Operations that are computed together: a chain, or one, and others behind it that take its result in turn; or
    those of an attention."""

    numbers: tuple[int, ...]
    chain: Chain | None = None
    followers: tuple[int, ...] = ()
    attention: bool = False

    @classmethod
    def of(cls, config: NpuConfig, graph: Graph, numbers: tuple[int, ...]) -> "_Unit":
        first, *others = numbers
        if any(isinstance(graph.operations[number], Softmax) for number in others):
            return cls(numbers, attention=True)
        taking = [number for number in others if isinstance(graph.operations[number], Elementwise | ByElement)]
        others, followers = others[: len(others) - len(taking)], tuple(taking)
        if not others:
            return cls(numbers, None, followers)
        window, *products = others
        assert isinstance(graph.operations[window], DepthwiseConvolution | MaxPool)
        chain = plan_chain(config, graph, first, window, products[0] if products else None)
        assert chain is not None, numbers
        return cls(numbers, chain, followers)

    @property
    def first(self) -> int:
        """The operation that is computed first."""
        return self.numbers[0]

    @property
    def last(self) -> int:
        """The operation whose result is the unit's."""
        return self.numbers[-1]

    def result(self, graph: Graph) -> str:
        """What the unit makes."""
        return graph.operations[self.last].output


def _steps(builder: Builder, layer: TensorOperation, followers: tuple[int, ...]) -> Iterator[None]:
    """Emit tasks, some with each step."""
    if isinstance(layer, Convolution):
        return convolution_steps(builder, layer, followers)
    assert isinstance(layer, Rearrange)
    return rearrange_steps(builder, layer)


def _for_attention(graph: Graph, units: Sequence[_Unit]) -> set[int]:
    """Units, by their last operation, whose results attention alone reads, or rearrangements for it."""
    readers, unit_of = graph.readers(), {number: unit for unit in units for number in unit.numbers}
    found: set[int] = set()
    for unit in reversed(units):
        layer = graph.operations[unit.first]
        if unit.chain is not None or unit.attention or not isinstance(layer, Convolution | Rearrange):
            continue
        using = [unit_of[number] for number in readers.get(unit.result(graph), ())]
        if using and all(one.attention or one.last in found for one in using):
            found.add(unit.last)
    return found
