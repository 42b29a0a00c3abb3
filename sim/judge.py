"""The judge: examines a program for what hardware could not do reliably, and names the instructions.

Order between instructions is what tokens, drains and program order guarantee under any legal timing:
`known[e]` of an instruction counts the instructions of engine e that must have ended before it issues.
Engines execute in order and their writes happen in order.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from npukit.isa.assembly import format_instruction
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import (
    ENGINES,
    Engine,
    Instruction,
    InstructionError,
    Load,
    Matrix,
    Memory,
    Store,
    encode,
)
from npukit.isa.legality import illegal_mode
from npukit.isa.timing import TOKEN_LIMIT
from npukit.sim.addressing import Operand, bank_depth, dram_operand, operands
from numpy.typing import NDArray

__all__ = ["Finding", "JudgeError", "judge", "refuse"]


@dataclass(frozen=True)
class Finding:
    """One fault: the rule, the instructions concerned (the later one first), and the sentence."""

    rule: str
    instructions: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        return self.message


class JudgeError(ValueError):
    """A program that breaks the machine's rules."""

    def __init__(self, findings: list[Finding]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{findings[0]}{more}")
        self.findings = findings


def refuse(findings: list[Finding]) -> None:
    """Raise JudgeError if there are findings."""
    if findings:
        raise JudgeError(findings)


def judge(
    config: NpuConfig,
    instructions: Sequence[Instruction],
    dram_bytes: int,
    initialised: Sequence[tuple[int, int]] = (),
    limit: int = 20,
) -> list[Finding]:
    """Examine a program; an empty list means that it is sound.

    Args:
        dram_bytes: size of the DRAM range that the program may touch.
        initialised: (first byte, bytes) of the ranges that hold data when it starts.
        limit: findings after which to stop.
    """
    return _Judge(config, instructions, dram_bytes, initialised, limit).run()


class _Judge:
    def __init__(
        self,
        config: NpuConfig,
        instructions: Sequence[Instruction],
        dram_bytes: int,
        initialised: Sequence[tuple[int, int]],
        limit: int,
    ) -> None:
        self.config = config
        self.instructions = instructions
        self.dram_words = dram_bytes // config.word_bytes
        self.initialised = initialised
        self.limit = limit
        self.findings: list[Finding] = []
        self.accesses: list[tuple[Operand, ...]] = []
        """What instruction i touches, once each has been looked at by itself."""
        count = len(instructions)
        self.known = np.zeros((count, len(ENGINES)), np.int64)
        """Instructions of each engine that have ended before instruction i issues."""
        self.number = np.zeros(count, np.int64)
        """Number of instruction i among its engine's."""

    def run(self) -> list[Finding]:
        self._static()
        if not self.findings:
            self._tokens()
        if not self.findings:
            self._memory()
        return self.findings

    def _name(self, index: int) -> str:
        return f"instruction {index} ({format_instruction(self.instructions[index])})"

    def _find(self, rule: str, indices: tuple[int, ...], message: str) -> None:
        if len(self.findings) < self.limit:
            self.findings.append(Finding(rule, indices, message))

    # ---- each instruction by itself

    def _static(self) -> None:
        ends = [index for index, one in enumerate(self.instructions) if one.engine is None]
        if ends != [len(self.instructions) - 1]:
            self._find("end", tuple(ends), "a program has exactly one END, its last instruction")
        for index, instruction in enumerate(self.instructions):
            try:
                encode(instruction)
            except InstructionError as error:
                self._find("encoding", (index,), f"instruction {index}: {error}")
                continue
            illegal = illegal_mode(self.config, instruction)
            if illegal is not None:
                self._find("mode", (index,), f"{self._name(index)}: {illegal}")
                continue
            accesses = operands(self.config, instruction)
            for operand in accesses:
                self._bounds(index, operand)
            self.accesses.append(accesses)
            if isinstance(instruction, Load | Store):
                dram = dram_operand(self.config, instruction)
                self.accesses[-1] = (*accesses, dram)
                low, high = dram.extent
                if low < 0 or high >= self.dram_words:
                    self._find(
                        "dram address", (index,),
                        f"{self._name(index)}: DRAM words {low} to {high} are outside of the program's "
                        f"{self.dram_words} words",
                    )  # fmt: skip

    def _bounds(self, index: int, operand: Operand) -> None:
        memory = operand.memory
        assert memory is not None
        banks, depth = bank_depth(self.config, memory)
        low, high = operand.extent
        if operand.bank >= banks:
            self._find(
                "bank", (index,),
                f"{self._name(index)}: {operand.name} is in bank {operand.bank} of {memory.name}, "
                f"which has {banks}",
            )  # fmt: skip
        elif low < 0 or high >= depth:
            self._find(
                "bank", (index,),
                f"{self._name(index)}: {operand.name} spans words {low} to {high}, across the end of a "
                f"{memory.name} bank of {depth} words",
            )  # fmt: skip

    # ---- tokens: legal order, overflow, and what each instruction knows

    def _tokens(self) -> None:
        waiting: dict[tuple[int, int], deque[int]] = {(a, b): deque() for a in ENGINES for b in ENGINES if a != b}
        waits: dict[tuple[int, int], list[int]] = {pair: [] for pair in waiting}
        signals: dict[tuple[int, int], list[int]] = {pair: [] for pair in waiting}
        latest = [-1] * len(ENGINES)
        issued = np.zeros(len(ENGINES), np.int64)
        for index, instruction in enumerate(self.instructions):
            engine = instruction.engine
            if engine is None:
                continue
            self.number[index] = issued[engine]
            known = self.known[index]
            if latest[engine] >= 0:
                known[:] = self.known[latest[engine]]
            if instruction.drain:
                known[engine] = issued[engine]
            for source in ENGINES:
                if instruction.wait >> source & 1:
                    if not waiting[source, engine]:
                        self._find(
                            "order", (index,),
                            f"{self._name(index)} waits for a token of {source.name} that no earlier "
                            "instruction signals",
                        )  # fmt: skip
                        continue
                    signaller = waiting[source, engine].popleft()
                    np.maximum(known, self.known[signaller], out=known)
                    known[source] = max(known[source], self.number[signaller] + 1)
                    waits[source, engine].append(index)
            for target in ENGINES:
                if instruction.signal >> target & 1:
                    self._overflow(index, engine, target, signals, waits)
                    signals[engine, target].append(index)
                    waiting[engine, target].append(index)
            latest[engine] = index
            issued[engine] += 1

    def _overflow(
        self, index: int, engine: Engine, target: Engine,
        signals: dict[tuple[int, int], list[int]], waits: dict[tuple[int, int], list[int]],
    ) -> None:  # fmt: skip
        """Count the tokens that could be there when this signal comes, whatever the timing."""
        taken = 0
        waiters = waits[engine, target]
        for position in range(len(waiters) - 1, -1, -1):
            # a waiter that must have ended before this instruction issued has taken its token
            if self.number[waiters[position]] < self.known[index, target]:
                taken = position + 1
                break
        if len(signals[engine, target]) + 1 - taken > TOKEN_LIMIT:
            self._find(
                "token overflow", (index,),
                f"{self._name(index)} could be the signal number {TOKEN_LIMIT + 1} from {engine.name} "
                f"that {target.name} has not taken",
            )  # fmt: skip

    # ---- memory: races and unwritten words

    def _memory(self) -> None:
        state = _MemoryState(self)
        for index, instruction in enumerate(self.instructions):
            if instruction.engine is None or len(self.findings) >= self.limit:
                continue
            reads = [access for access in self.accesses[index] if not access.write]
            writes = [access for access in self.accesses[index] if access.write]
            for access in reads:
                state.read(index, access)
            for access in writes:
                self._overlap(index, reads, access)
                state.write(index, access)

    def _overlap(self, index: int, reads: list[Operand], out: Operand) -> None:
        """Within one instruction: words written twice, or read after they may have been overwritten."""
        run = out.run
        alone = all((one.memory, one.bank) != (out.memory, out.bank) or one.memory is None for one in reads)
        if run is not None and run[1] - run[0] == out.count and alone:
            return
        words = out.words()
        flat = words.reshape(-1)
        low, high = int(flat.min()), int(flat.max())
        position = np.full(high - low + 1, -1, np.int64)
        position[flat - low] = np.arange(flat.size)
        if np.count_nonzero(position >= 0) != flat.size:
            self._find("overlap", (index,), f"{self._name(index)}: {out.name} holds a word twice")
            return
        for access in reads:
            if (access.memory, access.bank) != (out.memory, out.bank) or access.memory is None:
                continue
            if isinstance(self.instructions[index], Matrix):
                continue
            source = access.words()
            order = np.arange(flat.size).reshape(words.shape)
            order = order.reshape(words.shape + (1,) * (source.ndim - words.ndim))
            inside = (source >= low) & (source <= high)
            written = np.where(inside, position[np.where(inside, source - low, 0)], -1)
            if ((written >= 0) & (written < order)).any():
                self._find(
                    "overlap", (index,),
                    f"{self._name(index)}: overwrites words of {access.name} before it reads them",
                )  # fmt: skip


def _distinct(values: NDArray[np.integer]) -> NDArray[np.integer]:
    """The distinct values, of which there is mostly one."""
    first = values.reshape(-1)[:1]
    return first if (values == first).all() else np.unique(values)


class _MemoryState:
    """Per word: who wrote it last, and who has read it since, engine by engine."""

    def __init__(self, owner: _Judge) -> None:
        self.owner = owner
        self.number: list[int] = owner.number.tolist()
        self.known: list[list[int]] = owner.known.tolist()
        sizes = {memory: bank_depth(owner.config, memory) for memory in Memory}
        self.offsets: dict[Memory | None, int] = {}
        total = 0
        for memory, (banks, depth) in sizes.items():
            self.offsets[memory] = total
            total += banks * depth
        self.depths = {memory: depth for memory, (_, depth) in sizes.items()}
        self.offsets[None] = total
        total += owner.dram_words
        self.writer = np.full(total, -2, np.int32)  # -2: never written, -1: before the program
        self.reader = np.full((len(ENGINES), total), -1, np.int32)
        unit = owner.config.word_bytes
        for start, size in owner.initialised:
            first = self.offsets[None] + start // unit
            self.writer[first : self.offsets[None] + -(-(start + size) // unit)] = -1

    def _base(self, access: Operand) -> int:
        """Position of the first word of the operand's bank, or of DRAM."""
        bank_words = access.bank * self.depths[access.memory] if access.memory is not None else 0
        return self.offsets[access.memory] + bank_words

    def _where(self, access: Operand) -> str:
        return "DRAM" if access.memory is None else f"{access.memory.name} bank {access.bank}"

    def _words(self, access: Operand) -> slice | NDArray[np.int64]:
        """The operand's positions: a slice where they follow each other, which is much faster."""
        base, run = self._base(access), access.run
        if run is not None:
            return slice(base + run[0], base + run[1])
        return access.words().reshape(-1) + base

    @staticmethod
    def _first(words: slice | NDArray[np.int64], chosen: NDArray[np.bool_]) -> int:
        """The first position that is chosen."""
        at = int(np.argmax(chosen))
        return words.start + at if isinstance(words, slice) else int(words[at])

    def _ordered(self, index: int, earlier: int) -> bool:
        """Whether instruction `earlier` must have ended before instruction `index` issues."""
        engine = self.owner.instructions[earlier].engine
        assert engine is not None
        return self.number[earlier] < self.known[index][engine]

    def _same_traversal(self, index: int, earlier: int) -> bool:
        """Whether two MATRIX instructions walk the accumulators alike, so that each word's next
        update comes at least H cycles after its last."""
        one, two = self.owner.instructions[index], self.owner.instructions[earlier]
        names = (
            "acc_bank", "acc_offset", "acc_stride_block", "acc_stride_y", "acc_stride_x",
            "blocks", "height", "width",
        )  # fmt: skip
        return all(getattr(one, name) == getattr(two, name) for name in names)

    def _race(self, index: int, earlier: int, access: Operand, word: int, kind: str) -> None:
        self.owner._find(
            "race", (index, earlier),
            f"race in {self._where(access)}: {self.owner._name(index)} {kind} by {self.owner._name(earlier)} "
            f"(word {word - self._base(access)}, {access.name}), with no order between them",
        )  # fmt: skip

    def read(self, index: int, access: Operand) -> None:
        words = self._words(access)
        writers = self.writer[words]
        engine = self.owner.instructions[index].engine
        assert engine is not None
        for writer in _distinct(writers).tolist():
            if writer == -1:
                continue
            if writer == -2:
                word = self._first(words, writers == -2) - self._base(access)
                self.owner._find(
                    "unwritten", (index,),
                    f"{self.owner._name(index)}: {access.name} reads word {word} of {self._where(access)}, "
                    "which nothing has written",
                )  # fmt: skip
                return
            if self._ordered(index, writer):
                continue
            same = self.owner.instructions[writer].engine is engine
            if same and engine is Engine.MATRIX and self._same_traversal(index, writer):
                continue
            word = self._first(words, writers == writer)
            self._race(index, writer, access, word, "reads what is written")
            return
        self.reader[engine][words] = index

    def write(self, index: int, access: Operand) -> None:
        words = self._words(access)
        mine = self.owner.instructions[index].engine
        for writer in _distinct(self.writer[words]).tolist():
            if writer < 0 or self.owner.instructions[writer].engine is mine:
                continue  # an engine's own writes happen in order
            if not self._ordered(index, writer):
                word = self._first(words, self.writer[words] == writer)
                self._race(index, writer, access, word, "overwrites what is written")
                return
        readers = self.reader[:, words]
        alike = readers[:, :1]
        if (readers == alike).all():
            found = alike.tolist()
        else:
            found = [_distinct(row).tolist() for row in readers]
        for engine, latest in zip(ENGINES, found, strict=True):
            if engine is mine:
                continue  # an engine reads before its later instructions write
            for reader in latest:
                if reader >= 0 and not self._ordered(index, reader):
                    word = self._first(words, readers[engine] == reader)
                    self._race(index, reader, access, word, "overwrites what is read")
                    return
        self.writer[words] = index
        self.reader[:, words] = -1
