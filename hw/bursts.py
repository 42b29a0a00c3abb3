"""Bursts of a LOAD or STORE: planes of rows, cut at `max_burst` beats and at 4 KiB."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.isa.config import NpuConfig

__all__ = ["ADDRESS_BITS", "BurstGenerator", "bytes_of"]

ADDRESS_BITS = 44
"""Bits of a byte address relative to the base register: 32 bits of words of up to 128 bytes, and a sign's room."""
_PAGE = 12


class BurstGenerator(wiring.Component):
    """Presents one burst a cycle from the cycle after `load` on; `take` moves to the next.

    Members:
        load: with start and row_bytes; nothing is presented then. row_bytes, planes, rows (counts - 1) and strides
            hold still from the next cycle on, until `valid` falls.
        valid: a burst is presented; address: its first byte; beats: its beats - 1; last: none follows.
        outside: the burst's row ends past `limit`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._bus, self._most = config.bus_bytes, config.max_burst
        super().__init__(
            {
                "load": In(1),
                "planes": In(12),
                "rows": In(12),
                "row_bytes": In(25),
                "start": In(ADDRESS_BITS),
                "plane_stride": In(ADDRESS_BITS),
                "row_stride": In(ADDRESS_BITS),
                "limit": In(64),
                "valid": Out(1),
                "address": Out(ADDRESS_BITS),
                "beats": Out(8),
                "last": Out(1),
                "outside": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus_bits = exact_log2(self._bus)
        plane, row = Signal(12), Signal(12)
        plane_start, row_start, left = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS), Signal(25)
        size, row_done = Signal(13), Signal()
        m.d.comb += [
            self.beats.eq((self.address[:bus_bits] + size - 1) >> bus_bits),
            self.last.eq(row_done & (row == self.rows) & (plane == self.planes)),
        ]

        # what follows: the next burst of the row, the next row, or the first row of all. That nothing is presented
        # says that it is the first, as `load` comes too late to choose with
        last_row = row == self.rows
        moved = Mux(last_row, plane_start, row_start) + Mux(last_row, self.plane_stride, self.row_stride)
        next_start, next_address = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        next_left, next_size = Signal(25), Signal.like(size)
        new_row = ~self.valid | row_done
        m.d.comb += [
            next_start.eq(Mux(self.valid, moved[:ADDRESS_BITS], self.start)),
            next_address.eq(Mux(new_row, next_start, self.address + size)),
            next_left.eq(Mux(new_row, self.row_bytes, left - size)),
        ]
        # bytes up to the longest burst's end and the page's, each from the burst's first byte
        beats_limit = (self._most << bus_bits) - next_address[:bus_bits]
        page_limit = (1 << _PAGE) - next_address[:_PAGE]
        most = Mux(page_limit < beats_limit, page_limit, beats_limit)
        next_done = next_left <= most
        m.d.comb += next_size.eq(Mux(next_done, next_left, most))
        with m.If(self.take | self.load):
            m.d.sync += [
                self.address.eq(next_address),
                left.eq(next_left),
                size.eq(next_size),
                row_done.eq(next_done),
            ]
            with m.If(new_row):
                m.d.sync += [row_start.eq(next_start), self.outside.eq(next_start + self.row_bytes > self.limit)]
                with m.If(~self.valid | last_row):
                    m.d.sync += plane_start.eq(next_start)
        with m.If(self.take):
            with m.If(row_done):
                m.d.sync += row.eq(Mux(last_row, 0, row + 1))
                with m.If(last_row):
                    m.d.sync += plane.eq(plane + 1)
            with m.If(self.last):
                m.d.sync += self.valid.eq(0)
        with m.If(self.load):
            m.d.sync += [self.valid.eq(1), plane.eq(0), row.eq(0)]
        return m


def bytes_of(words: Value, word_bytes: int) -> Value:
    """A number of words as bytes, which keeps its sign."""
    return words << exact_log2(word_bytes)
