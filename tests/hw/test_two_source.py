"""The lane of ADD and MULTIPLY against `sim/numerics.py`, bit for bit."""

import functools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from amaranth.hdl import Fragment, Shape
from npukit.hw.two_source import TwoSourceLane, TwoSourceOperation
from npukit.isa.config import PRESETS
from npukit.isa.descriptors import descriptor_lanes
from npukit.isa.instructions import Operation
from npukit.sim import numerics as typed_numerics
from numpy.typing import NDArray

numerics: Any = typed_numerics  # each element has a descriptor of its own here

COUNT = 1_000_000
INT32_EDGES = np.array(
    [0, 1, -1, 2, 3, 2**29, 2**30, 2**30 + 1, -(2**30), 2**31 - 1, 2**31 - 2, -(2**31), -(2**31) + 1],
    np.int64,
)
FLOATS = ("ra", "rb", "offset")
Inputs = dict[str, NDArray]
Generator = np.random.Generator


def floats(rng: Generator, low: int, high: int, count: int) -> NDArray[np.float32]:
    """Either sign, from 2**low up to 2**high; fractions often end in zeros or ones."""
    keep = np.uint32(0x7FFFFF) << rng.integers(0, 24, count).astype(np.uint32)
    fraction = rng.integers(0, 2**23, count).astype(np.uint32) & keep
    fraction ^= np.where(rng.random(count) < 0.25, ~keep, 0).astype(np.uint32)
    exponent = rng.integers(127 + low, 127 + high, count).astype(np.uint32)
    sign = rng.integers(0, 2, count).astype(np.uint32)
    return (sign << 31 | exponent << 23 | fraction & 0x7FFFFF).view(np.float32)


def powers(rng: Generator, low: int, high: int, count: int) -> NDArray[np.float32]:
    """Powers of two of either sign."""
    return np.ldexp(rng.choice([-1, 1], count), rng.integers(low, high + 1, count)).astype(np.float32)


def nudged(rng: Generator, values: NDArray[np.float64], by: int) -> NDArray[np.float32]:
    """The nearest fp32 and its neighbours; never 0, and never so small or large that the lane excludes it."""
    bits = values.astype(np.float32).view(np.int32) + rng.integers(-by, by + 1, len(values)).astype(np.int32)
    result = bits.view(np.float32)
    outside = ~((np.abs(result) >= 2.0**-64) & (np.abs(result) <= 2.0**64))
    return np.where(outside, np.float32(0.5), result)


def elements(rng: Generator, count: int) -> Inputs:
    """Sources, and clamps: every second one does nothing, a few have `low` above `high`."""
    a, b = rng.integers(-128, 256, (2, count))
    a[rng.random(count) < 0.02] = 0
    b[rng.random(count) < 0.02] = 0
    low, high = rng.integers(-512, 512, (2, count))
    crossed = rng.random(count) < 0.05
    low, high = np.where((low > high) ^ crossed, [high, low], [low, high])
    whole = rng.random(count) < 0.5
    return {"a": a, "b": b, "low": np.where(whole, -512, low), "high": np.where(whole, 511, high)}


def wide(rng: Generator, count: int) -> NDArray[np.int64]:
    """-512 to 511, every magnitude alike."""
    return rng.integers(-512, 512, count) >> rng.integers(0, 10, count)


# ---- ADD


def add(drawn: Inputs, ra: NDArray, rb: NDArray, offset: NDArray) -> Inputs:
    ratios = {"ra": ra, "rb": rb, "offset": offset}
    return {
        "operation": np.full(len(ra), TwoSourceOperation.ADD.value),
        **drawn,
        **{name: np.asarray(value, np.float32).view(np.uint32) for name, value in ratios.items()},
    }


def add_any(rng: Generator, count: int) -> Inputs:
    """Ratios and offset from 2**-64 to 2**64."""
    values = (floats(rng, -64, 64, count) for _ in FLOATS)
    return add(elements(rng, count), *values)


