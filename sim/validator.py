"""The validator: examines a program for what hardware could not do reliably, and names the instructions.

Order between instructions is what tokens, drains and program order guarantee under any legal timing:
`known[e]` of an instruction counts the instructions of engine e that must have ended before it issues.
Engines execute in order and their writes happen in order.

Whatever the instructions are, validating takes time and memory by the words of the memories and of DRAM that they
touch: no loop is walked whose passes come to the same words again.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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
from npukit.isa.limits import Limits
from npukit.isa.program import Program, TensorInfo
from npukit.isa.timing import TOKEN_LIMIT
from npukit.sim.addressing import Operand, bank_depth, boxes, dram_operand, operands
from npukit.sim.timing import least_cycles
from numpy.typing import NDArray

__all__ = ["Finding", "ValidationError", "refuse", "validate", "validate_program"]

_PIECE = 1 << 20
"""DRAM words that are looked at together."""


@dataclass(frozen=True)
class Finding:
    """One fault: the rule, the instructions concerned (the later one first), and the sentence."""

    rule: str
    instructions: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        return self.message


class ValidationError(ValueError):
    """A program that breaks the machine's rules."""

    def __init__(self, findings: list[Finding]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{findings[0]}{more}")
        self.findings = findings

    def __reduce__(self) -> tuple[type["ValidationError"], tuple[list[Finding]]]:
        return type(self), (self.findings,)  # an exception is made anew from its message otherwise


def refuse(findings: list[Finding]) -> None:
    """Raise ValidationError if there are findings."""
    if findings:
        raise ValidationError(findings)


def validate(
    config: NpuConfig,
    instructions: Sequence[Instruction],
    dram_bytes: int,
    initialised: Sequence[tuple[int, int]] = (),
    limit: int = 20,
    cycles: int | None = None,
    results: Mapping[str, tuple[int, int]] | None = None,
) -> list[Finding]:
    """Examine a program; an empty list means that it is sound.

    Args:
        dram_bytes: size of the DRAM range that the program may touch.
        initialised: (first byte, bytes) of the ranges that hold data when it starts; words of which only a part does
            count as unwritten.
        limit: findings after which to stop.
        cycles: if not None, a program that keeps an engine at work for longer has a finding.
        results: (first byte, bytes) of the ranges that hold data when it has ended, by their names.
    """
    return _Validator(config, instructions, dram_bytes, initialised, limit, cycles, results or {}).run()


def validate_program(
    program: Program, limits: Limits | None = None, initialised: Sequence[tuple[int, int]] | None = None
) -> list[Finding]:
    """Examine a program: constants and inputs (or `initialised`, as above) are in DRAM when it starts, outputs when it
    has ended.

    With `limits`, one that asks for more memory or cycles has a finding, before anything is allocated for it.
    """
    if limits is not None and program.host_bytes > limits.memory:
        needed, most = -(-program.host_bytes >> 20), limits.memory / (1 << 20)
        message = (
            f"the program takes {needed} MiB of host memory for its {program.dram_bytes} bytes of DRAM and tensors, "
            f"above the limit of {most:g} MiB: raise it with --max-memory, or Limits(memory=...), if you want that"
        )
        return [Finding("memory", (), message)]
    if initialised is None:
        initialised = [_range(program, tensor) for tensor in program.tensors if tensor.role == "input"]
        initialised.append((0, program.constant_bytes))
    cycles = None if limits is None else limits.cycles
    results = {
        f"output {tensor.name}": _range(program, tensor) for tensor in program.tensors if tensor.role == "output"
    }
    return validate(
        program.config, program.instructions, program.dram_bytes, initialised, cycles=cycles, results=results
    )  # fmt: skip


def _range(program: Program, tensor: TensorInfo) -> tuple[int, int]:
    """(first byte, bytes) of a tensor in DRAM."""
    return tensor.address, tensor.layout.elements * program.config.element_bytes


class _Validator:
    def __init__(
        self,
        config: NpuConfig,
        instructions: Sequence[Instruction],
        dram_bytes: int,
        initialised: Sequence[tuple[int, int]],
        limit: int,
        cycles: int | None,
        results: Mapping[str, tuple[int, int]],
    ) -> None:
        self.config = config
        self.instructions = instructions
        self.cycles = cycles
        self.dram_words = dram_bytes // config.word_bytes
        self.initialised = initialised
        self.limit = limit
        self.results = results
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
        if not self.findings and self.cycles is not None:
            self._length(self.cycles)
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

    def _length(self, most: int) -> None:
        """Cycles of the engine that is at work for longest."""
        busy = dict.fromkeys(ENGINES, 0)
        for instruction in self.instructions:
            if instruction.engine is not None:
                busy[instruction.engine] += least_cycles(self.config, instruction)
        engine = max(busy, key=lambda one: busy[one])
        if busy[engine] > most:
            self._find(
                "cycles", (),
                f"the program keeps {engine.name} at work for {busy[engine]} cycles, above the limit of {most}: raise "
                "it with --max-cycles, or Limits(cycles=...), if you want that",
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
        # waiters come in the order of their engine: if this one has surely ended, so have all before it
        needed = len(signals[engine, target]) - TOKEN_LIMIT
        waiters = waits[engine, target]
        if needed >= 0 and (needed >= len(waiters) or self.number[waiters[needed]] >= self.known[index, target]):
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
        for name, (start, size) in self.results.items():
            word = state.unwritten(start, size)
            if word is not None and not self.findings:
                self._find("unwritten", (), f"{name}: DRAM word {word} of it is never written")

    def _overlap(self, index: int, reads: list[Operand], out: Operand) -> None:
        """Within one instruction: words written twice, or read after they may have been overwritten."""
        if out.repeats:
            self._find("overlap", (index,), f"{self._name(index)}: {out.name} holds a word twice")
            return
        if isinstance(self.instructions[index], Matrix):
            return
        low, high = out.extent
        for access in reads:
            least, greatest = access.extent
            there = (access.memory, access.bank) == (out.memory, out.bank) and least <= high and greatest >= low
            if access.memory is not None and there and self._written_before(access, out):
                self._find(
                    "overlap", (index,),
                    f"{self._name(index)}: overwrites words of {access.name} before it reads them",
                )  # fmt: skip

    @staticmethod
    def _written_before(source: Operand, out: Operand) -> bool:
        """Whether a result is written to a word that a later result reads."""
        low, high = out.extent
        words = out.words()
        order = np.arange(words.size).reshape(words.shape)
        written = np.full(high - low + 1, words.size)
        written[words - low] = order
        grid = len(out.loops)
        for position in np.ndindex(*(count for count, _ in source.loops[grid:])):
            whole = [(0, count) for count, _ in out.loops]
            part = source.box([*whole, *((index, index + 1) for index in position)])
            read = part.words().reshape(words.shape) - low
            inside = (read >= 0) & (read <= high - low)
            if (written[read[inside]] < order[inside]).any():
                return True
        return False


def _distinct(values: NDArray[np.int32]) -> list[int]:
    """The distinct values, of which there is mostly one."""
    raw = values.tobytes()
    first = raw[:4]
    if raw == first * values.size:
        return [int.from_bytes(first, sys.byteorder, signed=True)]
    return np.unique(values).tolist()


class _Words:
    """Words of a memory, or of DRAM: who wrote each last, and who has read it since, by the engines that can.

    Of zeros, so that what is never touched takes no memory. `writer` is `_NEVER`, `_BEFORE` or the writing
    instruction's number + `_FIRST`; `reader` is 0 or the reading instruction's number + 1.
    """

    def __init__(self, size: int, engines: tuple[Engine, ...]) -> None:
        self.engines = engines
        self.writer = np.zeros(size, np.int32)
        self.reader = np.zeros((len(engines), size), np.int32)


_NEVER, _BEFORE, _FIRST = 0, 1, 2


class _MemoryState:
    """What has happened to each word so far."""

    def __init__(self, owner: _Validator) -> None:
        self.owner = owner
        self.number: list[int] = owner.number.tolist()
        self.known: list[list[int]] = owner.known.tolist()
        self.depths: dict[Memory, int] = {}
        self.words: dict[Memory | None, _Words] = {}
        for memory in Memory:
            banks, self.depths[memory] = bank_depth(owner.config, memory)
            self.words[memory] = _Words(banks * self.depths[memory], ENGINES)
        dram = [one for accesses in owner.accesses for one in accesses if one.memory is None]
        end = max((access.extent[1] + 1 for access in dram), default=0)
        self.words[None] = _Words(end, (Engine.LOAD,))
        unit = owner.config.word_bytes
        for start, size in owner.initialised:
            self.words[None].writer[-(-start // unit) : max(0, start + size) // unit] = _BEFORE

    def unwritten(self, start: int, size: int) -> int | None:
        """The first DRAM word among these bytes that holds nothing, if there is one."""
        unit, writer = self.owner.config.word_bytes, self.words[None].writer
        first, last = start // unit, -(-(start + size) // unit)
        empty = np.nonzero(writer[first:last] == _NEVER)[0]
        if len(empty):
            return first + int(empty[0])
        return max(first, len(writer)) if last > len(writer) else None

    def _base(self, access: Operand) -> int:
        """Position of the first word of the operand's bank."""
        return 0 if access.memory is None else access.bank * self.depths[access.memory]

    def _where(self, access: Operand) -> str:
        return "DRAM" if access.memory is None else f"{access.memory.name} bank {access.bank}"

    def _places(self, access: Operand) -> Iterator[slice | NDArray[np.int64]]:
        """The operand's positions, those of DRAM in pieces: slices where they follow each other."""
        if access.memory is not None:
            words, base = access.distinct(), self._base(access)
            yield slice(words.start + base, words.stop + base) if isinstance(words, slice) else words + base
        elif access.run is not None:
            for first in range(*access.run, _PIECE):
                yield slice(first, min(first + _PIECE, access.run[1]))
        else:
            for box in boxes([count for count, _ in access.loops], _PIECE):
                yield access.box(box).words().reshape(-1)

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
        """Note that an instruction reads; a finding if what it reads is not there for sure."""
        state = self.words[access.memory]
        engine = self.owner.instructions[index].engine
        assert engine is not None
        row = state.engines.index(engine)
        for words in self._places(access):
            writers = state.writer[words]
            for mark in _distinct(writers):
                if mark == _BEFORE:
                    continue
                if mark == _NEVER:
                    word = self._first(words, writers == _NEVER) - self._base(access)
                    self.owner._find(
                        "unwritten", (index,),
                        f"{self.owner._name(index)}: {access.name} reads word {word} of {self._where(access)}, "
                        "which nothing has written",
                    )  # fmt: skip
                    return
                writer = mark - _FIRST
                if self._ordered(index, writer):
                    continue
                same = self.owner.instructions[writer].engine is engine
                if same and engine is Engine.MATRIX and self._same_traversal(index, writer):
                    continue
                self._race(index, writer, access, self._first(words, writers == mark), "reads what is written")
                return
            state.reader[row, words] = index + 1

    def write(self, index: int, access: Operand) -> None:
        """Note that an instruction writes; a finding if an earlier write or read may come after it."""
        state = self.words[access.memory]
        mine = self.owner.instructions[index].engine
        for words in self._places(access):
            for mark in _distinct(state.writer[words]):
                if mark < _FIRST or self.owner.instructions[mark - _FIRST].engine is mine:
                    continue  # an engine's own writes happen in order
                if not self._ordered(index, mark - _FIRST):
                    word = self._first(words, state.writer[words] == mark)
                    self._race(index, mark - _FIRST, access, word, "overwrites what is written")
                    return
            for engine, readers in zip(state.engines, state.reader, strict=True):
                if engine is mine:  # an engine reads before its later ones write
                    readers[words] = 0
                    continue
                latest = _distinct(readers[words])
                for mark in latest:
                    if mark and not self._ordered(index, mark - 1):
                        word = self._first(words, readers[words] == mark)
                        self._race(index, mark - 1, access, word, "overwrites what is read")
                        return
                if latest != [0]:
                    readers[words] = 0
            state.writer[words] = index + _FIRST
