"""What each instruction does to the memories: the functional half of the simulator.

Timing never enters here, and values never enter `timing.py`. Instructions execute in program order,
which is a legal order for every program that the validator accepts.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, Protocol

import numpy as np
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import (
    decode_descriptor,
    descriptor_words,
    parameter_words,
)
from npukit.isa.formats import FLOATING, INTEGER, Datapath
from npukit.isa.instructions import (
    REDUCTION_OPERATIONS,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)
from npukit.sim.addressing import Operand, bank_depth, boxes, dram_operand, operands
from npukit.sim.bf16_datapath import Bf16Datapath
from npukit.sim.int8_datapath import Int8Datapath
from numpy.typing import NDArray

__all__ = ["FunctionalError", "FunctionalSimulator"]

_PIECE = 1 << 25
"""Elements that an instruction works on at once: a long loop takes time, not memory."""


class FunctionalError(RuntimeError):
    """An instruction that cannot be executed: an address outside of a memory."""


class DatapathModel(Protocol):
    """What depends on the datapath."""

    def pad(self, value: int) -> np.generic:
        """LOAD's border as an element."""
        ...

    def product(self, rows: NDArray, tiles: NDArray, start: NDArray | None) -> NDArray:
        """[words, depth] times [blocks, depth, array], added to [blocks, words, array]; the same shape."""
        ...

    def fill(self, value: Any, memory: Memory) -> np.generic:
        """FILL's value as a word's element."""
        ...

    def compute(self, vector: Vector, a: NDArray, b: NDArray, descriptor: dict, blocks: NDArray[np.uint32]) -> NDArray:
        """The result [blocks, height, width, array] of a VECTOR operation."""
        ...


_DATAPATHS: dict[Datapath, Callable[[NpuConfig], DatapathModel]] = {INTEGER: Int8Datapath, FLOATING: Bf16Datapath}


class FunctionalSimulator:
    """Memories of one machine and the execution of instructions on them.

    Attributes:
        act, wgt: int8, or bf16 as uint16 [banks, words, array].
        acc: int32, or float32 [banks, words, array].
        par: uint32 [banks, words, array].
        dram: uint8 [bytes], addressed relative to the base register.
    """

    def __init__(self, config: NpuConfig, dram: NDArray[np.uint8]) -> None:
        self.config = config
        self.dram = dram
        self._datapath = _DATAPATHS[config.datapath](config)
        element, accumulator = config.activation.storage, config.accumulator.storage
        dtypes = {Memory.ACT: element, Memory.WGT: element, Memory.ACC: accumulator, Memory.PAR: np.uint32}
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

    def _write(self, operand: Operand, values: NDArray | np.generic) -> None:
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
            values = np.pad(values, border, constant_values=self._datapath.pad(load.pad_value))
        self._write(destination, values)

    def _store(self, store: Store) -> None:
        config = self.config
        (source,) = operands(config, store)
        dram, unit = dram_operand(config, store), config.word_bytes
        for box in boxes((store.planes, store.rows, store.words), max(1, _PIECE // config.array)):
            words = box[2][1] - box[2][0]
            target = self._dram_view(dram.box(box), unit, words, unit)
            target[...] = np.ascontiguousarray(self.read(source.box(box))).view(np.uint8)

    def _matrix(self, matrix: Matrix) -> None:
        act, wgt, *rest = operands(self.config, matrix)
        size = self.config.array
        words = matrix.height * matrix.width
        result = self.read(rest[0]).reshape(matrix.blocks, words, size) if matrix.accumulate else None
        done = 0
        most = max(1, _PIECE // (size * (words + matrix.blocks * size)))
        for box in boxes((matrix.channels, matrix.kernel_height, matrix.kernel_width), most):
            steps = prod(end - first for first, end in box)
            rows = self.read(act.box(((0, matrix.height), (0, matrix.width), *box))).reshape(words, steps * size)
            tiles = self.read(wgt.part(1, done * size, (done + steps) * size))
            # as several instructions would, one after the other
            result = self._datapath.product(rows, tiles.reshape(matrix.blocks, steps * size, size), result)
            done += steps
        assert result is not None
        self._write(rest[-1], result.reshape(matrix.blocks, matrix.height, matrix.width, size))

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
            assert out.memory is not None
            self._write(out, self._datapath.fill(descriptor["value"], out.memory))
            return
        window = vector.window_height * vector.window_width
        # what cannot be cut: the words of a tile, or all those of a sum
        reduces = operation in REDUCTION_OPERATIONS
        rows = vector.height if reduces else 1
        columns = vector.width if reduces or operation is Operation.TRANSPOSE else 1
        counts = (vector.blocks, vector.height // rows, vector.width // columns)
        for box in boxes(counts, max(1, _PIECE // (window * rows * columns * config.array))):
            units = (1, rows, columns)
            read = tuple((first * unit, end * unit) for (first, end), unit in zip(box, units, strict=True))
            part, target = vector, out.box(box if reduces else read)
            if target is not out:
                size = (end - first for first, end in read)
                part = replace(vector, **dict(zip(("blocks", "height", "width"), size, strict=True)))
            a = self.read(found["a"].box(read))
            b = self.read(found["b"].box(read)) if "b" in found else a
            self._write(target, self._datapath.compute(part, a, b, descriptor, blocks[slice(*box[0])]))
