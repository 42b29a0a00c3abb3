"""STORE: words of ACT to write bursts in DRAM."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.bursts import BurstGenerator, address_bits, bytes_of, last_byte_of
from npukit.hw.engine import engine_members
from npukit.hw.layout import instruction_layout
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import ReadPort, read_port
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Store
from npukit.isa.timing import WRITE_OUTSTANDING, Timing

__all__ = ["StoreEngine"]


class StoreEngine(wiring.Component):
    """Addresses run ahead; data follow from a short buffer behind the read port.

    Members: those of every engine, and
        address_valid, address, address_beats, address_outside, address_take: the burst presented.
        data_valid, data, strobe, data_last, data_take: a beat of write data.
        response: a write response comes in this cycle. outstanding: one is still to come.
        start_bank: the start asks for its read port of ACT; `free_act`, `free_bank`: it is free.
        act: read port.
    """

    act: ReadPort

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {
                **engine_members(),
                "limit": In(64),
                "address_valid": Out(1),
                "address": Out(address_bits(config)),
                "address_beats": Out(8),
                "address_outside": Out(1),
                "address_take": In(1),
                "data_valid": Out(1),
                "data": Out(8 * config.bus_bytes),
                "strobe": Out(config.bus_bytes),
                "data_last": Out(1),
                "data_take": In(1),
                "response": In(1),
                "outstanding": Out(1),
                "start_bank": Out(4),
                "free_act": Out(1),
                "free_bank": Out(4),
                "act": Out(read_port(8 * config.word_bytes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        layout = instruction_layout(Store)
        head, waiting, run = layout(self.head), Signal(layout), Signal(layout)
        is_waiting, running = Signal(), Signal()
        in_flight = Signal(range(config.queue_depth + 1))
        m.d.comb += [
            self.front_free.eq(~is_waiting & (in_flight < config.queue_depth)),
            self.issue.eq(self.head_valid & self.front_free & self.issue_ok),
            self.start_request.eq(is_waiting & ~running),
            self.start_bank.eq(waiting.bank),
        ]
        m.d.sync += in_flight.eq(in_flight + self.issue - self.end)
        with m.If(self.start_grant):
            m.d.sync += [is_waiting.eq(0), running.eq(1), run.eq(waiting)]
        with m.If(self.issue):
            m.d.sync += [is_waiting.eq(1), waiting.eq(head)]

        # addresses
        m.submodules.bursts = bursts = BurstGenerator(config)
        m.submodules.accepted = accepted = SyncFIFO(width=8, depth=WRITE_OUTSTANDING)
        m.submodules.responses = responses = SyncFIFO(width=5, depth=WRITE_OUTSTANDING)
        source = layout(Mux(bursts.valid, run.as_value(), waiting.as_value()))
        m.d.comb += [
            bursts.load.eq(self.start_grant),
            bursts.planes.eq(source.planes),
            bursts.rows.eq(source.rows),
            bursts.bytes.eq(last_byte_of(source.words, config.word_bytes)),
            bursts.start.eq(bytes_of(waiting.dram, config.word_bytes)),
            bursts.plane_stride.eq(bytes_of(source.dram_plane_stride, config.word_bytes)),
            bursts.row_stride.eq(bytes_of(source.dram_row_stride, config.word_bytes)),
            bursts.limit.eq(self.limit),
            bursts.take.eq(self.address_take),
            self.address_valid.eq(bursts.valid & accepted.w_rdy & responses.w_rdy),
            self.address.eq(bursts.address),
            self.address_beats.eq(bursts.beats),
            self.address_outside.eq(bursts.outside),
            accepted.w_en.eq(self.address_take),
            accepted.w_data.eq(bursts.beats),
            responses.w_en.eq(self.address_take),
            responses.w_data.eq(Cat(bursts.last, run.signal)),
            responses.r_en.eq(self.response),
            self.outstanding.eq(responses.r_rdy),
            self.end.eq(self.response & responses.r_data[0]),
            self.end_signal.eq(responses.r_data[1:]),
        ]
        self._data_side(m, waiting, run, running, accepted)
        return m

    def _data_side(self, m: Module, waiting, run, running: Signal, accepted: SyncFIFO) -> None:
        config = self._config
        latency = Timing(config).store_read_latency
        depth = latency + 1
        # reads, as far as the buffer has room for what is on its way
        place = LoopNest(3, 1).build(m)
        reading, outstanding = Signal(), Signal(range(depth + 1))
        pop = Signal()
        read = Signal()
        m.d.comb += [
            place.counts[0].eq(run.planes),
            place.counts[1].eq(run.rows),
            place.counts[2].eq(run.words),
            *(once.eq(waiting[name] == 0) for once, name in zip(place.once, ("planes", "rows", "words"), strict=True)),
            place.strides[0][0].eq(run.plane_stride),
            place.strides[0][1].eq(run.row_stride),
            place.strides[0][2].eq(run.word_stride),
            place.offsets[0].eq(waiting.offset),
            place.load.eq(self.start_grant),
            read.eq(reading & (outstanding < depth)),
            place.step.eq(read),
            self.act.en.eq(read),
            self.act.bank.eq(run.bank),
            self.act.offset.eq(ring(run.offset, place.address[0], run.wrap)),
        ]
        m.d.sync += outstanding.eq(outstanding + read - pop)
        with m.If(read & place.last):
            m.d.sync += reading.eq(0)
        with m.If(self.start_grant):
            m.d.sync += reading.eq(1)

        # the words arrive in the read port's register; those that wait move into a short queue
        arrival = read
        for stage in range(latency):
            register = Signal(name=f"arrival_{stage}")
            m.d.sync += register.eq(arrival)
            arrival = register
        waiting_words = [Signal(8 * config.word_bytes, name=f"waiting_{k}") for k in range(depth)]
        count = Signal(range(depth + 1))
        word, present = Signal(8 * config.word_bytes), Signal()
        m.d.comb += [present.eq((count != 0) | arrival), word.eq(self.act.data)]
        with m.If(count != 0):
            m.d.comb += word.eq(waiting_words[0])
        m.d.sync += count.eq(count + arrival - pop)
        with m.If(pop):
            for this, following in pairwise(waiting_words):
                m.d.sync += this.eq(following)
        stored_at = Signal(range(depth + 1))
        m.d.comb += stored_at.eq(count - pop)
        with m.If(arrival & ~(pop & (count == 0))):
            for k, register in enumerate(waiting_words):
                with m.If(stored_at == k):
                    m.d.sync += register.eq(self.act.data)

        # slots: words to beats
        row = LoopNest(3, 1).build(m)
        m.d.comb += [
            row.counts[0].eq(run.planes),
            row.counts[1].eq(run.rows),
            row.counts[2].eq(run.words),
            *(once.eq(waiting[name] == 0) for once, name in zip(row.once, ("planes", "rows", "words"), strict=True)),
            row.strides[0][0].eq(run.dram_plane_stride),
            row.strides[0][1].eq(run.dram_row_stride),
            row.strides[0][2].eq(1),
            row.offsets[0].eq(waiting.dram),
            row.load.eq(self.start_grant),
            row.step.eq(pop),
        ]
        beats_sent = Signal(8)
        complete = self._beats(m, row, word, pop, present & running)
        m.d.comb += [
            self.data_valid.eq(complete & accepted.r_rdy),
            self.data_last.eq(beats_sent == accepted.r_data),
            accepted.r_en.eq(self.data_take & self.data_last),
        ]
        with m.If(self.data_take):
            m.d.sync += beats_sent.eq(beats_sent + 1)
            with m.If(self.data_last):
                m.d.sync += beats_sent.eq(0)
        done = pop & row.last
        m.d.comb += [self.free_act.eq(done), self.free_bank.eq(run.bank)]
        with m.If(done):
            m.d.sync += running.eq(0)

    def _beats(self, m: Module, row: LoopNest, word: Signal, pop: Signal, present: Value) -> Value:
        """Fill `data` and `strobe`; returns whether this cycle's slot has a whole beat to send."""
        config = self._config
        bus, size = config.bus_bytes, config.word_bytes
        if size >= bus:
            parts = size // bus
            part = Signal(range(max(2, parts)))
            m.d.comb += [
                self.data.eq(word.word_select(part, 8 * bus)),
                self.strobe.eq(~0),
                pop.eq(self.data_take & (part == parts - 1)),
            ]
            with m.If(self.data_take):
                m.d.sync += part.eq(part + 1)
                with m.If(part == parts - 1):
                    m.d.sync += part.eq(0)
            return present
        lanes = bus // size
        lane = row.address[0][: exact_log2(lanes)]
        kept, kept_strobe = Signal(8 * bus), Signal(bus)
        last = (lane == lanes - 1) | row.at_end[2]
        m.d.comb += [self.data.eq(kept), self.strobe.eq(kept_strobe)]
        for k in range(lanes):
            with m.If(lane == k):
                m.d.comb += [
                    self.data.word_select(k, 8 * size).eq(word),
                    self.strobe.word_select(k, size).eq(~0),
                ]
        m.d.comb += pop.eq(present & (~last | self.data_take))
        with m.If(pop):
            m.d.sync += [kept.eq(self.data), kept_strobe.eq(self.strobe)]
            with m.If(last):
                m.d.sync += kept_strobe.eq(0)
        return present & last
