"""What each instruction does to the memories: the functional half of the simulator, int8 datapath.

Timing never enters here, and values never enter `timing.py`. Instructions execute in program order,
which is a legal order for every program that the judge accepts.
"""

from collections.abc import Callable

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import (
    block_parameters,
    decode_descriptor,
    descriptor_words,
    parameter_words,
    unpack_taps,
)
from npukit.isa.instructions import Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.sim import numerics
from npukit.sim.addressing import Operand, bank_depth, dram_operand, operands
from numpy.typing import NDArray

__all__ = ["FunctionalError", "FunctionalSimulator"]

_EXACT_CHUNK = 1024
"""Longest int8 reduction whose fp32 sums are exact: 1024 * 128 * 128 = 2**24."""


class FunctionalError(RuntimeError):
    """An instruction that cannot be executed: an address outside of a memory, a mode of another dtype."""


class FunctionalSimulator:
    """Memories of one machine and the execution of instructions on them.

    Attributes:
        act, wgt: int8 [banks, words, array].
        acc: int32 [banks, words, array].
        par: uint32 [banks, words, array].
        dram: uint8 [bytes], addressed relative to the base register.
    """

    def __init__(self, config: NpuConfig, dram: NDArray[np.uint8]) -> None:
        if config.dtype != "int8":
            raise FunctionalError(f"the functional simulator computes int8; the configuration is {config.dtype}")
        self.config = config
        self.dram = dram
        dtypes = {Memory.ACT: np.int8, Memory.WGT: np.int8, Memory.ACC: np.int32, Memory.PAR: np.uint32}
        self._memories: dict[Memory, NDArray] = {
            memory: np.zeros((*bank_depth(config, memory), config.array), dtype) for memory, dtype in dtypes.items()
        }
        self.act, self.wgt = self._memories[Memory.ACT], self._memories[Memory.WGT]
        self.acc, self.par = self._memories[Memory.ACC], self._memories[Memory.PAR]
        self._execute: dict[type[Instruction], Callable] = {
            Load: self._load,
            Matrix: self._matrix,
            Vector: self._vector,
            Store: self._store,
        }

    def execute(self, instruction: Instruction) -> None:
        """Execute one instruction; END does nothing.

        Raises:
            FunctionalError: an operand outside of its memory or of DRAM.
        """
        execute = self._execute.get(type(instruction))
        if execute is not None:
            execute(instruction)

    def _view(self, operand: Operand) -> NDArray:
        """The operand's words [*loops, array] as a view of the memory (not for rings that wrap)."""
        memory = self._memories[operand.memory or Memory.ACT]
        self._check(operand, memory.shape[0], memory.shape[1])
        bank = memory[operand.bank]
        word, element = bank.strides
        return np.ndarray(
            shape=(*(count for count, _ in operand.loops), bank.shape[1]),
            dtype=bank.dtype,
            buffer=bank.data,
            offset=operand.offset * word,
            strides=(*(stride * word for _, stride in operand.loops), element),
        )

    def _check(self, operand: Operand, banks: int, depth: int) -> None:
        low, high = operand.extent
        if operand.bank >= banks or low < 0 or high >= depth:
            name = operand.memory.name if operand.memory is not None else "DRAM"
            raise FunctionalError(
                f"{operand.name}: words {low} to {high} of {name} bank {operand.bank} "
                f"are outside of {banks} banks of {depth} words"
            )

    def read(self, operand: Operand) -> NDArray:
        """Words [*loops, array] of an on-chip operand."""
        if not operand.wraps:
            return self._view(operand)
        memory = self._memories[operand.memory or Memory.ACT]
        self._check(operand, memory.shape[0], memory.shape[1])
        return memory[operand.bank][operand.words()]

    def _write(self, operand: Operand, values: NDArray | np.integer) -> None:
        if not operand.wraps:
            self._view(operand)[...] = values
            return
        memory = self._memories[operand.memory or Memory.ACT]
        self._check(operand, memory.shape[0], memory.shape[1])
        memory[operand.bank][operand.words()] = values

    def _dram_view(self, operand: Operand, unit: int, words: int, word_bytes: int) -> NDArray[np.uint8]:
        """DRAM bytes [planes, rows, words, word_bytes] of a LOAD's or STORE's operand."""
        low, high = operand.extent
        if low < 0 or (high + 1) * unit > self.dram.size:
            raise FunctionalError(
                f"DRAM words {low} to {high} are outside of the {self.dram.size // unit} words of the program"
            )
        (planes, plane_stride), (rows, row_stride), _ = operand.loops
        return np.ndarray(
            shape=(planes, rows, words, word_bytes),
            dtype=np.uint8,
            buffer=self.dram.data,
            offset=operand.offset * unit,
            strides=(plane_stride * unit, row_stride * unit, word_bytes, 1),
        )

    def _load(self, load: Load) -> None:
        config = self.config
        (destination,) = operands(config, load)
        memory = self._memories[load.memory]
        word_bytes = memory.itemsize * config.array
        source = self._dram_view(dram_operand(config, load), config.word_bytes, load.words, word_bytes)
        values = np.ascontiguousarray(source).view(memory.dtype)
        if load.pad_top or load.pad_bottom or load.pad_left or load.pad_right:
            border = (
                (0, 0),
                (load.pad_top, load.pad_bottom),
                (load.pad_left, load.pad_right),
                (0, 0),
            )
            pad = np.uint8(load.pad_value & 0xFF).astype(np.int8)
            values = np.pad(values, border, constant_values=pad)
        self._write(destination, values)

    def _store(self, store: Store) -> None:
        config = self.config
        (source,) = operands(config, store)
        target = self._dram_view(dram_operand(config, store), config.word_bytes, store.words, config.word_bytes)
        target[...] = np.ascontiguousarray(self.read(source)).view(np.uint8)

    def _matrix(self, matrix: Matrix) -> None:
        act, wgt, *rest = operands(self.config, matrix)
        size = self.config.array
        words = matrix.height * matrix.width
        depth = matrix.channels * matrix.kernel_height * matrix.kernel_width * size
        rows = self.read(act).reshape(words, depth)
        tiles = self.read(wgt).reshape(matrix.blocks, depth, size)
        weights = np.ascontiguousarray(tiles.transpose(1, 0, 2)).reshape(depth, matrix.blocks * size)
        total = np.zeros((words, matrix.blocks * size), np.int32)
        for start in range(0, depth, _EXACT_CHUNK):
            chunk = slice(start, start + _EXACT_CHUNK)
            product = rows[:, chunk].astype(np.float32) @ weights[chunk].astype(np.float32)
            total += product.astype(np.int32)
        result = total.reshape(matrix.height, matrix.width, matrix.blocks, size).transpose(2, 0, 1, 3)
        if matrix.accumulate:
            result = result + self.read(rest[0])
        self._write(rest[-1], result)

    def _vector(self, vector: Vector) -> None:
        config, operation = self.config, vector.operation
        found = {operand.name: operand for operand in operands(config, vector)}
        head = descriptor_words(config, vector)
        per_block = parameter_words(config, vector)
        words = np.zeros((0, config.array), np.uint32)
        if "parameters" in found:
            words = self.read(found["parameters"])
        descriptor = decode_descriptor(config, operation, words[:head]) if head else {}
        blocks = words[head:].reshape(vector.blocks, per_block, config.array)
        out = found["out"]
        if operation is Operation.FILL:
            value = int(descriptor["value"])
            self._write(out, np.uint32(value & 0xFFFFFFFF).astype(np.int32) if out.memory is Memory.ACC
                        else np.uint8(value & 0xFF).astype(np.int8))  # fmt: skip
            return
        a = self.read(found["a"])
        b = self.read(found["b"]) if "b" in found else a
        self._write(out, self._compute(vector, a, b, descriptor, blocks))

    def _compute(self, vector: Vector, a: NDArray, b: NDArray, descriptor: dict, blocks: NDArray[np.uint32]) -> NDArray:
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
            table = np.array([descriptor[f"entry_{index}"] for index in range(256)], np.int8)
            return table[a.astype(np.int16) + 128]
        if operation is Operation.CONVERT:
            return a.astype(np.int32) if vector.out_memory is Memory.ACC else numerics.saturate(a, -128, 127)
        if operation is Operation.COPY:
            return a.copy()
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
