"""tile & schedule: layers to tasks in program order, tiled to fit on chip."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from npukit.compiler.layers import ConvLayer, Subgraph
from npukit.compiler.schedule import SCHEDULERS, Builder
from npukit.compiler.schedule.conv import schedule_conv
from npukit.compiler.schedule.fusion import fused_additions
from npukit.compiler.schedule.residency import choose_residents
from npukit.compiler.schedule.strips import Chain, chains, schedule_chain
from npukit.compiler.tasks import Plan
from npukit.compiler.tiling import ConvShape, ConvTiling
from npukit.isa.config import NpuConfig

__all__ = ["SchedulePass"]

_MOST = 0.9
"""Share of ACT for a chain's buffers and for the tensors that stay meanwhile."""


@dataclass(frozen=True)
class SchedulePass:
    """`keep`: share of each memory for buffers kept between tiles; the rest is for those in work. `fuse`: compute some
    layers together. `resident`: share of ACT for tensors that stay on chip between layers. `tilings`: of convolutions
    for which the estimate is not to decide."""

    config: NpuConfig
    keep: float = 0.5
    fuse: bool = True
    resident: float = 0.0
    tilings: Mapping[ConvShape, ConvTiling] = field(default_factory=dict)
    name = "schedule"

    def run(self, subgraph: Subgraph) -> Plan:
        """The tasks of all layers. Engines overlap by themselves: queues decouple what order allows."""
        additions = fused_additions(subgraph) if self.fuse else {}
        found = chains(self.config, subgraph, additions) if self.fuse else {}
        units = _units(subgraph, found, additions)
        products = {chain.product for chain in found.values() if chain.product is not None}
        total = self.config.act_depth * self.config.act_banks
        room = [
            min(self.resident * total, _MOST * total - (found[first].words if first in found else 0))
            for first, *_ in units
        ]
        residents = choose_residents(self.config, subgraph, units, products, additions, room)
        builder = Builder(self.config, subgraph, self.keep, residents, self.tilings)
        for number, *_ in units:
            builder.node = number
            layer = subgraph.layers[number]
            if number in found:
                chain = found[number]
                schedule_chain(builder, chain, additions.get(chain.product) if chain.product is not None else None)
            elif number in additions:
                assert isinstance(layer, ConvLayer)
                schedule_conv(builder, layer, additions[number])
            else:
                SCHEDULERS[type(layer)](builder, layer)
        return builder.plan


def _units(subgraph: Subgraph, found: dict[int, Chain], additions: dict[int, int]) -> list[tuple[int, ...]]:
    """Numbers of the layers that are computed together, in the order in which that happens."""
    units: list[tuple[int, ...]] = []
    taken: set[int] = set(additions.values())
    taken.update(number for chain in found.values() for number in (chain.window, chain.product) if number is not None)
    for number in range(len(subgraph.layers)):
        if number in taken:
            continue
        chain = found.get(number)
        whole = (number,) if chain is None else (number, chain.window, chain.product)
        unit = tuple(one for one in whole if one is not None)
        units.append((*unit, additions[unit[-1]]) if unit[-1] in additions else unit)
    return units
