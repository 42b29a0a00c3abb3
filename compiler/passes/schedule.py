"""tile & schedule: layers to tasks in program order, tiled to fit on chip."""

from dataclasses import dataclass

from npukit.compiler.layers import ConvLayer, Subgraph
from npukit.compiler.schedule import SCHEDULERS, Builder
from npukit.compiler.schedule.conv import schedule_conv
from npukit.compiler.schedule.fusion import fused_additions
from npukit.compiler.schedule.strips import chains, schedule_chain
from npukit.compiler.tasks import Plan
from npukit.isa.config import NpuConfig

__all__ = ["SchedulePass"]


@dataclass(frozen=True)
class SchedulePass:
    """`keep`: share of each memory for buffers kept between tiles; the rest is for those in work. `fuse`: compute some
    layers together."""

    config: NpuConfig
    keep: float = 0.5
    fuse: bool = True
    name = "schedule"

    def run(self, subgraph: Subgraph) -> Plan:
        """The tasks of all layers. Engines overlap by themselves: queues decouple what order allows."""
        builder = Builder(self.config, subgraph, self.keep)
        additions = fused_additions(subgraph) if self.fuse else {}
        found = chains(self.config, subgraph, additions) if self.fuse else {}
        later = {number for chain in found.values() for number in (chain.window, chain.product)}
        later.update(additions.values())
        for number, layer in enumerate(subgraph.layers):
            if number in later:
                continue
            builder.node = number
            if number in found:
                chain = found[number]
                schedule_chain(builder, chain, additions.get(chain.product) if chain.product is not None else None)
            elif number in additions:
                assert isinstance(layer, ConvLayer)
                schedule_conv(builder, layer, additions[number])
            else:
                SCHEDULERS[type(layer)](builder, layer)
        return builder.plan
