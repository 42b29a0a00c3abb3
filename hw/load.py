"""LOAD: read bursts from DRAM into ACT, WGT and PAR, with borders."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.bursts import BurstGenerator, burst_layout, bytes_of, last_byte_of
from npukit.hw.engine import engine_members
from npukit.hw.layout import instruction_view
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import WordAddress, write_port
from npukit.hw.queue import Queue
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Load, Memory

__all__ = ["LoadEngine"]


class LoadEngine(wiring.Component):
    """A request side that presents bursts, and a write side that fills memory, each on one LOAD at a time.

    Members: those of every engine, and
        limit: bytes of DRAM that operands may touch.
        requests: stream out, bursts to read.
        beats: stream in, read data that belong to LOAD.
        act, wgt, par: write ports.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        super().__init__(
            {
                **engine_members(config, Load),
                "limit": In(64),
                "requests": Out(stream.Signature(burst_layout(config))),
                "beats": In(stream.Signature(8 * config.bus_bytes)),
                "act": Out(write_port(word)),
                "wgt": Out(write_port(word)),
                "par": Out(write_port(wide)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        head, issue = self.instructions.payload, Signal()
        request = Signal.like(head)
        m.submodules.bursts = bursts = BurstGenerator(config)
        m.submodules.issued = issued = Queue(head.shape(), config.queue_depth)
        # the first burst is made before the instruction is issued: `issue` comes late
        source = instruction_view(Load, Mux(bursts.bursts.valid, request.as_value(), head.as_value()))
        m.d.comb += [
            bursts.load.eq(issue),
            bursts.start.eq(bytes_of(head.dram, config.word_bytes)),
            bursts.rows.planes.eq(source.planes),
            bursts.rows.rows.eq(source.rows),
            bursts.rows.bytes.eq(
                Mux(
                    source.memory == Memory.PAR,
                    last_byte_of(source.words, config.wide_word_bytes),
                    last_byte_of(source.words, config.word_bytes),
                )
            ),
            bursts.rows.plane_stride.eq(bytes_of(source.dram_plane_stride, config.word_bytes)),
            bursts.rows.row_stride.eq(bytes_of(source.dram_row_stride, config.word_bytes)),
            bursts.limit.eq(self.limit),
        ]
        wiring.connect(m, bursts.bursts, wiring.flipped(self.requests))
        in_flight = Signal(range(config.queue_depth + 1))
        m.d.comb += [
            self.instructions.ready.eq(~bursts.bursts.valid & (in_flight < config.queue_depth)),
            issue.eq(self.instructions.valid & self.instructions.ready),
            issued.writes.valid.eq(issue),
            issued.writes.payload.eq(head),
        ]
        m.d.sync += in_flight.eq(in_flight + issue - self.ends.valid)
        with m.If(issue):
            m.d.sync += request.eq(head)
        self._write_side(m, issued.reads)
        return m

    def _write_side(self, m: Module, issued: stream.Interface) -> None:
        config = self._config
        waiting, run = issued.payload, Signal.like(issued.payload)
        running, start = Signal(), Signal()
        m.d.comb += [
            self.ports.valid.eq(issued.valid & ~running),
            self.ports.payload.act_write.eq(Mux(waiting.memory == Memory.ACT, 1 << waiting.bank, 0)),
            self.ports.payload.wgt_write.eq(waiting.memory == Memory.WGT),
            start.eq(self.ports.valid & self.ports.ready),
            issued.ready.eq(start),
        ]
        # rows and columns with their borders; chip addresses and the place of a row in a beat follow
        m.submodules.place = place = LoopNest([len(run.planes), len(run.rows) + 1, len(run.words) + 1], 2)
        # the last row and word that DRAM has, and those of the border behind them
        last_row, last_word, rows, words = (Signal.like(place.counts[1]) for _ in range(4))
        with m.If(start):
            m.d.sync += [
                last_row.eq(waiting.pad_top + waiting.rows),
                last_word.eq(waiting.pad_left + waiting.words),
                rows.eq(waiting.pad_top + waiting.rows + waiting.pad_bottom),
                words.eq(waiting.pad_left + waiting.words + waiting.pad_right),
            ]
        m.d.comb += [
            place.counts[0].eq(run.planes),
            place.counts[1].eq(rows),
            place.counts[2].eq(words),
            place.once[0].eq(waiting.planes == 0),
            place.once[1].eq(Cat(waiting.pad_top, waiting.rows, waiting.pad_bottom) == 0),
            place.once[2].eq(Cat(waiting.pad_left, waiting.words, waiting.pad_right) == 0),
            place.strides[0][0].eq(run.plane_stride),
            place.strides[0][1].eq(run.row_stride),
            place.strides[0][2].eq(run.word_stride),
            place.offsets[0].eq(waiting.offset),
            place.load.eq(start),
        ]
        row, column = place.index[1], place.index[2]
        border = Signal()
        m.d.comb += border.eq((row < run.pad_top) | (row > last_row) | (column < run.pad_left) | (column > last_word))
        first_word = column == run.pad_left
        needs_beat, word, word_done = self._words(m, run, place, first_word, waiting)
        slot = Signal()
        m.d.comb += [
            self.beats.ready.eq(running & ~border & needs_beat),
            slot.eq(running & (border | ~needs_beat | self.beats.valid)),
            place.step.eq(slot & (border | word_done)),
            self.dram_wait.eq(self.beats.ready & ~self.beats.valid),
        ]
        finished = place.step & place.last
        with m.If(finished):
            m.d.sync += running.eq(0)
        with m.If(start):
            m.d.sync += [running.eq(1), run.eq(waiting)]

        # the write, one cycle later
        write, memory, address = Signal(), Signal.like(run.memory), Signal(WordAddress)
        word_written, frees_act, frees_wgt = Signal(8 * config.wide_word_bytes), Signal(), Signal()
        pad = Value.cast(run.pad_value)[: 8 * config.element_bytes].replicate(config.array)
        m.d.sync += [
            write.eq(place.step),
            memory.eq(run.memory),
            address.bank.eq(run.bank),
            address.offset.eq(ring(run.offset, place.address[0], run.wrap)),
            word_written.eq(Mux(border, pad, word)),
            self.ends.valid.eq(finished),
            self.ends.payload.eq(run.signal),
            frees_act.eq(finished & (run.memory == Memory.ACT)),
            frees_wgt.eq(finished & (run.memory == Memory.WGT)),
        ]
        m.d.comb += [
            self.released.act_write.eq(Mux(frees_act, 1 << address.bank, 0)),
            self.released.wgt_write.eq(frees_wgt),
        ]
        for port, kind in ((self.act, Memory.ACT), (self.wgt, Memory.WGT), (self.par, Memory.PAR)):
            m.d.comb += [
                port.valid.eq(write & (memory == kind)),
                port.payload.address.bank.eq(address.bank if kind is Memory.ACT else 0),
                port.payload.address.offset.eq(address.offset),
                port.payload.data.eq(word_written),
            ]

    def _words(self, m: Module, run, place: LoopNest, first_word: Value, waiting) -> tuple[Value, Value, Value]:
        """(a beat is needed, the word that it completes, whether it does) for words of either width."""
        config = self._config
        bus = config.bus_bytes
        wide_sizes = {config.word_bytes, config.wide_word_bytes}
        held, taken = Signal(8 * bus), Signal()
        m.d.comb += taken.eq(self.beats.ready & self.beats.valid)
        with m.If(taken):
            m.d.sync += held.eq(self.beats.payload)

        # words narrower than the bus: which part of the beat is next
        lane = Signal(max(1, exact_log2(bus)))
        m.d.comb += [
            place.offsets[1].eq(waiting.dram),
            place.strides[1][0].eq(run.dram_plane_stride),
            # border rows above the first do not move in DRAM
            place.strides[1][1].eq(Mux(place.index[1] < run.pad_top, 0, run.dram_row_stride)),
        ]
        counted = Signal(8)  # beats of the present word that came before, for words wider than the bus
        history = [held]
        most_beats = max(wide_sizes) // bus
        for index in range(most_beats - 2):
            older = Signal(8 * bus, name=f"beat_{index}")
            with m.If(taken):
                m.d.sync += older.eq(history[-1])
            history.append(older)

        results = {}
        for size in sorted(wide_sizes):
            if size >= bus:
                beats = size // bus
                parts = [*reversed(history[: beats - 1]), self.beats.payload]
                results[size] = (Value.cast(1), Cat(*parts), counted == beats - 1)
            else:
                parts_per_beat = bus // size
                bits = exact_log2(parts_per_beat)
                row_start = (
                    place.address[1]
                    if size == config.word_bytes
                    else place.address[1] >> exact_log2(config.wide_word_units)
                )
                now = Mux(first_word, row_start[:bits], lane[:bits])
                fresh = first_word | (lane[:bits] == 0)
                beat = Mux(fresh, self.beats.payload, held)
                results[size] = (fresh, beat.word_select(now, 8 * size), Value.cast(1))
                is_this = (run.memory == Memory.PAR) == (size != config.word_bytes)
                with m.If(place.step & is_this):
                    m.d.sync += lane.eq((now + 1)[:bits])
        with m.If(taken):
            m.d.sync += counted.eq(counted + 1)
        with m.If(place.step):
            m.d.sync += counted.eq(0)
        par = run.memory == Memory.PAR
        one, two = results[config.word_bytes], results[config.wide_word_bytes]
        return tuple(Mux(par, b, a) for a, b in zip(one, two, strict=True))  # type: ignore[return-value]
