"""A program that stores what another left in the on-chip memories."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import TABLE_ENTRIES, encode_descriptor
from npukit.isa.formats import FLOATING, INTEGER
from npukit.isa.instructions import End, Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.sim.addressing import bank_depth, operands
from npukit.verify.order import order_instructions

__all__ = ["ReadBack", "WrittenWords", "read_back"]

_GAP = 16
"""Words that were not written and are stored all the same, as that is quicker than another instruction."""


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

    The image begins with words of ACT's size that show the memories, as `sections` tell: each memory's words as many
    times as it has names, in all banks. Behind them is what the program itself needs. `mask` tells which of those
    words to compare.
    """

    config: NpuConfig
    instructions: tuple[Instruction, ...]
    image: NDArray[np.uint8]
    mask: NDArray[np.bool_]
    sections: tuple[tuple[Memory, str], ...]

    def place(self, word: int) -> dict[str, Any]:
        """What a word of the image shows: memory, bank, word, and which part of a wide word."""
        for memory, part in self.sections:
            banks, depth = bank_depth(self.config, memory)
            units = self.config.wide_word_units if memory is Memory.PAR else 1
            if word < banks * depth * units:
                at, unit = divmod(word, units)
                part = {"part": part or str(unit)} if part or units > 1 else {}
                return {"what": memory.name, "bank": at // depth, "word": at % depth, **part}
            word -= banks * depth * units
        raise IndexError(word)


def read_back(config: NpuConfig, written: WrittenWords, acc: NDArray) -> ReadBack:
    """The program that stores the written words, with instructions that the machine has anyway.

    WGT comes through a product with the identity. int8: ACC comes through requantisation with shifts, PAR through the
    lookup table. bf16: ACC comes rounded, and less what it should be, `acc`: what rounding hides is then seen. There,
    a column of weights with a NaN or infinity is NaN whole, and PAR is seen through what uses it.
    """
    make = {INTEGER: _Int8ReadBack, FLOATING: _Bf16ReadBack}
    return make[config.datapath](config, written, acc).program()


class _ReadBack:
    sections: tuple[tuple[Memory, str], ...]
    one: Any
    """1 as an element of WGT and ACT."""

    def __init__(self, config: NpuConfig, written: WrittenWords, acc: NDArray) -> None:
        self.config, self.expected = config, acc
        self.written = {memory: self._visible(memory, mask) for memory, mask in written.masks.items()}
        shown = [self._shown(memory) for memory, _ in self.sections]
        self.mask = np.concatenate(shown)
        self.starts = np.cumsum([0, *(len(one) for one in shown)]).tolist()
        self.data: list[NDArray[np.uint8]] = []
        self.size = self.mask.size

    def _visible(self, memory: Memory, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of the words that were written, those that can be shown."""
        return mask

    def _shown(self, memory: Memory) -> NDArray[np.bool_]:
        units = self.config.wide_word_units if memory is Memory.PAR else 1
        return np.repeat(self.written[memory].reshape(-1), units)

    def add_data(self, values: NDArray) -> int:
        """Put values into the image; the DRAM word at which they are."""
        units = self.config.wide_word_units
        words = np.ascontiguousarray(values).view(np.uint8).reshape(-1, self.config.word_bytes)
        gap = -self.size % units
        place = self.size + gap
        self.data.append(np.pad(words, ((gap, 0), (0, 0))))
        self.size = place + len(words)
        return place

    def program(self) -> ReadBack:
        """The program and its image."""
        config = self.config
        instructions: list[Instruction] = []
        for bank, low, count in _runs(self.written[Memory.ACT], config.act_depth):
            instructions.append(
                Store(bank=bank, offset=low, words=count, word_stride=1, dram=bank * config.act_depth + low)
            )
        instructions += self.wide()
        identity = self.add_data((np.eye(config.array) * self.one).astype(np.uint8 if self.one == 1 else np.uint16))
        zero = self.add_data(np.zeros(config.word_bytes, np.uint8))
        instructions += _clear_wgt(config, self.written[Memory.WGT][0], zero)
        instructions += _store_wgt(config, self.written[Memory.WGT], identity, self._start(Memory.WGT))
        shown = np.zeros((self.mask.size, config.word_bytes), np.uint8)
        image = np.concatenate([shown, *self.data]).reshape(-1)
        ordered = (*order_instructions(config, instructions, self.size), End())
        return ReadBack(config, ordered, image, self.mask, self.sections)

    def _start(self, memory: Memory, number: int = 0) -> int:
        places = [start for (one, _), start in zip(self.sections, self.starts, strict=False) if one is memory]
        return places[number]

    def wide(self) -> Iterator[Instruction]:
        """Store ACC and PAR."""
        raise NotImplementedError


class _Int8ReadBack(_ReadBack):
    sections = (
        (Memory.ACT, ""),
        *((Memory.ACC, f"byte {byte}") for byte in (3, 2, 1, 0)),
        (Memory.WGT, ""),
        (Memory.PAR, ""),
    )
    one = 1

    def _visible(self, memory: Memory, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if memory is Memory.PAR:
            mask = mask.copy()
            reads, shown = _table_words(self.config)
            mask[:, mask.shape[1] - (reads - shown) :] = False
        return mask

    def wide(self) -> Iterator[Instruction]:
        config = self.config
        ramp = self.add_data(np.arange(-128, 128).astype(np.int8)[: 4 * _table_words(config)[1] * config.array])
        shifts = _shift_parameters(config)
        parameters = self.add_data(shifts)
        yield from _store_par(config, self.written[Memory.PAR], ramp, self._start(Memory.PAR))
        yield Load(memory=Memory.PAR, dram=parameters, words=len(shifts), word_stride=1)
        staging = _Staging(config, 0, 0)
        for bank, low, count in _runs(self.written[Memory.ACC], config.act_depth):
            for byte in range(4):
                staged = staging.place(count)
                yield Vector(
                    operation=Operation.REQUANTIZE_FIXED, parameters=len(shifts) // 4 * byte, width=count,
                    a_memory=Memory.ACC, a_bank=bank, a_offset=low, a_stride_x=1, out_memory=Memory.ACT,
                    out_stride_x=1, **staged,
                )  # fmt: skip
                yield _store(staged, count, self._start(Memory.ACC, byte) + bank * config.acc_depth + low)


class _Bf16ReadBack(_ReadBack):
    sections = ((Memory.ACT, ""), (Memory.ACC, "rounded"), (Memory.ACC, "less what it should be"), (Memory.WGT, ""))
    one = 0x3F80

    def wide(self) -> Iterator[Instruction]:
        config = self.config
        head = encode_descriptor(config, Operation.REQUANTIZE, {"low": -np.inf, "high": np.inf})
        most = min(config.act_depth, config.par_depth - len(head), 256)
        staging = _Staging(config, 0, 0)
        for bank, low, count in _runs(self.written[Memory.ACC], most):
            source: dict[str, Any] = dict(a_memory=Memory.ACC, a_bank=bank, a_offset=low, out_memory=Memory.ACT)
            dram = bank * config.acc_depth + low
            staged = staging.place(count)
            yield Vector(operation=Operation.CONVERT, width=count, a_stride_x=1, out_stride_x=1, **source, **staged)
            yield _store(staged, count, self._start(Memory.ACC) + dram)
            expected = -np.asarray(self.expected[bank, low : low + count])
            words = np.concatenate([head, expected.view(np.uint32)])
            yield Load(memory=Memory.PAR, dram=self.add_data(words), words=len(words), word_stride=1)
            staged = staging.place(count)
            yield Vector(
                operation=Operation.REQUANTIZE, blocks=count, a_stride_block=1, out_stride_block=1, **source, **staged
            )
            yield _store(staged, count, self._start(Memory.ACC, 1) + dram)


def _shift_parameters(config: NpuConfig) -> NDArray[np.uint32]:
    """PAR words of four requantisations: acc << 8 k, of which a multiplier of 2**7 leaves the highest byte."""
    head = encode_descriptor(config, Operation.REQUANTIZE_FIXED, {"zero_point": 0, "low": -128, "high": 127})
    words = []
    for byte in range(4):
        words += [head, *(np.full((1, config.array), value, np.uint32) for value in (0, 1 << 7, 8 * byte))]
    return np.concatenate(words)


def _table_words(config: NpuConfig) -> tuple[int, int]:
    """PAR words that hold a table of TABLE, and how many of them it fills."""
    lanes = TABLE_ENTRIES // 4
    return -(-lanes // config.array), lanes // config.array


def _store_par(config: NpuConfig, par: NDArray[np.bool_], ramp: int, dram: int) -> Iterator[Instruction]:
    """Take PAR's words as tables, and look all values up whose entries fill whole words."""
    reads, span = _table_words(config)
    words = span * config.wide_word_units
    staging = _Staging(config, ramp, words)
    for _, low, count in _runs(par, config.par_depth):
        for start in range(low, low + count, span):
            first = min(start, config.par_depth - reads)
            yield from staging.constant()
            staged = staging.place(words)
            yield Vector(
                operation=Operation.TABLE, parameters=first, width=words, a_memory=Memory.ACT, a_stride_x=1,
                out_memory=Memory.ACT, out_stride_x=1, **staged,
            )  # fmt: skip
            yield _store(staged, words, dram + first * config.wide_word_units)


def _clear_wgt(config: NpuConfig, wgt: NDArray[np.bool_], zero: int) -> Iterator[Instruction]:
    """Set what was not written near what was to 0: a NaN that another program left would hide its column's weights."""
    reach = config.array + _GAP
    near = np.convolve(wgt, np.ones(2 * reach + 1))[reach : reach + len(wgt)] > 0
    words = np.nonzero(near & ~wgt)[0]
    for run in np.split(words, np.nonzero(np.diff(words) > 1)[0] + 1):
        if len(run):
            yield Load(memory=Memory.WGT, offset=int(run[0]), dram=zero, rows=len(run), row_stride=1, word_stride=1)


def _store_wgt(config: NpuConfig, wgt: NDArray[np.bool_], identity: int, dram: int) -> Iterator[Instruction]:
    """Multiply the identity by WGT's words, as many as ACC and ACT hold."""
    size = config.array
    rows = min(size, config.acc_depth)
    # two of them in ACC at a time, if they fit
    most = max(1, min(config.acc_depth // 2, (config.act_depth - size) // 2) // size)
    staging = _Staging(config, identity, size)
    turn = 0
    for _, low, count in _runs(wgt, config.wgt_depth):
        first = min(low, config.wgt_depth - size)
        tiles = -(-(low + count - first) // size)
        for tile in range(0, tiles, most):
            blocks = min(most, tiles - tile)
            # the last tile may reach over the end: then it begins earlier
            offset = min(first + tile * size, config.wgt_depth - blocks * size)
            for row in range(0, size, rows):
                yield from staging.constant()
                turn ^= 1
                acc = config.acc_depth // 2 if turn and 2 * blocks * rows <= config.acc_depth else 0
                yield Matrix(
                    act_offset=row, act_stride_x=1, wgt_offset=offset, width=rows, blocks=blocks, acc_offset=acc,
                    acc_stride_x=1, acc_stride_block=rows,
                )  # fmt: skip
                staged = staging.place(rows * blocks)
                yield Vector(
                    operation=Operation.CONVERT, width=rows, height=blocks, a_memory=Memory.ACC, a_offset=acc,
                    a_stride_x=1, a_stride_y=rows, out_memory=Memory.ACT, out_stride_x=1, out_stride_y=rows, **staged,
                )  # fmt: skip
                yield _store(staged, rows * blocks, dram + offset + row)


def _runs(written: NDArray[np.bool_], most: int) -> Iterator[tuple[int, int, int]]:
    """(bank, first word, words) around what was written, `most` words or fewer each."""
    for bank, row in enumerate(written):
        words = np.nonzero(row)[0]
        for near in np.split(words, np.nonzero(np.diff(words) > _GAP)[0] + 1):
            if len(near):
                end = int(near[-1]) + 1
                for low in range(int(near[0]), end, most):
                    yield bank, low, min(most, end - low)


class _Staging:
    """Words of ACT, whose own have been stored, on the way from elsewhere to DRAM.

    A constant stays in them where there is room, and what is stored next goes elsewhere than what is stored now: so
    that the engines work at the same time.
    """

    def __init__(self, config: NpuConfig, constant: int, words: int) -> None:
        """For one constant, `words` words in DRAM from `constant` on."""
        self._load = Load(memory=Memory.ACT, dram=constant, words=words, word_stride=1)
        self._depth, self._banks = config.act_depth, config.act_banks
        self._kept = words if config.act_banks > 1 or config.act_depth >= 3 * words else 0
        self._loaded = False
        self._turn = 0

    def constant(self) -> Iterator[Instruction]:
        """What loads the constant to word 0 of bank 0, if it is not there."""
        if not self._loaded:
            yield self._load
        self._loaded = bool(self._kept)

    def place(self, words: int) -> dict[str, Any]:
        """Bank and first word for `words` words, as VECTOR's result."""
        places = []
        for bank in range(self._banks):
            low = 0 if bank else self._kept
            places += [(bank, low + k * words) for k in range(min(2, (self._depth - low) // words))]
        if not places:  # only where nothing is kept
            places = [(0, 0)]
        self._turn += 1
        bank, offset = places[self._turn % len(places)]
        return {"out_bank": bank, "out_offset": offset}


def _store(staged: dict[str, Any], words: int, dram: int) -> Store:
    return Store(bank=staged["out_bank"], offset=staged["out_offset"], words=words, word_stride=1, dram=dram)
