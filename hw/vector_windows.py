"""The order in which VECTOR's window operations take words and taps: int8 result by result, bf16 in sweeps.

Both are held to `docs/timing.md`, section 9.
"""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.utils import bits_for, ceil_log2
from npukit.hw.loops import LoopNest
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Operation
from npukit.isa.timing import Timing

__all__ = ["RowWindows", "Sweeps", "WindowOrder", "pass_members", "window_slot_bits"]


def window_slot_bits(config: NpuConfig) -> int:
    """Bits that name a word of a row-window: it has a power of two of them, at least one for each tap of a pass."""
    return ceil_log2(max(config.max_window, config.vector_taps))


def pass_members(config: NpuConfig) -> dict[str, int]:
    """Widths of what a window operation tells the datapath of its present stream cycle.

    read_window, window_row, window_slot: the word read in this cycle goes to that slot of that row-window.
    window_newest: slot of the last word of this pass's columns; window_width: their number less one;
        tap_column: the first column of this pass among them.
    tap_place: place of this pass's first tap among all of the window. first: nothing has been added yet.
    sum_place: bf16: which of the results that grow together.
    """
    swept = {"sum_place": ceil_log2(Timing(config).sweep_words)} if config.dtype == "bf16" else {}
    return {
        "read_window": 1,
        "window_row": 4,
        "window_slot": window_slot_bits(config),
        "window_newest": window_slot_bits(config),
        "window_width": 4,
        "tap_column": 5,
        "tap_place": bits_for(config.max_window**2 + 16),
        "first": 1,
        **swept,
    }


class WindowOrder:
    """What both orders take and tell; used while a window operation streams.

    Taken: `start` (an instruction starts), its fields `front` in that cycle and `run` from the next one on,
    `streaming` and that the operation is a window's, `group_first` and `group_last` (this is a pass of the first,
    the last lanes), and the place of the result, `place`.

    Attributes:
        reading, passing: this cycle reads a word, is a pass.
        moves: with a pass of the last lanes, the result's place moves on.
        done: with it, the result is complete.
        offset: of the word to read, from the result row's first.
        members: see `pass_members`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.start = Signal(name="window_start")
        self.streaming = Signal(name="window_streaming")
        self.group_first = Signal()
        self.group_last = Signal()
        self.reading = Signal(name="window_reading")
        self.passing = Signal(name="window_passing")
        self.moves = Signal(name="window_moves")
        self.done = Signal(name="window_done")
        self.offset = Signal(16, name="window_offset")
        self.members = {name: Signal(width, name=f"of_{name}") for name, width in pass_members(config).items()}

    def build(self, m: Module, front, run, place: LoopNest) -> None:
        """Add the order's registers to a module."""
        raise NotImplementedError


