"""tile & schedule: layers to tasks in program order, tiled to fit on chip."""

from dataclasses import dataclass

from npukit.compiler.layers import Subgraph
from npukit.compiler.schedule import SCHEDULERS, Builder
from npukit.compiler.tasks import Plan
from npukit.isa.config import NpuConfig

__all__ = ["SchedulePass"]


@dataclass(frozen=True)
class SchedulePass:
    """`keep`: share of each memory for buffers kept between tiles; the rest is for those in work."""

    config: NpuConfig
    keep: float = 0.5
    name = "schedule"

    def run(self, subgraph: Subgraph) -> Plan:
        """The tasks of all layers. Engines overlap by themselves: queues decouple what order allows."""
        builder = Builder(self.config, subgraph, self.keep)
        for number, layer in enumerate(subgraph.layers):
            builder.node = number
            SCHEDULERS[type(layer)](builder, layer)
        return builder.plan
