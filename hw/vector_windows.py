"""The order in which VECTOR's window operations take words and taps: int8 result by result, bf16 in sweeps.

Both are held to `docs/timing.md`, section 9.
"""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import bits_for, ceil_log2
from npukit.hw.layout import instruction_layout
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Operation, Vector
from npukit.isa.timing import Timing

__all__ = ["RowWindows", "Sweeps", "WindowOrder", "window_pass", "window_slot_bits"]


def window_slot_bits(config: NpuConfig) -> int:
    """Bits that name a word of a row-window: it has a power of two of them, at least one for each tap of a pass."""
    return ceil_log2(max(config.max_window, config.vector_taps))


def window_pass(config: NpuConfig) -> data.StructLayout:
    """What a window operation tells the datapath of its present stream cycle.

    read_window, row, slot: the word read in this cycle goes to that slot of that row-window.
    newest: slot of the last word of this pass's columns. width: their number less one. tap_column: the first column of
        this pass among them.
    tap_place: place of this pass's first tap among all of the window.
    first: nothing has been added yet.
    sum_place: with sweeps: which of the results that grow together.
    """
    timing = Timing(config)
    swept = {"sum_place": ceil_log2(timing.sweep_words)} if timing.sweeps else {}
    return data.StructLayout(
        {
            "read_window": 1,
            "row": _WINDOW_BITS,
            "slot": window_slot_bits(config),
            "newest": window_slot_bits(config),
            "width": _WINDOW_BITS,
            "tap_column": _COLUMN_BITS,
            "tap_place": bits_for(config.max_window**2 + _MOST_TAPS),
            "first": 1,
            **swept,
        }
    )


_WINDOW_BITS = 4
"""Of a window's height or width, less one."""
_COLUMN_BITS = _WINDOW_BITS + 1
_OFFSET_BITS = 16
_MOST_TAPS = 16


class WindowOrder(wiring.Component):
    """What both orders take and tell. What they tell counts while a window operation streams.

    Members:
        start: in, the instruction `front` starts; it is `run` from the next cycle on. streaming: in, `run` is a window
            operation and streams in this cycle.
        group_first, group_last: in, this is a pass of the first, the last lanes.
        row_first, row_last, block_last: in, the place of the result is the first or last of its row, the last of its
            block.
        reading, passing: out, this cycle reads a word, is a pass.
        moves: out, with a pass of the last lanes, the place of the result moves on. done: with it, the result is
            complete.
        offset: out, of the word to read, from the first one that the row of results has.
        window: out, for the datapath.
    """

    def __init__(self, config: NpuConfig, more: dict[str, Member] | None = None) -> None:
        self._config = config
        layout = instruction_layout(Vector)
        super().__init__(
            {
                "start": In(1),
                "front": In(layout),
                "run": In(layout),
                "streaming": In(1),
                "group_first": In(1),
                "group_last": In(1),
                "row_first": In(1),
                "row_last": In(1),
                "block_last": In(1),
                "reading": Out(1),
                "passing": Out(1),
                "moves": Out(1),
                "done": Out(1),
                "offset": Out(_OFFSET_BITS),
                "window": Out(window_pass(config)),
                **(more or {}),
            }
        )


