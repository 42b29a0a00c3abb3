"""Where buffers lie on chip while tasks are put in order: which words are free when, and which ports of banks."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf, prod
from typing import NamedTuple

from npukit.compiler.tasks import Buffer, Operand, Task
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Engine, Memory
from npukit.sim.addressing import bank_depth

__all__ = ["Banks", "Waiting"]

_SMALL = 4
"""Buffers of at most a bank's depth by this lie at the upper end of what is free, larger ones at the lower."""

_TINY = 64
"""Those of at most a bank's depth by this lie in the shortest stretch, or they would cut through all banks."""


class Waiting(NamedTuple):
    """From when on a task can begin; infinity: when some of that memory is let go."""

    until: float
    memory: Memory


class _Stretch(NamedTuple):
    """Words of a bank that are free from a cycle on; infinity while a buffer holds them."""

    low: int
    high: int
    free: float


class _Port(NamedTuple):
    """One side of a bank, which an engine keeps from others while it reads or writes."""

    memory: Memory
    bank: int
    write: bool


class Banks:
    """The banks of all memories, and which buffers hold words of them.

    Attributes:
        place: bank and first word of each buffer that has begun.
        past: a cycle before which no task begins any more.
    """

    def __init__(self, config: NpuConfig, tasks: Sequence[Task], ahead: int) -> None:
        self.place: dict[Buffer, tuple[int, int]] = {}
        self.past = 0.0
        self._users: dict[Buffer, int] = defaultdict(int)
        self._first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for index, task in enumerate(tasks):
            for buffer in _buffers(task):
                self._users[buffer] += 1
                self._first.setdefault(buffer, index)
                last[buffer] = index
        sizes = {memory: bank_depth(config, memory) for memory in Memory}
        self._depth = {memory: depth for memory, (_, depth) in sizes.items()}
        self._size = {memory: prod(size) for memory, size in sizes.items()}
        self._held = dict.fromkeys(Memory, 0)
        self._longest = dict.fromkeys(Memory, 0)
        for buffer in self._users:
            self._longest[buffer.memory] = max(self._longest[buffer.memory], buffer.words)
        self._long_held: dict[Memory, set[Buffer]] = {memory: set() for memory in Memory}
        self._wanted = {memory: self._long_wanted(memory, last, len(tasks), ahead) for memory in Memory}
        self._banks = {
            memory: [[_Stretch(0, depth, 0.0)] for _ in range(count)] for memory, (count, depth) in sizes.items()
        }
        self._recent: dict[tuple[Memory, int], float] = defaultdict(float)
        """When a bank was taken last."""
        self._ports: dict[_Port, dict[Engine, float]] = defaultdict(dict)
        """Until when engines hold a port."""

    def _long_wanted(self, memory: Memory, last: Mapping[Buffer, int], count: int, ahead: int) -> list[int]:
        """How many long buffers live at once in the plan's order: the most that do from each task on, as far as engines
        look ahead."""
        change = [0] * (count + 1)
        for buffer, first in self._first.items():
            if buffer.memory is memory and self._is_long(buffer):
                change[first] += 1
                change[last[buffer] + 1] -= 1
        live = [*accumulate(change)][:count]
        found, window = [0] * count, deque[int]()
        for index in range(count - 1, -1, -1):
            while window and live[window[-1]] <= live[index]:
                window.pop()
            window.append(index)
            if window[0] > index + ahead:
                window.popleft()
            found[index] = live[window[0]]
        return found

    def _is_long(self, buffer: Buffer) -> bool:
        return 2 * buffer.words > self._depth[buffer.memory]

    def begin(self, task: Task, at: float, room: float | None, turn: int = 0) -> Waiting | None:
        """Find places for a task's new buffers, with its ports free.

        Args:
            task: which begins.
            at: in which cycle.
            room: share of each memory that may be in use then, besides which stretches for the plan's longest buffers
                stay free; None: all.
            turn: the first task of the plan that has not begun.

        Returns:
            What there is to wait for; None where all buffers have their places.
        """
        for operand in task.operands:
            if operand.buffer in self.place:
                for port in self._needed(task, operand, self.place[operand.buffer][0]):
                    free = self._free_for(task.engine, port)
                    if free > at:
                        return Waiting(free, port.memory)
        new = {operand.buffer: operand for operand in task.operands if operand.buffer not in self.place}
        if room is not None:
            for memory in {buffer.memory for buffer in new}:
                words = sum(self._taken(buffer) for buffer in new if buffer.memory is memory)
                if self._held[memory] + words > room * self._size[memory]:
                    return Waiting(inf, memory)
        before: list[tuple[Buffer, list[_Stretch]]] = []
        for buffer, operand in new.items():
            found = self._find(task, operand, at, None if room is None else turn)
            if found is None:
                for one, stretches in reversed(before):
                    self._banks[one.memory][self.place.pop(one)[0]] = stretches
                return Waiting(self._when(buffer, at), buffer.memory)
            bank, low = self.place[buffer] = found
            before.append((buffer, self._banks[buffer.memory][bank]))
            self._carve(buffer.memory, bank, _Stretch(low, low + buffer.words, inf))
        for buffer in new:
            self._held[buffer.memory] += self._taken(buffer)
            if self._is_long(buffer):
                self._long_held[buffer.memory].add(buffer)
            self._recent[buffer.memory, self.place[buffer][0]] = at
        return None

    def end(self, task: Task, read: float, written: float) -> set[Memory]:
        """Let go what the task was the last to use. Returns the memories that have more room then.

        Args:
            task: which has begun.
            read: when it lets the ports go that it reads from, and its buffers.
            written: when it lets those go that it writes to.
        """
        memories = set()
        for operand in task.operands:
            for port in self._needed(task, operand, self.place[operand.buffer][0]):
                users = self._ports[port]
                users[task.engine] = max(users.get(task.engine, 0.0), written if operand.write else read)
        for buffer in _buffers(task):
            self._users[buffer] -= 1
            if not self._users[buffer]:
                bank, low = self.place[buffer]
                self._carve(buffer.memory, bank, _Stretch(low, low + buffer.words, read))
                self._held[buffer.memory] -= self._taken(buffer)
                self._long_held[buffer.memory].discard(buffer)
                memories.add(buffer.memory)
        return memories

    @staticmethod
    def _needed(task: Task, operand: Operand, bank: int) -> Iterator[_Port]:
        """The ports of an operand in a bank for which engines wait; see "Start and ports" in `docs/timing.md`."""
        memory = operand.buffer.memory
        if memory is not Memory.PAR and (memory is not Memory.WGT or operand.write):
            yield _Port(memory, bank, operand.write)
            if task.engine is Engine.MATRIX and operand.write:  # which adds to what is there
                yield _Port(memory, bank, False)

    def _free_for(self, engine: Engine, port: _Port) -> float:
        """When other engines let a port go."""
        return max((until for one, until in self._ports[port].items() if one is not engine), default=0.0)

    def _taken(self, buffer: Buffer) -> int:
        """Words that nothing else has room in: a whole bank, where a buffer takes more than half of it."""
        return self._depth[buffer.memory] if self._is_long(buffer) else buffer.words

    def _find(self, task: Task, operand: Operand, at: float, turn: int | None) -> tuple[int, int] | None:
        """Bank and first word of the best place for a buffer that is free: of a bank whose ports nobody holds for long,
        and of those, of the one that was taken least recently.

        turn: leave stretches for the longest buffers that tasks from that one on want in their order; None: take any.
        """
        buffer, banks = operand.buffer, self._banks[operand.buffer.memory]
        memory, words = buffer.memory, buffer.words
        longest = self._longest[memory]
        stretches = wanted = 0
        if turn is not None:
            held = sum(self._first[one] < turn for one in self._long_held[memory])
            wanted = max(1, self._wanted[memory][turn] - held)
            stretches = sum(high - low >= longest for bank in banks for low, high in _free(bank, None))
        beside = {self.place[one][0] for one in _buffers(task) if one in self.place and one.memory is memory}
        best: tuple[float, float, int, int, int] | None = None
        for bank, content in enumerate(banks):
            wait: float | None = None
            for low, high in _free(content, at):
                size = high - low
                if size < words:
                    continue
                if turn is not None and size - words < longest and stretches - (size >= longest) < wanted:
                    continue
                if wait is None:
                    wait = self._wait(task, operand, bank, at)
                    # two sources in one bank take a cycle more a word
                    wait += words if bank in beside else 0
                offset = low if _SMALL * words > self._depth[memory] else high - words
                score = wait, self._recent[memory, bank], bank, size, offset
                if _TINY * words <= self._depth[memory]:
                    score = float(bank in beside), float(size), bank, size, offset
                best = score if best is None else min(best, score)
        return None if best is None else (best[2], best[4])

    def _wait(self, task: Task, operand: Operand, bank: int, at: float) -> float:
        """Cycles for which ports of a bank are held that a task needs, and the one that its readers will."""
        memory = operand.buffer.memory
        free = max((self._free_for(task.engine, port) for port in self._needed(task, operand, bank)), default=0.0)
        read = max(self._ports[_Port(memory, bank, False)].values(), default=0.0)
        return max(0.0, free - at) + max(0.0, read - at)

    def _when(self, buffer: Buffer, at: float) -> float:
        """When there is a place for a buffer, as far as is known."""
        found = inf
        for content in self._banks[buffer.memory]:
            for time in sorted({one.free for one in content if at < one.free < found}):
                if any(high - low >= buffer.words for low, high in _free(content, time)):
                    found = time
                    break
        return found

    def _carve(self, memory: Memory, bank: int, new: _Stretch) -> None:
        """Put a stretch in its place; what it covers is cut back, and what has been free for long is one stretch."""
        found: list[_Stretch] = []
        for one in self._banks[memory][bank]:
            if one.high <= new.low or one.low >= new.high:
                found.append(one)
                continue
            if one.low < new.low:
                found.append(one._replace(high=new.low))
            if one.low <= new.low:
                found.append(new)
            if one.high > new.high:
                found.append(one._replace(low=new.high))
        merged: list[_Stretch] = []
        for one in found:
            if merged and merged[-1].free <= self.past and one.free <= self.past:
                low, _, free = merged.pop()
                one = _Stretch(low, one.high, max(free, one.free))
            merged.append(one)
        self._banks[memory][bank] = merged


def _free(stretches: Sequence[_Stretch], at: float | None) -> list[tuple[int, int]]:
    """Ranges of words that are free in a cycle; None: or will be, at a time that is known."""
    found: list[tuple[int, int]] = []
    for low, high, free in stretches:
        if free < inf if at is None else free <= at:
            if found and found[-1][1] == low:
                low = found.pop()[0]
            found.append((low, high))
    return found


def _buffers(task: Task) -> list[Buffer]:
    return list(dict.fromkeys(operand.buffer for operand in task.operands))
