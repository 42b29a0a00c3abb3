"""VECTOR's descriptors and block parameters in PAR words."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import (
    Indexing,
    LaneField,
    block_parameters,
    decode_descriptor,
    descriptor_lanes,
    descriptor_words,
    encode_descriptor,
    operations_of,
    pack_taps,
    parameter_words,
    tap_words,
    unpack_taps,
)
from npukit.isa.instructions import (
    NORMALIZE_OPERATIONS,
    SOFTMAX_OPERATIONS,
    InstructionError,
    Memory,
    Operation,
    Vector,
)

ARRAYS = (4, 8, 16, 32, 64)
BF16_ALONE = {Operation.FUNCTION}
BF16_OPERATIONS = BF16_ALONE | {
    Operation.REQUANTIZE, Operation.ADD, Operation.MULTIPLY, Operation.MAX, Operation.SUM,
    Operation.DEPTHWISE, Operation.CONVERT, Operation.COPY, Operation.FILL, Operation.PART, Operation.TRANSPOSE,
}  # fmt: skip
DEFINED = [("int8", one) for one in Operation if one not in BF16_ALONE] + [
    ("bf16", one) for one in Operation if one in BF16_OPERATIONS
]


def config_of(array: int, dtype: str = "int8") -> NpuConfig:
    return NpuConfig(array=array, dtype=dtype, vector_lanes=array, fma_lanes=array)


def limits(field: LaneField) -> tuple[int, int]:
    low = -(1 << (field.width - 1)) if field.signed else 0
    return low, low + (1 << field.width) - 1


def values_of(field: LaneField) -> st.SearchStrategy:
    if field.is_float:
        return st.floats(width=32, allow_nan=False).map(np.float32)
    low, high = limits(field)
    return st.sampled_from([low, high]) | st.integers(low, high)


@pytest.mark.parametrize(("dtype", "operation"), DEFINED)
@given(data=st.data())
def test_encode_and_decode_are_inverse(data: st.DataObject, dtype: str, operation: Operation) -> None:
    config = config_of(data.draw(st.sampled_from(ARRAYS)), dtype)
    fields = descriptor_lanes(config, operation)
    if operation in SOFTMAX_OPERATIONS or operation is Operation.FUNCTION:
        size = 1024 * (1 + (operation is Operation.FUNCTION))
        entries = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.float32)
        values = {field.name: entry for field, entry in zip(fields, np.nan_to_num(entries), strict=False)}
        values |= {field.name: data.draw(values_of(field)) for field in fields[len(entries) :]}
    elif len(fields) > 100:
        entries = data.draw(st.binary(min_size=256, max_size=256))
        values = {field.name: entry - 128 for field, entry in zip(fields, entries, strict=True)}
    else:
        values = {field.name: data.draw(values_of(field)) for field in fields}
    words = encode_descriptor(config, operation, values)
    assert words.dtype == np.uint32
    assert words.shape == (descriptor_words(config, Vector(operation=operation)), config.array)
    decoded = decode_descriptor(config, operation, words)
    assert decoded == values
    for field in fields:
        if field.is_float:
            assert np.float32(values[field.name]).tobytes() == np.float32(decoded[field.name]).tobytes()


@pytest.mark.parametrize(("dtype", "operation"), DEFINED)
def test_fields_do_not_overlap(dtype: str, operation: Operation) -> None:
    used: dict[int, int] = {}
    for field in descriptor_lanes(config_of(16, dtype), operation):
        mask = ((1 << field.width) - 1) << field.lsb
        assert mask < 1 << 32 and used.get(field.lane, 0) & mask == 0, field
        used[field.lane] = used.get(field.lane, 0) | mask
    assert sorted(used) == list(range(len(used)))


@pytest.mark.parametrize("operation", Operation)
def test_values_out_of_range_are_refused(operation: Operation) -> None:
    config = config_of(16, "bf16" if operation in BF16_ALONE else "int8")
    for field in [*descriptor_lanes(config, operation)[:20], *descriptor_lanes(config, operation)[-20:]]:
        if field.is_float:
            continue
        low, high = limits(field)
        for value in (low - 1, high + 1):
            message = f"{operation.name}: {field.name} must be from {low} to {high}, not {value}"
            with pytest.raises(InstructionError, match=message):
                encode_descriptor(config, operation, {field.name: value})
        with pytest.raises(InstructionError, match=f"{field.name} must be a whole number, not 0.5"):
            encode_descriptor(config, operation, {field.name: 0.5})


def test_without_fixed_point_sources() -> None:
    config = replace(config_of(16), fma_fixed=0)
    assert set(operations_of(config_of(16))) - set(operations_of(config)) == {
        Operation.ADD_FIXED,
        Operation.MULTIPLY_FIXED,
    }
    with pytest.raises(InstructionError, match="operation MULTIPLY_FIXED is not there with fma_fixed = 0"):
        descriptor_lanes(config, Operation.MULTIPLY_FIXED)
    with pytest.raises(InstructionError, match="not defined for dtype bf16"):
        descriptor_lanes(replace(config, dtype="bf16"), Operation.REQUANTIZE_FIXED)


def test_without_transposition() -> None:
    for dtype in ("int8", "bf16"):
        config = replace(config_of(16, dtype), transpose=0)
        assert set(operations_of(config_of(16, dtype))) - set(operations_of(config)) == {Operation.TRANSPOSE}
        with pytest.raises(InstructionError, match="operation TRANSPOSE is not there with transpose = 0"):
            descriptor_lanes(config, Operation.TRANSPOSE)


def test_without_a_softmax() -> None:
    config = replace(config_of(16), softmax_cycles=0)
    assert set(operations_of(config_of(16))) - set(operations_of(config)) == SOFTMAX_OPERATIONS
    with pytest.raises(InstructionError, match="operation TABLE_SUM is not there with softmax_cycles = 0"):
        descriptor_lanes(config, Operation.TABLE_SUM)
    config = config_of(16, "bf16")
    assert set(operations_of(config)) - set(operations_of(replace(config, softmax_cycles=0))) == {Operation.FUNCTION}


def test_without_a_normalisation() -> None:
    config = replace(config_of(16), normalize_cycles=0)
    assert set(operations_of(config_of(16))) - set(operations_of(config)) == NORMALIZE_OPERATIONS
    with pytest.raises(InstructionError, match="operation MOMENTS is not there with normalize_cycles = 0"):
        descriptor_lanes(config, Operation.MOMENTS)


@pytest.mark.parametrize("array", ARRAYS)
def test_tables_of_numbers(array: int) -> None:
    """An entry a lane; what else TABLE_DIVIDE has is in a word of its own."""
    config, words = config_of(array), 256 // array
    assert descriptor_words(config, Vector(operation=Operation.TABLE_SUM)) == words
    assert descriptor_words(config, Vector(operation=Operation.TABLE_DIVIDE)) == words + 1
    made = encode_descriptor(config, Operation.TABLE_DIVIDE, {"entry_3": 1.0, "factor": 255, "high": 127, "low": -128})
    assert made.reshape(-1)[[3, 256, 257]].tolist() == [0x3F800000, 0x7F8000, 255]


@pytest.mark.parametrize("array", ARRAYS)
def test_a_function(array: int) -> None:
    """A slope and an intercept side by side; what else there is in a word of its own."""
    config = config_of(array, "bf16")
    assert descriptor_words(config, Vector(operation=Operation.FUNCTION)) == 512 // array + 1
    values = {"slope_2": 1.0, "intercept_2": -2.0, "step": -4, "offset": -1, "indexing": Indexing.RECIPROCAL_ROOT}
    made = encode_descriptor(config, Operation.FUNCTION, values).reshape(-1)
    assert made[[4, 5, 512]].tolist() == [0x3F800000, 0xC0000000, 28 | 0x3FF << 8 | 2 << 24]
    with pytest.raises(InstructionError, match="operation FUNCTION is not defined for dtype int8"):
        descriptor_lanes(config_of(array), Operation.FUNCTION)


def test_unknown_field_and_undefined_operation() -> None:
    with pytest.raises(InstructionError, match="ADD: the descriptor has no field 'multiplier'"):
        encode_descriptor(config_of(16), Operation.ADD, {"multiplier": 1})
    for operation in set(Operation) - BF16_OPERATIONS:
        with pytest.raises(InstructionError, match=f"operation {operation.name} is not defined for dtype bf16"):
            descriptor_lanes(config_of(16, "bf16"), operation)


def test_bits_of_a_descriptor() -> None:
    words = encode_descriptor(
        config_of(4),
        Operation.ADD,
        {"ra": 1.0, "offset": -2.0, "low": -1, "high": 255, "b_unsigned": 1, "out_unsigned": 1},
    )
    assert words.tolist() == [[0x3F800000, 0, 0xC0000000, 0x3FF | 255 << 10 | 1 << 30 | 1 << 31]]
    table = encode_descriptor(config_of(4), Operation.TABLE, {"entry_0": -1, "entry_5": 2, "entry_255": 3})
    assert table.shape == (16, 4)
    assert (table[0, 0], table[0, 1], table[15, 3]) == (0xFF, 2 << 8, 3 << 24)


@pytest.mark.parametrize(("array", "words"), [(4, 16), (8, 8), (16, 4), (32, 2), (64, 1)])
def test_a_table_takes_64_lanes(array: int, words: int) -> None:
    assert descriptor_words(config_of(array), Vector(operation=Operation.TABLE)) == words


@pytest.mark.parametrize("array", ARRAYS)
def test_words_that_an_instruction_reads(array: int) -> None:
    config = config_of(array)
    assert descriptor_words(config, Vector(operation=Operation.ADD_FIXED)) == (2 if array == 4 else 1)
    assert descriptor_words(config, Vector(operation=Operation.COPY)) == 0
    into_acc = Vector(operation=Operation.SUM, out_memory=Memory.ACC)
    assert descriptor_words(config, into_acc) == 0
    assert descriptor_words(config, replace(into_acc, out_memory=Memory.ACT)) == 1
    assert parameter_words(config, Vector(operation=Operation.REQUANTIZE)) == 2
    assert parameter_words(config, Vector(operation=Operation.REQUANTIZE_FIXED)) == 3
    window = Vector(operation=Operation.DEPTHWISE, window_height=3, window_width=3)
    assert tap_words(config, window) == 3
    assert parameter_words(config, window) == 5
    assert parameter_words(config, replace(window, operation=Operation.DEPTHWISE_FIXED)) == 6
    assert tap_words(config, replace(window, operation=Operation.SUM)) == 0
    half = config_of(array, "bf16")
    assert tap_words(half, window) == 5
    assert block_parameters(half, Operation.DEPTHWISE) == ("bias",)
    assert parameter_words(half, window) == 6


@given(array=st.sampled_from(ARRAYS), positions=st.integers(1, 49), seed=st.integers(0, 2**32 - 1))
def test_taps_and_back(array: int, positions: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    config = config_of(array)
    taps = random.integers(-128, 128, (positions, array), dtype=np.int8)
    words = pack_taps(config, taps)
    assert words.shape == (-(-positions // 4), array) and words.dtype == np.uint32
    for position in range(positions):  # four to a lane, lowest byte first
        place = words[position // 4] >> np.uint32(8 * (position % 4)) & np.uint32(255)
        assert (place.astype(np.uint8).view(np.int8) == taps[position]).all()
    assert (unpack_taps(config, words, positions) == taps).all()

    half = config_of(array, "bf16")
    raw = random.integers(0, 1 << 16, (positions, array), dtype=np.uint16)
    words = pack_taps(half, raw)
    assert words.shape == (-(-positions // 2), array)
    assert (words[0] & np.uint32(0xFFFF) == raw[0]).all()
    assert (unpack_taps(half, words, positions) == raw).all()
