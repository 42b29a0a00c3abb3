"""Loads VECTOR's parameters: two sets for blocks, two descriptors, and the table."""

from types import SimpleNamespace

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.delay import delay
from npukit.hw.layout import instruction_layout
from npukit.hw.memory import read_port
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import block_parameters, descriptor_lanes, operations_of
from npukit.isa.instructions import InstructionError, Memory, Operation, Vector
from npukit.isa.timing import NUMBER_LOAD_CYCLES, READ_LATENCY, Timing

__all__ = ["VectorLoader", "WordKind", "parameter_word"]


class WordKind(enum.Enum, shape=3):
    """What a PAR word holds."""

    DESCRIPTOR = 0
    PARAMETER = 1
    TAPS = 2
    TABLE = 3
    """Entries of the table: a word stays for as many cycles as it has parts of four entries."""
    NUMBERS = 4
    """Entries of the table of numbers, or pairs of them: a word stays for as many cycles as it has entries."""


_INDEX_BITS = 8


class ParameterPlace(data.Struct):
    """Where a PAR word goes: to which of both sets, or both descriptors, as the how manieth of its kind."""

    kind: WordKind
    index: _INDEX_BITS
    lane: 6
    """Of a table, where in the word its entry lies; only where `index` does not say it (`lane_of`)."""
    set: 1
    descriptor: 1


class _Needed(data.Struct):
    """What an instruction loads: words of its descriptor, of each block's parameters before the taps, and of each
    block; cycles of a load that fills a table, and whether that is the one of numbers; whether it loads anything at
    all, or something for each block."""

    descriptor: 5
    parameters: 2
    block_words: 8
    table_cycles: 9
    numbers: 1
    loads: 1
    block_loads: 1


def _entries_of_word(config: NpuConfig) -> int:
    """Of a table, entries that a word of PAR holds: of FUNCTION, the only table of bf16, pairs of lanes."""
    return config.array // (2 if config.activation.floating else 1)


def lane_of(config: NpuConfig, place: data.View) -> Value:
    """Where in its word a table's entry lies, in entries."""
    entries = _entries_of_word(config)
    return place.lane if entries & (entries - 1) else place.index % entries


def parameter_word(config: NpuConfig) -> data.StructLayout:
    """A word of PAR and where it goes."""
    return data.StructLayout({"place": ParameterPlace, "data": 8 * config.wide_word_bytes})


