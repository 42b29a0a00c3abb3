"""FETCH's check of an instruction word against `decode` and `npukit.isa.legality`, on random words."""

from random import Random
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from amaranth import Module, Signal
from amaranth.sim import Simulator
from npukit.hw.legality import refused
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import (
    INSTRUCTION_BITS,
    OPCODE_FIELD,
    OPCODES,
    InstructionError,
    Vector,
    decode,
    fields_of,
)
from npukit.isa.legality import illegal_mode

COUNT = 2500


def random_word(random: Random) -> int:
    """An instruction of any kind whose fields are mostly 0, the rest anything, with a bit flipped here and there."""
    kind = random.choice(list(OPCODES.values()))
    word = kind.opcode if random.random() < 0.97 else random.randrange(1 << OPCODE_FIELD.width)
    few = random.choice([0.05, 0.3])
    for spec in fields_of(kind):
        # operations and memories decide more than others
        if random.random() < (0.7 if spec.kind is not None else few):
            word |= random.choice([1, (1 << spec.width) - 1, random.getrandbits(spec.width)]) << spec.lsb
        elif kind is Vector and spec.name == "width" and random.random() < 0.5:
            word |= ((1 << random.choice([2, 3, 4])) - 1) << spec.lsb  # as TRANSPOSE wants it on some configurations
    if random.random() < 0.1:
        word ^= 1 << random.randrange(INSTRUCTION_BITS)
    return word & ((1 << INSTRUCTION_BITS) - 1)


def is_refused(config: NpuConfig, word: int) -> bool:
    try:
        instruction = decode(word.to_bytes(INSTRUCTION_BITS // 8, "little"))
    except InstructionError:
        return True
    return illegal_mode(config, instruction) is not None


@pytest.mark.parametrize("name", ["int8-4x4", "bf16-4x4", "ulx3s-int8-4x4"])
@pytest.mark.parametrize("seed", [1, None])
def test_refuses_what_is_illegal(name: str, seed: int | None) -> None:
    seed = Random().getrandbits(32) if seed is None else seed
    print(f"seed {seed}")
    random = Random(seed)
    config = PRESETS[name]
    words = [random_word(random) for _ in range(COUNT)]
    expected = [is_refused(config, word) for word in words]
    assert 0.2 < sum(expected) / COUNT < 0.8, "both answers come up"

    m = Module()
    word, answer = Signal(INSTRUCTION_BITS), Signal()
    m.d.comb += answer.eq(refused(config, word))
    found = []

    async def bench(context: Any) -> None:
        for one in words:
            context.set(word, one)
            found.append(bool(context.get(answer)))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    wrong = [hex(one) for one, mine, theirs in zip(words, found, expected, strict=True) if mine != theirs]
    assert not wrong, f"{len(wrong)} of {COUNT}, the first {wrong[0]}"
