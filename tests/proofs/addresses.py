"""Addresses: loops, rings and bursts equal their specification for all field values."""

from collections.abc import Callable
from dataclasses import replace

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.bursts import BurstGenerator
from npukit.hw.loops import ADDRESS_BITS, RING_BITS, LoopNest, ring
from npukit.isa.config import PRESETS, NpuConfig
from proofs.harness import Fault, Model, Proof

__all__ = ["PROOFS"]

_LEVELS = 3
_PAGE = 4096


def _loops(model: Model, returns: bool) -> None:
    """The index goes through all loops in order; each address is its offset and, of each level, index times stride.

    The product is defined by addition: a shadow adds the stride as the index moves, and is 0 where it begins.
    """
    dut = model.block("loops", LoopNest, [16] * _LEVELS, 1, returns=returns)
    loaded = model.register(lambda now: now | dut.load, 1, "loaded")
    begins = model.past(dut.load)
    held = Cat(Value.cast(one) for one in (*dut.counts, *dut.strides[0]))
    model.assume(begins | (model.past(held) == held))
    for once, count in zip(dut.once, dut.counts, strict=True):
        model.assume(~begins | (model.past(once) == (count == 0)))
    keep, restore = (dut.keep, dut.restore) if returns else (Const(0, 1), Const(0, 1))

    moves, inner = [Const(0, 1)] * _LEVELS, Const(1, 1)
    index = [Signal.like(one, name=f"spec_index_{k}") for k, one in enumerate(dut.index)]
    part = [Signal(ADDRESS_BITS, name=f"part_{level}") for level in range(_LEVELS)]
    noted_index = [Signal.like(one) for one in index]
    noted_part = [Signal.like(one) for one in part]
    offset = Signal(ADDRESS_BITS, name="spec_offset")
    at_end = [one == count for one, count in zip(index, dut.counts, strict=True)]
    for level in reversed(range(_LEVELS)):
        moves[level], inner = inner & ~at_end[level], inner & at_end[level]
    restarts = [Cat(moves[:level]).any() if level else Const(0, 1) for level in range(_LEVELS)]
    m = model.m
    with m.If(dut.step):
        for level in range(_LEVELS):
            with m.If(moves[level]):
                m.d.sync += [
                    index[level].eq(index[level] + 1),
                    part[level].eq(part[level] + dut.strides[0][level]),
                ]
            with m.If(restarts[level]):
                m.d.sync += [index[level].eq(0), part[level].eq(0)]
    if returns:
        kept = model.register(lambda now: (now | (keep & loaded)) & ~dut.load, 1, "kept")
        # what a user promises: it has noted an index, and the outermost one is still the same
        model.assume(~restore | keep | (kept & (noted_index[0] == index[0]) & loaded))
        with m.If(keep):
            m.d.sync += [a.eq(b) for a, b in zip((*noted_index, *noted_part), (*index, *part), strict=True)]
        with m.Elif(restore):
            m.d.sync += [
                a.eq(b) for a, b in zip((*index[1:], *part[1:]), (*noted_index[1:], *noted_part[1:]), strict=True)
            ]
        model.assume(~(restore & ~keep & dut.step))
    with m.If(dut.load):
        m.d.sync += [*(one.eq(0) for one in (*index, *part)), offset.eq(dut.offsets[0])]

    sums = [offset]
    for one in part:
        sums.append((sums[-1] + one)[:ADDRESS_BITS])
    for level in range(_LEVELS):
        model.claim(f"index {level}", ~loaded | (dut.index[level] == index[level]))
        model.claim(f"index {level} is in range", ~loaded | (index[level] <= dut.counts[level]))
        model.claim(f"at start {level}", ~loaded | (dut.at_start[level] == (index[level] == 0)))
        model.claim(f"at end {level}", ~loaded | (dut.at_end[level] == at_end[level]))
        model.claim(f"one index {level}", ~loaded | (dut.single[level] == (dut.counts[level] == 0)))
        model.claim(f"address of level {level}", ~loaded | (dut.bases[0][level] == sums[level + 1]))
    model.claim("address", ~loaded | (dut.address[0] == sums[-1]))
    model.claim("last", dut.last == Mux(loaded, Cat(at_end).all(), 1))
    model.claim("ended before the first", loaded | Cat(dut.at_end).all())
    if returns:
        noted_sums = [sums[1]]
        for one in noted_part[1:]:
            noted_sums.append((noted_sums[-1] + one)[:ADDRESS_BITS])
        inner_index = noted_index[1:]
        ends = [one == count for one, count in zip(inner_index, dut.counts[1:], strict=True)]
        expected = [*inner_index, *(one == 0 for one in inner_index), *ends]
        names = ["index", "start", "end"]
        for k, (value, noted) in enumerate(zip(expected, dut.noted, strict=False)):
            model.claim(f"noted {names[k // (_LEVELS - 1)]}", ~kept | (noted == value))
        same = kept & (noted_index[0] == index[0])
        for value, noted in zip(noted_sums[1:], dut.noted[len(expected) :], strict=True):
            model.claim("noted address", ~same | (noted == value))
        for one, count in zip(noted_index, dut.counts, strict=True):
            model.claim("noted index is in range", ~kept | (one <= count))
        model.claim("noted part of the outermost", ~same | (noted_part[0] == part[0]))
        model.claim("noted comes before", ~kept | loaded)
        model.claim("noted does not lie ahead", ~kept | (noted_index[0] <= index[0]))


