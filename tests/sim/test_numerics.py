"""The int8 arithmetic against exact arithmetic in whole numbers and fractions, and against ONNX Runtime."""

import platform
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.sim import numerics

INT32 = st.integers(-(2**31), 2**31 - 1)
EDGES = np.array(
    [0, 1, -1, 2, 3, -3, 5, 127, 128, -128, -129, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**25 + 2,
     2**30, 2**31 - 1, 2**31 - 65, 2**31 - 64, -(2**31), -(2**31) + 1],
    np.int32,
)  # fmt: skip
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def same_float(one: np.floating, two: float) -> bool:
    return np.float32(one).tobytes() == np.float32(two).tobytes()


# ---- wrapping and saturation


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_wrap(value: int, oracles: ModuleType) -> None:
    assert int(numerics.wrap_int32(np.array([value], np.int64))[0]) == oracles.to_int32(value)


def test_saturate() -> None:
    values = np.array([-(2.0**40), -129, -128, -5, 0, 6, 127, 128, 2.0**40])
    assert numerics.saturate(values, -128, 127).tolist() == [-128, -128, -128, -5, 0, 6, 127, 127, 127]
    assert numerics.saturate(values, -5, 6).tolist() == [-5, -5, -5, -5, 0, 6, 6, 6, 6]


# ---- requantisation


def check_requantize(oracles: ModuleType, accumulators: np.ndarray, bias: int, multiplier: float, zero: int) -> None:
    scale = np.float32(multiplier)
    result = numerics.requantize(accumulators, np.int32(bias), scale, zero, -128, 127)
    for accumulator, got in zip(accumulators.tolist(), result.tolist(), strict=True):
        case = (accumulator, bias, float(scale), zero, -128, 127)
        assert got == oracles.requantize(*case), case
        assert got == oracles.requantize_integer(*case), case


@given(
    accumulator=INT32,
    bias=INT32,
    multiplier=st.floats(2.0**-40, 2.0**4, width=32),
    zero=st.integers(-128, 127),
)
def test_requantize(accumulator: int, bias: int, multiplier: float, zero: int, oracles: ModuleType) -> None:
    check_requantize(oracles, np.array([accumulator], np.int32), bias, multiplier, zero)


@pytest.mark.parametrize("multiplier", [0.5, 0.25, 2**-23, 2**-24, 1.0, 1 / 3, 3 * 2.0**-26, 2.0**-140, 1.0e-45, 0.0])
def test_requantize_edges_and_ties(multiplier: float, oracles: ModuleType) -> None:
    for bias, zero in ((0, 0), (1, 3), (-1, -128), (2**31 - 1, 127), (-(2**31), 5)):
        check_requantize(oracles, EDGES, bias, multiplier, zero)
        check_requantize(oracles, np.arange(-600, 600, 7, dtype=np.int32), bias, multiplier, zero)


def test_requantize_random(oracles: ModuleType) -> None:
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    for _ in range(40):
        # results of a useful size, near and far from the clamps
        multiplier = float(np.exp(random.uniform(-18, 0)))
        accumulators = (random.normal(0, 80, 50) / multiplier).clip(-(2**31), 2**31 - 1).astype(np.int32)
        check_requantize(oracles, accumulators, int(random.integers(-5000, 5000)), multiplier, -7)


@pytest.mark.parametrize(
    ("accumulator", "multiplier", "result"),
    [
        (5, np.float32(0.1), 0),  # 0.50000000745, in fp32 a tie
        (25, np.float32(0.1), 2),
        (2**24 + 3, np.float32(3 * 2.0**-25 * (1 - 2.0**-22)), 2),  # the sum becomes 2**24 + 4 first
    ],
)
def test_each_rounding_of_requantisation_counts(accumulator: int, multiplier: np.float32, result: int) -> None:
    values, zero = np.array([accumulator, -accumulator], np.int32), np.int32(0)
    assert numerics.requantize(values, zero, multiplier, 0, -128, 127).tolist() == [result, -result]


def test_ties_go_to_even_after_a_wrapping_bias() -> None:
    half = np.float32(0.5)
    values = np.array([1, 3, 5, -1, -3], np.int32)
    zero = np.zeros((), np.int32)[()]
    assert numerics.requantize(values, zero, half, 0, -128, 127).tolist() == [0, 2, 2, 0, -2]
    top = np.array([2**31 - 1], np.int32)
    assert numerics.requantize(top, np.int32(1), np.float32(2**-24), 0, -128, 127).tolist() == [-128]


