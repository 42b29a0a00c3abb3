"""Sticky errors: which cause, and which instruction raised it."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from npukit.hw.memory import NO_COLLISION
from npukit.hw.registers import bits_layout
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Engine
from npukit.isa.registers import ErrorCause
from npukit.isa.timing import Timing

__all__ = ["ErrorLog", "ErrorSource", "Whose"]

_ENGINE_BITS = 2


class Whose(enum.Enum):
    """Whose fault it is, as seen in the cycle in which a source is high."""

    NUMBER = 0
    """The instruction that `number` names."""
    ISSUED = 1
    """The latest one that the engine issued before this cycle."""
    STARTED = 2
    """The latest one that the engine started before this cycle."""
    STARTED_BEFORE = 3
    """The latest one that it had started a cycle earlier, for sources that come through a register."""
    OLDEST = 4
    """The oldest one of the engine without an end."""
    ENDED = 5
    """The latest one that the engine ended before this cycle."""


@dataclass(frozen=True)
class ErrorSource:
    """A signal that says that something went wrong; `engine` says whose counters name the instruction."""

    cause: ErrorCause
    engine: Engine = Engine.LOAD
    whose: Whose = Whose.NUMBER


class ErrorLog(wiring.Component):
    """Keeps the causes of the first cycle with an error, and the first of its sources' instruction.

    Numbers are written to a small memory as instructions are queued, and looked up when something went wrong:
    so the engines carry none. `errors` is right a cycle after its cause, `index` three cycles after it.

    Members:
        raised: a bit for each source, by precedence; number: of the instruction, for `Whose.NUMBER`.
        clear: a program begins. armed: sources count.
        queue_number, queue, issue, start, end: instruction handed on, and bits of the engines' events.
        errors, index: see above; only a reset clears them. stop: there is an error; a register.
    """

    def __init__(self, config: NpuConfig, sources: Sequence[ErrorSource]) -> None:
        self._sources = tuple(sources)
        timing = Timing(config)
        # more than an engine has queued, issued and not ended (`docs/timing.md`, section 12)
        active = max(timing.matrix_active, timing.vector_active) + 4
        self._slot_bits = (2 * config.queue_depth + active - 1).bit_length()
        super().__init__(
            {
                "raised": In(len(self._sources)),
                "number": In(32),
                "clear": In(1),
                "armed": In(1),
                "queue_number": In(32),
                **{name: In(len(ENGINES)) for name in ("queue", "issue", "start", "end")},
                "errors": Out(bits_layout(ErrorCause)),
                "index": Out(32),
                "stop": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slots = 1 << self._slot_bits
        m.submodules.numbers = numbers = Memory(shape=32, depth=len(ENGINES) * slots, init=[], attrs={NO_COLLISION: 1})
        write, read = numbers.write_port(), numbers.read_port()
        counts = {
            name: [Signal(self._slot_bits, name=f"{name}_{engine}") for engine in range(len(ENGINES))]
            for name in ("queue", "issue", "start", "end", "start_before")
        }
        for engine in range(len(ENGINES)):
            for name in ("queue", "issue", "start", "end"):
                count = counts[name][engine]
                with m.If(getattr(self, name)[engine]):
                    m.d.sync += count.eq(count + 1)
                with m.If(self.clear):
                    m.d.sync += count.eq(0)
            m.d.sync += counts["start_before"][engine].eq(counts["start"][engine])
            with m.If(self.queue[engine]):
                m.d.comb += [
                    write.en.eq(1),
                    write.addr.eq(Cat(counts["queue"][engine], C(engine, _ENGINE_BITS))),
                    write.data.eq(self.queue_number),
                ]

        # what names the instruction stands still with the first error, and is looked at afterwards
        armed = self.armed & ~self.stop
        raised, number = Signal.like(self.raised, name="first_raised"), Signal(32)
        slots = {source: Signal(self._slot_bits, name=f"slot_{k}") for k, source in enumerate(self._named())}
        with m.If(armed):
            m.d.sync += self.stop.eq(self.raised.any())
            m.d.sync += [raised.eq(self.raised), number.eq(self.number)]
            m.d.sync += [slot.eq(self._slot(counts, *of)) for of, slot in slots.items()]
            for bit, source in enumerate(self._sources):
                with m.If(self.raised[bit]):
                    m.d.sync += self.errors[source.cause.name.lower()].eq(1)

        place, by_number = Signal(len(write.addr)), Signal()
        for bit, source in reversed(list(enumerate(self._sources))):  # the last assignment wins
            with m.If(raised[bit]):
                m.d.sync += by_number.eq(source.whose is Whose.NUMBER)
                if source.whose is not Whose.NUMBER:
                    m.d.sync += place.eq(Cat(slots[source.whose, source.engine], C(source.engine, _ENGINE_BITS)))
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(place),
            # no reset clears the memory's output
            self.index.eq(Mux(self.stop, Mux(by_number, number, read.data), 0)),
        ]
        return m

    def _named(self) -> list[tuple[Whose, Engine]]:
        """Whose instructions the sources name, but for `Whose.NUMBER`."""
        pairs = ((source.whose, source.engine) for source in self._sources)
        return [pair for pair in dict.fromkeys(pairs) if pair[0] is not Whose.NUMBER]

    def _slot(self, counts: dict[str, list[Signal]], whose: Whose, engine: Engine):
        if whose is Whose.OLDEST:
            return counts["end"][engine]
        latest = {
            Whose.ISSUED: "issue",
            Whose.STARTED: "start",
            Whose.STARTED_BEFORE: "start_before",
            Whose.ENDED: "end",
        }
        return (counts[latest[whose]][engine] - 1)[: self._slot_bits]
