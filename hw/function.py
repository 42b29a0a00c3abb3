"""A lane of bf16's VECTOR engine that looks up the straight line on which a function of a number lies."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from npukit.hw.bf16 import CANONICAL_NAN, INFINITE, flushed
from npukit.hw.float32 import exponent_field
from npukit.hw.pipeline import Bits, Pipeline, Staged
from npukit.isa.descriptors import TABLE_ENTRIES, Indexing

__all__ = ["FunctionLane"]

_INDEX_BITS = 8
_BIAS = 127
_NOTHING_LEFT = 255
"""A power of two by which any number is divided to 0."""
_MANTISSA = 23
_PLACES = 10
"""Bits of a number, from its highest, that decide about its segment; of what is below them, whether there is any."""


class FunctionLane(wiring.Component):
    """FUNCTION of an element: what is multiplied with what, and what is added; see `function` in `sim/bfloat16.py`.

    One element a cycle. All inputs belong to one element and come together.

    Members:
        write: in, `slope` and `intercept` are written into the table, at `place`.
        number: in, binary32. indexing, step, offset: in, as the descriptor's.
        factors, addend: out, binary32, `latency` cycles later: both factors of the product, and what is added to it.
    """

    latency = 4

    write: In(1)
    place: In(_INDEX_BITS)
    slope: In(32)
    intercept: In(32)
    number: In(32)
    indexing: In(2)
    step: In(signed(5))
    offset: In(signed(10))
    factors: Out(64)
    addend: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = Pipeline(m)
        number = pipe.value(0, flushed(self.number), "number")
        indexing = pipe.value(0, self.indexing, "indexing")
        index = self._index(pipe, number, indexing)
        m.submodules.table = table = Memory(shape=64, depth=TABLE_ENTRIES, init=[])
        write, read = table.write_port(), table.read_port()
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.place),
            write.data.eq(Cat(self.slope, self.intercept)),
            read.en.eq(1),
            read.addr.eq(index.at(2)),
        ]
        power, sign = self._power(pipe, number, indexing)
        line = pipe.value(3, read.data, "line").at(3)
        slope = pipe.register(3, _scaled(line[:32], power.at(3)), "slope")
        intercept = _scaled(line[32:], power.at(3))
        addend = pipe.register(3, Cat(intercept[:31], intercept[31] ^ sign.at(3)), "addend")
        place = pipe.register(0, self._place(number.at(0), indexing.at(0)), "operand").at(3)
        # where a function is flat, it is so at infinity
        flat = (exponent_field(place) == INFINITE) & ~place[:_MANTISSA].any() & (exponent_field(line[:32]) == 0)
        place = pipe.register(3, Mux(flat, 0, place), "place")
        m.d.comb += [
            self.factors.eq(Cat(place.at(self.latency), slope.at(self.latency))),
            self.addend.eq(addend.at(self.latency)),
        ]
        return m

    def _index(self, pipe: Pipeline, number: Staged, indexing: Staged) -> Staged:
        """The segment, in cycle 2."""
        value = number.at(0)
        step = pipe.value(0, self.step, "step").at(0)
        # of the highest bit, from that of a segment's width
        distance = pipe.register(0, exponent_field(value) - (_BIAS + step), "distance").at(1)
        value = number.at(1)
        significand = Cat(value[:_MANTISSA], exponent_field(value) != 0)
        high, low = significand[_MANTISSA + 1 - _PLACES :], significand[: _MANTISSA + 1 - _PLACES]
        moved = Signal(2 * _PLACES, name="moved_number")
        pipe.module.d.comb += moved.eq(Cat(Const(0, _PLACES), high) >> (_PLACES - 1 - distance)[:4])
        far, small = distance >= _PLACES, distance < 0
        whole = Mux(far, (1 << _PLACES) - 1, Mux(small, 0, moved[_PLACES:]))
        lost = Mux(far, 0, low.any() | Mux(small, high.any(), moved[:_PLACES].any()))
        floor = Mux(value[-1], -(whole + lost), whole)
        place = Signal(signed(13), name="place_of_segment")
        pipe.module.d.comb += place.eq(floor + pipe.value(0, self.offset, "offset").at(1))
        by_value = Mux(place < 0, 0, Mux(place >= TABLE_ENTRIES, TABLE_ENTRIES - 1, place))[:_INDEX_BITS]
        by_significand = value[_MANTISSA - _INDEX_BITS : _MANTISSA]
        # the bias is odd
        by_exponent = Cat(value[_MANTISSA + 1 - _INDEX_BITS : _MANTISSA], ~value[_MANTISSA])
        mode = indexing.at(1)
        index = Mux(
            mode == Indexing.RECIPROCAL,
            by_significand,
            Mux(mode == Indexing.RECIPROCAL_ROOT, by_exponent, by_value),
        )
        return pipe.register(1, index, "index")

    def _place(self, number: Bits, indexing: Bits) -> Bits:
        """What is multiplied with the slope."""
        exponent, mantissa, sign = exponent_field(number), number[:_MANTISSA], number[-1]
        invalid = (exponent == INFINITE) & mantissa.any()
        root = indexing == Indexing.RECIPROCAL_ROOT
        # 1 or 2 times the significand
        odd = root & ~exponent[0]
        scaled = Cat(mantissa, Mux(odd, _BIAS + 1, _BIAS)[:8], sign & ~root)
        reciprocal = (indexing == Indexing.RECIPROCAL) | root
        return Mux(invalid | (root & sign), CANONICAL_NAN, Mux(reciprocal, scaled, number))

    def _power(self, pipe: Pipeline, number: Staged, indexing: Staged) -> tuple[Staged, Staged]:
        """By how many powers of two slope and intercept are less, and whether the intercept's sign turns round; in
        cycle 1."""
        value, mode = number.at(0), indexing.at(0)
        exponent = exponent_field(value) - _BIAS
        reciprocal = mode == Indexing.RECIPROCAL
        root = mode == Indexing.RECIPROCAL_ROOT
        power = Mux(reciprocal, exponent, Mux(root, exponent >> 1, 0))
        infinite = exponent_field(value) == INFINITE
        power = Mux(infinite & (reciprocal | root), _NOTHING_LEFT, power)
        return pipe.register(0, power.as_signed(), "power"), pipe.register(0, reciprocal & value[-1], "turned")


def _scaled(number: Bits, power: Bits) -> Bits:
    """A number divided by a power of two: 0 below the least normal one, infinite beyond the largest."""
    exponent, sign = exponent_field(number), number[-1]
    field = exponent - power
    # one of 0 is that of a 0, whatever the mantissa
    result = Mux(field < 0, 0, Cat(number[:_MANTISSA], field[:8], sign))
    result = Mux(field >= INFINITE, Cat(Const(0, _MANTISSA), Const(INFINITE, 8), sign), result)
    # 0, infinities and NaN stay
    return Mux(exponent == 0, 0, Mux(exponent == INFINITE, number, result))
