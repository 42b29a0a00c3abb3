"""FETCH: instructions from DRAM to the engines' queues, and END."""

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.bursts import BEAT_BITS
from npukit.hw.legality import refused
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, INSTRUCTION_BITS, OPCODE_FIELD, OPCODES, End
from npukit.isa.timing import INSTRUCTION_BYTES, Timing

__all__ = ["FetchUnit", "InstructionBurst"]


class InstructionBurst(data.Struct):
    """A burst of instructions: its first byte, from the program's start, and its beats - 1."""

    offset: 32 + exact_log2(INSTRUCTION_BYTES)
    beats: BEAT_BITS


class FetchUnit(wiring.Component):
    """Asks for bursts of instructions, keeps them in order, hands on one a cycle.

    Members:
        start: begin with instruction 0; running: from the next cycle until done.
        length: instructions of the program, END included.
        requests: stream out, bursts to read.
        beats: stream in, read data that belong to FETCH.
        queues: streams out, one for each engine: the oldest instruction goes to its own.
        idle: all queues and engines are empty. stop: an error; nothing more is taken of either.
        quiet: no burst is outstanding, so that an error may end the run.
        done: END completes in this cycle. stall: a cycle for the counter `fetch_stall`.
        illegal, missing_end: errors. index: number of the instruction that is next to be handed on.
        beat_index: of the one whose beats come.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "length": In(32),
                "running": Out(1),
                "requests": Out(stream.Signature(InstructionBurst)),
                "beats": In(stream.Signature(8 * config.bus_bytes, always_ready=True)),
                "queues": Out(stream.Signature(INSTRUCTION_BITS)).array(len(ENGINES)),
                "idle": In(1),
                "stop": In(1),
                "quiet": In(1),
                "done": Out(1),
                "stall": Out(1),
                "illegal": Out(1),
                "missing_end": Out(1),
                "index": Out(32),
                "beat_index": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timing = Timing(self._config)
        burst, capacity, bus = timing.fetch_burst, timing.fetch_buffer, self._config.bus_bytes
        active = Signal()
        """One cycle behind `running`: FETCH is idle in cycle 0."""
        asked, dispatched, arrived = Signal(32), Signal(32), Signal(32)
        # what follows from these by a subtraction is counted beside them: it is on the longest path
        left, coming, rest = Signal(32), Signal(32), Signal(32)
        """Instructions not asked for, not arrived, and behind the oldest."""
        final = Signal()
        """There is none behind the oldest."""
        held, there = Signal(range(capacity + 1)), Signal(range(capacity + 1))
        """Instructions asked for, arrived, and not handed on."""
        want, fits, asks = Signal(range(burst + 1)), Signal(), Signal()
        """How many come next, and whether there is room for them: registers, as requests end long paths. With `asks`,
        their burst is taken."""
        m.d.comb += [
            self.requests.valid.eq(active & fits),
            self.requests.payload.offset.eq(asked * INSTRUCTION_BYTES),
            self.requests.payload.beats.eq(((want * INSTRUCTION_BYTES + (bus - 1)) >> exact_log2(bus)) - 1),
            asks.eq(self.requests.valid & self.requests.ready),
            self.index.eq(dispatched),
            self.beat_index.eq(arrived),
        ]
        m.d.sync += active.eq(self.running & ~self.done)
        gone = Cat(queue.valid & queue.ready for queue in self.queues).any()
        taken = Mux(asks, want, 0)
        self._ask(m, asks, left, held, gone, want, fits)
        with m.If(asks):
            m.d.sync += [asked.eq(asked + want), left.eq(left - want)]

        newest = Signal(range(burst + 1))
        """Instructions that this cycle's beat completes."""
        oldest = Signal(range(capacity))
        instruction = Signal(INSTRUCTION_BITS)
        m.d.comb += instruction.eq(self._buffer(m, capacity, newest, oldest, coming))
        m.d.sync += [
            arrived.eq(arrived + newest),
            coming.eq(coming - newest),
            held.eq(held + taken - gone),
            there.eq(there + newest - gone),
        ]

        # hand on the oldest
        present, is_end, known = Signal(), Signal(), Signal()
        opcode = instruction[: OPCODE_FIELD.width]
        wanted = Signal(len(ENGINES))
        m.d.comb += [
            present.eq(self.running & (there != 0)),
            is_end.eq(opcode == End.opcode),
        ]
        for kind in OPCODES.values():
            if kind.engine is not None:
                with m.If(opcode == kind.opcode):
                    m.d.comb += [wanted.eq(1 << kind.engine), known.eq(1)]
        m.d.comb += [
            self.illegal.eq(present & refused(self._config, instruction)),
            self.missing_end.eq(active & ((present & (known | is_end) & (is_end != final)) | (self.length == 0))),
            self.done.eq(self.running & Mux(self.stop, self.quiet, present & is_end & final & self.idle)),
            self.stall.eq(present & known & ~self.stop & ~(wanted & Cat(queue.ready for queue in self.queues)).any()),
        ]
        for queue, mine in zip(self.queues, wanted, strict=True):
            m.d.comb += [
                queue.payload.eq(instruction),
                queue.valid.eq(present & known & ~final & mine),
            ]
        with m.If(gone):
            m.d.sync += [
                dispatched.eq(dispatched + 1),
                rest.eq(rest - 1),
                final.eq(rest == 1),
                oldest.eq(Mux(oldest == capacity - 1, 0, oldest + 1)),
            ]
        with m.If(self.done):
            m.d.sync += self.running.eq(0)
        with m.If(self.start):
            m.d.sync += [
                self.running.eq(1),
                Cat(asked, dispatched, arrived, oldest, held, there).eq(0),
                Cat(left, coming).eq(self.length.replicate(2)),
                rest.eq(self.length - 1),
                final.eq(self.length == 1),
            ]
        return m

    def _ask(
        self, m: Module, asks: Signal, left: Signal, held: Signal, gone: Value, want: Signal, fits: Signal
    ) -> None:  # fmt: skip
        """`want` and `fits` of the next cycle, made for each of what may happen in this one."""
        timing = Timing(self._config)
        burst, capacity = timing.fetch_burst, timing.fetch_buffer
        whole, part = left[exact_log2(burst) :], left[: exact_log2(burst)]
        """Bursts, and the instructions behind them."""

        def room(wanted: Value, there: Value) -> Value:
            return (wanted != 0) & Mux(gone, there + wanted <= capacity + 1, there + wanted <= capacity)

        same = Mux(whole.any(), burst, part)
        after = Mux(whole[1:].any(), burst, Mux(whole[0], part, 0))
        with m.If(asks):
            m.d.sync += [want.eq(after), fits.eq(room(after, held + want))]
        with m.Else():
            m.d.sync += [want.eq(same), fits.eq(room(same, held))]

    def _buffer(self, m: Module, capacity: int, newest: Signal, oldest: Signal, left: Value) -> Value:
        """The oldest instruction. Small memories lie side by side: one for each part that a beat brings, or, where a
        beat brings several instructions, for each of those."""
        bus = self._config.bus_bytes
        columns = max(INSTRUCTION_BYTES // bus, bus // INSTRUCTION_BYTES)
        whole = bus >= INSTRUCTION_BYTES
        width = min(8 * bus, INSTRUCTION_BITS)
        rows = capacity // columns if whole else capacity
        row_bits, column_bits = exact_log2(rows), exact_log2(columns)
        place = Signal(row_bits + (0 if whole else column_bits))
        with m.If(self.beats.valid):
            m.d.sync += place.eq(place + 1)
            if whole:  # the last beat may be part empty
                m.d.comb += newest.eq(Mux(left < columns, left, columns))
            else:
                m.d.comb += newest.eq(place[:column_bits].all() if columns > 1 else 1)
        with m.If(self.start):
            m.d.sync += place.eq(0)
        parts = []
        for column in range(columns):
            m.submodules[f"part_{column}"] = memory = Memory(shape=width, depth=rows, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            mine = newest > column if whole else place[:column_bits] == column
            m.d.comb += [
                write.en.eq(self.beats.valid & mine),
                write.addr.eq(place if whole else place[column_bits:]),
                write.data.eq(self.beats.payload.word_select(column, width) if whole else self.beats.payload),
                read.addr.eq(oldest[column_bits:] if whole else oldest),
            ]
            parts.append(read.data)
        return Array(parts)[oldest[:column_bits]] if whole and columns > 1 else Cat(*parts)
