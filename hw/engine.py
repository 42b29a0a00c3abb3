"""What the four engines have in common towards queues, tokens and ports."""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Member, Out
from npukit.hw.layout import instruction_layout
from npukit.hw.ports import port_masks
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Instruction

__all__ = ["engine_members"]


def engine_members(config: NpuConfig, kind: type[Instruction]) -> dict[str, Member]:
    """Members of the engine that executes instructions of a kind.

    instructions: stream in, the oldest instruction of its queue, once its tokens are there. It is issued when taken.
    ports: stream out, the ports that an issued instruction needs to start. When the masks are taken it starts, and
        holds them from this cycle on.
    released: ports that one instruction lets go: others can have them from the next cycle on.
    ends: stream out, the tokens that an instruction gives whose last write is done.
    dram_wait: a cycle for the counter of that name.
    """
    return {
        "instructions": In(stream.Signature(instruction_layout(kind))),
        "ports": Out(stream.Signature(port_masks(config))),
        "released": Out(port_masks(config)),
        "ends": Out(stream.Signature(len(ENGINES), always_ready=True)),
        "dram_wait": Out(1),
    }