def test_channels_have_their_own_parameters() -> None:
    accumulators = np.array([[100, 100, 100]], np.int32)
    bias = np.array([0, 10, -100], np.int32)
    multiplier = np.array([0.5, 0.1, 3], np.float32)
    assert numerics.requantize(accumulators, bias, multiplier, 1, -128, 127).tolist() == [[51, 12, 1]]
    result = numerics.requantize_fixed(
        accumulators, bias, np.array([2**30, 2**30, 2**30]), np.array([0, -1, 1]), 1, -128, 30
    )
    assert result.tolist() == [[30, 29, 1]]


# ---- fixed-point scaling


def check_fixed(oracles: ModuleType, values: np.ndarray, multiplier: int, shift: int) -> None:
    result = numerics.multiply_by_quantized_multiplier(values, multiplier, shift)
    for value, got in zip(values.tolist(), result.tolist(), strict=True):
        expected = oracles.multiply_by_quantized_multiplier(value, multiplier, shift)
        assert got == oracles.to_int32(expected), (value, multiplier, shift)


@given(values=st.lists(INT32, min_size=1, max_size=8), multiplier=INT32, shift=st.integers(-31, 30))
def test_fixed_scaling(values: list[int], multiplier: int, shift: int, oracles: ModuleType) -> None:
    check_fixed(oracles, np.array(values, np.int32), multiplier, shift)


@pytest.mark.parametrize("shift", range(-31, 31))
def test_fixed_scaling_of_edges(shift: int, oracles: ModuleType) -> None:
    for multiplier in (0, 1, -1, 1 << 30, (1 << 30) + 1, 3 << 29, 2**31 - 1, -(2**31)):
        check_fixed(oracles, EDGES, multiplier, shift)


def test_the_three_roundings_of_fixed_scaling() -> None:
    def scale(value: int, multiplier: int, shift: int) -> int:
        return int(numerics.multiply_by_quantized_multiplier(np.array([value], np.int32), multiplier, shift)[0])

    # high product, half towards +infinity: 1 * 0.5 and -1 * 0.5
    assert (scale(1, 1 << 30, 0), scale(-1, 1 << 30, 0)) == (1, 0)
    # right shift, half away from zero: 6 * 0.5 = 3, / 2; -6 alike
    assert (scale(6, 1 << 30, -1), scale(-6, 1 << 30, -1)) == (2, -2)
    # the one product that saturates
    assert scale(-(2**31), -(2**31), 0) == 2**31 - 1


@given(
    accumulator=INT32,
    bias=INT32,
    multiplier=st.integers(1 << 30, 2**31 - 1),
    shift=st.integers(-31, 5) | st.integers(-(2**31), 2**31 - 1),
    zero=st.integers(-128, 127),
)
def test_requantize_fixed(
    accumulator: int, bias: int, multiplier: int, shift: int, zero: int, oracles: ModuleType
) -> None:
    result = numerics.requantize_fixed(
        np.array([accumulator], np.int32), np.array(bias, np.int32), np.array(multiplier, np.int32),
        np.array(shift, np.int32), zero, -120, 100,
    )  # fmt: skip
    total = oracles.to_int32(accumulator + bias)
    scaled = oracles.multiply_by_quantized_multiplier(total, multiplier, shift)
    assert int(result[0]) == max(-120, min(100, scaled + zero))


# ---- fused multiply-add


def check_fma(oracles: ModuleType, a: np.ndarray, b: np.ndarray, c: np.ndarray, note: object = "") -> None:
    result = numerics.fused_multiply_add(a, b, c)
    assert result.dtype == np.float32
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), result, strict=True):
        expected = oracles.fused_multiply_add(x, y, z)
        if expected == 0:  # the oracle has no sign of zero
            assert got == 0, (x, y, z, note)
        else:
            assert same_float(got, expected), (x.hex(), y.hex(), z.hex(), note)


@given(a=FINITE, b=FINITE, c=FINITE)
def test_fma(a: float, b: float, c: float, oracles: ModuleType) -> None:
    check_fma(oracles, *(np.array([value], np.float32) for value in (a, b, c)))


def _finite(bits: np.ndarray) -> np.ndarray:
    values = bits.astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), values, np.float32(1))


def test_fma_of_random_bits(oracles: ModuleType) -> None:
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    a, b, c = (_finite(random.integers(0, 2**32, 3000, dtype=np.uint64)) for _ in range(3))
    check_fma(oracles, a, b, c, seed)


