"""MATRIX: addresses for weights, activations and accumulators, around the systolic array."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out
from amaranth.utils import bits_for
from npukit.hw.array import SystolicArray
from npukit.hw.bf16 import Float32Adder
from npukit.hw.bf16_array import Bf16Array
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.engine import engine_members
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import WordAddress, read_port, write_port
from npukit.isa.config import NpuConfig
from npukit.isa.formats import FLOATING, INTEGER
from npukit.isa.instructions import ENGINES, Matrix
from npukit.isa.timing import READ_LATENCY, Timing

__all__ = ["MatrixEngine"]

_ARRAYS = {INTEGER: SystolicArray, FLOATING: Bf16Array}

_LOOPS = ("blocks", "channels", "kernel_height", "kernel_width", "passes", "height", "width")
"""Those of an instruction, and, within its reduction steps, the passes in which an array of few rows takes a word."""
_PASS = _LOOPS.index("passes")
_STEP_LOOPS = _PASS + 1
"""The outer loops, whose indices choose the weights."""


class _Word(data.Struct):
    """What goes beside an activation's sums to ACC."""

    address: WordAddress
    fresh: 1
    """The sums of this word begin: they are added to 0, whatever ACC has."""
    signal: len(ENGINES)
    """Tokens that its instruction gives."""
    holds_read: 1
    """Its instruction holds the read port of its bank, too."""


