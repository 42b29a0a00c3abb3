"""VECTOR's window orders: what their registers say of each other, for all windows, steps and strides."""

from amaranth import Cat, Mux, Signal, Value
from npukit.hw.vector_windows import RowWindows, Sweeps
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Operation
from npukit.isa.timing import Timing
from proofs.harness import Fault, Model, Proof

__all__ = ["PROOFS"]

_BITS = 16


def _instruction(model: Model, dut, config) -> tuple[Value, object]:
    """Whether one has started; it is `run` then, and its window is one that the core does not refuse."""
    begins = model.past(dut.start)
    started = model.register(lambda now: now | dut.start, 1, "started")
    run, front = dut.run.as_value(), dut.front.as_value()
    model.assume(Mux(begins, model.past(front) == run, model.past(run) == run) | model.first)
    model.assume((dut.front.window_height < config.max_window) & (dut.front.window_width < config.max_window))
    model.assume(~started | ((dut.run.window_height < config.max_window) & (dut.run.window_width < config.max_window)))
    model.assume(~dut.streaming | started)
    return started, dut.run


def row_windows(model: Model) -> None:
    """Each flag says what it is for; each offset is its number times its stride."""
    config = PRESETS["int8-4x4"]
    dut = model.block("windows", RowWindows, config)
    started, run = _instruction(model, dut, config)
    state, taps = dut.state, config.vector_taps
    width, height = run.window_width, run.window_height

    def claim(name: str, condition: Value) -> None:
        model.claim(name, ~started | condition)

    def offset(value: Value) -> Value:
        """Modulo what an offset has room for."""
        signal = Signal(_BITS)
        model.m.d.comb += signal.eq(value)
        return signal

    windowed = ~state.summing
    claim("operation", state.summing == (run.operation == Operation.SUM))
    claim("row in range", state.window_y <= height)
    claim("row last", state.row_last == (state.window_y == height))
    claim("row once", state.row_once == (height == 0))
    claim("column in range", state.window_x <= width)
    claim("column last", ~state.summing | (state.column_last == (state.window_x == width)))
    claim("column once", state.column_once == (width == 0))
    claim("tap in range", state.tap_column <= width)
    claim("tap column is a pass's first", state.tap_column % taps == 0)
    claim("tap last", state.tap_last == (state.tap_column + taps > width))
    claim("tap once", state.tap_once == (taps > width))
    claim("no tap column of a sum", windowed | (state.tap_column == 0))
    claim("no window column but of a sum", state.summing | (state.window_x == 0))
    claim("taps of the rows before", state.summing | (state.tap_row == state.window_y * (width + 1)))
    claim("offset of the row", state.row_offset == offset(state.window_y * run.window_stride_y))
    claim("first fresh", state.first_fresh == width + 1)
    claim("next fresh", state.next_fresh == Mux(run.window_step > width, width, run.window_step) + 1)
    claim("fresh", (state.fresh == state.first_fresh) | (state.fresh == state.next_fresh))
    claim("reads done", state.summing | (state.reads_done <= state.fresh))
    claim("reads left", state.summing | (state.reads_left == (state.reads_done < state.fresh)))
    claim("reads end", state.summing | (state.reads_end == (state.reads_done + 1 >= state.fresh)))
    read = Mux(state.summing, state.window_x, state.reads_done)
    claim("place of the next read", state.read_column == offset(state.column + read * run.window_stride_x))
    # what they are for
    streams = dut.streaming & windowed
    complete = state.reads_done + dut.reading >= state.fresh
    claim("a pass has all its words", ~(streams & dut.passing) | complete)
    claim(
        "a window row has all its taps", ~(streams & dut.passing & state.tap_last) | (state.tap_column + taps > width)
    )
    claim("a result has all its rows", ~(dut.streaming & dut.done) | (state.window_y == height))
    claim("a sum has all its columns", ~(dut.streaming & state.summing & dut.done) | (state.window_x == width))
    claim("what is read comes in or stays", ~streams | dut.reading | dut.passing)
    model.cover("a result", dut.streaming & dut.passing & dut.done & dut.group_last)