class RowWindows(WindowOrder):
    """Each result at once: its window row by row, with a row-window for each. SUM reads every word by itself.

    Attributes:
        state: registers.
            summing: the operation is SUM.
            window_y, window_x: row of the window; its column, for SUM. row_last, column_last: they are the last ones.
            tap_column: first window column of this pass. tap_last: no pass of this window row follows. tap_row: taps of
                the window's rows before this one.
            column: of the window's first word, from the first one of the row of results. read_column: of the next word
                to read. row_offset: of the window's row.
            reads_done: words read of this window row. reads_left: some are to be read; reads_end: one at most.
            fresh: words that this window row reads anew: `first_fresh` in the first window of a row of results, else
                `next_fresh`. first_slot: where the first one goes.
            step_more: between windows there are words that none has; skip: their offset. step_offset: the next
                window's.
            tap_once, row_once, column_once: `tap_last`, `row_last` and `column_last` as they are when they begin.

    Whether a pass is the last hangs on some of these, and much on that: so each flag is a register beside the number
    that it follows from, and says of the present number whether it is the last.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(config)
        taps = bits_for(config.max_window**2)
        self.state = Signal(
            data.StructLayout(
                {
                    "summing": 1,
                    "window_y": _WINDOW_BITS,
                    "row_last": 1,
                    "window_x": _WINDOW_BITS,
                    "column_last": 1,
                    "tap_column": _COLUMN_BITS,
                    "tap_last": 1,
                    "tap_row": taps,
                    "column": _OFFSET_BITS,
                    "read_column": _OFFSET_BITS,
                    "row_offset": _OFFSET_BITS,
                    "reads_done": _COLUMN_BITS,
                    "reads_left": 1,
                    "reads_end": 1,
                    "fresh": _COLUMN_BITS,
                    "first_fresh": _COLUMN_BITS,
                    "next_fresh": _COLUMN_BITS,
                    "first_slot": window_slot_bits(config),
                    "step_more": 1,
                    "skip": _OFFSET_BITS,
                    "step_offset": _OFFSET_BITS,
                    "tap_once": 1,
                    "row_once": 1,
                    "column_once": 1,
                }
            )
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        taps, state = self._config.vector_taps, self.state
        windowed = ~state.summing
        last_pass, window_last = Signal(), Signal()
        m.d.comb += [
            window_last.eq(state.row_last & (windowed | state.column_last)),
            self.reading.eq(Mux(windowed, state.reads_left, self.group_first)),
            self.passing.eq(state.summing | state.reads_end),
            self.done.eq(window_last & (state.summing | state.tap_last)),
            self.moves.eq(self.done),
            last_pass.eq(self.passing & self.group_last & (state.summing | state.tap_last)),
            self.offset.eq(state.read_column + state.row_offset),
            self.window.read_window.eq(windowed),
            self.window.row.eq(state.window_y),
            self.window.slot.eq(state.first_slot + state.reads_done),
            self.window.newest.eq(state.first_slot + state.fresh - 1),
            self.window.width.eq(self.run.window_width),
            self.window.tap_column.eq(state.tap_column),
            self.window.tap_place.eq(state.tap_row + state.tap_column),
            self.window.first.eq((state.window_y == 0) & Mux(windowed, state.tap_column == 0, state.window_x == 0)),
        ]
        with m.If(self.streaming & windowed):
            self._windowed(m, taps, last_pass, window_last)
        with m.If(self.streaming & state.summing & last_pass):
            self._summing(m, window_last)
        with m.If(self.start):
            self._begin(m, taps)
        return m

    def _next_row(self, m: Module) -> None:
        state = self.state
        m.d.sync += [
            state.window_y.eq(state.window_y + 1),
            state.row_last.eq(state.window_y + 1 == self.run.window_height),
            state.row_offset.eq(state.row_offset + self.run.window_stride_y),
            state.read_column.eq(state.column),
        ]

    def _first_row(self, m: Module, column: Value) -> None:
        """Of the next window, whose first column is given."""
        state = self.state
        m.d.sync += [
            state.window_y.eq(0),
            state.row_last.eq(state.row_once),
            state.row_offset.eq(0),
            state.column.eq(column),
            state.read_column.eq(column),
        ]

    def _windowed(self, m: Module, taps: int, last_pass: Signal, window_last: Signal) -> None:
        """MAX and DEPTHWISE: words come into row-windows, taps go over them."""
        state = self.state
        moved = (state.read_column + self.run.window_stride_x)[:_OFFSET_BITS]
        fresh = Mux(self.row_last, state.first_fresh, state.next_fresh)
        with m.If(self.passing & self.group_last):
            m.d.sync += [
                state.tap_column.eq(Mux(state.tap_last, 0, state.tap_column + taps)),
                state.tap_last.eq(
                    Mux(state.tap_last, state.tap_once, state.tap_column + 2 * taps > self.run.window_width)
                ),
            ]
        with m.If(self.reading):
            m.d.sync += [
                state.reads_done.eq(state.reads_done + 1),
                state.reads_left.eq(state.reads_done + 1 != state.fresh),
                state.reads_end.eq(state.reads_done + 2 >= state.fresh),
                state.read_column.eq(moved),
            ]
        with m.If(last_pass):
            m.d.sync += [state.reads_done.eq(0), state.reads_left.eq(1), state.reads_end.eq(state.fresh == 1)]
            with m.If(~window_last):
                self._next_row(m)
                m.d.sync += state.tap_row.eq(state.tap_row + self.run.window_width + 1)
            with m.Else():
                behind = Mux(self.reading, moved, state.read_column)
                self._first_row(m, Mux(self.row_last, 0, behind + Mux(state.step_more, state.skip, 0)))
                m.d.sync += [
                    state.tap_row.eq(0),
                    state.first_slot.eq(state.first_slot + state.fresh),
                    state.fresh.eq(fresh),
                    state.reads_end.eq(fresh == 1),
                ]

    def _summing(self, m: Module, window_last: Signal) -> None:
        """SUM: a word a pass."""
        state = self.state
        m.d.sync += [
            state.window_x.eq(state.window_x + 1),
            state.column_last.eq(state.window_x + 1 == self.run.window_width),
            state.read_column.eq(state.read_column + self.run.window_stride_x),
        ]
        with m.If(state.column_last):
            m.d.sync += [state.window_x.eq(0), state.column_last.eq(state.column_once)]
            self._next_row(m)
            with m.If(window_last):
                self._first_row(m, Mux(self.row_last, 0, state.column + state.step_offset))

    def _begin(self, m: Module, taps: int) -> None:
        front, state = self.front, self.state
        more = front.window_step > front.window_width
        words = front.window_width + 1
        tap_once, row_once, column_once = (
            taps > front.window_width, front.window_height == 0, front.window_width == 0
        )  # fmt: skip
        m.d.sync += [
            state.summing.eq(front.operation == Operation.SUM),
            state.step_more.eq(more),
            state.step_offset.eq((front.window_step + 1) * front.window_stride_x),
            state.skip.eq((front.window_step - front.window_width).as_unsigned() * front.window_stride_x),
            state.first_fresh.eq(words),
            state.fresh.eq(words),
            state.next_fresh.eq(Mux(more, front.window_width, front.window_step) + 1),
            Cat(state.tap_last, state.tap_once).eq(tap_once.replicate(2)),
            Cat(state.row_last, state.row_once).eq(row_once.replicate(2)),
            Cat(state.column_last, state.column_once, state.reads_end).eq(column_once.replicate(3)),
            state.reads_left.eq(1),
            Cat(state.column, state.read_column, state.row_offset, state.window_y, state.window_x).eq(0),
            Cat(state.reads_done, state.tap_column, state.tap_row).eq(0),
        ]


class Sweeps(WindowOrder):
    """Many results together: for each group of a window row's columns, one sweep over a chunk of results.

    Members: those of `WindowOrder`, and
        keep, restore: out, for the loops over the results: note the place of a chunk's first result; go back to it.

    Attributes:
        state: registers.
            window_y, group: window row and first window column of this sweep. tap_row: taps of the window's rows before
                it. row_offset, group_offset: of the window's row and of the group. groups_offset: from a group to the
                next.
            column: of the result's window, from the first one of the row of results. step_offset: from a window to the
                next. read_column: of the next word to read. kept_column: of the chunk's first result.
            reads_done: words read of this result. slot: where the first one goes.
            count: which result of the chunk.
            gap: what a sweep's passes lack of the cycles that its sums need; so long the next one is `waiting`.
            fresh_chunk: the next cycle that streams is the first of a chunk.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._timing = timing = Timing(config)
        super().__init__(config, {"keep": Out(1), "restore": Out(1)})
        self.state = Signal(
            data.StructLayout(
                {
                    "window_y": _WINDOW_BITS,
                    "group": _COLUMN_BITS,
                    "tap_row": bits_for(config.max_window**2),
                    "row_offset": _OFFSET_BITS,
                    "group_offset": _OFFSET_BITS,
                    "groups_offset": _OFFSET_BITS,
                    "column": _OFFSET_BITS,
                    "step_offset": _OFFSET_BITS,
                    "read_column": _OFFSET_BITS,
                    "kept_column": _OFFSET_BITS,
                    "reads_done": _COLUMN_BITS,
                    "slot": window_slot_bits(config),
                    "count": range(timing.sweep_words),
                    "gap": range(timing.sweep_cycles + 1),
                    "waiting": 1,
                    "fresh_chunk": 1,
                }
            )
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timing, taps = self._timing, self._config.vector_taps
        run, state = self.run, self.state
        summing = run.operation == Operation.SUM

        width, fresh = Signal(_WINDOW_BITS), Signal(_COLUMN_BITS)
        """Columns of this sweep's group, less one; words that this pass's result reads anew."""
        rest = (run.window_width - state.group)[:_WINDOW_BITS]
        far = run.window_step >= width
        last_group = Mux(summing, state.group, state.group + taps - 1) >= run.window_width
        last_sweep = last_group & (state.window_y == run.window_height)
        finished, ends, again = Signal(), Signal(), Signal()
        """This cycle is the last of a result; of a sweep; of one that is not its chunk's last."""
        m.d.comb += [
            width.eq(Mux(summing, 0, Mux(rest < taps, rest, taps - 1))),
            fresh.eq(Mux(self.row_first | (state.count == 0) | far, width, run.window_step) + 1),
            self.reading.eq(~state.waiting & (state.reads_done < fresh)),
            self.passing.eq(~state.waiting & (state.reads_done + 1 >= fresh)),
            finished.eq(self.streaming & self.passing & self.group_last),
            ends.eq(finished & (self.block_last | (state.count == timing.sweep_words - 1))),
            again.eq(ends & ~last_sweep),
            self.moves.eq(~again),
            self.done.eq(last_sweep),
            self.keep.eq(self.streaming & state.fresh_chunk),
            self.restore.eq(again),
            self.offset.eq(state.read_column + state.row_offset),
            self.window.read_window.eq(~summing),
            self.window.slot.eq(state.slot + state.reads_done),
            self.window.newest.eq(state.slot + fresh - 1),
            self.window.width.eq(width),
            self.window.tap_place.eq(state.tap_row + state.group),
            self.window.first.eq((state.window_y == 0) & (state.group == 0)),
            self.window.sum_place.eq(state.count),
        ]
        with m.If(self.streaming):
            self._each_cycle(m)
        self._next_result(m, finished, fresh, far, ends, again, last_group, Mux(summing, 1, taps))
        with m.If(ends):
            self._next_sweep(m, last_group, last_sweep)
        with m.If(self.start):
            self._begin(m, taps)
        return m

    def _each_cycle(self, m: Module) -> None:
        state = self.state
        with m.If(state.fresh_chunk):
            m.d.sync += [state.fresh_chunk.eq(0), state.kept_column.eq(state.column)]
        with m.If(self.reading):
            m.d.sync += [
                state.reads_done.eq(state.reads_done + 1),
                state.read_column.eq(state.read_column + self.run.window_stride_x),
            ]
        with m.If((self.passing | state.waiting) & (state.gap != 0)):
            m.d.sync += state.gap.eq(state.gap - 1)
        with m.If(state.waiting & (state.gap == 1)):
            m.d.sync += [state.waiting.eq(0), state.gap.eq(self._timing.sweep_cycles)]

    def _next_result(
        self, m: Module, finished: Signal, fresh: Signal, far: Value, ends: Signal, again: Signal,
        last_group: Value, columns: Value,
    ) -> None:  # fmt: skip
        state = self.state
        column, group, group_offset = (Signal.like(one) for one in (state.column, state.group, state.group_offset))
        """Of the next result."""
        first_column = Mux(state.fresh_chunk, state.column, state.kept_column)
        m.d.comb += [
            column.eq(Mux(again, first_column, Mux(self.row_last, 0, state.column + state.step_offset))),
            group.eq(state.group),
            group_offset.eq(state.group_offset),
        ]
        with m.If(ends):
            m.d.comb += [
                group.eq(Mux(last_group, 0, state.group + columns)),
                group_offset.eq(Mux(last_group, 0, state.group_offset + state.groups_offset)),
            ]
        with m.If(finished):
            m.d.sync += [
                state.reads_done.eq(0),
                state.slot.eq(state.slot + fresh),
                state.count.eq(state.count + 1),
                state.column.eq(column),
                state.group.eq(group),
                state.group_offset.eq(group_offset),
            ]
            with m.If(ends | self.row_last | far):
                m.d.sync += state.read_column.eq(column + group_offset)

    def _next_sweep(self, m: Module, last_group: Value, last_sweep: Value) -> None:
        state = self.state
        m.d.sync += [state.count.eq(0), state.fresh_chunk.eq(last_sweep)]
        with m.If(last_sweep | (state.gap <= 1)):
            m.d.sync += state.gap.eq(self._timing.sweep_cycles)
        with m.Else():
            m.d.sync += state.waiting.eq(1)
        with m.If(last_sweep):
            m.d.sync += [state.window_y.eq(0), state.row_offset.eq(0), state.tap_row.eq(0)]
        with m.Elif(last_group):
            m.d.sync += [
                state.window_y.eq(state.window_y + 1),
                state.row_offset.eq(state.row_offset + self.run.window_stride_y),
                state.tap_row.eq(state.tap_row + self.run.window_width + 1),
            ]

    def _begin(self, m: Module, taps: int) -> None:
        front, state = self.front, self.state
        columns = Mux(front.operation == Operation.SUM, 1, taps)
        m.d.sync += [
            state.step_offset.eq((front.window_step + 1) * front.window_stride_x),
            state.groups_offset.eq(columns * front.window_stride_x),
            Cat(state.window_y, state.group, state.tap_row, state.row_offset, state.group_offset).eq(0),
            Cat(state.column, state.read_column, state.reads_done, state.count, state.waiting).eq(0),
            state.gap.eq(self._timing.sweep_cycles),
            state.fresh_chunk.eq(1),
        ]
