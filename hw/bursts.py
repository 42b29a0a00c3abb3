"""Bursts of a LOAD or STORE: planes of rows, cut at `max_burst` beats and at 4 KiB."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2
from npukit.isa.config import NpuConfig

__all__ = [
    "BEAT_BITS", "BurstGenerator", "address_bits", "burst_layout", "bytes_of", "last_byte_of", "rows_layout",
]  # fmt: skip

BEAT_BITS = 8
"""Of a burst's number of beats, less one, as AXI4 has it."""

_WORD_BITS = 37
"""Of an address in words: 32, and room for 4096 rows and planes of the longest strides."""
_PAGE = 12
_ROW_BITS = 25
"""Of a row's number of bytes, less one."""


def address_bits(config: NpuConfig) -> int:
    """Bits of a byte address relative to the base register."""
    return _WORD_BITS + ceil_log2(config.word_bytes)


def burst_layout(config: NpuConfig) -> data.StructLayout:
    """A burst to ask for.

    address: its first byte. beats: its beats - 1. last: none follows of the same instruction. outside: its row ends
    past the limit register.
    """
    return data.StructLayout({"address": address_bits(config), "beats": BEAT_BITS, "last": 1, "outside": 1})


def rows_layout(config: NpuConfig) -> data.StructLayout:
    """Planes of rows of bytes: their numbers, each less one, and from each to the next, in bytes."""
    bits = address_bits(config)
    return data.StructLayout({"planes": 12, "rows": 12, "bytes": _ROW_BITS, "plane_stride": bits, "row_stride": bits})


class BurstGenerator(wiring.Component):
    """Presents one burst a cycle from the cycle after `load` on.

    Members:
        load: with `start`, the first byte; nothing is presented then. rows: stays until no burst is left. limit: of
            what the rows may reach.
        bursts: stream out.

    Attributes, registers of which the invariants are in `tests/proofs`:
        left, size: bytes of the row from the present burst on, and of this burst, less one each: so no sum is needed
            but for addresses.
        row_done: the burst is its row's last. last_of_all: the row is the last one.
        ahead, plane_ahead: start of the row that follows, and of its plane.
        rows_left, planes_left: rows of its plane, and planes, behind that row.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._bus, self._most = config.bus_bytes, config.max_burst
        self._bits = address_bits(config)
        super().__init__(
            {
                "load": In(1),
                "start": In(self._bits),
                "rows": In(rows_layout(config)),
                "limit": In(64),
                "bursts": Out(stream.Signature(burst_layout(config))),
            }
        )
        self.left, self.size = Signal(_ROW_BITS), Signal(_PAGE)
        self.row_done, self.last_of_all = Signal(), Signal()
        self.ahead, self.plane_ahead = Signal(self._bits), Signal(self._bits)
        self.rows_left, self.planes_left = Signal.like(self.rows.rows), Signal.like(self.rows.planes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus_bits = exact_log2(self._bus)
        burst, valid, take = self.bursts.payload, self.bursts.valid, Signal()
        left, size, row_done, last_of_all = self.left, self.size, self.row_done, self.last_of_all
        m.d.comb += [
            take.eq(valid & self.bursts.ready),
            burst.beats.eq((burst.address[:bus_bits] + size) >> bus_bits),
            burst.last.eq(row_done & last_of_all),
        ]
        row_start, row_is_last = self._rows_ahead(m, take & row_done)

        # what follows: the next burst of the row, or a row's first. That nothing is presented says that it is the
        # very first, as `load` comes too late to choose with
        new_row = ~valid | row_done
        following, next_left, next_size = Signal(self._bits), Signal.like(left), Signal.like(size)
        less = Cat(~size, 1).as_signed()
        """The burst's bytes as a negative number."""
        m.d.comb += [
            following.eq(Mux(new_row, row_start, burst.address - less)),
            next_left.eq(Mux(new_row, self.rows.bytes, left + less)),
        ]
        # bytes up to the longest burst's end or the page's, whichever comes first
        longest = (self._most << bus_bits) - 1
        page_first = following[bus_bits:_PAGE] > ((1 << _PAGE) - 1 - longest >> bus_bits)
        to_longest = longest - following[:bus_bits]
        # whether the row ends before both is found beside, not behind, which of them comes first
        in_page = (next_left + following[:_PAGE])[_PAGE:] == 0
        next_done = in_page & (next_left <= to_longest)
        m.d.comb += next_size.eq(Mux(next_done, next_left, Mux(page_first, ~following[:_PAGE], to_longest)))
        # while nothing is presented, the first burst is made anew in each cycle: `load` comes late, and presents it
        with m.If(take | ~valid):
            m.d.sync += [
                burst.address.eq(following),
                left.eq(next_left),
                size.eq(next_size),
                row_done.eq(next_done),
            ]
            with m.If(new_row):
                m.d.sync += [
                    burst.outside.eq(row_start + self.rows.bytes >= self.limit),
                    last_of_all.eq(row_is_last),
                ]
        with m.If(take & burst.last):
            m.d.sync += valid.eq(0)
        with m.If(self.load):
            m.d.sync += valid.eq(1)
        return m

    def _rows_ahead(self, m: Module, row_taken: Value) -> tuple[Value, Value]:
        """Start of the row that follows, and whether it is the last one. Before the first, that is the first.

        A row's start is computed while the row before it is presented, the second one's with the first's.
        """
        given, valid = self.rows, self.bursts.valid
        ahead, plane_ahead, rows_left, planes_left = self.ahead, self.plane_ahead, self.rows_left, self.planes_left
        start = Mux(valid, ahead, self.start)
        plane_start = Mux(valid, plane_ahead, self.start)
        rows, planes = Mux(valid, rows_left, given.rows), Mux(valid, planes_left, given.planes)
        last_row = rows == 0
        moved = Signal(self._bits, name="moved")
        m.d.comb += moved.eq(Mux(last_row, plane_start, start) + Mux(last_row, given.plane_stride, given.row_stride))
        with m.If(~valid | row_taken):
            m.d.sync += [ahead.eq(moved), rows_left.eq(Mux(last_row, given.rows, rows - 1)), planes_left.eq(planes)]
            with m.If(last_row):
                m.d.sync += planes_left.eq(planes - 1)
            with m.If(~valid | last_row):
                m.d.sync += plane_ahead.eq(Mux(last_row, moved, plane_start))
        return start, last_row & (planes == 0)


def bytes_of(words: Value, word_bytes: int) -> Value:
    """A number of words as bytes, which keeps its sign."""
    if word_bytes & (word_bytes - 1):
        return words * word_bytes
    return words << exact_log2(word_bytes)


def last_byte_of(words: Value, word_bytes: int) -> Value:
    """Of a number of words less one, the number of bytes less one."""
    if word_bytes & (word_bytes - 1):
        return words * word_bytes + (word_bytes - 1)
    return Cat(Const(word_bytes - 1, exact_log2(word_bytes)), words)
