"""A second validator, for small programs, by brute force: every address by a plain loop, every order by the closure of
all issues and ends, and single accesses played in random orders. It shares no code with the validator and with what
that uses.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import product
from random import Random

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words, operations_of, parameter_words
from npukit.isa.instructions import End, Engine, Instruction, Load, Matrix, Memory, Operation, Store, Vector

__all__ = ["Fault", "TooLong", "brute_validator", "play", "play_in_order"]

ACT, ACC, WGT, PAR = Memory.ACT, Memory.ACC, Memory.WGT, Memory.PAR
Word = tuple[Memory | None, int, int]
"""Memory (None: DRAM), bank, address."""
Fault = tuple[str, tuple[int, ...]]
"""The rule, and the instructions concerned, the later one first."""

LONGEST = 20_000
"""Accesses of an instruction that brute force looks at."""
TOKENS = 255


class TooLong(Exception):
    """An instruction whose loops are too long for brute force."""


class _Outside(Exception):
    """An address outside of its memory, and which rule that breaks."""


@dataclass
class Result:
    """What an instruction does for one word that it writes: all that it reads, then the write."""

    reads: list[Word]
    write: Word
    early: list[Word] = field(default_factory=list)
    """Of the reads those that may come long before: weights and parameters."""


# ---- addresses


class _Addresses:
    """Words of one bank, checked one by one."""

    def __init__(self, config: NpuConfig, memory: Memory, bank: int, offset: int, ring: int = 0) -> None:
        sizes = {
            ACT: (config.act_banks, config.act_depth), ACC: (config.acc_banks, config.acc_depth),
            WGT: (1, config.wgt_depth), PAR: (1, config.par_depth),
        }  # fmt: skip
        self.banks, self.depth = sizes[memory]
        self.memory, self.bank, self.offset = memory, bank, offset
        self.ring = 2**ring if ring else 0

    def word(self, moved: int) -> Word:
        address = self.offset + moved
        if self.ring:
            start = self.offset // self.ring * self.ring
            if not start <= address < start + self.ring:
                address = start + (address - start) % self.ring
                if start + self.ring > self.depth:  # a ring that is used lies in its bank as a whole
                    raise _Outside("bank")
        if self.bank >= self.banks or not 0 <= address < self.depth:
            raise _Outside("bank")
        return self.memory, self.bank, address


def _steps(*counts: int) -> Iterator[tuple[int, ...]]:
    total = 1
    for count in counts:
        total *= count
    if total > LONGEST:
        raise TooLong
    return product(*(range(count) for count in counts))


def _dram(words: int, address: int) -> Word:
    if not 0 <= address < words:
        raise _Outside("dram address")
    return None, 0, address


def _load(config: NpuConfig, one: Load, dram_words: int) -> Iterator[Result]:
    units = 4 // config.element_bytes if one.memory is PAR else 1
    target = _Addresses(config, one.memory, one.bank, one.offset, one.wrap)
    rows, words = one.pad_top + one.rows + one.pad_bottom, one.pad_left + one.words + one.pad_right
    for plane, row, word in _steps(one.planes, rows, words * units):
        if word % units:
            continue
        word //= units
        reads = []
        inner_row, inner_word = row - one.pad_top, word - one.pad_left
        if 0 <= inner_row < one.rows and 0 <= inner_word < one.words:
            first = one.dram + plane * one.dram_plane_stride + inner_row * one.dram_row_stride + inner_word * units
            reads = [_dram(dram_words, first + unit) for unit in range(units)]
        yield Result(
            reads, target.word(plane * one.plane_stride + row * one.row_stride + word * one.word_stride)
        )  # fmt: skip


def _store(config: NpuConfig, one: Store, dram_words: int) -> Iterator[Result]:
    source = _Addresses(config, ACT, one.bank, one.offset, one.wrap)
    for plane, row, word in _steps(one.planes, one.rows, one.words):
        read = source.word(plane * one.plane_stride + row * one.row_stride + word * one.word_stride)
        place = one.dram + plane * one.dram_plane_stride + row * one.dram_row_stride + word
        yield Result([read], _dram(dram_words, place))


def _matrix(config: NpuConfig, one: Matrix, _: int) -> Iterator[Result]:
    act = _Addresses(config, ACT, one.act_bank, one.act_offset, one.act_wrap)
    wgt = _Addresses(config, WGT, 0, one.wgt_offset, one.wgt_wrap)
    acc = _Addresses(config, ACC, one.acc_bank, one.acc_offset)
    kernel = [*_steps(one.channels, one.kernel_height, one.kernel_width)]
    _steps(len(kernel), one.blocks, one.height, one.width)
    _steps(len(kernel), one.blocks, config.array)
    for block, y, x in _steps(one.blocks, one.height, one.width):
        first = block * len(kernel) * config.array
        tiles = [wgt.word(first + row) for row in range(len(kernel) * config.array)] if y == x == 0 else []
        reads = [
            act.word(
                channel * one.act_stride_channel + ky * one.act_stride_kernel_y + kx * one.act_stride_kernel_x
                + y * one.act_stride_y + x * one.act_stride_x
            )
            for channel, ky, kx in kernel
        ]  # fmt: skip
        target = acc.word(block * one.acc_stride_block + y * one.acc_stride_y + x * one.acc_stride_x)
        yield Result(reads + [target] * one.accumulate, target, tiles)


def _vector(config: NpuConfig, one: Vector, _: int) -> Iterator[Result]:
    a = _Addresses(config, one.a_memory, one.a_bank, one.a_offset, one.wrap * one.a_wrap)
    out = _Addresses(config, one.out_memory, one.out_bank, one.out_offset, one.wrap * one.out_wrap)
    par = _Addresses(config, PAR, 0, one.parameters)
    head, each = descriptor_words(config, one), parameter_words(config, one)
    _steps(one.blocks, max(1, each))
    reduces = one.operation in (Operation.TABLE_SUM, Operation.MOMENTS)
    together, first = [], []
    for block, y, x in _steps(one.blocks, one.height, one.width):
        early = []
        if y == x == 0:
            early = [par.word(word) for word in range(head)] if block == 0 else []
            early += [par.word(head + block * each + word) for word in range(each)]
        reads = []
        start = block * one.a_stride_block + y * one.a_stride_y
        if one.operation in (Operation.MAX, Operation.SUM, Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
            _steps(one.blocks, one.height, one.width, one.window_height, one.window_width)
            for ky, kx in product(range(one.window_height), range(one.window_width)):
                moved = ky * one.window_stride_y + (x * one.window_step + kx) * one.window_stride_x
                reads.append(a.word(start + moved))
        elif one.operation is not Operation.FILL:
            reads.append(a.word(start + x * one.a_stride_x))
        if one.operation in _TWO:
            b = _Addresses(config, one.b_memory, one.b_bank, one.b_offset, one.wrap * one.b_wrap)
            reads.append(b.word(block * one.b_stride_block + y * one.b_stride_y + x * one.b_stride_x))
        target = out.word(block * one.out_stride_block + y * one.out_stride_y + x * one.out_stride_x)
        if not reduces:
            yield Result(reads, target, early)
            continue
        # one result of all of a block's words
        if y == x == 0:
            together, first = [], early
        together += reads
        if y == one.height - 1 and x == one.width - 1:
            yield Result(together, target, first)


_TWO = (
    Operation.ADD, Operation.ADD_FIXED, Operation.MULTIPLY, Operation.MULTIPLY_FIXED, Operation.TABLE_DIVIDE,
    Operation.NORMALIZE,
)  # fmt: skip
_RESULTS: dict[type[Instruction], Callable[..., Iterator[Result]]] = {
    Load: _load, Store: _store, Matrix: _matrix, Vector: _vector,
}  # fmt: skip


# ---- each instruction by itself

_ELSEWHERE = {
    Operation.REQUANTIZE: {(ACC, ACT)},
    Operation.REQUANTIZE_FIXED: {(ACC, ACT)},
    Operation.CONVERT: {(ACT, ACC), (ACC, ACT)},
    Operation.COPY: {(ACT, ACT), (ACC, ACC), (ACT, WGT)},
    Operation.PART: {(ACC, ACT)},
    Operation.TRANSPOSE: {(ACT, ACT), (ACT, WGT)},
    Operation.TABLE_SUM: {(ACT, ACC)},
    Operation.TABLE_DIVIDE: {(ACC, ACT)},
    Operation.MOMENTS: {(ACT, ACC)},
    Operation.RECIPROCAL_ROOT: {(ACC, ACC)},
    Operation.NORMALIZE: {(ACC, ACC)},
    Operation.SUM: {(ACT, ACT), (ACT, ACC), (ACC, ACT), (ACC, ACC)},
    Operation.FUNCTION: {(ACT, ACT), (ACT, ACC), (ACC, ACT), (ACC, ACC)},
    Operation.FILL: {(ACT, ACT), (ACT, ACC), (ACC, ACT), (ACC, ACC), (ACT, WGT)},
}


def _has_mode(config: NpuConfig, one: Instruction) -> bool:
    if isinstance(one, End):
        return not (one.wait or one.signal or one.drain)
    assert one.engine is not None
    if (one.wait | one.signal) & 1 << one.engine:
        return False
    if isinstance(one, Load):
        units = 4 // config.element_bytes
        whole = all(place % units == 0 for place in (one.dram, one.dram_plane_stride, one.dram_row_stride))
        border = any((one.pad_top, one.pad_bottom, one.pad_left, one.pad_right))
        return one.memory in (ACT, WGT) or one.memory is PAR and whole and not border
    if isinstance(one, Vector):
        if one.operation not in operations_of(config):
            return False
        if config.dtype == "bf16" and one.operation in (Operation.ADD, Operation.MULTIPLY):
            if WGT in (one.a_memory, one.out_memory) or PAR in (one.a_memory, one.out_memory):
                return False
        elif (one.a_memory, one.out_memory) not in _ELSEWHERE.get(one.operation, {(ACT, ACT)}):
            return False
        if one.operation is Operation.TRANSPOSE and one.width != config.array:
            return False
        if one.operation in (Operation.TABLE_SUM, Operation.MOMENTS) and (one.out_stride_y or one.out_stride_x):
            return False
        if one.operation in _TWO and one.b_memory is not ACT:
            return False
        if one.operation in (Operation.MAX, Operation.SUM, Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED):
            return one.a_stride_x == 0 and max(one.window_height, one.window_width) <= config.max_window
    return True


# ---- all together


class _Order:
    """Issues and ends of all instructions, and what comes before what under any timing: event 2 i is the issue of
    instruction i, 2 i + 1 its end; `before[e]` is a set of events, as bits."""

    def __init__(self, program: list[Instruction]) -> None:
        self.faults: list[Fault] = []
        self.edges: list[tuple[int, int]] = []
        given: dict[tuple[int, int], list[int]] = {}
        taken: dict[tuple[int, int], list[int]] = {}
        engines: dict[Engine, list[int]] = {engine: [] for engine in Engine}
        for index, one in enumerate(program):
            self.edges.append((2 * index, 2 * index + 1))
            engine = one.engine
            assert engine is not None
            if engines[engine]:
                latest = engines[engine][-1]
                self.edges += [(2 * latest, 2 * index), (2 * latest + 1, 2 * index + 1)]
                if one.drain:
                    self.edges.append((2 * latest + 1, 2 * index))
            engines[engine].append(index)
            for other in Engine:
                if one.wait & 1 << other:
                    number = len(taken.setdefault((other, engine), []))
                    taken[other, engine].append(index)
                    if number >= len(given.get((other, engine), [])):
                        self.faults.append(("order", (index,)))
                    else:
                        self.edges.append((2 * given[other, engine][number] + 1, 2 * index))
            for other in Engine:
                if one.signal & 1 << other:
                    given.setdefault((engine, other), []).append(index)
        self.before = [0] * (2 * len(program))
        sources: dict[int, list[int]] = {}
        for first, then in self.edges:
            sources.setdefault(then, []).append(first)
        for event in range(2 * len(program)):  # every edge goes to a later event
            for source in sources.get(event, ()):
                self.before[event] |= self.before[source] | 1 << source
        if self.faults:
            return
        for pair, signals in given.items():
            for number, index in enumerate(signals):
                # tokens may lie there of which no taker must have issued when this one is given
                sure = sum(self.before[2 * index + 1] >> 2 * one & 1 for one in taken.get(pair, ()))
                if number + 1 - sure > TOKENS:
                    self.faults.append(("token overflow", (index,)))

    def ended(self, earlier: int, later: int) -> bool:
        """Whether an instruction has ended when another one issues."""
        return bool(self.before[2 * later] >> 2 * earlier + 1 & 1)


_TRAVERSAL = (
    "acc_bank", "acc_offset", "acc_stride_block", "acc_stride_y", "acc_stride_x", "blocks", "height", "width",
)  # fmt: skip


def _alike(one: Instruction, other: Instruction) -> bool:
    return (
        isinstance(one, Matrix)
        and isinstance(other, Matrix)
        and all(getattr(one, name) == getattr(other, name) for name in _TRAVERSAL)
    )


def _overlaps(one: Instruction, results: list[Result]) -> bool:
    writes = [result.write for result in results]
    if len(set(writes)) != len(writes):
        return True
    if isinstance(one, Matrix):
        return False
    written: set[Word] = set()
    for result in results:
        if written.intersection(result.reads):
            return True
        written.add(result.write)
    return False


def brute_validator(
    config: NpuConfig, instructions: list[Instruction], dram_bytes: int, initialised: int
) -> tuple[str, list[Fault], list[list[Result]]]:
    """The stage at which a program is refused (`static`, `tokens`, `memory`, or `` if it is not), all faults of that
    stage, and what its instructions do.

    Args:
        initialised: bytes of DRAM that hold data when it starts, of which whole words count.

    Raises:
        TooLong: loops too long for brute force.
    """
    faults: list[Fault] = []
    ends = [index for index, one in enumerate(instructions) if isinstance(one, End)]
    if ends != [len(instructions) - 1]:
        faults.append(("end", tuple(ends)))
    results: list[list[Result]] = []
    for index, one in enumerate(instructions):
        if not _has_mode(config, one):
            faults.append(("mode", (index,)))
        elif not isinstance(one, End):
            try:
                results.append([*_RESULTS[type(one)](config, one, dram_bytes // config.word_bytes)])
            except _Outside as outside:
                faults.append((str(outside), (index,)))
    if faults:
        return "static", faults, []
    program = instructions[:-1]
    order = _Order(program)
    if order.faults:
        return "tokens", order.faults, []
    writers: dict[Word, list[int]] = {}
    there = initialised // config.word_bytes
    readers: dict[Word, list[int]] = {}
    for index, one in enumerate(program):
        reads = {word for result in results[index] for word in (*result.reads, *result.early)}
        for word in reads:
            if word in writers:
                last = writers[word][-1]
                if not order.ended(last, index) and not _alike(one, program[last]):
                    faults.append(("race", (index, last)))
            elif word[0] is not None or word[2] >= there:
                faults.append(("unwritten", (index,)))
        if _overlaps(one, results[index]):
            faults.append(("overlap", (index,)))
        writes = {result.write for result in results[index]}
        for word in writes:
            for earlier in (*writers.get(word, ()), *readers.get(word, ())):
                if program[earlier].engine is not one.engine and not order.ended(earlier, index):
                    faults.append(("race", (index, earlier)))
        for word in reads:
            readers.setdefault(word, []).append(index)
        for word in writes:
            writers.setdefault(word, []).append(index)
    return "memory" if faults else "", faults, results


# ---- single accesses, in program order and in others


def _value(memory: dict[Word, int], words: list[Word]) -> list[int]:
    return [memory.get(word, hash(word)) for word in words]


def play_in_order(results: list[list[Result]]) -> dict[Word, int]:
    """What the words hold at the end, as numbers that depend on all that went into them, if one result follows the
    other."""
    memory: dict[Word, int] = {}
    for index, written in enumerate(results):
        fetched: list[int] = []
        for number, result in enumerate(written):
            if result.early:
                fetched = _value(memory, result.early)
            memory[result.write] = hash((index, number, *_value(memory, result.reads), *fetched))
    return memory


def play(instructions: list[Instruction], results: list[list[Result]], random: Random) -> dict[Word, int]:
    """The same, if single accesses happen in a random order that the machine might have: engines run far apart, reads
    come early and writes late.

    An engine reads in order and writes in order, and a result is written after all that it needs has been read; weights
    and parameters are read at any time after the issue. MATRIX reads what it has written itself on the same traversal.
    """
    program = instructions[:-1]
    actions: list[tuple[int, Callable[[], object]]] = []
    following: list[list[int]] = []
    missing: list[int] = []
    memory: dict[Word, int] = {}

    def event(index: int, action: Callable[[], object], sources: Iterable[int]) -> int:
        """Something that happens for an instruction once all sources have."""
        actions.append((index, action))
        following.append([])
        missing.append(0)
        for source in sources:
            following[source].append(len(actions) - 1)
            missing[-1] += 1
        return len(actions) - 1

    def reads(held: list[int], words: list[Word]) -> Callable[[], None]:
        return lambda: held.extend(_value(memory, words))

    def writes(word: Word, name: tuple[int, int], *held: list[int]) -> Callable[[], None]:
        return lambda: memory.update({word: hash((*name, *(value for values in held for value in values)))})

    edges: dict[int, list[int]] = {}
    for first, then in _Order(program).edges:
        edges.setdefault(then, []).append(first)
    places: dict[int, int] = {}  # of issues and ends among the events
    latest: dict[tuple[Engine | None, str], int] = {}
    traversals: list[tuple[Instruction, list[int]]] = []
    for index, one in enumerate(program):
        issue = places[2 * index] = event(index, int, [places[source] for source in edges.get(2 * index, ())])
        alike = [written for other, written in traversals if _alike(one, other)]
        written = []
        fetched: list[int] = []
        for number, result in enumerate(results[index]):
            before = [issue]
            if result.early:
                fetched = []
                before.append(event(index, reads(fetched, result.early), [issue]))
            held: list[int] = []
            sources = [issue, *(nodes[number] for nodes in alike)]
            if (one.engine, "read") in latest:
                sources.append(latest[one.engine, "read"])
            latest[one.engine, "read"] = event(index, reads(held, result.reads), sources)
            before.append(latest[one.engine, "read"])
            if (one.engine, "write") in latest:
                before.append(latest[one.engine, "write"])
            latest[one.engine, "write"] = event(index, writes(result.write, (index, number), held, fetched), before)
            written.append(latest[one.engine, "write"])
        traversals.append((one, written))
        ends = [places[source] for source in edges[2 * index + 1]]
        places[2 * index + 1] = event(index, int, [written[-1], *ends])
    urge = [random.random() for _ in program]
    noise = random.choice([0.0, 0.2, 1.0])
    ready = [(-urge[actions[number][0]], number) for number, count in enumerate(missing) if count == 0]
    heapify(ready)
    while ready:
        _, number = heappop(ready)
        actions[number][1]()
        for later in following[number]:
            missing[later] -= 1
            if missing[later] == 0:
                heappush(ready, (-urge[actions[later][0]] - noise * random.random(), later))
    return memory
