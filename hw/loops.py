"""Nested affine loops: one address a step, for any number of addresses over the same counters."""

from collections.abc import Sequence

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.hdl import ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LoopNest", "ring"]

ADDRESS_BITS = 16
RING_BITS = 15


def ring(offset: ValueLike, address: ValueLike, wrap: ValueLike):
    """`address` kept within the aligned ring of 2**wrap words that `offset` lies in; all of it for 0."""
    full = (1 << RING_BITS) - 1
    mask = Mux(wrap == 0, full, ~(C(full, RING_BITS) << wrap))[:RING_BITS]
    return (Value.cast(offset)[:RING_BITS] & ~mask) | (Value.cast(address)[:RING_BITS] & mask)


class LoopNest(wiring.Component):
    """Counters of nested loops, outermost first, and addresses that follow them.

    Parameters:
        count_bits: of each level's index, and of its count, of which higher bits are ignored.
        addresses: how many there are.
        returns: the loops can go back to an index that was noted.

    Members, of each level:
        counts: in, the last index. once: in, with `load`: there is one index only.
        index: out. at_start, at_end: out, registers: the index is 0, the last one. Before the first `load`, all loops
            are at their ends.
    of each address:
        offsets: in, with `load`. address: out.
        strides: in, by address and level.
    and:
        load: in, all indices become 0. Counts and strides must hold still from the next cycle on.
        step: in, on to the next index.
        last: out, this index is the last of all loops.
        keep: in, note the present index. restore: in, never with `step`: back to the one noted, or, together with
            `keep`, stay. The outermost index must be the same.

    Attributes:
        bases: registers, by address and level: the address as it was when that level's index moved last. That of the
            innermost level is the present one.
        single: register, levels that have one index only.
        returned: registers that `keep` and `restore` are about; noted: as they were at the latest `keep`.
    """

    def __init__(self, count_bits: Sequence[int], addresses: int, *, returns: bool = False) -> None:
        self._count_bits, self._addresses, self._returns = count_bits, addresses, returns
        levels, widest = len(count_bits), max(count_bits)
        super().__init__(
            {
                "load": In(1),
                "step": In(1),
                "counts": In(widest).array(levels),
                "once": In(1).array(levels),
                "offsets": In(ADDRESS_BITS).array(addresses),
                "strides": In(ADDRESS_BITS).array(addresses, levels),
                "index": Out(widest).array(levels),
                "at_start": Out(1).array(levels),
                "at_end": Out(1, init=1).array(levels),
                "address": Out(ADDRESS_BITS).array(addresses),
                "last": Out(1),
                **({"keep": In(1), "restore": In(1)} if returns else {}),
            }
        )
        self.bases = [
            [Signal(ADDRESS_BITS, name=f"base_{k}_{level}") for level in range(levels)] for k in range(addresses)
        ]
        self.single = Signal(levels)
        inner = [level for base in self.bases for level in base[1:]]
        self.returned = [*self.index[1:], *self.at_start[1:], *self.at_end[1:], *inner] if returns else []
        self.noted = [Signal.like(one, name=f"noted_{k}") for k, one in enumerate(self.returned)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bases, single = self.bases, self.single
        m.d.comb += self.last.eq(Cat(self.at_end).all())
        m.d.comb += [address.eq(base[-1]) for address, base in zip(self.address, bases, strict=True)]
        with m.If(self.step):
            self._step(m)
        if self._returns:
            with m.If(self.keep):
                m.d.sync += [noted.eq(one) for one, noted in zip(self.returned, self.noted, strict=True)]
            with m.Elif(self.restore):
                m.d.sync += [one.eq(noted) for one, noted in zip(self.returned, self.noted, strict=True)]
        with m.If(self.load):
            m.d.sync += single.eq(Cat(self.once))
            for index, at_start, at_end, once in zip(self.index, self.at_start, self.at_end, self.once, strict=True):
                m.d.sync += [index.eq(0), at_start.eq(1), at_end.eq(once)]
            for base, offset in zip(bases, self.offsets, strict=True):
                m.d.sync += [level.eq(offset) for level in base]
        return m

    def _step(self, m: Module) -> None:
        """The innermost level that is not at its end moves, and those within it begin anew."""
        inner_done = C(1, 1)
        levels = len(self._count_bits)
        for level, bits in reversed(list(enumerate(self._count_bits))):
            with m.If(inner_done & ~self.at_end[level]):
                following = (self.index[level][:bits] + 1)[:bits]
                m.d.sync += [
                    self.index[level].eq(following),
                    self.at_start[level].eq(0),
                    self.at_end[level].eq(following == self.counts[level][:bits]),
                ]
                for inner in range(level + 1, levels):
                    m.d.sync += [
                        self.index[inner].eq(0),
                        self.at_start[inner].eq(1),
                        self.at_end[inner].eq(self.single[inner]),
                    ]
                for base, strides in zip(self.bases, self.strides, strict=True):
                    moved = (base[level] + strides[level])[:ADDRESS_BITS]
                    m.d.sync += [one.eq(moved) for one in base[level:]]
            inner_done = inner_done & self.at_end[level]
