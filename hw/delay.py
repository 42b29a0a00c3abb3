"""Delays of a fixed number of cycles."""

from amaranth import Module, Signal, Value
from amaranth.hdl import ValueLike
from amaranth.lib.memory import Memory

__all__ = ["delay", "delay_in_memory"]

_SHORT = 4


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
    if cycles <= _SHORT:
        return delay(m, source, cycles, name)
    # written and read at one address: the read gets what was written a whole round before
    depth = cycles - 1
    m.submodules[f"{name}_memory"] = memory = Memory(shape=len(source), depth=depth, init=[])
    write, read = memory.write_port(), memory.read_port()
    pointer = Signal(range(depth), name=f"{name}_pointer")
    m.d.sync += pointer.eq(pointer + 1)
    with m.If(pointer == depth - 1):
        m.d.sync += pointer.eq(0)
    m.d.comb += [
        write.en.eq(1),
        write.addr.eq(pointer),
        write.data.eq(source),
        read.en.eq(1),
        read.addr.eq(pointer),
    ]
    return read.data