def sweeps(model: Model) -> None:
    """The same of bf16's order, and that no sweep waits for ever."""
    config = PRESETS["bf16-4x4"]
    dut = model.block("sweeps", Sweeps, config)
    started, run = _instruction(model, dut, config)
    state, taps, timing = dut.state, config.vector_taps, Timing(config)
    width, height = run.window_width, run.window_height
    summing = run.operation == Operation.SUM
    # what a user promises: while nothing is passed the place of the result stays
    place = Cat(dut.row_first, dut.row_last, dut.block_last)
    model.assume(
        ~model.past(started & ~(dut.streaming & dut.passing & dut.group_last))
        | (model.past(place) == place)
        | model.past(dut.start)
    )

    def claim(name: str, condition: Value) -> None:
        model.claim(name, ~started | condition)

    def offset(value: Value) -> Value:
        """Modulo what an offset has room for."""
        signal = Signal(_BITS)
        model.m.d.comb += signal.eq(value)
        return signal

    claim("row in range", state.window_y <= height)
    claim("group in range", state.group <= width)
    claim("group is a pass's first", summing | (state.group % taps == 0))
    claim("taps of the rows before", state.tap_row == state.window_y * (width + 1))
    claim("offset of the row", state.row_offset == offset(state.window_y * run.window_stride_y))
    claim("offset of the next group", state.groups_offset == offset(Mux(summing, 1, taps) * run.window_stride_x))
    claim("offset of the group", state.group_offset == offset(state.group * run.window_stride_x))
    claim("offset of a step", state.step_offset == offset((run.window_step + 1) * run.window_stride_x))
    claim("results of a chunk", state.count < timing.sweep_words)
    claim("gap in range", state.gap <= timing.sweep_cycles)
    claim("waits for something", ~state.waiting | (state.gap != 0))
    claim("waits before a sweep", ~state.waiting | ((state.count == 0) & (state.reads_done == 0)))
    claim("reads or passes or waits", ~dut.streaming | dut.reading | dut.passing | state.waiting)
    claim("the last is not gone back to", ~dut.restore | ~dut.done)
    claim("moves or goes back", ~(dut.streaming & dut.passing) | (dut.moves ^ dut.restore))


_ROWS = "hw.vector_windows"
PROOFS = (
    Proof(
        "row windows",
        "Each flag of the int8 order is what the number beside it says, each offset its number times the "
        "stride; a pass has all "
        "its words, a result all its taps.",
        row_windows,
        6,
        1,
        (
            Fault(
                "reads end early", _ROWS, "state.reads_done + 2 >= state.fresh", "state.reads_done + 3 >= state.fresh"
            ),
            Fault(
                "tap last late", _ROWS, "state.tap_column + 2 * taps > self.run", "state.tap_column + taps > self.run"
            ),
            Fault(
                "row last of any row",
                _ROWS,
                "state.row_last.eq(state.window_y + 1 == self.run",
                "state.row_last.eq(state.window_y == self.run",
            ),
            Fault(
                "a word less anew",
                _ROWS,
                "Mux(more, front.window_width, front.window_step) + 1",
                "front.window_step + 1",
            ),
        ),
    ),
    Proof(
        "sweeps",
        "The registers of the bf16 order agree; a sweep reads, passes, or waits for a number of cycles that "
        "comes to an end.",
        sweeps,
        6,
        1,
        (
            Fault("waits for nothing", _ROWS, "last_sweep | (state.gap <= 1)", "last_sweep | (state.gap < 0)"),
            Fault(
                "a tap less",
                _ROWS,
                "state.tap_row.eq(state.tap_row + self.run.window_width + 1),\n",
                "state.tap_row.eq(state.tap_row + self.run.window_width),\n",
            ),
            Fault(
                "a group too far",
                _ROWS,
                "group.eq(Mux(last_group, 0, state.group + columns))",
                "group.eq(state.group + columns)",
            ),
        ),
    ),
)
