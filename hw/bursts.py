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
        load: with planes, rows (counts - 1), row_bytes, address and strides, which hold still until `done`.
        valid: a burst is presented; address: its first byte; beats: its beats - 1; last: none follows.
        outside: the burst ends past `limit`.
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
        # bytes of the three limits, each from the burst's first byte
        within = self.address[:bus_bits]
        beats_limit = (self._most << bus_bits) - within
        page_limit = (1 << _PAGE) - self.address[:_PAGE]
        most = Mux(page_limit < beats_limit, page_limit, beats_limit)
        size = Signal(16)
        row_done = Signal()
        m.d.comb += [
            row_done.eq(left <= most),
            size.eq(Mux(row_done, left, most)),
            self.beats.eq((within + size - 1) >> bus_bits),
            self.last.eq(row_done & (row == self.rows) & (plane == self.planes)),
            self.outside.eq(self.address + size > self.limit),
        ]
        with m.If(self.take):
            with m.If(~row_done):
                m.d.sync += [self.address.eq(self.address + size), left.eq(left - size)]
            with m.Else():
                self._next_row(m, plane, row, plane_start, row_start, left)
            with m.If(self.last):
                m.d.sync += self.valid.eq(0)
        with m.If(self.load):
            m.d.sync += [
                self.valid.eq(1),
                plane.eq(0),
                row.eq(0),
                left.eq(self.row_bytes),
                *(start.eq(self.start) for start in (self.address, plane_start, row_start)),
            ]
        return m

    def _next_row(
        self, m: Module, plane: Signal, row: Signal, plane_start: Signal, row_start: Signal, left: Signal
    ) -> None:
        m.d.sync += left.eq(self.row_bytes)
        with m.If(row == self.rows):
            moved = (plane_start + self.plane_stride)[:ADDRESS_BITS]
            m.d.sync += [row.eq(0), plane.eq(plane + 1)]
            m.d.sync += [one.eq(moved) for one in (plane_start, row_start, self.address)]
        with m.Else():
            moved = (row_start + self.row_stride)[:ADDRESS_BITS]
            m.d.sync += [row.eq(row + 1), row_start.eq(moved), self.address.eq(moved)]


def bytes_of(words: Value, word_bytes: int) -> Value:
    """A number of words as bytes, which keeps its sign."""
    return words << exact_log2(word_bytes)