def add_bits(rng: Generator, count: int) -> Inputs:
    """Any bits as ratios and offset: exponent fields 0 and 255 are frequent, magnitudes often alike."""
    field = rng.integers(0, 256, count)
    values = []
    for _ in FLOATS:
        near = np.clip(field + rng.integers(-40, 40, count), 0, 255)
        exponent = np.where(rng.random(count) < 0.2, rng.choice([0, 255], count), near).astype(np.uint32)
        bits = rng.integers(0, 2**32, count).astype(np.uint32) & 0x807FFFFF | exponent << 23
        values.append(bits.view(np.float32))
    return add(elements(rng, count), *values)


def add_usual(rng: Generator, count: int) -> Inputs:
    """As a compiler makes them: ratios around 1, the offset from zero points."""
    drawn = elements(rng, count)
    ra, rb = floats(rng, -7, 3, count), floats(rng, -7, 3, count)
    zero_points = rng.integers(-128, 256, (3, count))
    offset = zero_points[2] - (ra.astype(np.float64) * zero_points[0] + rb * zero_points[1])
    return add(drawn, ra, rb, offset.astype(np.float32))


def add_near_ties(rng: Generator, count: int) -> Inputs:
    """Sums around k + 1/2, closer to it than fp32 can tell and a little farther."""
    drawn = elements(rng, count)
    ra, rb = floats(rng, -20, 3, count), floats(rng, -20, 3, count)
    target = (rng.integers(-512, 512, count) >> rng.integers(0, 10, count)) + 0.5
    offset = target - (drawn["a"] * ra.astype(np.float64) + drawn["b"] * rb.astype(np.float64))
    return add(drawn, ra, rb, nudged(rng, offset, 3))


def add_exact_ties(rng: Generator, count: int) -> Inputs:
    """Powers of two: many sums are k + 1/2 exactly, many are 0."""
    drawn = elements(rng, count)
    return add(drawn, powers(rng, -4, 2, count), powers(rng, -4, 2, count), powers(rng, -4, 8, count))


def add_inner_cancels(rng: Generator, count: int) -> Inputs:
    """b * rb and the offset cancel but for a few of the last bits, at every magnitude."""
    drawn = elements(rng, count)
    rb = floats(rng, -50, 55, count)
    offset = nudged(rng, -drawn["b"] * rb.astype(np.float64), 2)
    # what is left is far smaller: let the other source stand beside it, or the result show it
    exponent = np.clip(np.frexp(rb)[1] - rng.integers(0, 30, count), -60, 60)
    near = np.ldexp(floats(rng, 0, 1, count), exponent)
    return add(drawn, np.where(rng.random(count) < 0.5, near, floats(rng, -8, 3, count)), rb, offset)


def add_outer_cancels(rng: Generator, count: int) -> Inputs:
    """All three cancel but for a few of the last bits, at every magnitude."""
    drawn = elements(rng, count)
    exponent = rng.integers(-30, 50, count)
    ra = np.ldexp(floats(rng, 0, 1, count), exponent)
    rb = np.ldexp(floats(rng, 0, 1, count), exponent - rng.integers(-3, 30, count))
    left = drawn["a"] * ra.astype(np.float64)
    offset = nudged(rng, -(left + drawn["b"] * rb.astype(np.float64)), 2)
    return add(drawn, ra, rb, offset)


def add_far_apart(rng: Generator, count: int) -> Inputs:
    """Distances at which one operand just reaches the other's last bits, in both sums."""
    drawn = elements(rng, count)
    rb = floats(rng, -20, 20, count)
    exponent = np.frexp(rb)[1]
    offset = np.ldexp(floats(rng, 0, 1, count), exponent + rng.integers(-38, 44, count))
    ra = np.ldexp(floats(rng, 0, 1, count), exponent + rng.integers(-44, 44, count))
    few = rng.random(count) < 0.3
    offset = np.where(few, powers(rng, -20, 30, count), offset)
    return add(drawn, ra, rb, offset)