def test_fma_where_rounding_twice_goes_wrong(oracles: ModuleType) -> None:
    """Sums a hair beside the middle of two neighbours: float64 rounds onto the middle, then fp32 to even."""
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    above, below = (8392705.0, 8384513.0), (2.0**23 - 1, 2.0**23 + 1)
    assert above[0] * above[1] == 2**46 + 1 and below[0] * below[1] == 2**46 - 1
    for one, two in (above, below):
        exponent = random.integers(-60, 50, 500)
        sign, other = random.choice([-1.0, 1.0], (2, 500))
        a = np.ldexp(one * sign, exponent).astype(np.float32)
        b = np.full(500, two, np.float32)
        c = np.ldexp(random.integers(2**23, 2**24, 500) * other, exponent + 47).astype(np.float32)
        check_fma(oracles, a, b, c, seed)
        twice = (a.astype(np.float64) * b + c).astype(np.float32)
        assert (twice != numerics.fused_multiply_add(a, b, c)).sum() > 100, "float64 alone must fail here"


def test_fma_with_cancellation(oracles: ModuleType) -> None:
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    a, b = (random.normal(0, 1, 2000).astype(np.float32) for _ in range(2))
    c = -(a * b)
    for step in (0, 1, -1, 3):
        moved = (c.view(np.int32) + step).view(np.float32)
        check_fma(oracles, a, b, moved, seed)


def test_fma_of_subnormals(oracles: ModuleType) -> None:
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    a = np.ldexp(random.normal(0, 1, 2000), -70).astype(np.float32)
    b = np.ldexp(random.normal(0, 1, 2000), random.integers(-80, -50, 2000)).astype(np.float32)
    c = _finite(random.integers(0, 2**24, 2000) | random.integers(0, 2, 2000) << 31)
    check_fma(oracles, a, b, c, seed)
    check_fma(oracles, a, b, np.zeros(2000, np.float32), seed)


def test_fma_overflow_and_zero() -> None:
    def fma(a: float, b: float, c: float) -> np.float32:
        return numerics.fused_multiply_add(np.array([a], np.float32), np.float32(b), np.float32(c))[0]

    largest = float(np.finfo(np.float32).max)
    assert fma(largest, 2, 0) == np.inf and fma(largest, -2, 0) == -np.inf
    assert fma(largest, 1, 2.0**102) == largest  # below the middle to 2**128
    assert fma(largest, 1, 2.0**103) == np.inf  # the middle itself
    assert fma(1, 1, np.inf) == np.inf and fma(1, 1, -np.inf) == -np.inf
    assert same_float(fma(3, 5, -15), 0.0)
    assert same_float(fma(-0.0, 1, -0.0), -0.0) and same_float(fma(0.0, -1, 0.0), 0.0)


# ---- two sources


@given(
    a=st.integers(-128, 255),
    b=st.integers(-128, 255),
    ra=st.floats(2.0**-12, 2.0**6, width=32),
    rb=st.floats(2.0**-12, 2.0**6, width=32),
    offset=st.floats(-(2.0**15), 2.0**15, width=32),
)
def test_add(a: int, b: int, ra: float, rb: float, offset: float, oracles: ModuleType) -> None:
    result = numerics.add(np.array([a]), np.array([b]), np.float32(ra), np.float32(rb), np.float32(offset), -100, 255)
    total = oracles.fused_multiply_add(a, ra, oracles.fused_multiply_add(b, rb, offset))
    assert int(result[0]) == max(-100, min(255, round(Fraction(total))))


BITS = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 0x007FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF])


@given(a=st.integers(-128, 255), b=st.integers(-128, 255), bits=st.tuples(BITS, BITS, BITS))
def test_add_of_any_bits(a: int, b: int, bits: tuple[int, int, int], oracles: ModuleType) -> None:
    ra, rb, offset = np.array(bits, np.uint32).view(np.float32)
    result = numerics.add(np.array([a]), np.array([b]), ra, rb, offset, -512, 511)
    left, right, addend = (oracles.any_exponent(one) for one in bits)
    total = oracles.to_24_bits(a * left + oracles.to_24_bits(b * right + addend))
    assert int(result[0]) == max(-512, min(511, round(total)))


@given(value=st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2), bits=BITS)
def test_multipliers_of_any_bits(value: int, bits: int, oracles: ModuleType) -> None:
    multiplier = np.array([bits], np.uint32).view(np.float32)[0]
    requantized = numerics.requantize(np.array([value], np.int32), np.int32(0), multiplier, 3, -128, 127)
    total = oracles.to_float32(Fraction(value))
    scaled = round(oracles.to_24_bits(Fraction(total) * oracles.any_exponent(bits)))
    assert int(requantized[0]) == max(-128, min(127, scaled + 3))
    factor = value % 512 - 256
    product = numerics.multiply(np.array([factor]), np.array([1]), 0, 0, multiplier, 3, -512, 511)
    shifted = oracles.to_24_bits(oracles.to_24_bits(factor * oracles.any_exponent(bits)) + 3)
    assert int(product[0]) == max(-512, min(511, round(shifted)))


