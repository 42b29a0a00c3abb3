"""Delays of a fixed number of cycles."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import ValueLike
from amaranth.lib.memory import Memory
from npukit.hw.memory import NO_COLLISION

__all__ = ["delay", "delay_in_memory", "payload_attributes"]

_SHORT = 4
_BLOCK_WIDTH = 128
"""From here on a few block RAMs cost less than hundreds of LUTs."""


def delay(m: Module, value: ValueLike, cycles: int, name: str) -> Value:
    """`value` as it was `cycles` cycles ago, in registers that reset to 0."""
    current = Value.cast(value)
    for stage in range(cycles):
        register = Signal.like(current, name=f"{name}_{stage + 1}")
        m.d.sync += register.eq(current)
        current = register
    return current


def delay_in_memory(m: Module, value: ValueLike, cycles: int, name: str) -> Value:
    """The same in a small memory, whose contents no reset clears: for payloads that a valid bit goes with."""
    source = Value.cast(value)
    # a value of no bits is what a part that a configuration leaves out hands on; Yosys divides by a memory's width
    if cycles <= _SHORT or not len(source):
        return delay(m, source, cycles, name)
    # what is read in a cycle is written anew in the next one
    m.submodules[f"{name}_memory"] = memory = Memory(
        shape=len(source), depth=cycles, init=[], attrs=payload_attributes(len(source))
    )
    write, read = memory.write_port(), memory.read_port()
    written, following = Signal(range(cycles), name=f"{name}_written"), Signal(range(cycles), name=f"{name}_following")
    m.d.comb += following.eq(Mux(written == cycles - 1, 0, written + 1))
    m.d.sync += written.eq(following)
    m.d.comb += [
        write.en.eq(1),
        write.addr.eq(written),
        write.data.eq(source),
        read.en.eq(1),
        read.addr.eq(following),
    ]
    return read.data


def payload_attributes(width: int) -> dict[str, int | str]:
    """Of a shallow memory that is never read where it is written: what it is made of."""
    return {NO_COLLISION: 1, **({"ram_style": "block"} if width >= _BLOCK_WIDTH else {})}
