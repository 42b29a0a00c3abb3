"""The int8 datapath's half of the functional simulator."""

from typing import Any

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import TABLE_ENTRIES, block_parameters, unpack_taps
from npukit.isa.instructions import NORMALIZE_OPERATIONS, Memory, Operation, Vector
from npukit.sim import numerics
from numpy.typing import NDArray

__all__ = ["Int8Datapath"]

_EXACT_CHUNK = 1024
"""Longest reduction whose fp32 sums are exact: 1024 * 128 * 128 = 2**24."""


class Int8Datapath:
    """int8 elements, int32 accumulators."""

    def __init__(self, config: NpuConfig) -> None:
        self.config = config

    def pad(self, value: int) -> np.int8:
        """The low byte."""
        return np.uint8(value & 0xFF).astype(np.int8)

    def fill(self, value: Any, memory: Memory) -> np.generic:
        """int32 for ACC, the low byte for ACT and WGT."""
        number = int(value)
        if memory is Memory.ACC:
            return np.uint32(number & 0xFFFFFFFF).astype(np.int32)
        return self.pad(number)

    def product(self, rows: NDArray, tiles: NDArray, start: NDArray | None) -> NDArray[np.int32]:
        """Products through fp32, in chunks short enough for exact sums; the sum of chunks wraps in int32."""
        blocks, depth, size = tiles.shape
        weights = np.ascontiguousarray(tiles.transpose(1, 0, 2)).reshape(depth, blocks * size)
        total = np.zeros((len(rows), blocks * size), np.int32)
        for first in range(0, depth, _EXACT_CHUNK):
            chunk = slice(first, first + _EXACT_CHUNK)
            total += (rows[:, chunk].astype(np.float32) @ weights[chunk].astype(np.float32)).astype(np.int32)
        result = total.reshape(len(rows), blocks, size).transpose(1, 0, 2)
        return result if start is None else result + start

    def compute(self, vector: Vector, a: NDArray, b: NDArray, descriptor: dict, blocks: NDArray[np.uint32]) -> NDArray:
        """The result [blocks, height, width, array] of a VECTOR operation."""
        operation = vector.operation
        if operation in (Operation.REQUANTIZE, Operation.REQUANTIZE_FIXED):
            return self._requantize(vector, a, descriptor, blocks)
        if operation in (Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
            names = block_parameters(self.config, operation)
            positions = vector.window_height * vector.window_width
            taps = np.stack([unpack_taps(self.config, block[len(names) :], positions) for block in blocks])
            kernel = taps.reshape(vector.blocks, 1, 1, vector.window_height, vector.window_width, -1)
            sums = (a.astype(np.int32) * kernel).sum(axis=(3, 4), dtype=np.int32)
            return self._requantize(vector, sums, descriptor, blocks)
        if operation is Operation.MAX:
            return a.max(axis=(3, 4))
        if operation is Operation.SUM:
            sums = numerics.wrap_int32(a.sum(axis=(3, 4), dtype=np.int64))
            if vector.out_memory is Memory.ACC:
                return sums
            return numerics.requantize(
                sums, np.int32(descriptor["bias"]), descriptor["multiplier"],
                descriptor["zero_point"], descriptor["low"], descriptor["high"],
            )  # fmt: skip
        if operation is Operation.TABLE:
            table = np.array([descriptor[f"entry_{index}"] for index in range(TABLE_ENTRIES)], np.int8)
            return table[a.astype(np.int16) + 128]
        if operation is Operation.CONVERT:
            return a.astype(np.int32) if vector.out_memory is Memory.ACC else numerics.saturate(a, -128, 127)
        if operation is Operation.COPY:
            return a.copy()
        if operation is Operation.PART:
            return (a.view(np.uint32) >> np.uint32(8 * descriptor["part"])).astype(np.uint8).view(np.int8)
        if operation is Operation.TRANSPOSE:
            return a.swapaxes(2, 3)
        if operation is Operation.TABLE_SUM:
            words = a.reshape(len(a), -1, a.shape[-1])
            return numerics.table_sum(_numbers(descriptor), words)[:, None, None].view(np.int32)
        if operation is Operation.TABLE_DIVIDE:
            return numerics.table_divide(
                _numbers(descriptor), b, a.view(np.float32), descriptor["factor"],
                descriptor["zero_point"], descriptor["low"], descriptor["high"],
            )  # fmt: skip
        if operation in NORMALIZE_OPERATIONS:
            return _normalisation(operation, a, b, descriptor)
        return self._two_sources(operation, a, b, descriptor)

    def _requantize(
        self, vector: Vector, accumulators: NDArray, descriptor: dict, blocks: NDArray[np.uint32]
    ) -> NDArray[np.int8]:
        bias = blocks[:, 0].view(np.int32)[:, None, None]
        clamp = descriptor["zero_point"], descriptor["low"], descriptor["high"]
        if vector.operation in (Operation.REQUANTIZE, Operation.DEPTHWISE):
            multiplier = blocks[:, 1].view(np.float32)[:, None, None]
            return numerics.requantize(accumulators, bias, multiplier, *clamp)
        multiplier = blocks[:, 1].view(np.int32)[:, None, None]
        shift = blocks[:, 2].view(np.int32)[:, None, None]
        return numerics.requantize_fixed(accumulators, bias, multiplier, shift, *clamp)

    def _two_sources(self, operation: Operation, a: NDArray, b: NDArray, descriptor: dict) -> NDArray[np.int8]:
        left = a.astype(np.int64) + 128 * descriptor["a_unsigned"]
        right = b.astype(np.int64) + 128 * descriptor["b_unsigned"]
        low, high = descriptor["low"], descriptor["high"]
        if operation is Operation.ADD:
            result = numerics.add(left, right, descriptor["ra"], descriptor["rb"], descriptor["offset"], low, high)
        elif operation is Operation.MULTIPLY:
            result = numerics.multiply(
                left, right, descriptor["a_zero_point"], descriptor["b_zero_point"],
                descriptor["multiplier"], descriptor["out_zero_point"], low, high,
            )  # fmt: skip
        elif operation is Operation.ADD_FIXED:
            sides = ("a", "b", "out")
            result = numerics.add_fixed(
                left, right,
                tuple(descriptor[f"{side}_multiplier"] for side in sides),
                tuple(descriptor[f"{side}_shift"] for side in sides),
                tuple(descriptor[f"{side}_offset"] for side in sides),
                descriptor["left_shift"], low, high,
            )  # fmt: skip
        else:
            product = (left - descriptor["a_zero_point"]) * (right - descriptor["b_zero_point"])
            scaled = numerics.multiply_by_quantized_multiplier(
                product.astype(np.int32), descriptor["multiplier"], descriptor["shift"]
            )
            result = np.clip(scaled.astype(np.int64) + descriptor["out_zero_point"], low, high)
        return (result - 128 * descriptor["out_unsigned"]).astype(np.int8)


def _normalisation(operation: Operation, a: NDArray, b: NDArray, descriptor: dict) -> NDArray[np.int32]:
    """What a normalisation over the numbers of a place takes: their moments, a root of these, and the numbers by it."""
    if operation is Operation.MOMENTS:
        words = a.reshape(len(a), -1, a.shape[-1])
        return numerics.moments(words, descriptor["zero_point"], descriptor["missing"])[:, None, None]
    if operation is Operation.RECIPROCAL_ROOT:
        epsilon = descriptor["epsilon_high"] << 32 | descriptor["epsilon_low"]
        return numerics.reciprocal_root(a, descriptor["count"], epsilon, bool(descriptor["centred"]))
    return numerics.normalize(b, a, descriptor["zero_point"], descriptor["count"], bool(descriptor["centred"]))


def _numbers(descriptor: dict) -> NDArray[np.float32]:
    """The entries of a table of numbers."""
    return np.array([descriptor[f"entry_{index}"] for index in range(TABLE_ENTRIES)], np.float32)
