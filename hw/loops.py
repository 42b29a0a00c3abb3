"""Nested affine loops: one address a step, for any number of addresses over the same counters."""

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.hdl import ValueLike

__all__ = ["LoopNest", "ring"]

ADDRESS_BITS = 16
RING_BITS = 15


def ring(offset: ValueLike, address: ValueLike, wrap: ValueLike):
    """`address` kept within the aligned ring of 2**wrap words that `offset` lies in; all of it for 0."""
    full = (1 << RING_BITS) - 1
    mask = Mux(wrap == 0, full, ~(C(full, RING_BITS) << wrap))[:RING_BITS]
    return (Value.cast(offset)[:RING_BITS] & ~mask) | (Value.cast(address)[:RING_BITS] & mask)


class LoopNest:
    """Counters of nested loops, outermost first, and addresses that follow them.

    Built into a module with `build`. `load` (with the offsets of that cycle, and `once` for each level that has one
    index only) sets all counters to 0; `step` moves to the next index. `address[k]` and `last` belong to the present
    index. Strides and counts, the last index of each level, must hold still from the cycle after `load` on.

    `keep` notes the present index; `restore` goes back to the one noted, or, together with `keep`, stays. The
    outermost index must be the same.
    """

    def __init__(self, levels: int, addresses: int, count_bits: int = 16, address_bits: int = ADDRESS_BITS) -> None:
        self.levels = levels
        self.load = Signal()
        self.step = Signal()
        self.keep = Signal()
        self.restore = Signal()
        self.counts = [Signal(count_bits, name=f"count_{level}") for level in range(levels)]
        self.once = [Signal(name=f"once_{level}") for level in range(levels)]
        self.offsets = [Signal(address_bits, name=f"offset_{k}") for k in range(addresses)]
        self.strides = [
            [Signal(address_bits, name=f"stride_{k}_{level}") for level in range(levels)] for k in range(addresses)
        ]
        self.index = [Signal(count_bits, name=f"index_{level}") for level in range(levels)]
        self.base = [
            [Signal(address_bits, name=f"base_{k}_{level}") for level in range(levels)] for k in range(addresses)
        ]
        self.at_start = [Signal(name=f"at_start_{level}") for level in range(levels)]
        """Registers: the index is 0."""
        self.at_end = [Signal(name=f"at_end_{level}", init=1) for level in range(levels)]
        """Registers, too: much hangs on the last index, from free ports to the next start. Before the first `load`, all
        loops are at their ends."""
        self.last = Signal()
        """This index is the last of all loops."""
        self.address = [base[-1] for base in self.base]

    def build(self, m: Module, *, returns: bool = False) -> "LoopNest":
        """Add the counters to a module; with `returns`, also what `keep` and `restore` need."""
        single = Signal(self.levels)
        done = C(1, 1)
        for level in self.at_end:
            done = done & level
        m.d.comb += self.last.eq(done)
        with m.If(self.step):
            inner_done = C(1, 1)
            for level in reversed(range(self.levels)):
                with m.If(inner_done & ~self.at_end[level]):
                    following = (self.index[level] + 1)[: len(self.index[level])]
                    m.d.sync += [
                        self.index[level].eq(following),
                        self.at_start[level].eq(0),
                        self.at_end[level].eq(following == self.counts[level]),
                    ]
                    for inner in range(level + 1, self.levels):
                        m.d.sync += [
                            self.index[inner].eq(0),
                            self.at_start[inner].eq(1),
                            self.at_end[inner].eq(single[inner]),
                        ]
                    for base, strides in zip(self.base, self.strides, strict=True):
                        moved = (base[level] + strides[level])[: len(base[level])]
                        for inner in range(level, self.levels):
                            m.d.sync += base[inner].eq(moved)
                inner_done = inner_done & self.at_end[level]
        if returns:
            flags = (*self.at_start[1:], *self.at_end[1:])
            present = Cat(*self.index[1:], *flags, *(level for base in self.base for level in base[1:]))
            noted = Signal(len(present))
            with m.If(self.keep):
                m.d.sync += noted.eq(present)
            with m.Elif(self.restore):
                m.d.sync += present.eq(noted)
        with m.If(self.load):
            m.d.sync += single.eq(Cat(*self.once))
            for index, at_start, at_end, once in zip(self.index, self.at_start, self.at_end, self.once, strict=True):
                m.d.sync += [index.eq(0), at_start.eq(1), at_end.eq(once)]
            for base, offset in zip(self.base, self.offsets, strict=True):
                for level in base:
                    m.d.sync += level.eq(offset)
        return self