def _descriptor_words(config: NpuConfig, operation: Operation) -> int:
    """Words of a descriptor without a table."""
    if Timing.table_cycles(operation):
        return 0
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
        self._hold = Timing(config).parameter_hold - 1
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
        needed = self._needed(m)
        # the issued instruction, until its loads are done
        front = SimpleNamespace(
            needs=Signal(_Needed, name="front_needs"),
            loads_left=Signal(9, name="loads_left"),
            first_load=Signal(name="first_load"),
            begun=Signal(name="front_begun"),
            set=Signal(name="front_set"),
            descriptor_index=Signal(name="front_descriptor_index"),
        )
        # both sets: taken by a load or by the stream; there for the stream
        sets = SimpleNamespace(
            busy=Signal(2, name="busy"), loaded=Signal(2, name="loaded"), next=Signal(name="next_set")
        )
        address = Signal(15)
        load = self._loads(m, front, sets)
        self._read(m, front, load, address)
        self._say_what_comes(m, front, load)
        self._keep_sets(m, load, sets)
        self._follow_stream(m, front)
        with m.If(self.issued.valid):
            self._take(m, needed, front, sets, load, address)
        return m

    def _needed(self, m: Module) -> data.View:
        """What the instruction that is issued loads."""
        config, head = self._config, self.issued.payload
        needed = Signal(_Needed)
        with m.Switch(head.operation):
            for operation in Operation:
                with m.Case(operation):
                    m.d.comb += [
                        needed.descriptor.eq(_descriptor_words(config, operation)),
                        needed.parameters.eq(len(block_parameters(config, operation))),
                    ]
        with m.If((head.operation == Operation.SUM) & (head.out_memory == Memory.ACC)):
            m.d.comb += needed.descriptor.eq(0)
        depthwise = (head.operation == Operation.DEPTHWISE) | (head.operation == Operation.DEPTHWISE_FIXED)
        taps = Signal(8)
        # words of taps, by a table: a multiplier would be on the longest path
        with m.If(depthwise), m.Switch(Cat(Value.cast(head.window_width)[:4], Value.cast(head.window_height)[:4])):
            for height in range(config.max_window):
                for width in range(config.max_window):
                    with m.Case(height << 4 | width):
                        m.d.comb += taps.eq(-(-(height + 1) * (width + 1) // (4 // config.element_bytes)))
        with_table = [operation for operation in operations_of(config) if Timing.table_cycles(operation)]
        with_numbers = [operation for operation in with_table if Timing.table_cycles(operation) >= NUMBER_LOAD_CYCLES]
        has_table = Cat(head.operation == operation for operation in with_table).any()
        m.d.comb += [
            needed.block_words.eq(needed.parameters + taps),
            needed.numbers.eq(Cat(head.operation == operation for operation in with_numbers).any()),
            # by the operation, without sums
            needed.block_loads.eq((needed.parameters != 0) | depthwise),
            needed.loads.eq((needed.descriptor != 0) | needed.block_loads | has_table),
        ]
        with m.Switch(head.operation):
            for operation in with_table:
                with m.Case(operation):
                    m.d.comb += needed.table_cycles.eq(Timing.table_cycles(operation))
        return needed

    def _loads(self, m: Module, front: SimpleNamespace, sets: SimpleNamespace) -> SimpleNamespace:
        """When a load begins, into which set, and which of its words is next."""
        words_left = Signal(9)
        word_index = Signal(9)
        loading_set = Signal()
        begin = Signal()
        reading = Signal()
        fills = front.needs.table_cycles != 0
        length = Signal(9)
        first_length = Mux(fills, front.needs.table_cycles, front.needs.descriptor + front.needs.block_words)
        m.d.comb += [
            length.eq(Mux(front.first_load, first_length, front.needs.block_words)),
            begin.eq(
                (words_left == 0)
                & (front.loads_left != 0)
                & ~sets.busy.bit_select(sets.next, 1)
                & (~fills | self._quiet_long(m))
            ),
            reading.eq(begin | (words_left != 0)),
            self.idle_next.eq(
                Mux(begin, (front.loads_left == 1) & (length == 1), (front.loads_left == 0) & (words_left <= 1))
            ),
            self.front_ready.eq(front.begun & sets.loaded.bit_select(front.set, 1)),
            # the stream leaves its set with the block's last cycle, and then points to the next one
            self.next_ready.eq(sets.loaded.bit_select(self.stream_set ^ self.streaming, 1)),
        ]
        with m.If(begin):
            m.d.sync += [
                words_left.eq(length - 1),
                front.loads_left.eq(front.loads_left - 1),
                front.first_load.eq(0),
                front.begun.eq(1),
                loading_set.eq(sets.next),
                sets.next.eq(~sets.next),
                sets.busy.bit_select(sets.next, 1).eq(1),
                sets.loaded.bit_select(sets.next, 1).eq(0),
                word_index.eq(1),
            ]
        with m.Elif(words_left != 0):
            m.d.sync += [words_left.eq(words_left - 1), word_index.eq(word_index + 1)]
        return SimpleNamespace(
            begin=begin,
            reading=reading,
            ends=reading & (Mux(begin, length, words_left) == 1),
            set=Mux(begin, sets.next, loading_set),
            word=Mux(begin, 0, word_index),
            lane=self._lane(m, begin, words_left != 0, word_index),
        )

    def _lane(self, m: Module, begin: Value, goes_on: Value, word_index: Value) -> Value:
        """Of a load of a table, the entry's place in its word."""
        entries = _entries_of_word(self._config)
        if not entries & (entries - 1):
            return Mux(begin, 0, word_index[: exact_log2(entries)])
        lane = Signal(range(entries), name="table_lane")
        with m.If(begin):
            m.d.sync += lane.eq(1)
        with m.Elif(goes_on):
            m.d.sync += lane.eq(lane + 1)
            # what follows a table of numbers begins a word
            with m.If((lane == entries - 1) | (word_index == NUMBER_LOAD_CYCLES - 1)):
                m.d.sync += lane.eq(0)
        return Mux(begin, 0, lane)

    def _quiet_long(self, m: Module) -> Value:
        """Whether nothing is on its way through the lanes any more: the table has one set, which all of them use."""
        cycles = Signal(range(self._hold + 2), name="quiet_long")
        with m.If(~self.quiet):
            m.d.sync += cycles.eq(0)
        with m.Elif(cycles != self._hold):
            m.d.sync += cycles.eq(cycles + 1)
        return self.quiet & (cycles == self._hold)

    def _read(self, m: Module, front: SimpleNamespace, load: SimpleNamespace, address: Signal) -> None:
        """PAR: a word each cycle, or, for the table, as its entries are used up."""
        read_now = Signal()
        m.d.comb += [
            read_now.eq(load.reading & Mux(front.needs.table_cycles != 0, load.lane == 0, 1)),
            self.par.addresses.valid.eq(read_now),
            self.par.addresses.payload.offset.eq(address),
        ]
        with m.If(read_now):
            m.d.sync += address.eq(address + 1)

    def _say_what_comes(self, m: Module, front: SimpleNamespace, load: SimpleNamespace) -> None:
        """What the word is, when it comes."""
        in_first = Signal()
        with m.If(load.begin):
            m.d.sync += in_first.eq(front.first_load)
        in_descriptor = Mux(load.begin, front.first_load, in_first)
        before = Mux(in_descriptor, front.needs.descriptor, 0)
        behind = Signal(_INDEX_BITS)
        going = Signal(ParameterPlace)
        m.d.comb += [
            behind.eq(load.word - before),
            going.set.eq(load.set),
            going.lane.eq(load.lane),
            going.descriptor.eq(front.descriptor_index),
        ]
        with m.If(front.needs.numbers & (load.word < NUMBER_LOAD_CYCLES)):
            m.d.comb += [going.kind.eq(WordKind.NUMBERS), going.index.eq(load.word)]
        with m.Elif(front.needs.numbers):
            m.d.comb += going.kind.eq(WordKind.DESCRIPTOR)
        with m.Elif(front.needs.table_cycles != 0):
            m.d.comb += [going.kind.eq(WordKind.TABLE), going.index.eq(load.word)]
        with m.Elif(load.word < before):
            m.d.comb += [going.kind.eq(WordKind.DESCRIPTOR), going.index.eq(load.word)]
        with m.Elif(behind < front.needs.parameters):
            m.d.comb += [going.kind.eq(WordKind.PARAMETER), going.index.eq(behind)]
        with m.Else():
            m.d.comb += [going.kind.eq(WordKind.TAPS), going.index.eq(behind - front.needs.parameters)]
        m.d.comb += [
            self.parameters.valid.eq(delay(m, load.reading, READ_LATENCY, "returned")),
            self.parameters.payload.place.eq(ParameterPlace(delay(m, going.as_value(), READ_LATENCY, "place"))),
            self.parameters.payload.data.eq(self.par.data),
        ]

    def _keep_sets(self, m: Module, load: SimpleNamespace, sets: SimpleNamespace) -> None:
        """A load whose last word is addressed in cycle l is there for a block from l + 3 on. A set that the stream has
        left is still needed for a while by what is on its way through the lanes."""
        left_set = delay(m, Mux(self.leave, 1 << self.stream_set, 0)[:2], self._hold, "left")
        done = Signal()
        done_set = Signal()
        m.d.sync += [done.eq(load.ends), done_set.eq(load.set)]
        with m.If(self.leave):
            m.d.sync += sets.loaded.bit_select(self.stream_set, 1).eq(0)
        with m.If(done):
            m.d.sync += sets.loaded.bit_select(done_set, 1).eq(1)
        for one in range(2):
            with m.If(left_set[one]):
                m.d.sync += sets.busy[one].eq(0)

    def _follow_stream(self, m: Module, front: SimpleNamespace) -> None:
        """The stream's set changes with its blocks, its descriptor with its instructions."""
        with m.If(self.leave):
            m.d.sync += self.stream_set.eq(~self.stream_set)
        with m.If(self.start):
            m.d.sync += [
                self.run_loads.eq(front.needs.loads),
                self.run_block_loads.eq(front.needs.block_loads),
                self.run_descriptor.eq(front.descriptor_index),
            ]
        m.d.comb += self.front_loads.eq(front.needs.loads)

    def _take(
        self, m: Module, needed: data.View, front: SimpleNamespace, sets: SimpleNamespace, load: SimpleNamespace,
        address: Signal,
    ) -> None:  # fmt: skip
        """An instruction comes to the front."""
        head = self.issued.payload
        m.d.sync += [
            front.needs.eq(needed),
            front.loads_left.eq(Mux(needed.block_loads, head.blocks + 1, needed.loads)),
            front.first_load.eq(1),
            front.begun.eq(0),
            front.set.eq(sets.next ^ load.begin),
            address.eq(head.parameters),
        ]
        with m.If(needed.loads):
            m.d.sync += front.descriptor_index.eq(~front.descriptor_index)