class RowWindows(WindowOrder):
    """Each result at once: its window row by row, with a row-window for each. SUM reads every word by itself."""

    def build(self, m: Module, front, run, place: LoopNest) -> None:
        """Add the order's registers to a module."""
        taps = self.config.vector_taps
        summing = Signal(name="window_summing")
        windowed = ~summing
        tap_column, tap_row = Signal(5), Signal(bits_for(self.config.max_window**2))
        """First window column of this pass, and taps of the window's rows before it."""
        window_y, window_x = Signal(4), Signal(4)
        column, read_column, row_offset = Signal(16), Signal(16), Signal(16)
        step_offset, skip = Signal(16), Signal(16)
        step_more = Signal()
        """Between results there are words that no window has."""
        first_fresh, next_fresh, fresh = Signal(5), Signal(5), Signal(5)
        """Words that a window row reads anew: of a result row's first window, of others, of the present one."""
        reads_done = Signal(5)
        window_start = Signal(window_slot_bits(self.config))
        """Slot of the row-windows for the first word that this output reads."""
        # whether a pass is the last hangs on these, and much on that: registers, each beside what it follows from
        reads_left, reads_end = Signal(), Signal()
        """Words of this window row are to be read; at most one."""
        tap_last, row_last, column_last = Signal(), Signal(), Signal()
        tap_once, row_once, column_once = Signal(), Signal(), Signal()
        """As they are at the first of the window's taps, rows and columns."""
        last_pass, window_last = Signal(), Signal()
        m.d.comb += [
            window_last.eq(row_last & (windowed | column_last)),
            self.reading.eq(Mux(windowed, reads_left, self.group_first)),
            self.passing.eq(summing | reads_end),
            self.done.eq(window_last & (summing | tap_last)),
            self.moves.eq(self.done),
            last_pass.eq(self.passing & self.group_last & (summing | tap_last)),
        ]
        next_row = [
            window_y.eq(window_y + 1),
            row_last.eq(window_y + 1 == run.window_height),
            row_offset.eq(row_offset + run.window_stride_y),
            read_column.eq(column),
        ]
        moved = (read_column + run.window_stride_x)[:16]
        with m.If(self.streaming & windowed):
            with m.If(self.passing & self.group_last):
                m.d.sync += [
                    tap_column.eq(Mux(tap_last, 0, tap_column + taps)),
                    tap_last.eq(Mux(tap_last, tap_once, tap_column + 2 * taps > run.window_width)),
                ]
            with m.If(self.reading):
                m.d.sync += [
                    reads_done.eq(reads_done + 1),
                    reads_left.eq(reads_done + 1 != fresh),
                    reads_end.eq(reads_done + 2 >= fresh),
                    read_column.eq(moved),
                ]
            with m.If(last_pass):
                m.d.sync += [reads_done.eq(0), reads_left.eq(1), reads_end.eq(fresh == 1)]
                with m.If(~window_last):
                    m.d.sync += [*next_row, tap_row.eq(tap_row + run.window_width + 1)]
                with m.Else():
                    following = Mux(place.at_end[2], 0, Mux(self.reading, moved, read_column) + Mux(step_more, skip, 0))
                    m.d.sync += [
                        window_y.eq(0), row_last.eq(row_once), row_offset.eq(0), tap_row.eq(0),
                        column.eq(following), read_column.eq(following),
                        window_start.eq(window_start + fresh),
                        fresh.eq(Mux(place.at_end[2], first_fresh, next_fresh)),
                        reads_end.eq(Mux(place.at_end[2], first_fresh, next_fresh) == 1),
                    ]  # fmt: skip
        with m.If(self.streaming & summing & last_pass):
            m.d.sync += [
                window_x.eq(window_x + 1),
                column_last.eq(window_x + 1 == run.window_width),
                read_column.eq(moved),
            ]
            with m.If(column_last):
                m.d.sync += [window_x.eq(0), column_last.eq(column_once), *next_row]
                with m.If(window_last):
                    following = Mux(place.at_end[2], 0, column + step_offset)
                    m.d.sync += [
                        window_y.eq(0), row_last.eq(row_once), row_offset.eq(0),
                        column.eq(following), read_column.eq(following),
                    ]  # fmt: skip
        with m.If(self.start):
            more = front.window_step > front.window_width
            words = front.window_width + 1
            anew = Mux(more, front.window_width, front.window_step) + 1
            single, one_row, one_column = taps > front.window_width, front.window_height == 0, front.window_width == 0
            m.d.sync += [
                summing.eq(front.operation == Operation.SUM),
                step_more.eq(more),
                step_offset.eq((front.window_step + 1) * front.window_stride_x),
                skip.eq((front.window_step - front.window_width).as_unsigned() * front.window_stride_x),
                first_fresh.eq(words), fresh.eq(words), next_fresh.eq(anew),
                Cat(tap_last, tap_once).eq(single.replicate(2)),
                Cat(row_last, row_once).eq(one_row.replicate(2)),
                Cat(column_last, column_once, reads_end).eq(one_column.replicate(3)),
                reads_left.eq(1),
                Cat(column, read_column, row_offset, window_y, window_x, reads_done, tap_column, tap_row).eq(0),
            ]  # fmt: skip
        first_tap = Mux(windowed, (window_y == 0) & (tap_column == 0), (window_y == 0) & (window_x == 0))
        values = {
            "read_window": windowed,
            "window_row": window_y,
            "window_slot": window_start + reads_done,
            "window_newest": window_start + fresh - 1,
            "window_width": run.window_width,
            "tap_column": tap_column,
            "tap_place": tap_row + tap_column,
            "first": first_tap,
        }
        m.d.comb += self.offset.eq(read_column + row_offset)
        m.d.comb += [self.members[name].eq(value) for name, value in values.items()]


