"""STORE: words of ACT to write bursts in DRAM."""

from itertools import pairwise

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.bursts import BEAT_BITS, BurstGenerator, burst_layout, bytes_of, last_byte_of
from npukit.hw.delay import delay
from npukit.hw.engine import engine_members
from npukit.hw.layout import instruction_view
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import read_port
from npukit.hw.queue import Queue
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Store
from npukit.isa.timing import WRITE_OUTSTANDING, Timing

__all__ = ["StoreEngine", "write_beat"]


class _Outstanding(data.Struct):
    """What a write response means: whether its burst is its instruction's last, and the tokens that that one gives."""

    last: 1
    signal: len(ENGINES)


def write_beat(config: NpuConfig) -> data.StructLayout:
    """A beat of write data; `last`: of its burst."""
    return data.StructLayout({"data": 8 * config.bus_bytes, "strobe": config.bus_bytes, "last": 1})


class StoreEngine(wiring.Component):
    """Addresses run ahead; data follow from a short buffer behind the read port.

    Members: those of every engine, and
        limit: bytes of DRAM that operands may touch.
        requests: stream out, bursts to write.
        beats: stream out, their data.
        response: a burst is answered in this cycle. outstanding: an answer is still to come.
        act: read port.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {
                **engine_members(config, Store),
                "limit": In(64),
                "requests": Out(stream.Signature(burst_layout(config))),
                "beats": Out(stream.Signature(write_beat(config))),
                "response": In(1),
                "outstanding": Out(1),
                "act": Out(read_port(8 * config.word_bytes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        head, issue, start = self.instructions.payload, Signal(), Signal()
        waiting, run = Signal.like(head), Signal.like(head)
        is_waiting, running = Signal(), Signal()
        in_flight = Signal(range(config.queue_depth + 1))
        m.d.comb += [
            self.instructions.ready.eq(~is_waiting & (in_flight < config.queue_depth)),
            issue.eq(self.instructions.valid & self.instructions.ready),
            self.ports.valid.eq(is_waiting & ~running),
            self.ports.payload.act_read.eq(1 << waiting.bank),
            start.eq(self.ports.valid & self.ports.ready),
        ]
        m.d.sync += in_flight.eq(in_flight + issue - self.ends.valid)
        with m.If(start):
            m.d.sync += [is_waiting.eq(0), running.eq(1), run.eq(waiting)]
        with m.If(issue):
            m.d.sync += [is_waiting.eq(1), waiting.eq(head)]

        accepted = self._addresses(m, start, waiting, run)
        self._data_side(m, start, waiting, run, running, accepted)
        return m

    def _addresses(self, m: Module, start: Signal, waiting, run) -> stream.Interface:
        """Bursts, and what their answers mean; beats, less one, of those that were taken."""
        config = self._config
        m.submodules.bursts = bursts = BurstGenerator(config)
        m.submodules.accepted = accepted = Queue(BEAT_BITS, WRITE_OUTSTANDING)
        m.submodules.responses = responses = Queue(_Outstanding, WRITE_OUTSTANDING)
        burst, taken = bursts.bursts.payload, Signal()
        # the first burst is made before the instruction starts: that comes late
        source = instruction_view(Store, Mux(bursts.bursts.valid, run.as_value(), waiting.as_value()))
        room = accepted.writes.ready & responses.writes.ready
        m.d.comb += [
            bursts.load.eq(start),
            bursts.start.eq(bytes_of(waiting.dram, config.word_bytes)),
            bursts.rows.planes.eq(source.planes),
            bursts.rows.rows.eq(source.rows),
            bursts.rows.bytes.eq(last_byte_of(source.words, config.word_bytes)),
            bursts.rows.plane_stride.eq(bytes_of(source.dram_plane_stride, config.word_bytes)),
            bursts.rows.row_stride.eq(bytes_of(source.dram_row_stride, config.word_bytes)),
            bursts.limit.eq(self.limit),
            self.requests.payload.eq(burst),
            self.requests.valid.eq(bursts.bursts.valid & room),
            taken.eq(self.requests.valid & self.requests.ready),
            bursts.bursts.ready.eq(taken),
            accepted.writes.valid.eq(taken),
            accepted.writes.payload.eq(burst.beats),
            responses.writes.valid.eq(taken),
            responses.writes.payload.last.eq(burst.last),
            responses.writes.payload.signal.eq(run.signal),
            responses.reads.ready.eq(self.response),
            self.outstanding.eq(responses.reads.valid),
            self.ends.valid.eq(self.response & responses.reads.payload.last),
            self.ends.payload.eq(responses.reads.payload.signal),
        ]
        return accepted.reads

    def _data_side(
        self, m: Module, start: Signal, waiting, run, running: Signal, accepted: stream.Interface
    ) -> None:  # fmt: skip
        config = self._config
        latency = Timing(config).store_read_latency
        depth = latency + 1
        # reads, as far as the buffer has room for what is on its way
        count_bits = [len(run[name]) for name in ("planes", "rows", "words")]
        m.submodules.place = place = LoopNest(count_bits, 1)
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
            place.load.eq(start),
            read.eq(reading & (outstanding < depth)),
            place.step.eq(read),
            self.act.addresses.valid.eq(read),
            self.act.addresses.payload.bank.eq(run.bank),
            self.act.addresses.payload.offset.eq(ring(run.offset, place.address[0], run.wrap)),
        ]
        m.d.sync += outstanding.eq(outstanding + read - pop)
        with m.If(read & place.last):
            m.d.sync += reading.eq(0)
        with m.If(start):
            m.d.sync += reading.eq(1)

        # the words arrive in the read port's register; those that wait move into a short queue
        arrival = delay(m, read, latency, "arrival")
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
        m.submodules.row = row = LoopNest(count_bits, 1)
        m.d.comb += [
            row.counts[0].eq(run.planes),
            row.counts[1].eq(run.rows),
            row.counts[2].eq(run.words),
            *(once.eq(waiting[name] == 0) for once, name in zip(row.once, ("planes", "rows", "words"), strict=True)),
            row.strides[0][0].eq(run.dram_plane_stride),
            row.strides[0][1].eq(run.dram_row_stride),
            row.strides[0][2].eq(1),
            row.offsets[0].eq(waiting.dram),
            row.load.eq(start),
            row.step.eq(pop),
        ]
        beats_sent, sent = Signal(BEAT_BITS), Signal()
        complete = self._beats(m, row, word, pop, present & running, sent)
        m.d.comb += [
            self.beats.valid.eq(complete & accepted.valid),
            sent.eq(self.beats.valid & self.beats.ready),
            self.beats.payload.last.eq(beats_sent == accepted.payload),
            accepted.ready.eq(sent & self.beats.payload.last),
        ]
        with m.If(sent):
            m.d.sync += beats_sent.eq(beats_sent + 1)
            with m.If(self.beats.payload.last):
                m.d.sync += beats_sent.eq(0)
        done = pop & row.last
        m.d.comb += self.released.act_read.eq(Mux(done, 1 << run.bank, 0))
        with m.If(done):
            m.d.sync += running.eq(0)

    def _beats(self, m: Module, row: LoopNest, word: Signal, pop: Signal, present: Value, sent: Signal) -> Value:
        """Fill `data` and `strobe`; returns whether this cycle's slot has a whole beat to send."""
        beat = self.beats.payload
        config = self._config
        bus, size = config.bus_bytes, config.word_bytes
        if size >= bus:
            parts = size // bus
            part = Signal(range(max(2, parts)))
            m.d.comb += [
                beat.data.eq(word.word_select(part, 8 * bus)),
                beat.strobe.eq(~0),
                pop.eq(sent & (part == parts - 1)),
            ]
            with m.If(sent):
                m.d.sync += part.eq(part + 1)
                with m.If(part == parts - 1):
                    m.d.sync += part.eq(0)
            return present
        lanes = bus // size
        lane = row.address[0][: exact_log2(lanes)]
        kept, kept_strobe = Signal(8 * bus), Signal(bus)
        last = (lane == lanes - 1) | row.at_end[2]
        m.d.comb += [beat.data.eq(kept), beat.strobe.eq(kept_strobe)]
        for k in range(lanes):
            with m.If(lane == k):
                m.d.comb += [
                    beat.data.word_select(k, 8 * size).eq(word),
                    beat.strobe.word_select(k, size).eq(~0),
                ]
        m.d.comb += pop.eq(present & (~last | sent))
        with m.If(pop):
            m.d.sync += [kept.eq(beat.data), kept_strobe.eq(beat.strobe)]
            with m.If(last):
                m.d.sync += kept_strobe.eq(0)
        return present & last
