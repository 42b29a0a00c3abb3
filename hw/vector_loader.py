"""Loads VECTOR's parameters: two sets for blocks, two descriptors, and the table."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.delay import delay
from npukit.hw.layout import instruction_layout
from npukit.hw.memory import read_port
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import block_parameters, descriptor_lanes
from npukit.isa.instructions import InstructionError, Memory, Operation, Vector
from npukit.isa.timing import READ_LATENCY, TABLE_LOAD_CYCLES, Timing

__all__ = ["VectorLoader", "WordKind", "parameter_word"]


class WordKind(enum.Enum, shape=2):
    """What a PAR word holds."""

    DESCRIPTOR = 0
    PARAMETER = 1
    TAPS = 2
    TABLE = 3
    """Entries of the table: a word stays for as many cycles as it has parts of four entries."""


_INDEX_BITS = 8


class ParameterPlace(data.Struct):
    """Where a PAR word goes: to which of both sets, or both descriptors, as the how manieth of its kind."""

    kind: WordKind
    index: _INDEX_BITS
    set: 1
    descriptor: 1


def parameter_word(config: NpuConfig) -> data.StructLayout:
    """A word of PAR and where it goes."""
    return data.StructLayout({"place": ParameterPlace, "data": 8 * config.wide_word_bytes})


def _descriptor_words(config: NpuConfig, operation: Operation) -> int:
    try:
        lanes = descriptor_lanes(config, operation)
    except InstructionError:
        return 0
    return -(-(1 + max((field.lane for field in lanes), default=-1)) // config.array)


class VectorLoader(wiring.Component):
    """Reads descriptor, parameters and taps ahead of the stream, one PAR word a cycle.

    Members:
        issued: stream in, the instruction that VECTOR issues.
        idle_next: the last load has its last word in this cycle, or had it.
        front_loads, front_ready: the issued instruction needs a set; its first block's is there.
        start: that instruction starts to stream. run_loads, run_block_loads: it needs sets, one a block.
        next_ready: the set of the running instruction's next block is there.
        stream_set, run_descriptor: those that the stream uses.
        streaming: a block streams in this cycle. leave: the stream used its set for the last
            time. quiet: nothing streams or waits to.
        par: PAR's read port. parameters: stream out, the words that it returns.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {
                "issued": In(stream.Signature(instruction_layout(Vector), always_ready=True)),
                "idle_next": Out(1),
                "front_loads": Out(1),
                "front_ready": Out(1),
                "start": In(1),
                "run_loads": Out(1),
                "run_block_loads": Out(1),
                "next_ready": Out(1),
                "stream_set": Out(1),
                "run_descriptor": Out(1),
                "leave": In(1),
                "streaming": In(1),
                "quiet": In(1),
                "par": Out(read_port(8 * config.wide_word_bytes)),
                "parameters": Out(stream.Signature(parameter_word(config), always_ready=True)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        head, issue = self.issued.payload, self.issued.valid
        descriptor, parameters = Signal(5), Signal(2)
        """Words of the issued instruction's descriptor, and of each block's parameters before the taps."""
        taps = Signal(8)
        with m.Switch(head.operation):
            for operation in Operation:
                with m.Case(operation):
                    m.d.comb += [
                        descriptor.eq(_descriptor_words(config, operation)),
                        parameters.eq(len(block_parameters(config, operation))),
                    ]
        with m.If((head.operation == Operation.SUM) & (head.out_memory == Memory.ACC)):
            m.d.comb += descriptor.eq(0)
        depthwise = (head.operation == Operation.DEPTHWISE) | (head.operation == Operation.DEPTHWISE_FIXED)
        # words of taps, by a table: a multiplier would be on the longest path
        with m.If(depthwise), m.Switch(Cat(Value.cast(head.window_width)[:4], Value.cast(head.window_height)[:4])):
            for height in range(config.max_window):
                for width in range(config.max_window):
                    with m.Case(height << 4 | width):
                        m.d.comb += taps.eq(-(-(height + 1) * (width + 1) // (4 // config.element_bytes)))
        is_table = head.operation == Operation.TABLE
        block_words, loads, block_loads = Signal(8), Signal(), Signal()
        """Words of each block; whether there are any at all, for each block: by the operation, without sums."""
        m.d.comb += [
            block_words.eq(parameters + taps),
            block_loads.eq((parameters != 0) | depthwise),
            loads.eq((descriptor != 0) | block_loads | is_table),
        ]

        # the issued instruction, until its loads are done
        front_descriptor, front_parameters, front_block = Signal(5), Signal(2), Signal(8)
        front_table, loads_left = Signal(), Signal(9)
        first_load, front_begun, front_set = Signal(), Signal(), Signal()
        front_descriptor_index, next_set = Signal(), Signal()
        address = Signal(15)
        words_left, word_index = Signal(8), Signal(8)
        busy, loaded = Signal(2), Signal(2)
        loading_set = Signal()

        hold = Timing(config).parameter_hold - 1
        left_set = delay(m, Mux(self.leave, 1 << self.stream_set, 0)[:2], hold, "left")
        quiet_long = Signal(range(hold + 2))
        with m.If(~self.quiet):
            m.d.sync += quiet_long.eq(0)
        with m.Elif(quiet_long != hold):
            m.d.sync += quiet_long.eq(quiet_long + 1)

        begin, reading = Signal(), Signal()
        length = Signal(8)
        first_length = Mux(front_table, TABLE_LOAD_CYCLES, front_descriptor + front_block)
        m.d.comb += [
            length.eq(Mux(first_load, first_length, front_block)),
            begin.eq(
                (words_left == 0)
                & (loads_left != 0)
                & ~busy.bit_select(next_set, 1)
                & (~front_table | (self.quiet & (quiet_long == hold)))
            ),
            reading.eq(begin | (words_left != 0)),
            self.idle_next.eq(Mux(begin, (loads_left == 1) & (length == 1), (loads_left == 0) & (words_left <= 1))),
            self.front_ready.eq(front_begun & loaded.bit_select(front_set, 1)),
            # the stream leaves its set with the block's last cycle, and then points to the next one
            self.next_ready.eq(loaded.bit_select(self.stream_set ^ self.streaming, 1)),
        ]
        current = Mux(begin, 0, word_index)
        with m.If(begin):
            m.d.sync += [
                words_left.eq(length - 1),
                loads_left.eq(loads_left - 1),
                first_load.eq(0),
                front_begun.eq(1),
                loading_set.eq(next_set),
                next_set.eq(~next_set),
                busy.bit_select(next_set, 1).eq(1),
                loaded.bit_select(next_set, 1).eq(0),
                word_index.eq(1),
            ]
        with m.Elif(words_left != 0):
            m.d.sync += [words_left.eq(words_left - 1), word_index.eq(word_index + 1)]

        # PAR: a word each cycle, or, for the table, as its entries are used up
        lanes = config.array
        lane_bits = exact_log2(lanes)
        read_now = Signal()
        m.d.comb += [
            read_now.eq(reading & Mux(front_table, current[:lane_bits] == 0, 1)),
            self.par.addresses.valid.eq(read_now),
            self.par.addresses.payload.offset.eq(address),
        ]
        with m.If(read_now):
            m.d.sync += address.eq(address + 1)

        # what the word is, when it comes
        in_first = Signal()
        with m.If(begin):
            m.d.sync += in_first.eq(first_load)
        in_descriptor = Mux(begin, first_load, in_first)
        before = Mux(in_descriptor, front_descriptor, 0)
        behind, going = Signal(_INDEX_BITS), Signal(ParameterPlace)
        m.d.comb += [
            behind.eq(current - before),
            going.set.eq(Mux(begin, next_set, loading_set)),
            going.descriptor.eq(front_descriptor_index),
        ]
        with m.If(front_table):
            m.d.comb += [going.kind.eq(WordKind.TABLE), going.index.eq(current)]
        with m.Elif(current < before):
            m.d.comb += [going.kind.eq(WordKind.DESCRIPTOR), going.index.eq(current)]
        with m.Elif(behind < front_parameters):
            m.d.comb += [going.kind.eq(WordKind.PARAMETER), going.index.eq(behind)]
        with m.Else():
            m.d.comb += [going.kind.eq(WordKind.TAPS), going.index.eq(behind - front_parameters)]
        m.d.comb += [
            self.parameters.valid.eq(delay(m, reading, READ_LATENCY, "returned")),
            self.parameters.payload.place.eq(ParameterPlace(delay(m, going.as_value(), READ_LATENCY, "place"))),
            self.parameters.payload.data.eq(self.par.data),
        ]

        # a load whose last word is addressed in cycle l is there for a block from l + 3 on
        finished = reading & (Mux(begin, length, words_left) == 1)
        finished_set = Mux(begin, next_set, loading_set)
        done_1, done_set = Signal(), Signal()
        m.d.sync += [done_1.eq(finished), done_set.eq(finished_set)]
        with m.If(self.leave):
            m.d.sync += loaded.bit_select(self.stream_set, 1).eq(0)
        with m.If(done_1):
            m.d.sync += loaded.bit_select(done_set, 1).eq(1)
        for one in range(2):
            with m.If(left_set[one]):
                m.d.sync += busy[one].eq(0)

        # the stream's side
        front_loads, front_block_loads = Signal(), Signal()
        with m.If(self.leave):
            m.d.sync += self.stream_set.eq(~self.stream_set)
        with m.If(self.start):
            m.d.sync += [
                self.run_loads.eq(front_loads),
                self.run_block_loads.eq(front_block_loads),
                self.run_descriptor.eq(front_descriptor_index),
            ]
        m.d.comb += self.front_loads.eq(front_loads)
        with m.If(issue):
            m.d.sync += [
                front_descriptor.eq(descriptor),
                front_parameters.eq(parameters),
                front_block.eq(block_words),
                front_table.eq(is_table),
                loads_left.eq(Mux(block_loads, head.blocks + 1, loads)),
                first_load.eq(1),
                front_begun.eq(0),
                front_set.eq(next_set ^ begin),
                address.eq(head.parameters),
                front_loads.eq(loads),
                front_block_loads.eq(block_loads),
            ]
            with m.If(loads):
                m.d.sync += front_descriptor_index.eq(~front_descriptor_index)
        return m