class MatrixEngine(wiring.Component):
    """The front reads weight tiles; the stream sends activations through; the tail updates ACC.

    Front and stream work on different instructions where they can; `docs/timing.md` has the cycles.

    Members: those of every engine (`hw/engine.py`), and its memory ports.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        super().__init__(
            {
                **engine_members(config, Matrix),
                "act": Out(read_port(word)),
                "wgt": Out(read_port(word)),
                "acc_in": Out(read_port(wide)),
                "acc_out": Out(write_port(wide)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, passes = self._config.rows, self._config.row_passes
        hazard = Timing(self._config).accumulate_latency
        head, issue, start = self.instructions.payload, Signal(), Signal()
        front, run = Signal.like(head), Signal.like(head)
        waiting, shadow, streaming, running = Signal(), Signal(), Signal(), Signal()
        rows_left, hazard_left = Signal(range(size + 1)), Signal(range(hazard + 1))
        rows_end, hazard_end = Signal(init=1), Signal(init=1)
        """At most one is left: registers, as the grant of ports hangs on them."""
        wgt_offset = Signal(15)

        bits = [bits_for(passes - 1) if level == _PASS else len(head[name]) for level, name in enumerate(_LOOPS)]
        m.submodules.tiles = tiles = LoopNest(bits[:_STEP_LOOPS], 0)
        m.submodules.words = words = LoopNest(bits, 2)
        for level, name in enumerate(_LOOPS):
            if level == _PASS:
                for nest in (words, tiles):
                    m.d.comb += [nest.counts[level].eq(passes - 1), nest.once[level].eq(passes == 1)]
                continue
            m.d.comb += [words.counts[level].eq(run[name]), words.once[level].eq(front[name] == 0)]
            if level < _STEP_LOOPS:
                m.d.comb += [tiles.counts[level].eq(front[name]), tiles.once[level].eq(head[name] == 0)]
        act_strides = {
            "channels": "channel", "kernel_height": "kernel_y", "kernel_width": "kernel_x", "height": "y", "width": "x",
        }  # fmt: skip
        acc_strides = {"blocks": "block", "height": "y", "width": "x"}
        for track, prefix, strides in ((0, "act", act_strides), (1, "acc", acc_strides)):
            m.d.comb += words.offsets[track].eq(front[f"{prefix}_offset"])
            for loop, name in strides.items():
                m.d.comb += words.strides[track][_LOOPS.index(loop)].eq(run[f"{prefix}_stride_{name}"])

        word_last, step_first = Signal(), Signal()
        m.d.comb += [
            word_last.eq(Cat(words.at_end[_STEP_LOOPS:]).all()),
            step_first.eq(Cat(words.at_start[_STEP_LOOPS:]).all()),
        ]
        # what the next cycle does
        free, more, begin, tile = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq(hazard_end & (~streaming | word_last)),
            more.eq(running & Mux(streaming, word_last & ~words.last, 1)),
            self.ports.valid.eq(waiting & shadow & free),
            start.eq(self.ports.valid & self.ports.ready),
            begin.eq(start | (more & shadow & free)),
            tile.eq(~tiles.last & rows_end & (~shadow | begin)),
            self.instructions.ready.eq(~waiting & tiles.last & rows_end & (~shadow | (more & free))),
            issue.eq(self.instructions.valid & self.instructions.ready),
        ]

        # weights
        m.d.comb += [
            self.wgt.addresses.valid.eq(rows_left != 0),
            self.wgt.addresses.payload.offset.eq(ring(front.wgt_offset, wgt_offset, front.wgt_wrap)),
            tiles.step.eq(tile),
            tiles.load.eq(issue),
        ]
        with m.If(rows_left != 0):
            m.d.sync += [rows_left.eq(rows_left - 1), rows_end.eq(rows_left <= 2), wgt_offset.eq(wgt_offset + 1)]
        with m.If(begin):
            m.d.sync += shadow.eq(0)
        with m.If(tile):
            m.d.sync += [rows_left.eq(size), rows_end.eq(0), shadow.eq(1)]
        with m.If(start):
            m.d.sync += waiting.eq(0)
        many_steps, run_many_steps = Signal(), Signal()
        with m.If(issue):
            m.d.sync += [
                front.eq(head),
                many_steps.eq(Cat(head.channels, head.kernel_height, head.kernel_width, passes > 1).any()),
                waiting.eq(1),
                shadow.eq(1),
                rows_left.eq(size),
                rows_end.eq(0),
                wgt_offset.eq(head.wgt_offset),
            ]

        # activations
        m.d.comb += [
            self.ports.payload.act_read.eq(1 << front.act_bank),
            self.ports.payload.acc_write.eq(1 << front.acc_bank),
            self.ports.payload.acc_read.eq(Mux(front.accumulate | many_steps, 1 << front.acc_bank, 0)),
            words.load.eq(start),
            words.step.eq(streaming),
            self.act.addresses.valid.eq(streaming),
            self.act.addresses.payload.bank.eq(run.act_bank),
            self.act.addresses.payload.offset.eq(ring(run.act_offset, words.address[0], run.act_wrap)),
            self.released.act_read.eq(Mux(streaming & words.last, 1 << run.act_bank, 0)),
        ]
        with m.If(hazard_left != 0):
            m.d.sync += [hazard_left.eq(hazard_left - 1), hazard_end.eq(hazard_left <= 2)]
        with m.If(streaming & word_last):
            m.d.sync += streaming.eq(0)
            with m.If(words.last):
                m.d.sync += running.eq(0)
        with m.If(begin):
            m.d.sync += [streaming.eq(1), hazard_left.eq(hazard), hazard_end.eq(0)]
        with m.If(start):
            m.d.sync += [run.eq(front), run_many_steps.eq(many_steps), running.eq(1)]

        self._tail(m, run, run_many_steps, words, streaming, step_first, rows_left)
        return m

    def _tail(
        self, m: Module, run, many_steps: Signal, words: LoopNest, streaming: Signal, step_first: Signal,
        rows_left: Signal,
    ) -> None:  # fmt: skip
        """The array, and the read-modify-write of ACC behind it."""
        config = self._config
        size, floating = config.rows, config.accumulator.floating
        m.submodules.array = array = _ARRAYS[config.datapath](size, config.array)
        row = (size - rows_left)[: len(array.weights_row)]
        of_pass = delay(m, words.index[_PASS][: bits_for(config.row_passes - 1)], READ_LATENCY, "pass")
        m.d.comb += [
            array.activations.eq(self.act.data.word_select(of_pass, len(array.activations))),
            array.swap.eq(delay(m, streaming & step_first, READ_LATENCY, "swap")),
            array.weights.eq(self.wgt.data),
            array.weights_en.eq(delay(m, rows_left != 0, READ_LATENCY, "weights_en")),
            array.weights_row.eq(delay(m, row, READ_LATENCY, "weights_row")),
        ]
        reduction_first = Cat(words.at_start[1:_STEP_LOOPS]).all()
        of_word = Signal(_Word)
        m.d.comb += [
            of_word.address.offset.eq(words.address[1]),
            of_word.address.bank.eq(run.acc_bank),
            of_word.fresh.eq(reduction_first & ~run.accumulate),
            of_word.signal.eq(run.signal),
            of_word.holds_read.eq(run.accumulate | many_steps),
        ]
        # ACC's words come with the sums: its addresses go as long after ACT's as the array takes
        depth = array.latency
        valid = delay(m, streaming, depth, "valid")
        last = delay(m, streaming & words.last, depth, "last")
        late = _Word(delay_in_memory(m, of_word.as_value(), depth, "of_word"))
        m.d.comb += [
            self.acc_in.addresses.valid.eq(valid & ~late.fresh),
            self.acc_in.addresses.payload.eq(late.address),
        ]
        add = Float32Adder.latency if floating else 1
        for column in range(config.array):
            old = self.acc_in.data.word_select(column, 32)
            new = array.sums.word_select(column, 32)
            total = Signal(32, name=f"total_{column}")
            if floating:
                m.submodules[f"accumulate_{column}"] = adder = Float32Adder()
                m.d.comb += [adder.a.eq(new), adder.b.eq(old), total.eq(adder.total)]
            else:
                m.d.sync += total.eq(new + old)
            m.d.comb += self.acc_out.payload.data.word_select(column, 32).eq(total)
        write = READ_LATENCY + add
        timing = Timing(self._config)
        assert (depth + write, write + 1) == (timing.matrix_latency, timing.accumulate_latency)
        written = _Word(delay(m, late.as_value(), write, "written"))
        m.d.comb += [
            self.acc_out.valid.eq(delay(m, valid, write, "write")),
            self.acc_out.payload.address.eq(written.address),
            self.ends.valid.eq(delay(m, last, write, "end")),
            self.ends.payload.eq(written.signal),
            self.released.acc_write.eq(Mux(self.ends.valid, 1 << written.address.bank, 0)),
            self.released.acc_read.eq(Mux(self.ends.valid & written.holds_read, 1 << written.address.bank, 0)),
        ]
