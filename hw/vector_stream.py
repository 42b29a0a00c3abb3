"""VECTOR's stream: which words are read in each cycle, and what the datapath does with them."""

from types import SimpleNamespace

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.layout import instruction_layout
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import OFFSET_BITS, WordAddress
from npukit.hw.vector_base import is_one_of, stream_cycle
from npukit.hw.vector_windows import RowWindows, Sweeps
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import operations_of
from npukit.isa.instructions import (
    TWO_SOURCE_OPERATIONS,
    WHOLE_WORD_OPERATIONS,
    WINDOW_OPERATIONS,
    Memory,
    Operation,
    Vector,
)
from npukit.isa.timing import ROOT_CYCLES, Timing

__all__ = ["VectorStream"]

_LOOPS = ("blocks", "height", "width")
_STRIDES = ("block", "y", "x")


class VectorStream(wiring.Component):
    """Goes through the results of an instruction, and for each through its passes: one pass a cycle.

    Members:
        start: in, the instruction `front` starts; it is `run` from the next cycle on. streaming: in, it streams.
        set_index, descriptor_index: in, where the datapath has its parameters.
        a, b, acc: streams out, the words that are read.
        control: out, for the datapath.
        results: stream out, with a result's last pass: where in its bank it will go.
        block_done: out, with the last pass of a block.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        layout, address = instruction_layout(Vector), stream.Signature(WordAddress, always_ready=True)
        super().__init__(
            {
                "start": In(1),
                "front": In(layout),
                "run": In(layout),
                "streaming": In(1),
                "set_index": In(1),
                "descriptor_index": In(1),
                "a": Out(address),
                "b": Out(address),
                "acc": Out(address),
                "control": Out(stream_cycle(config)),
                "results": Out(stream.Signature(OFFSET_BITS, always_ready=True)),
                "block_done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, timing = self._config, Timing(self._config)
        front, run, control = self.front, self.run, self.control
        m.submodules.place = place = self._place(m)
        m.submodules.window = window = (Sweeps if timing.sweeps else RowWindows)(config)

        two, windowed, same_bank = Signal(), Signal(), Signal()
        reads_act, reads_acc = Signal(), Signal()
        turns = Signal()
        """Two sources in one bank and one pass: its words take turns."""
        last_group = Signal(range(max(2, config.array, ROOT_CYCLES if timing.normalize_lanes else 0)))
        # passes over the lanes of a word
        lane_group, group_last, late = Signal.like(last_group), Signal(), Signal()
        """With `late`, the second of a word's turns."""
        two_next, same_next = is_one_of(front.operation, TWO_SOURCE_OPERATIONS), Signal()
        both = (front.a_memory == front.b_memory) & (front.a_bank == front.b_bank)
        m.d.comb += same_next.eq(both)
        passes = Mux(two_next, timing.two_source_passes - 1, timing.requantise_passes - 1)
        last_next = Signal.like(last_group)
        m.d.comb += last_next.eq(Mux(is_one_of(front.operation, WHOLE_WORD_OPERATIONS), 0, passes))
        with m.Switch(front.operation):
            for operation in (one for one in operations_of(config) if timing.word_cycles(one)):
                with m.Case(operation):
                    m.d.comb += last_next.eq(timing.word_cycles(operation) - 1)
        fills = front.operation == Operation.FILL
        with m.If(self.start):  # in registers, as the end of each word hangs on them
            m.d.sync += [
                two.eq(two_next),
                windowed.eq(is_one_of(front.operation, WINDOW_OPERATIONS)),
                same_bank.eq(same_next),
                turns.eq(two_next & same_next & int(timing.two_source_passes == 1)),
                last_group.eq(last_next),
                reads_act.eq((front.a_memory == Memory.ACT) & ~fills),
                reads_acc.eq((front.a_memory == Memory.ACC) & ~fills),
            ]

        reading, passing, last_pass, word_done = Signal(), Signal(), Signal(), Signal()
        block_read, result = Signal(), Signal(OFFSET_BITS)
        turned = self._turned(m, block_read, word_done, result)
        streaming = Signal()
        """Of words that are read, and their passes."""
        m.d.comb += [
            block_read.eq(word_done & place.at_end[1] & place.at_end[2]),
            streaming.eq(self.streaming & ~turned.waiting),
        ]
        m.d.comb += [
            window.start.eq(self.start),
            window.front.eq(front),
            window.run.eq(run),
            window.streaming.eq(streaming & windowed),
            window.group_first.eq(lane_group == 0),
            window.group_last.eq(group_last),
            window.row_first.eq(place.at_start[2]),
            window.row_last.eq(place.at_end[2]),
            window.block_last.eq(place.at_end[1] & place.at_end[2]),
            reading.eq(streaming & Mux(windowed, window.reading, ~late & (lane_group == 0))),
            passing.eq(streaming & Mux(windowed, window.passing, ~turns | late)),
            last_pass.eq(passing & group_last),
            word_done.eq(last_pass & (~windowed | window.done)),
            place.step.eq(last_pass & (~windowed | window.moves)),
            self.block_done.eq(Mux(turned.turns, turned.done, block_read)),
            self.results.valid.eq(Mux(turned.turns, turned.passing, word_done)),
            result.eq(ring(run.out_offset, place.address[2], Mux(run.out_wrap, run.wrap, 0))),
            self.results.payload.eq(turned.result),
        ]
        if timing.sweeps:
            m.d.comb += [place.keep.eq(window.keep), place.restore.eq(window.restore)]
        with m.If(self.streaming & turns):
            m.d.sync += late.eq(~late)
        with m.If(passing):
            following = Mux(group_last, 0, lane_group + 1)
            m.d.sync += [lane_group.eq(following), group_last.eq(following == last_group)]
        with m.If(self.start):
            m.d.sync += [late.eq(0), group_last.eq(last_next == 0)]

        a_address = (place.address[0] + Mux(windowed, window.offset, 0))[: len(window.offset)]
        second = late if timing.two_source_passes == 1 else lane_group == 1
        b_now = self.streaming & two & Mux(same_bank, second, lane_group == 0)
        m.d.comb += [
            self.a.valid.eq(reading & reads_act),
            self.a.payload.bank.eq(run.a_bank),
            self.a.payload.offset.eq(ring(run.a_offset, a_address, Mux(run.a_wrap, run.wrap, 0))),
            self.acc.valid.eq(reading & reads_acc),
            self.acc.payload.eq(self.a.payload),
            self.b.valid.eq(b_now),
            self.b.payload.bank.eq(run.b_bank),
            self.b.payload.offset.eq(ring(run.b_offset, place.address[1], Mux(run.b_wrap, run.wrap, 0))),
        ]
        m.d.comb += [
            control.operation.eq(run.operation),
            control.from_acc.eq(run.a_memory == Memory.ACC),
            control.to_acc.eq(run.out_memory == Memory.ACC),
            control.same_bank.eq(same_bank),
            control.read.eq(reading),
            control.read_b.eq(b_now),
            control.passing.eq(Mux(turned.turns, turned.passing, passing)),
            control.first.eq(place.at_start[1] & place.at_start[2]),
            control.last.eq(place.at_end[1] & place.at_end[2]),
            control.lane_group.eq(lane_group),
            control.window.eq(window.window),
            control.window.read_window.eq(reading & windowed & window.window.read_window),
            control.set_index.eq(self.set_index),
            control.descriptor_index.eq(self.descriptor_index),
        ]
        return m

    def _turned(self, m: Module, block_read: Signal, word_done: Signal, result: Signal) -> SimpleNamespace:
        """TRANSPOSE: the words that its tiles give, and what follows the last one of a block that is read.

        A tile is complete when its last word is there, so that its words leave `array` cycles after they came.

        turns: `run` is such an instruction. passing, result: a word leaves, and goes there. waiting: all words of the
        block are read. done: the last of them leaves.
        """
        size = self._config.array
        if not self._config.transpose:
            never = Const(0, 1)
            return SimpleNamespace(turns=never, passing=never, result=result, waiting=never, done=never)
        turns, left = Signal(name="transposes"), Signal(range(size + 1), name="turned_left")
        with m.If(self.start):
            m.d.sync += turns.eq(self.front.operation == Operation.TRANSPOSE)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(block_read & turns):
            m.d.sync += left.eq(size)
        late_result = delay_in_memory(m, result, size, "turned_result")
        return SimpleNamespace(
            turns=turns,
            passing=delay(m, word_done & turns, size, "turned"),
            result=Mux(turns, late_result, result),
            waiting=left != 0,
            done=left == 1,
        )

    def _place(self, m: Module) -> LoopNest:
        """Loops over the results, one step a word, but where many grow together; addresses of a, b and the result."""
        place = LoopNest([len(self.front[name]) for name in _LOOPS], 3, returns=Timing(self._config).sweeps)
        m.d.comb += place.load.eq(self.start)
        for level, name in enumerate(_LOOPS):
            m.d.comb += [place.counts[level].eq(self.run[name]), place.once[level].eq(self.front[name] == 0)]
        for track, operand in enumerate(("a", "b", "out")):
            m.d.comb += place.offsets[track].eq(self.front[f"{operand}_offset"])
            for level, name in enumerate(_STRIDES):
                m.d.comb += place.strides[track][level].eq(self.run[f"{operand}_stride_{name}"])
        return place
