"""Loads VECTOR's parameters: two sets for blocks, two descriptors, and the table."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.delay import delay
from npukit.hw.layout import instruction_layout
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import block_parameters, descriptor_lanes
from npukit.isa.instructions import INSTRUCTION_BITS, InstructionError, Memory, Operation, Vector
from npukit.isa.timing import TABLE_LOAD_CYCLES, Timing

__all__ = ["VectorLoader", "WordKind"]


class WordKind(enum.Enum, shape=2):
    """What a PAR word holds."""

    NONE = 0
    DESCRIPTOR = 1
    PARAMETER = 2
    TAPS = 3


def _descriptor_words(config: NpuConfig, operation: Operation) -> int:
    try:
        lanes = descriptor_lanes(config, operation)
    except InstructionError:
        return 0
    return -(-(1 + max((field.lane for field in lanes), default=-1)) // config.array)


class VectorLoader(wiring.Component):
    """Reads descriptor, parameters and taps ahead of the stream, one PAR word a cycle.

    Members:
        head, issue: the instruction that VECTOR issues in this cycle.
        idle_next: the last load has its last word in this cycle, or had it.
        front_loads, front_ready: the issued instruction needs a set; its first block's is there.
        start: that instruction starts to stream. run_loads, run_block_loads: it needs sets, one a block.
        next_ready: the set of the running instruction's next block is there.
        stream_set, run_descriptor: those that the stream uses.
        streaming: a block streams in this cycle. leave: the stream used its set for the last
            time. quiet: nothing streams or waits to.
        par_en, par_offset, par_data: PAR's read port.
        write_*: the word that PAR returns in this cycle, for the datapath.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        table_bits = exact_log2(TABLE_LOAD_CYCLES)
        super().__init__(
            {
                "head": In(INSTRUCTION_BITS),
                "issue": In(1),
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
                "par_en": Out(1),
                "par_offset": Out(15),
                "par_data": In(8 * config.wide_word_bytes),
                "write_set": Out(1),
                "write_descriptor": Out(1),
                "write_kind": Out(WordKind),
                "write_index": Out(8),
                "write_table": Out(1),
                "write_table_index": Out(table_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        layout = instruction_layout(Vector)
        head = layout(self.head)
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
            self.par_en.eq(read_now),
            self.par_offset.eq(address),
        ]
        with m.If(read_now):
            m.d.sync += address.eq(address + 1)

        # what the word is, two cycles later
        in_first = Signal()
        with m.If(begin):
            m.d.sync += in_first.eq(first_load)
        in_descriptor = Mux(begin, first_load, in_first)
        before = Mux(in_descriptor, front_descriptor, 0)
        place, index = Signal(8), Signal(8)
        kind = Signal(WordKind)
        m.d.comb += place.eq(current - before)
        with m.If(reading & ~front_table):
            with m.If(current < before):
                m.d.comb += [kind.eq(WordKind.DESCRIPTOR), index.eq(current)]
            with m.Elif(place < front_parameters):
                m.d.comb += [kind.eq(WordKind.PARAMETER), index.eq(place)]
            with m.Else():
                m.d.comb += [kind.eq(WordKind.TAPS), index.eq(place - front_parameters)]
        m.d.comb += [
            self.write_kind.eq(delay(m, kind.as_value(), 2, "kind")),
            self.write_index.eq(delay(m, index, 2, "index")),
            self.write_set.eq(delay(m, Mux(begin, next_set, loading_set), 2, "set")),
            self.write_descriptor.eq(delay(m, front_descriptor_index, 2, "descriptor_index")),
            self.write_table.eq(delay(m, reading & front_table, 2, "table")),
            self.write_table_index.eq(delay(m, current[: len(self.write_table_index)], 2, "table_index")),
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
        with m.If(self.issue):
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
