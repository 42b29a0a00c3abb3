"""Tokens and drains: the order that a program's instructions need, and some more."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Engine, Instruction, Load, Memory, Store
from npukit.sim.addressing import Operand, bank_depth, dram_operand, operands

__all__ = ["Order", "order_instructions"]


def order_instructions(config: NpuConfig, instructions: Sequence[Instruction], dram_words: int) -> list[Instruction]:
    """Instructions without tokens, END left out, with just the tokens and drains that they need.

    Args:
        dram_words: ACT words of DRAM that they may touch.
    """
    order = Order(config, dram_words)
    for instruction in instructions:
        order.add(instruction, None)
    return order.finish(instructions)


class Order:
    """What each instruction must wait for, found as they come.

    Each word of a memory has its latest writer and, for each engine, its latest reader since, as index + 1.
    """

    def __init__(self, config: NpuConfig, dram_words: int) -> None:
        self._config = config
        self._engines: list[Engine] = []
        self._numbers: list[int] = []
        """Of each instruction among its engine's."""
        self._known: list[list[int]] = []
        """Instructions of each engine that have ended before this one issues."""
        self._of_engine: list[list[int]] = [[] for _ in ENGINES]
        self._waits: list[int] = []
        self._signals: list[int] = []
        self._drains: list[int] = []
        self._words: dict[tuple[Memory | None, int], tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
        self._dram_words = dram_words

    def _state(self, operand: Operand) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Writers [words] and readers [engines, words] of the operand's bank; pages never touched cost nothing."""
        key = (operand.memory, operand.bank)
        if key not in self._words:
            depth = self._dram_words if operand.memory is None else bank_depth(self._config, operand.memory)[1]
            self._words[key] = np.zeros(depth, np.int32), np.zeros((len(ENGINES), depth), np.int32)
        return self._words[key]

    def add(self, instruction: Instruction, random: Random | None) -> None:
        """Order the next instruction after all that it must follow, and, at random, after more."""
        engine = instruction.engine
        assert engine is not None
        index = len(self._engines)
        mine = self._of_engine[engine]
        known = list(self._known[mine[-1]]) if mine else [0] * len(ENGINES)
        self._engines.append(engine)
        self._numbers.append(len(mine))
        self._known.append(known)
        self._waits.append(0)
        self._signals.append(0)
        self._drains.append(int(random is not None and random.random() < 0.05))
        touched = [(one, _positions(one)) for one in operands(self._config, instruction)]
        if isinstance(instruction, Load | Store):
            dram = dram_operand(self._config, instruction)
            touched.append((dram, _positions(dram)))
        needs: set[int] = set()
        own = -1
        for operand, words in touched:
            writers, readers = self._state(operand)
            found = _distinct(writers[words])
            needs.update(found)
            if operand.write:
                for row in readers:
                    needs.update(_distinct(row[words]))
            else:  # an engine's writes happen in order, but it may read before an earlier one of its own
                own = max([own, *(self._numbers[i - 1] for i in found if i and self._engines[i - 1] is engine)])
        if own >= known[engine]:
            self._drains[index] = 1
        if self._drains[index]:
            known[engine] = len(mine)
        others = sorted((i - 1 for i in needs if i and self._engines[i - 1] is not engine), reverse=True)
        if random is not None and random.random() < 0.15:
            others += random.sample(range(index), min(index, 2))
        for earlier in others:
            self.after(index, earlier)
        mine.append(index)
        for operand, words in touched:
            writers, readers = self._state(operand)
            if operand.write:
                writers[words] = index + 1
                readers[:, words] = 0
            else:
                readers[engine, words] = index + 1

    def drain(self, index: int) -> None:
        """Let an instruction, the latest of its engine, wait until those before it have written everything."""
        engine = self._engines[index]
        assert self._of_engine[engine][-1] == index
        self._drains[index] = 1
        self._known[index][engine] = self._numbers[index]

    def after(self, index: int, earlier: int) -> None:
        """Let instruction `index` wait for an earlier one of another engine, unless it is known to have ended.

        One token a pair and instruction: where it waits for that engine already, nothing is added.
        """
        engine, other = self._engines[index], self._engines[earlier]
        known = self._known[index]
        if other is engine or self._numbers[earlier] < known[other] or self._waits[index] >> other & 1:
            return
        self._waits[index] |= 1 << other
        self._signals[earlier] |= 1 << engine
        for one in ENGINES:
            known[one] = max(known[one], self._known[earlier][one])
        known[other] = max(known[other], self._numbers[earlier] + 1)

    def finish(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """The instructions with their tokens."""
        return [
            replace(one, wait=self._waits[i], signal=self._signals[i], drain=self._drains[i])
            for i, one in enumerate(instructions)
        ]


def _positions(operand: Operand) -> slice | NDArray[np.int64]:
    """The operand's words in its bank: a slice where they follow each other, which is much faster."""
    run = operand.run
    return slice(*run) if run is not None else operand.words().reshape(-1)


def _distinct(values: NDArray[np.int32]) -> list[int]:
    """The distinct values, of which there is mostly one."""
    first = values[:1]
    return first.tolist() if (values == first).all() else np.unique(values).tolist()
