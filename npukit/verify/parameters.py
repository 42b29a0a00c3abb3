"""What VECTOR reads from PAR, as random words: ordinary ones, ties, numbers at their ends, any bits."""

import re
from collections.abc import Mapping
from random import Random

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import (
    TABLE_ENTRIES,
    Indexing,
    LaneField,
    block_parameters,
    descriptor_lanes,
    encode_descriptor,
    pack_taps,
)
from npukit.isa.instructions import NORMALIZE_OPERATIONS, SOFTMAX_OPERATIONS, Operation
from npukit.verify.values import SPECIAL, random_floats, random_halves

__all__ = ["parameter_image", "table_name"]

_WHOLE = (-(1 << 31), -(1 << 31) + 1, -1, 0, 1, (1 << 31) - 1, 1 << 30, -(1 << 30))
"""int32 values at which something changes."""
_FIXED = (Operation.ADD_FIXED, Operation.MULTIPLY_FIXED)
_SCALED = (Operation.SUM, Operation.ADD, Operation.MULTIPLY)
"""Operations whose descriptor scales by floats, for int8."""
_RESULT_BITS = 7
"""Of a result's magnitude."""
_SHIFTS = (-128, -32, -31, -30, -1, 0, 1, 30, 31, 32, 127)


def parameter_image(
    config: NpuConfig, random: Random, operation: Operation, blocks: int, taps: int,
    wanted: Mapping[str, int] | None = None,
) -> NDArray[np.uint32]:  # fmt: skip
    """Descriptor and parameters of `blocks` blocks with `taps` depthwise taps, uint32[words, array].

    Args:
        wanted: bits that fields of the descriptor must have, and, by the names of `block_parameters`, that some
            lanes of a block's parameters must have; by `table_name`, that some entries of a table must have.
    """
    generator = np.random.default_rng(random.getrandbits(64))
    style = random.choices(["ordinary", "ties", "ends", "any"], [0.35, 0.4, 0.15, 0.1])[0]
    wanted = wanted or {}
    head = _descriptor(config, random, generator, operation, style, wanted)
    words = [head]
    names = block_parameters(config, operation)
    for _ in range(blocks if names else 0):
        size = random.randint(_RESULT_BITS, random.choice([14, 18, 31]))
        for name in names:
            row = _block_word(config, random, generator, name, operation, style, size)
            if name in wanted:
                row[0, generator.random(config.array) < 0.5] = np.uint32(wanted[name] & 0xFFFFFFFF)
            words.append(row)
        if operation in (Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
            words.append(_taps(config, generator, taps, style))
    return np.concatenate(words)


def _taps(config: NpuConfig, generator: np.random.Generator, taps: int, style: str) -> NDArray[np.uint32]:
    if config.activation.floating:
        return pack_taps(config, random_halves(generator, taps * config.array).reshape(-1, config.array))
    values = generator.integers(-128, 128, (taps, config.array)).astype(np.int8)
    if style == "ends":
        values = generator.choice(np.array([-128, -128, -128, 127], np.int8), (taps, config.array))
    return pack_taps(config, values)


def _block_word(
    config: NpuConfig, random: Random, generator: np.random.Generator, name: str, operation: Operation, style: str,
    size: int,
) -> NDArray[np.uint32]:  # fmt: skip
    """A word of a block's parameters, uint32[1, array]. size: bits of its sums, mostly, which go with the scaling."""
    shape = (1, config.array)
    if style == "any":
        return generator.integers(0, 1 << 32, shape, np.uint32)
    if config.activation.floating:
        return random_floats(generator, config.array).reshape(shape)
    fixed = operation in (Operation.REQUANTIZE_FIXED, Operation.DEPTHWISE_FIXED)
    if name == "bias":
        if style == "ends":
            return _choice(generator, _WHOLE, shape)
        span = 1 << (9 if style == "ties" else size)
        return generator.integers(-span, span, shape).astype(np.int32).view(np.uint32)
    if name == "shift":
        if style == "ends":
            return _choice(generator, _SHIFTS, shape)
        low, high = (-20, 6) if random.random() < 0.3 else (_RESULT_BITS - size - 2, _RESULT_BITS - size + 3)
        if style == "ties":
            low, high = random.choice([(-8, 1), (0, 1)])
        return generator.integers(low, high, shape).astype(np.int32).view(np.uint32)
    assert name == "multiplier", name
    if fixed:
        if style == "ends":
            return _choice(generator, _WHOLE, shape)
        whole = [_whole_multiplier(random, style) for _ in range(config.array)]
        return np.array(whole, np.int64).astype(np.int32).view(np.uint32).reshape(shape)
    if style == "ends":
        return generator.choice(np.array(SPECIAL, np.uint32), shape)
    magnitude = random.choice([size - _RESULT_BITS, size - _RESULT_BITS, random.randint(0, 30)])
    scale = generator.uniform(0.25, 4.0, shape) * 2.0**-magnitude
    if style == "ties":  # small sums, scaled by exact powers of two, or so that one of them comes close to a half
        scale = 2.0 ** -generator.integers(1, 9, shape).astype(np.float64)
        halves = (generator.integers(0, 128, shape) + 0.5) / generator.integers(1, 1 << 9, shape)
        scale = np.where(generator.random(shape) < 0.5, halves, scale)
        scale *= _beside(generator, shape)
    return scale.astype(np.float32).view(np.uint32)


def _beside(generator: np.random.Generator, shape: tuple[int, ...] = ()) -> NDArray[np.float64]:
    """Factors, a third of which move a float by a few units in its last place: what was a tie is then next to one."""
    units = generator.choice([-3, -2, -1, 1, 2, 3], shape)
    return np.where(generator.random(shape) < 1 / 3, 1 + units * 2.0**-23, 1.0)


def _whole_multiplier(random: Random, style: str) -> int:
    """A multiplier of the fixed-point operations: of 31 bits as compilers make it, or of any length and sign.

    The low bits of a long one say nothing about a result of eight bits, those of a short one do. For ties, 1/2, or what
    makes of a certain small number a product at the very edge of being rounded up: there every bit counts.
    """
    if style == "ties":
        return random.choice([1 << 30, _edge(random)])
    if random.random() < 0.5:
        return random.randrange(1 << 30, 1 << 31)
    return random.choice([-1, 1]) * random.randrange(1 << random.randint(1, 31))


def _edge(random: Random) -> int:
    """A multiplier of 31 bits whose product with a random odd number is at or just below a half of 2**31."""
    number = random.choice([3, 5, 7, 9, random.randrange(1, 1 << 14, 2)])  # odd multiples of small ones are frequent
    half = (1 << 30) - random.choice([0, 1, random.randrange(1 << random.randint(1, 16))])
    multiplier = half * pow(number, -1, 1 << 31) % (1 << 31)
    return random.choice([-1, 1]) * multiplier


def _choice(generator: np.random.Generator, values: tuple[int, ...], shape: tuple[int, int]) -> NDArray[np.uint32]:
    return generator.choice(np.array(values, np.int64), shape).astype(np.int32).view(np.uint32)


# ---- descriptors


def _descriptor(
    config: NpuConfig, random: Random, generator: np.random.Generator, operation: Operation, style: str,
    wanted: Mapping[str, int],
) -> NDArray[np.uint32]:  # fmt: skip
    fields = descriptor_lanes(config, operation)
    if operation in SOFTMAX_OPERATIONS and style != "any":
        wanted = {**_numbers(random, generator, style), **wanted}
    if operation is Operation.FUNCTION and style != "any":
        wanted = {**_lines(random, generator, style), **wanted}
    if operation in NORMALIZE_OPERATIONS and style != "any":
        wanted = {**_statistics(config, random), **wanted}
    lanes = encode_descriptor(config, operation, {})
    if style == "any":
        lanes = generator.integers(0, 1 << 32, lanes.shape, np.uint32)
    else:
        flags = {field.name: random.getrandbits(1) for field in fields if field.width == 1}
        together = {**flags, **_limits(config, random, fields, flags, style), **_zero_points(random, flags, style)}
        if operation in _FIXED and style == "ties":
            together |= random.choices([_exact(random), _edges(random), {}], [0.5, 0.3, 0.2])[0]
        elif operation in _FIXED and style == "ordinary" and random.random() < 0.7:
            together |= _usual(random)
        elif operation in _SCALED and not config.activation.floating and style == "ordinary" and random.random() < 0.7:
            together |= _usual_floats(random, operation)
        for field in fields:
            if field.name in together:
                bits = together[field.name]
            elif field.is_float:
                bits = _float_field(config, random, generator, field, style)
            else:
                bits = _whole_field(random, field, style)
            _put(lanes, field, bits)
    for field in fields:
        if field.name in wanted and field.name not in block_parameters(config, operation):
            _put(lanes, field, wanted[field.name])
    tables: dict[str, list[LaneField]] = {}
    for field in fields:
        tables.setdefault(table_name(field.name), []).append(field)
    for name in sorted(wanted.keys() & tables.keys() - {field.name for field in fields}):
        entries = tables[name]
        for field in random.sample(entries, random.choice([1, len(entries) // 2])):
            _put(lanes, field, wanted[name])
    return lanes


def table_name(name: str) -> str:
    """What the entries of a table are called together: their fields are called so, with a number."""
    return re.sub(r"_\d+$", "", name)


def _numbers(random: Random, generator: np.random.Generator, style: str) -> dict[str, int]:
    """A table of numbers: exponentials as a softmax has them, of which sums and quotients are within range; few and
    short ones, of which sums and quotients are halves; or numbers at the ends of binary32. And a factor for them."""
    factor = random.choice([0, 1, 254, 255, 256, 1023, random.randrange(1 << 10)])
    if style == "ends":
        bits = generator.choice(np.array(SPECIAL, np.uint32), TABLE_ENTRIES)
        if random.random() < 0.5:  # none that is far above the least
            bits = generator.integers(0, 4 << 23, TABLE_ENTRIES, np.uint32)
    elif style == "ties":
        most = random.choice([1, 2, 8])
        numbers = generator.integers(1, most + 1, TABLE_ENTRIES) * 2.0 ** generator.integers(-2, 3, TABLE_ENTRIES)
        if most > 2:
            numbers[generator.random(TABLE_ENTRIES) < 0.3] *= 2.0 ** -random.randint(20, 28)
        else:
            factor = random.randrange(1, 64, 2)
        bits = numbers.astype(np.float32).view(np.uint32)
    else:
        scale = 10 ** random.choice([random.uniform(-4, 0.5), random.uniform(-2.3, -0.7)])
        bits = np.exp((np.arange(TABLE_ENTRIES) - (TABLE_ENTRIES - 1)) * scale).astype(np.float32).view(np.uint32)
    table = {"factor": factor, **{f"entry_{index}": int(one) for index, one in enumerate(bits)}}
    if style != "ends" and random.random() < 0.8:  # quotients of a softmax begin at the least result
        table["zero_point"] = -128 + random.choice([0, random.randrange(30)])
    return table


def _lines(random: Random, generator: np.random.Generator, style: str) -> dict[str, int]:
    """Straight lines of any slopes, or numbers at the ends of binary32; segments about as wide as numbers are large."""
    if style == "ends":
        bits = generator.choice(np.array(SPECIAL, np.uint32), (2, TABLE_ENTRIES))
    else:
        bits = generator.uniform(-4, 4, (2, TABLE_ENTRIES)).astype(np.float32).view(np.uint32)
    names = [f"{name}_{index}" for name in ("slope", "intercept") for index in range(TABLE_ENTRIES)]
    return {
        **{name: int(one) for name, one in zip(names, bits.reshape(-1), strict=True)},
        "indexing": random.choice([*Indexing]),
        "step": random.choice([random.randint(-8, 4), random.randint(-16, 15)]),
        "offset": random.choice([-512, 0, 128, 255, 511, random.randint(-512, 511)]),
    }


def _statistics(config: NpuConfig, random: Random) -> dict[str, int]:
    """Counts and epsilons of any size, so that now a variance decides and now what is added to it; and their ends."""
    epsilon = random.choice([0, 0xFFFFFFFF, (1 << 62) - 1, *(random.getrandbits(62) >> random.randint(0, 62),) * 5])
    return {
        "missing": random.choice([0, 63, random.randrange(config.array), random.randrange(64)]),
        "count": random.choice([0, (1 << 15) - 1, *(random.getrandbits(15) >> random.randrange(15),) * 6]),
        "zero_point": random.choice([-128, 127, *(random.randint(-128, 127),) * 6]),
        "epsilon_low": epsilon & 0xFFFFFFFF,
        "epsilon_high": epsilon >> 32,
    }


def _put(lanes: NDArray[np.uint32], field: LaneField, bits: int) -> None:
    """Write a field's bits; those above its width do not count."""
    flat = lanes.reshape(-1)
    mask = (1 << field.width) - 1
    flat[field.lane] = int(flat[field.lane]) & ~(mask << field.lsb) & 0xFFFFFFFF | (bits & mask) << field.lsb


def _limits(
    config: NpuConfig, random: Random, fields: tuple[LaneField, ...], flags: Mapping[str, int], style: str
) -> dict[str, int]:
    """Bits of `low` and `high`, where an operation has them."""
    both = {field.name: field for field in fields if field.name in ("low", "high")}
    if not both:
        return {}
    if config.activation.floating:
        if random.random() >= 0.7:
            return {}
        pairs = [(-6.0, 6.0), (0.0, np.inf), (-np.inf, np.inf), (np.nan, np.nan)]
        low, high = random.choice(pairs)
        return {"low": int(np.float32(low).view(np.uint32)), "high": int(np.float32(high).view(np.uint32))}
    if style == "ends" and random.random() < 0.5:
        width = both["low"].width
        ends = [-(1 << (width - 1)), -1, 0, 1, (1 << (width - 1)) - 1]
        return {"low": random.choice(ends), "high": random.choice(ends)}
    low, high = (0, 255) if both["low"].width == 10 and flags["out_unsigned"] else (-128, 127)
    if random.random() < 0.3:
        low, high = sorted((random.randint(low, high), random.randint(low, high)))
    return {"low": low, "high": high}


def _zero_points(random: Random, flags: Mapping[str, int], style: str) -> dict[str, int]:
    """Zero points and offsets of two sources and their result near the middle of what each can be, as quantisers make
    them: else most results are the least or the greatest, whatever is computed."""
    if style == "ends" or random.random() < 0.15:
        return {}
    span = random.choice([2, 10, 40, 128])
    found = {}
    for side in ("a", "b", "out"):
        middle = 128 * flags.get(f"{side}_unsigned", 0) + random.randint(-span, span)
        found |= {f"{side}_zero_point": middle, f"{side}_offset": middle if side == "out" else -middle}
    return found


def _usual(random: Random) -> dict[str, int]:
    """Multipliers and shifts of ADD_FIXED and MULTIPLY_FIXED as TensorFlow Lite's converter makes them: of 31 bits, and
    what brings the result to about eight."""
    left = random.choice([20, random.randint(4, 20)])
    multipliers = ("a_multiplier", "b_multiplier", "out_multiplier", "multiplier")
    return {
        **{name: random.randrange(1 << 30, 1 << 31) for name in multipliers},
        "left_shift": left,
        "a_shift": random.randint(-3, 0),
        "b_shift": random.randint(-3, 0),
        "out_shift": random.randint(-1, 2) - left,
        "shift": random.randint(-10, -4),
    }


def _usual_floats(random: Random, operation: Operation) -> dict[str, int]:
    """Scales with which the results of SUM, ADD and MULTIPLY have about eight bits, and a bias of SUM of any size."""
    size = random.randint(_RESULT_BITS, 31)

    def scale(exponent: int) -> int:
        return int(np.float32(random.choice([-1, 1, 1]) * random.uniform(0.25, 4) * 2.0**exponent).view(np.uint32))

    if operation is Operation.SUM:
        return {"bias": random.randint(-(1 << size), (1 << size) - 1), "multiplier": scale(_RESULT_BITS - size)}
    if operation is Operation.MULTIPLY:
        return {"multiplier": scale(-_RESULT_BITS)}
    return {"ra": scale(-1), "rb": scale(-1), "offset": scale(random.randint(-8, 5))}


def _exact(random: Random) -> dict[str, int]:
    """Multipliers of 1/2 and shifts for ADD_FIXED and MULTIPLY_FIXED with which their results are exact, or halves.

    Sources are shifted to the left and, by about as much, back to the right: at once, or as their sum, or in parts. So
    what is shifted out is a few bits in any places, or none.
    """
    left = random.choice([1, 20, random.randint(1, 20)])
    kept = random.choice([random.randint(-3, 0), left - 1, random.randint(-3, left - 1)])
    """To the left, of both sources when they are added."""
    other = random.choice([kept, kept, random.randint(-3, left - 1)])
    return {
        "a_multiplier": 1 << 30,
        "b_multiplier": 1 << 30,
        "left_shift": left,
        "a_shift": kept - (left - 1),
        "b_shift": other - (left - 1),
        "out_shift": random.choice([0, random.randint(-2, 1)]) - max(kept, other, 0),
        "shift": random.choice([0, random.randint(-9, 1), random.randint(-10, -5)]),
    }


def _edges(random: Random) -> dict[str, int]:
    """For ADD_FIXED and MULTIPLY_FIXED: products with every bit of a multiplier that are rounded once and then stay as
    they are: of both sources, of their sum, or of the product."""
    exact = {"left_shift": 1, "a_multiplier": 1 << 30, "b_multiplier": 1 << 30}
    sum_exact = {"out_multiplier": 1 << 30, "out_shift": 1}
    sources = {"left_shift": 0, "a_multiplier": _sharp(random), "b_multiplier": _sharp(random), **sum_exact}
    result = {**exact, "out_multiplier": _sharp(random), "out_shift": 0}
    product = random.choice([-1, 1]) * random.randrange(1 << random.randint(14, 24))
    return {**random.choice([sources, result]), "a_shift": 0, "b_shift": 0, "multiplier": product, "shift": 0}


def _sharp(random: Random) -> int:
    """A multiplier near 1 in magnitude, in units of 2**-31."""
    return random.choice([_edge(random), random.choice([-1, 1]) * random.randrange(1 << 29, 1 << 31)])


def _float_field(
    config: NpuConfig, random: Random, generator: np.random.Generator, field: LaneField, style: str
) -> int:
    if config.activation.floating:
        return int(random_floats(generator, 1)[0])
    if style == "ends":
        return random.choice(SPECIAL)
    if style == "ties":  # exact, so that halves come up, or such that one number comes close to a half
        value = random.choice([-1, 1, 1]) * 2.0 ** random.randint(-3, 0)
        if random.random() < 0.3:  # so small beside the rest that it decides which way a half is rounded
            value *= random.uniform(0.5, 2) * 2.0 ** -random.randint(9, 40)
        number = random.randrange(1, 128)
        if field.name == "offset":
            value = random.randint(-64, 64) / 2
        elif field.name == "multiplier":
            value = random.choice([-1, 1, 1]) * 2.0 ** random.randint(-10, -2)
            number *= random.randrange(1, 128)
        if field.name != "offset" and random.random() < 0.4:
            value = random.choice([-1, 1]) * (random.randrange(128) + 0.5) / number
        value *= float(_beside(generator))
    else:
        exponent = random.randint(-12, 3) if random.random() < 0.7 else random.randint(-36, 8)
        value = random.choice([-1, 1, 1]) * random.uniform(0.5, 2) * 2.0**exponent
    return int(np.float32(value).view(np.uint32))


def _whole_field(random: Random, field: LaneField, style: str) -> int:
    """Bits of a field that is not a float."""
    low = -(1 << (field.width - 1)) if field.signed else 0
    high = low + (1 << field.width) - 1
    if style == "ends":
        return random.choice([low, high, *(one for one in (low + 1, -1, 0, 1, high - 1) if low <= one <= high)])
    if field.name == "bias":
        span = 1 << 9 if style == "ties" else random.choice([1 << 8, 1 << 20, (1 << 31) - 1])
        return random.randint(-span, span)
    if field.name == "value":  # of FILL, also around the ends of int8, where CONVERT begins to clamp
        near = random.choice([-129, -128, 127, 128, 128])
        return random.choice([near, near, random.randint(low, high)])
    if field.name.endswith("multiplier"):
        return _whole_multiplier(random, style)
    if field.name.endswith("shift") and field.signed:
        return random.randint(random.choice([-15, -15, -31]), 3)
    if field.name == "left_shift":
        return random.randint(0, 20)
    if field.width == 10:
        return random.randint(-256, 255)
    return random.randint(low, high)
