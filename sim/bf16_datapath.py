"""The bf16 datapath's half of the functional simulator."""

from typing import Any

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import TABLE_ENTRIES, Indexing, block_parameters, unpack_taps
from npukit.isa.instructions import Memory, Operation, Vector
from npukit.sim import bfloat16
from numpy.typing import NDArray

__all__ = ["Bf16Datapath"]


class Bf16Datapath:
    """bfloat16 elements as uint16, float32 accumulators."""

    def __init__(self, config: NpuConfig) -> None:
        self.config = config

    def pad(self, value: int) -> np.uint16:
        """A bit pattern."""
        return np.uint16(value & 0xFFFF)

    def fill(self, value: Any, memory: Memory) -> np.generic:
        """float32 for ACC, rounded for ACT and WGT."""
        number = np.array([value], np.float32)
        return bfloat16.canonical(bfloat16.flush(number))[0] if memory is Memory.ACC else bfloat16.narrow(number)[0]

    def product(self, rows: NDArray, tiles: NDArray, start: NDArray | None) -> NDArray[np.float32]:
        """Sums in the array's order."""
        blocks, depth, size = tiles.shape
        tall = self.config.rows
        before = np.zeros((blocks, len(rows), size), np.float32) if start is None else bfloat16.flush(start)
        result = np.empty_like(before)
        bfloat16.matrix_product(
            bfloat16.widen(rows).reshape(len(rows), -1, tall),
            bfloat16.widen(tiles).reshape(blocks, -1, tall, size),
            np.ascontiguousarray(before),
            result,
        )
        return bfloat16.canonical(result)

    def compute(self, vector: Vector, a: NDArray, b: NDArray, descriptor: dict, blocks: NDArray[np.uint32]) -> NDArray:
        """The result [blocks, height, width, array] of a VECTOR operation."""
        if vector.operation is Operation.COPY:
            return a.copy()
        if vector.operation is Operation.PART:
            return (a.view(np.uint32) >> np.uint32(16 * descriptor["part"])).astype(np.uint16)
        if vector.operation is Operation.TRANSPOSE:
            return a.swapaxes(2, 3)
        result = bfloat16.canonical(self._float(vector, self._widened(a), self._widened(b), descriptor, blocks))
        return result if vector.out_memory is Memory.ACC else bfloat16.narrow(result)

    @staticmethod
    def _widened(values: NDArray) -> NDArray[np.float32]:
        return bfloat16.widen(values) if values.dtype == np.uint16 else bfloat16.flush(values)

    def _float(
        self, vector: Vector, a: NDArray[np.float32], b: NDArray[np.float32], descriptor: dict,
        blocks: NDArray[np.uint32],
    ) -> NDArray[np.float32]:  # fmt: skip
        operation = vector.operation
        if operation is Operation.CONVERT:
            return a
        if operation is Operation.FUNCTION:
            return _function(a, descriptor)
        if operation is Operation.MAX:
            return bfloat16.maximum(a)
        if operation is Operation.SUM:
            result = bfloat16.window_sum(a)
            if vector.out_memory is Memory.ACC:
                return result
            result = bfloat16.multiply(result, descriptor["multiplier"])
        elif operation is Operation.ADD:
            result = bfloat16.add(a, b)
        elif operation is Operation.MULTIPLY:
            result = bfloat16.multiply(a, b)
        else:
            if operation is Operation.DEPTHWISE:
                a = bfloat16.window_sum(bfloat16.weigh(a, self._taps(vector, blocks)))
            result = bfloat16.add(a, blocks[:, 0].view(np.float32)[:, None, None])
        return bfloat16.clamp(result, descriptor["low"], descriptor["high"])

    def _taps(self, vector: Vector, blocks: NDArray[np.uint32]) -> NDArray[np.float32]:
        """[blocks, 1, 1, rows, columns, array]."""
        rows, columns = vector.window_height, vector.window_width
        first = len(block_parameters(self.config, vector.operation))
        taps = np.stack([unpack_taps(self.config, block[first:], rows * columns) for block in blocks])
        return bfloat16.widen(taps).reshape(len(blocks), 1, 1, rows, columns, -1)


def _function(values: NDArray[np.float32], descriptor: dict) -> NDArray[np.float32]:
    slopes, intercepts = (
        np.array([descriptor[f"{name}_{index}"] for index in range(TABLE_ENTRIES)], np.float32)
        for name in ("slope", "intercept")
    )
    # the hardware decodes three of the four values of the field; the last one counts as the first
    indexing = Indexing(descriptor["indexing"] % len(Indexing))
    return bfloat16.function(values, slopes, intercepts, indexing, descriptor["step"], descriptor["offset"])