class Sweeps(WindowOrder):
    """Many results together: for each group of a window row's columns, one sweep over a chunk of results."""

    def build(self, m: Module, front, run, place: LoopNest) -> None:
        """Add the order's registers to a module."""
        timing, taps = Timing(self.config), self.config.vector_taps
        summing = run.operation == Operation.SUM
        window_y, group = Signal(4), Signal(5)
        """Window row and first window column of this sweep."""
        tap_row = Signal(bits_for(self.config.max_window**2))
        """Taps of the window's rows before this one."""
        row_offset, group_offset = Signal(16), Signal(16)
        column, read_column = Signal(16), Signal(16)
        """Of the result's window, and of the next word to read, from the result row's first."""
        step_offset, groups_offset = Signal(16), Signal(16)
        reads_done, slot = Signal(5), Signal(window_slot_bits(self.config))
        count = Signal(range(timing.sweep_words))
        gap, waiting = Signal(range(timing.sweep_cycles + 1)), Signal()
        """What a sweep's passes lack of the cycles that its sums need; so long the next one waits."""
        fresh_chunk, kept_column = Signal(), Signal(16)

        width = Signal(4, name="group_width")
        """Columns of this sweep's group, less one."""
        rest = (run.window_width - group)[:4]
        m.d.comb += width.eq(Mux(summing, 0, Mux(rest < taps, rest, taps - 1)))
        last_group = Mux(summing, group, group + taps - 1) >= run.window_width
        last_sweep = last_group & (window_y == run.window_height)
        far = run.window_step >= width
        fresh = Signal(5)
        m.d.comb += fresh.eq(Mux(place.at_start[2] | (count == 0) | far, width, run.window_step) + 1)

        finished, ends = Signal(), Signal()
        again = ends & ~last_sweep
        block_end = place.at_end[1] & place.at_end[2]
        m.d.comb += [
            self.reading.eq(~waiting & (reads_done < fresh)),
            self.passing.eq(~waiting & (reads_done + 1 >= fresh)),
            finished.eq(self.streaming & self.passing & self.group_last),
            ends.eq(finished & (block_end | (count == timing.sweep_words - 1))),
            self.moves.eq(~again),
            self.done.eq(last_sweep),
            place.keep.eq(self.streaming & fresh_chunk),
            place.restore.eq(again),
        ]
        moved = (read_column + run.window_stride_x)[:16]
        next_column, next_group, next_offset = Signal(16), Signal(5), Signal(16)
        m.d.comb += [next_group.eq(group), next_offset.eq(group_offset)]
        m.d.comb += next_column.eq(Mux(place.at_end[2], 0, column + step_offset))
        with m.If(again):
            m.d.comb += next_column.eq(Mux(fresh_chunk, column, kept_column))
        with m.If(ends):
            m.d.comb += [
                next_group.eq(Mux(last_group, 0, group + Mux(summing, 1, taps))),
                next_offset.eq(Mux(last_group, 0, group_offset + groups_offset)),
            ]
        with m.If(self.streaming):
            with m.If(fresh_chunk):
                m.d.sync += [fresh_chunk.eq(0), kept_column.eq(column)]
            with m.If(self.reading):
                m.d.sync += [reads_done.eq(reads_done + 1), read_column.eq(moved)]
            with m.If((self.passing | waiting) & (gap != 0)):
                m.d.sync += gap.eq(gap - 1)
            with m.If(waiting & (gap == 1)):
                m.d.sync += [waiting.eq(0), gap.eq(timing.sweep_cycles)]
        with m.If(finished):
            m.d.sync += [
                reads_done.eq(0), slot.eq(slot + fresh), count.eq(count + 1), column.eq(next_column),
                group.eq(next_group), group_offset.eq(next_offset),
            ]  # fmt: skip
            with m.If(ends | place.at_end[2] | far):
                m.d.sync += read_column.eq(next_column + next_offset)
        with m.If(ends):
            m.d.sync += [count.eq(0), fresh_chunk.eq(last_sweep)]
            with m.If(last_sweep | (gap <= 1)):
                m.d.sync += gap.eq(timing.sweep_cycles)
            with m.Else():
                m.d.sync += waiting.eq(1)
            with m.If(last_sweep):
                m.d.sync += [window_y.eq(0), row_offset.eq(0), tap_row.eq(0)]
            with m.Elif(last_group):
                m.d.sync += [
                    window_y.eq(window_y + 1),
                    row_offset.eq(row_offset + run.window_stride_y),
                    tap_row.eq(tap_row + run.window_width + 1),
                ]
        with m.If(self.start):
            groups = Mux(front.operation == Operation.SUM, 1, taps)
            m.d.sync += [
                step_offset.eq((front.window_step + 1) * front.window_stride_x),
                groups_offset.eq(groups * front.window_stride_x),
                Cat(window_y, group, tap_row, row_offset, group_offset, column, read_column, reads_done).eq(0),
                Cat(count, waiting).eq(0),
                gap.eq(timing.sweep_cycles),
                fresh_chunk.eq(1),
            ]
        values: dict[str, Value] = {
            "read_window": ~summing,
            "window_slot": slot + reads_done,
            "window_newest": slot + fresh - 1,
            "window_width": width,
            "tap_place": tap_row + group,
            "first": (window_y == 0) & (group == 0),
            "sum_place": count,
        }
        m.d.comb += self.offset.eq(read_column + row_offset)
        m.d.comb += [self.members[name].eq(value) for name, value in values.items()]
