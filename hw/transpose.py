"""Turns tiles of words around: element l of word x becomes element x of word l."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from npukit.hw.memory import NO_COLLISION

__all__ = ["Transposer"]


def _rotated(elements: list[Value], by: Value) -> list[Value]:
    """Element k + `by`, modulo their number, in place k."""
    for bit in range(len(by)):
        step = 1 << bit
        elements = [Mux(by[bit], elements[(k + step) % len(elements)], one) for k, one in enumerate(elements)]
    return elements


class Transposer(wiring.Component):
    """Tiles of `size` words of `size` elements come in word by word, and leave word by word.

    There is a memory for each place of a word. Element l of word x lies in memory (l + x) modulo `size`, at address x:
    so that the elements of a word, and those that make a word of the result, lie in different memories. Two tiles have
    room: one comes while the one before leaves.

    Members:
        put: in, `word` comes. take: in, the next word of the result is to be there two cycles later, as `result`.
            The first word of a tile may be taken in the cycle after its last one came.
    """

    latency = 2
    """Cycles from `take` to the word."""

    def __init__(self, size: int, element_bits: int) -> None:
        self._size, self._bits = size, element_bits
        width = size * element_bits
        super().__init__({"put": In(1), "word": In(width), "take": In(1), "result": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, bits = self._size, self._bits
        place_bits = ceil_log2(size)
        # the place of a word in its tile, and above it which of both tiles
        come, taken = Signal(place_bits + 1), Signal(place_bits + 1)
        for moved, place in ((self.put, come), (self.take, taken)):
            with m.If(moved):
                m.d.sync += place.eq(place + 1)
                if size & (size - 1):
                    with m.If(place[:place_bits] == size - 1):
                        m.d.sync += place.eq(Cat(Const(0, place_bits), ~place[place_bits]))

        def less(k: int, place: Value) -> Value:
            """k less the place of a word in its tile, modulo `size`."""
            word = place[:place_bits]
            return (k - word + (Mux(word > k, size, 0) if size & (size - 1) else 0))[:place_bits]

        turn = Signal(place_bits)
        """Place in its tile of the word that leaves, in the cycle after it was taken."""
        m.d.sync += turn.eq(taken)
        elements = [self.word.word_select(k, bits) for k in range(size)]
        # memory k takes element k - x
        stored = _rotated(elements, less(0, come))
        read = []
        for k in range(size):
            m.submodules[f"memory_{k}"] = memory = Memory(
                shape=bits, depth=(1 << place_bits) + size, init=[], attrs={NO_COLLISION: 1}
            )
            write_port, read_port = memory.write_port(), memory.read_port()
            m.d.comb += [
                write_port.en.eq(self.put),
                write_port.addr.eq(come),
                write_port.data.eq(stored[k]),
                read_port.en.eq(1),
                # element `taken` of word k - `taken`
                read_port.addr.eq(Cat(less(k, taken), taken[place_bits])),
            ]
            read.append(read_port.data)
        m.d.sync += self.result.eq(Cat(_rotated(read, turn)))
        return m