@given(
    a=st.integers(-128, 255),
    b=st.integers(-128, 255),
    zeros=st.tuples(*[st.integers(-128, 255)] * 3),
    multiplier=st.floats(2.0**-30, 2.0**4, width=32) | st.sampled_from([0.5, 0.25, 2.0**-7]),
)
def test_multiply(a: int, b: int, zeros: tuple[int, int, int], multiplier: float, oracles: ModuleType) -> None:
    result = numerics.multiply(
        np.array([a]), np.array([b]), zeros[0], zeros[1], np.float32(multiplier), zeros[2], 0, 255
    )  # fmt: skip
    scaled = oracles.to_float32(Fraction((a - zeros[0]) * (b - zeros[1])) * Fraction(multiplier))
    shifted = oracles.to_float32(Fraction(scaled) + zeros[2])
    assert int(result[0]) == max(0, min(255, round(Fraction(shifted))))


def test_multiply_adds_the_zero_point_before_it_rounds() -> None:
    # 5 * 1 * 0.5 = 2.5: with zero point 1, rne(3.5) = 4, not rne(2.5) + 1 = 3
    result = numerics.multiply(np.array([5]), np.array([1]), 0, 0, np.float32(0.5), 1, -128, 127)
    assert result.tolist() == [4]


@given(
    a=st.integers(-128, 127),
    b=st.integers(-128, 127),
    multipliers=st.tuples(*[st.integers(1 << 30, 2**31 - 1)] * 3),
    shifts=st.tuples(*[st.integers(-30, 0) | st.integers(-128, 127)] * 3),
    offsets=st.tuples(*[st.integers(-128, 128)] * 3),
    left_shift=st.integers(0, 22),
)
def test_add_fixed(
    a: int,
    b: int,
    multipliers: tuple[int, int, int],
    shifts: tuple[int, int, int],
    offsets: tuple[int, int, int],
    left_shift: int,
    oracles: ModuleType,
) -> None:
    result = numerics.add_fixed(
        np.array([a], np.int8), np.array([b], np.int8), multipliers, shifts, offsets, left_shift, -128, 127
    )
    scale = oracles.multiply_by_quantized_multiplier
    first = scale(oracles.to_int32((a + offsets[0]) << left_shift), multipliers[0], shifts[0])
    second = scale(oracles.to_int32((b + offsets[1]) << left_shift), multipliers[1], shifts[1])
    total = scale(oracles.to_int32(first + second), multipliers[2], shifts[2]) + offsets[2]
    assert int(result[0]) == max(-128, min(127, total))


# ---- the framework


def run_operator(operator: str, a: np.ndarray, b: np.ndarray, parameters: dict[str, np.ndarray]) -> np.ndarray:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    kind = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
    infos = {name: onnx.helper.make_tensor_value_info(name, kind, [a.size]) for name in ("a", "b", "y")}
    node = onnx.helper.make_node(
        operator, ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"], domain="com.microsoft"
    )
    values = [onnx.numpy_helper.from_array(value, name) for name, value in parameters.items()]
    graph = onnx.helper.make_graph([node], "one", [infos["a"], infos["b"]], [infos["y"]], values)
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a, "b": b})[0]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the formulas are those of MLAS on x86-64")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("powers_of_two", [False, True])
def test_add_and_multiply_are_those_of_onnx_runtime(dtype: type, powers_of_two: bool, oracles: ModuleType) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    grid = np.arange(low, high + 1)
    a, b = (side.reshape(-1).astype(dtype) for side in np.meshgrid(grid, grid))
    for _ in range(3):
        exponents = random.uniform(-6, 0, 3)
        scales = (2.0 ** (np.round(exponents) if powers_of_two else exponents)).astype(np.float32)
        zeros = random.integers(low, high + 1, 3).astype(dtype)
        names = ("sa", "sb", "sy"), ("za", "zb", "zy")
        parameters = {name: np.array(value) for name, value in zip(names[0], scales, strict=True)}
        parameters |= {name: np.array(value) for name, value in zip(names[1], zeros, strict=True)}
        ra, rb = scales[0] / scales[2], scales[1] / scales[2]
        az, bz, yz = zeros.tolist()
        inner = oracles.fused_multiply_add(float(ra), az, float(rb * np.float32(bz)))
        offset = np.float32(yz) - np.float32(inner)
        ours = numerics.add(a, b, ra, rb, offset, low, high)
        assert (ours == run_operator("QLinearAdd", a, b, parameters)).all(), (seed, parameters)
        multiplier = np.float32(scales[0] * scales[1]) / scales[2]
        ours = numerics.multiply(a, b, az, bz, multiplier, yz, low, high)
        assert (ours == run_operator("QLinearMul", a, b, parameters)).all(), (seed, parameters)
