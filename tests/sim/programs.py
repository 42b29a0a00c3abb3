"""Programs for the 4x4 machine of `conftest.tiny`: one that is sound, and random ones in legal order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from npukit.isa.instructions import (
    ENGINES,
    End,
    Engine,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)

__all__ = ["LOAD", "MATRIX", "STORE", "VECTOR", "Case", "random_case", "sound"]

LOAD, MATRIX, VECTOR, STORE = (1 << engine for engine in ENGINES)
"""Masks of `wait` and `signal`."""


@dataclass(frozen=True)
class Case:
    """A program with the DRAM that it needs."""

    instructions: tuple[Instruction, ...]
    dram_bytes: int
    initialised: tuple[tuple[int, int], ...]


def sound() -> Case:
    """Four words of ACT times one tile, requantised and stored: 0, 1, 2 LOAD, 3 MATRIX, 4 VECTOR, 5 STORE.

    DRAM in words of 4 bytes: weights 0 to 3, parameters 4 to 15, input 16 to 19, result 20 to 23.
    """
    return Case(
        (
            Load(memory=Memory.WGT, words=4, word_stride=1),
            Load(memory=Memory.PAR, dram=4, words=3, word_stride=1, signal=VECTOR),
            Load(memory=Memory.ACT, dram=16, words=4, word_stride=1, signal=MATRIX),
            Matrix(wait=LOAD, signal=VECTOR, width=4, act_stride_x=1, acc_stride_x=1),
            Vector(
                operation=Operation.REQUANTIZE, wait=LOAD | MATRIX, signal=STORE, width=4,
                a_memory=Memory.ACC, a_stride_x=1, out_bank=1, out_stride_x=1,
            ),
            Store(wait=VECTOR, bank=1, words=4, word_stride=1, dram=20),
            End(),
        ),
        24 * 4,
        ((0, 20 * 4),),
    )  # fmt: skip


def _random_instruction(random: np.random.Generator, engine: Engine) -> tuple[type[Instruction], dict[str, Any]]:
    def at(limit: int) -> int:
        return int(random.integers(limit))

    words = 1 + at(3)
    if engine is Engine.LOAD:
        memory = (Memory.ACT, Memory.ACT, Memory.WGT, Memory.PAR)[at(4)]
        return Load, {
            "memory": memory, "bank": at(2) if memory is Memory.ACT else 0, "offset": at(10),
            "dram": at(12) * 4 if memory is Memory.PAR else at(40),
            "words": words, "word_stride": 1, "wrap": at(2) * 6,
        }  # fmt: skip
    if engine is Engine.STORE:
        return Store, {"bank": at(2), "offset": at(10), "dram": at(40), "words": words, "word_stride": 1}
    if engine is Engine.MATRIX:
        return Matrix, {
            "act_bank": at(2), "act_offset": at(8), "act_stride_x": at(2), "act_stride_kernel_x": 1,
            "wgt_offset": at(6), "width": words, "kernel_width": 1 + at(2),
            "acc_bank": at(2), "acc_offset": at(8), "acc_stride_x": 1, "accumulate": at(2),
        }  # fmt: skip
    operation = (Operation.COPY, Operation.CONVERT, Operation.FILL, Operation.REQUANTIZE, Operation.MAX)[at(5)]
    fields: dict[str, Any] = {
        "operation": operation, "parameters": at(8), "width": words, "a_bank": at(2), "a_offset": at(8),
        "out_bank": at(2), "out_offset": at(10), "out_stride_x": 1,
    }  # fmt: skip
    fields["window_stride_x" if operation is Operation.MAX else "a_stride_x"] = 1
    if operation is Operation.MAX:
        fields["window_width"] = 1 + at(2)
    if operation is Operation.REQUANTIZE or (operation is Operation.CONVERT and at(2)):
        fields["a_memory"] = Memory.ACC
    elif operation is Operation.CONVERT:
        fields["out_memory"] = Memory.ACC
    return Vector, fields


def random_case(seed: int, length: int, *, orderly: float = 0.7) -> Case:
    """A random program whose every wait has an earlier signal, on operands that often meet.

    All memories are written first; `orderly` is the chance to give and to take tokens and to drain.
    """
    random = np.random.default_rng(seed)
    pending = np.zeros((len(ENGINES), len(ENGINES)), np.int64)
    instructions: list[Instruction] = []

    def add(kind: type[Instruction], fields: dict[str, Any], wait: int, signal: int, drain: int = 0) -> None:
        engine = kind.engine
        assert engine is not None
        for other in ENGINES:
            pending[other, engine] -= wait >> other & 1
            pending[engine, other] += signal >> other & 1
        assert (pending >= 0).all()
        instructions.append(kind(wait=wait, signal=signal, drain=drain, **fields))

    fill: dict[str, Any] = {
        "operation": Operation.FILL,
        "out_memory": Memory.ACC,
        "width": 32,
        "out_stride_x": 1,
    }
    for memory, words in ((Memory.PAR, 40), (Memory.WGT, 64), (Memory.ACT, 64)):
        add(Load, {"memory": memory, "words": words, "word_stride": 1}, 0, 0)
    add(Load, {"bank": 1, "words": 64, "word_stride": 1}, 0, MATRIX | VECTOR | STORE)
    add(Vector, fill, LOAD, 0)
    add(Vector, fill | {"out_bank": 1}, 0, LOAD | MATRIX | STORE, 1)
    add(Matrix, {"acc_offset": 31}, LOAD | VECTOR, LOAD | VECTOR | STORE)
    add(Store, {"dram": 160}, LOAD | VECTOR | MATRIX, LOAD | MATRIX | VECTOR)
    for _ in range(length):
        engine = Engine(int(random.integers(len(ENGINES))))
        kind, fields = _random_instruction(random, engine)
        wait = signal = 0
        for other in ENGINES:
            if other is not engine:
                wait |= int(pending[other, engine] > 0 and random.random() < orderly) << other
                signal |= int(random.random() < orderly) << other
        add(kind, fields, wait, signal, int(random.random() < orderly / 2))
    return Case((*instructions, End()), 164 * 4, ((0, 160 * 4),))
