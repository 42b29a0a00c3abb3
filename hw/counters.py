"""Performance counters."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from npukit.isa.registers import COUNTERS

__all__ = ["Counters"]

_WIDTH = 64


class Counters(wiring.Component):
    """A 64-bit counter for each name of `isa.registers.COUNTERS`: it counts cycles in which the event of that name is
    high while `count` is, all of it a cycle late, as what is counted ends long paths.

    Totals lie in a small memory. Each counter gathers in a few bits of its own, which one adder takes to the totals, a
    counter a cycle in turn. A reader has the adder for its cycle, so that a value is whole at any time.

    Members:
        events: in, a bit for each counter, by its name.
        clear: all to 0.
        reading, index, value: the counter's value, a cycle later; at most every other cycle.
    """

    def __init__(self) -> None:
        self._names = [name for name, _ in COUNTERS]
        super().__init__(
            {
                "clear": In(1),
                "count": In(1),
                "reading": In(1),
                "index": In(range(len(COUNTERS))),
                "value": Out(_WIDTH),
                "events": In(data.StructLayout(dict.fromkeys(self._names, 1))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = len(self._names)
        m.submodules.totals = totals = Memory(shape=_WIDTH, depth=count, init=[])
        write, read = totals.write_port(), totals.read_port(domain="comb")
        clear = Signal()
        cleared = Signal(count, init=(1 << count) - 1)
        """Totals that count as 0, whatever the memory has."""
        turn, place, looking = Signal(range(count)), Signal(range(count)), Signal()
        """Whose turn comes next; whose total is at hand, and whether only to be read."""
        chosen, following = Signal(count, init=1), Signal.like(place)
        """A bit for `place`."""
        m.d.comb += following.eq(Mux(self.reading, self.index, turn))
        m.d.sync += [looking.eq(self.reading), place.eq(following), chosen.eq(1 << following)]
        with m.If(~self.reading):
            m.d.sync += turn.eq(Mux(turn == count - 1, 0, turn + 1))
        m.d.comb += [
            read.addr.eq(place),
            write.addr.eq(place),
            write.en.eq(~looking),
            write.data.eq(self.value),
        ]
        with m.If(~looking):
            m.d.sync += cleared.eq(cleared & ~chosen)

        # a turn comes after twice `count` cycles at the latest
        gathered = [Signal(range(2 * count + 2), name=f"gathered_{name}") for name in self._names]
        here = Value.cast(0)
        for one, more in zip(chosen, gathered, strict=True):
            here = here | Mux(one, more, 0)
        m.d.comb += self.value.eq(Mux((cleared & chosen).any(), 0, read.data) + here)
        m.d.sync += clear.eq(self.clear)
        for one, name, more in zip(chosen, self._names, gathered, strict=True):
            event = Signal(name=f"event_{name}")
            m.d.sync += event.eq(self.count & self.events[name])
            taken = ~looking & one
            m.d.sync += more.eq(Mux(taken, 0, more) + event)
        with m.If(clear):
            m.d.sync += [Cat(gathered).eq(0), cleared.eq((1 << count) - 1)]
        return m
