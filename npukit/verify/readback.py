"""A program that stores what another left in the on-chip memories."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import encode_descriptor
from npukit.isa.instructions import End, Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.isa.timing import TABLE_LOAD_CYCLES
from npukit.sim.addressing import bank_depth, operands
from npukit.verify.generator import order_instructions

__all__ = ["ReadBack", "WrittenWords", "read_back"]

_TABLE_ENTRIES = 4 * TABLE_LOAD_CYCLES


class WrittenWords:
    """Which words of each on-chip memory a program wrote: masks [banks, words]."""

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        self.masks = {memory: np.zeros(bank_depth(config, memory), bool) for memory in Memory}

    def mark(self, instruction: Instruction) -> None:
        """Note what an instruction writes."""
        for operand in operands(self._config, instruction):
            if operand.write and operand.memory is not None:
                self.masks[operand.memory][operand.bank, operand.words()] = True


@dataclass(frozen=True)
class ReadBack:
    """A program, its DRAM image, and what that is about.

    The image begins with ACT's words, the four bytes of ACC's words, the highest first, WGT's words and the
    bytes of PAR's; behind them is what the program itself needs. `mask` tells which of those words to compare.
    """

    config: NpuConfig
    instructions: tuple[Instruction, ...]
    image: NDArray[np.uint8]
    mask: NDArray[np.bool_]

    def place(self, word: int) -> dict[str, Any]:
        """What a word of the image shows: memory, bank, word, and which of a wide word's bytes or parts."""
        for memory, copies in ((Memory.ACT, 1), (Memory.ACC, 4), (Memory.WGT, 1)):
            banks, depth = bank_depth(self.config, memory)
            if word < copies * banks * depth:
                byte, at = divmod(word, banks * depth)
                part = {"byte": 3 - byte} if memory is Memory.ACC else {}
                return {"what": memory.name, "bank": at // depth, "word": at % depth, **part}
            word -= copies * banks * depth
        at, part = divmod(word, self.config.wide_word_units)
        return {"what": "PAR", "bank": 0, "word": at, "part": part}


def read_back(config: NpuConfig, written: WrittenWords) -> ReadBack:
    """The program that stores the written words. It uses instructions that the machine has anyway: ACC goes
    through requantisation with shifts, WGT through a product with the identity, PAR through the lookup table.
    """
    act, acc, wgt, par = (written.masks[memory] for memory in (Memory.ACT, Memory.ACC, Memory.WGT, Memory.PAR))
    mask = np.concatenate(
        [
            act.reshape(-1),
            np.tile(acc, (4, 1, 1)).reshape(-1),
            wgt.reshape(-1),
            np.repeat(par.reshape(-1), config.wide_word_units),
        ]
    )
    acc_at = act.size
    wgt_at = acc_at + 4 * acc.size
    par_at = wgt_at + wgt.size
    shifts = _shift_parameters(config)
    inputs = {
        "shifts": shifts.view(np.uint8),
        "identity": np.eye(config.array, dtype=np.uint8),
        "ramp": np.arange(-128, 128).astype(np.int8).view(np.uint8),
    }
    places, size = {}, mask.size
    for name, data in inputs.items():
        size = -(-size // config.wide_word_units) * config.wide_word_units
        places[name] = size
        size += data.size // config.word_bytes
    image = np.zeros((size, config.word_bytes), np.uint8)
    for name, data in inputs.items():
        words = data.reshape(-1, config.word_bytes)
        image[places[name] : places[name] + len(words)] = words

    instructions: list[Instruction] = []
    for bank, low, count in _runs(act, config.act_depth):
        instructions.append(
            Store(bank=bank, offset=low, words=count, word_stride=1, dram=bank * config.act_depth + low)
        )
    instructions += _store_par(config, par, places["ramp"], par_at)
    instructions.append(Load(memory=Memory.PAR, dram=places["shifts"], words=len(shifts), word_stride=1))
    for bank, low, count in _runs(acc, config.act_depth):
        for byte in range(4):
            dram = acc_at + byte * acc.size + bank * config.acc_depth + low
            instructions += [
                Vector(
                    operation=Operation.REQUANTIZE_FIXED, parameters=len(shifts) // 4 * byte, width=count,
                    a_memory=Memory.ACC, a_bank=bank, a_offset=low, a_stride_x=1, out_memory=Memory.ACT,
                    out_stride_x=1,
                ),
                Store(words=count, word_stride=1, dram=dram),
            ]  # fmt: skip
    instructions += _store_wgt(config, wgt, places["identity"], wgt_at)
    return ReadBack(config, (*order_instructions(config, instructions), End()), image.reshape(-1), mask)


def _shift_parameters(config: NpuConfig) -> NDArray[np.uint32]:
    """PAR words of four requantisations: acc << 8 k, of which a multiplier of 2**7 leaves the highest byte."""
    head = encode_descriptor(config, Operation.REQUANTIZE_FIXED, {"zero_point": 0, "low": -128, "high": 127})
    words = []
    for byte in range(4):
        words += [head, *(np.full((1, config.array), value, np.uint32) for value in (0, 1 << 7, 8 * byte))]
    return np.concatenate(words)


def _store_par(config: NpuConfig, par: NDArray[np.bool_], ramp: int, dram: int) -> Iterator[Instruction]:
    """Take PAR's words as tables, and look all 256 values up."""
    words = _TABLE_ENTRIES // config.array
    span = words // config.wide_word_units
    for _, low, count in _runs(par, config.par_depth):
        for start in range(low, low + count, span):
            first = min(start, config.par_depth - span)
            yield Load(memory=Memory.ACT, dram=ramp, words=words, word_stride=1)
            yield Vector(
                operation=Operation.TABLE, parameters=first, width=words, a_memory=Memory.ACT, a_stride_x=1,
                out_memory=Memory.ACT, out_stride_x=1,
            )  # fmt: skip
            yield Store(words=words, word_stride=1, dram=dram + first * config.wide_word_units)


def _store_wgt(config: NpuConfig, wgt: NDArray[np.bool_], identity: int, dram: int) -> Iterator[Instruction]:
    """Multiply the identity by WGT's words, as many as ACC and ACT hold."""
    size = config.array
    rows = min(size, config.acc_depth)
    most = max(1, min(config.acc_depth, config.act_depth) // size)
    for _, low, count in _runs(wgt, config.wgt_depth):
        first = min(low, config.wgt_depth - size)
        tiles = -(-(low + count - first) // size)
        for tile in range(0, tiles, most):
            blocks = min(most, tiles - tile)
            # the last tile may reach over the end: then it begins earlier
            offset = min(first + tile * size, config.wgt_depth - blocks * size)
            for row in range(0, size, rows):
                yield Load(memory=Memory.ACT, dram=identity, words=size, word_stride=1)
                yield Matrix(
                    act_offset=row, act_stride_x=1, wgt_offset=offset, width=rows, blocks=blocks, acc_stride_x=1,
                    acc_stride_block=rows,
                )  # fmt: skip
                yield Vector(
                    operation=Operation.CONVERT, width=rows, height=blocks, a_memory=Memory.ACC, a_stride_x=1,
                    a_stride_y=rows, out_memory=Memory.ACT, out_stride_x=1, out_stride_y=rows,
                )  # fmt: skip
                yield Store(words=rows * blocks, word_stride=1, dram=dram + offset + row)


def _runs(written: NDArray[np.bool_], most: int) -> Iterator[tuple[int, int, int]]:
    """(bank, first word, words) around what was written, `most` words or fewer each."""
    for bank, row in enumerate(written):
        words = np.nonzero(row)[0]
        if len(words):
            end = int(words[-1]) + 1
            for low in range(int(words[0]), end, most):
                yield bank, low, min(most, end - low)