def loops(model: Model) -> None:
    """Loops that go on."""
    _loops(model, False)


def returning(model: Model) -> None:
    """Loops that go back."""
    _loops(model, True)


class _Ring(wiring.Component):
    """`ring` alone."""

    def __init__(self, function: Callable[..., Value]) -> None:
        self._function = function
        super().__init__({"offset": In(16), "address": In(16), "wrap": In(4), "place": Out(RING_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.place.eq(self._function(self.offset, self.address, self.wrap))
        return m


def rings(model: Model) -> None:
    """In the aligned ring of 2**wrap words around the offset, at the address's place modulo its size."""
    dut = model.block("ring", _Ring, model.of(ring))
    for wrap in range(16):
        size = 1 << (wrap or RING_BITS)
        start = (dut.offset[:RING_BITS] // size) * size
        expected = (start + dut.address % size)[:RING_BITS]
        model.claim(f"wrap {wrap}", (dut.wrap != wrap) | (dut.place == expected))


def bursts(config: NpuConfig):
    """A proof's build for a bus."""

    def build(model: Model) -> None:
        dut = model.block("bursts", BurstGenerator, config)
        bus, most = config.bus_bytes, config.max_burst
        rows, burst, valid = dut.rows, dut.bursts.payload, dut.bursts.valid
        take = valid & dut.bursts.ready
        given = rows.as_value()
        model.assume(~model.past(valid | dut.load) | (model.past(given) == given))
        model.assume(~model.past(valid | dut.load) | (model.past(dut.limit) == dut.limit))
        model.assume(~dut.load | ~valid)
        # rows and planes by number; where they begin; where this burst begins, and what is left of its row, less one
        row, plane = Signal.like(rows.rows, name="row"), Signal.like(rows.planes, name="plane")
        row_start, plane_start, address = (
            Signal.like(dut.start, name=name) for name in ("row_start", "plane_start", "at")
        )
        left = Signal.like(rows.bytes, name="spec_left")
        bits = len(dut.start)
        offset = address % bus
        whole = (burst.beats + 1) * bus - offset
        taken_bytes = Mux(left < whole, left + 1, whole)
        row_done = left < whole
        last_row = row == rows.rows
        next_start = Mux(last_row, plane_start + rows.plane_stride, row_start + rows.row_stride)[:bits]
        m = model.m
        with m.If(take):
            m.d.sync += [address.eq(address + taken_bytes), left.eq(left - taken_bytes)]
            with m.If(row_done):
                m.d.sync += [address.eq(next_start), row_start.eq(next_start), left.eq(rows.bytes), row.eq(row + 1)]
                with m.If(last_row):
                    m.d.sync += [row.eq(0), plane.eq(plane + 1), plane_start.eq(next_start)]
        with m.If(dut.load):
            m.d.sync += [address.eq(dut.start), row_start.eq(dut.start), plane_start.eq(dut.start)]
            m.d.sync += [left.eq(rows.bytes), row.eq(0), plane.eq(0)]

        def claim(name: str, condition: Value) -> None:
            model.claim(name, ~valid | condition)

        last = row_done & last_row & (plane == rows.planes)
        end = (address % _PAGE) - offset + (burst.beats + 1) * bus
        claim("address", burst.address == address)
        claim("no burst crosses 4 KiB", end <= _PAGE)
        claim("no burst is longer than allowed", burst.beats < most)
        claim("a burst ends where it must, not before", row_done | (end == _PAGE) | (burst.beats == most - 1))
        claim("its last beat has bytes of the row", (burst.beats == 0) | (left + offset >= burst.beats * bus))
        claim("last", burst.last == last)
        claim("all are presented", row <= rows.rows)
        claim("all planes are presented", plane <= rows.planes)
        # what the registers are
        claim("left", dut.left == left)
        claim("size", dut.size + 1 == taken_bytes)
        claim("row done", dut.row_done == row_done)
        claim("last of all", dut.last_of_all == (last_row & (plane == rows.planes)))
        claim("ahead", dut.ahead == next_start)
        claim("plane ahead", dut.plane_ahead == Mux(last_row, next_start, plane_start))
        claim("rows left", dut.rows_left == Mux(last_row, rows.rows, rows.rows - row - 1)[: len(row)])
        claim("planes left", dut.planes_left == (rows.planes - plane - last_row)[: len(plane)])
        claim("left of row", left <= rows.bytes)
        claim("outside", burst.outside == (row_start + rows.bytes >= dut.limit))
        # while it waits for its first
        model.claim("ends after the last", ~model.past(take & last) | ~valid)
        model.claim("goes on before", ~model.past(valid & ~(take & last)) | valid)
        model.claim("begins", ~model.past(dut.load) | valid)
        model.cover("a row of several bursts", take & ~row_done)

    return build


_FOUR = replace(PRESETS["int8-4x4"], bus_bytes=4, max_burst=9)
_EIGHT = PRESETS["int8-4x4"]
_LONG = replace(PRESETS["int8-4x4"], bus_bytes=64, max_burst=256)
_BURST_FAULTS = (
    Fault("crosses a page", "hw.bursts", "in_page & (next_left", "(next_left"),
    Fault("longer than allowed", "hw.bursts", "to_longest = longest - following[:bus_bits]", "to_longest = longest"),
    Fault(
        "rows of 256", "hw.bursts", "Mux(last_row, given.rows, rows - 1)", "Mux(last_row, given.rows, (rows - 1)[:8])"
    ),
    Fault("a plane begins at the last one's row", "hw.bursts", "Mux(last_row, moved, plane_start)", "moved"),
)

PROOFS = (
    Proof(
        "loops",
        "Loops go through all indices in order; an address is its offset and the strides so often as indices say.",
        loops,
        6,
        1,
        (
            Fault("inner loops go on", "hw.loops", "for one in base[level:]]", "for one in base[level : level + 1]]"),
            Fault(
                "the end of a single index",
                "hw.loops",
                "self.at_end[inner].eq(self.single[inner])",
                "self.at_end[inner].eq(0)",
            ),
            Fault("a loop too long", "hw.loops", "following == self.counts[level]", "following > self.counts[level]"),
        ),
    ),
    Proof(
        "loops that return",
        "The same where an index is noted and gone back to.",
        returning,
        6,
        1,
        (
            Fault("noted late", "hw.loops", "with m.If(self.keep):", "with m.If(self.keep & ~self.step):"),
            Fault(
                "not all is noted",
                "hw.loops",
                "[noted.eq(one) for one, noted in zip(self.returned, ",
                "[noted.eq(one) for one, noted in zip((*self.returned[:-1], 0), ",
            ),
            Fault("goes back though it notes", "hw.loops", "with m.Elif(self.restore):", "with m.If(self.restore):"),
        ),
    ),
    Proof(
        "rings",
        "An address in a ring of 2**wrap words is the ring's start and the address modulo its size.",
        rings,
        1,
        1,
        (
            Fault("mask", "hw.loops", "(C(full, RING_BITS) << wrap)", "(C(full, RING_BITS) << wrap + 1)"),
            Fault("all of memory", "hw.loops", "Mux(wrap == 0, full,", "Mux(wrap == 1, full,"),
            Fault("of the address alone", "hw.loops", "[:RING_BITS] & ~mask) |", "[:RING_BITS] & 0) |"),
        ),
    ),
    *(
        Proof(
            f"bursts, bus of {config.bus_bytes} bytes, at most {config.max_burst} beats",
            "Bursts follow each other through all planes and rows, add up to each row, are as long as allowed, "
            "and cross no 4 KiB.",
            bursts(config),
            5,
            1,
            _BURST_FAULTS if config.max_burst * config.bus_bytes < _PAGE else _BURST_FAULTS[2:],
        )
        for config in (_FOUR, _EIGHT, _LONG)
    ),
)
