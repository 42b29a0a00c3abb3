"""LOAD: read bursts from DRAM into ACT, WGT and PAR, with borders."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.bursts import BurstGenerator, address_bits, bytes_of, last_byte_of
from npukit.hw.engine import engine_members
from npukit.hw.layout import instruction_layout
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import WritePort, write_port
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import INSTRUCTION_BITS, Load, Memory

__all__ = ["LoadEngine"]


class LoadEngine(wiring.Component):
    """A request side that presents bursts, and a write side that fills memory, each on one LOAD at a time.

    Members: those of every engine, and
        request_valid, request_address, request_beats, request_outside, request_take: the burst presented.
        beat_valid, beat_ready, beat_data: read data that belong to LOAD.
        start_act: the start asks for the write port of bank `start_bank` of ACT; `end_act`, `end_bank`: free.
        act, wgt, par: write ports.
    """

    act: WritePort
    wgt: WritePort
    par: WritePort

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        super().__init__(
            {
                **engine_members(),
                "limit": In(64),
                "request_valid": Out(1),
                "request_address": Out(address_bits(config)),
                "request_beats": Out(8),
                "request_outside": Out(1),
                "request_take": In(1),
                "beat_valid": In(1),
                "beat_ready": Out(1),
                "beat_data": In(8 * config.bus_bytes),
                "start_act": Out(1),
                "start_bank": Out(4),
                "end_act": Out(1),
                "end_bank": Out(4),
                "act": Out(write_port(word)),
                "wgt": Out(write_port(word)),
                "par": Out(write_port(wide)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        layout = instruction_layout(Load)
        head = layout(self.head)

        m.submodules.bursts = bursts = BurstGenerator(config)
        m.submodules.issued = issued = SyncFIFO(width=INSTRUCTION_BITS, depth=config.queue_depth)
        request = Signal(layout)
        source = layout(Mux(bursts.valid, request.as_value(), self.head))
        wide = source.memory == Memory.PAR
        m.d.comb += [
            bursts.load.eq(self.issue),
            bursts.planes.eq(source.planes),
            bursts.rows.eq(source.rows),
            bursts.bytes.eq(
                Mux(wide, *(last_byte_of(source.words, size) for size in (config.wide_word_bytes, config.word_bytes)))
            ),
            bursts.start.eq(bytes_of(head.dram, config.word_bytes)),
            bursts.plane_stride.eq(bytes_of(source.dram_plane_stride, config.word_bytes)),
            bursts.row_stride.eq(bytes_of(source.dram_row_stride, config.word_bytes)),
            bursts.limit.eq(self.limit),
            bursts.take.eq(self.request_take),
            self.request_valid.eq(bursts.valid),
            self.request_address.eq(bursts.address),
            self.request_beats.eq(bursts.beats),
            self.request_outside.eq(bursts.outside),
        ]
        in_flight = Signal(range(config.queue_depth + 1))
        m.d.comb += [
            self.front_free.eq(~bursts.valid & (in_flight < config.queue_depth)),
            self.issue.eq(self.head_valid & self.front_free & self.issue_ok),
            issued.w_en.eq(self.issue),
            issued.w_data.eq(self.head),
        ]
        m.d.sync += in_flight.eq(in_flight + self.issue - self.end)
        with m.If(self.issue):
            m.d.sync += request.eq(head)
        self._write_side(m, issued)
        return m

    def _write_side(self, m: Module, issued: SyncFIFO) -> None:
        config = self._config
        layout = instruction_layout(Load)
        waiting, run = layout(issued.r_data), Signal(layout)
        running = Signal()
        m.d.comb += [
            self.start_request.eq(issued.r_rdy & ~running),
            self.start_act.eq(waiting.memory == Memory.ACT),
            self.start_bank.eq(waiting.bank),
            issued.r_en.eq(self.start_grant),
        ]
        # rows and columns with their borders; chip addresses and the place of a row in a beat follow
        place = LoopNest(3, 2, count_bits=18).build(m)
        # the last row and word that DRAM has, and those of the border behind them
        last_row, last_word, rows, words = (Signal.like(place.counts[1]) for _ in range(4))
        with m.If(self.start_grant):
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
            place.load.eq(self.start_grant),
        ]
        row, column = place.index[1], place.index[2]
        border = Signal()
        m.d.comb += border.eq((row < run.pad_top) | (row > last_row) | (column < run.pad_left) | (column > last_word))
        first_word = column == run.pad_left
        needs_beat, word, word_done = self._words(m, run, place, first_word, waiting)
        slot = Signal()
        m.d.comb += [
            self.beat_ready.eq(running & ~border & needs_beat),
            slot.eq(running & (border | ~needs_beat | self.beat_valid)),
            place.step.eq(slot & (border | word_done)),
            self.dram_wait.eq(self.beat_ready & ~self.beat_valid),
        ]
        finished = place.step & place.last
        with m.If(finished):
            m.d.sync += running.eq(0)
        with m.If(self.start_grant):
            m.d.sync += [running.eq(1), run.eq(waiting)]

        # the write, one cycle later
        write, memory, bank = Signal(), Signal(2), Signal(4)
        offset, data = Signal(15), Signal(8 * config.wide_word_bytes)
        pad = Value.cast(run.pad_value)[: 8 * config.element_bytes].replicate(config.array)
        m.d.sync += [
            write.eq(place.step),
            memory.eq(run.memory),
            bank.eq(run.bank),
            offset.eq(ring(run.offset, place.address[0], run.wrap)),
            data.eq(Mux(border, pad, word)),
            self.end.eq(finished),
            self.end_signal.eq(run.signal),
            self.end_act.eq(finished & (run.memory == Memory.ACT)),
            self.end_bank.eq(run.bank),
        ]
        for port, kind in ((self.act, Memory.ACT), (self.wgt, Memory.WGT), (self.par, Memory.PAR)):
            m.d.comb += [
                port.en.eq(write & (memory == kind)),
                port.bank.eq(bank if kind is Memory.ACT else 0),
                port.offset.eq(offset),
                port.data.eq(data[: len(port.data)]),
            ]

    def _words(self, m: Module, run, place: LoopNest, first_word: Value, waiting) -> tuple[Value, Value, Value]:
        """(a beat is needed, the word that it completes, whether it does) for words of either width."""
        config = self._config
        bus = config.bus_bytes
        wide_sizes = {config.word_bytes, config.wide_word_bytes}
        held, taken = Signal(8 * bus), Signal()
        m.d.comb += taken.eq(self.beat_ready & self.beat_valid)
        with m.If(taken):
            m.d.sync += held.eq(self.beat_data)

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
                parts = [*reversed(history[: beats - 1]), self.beat_data]
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
                beat = Mux(fresh, self.beat_data, held)
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