def add_tiny_in_inner(rng: Generator, count: int) -> Inputs:
    """b * rb often halfway between two fp32, a tiny offset to decide, a * ra to bare the last bits."""
    drawn = elements(rng, count)
    drawn["a"] = np.where(drawn["a"] == 0, 1, drawn["a"])
    b = np.where(drawn["b"] == 0, 3, drawn["b"])
    significand = (rng.integers(2**23, 2**24, count) >> rng.integers(0, 8, count)) * rng.choice([-1, 1], count)
    rb = np.ldexp(significand.astype(np.float32), rng.integers(2, 5, count)).astype(np.float32)
    # or next to a power of two, below which the last place is half as large
    power = rng.random(count) < 0.2
    drawn["b"] = b = np.where(power, rng.choice([-1, 1], count), b)
    rb = np.where(power, powers(rng, 24, 30, count), rb)
    ra = nudged(rng, -(b * rb.astype(np.float64)) / drawn["a"], 2)
    return add(drawn, ra, rb, floats(rng, -50, 3, count))


def add_tiny_in_outer(rng: Generator, count: int) -> Inputs:
    """a * ra often halfway between k + 1/2 and the next fp32, and a tiny sum that decides."""
    drawn = elements(rng, count)
    drawn["b"] = rng.integers(-1, 2, count)
    exponent = rng.integers(-1, 9, count)
    whole = (1 << np.maximum(exponent, 0)) + (rng.integers(0, 512, count) & ((1 << np.maximum(exponent, 0)) - 1))
    whole *= exponent >= 0
    # k + 1/2 and half a unit in the last place, in such halves; as a product if it has a factor
    target = ((2 * whole + 1) << (23 - exponent)) + rng.choice([-1, 1], count)
    factor = rng.choice([3, 5, 7, 9, 11, 13], count)
    divides = target % factor == 0
    drawn["a"] = np.where(divides, factor, drawn["a"]) * rng.choice([-1, 1], count)
    drawn["a"] = np.clip(drawn["a"], -128, 255)
    ratio = np.where(divides, target // factor, rng.integers(2**23, 2**24, count))
    ra = np.ldexp(ratio.astype(np.float32), exponent - 24).astype(np.float32)
    return add(drawn, ra, floats(rng, -64, -20, count), floats(rng, -64, -20, count))


def add_zeros(rng: Generator, count: int) -> Inputs:
    drawn = elements(rng, count)
    values = [floats(rng, -8, 4, count) for _ in FLOATS]
    for value in values:
        value[rng.random(count) < 0.5] = 0
    return add(drawn, *values)


def add_every_pair(rng: Generator, count: int) -> Inputs:
    """All sources with a few descriptors."""
    a, b, choice = (axis.ravel() for axis in np.meshgrid(*[np.arange(-128, 256)] * 2, np.arange(6), indexing="ij"))
    ra = np.array([0.5, 0.25, 1, 0.7, 0.1, 2.0**40], np.float32)
    rb = np.array([0.5, 0.75, -1, 0.3, 0.9, -(2.0**40)], np.float32)
    offset = np.array([0, 0.5, 0.5, -13.25, 77.7, 0.5], np.float32)
    drawn = {"a": a, "b": b, "low": np.full(a.shape, -512), "high": np.full(a.shape, 511)}
    return add(drawn, ra[choice], rb[choice], offset[choice])


# ---- MULTIPLY


def multiply(drawn: Inputs, zero_points: list[NDArray], multiplier: NDArray[np.float32]) -> Inputs:
    names = ("a_zero_point", "b_zero_point", "out_zero_point")
    return {
        "operation": np.full(len(multiplier), TwoSourceOperation.MULTIPLY.value),
        **drawn,
        **dict(zip(names, zero_points, strict=True)),
        "multiplier": multiplier.astype(np.float32).view(np.uint32),
    }


def product(drawn: Inputs, zero_points: list[NDArray]) -> NDArray[np.int64]:
    return (drawn["a"] - zero_points[0]) * (drawn["b"] - zero_points[1])


def multiply_any(rng: Generator, count: int) -> Inputs:
    return multiply(elements(rng, count), [wide(rng, count) for _ in range(3)], floats(rng, -64, 64, count))


def multiply_bits(rng: Generator, count: int) -> Inputs:
    """Any bits as a multiplier."""
    bits = rng.integers(0, 2**32, count).astype(np.uint32)
    bits |= np.where(rng.random(count) < 0.1, 0x7F800000, 0).astype(np.uint32)
    return multiply(elements(rng, count), [wide(rng, count) for _ in range(3)], bits.view(np.float32))


def multiply_usual(rng: Generator, count: int) -> Inputs:
    return multiply(elements(rng, count), [wide(rng, count) for _ in range(3)], floats(rng, -16, 1, count))


def multiply_near_ties(rng: Generator, count: int) -> Inputs:
    """Results around k + 1/2: what is rounded first decides."""
    drawn, zero_points = elements(rng, count), [wide(rng, count) for _ in range(3)]
    factor = product(drawn, zero_points)
    target = (rng.integers(-512, 512, count) >> rng.integers(0, 10, count)) + 0.5 - zero_points[2]
    with np.errstate(divide="ignore"):
        return multiply(drawn, zero_points, nudged(rng, target / factor, 2))


def multiply_exact_ties(rng: Generator, count: int) -> Inputs:
    return multiply(elements(rng, count), [wide(rng, count) for _ in range(3)], powers(rng, -20, 2, count))


# ---- the fixed operations


def add_fixed(drawn: Inputs, multipliers: list, shifts: list, offsets: list, left_shift: NDArray) -> Inputs:
    fields = {"multiplier": multipliers, "shift": shifts, "offset": offsets}
    return {
        "operation": np.full(len(left_shift), TwoSourceOperation.ADD_FIXED.value),
        **drawn,
        **{
            f"{side}_{name}": values[index]
            for name, values in fields.items()
            for index, side in enumerate(("a", "b", "out"))
        },
        "left_shift": left_shift,
    }


def multiply_fixed(drawn: Inputs, zero_points: list, multiplier: NDArray, shift: NDArray) -> Inputs:
    inputs = multiply(drawn, zero_points, np.zeros(len(shift), np.float32))
    operation = np.full(len(shift), TwoSourceOperation.MULTIPLY_FIXED.value)
    return {**inputs, "operation": operation, "multiplier": multiplier & 0xFFFFFFFF, "shift": shift}


def three(draw: Any) -> list[NDArray]:
    return [draw() for _ in range(3)]


def add_fixed_any(rng: Generator, count: int) -> Inputs:
    """Any multiplier, shift and left shift: most sums wrap."""
    return add_fixed(
        elements(rng, count),
        three(lambda: rng.integers(-(2**31), 2**31, count)),
        three(lambda: rng.integers(-128, 128, count)),
        three(lambda: wide(rng, count)),
        rng.integers(0, 64, count),
    )


def add_fixed_usual(rng: Generator, count: int) -> Inputs:
    """As TensorFlow Lite makes them: 20 to the left, multipliers from 2**30 on."""
    shifts = [rng.integers(-8, 1, count), rng.integers(-8, 1, count), rng.integers(-23, -12, count)]
    return add_fixed(
        elements(rng, count),
        three(lambda: rng.integers(2**30, 2**31, count)),
        shifts,
        three(lambda: rng.integers(-255, 256, count)),
        np.full(count, 20),
    )


def add_fixed_edges(rng: Generator, count: int) -> Inputs:
    """Extreme multipliers and shifts; powers of two meet ties in each rounding; -2**31 squared saturates."""
    return add_fixed(
        elements(rng, count),
        three(lambda: rng.choice(INT32_EDGES, count)),
        three(lambda: rng.choice([-128, -33, -32, -31, -30, -20, -10, -2, -1, 0, 1, 2, 10, 30, 31, 32, 127], count)),
        three(lambda: rng.choice([-512, -255, -128, -1, 0, 1, 128, 255, 511], count)),
        rng.choice([0, 1, 19, 20, 21, 22, 23, 30, 31, 32, 63], count),
    )


def add_fixed_ties(rng: Generator, count: int) -> Inputs:
    shifts = [rng.integers(-4, 1, count), rng.integers(-4, 1, count), rng.integers(-7, 3, count)]
    return add_fixed(
        elements(rng, count),
        three(lambda: rng.choice([2**30, 2**31 - 1, -(2**30), 2**29 + 1], count)),
        shifts,
        three(lambda: wide(rng, count)),
        rng.integers(0, 6, count),
    )


def multiply_fixed_any(rng: Generator, count: int) -> Inputs:
    zero_points = three(lambda: wide(rng, count))
    multiplier, shift = rng.integers(-(2**31), 2**31, count), rng.integers(-128, 128, count)
    return multiply_fixed(elements(rng, count), zero_points, multiplier, shift)


def multiply_fixed_usual(rng: Generator, count: int) -> Inputs:
    zero_points = three(lambda: wide(rng, count))
    multiplier, shift = rng.integers(2**30, 2**31, count), rng.integers(-16, -2, count)
    return multiply_fixed(elements(rng, count), zero_points, multiplier, shift)


def multiply_fixed_edges(rng: Generator, count: int) -> Inputs:
    zero_points = three(lambda: rng.choice([-512, -128, -1, 0, 1, 128, 255, 511], count))
    return multiply_fixed(
        elements(rng, count), zero_points, rng.choice(INT32_EDGES, count), rng.integers(-128, 128, count)
    )


CASES = (
    add_any, add_bits, add_usual, add_near_ties, add_exact_ties, add_inner_cancels, add_outer_cancels, add_far_apart,
    add_tiny_in_inner, add_tiny_in_outer, add_zeros, add_every_pair,
    multiply_any, multiply_bits, multiply_usual, multiply_near_ties, multiply_exact_ties,
    add_fixed_any, add_fixed_usual, add_fixed_edges, add_fixed_ties,
    multiply_fixed_any, multiply_fixed_usual, multiply_fixed_edges,
)  # fmt: skip


def reference(given: Inputs) -> NDArray[np.int64]:
    """What `sim/functional.py` computes, before 128 is subtracted."""
    a, b, clamp = given["a"], given["b"], (given["low"], given["high"])
    operation = TwoSourceOperation(int(given["operation"][0]))
    zero_points = [given.get(f"{name}_zero_point", np.int64(0)) for name in ("a", "b", "out")]
    if operation is TwoSourceOperation.ADD:
        return numerics.add(a, b, *(given[name].view(np.float32) for name in FLOATS), *clamp)
    if operation is TwoSourceOperation.MULTIPLY:
        multiplier = given["multiplier"].view(np.float32)
        return numerics.multiply(a, b, *zero_points[:2], multiplier, zero_points[2].astype(np.float32), *clamp)
    if operation is TwoSourceOperation.ADD_FIXED:
        fields = [
            tuple(given[f"{side}_{name}"] for side in ("a", "b", "out")) for name in ("multiplier", "shift", "offset")
        ]
        return numerics.add_fixed(a, b, *fields, given["left_shift"], *clamp)
    multiplier = numerics.wrap_int32(given["multiplier"])
    scaled = numerics.multiply_by_quantized_multiplier(
        product(given, zero_points).astype(np.int32), multiplier, given["shift"]
    )
    return np.clip(scaled.astype(np.int64) + zero_points[2], *clamp)


def check(result: NDArray, inputs: Inputs, expected: NDArray) -> None:
    wrong = np.flatnonzero(result != expected)
    if len(wrong):
        first = {name: int(values[wrong[0]]) for name, values in inputs.items()}
        pytest.fail(
            f"{len(wrong)} of {len(result)} differ, the first with {first}: "
            f"{result[wrong[0]]} instead of {expected[wrong[0]]}"
        )


@pytest.fixture(scope="module")
def lane(streaming: ModuleType) -> Any:
    if missing := streaming.missing_tool():
        pytest.skip(missing)
    return streaming.Stream(TwoSourceLane(), TwoSourceLane.latency)


@pytest.mark.parametrize("case", CASES)
def test_equals_numerics(lane: Any, case: Any) -> None:
    inputs = case(np.random.default_rng(1), COUNT)
    expected = reference(inputs)
    assert len(np.unique(expected)) > 500  # the case means something
    check(lane.run(**inputs)["result"], inputs, expected)


def test_without_fixed_point(streaming: ModuleType) -> None:
    """A lane that has ADD and MULTIPLY alone, as boards have it."""
    if missing := streaming.missing_tool():
        pytest.skip(missing)
    lane = streaming.Stream(TwoSourceLane(fixed=False), TwoSourceLane.latency)
    float_operations = {TwoSourceOperation.ADD.value, TwoSourceOperation.MULTIPLY.value}
    drawn = [case(np.random.default_rng(4), 4000) for case in CASES]
    cases = [inputs for inputs in drawn if set(np.unique(inputs["operation"])) <= float_operations]
    assert len(cases) >= 2
    for inputs in cases:
        check(lane.run(**inputs)["result"], inputs, reference(inputs))


@functools.cache
def shapes() -> dict[str, Shape]:
    """Of the lane's members."""
    component = TwoSourceLane()
    Fragment.get(component, None)  # Amaranth warns of a component that nothing uses
    return {name: Shape.cast(member.shape) for name, member in component.signature.members.items()}


def mixed(rng: Generator, count: int) -> tuple[Inputs, NDArray]:
    """Elements of all cases one after the other, in random order; fields of other operations hold noise."""
    drawn = [case(rng, count // len(CASES)) for case in CASES]
    sizes = [len(inputs["a"]) for inputs in drawn]
    order = rng.permutation(sum(sizes))[:count]
    columns: Inputs = {}
    for name, shape in shapes().items():
        if name == "result":
            continue
        low = -(1 << (shape.width - 1)) if shape.signed else 0
        noise = [rng.integers(low, low + (1 << shape.width), size) for size in sizes]
        parts = [inputs.get(name, other) for inputs, other in zip(drawn, noise, strict=True)]
        columns[name] = np.concatenate([part.astype(np.int64) for part in parts])[order]
    return columns, np.concatenate([reference(inputs) for inputs in drawn])[order]


def test_operations_alternate(lane: Any) -> None:
    inputs, expected = mixed(np.random.default_rng(2), COUNT)
    check(lane.run(**inputs)["result"], inputs, expected)


def test_in_amaranth_simulator(streaming: ModuleType) -> None:
    inputs, expected = mixed(np.random.default_rng(3), 80)
    result = streaming.simulate(TwoSourceLane(), TwoSourceLane.latency, **inputs)["result"]
    check(result, inputs, expected)


def test_members_are_the_descriptor_fields() -> None:
    flags = {"a_unsigned", "b_unsigned", "out_unsigned"}  # the engine adds and subtracts 128
    for operation in TwoSourceOperation:
        for field in descriptor_lanes(PRESETS["int8-8x8"], Operation[operation.name]):
            if field.name in flags:
                continue
            shape = shapes()[field.name]
            assert shape.width >= field.width, field.name
            # whole lanes that serve as float and as integer are plain bits
            assert shape.signed == (field.signed and not field.is_float and field.name != "multiplier"), field.name
