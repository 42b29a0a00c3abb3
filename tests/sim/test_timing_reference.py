"""The event-driven timing kernel against the cycle-by-cycle reference, on random programs."""

import importlib.util
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from npukit.isa.assembly import assemble, disassemble
from npukit.isa.config import ConfigError, NpuConfig, preset
from npukit.isa.descriptors import operations_of
from npukit.isa.instructions import (
    ENGINES,
    TWO_SOURCE_OPERATIONS,
    WINDOW_OPERATIONS,
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
from npukit.isa.timing import Timing
from npukit.sim.dram import DramModel
from npukit.sim.timing import simulate_timing

# pytest's importlib mode does not put a test's folder on the path
_spec = importlib.util.spec_from_file_location("reference_timing", Path(__file__).with_name("reference_timing.py"))
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
reference_timing = _module.reference_timing

PROGRAMS = 300
DOCUMENT = (Path(__file__).parents[2] / "docs" / "timing.md").read_text(encoding="utf-8")
COLUMNS = ("queue", "issue", "start", "end", "token_wait", "port_wait", "dram_wait")


def _config(rng: random.Random) -> NpuConfig:
    while True:
        array = rng.choice([4, 4, 8, 12, 16])
        lanes = [size for size in range(1, array + 1) if array % size == 0 and size * 4 >= array]
        try:
            return NpuConfig(
                array=array,
                array_rows=rng.choice([0, 0, 4]),
                dtype=rng.choice(["int8", "int8", "bf16"]),
                act_depth=64,
                act_banks=rng.choice([1, 2, 4]),
                acc_banks=rng.choice([1, 2, 4]),
                wgt_depth=64 * array,
                acc_depth=64,
                par_depth=64,
                vector_lanes=rng.choice(lanes),
                fma_lanes=rng.choice(lanes),
                vector_taps=rng.choice([1, 2, 3, 5]),
                bus_bytes=rng.choice([4, 8, 16, 32, 64]),
                max_burst=rng.choice([1, 2, 5, 8, 16, 256]),
                queue_depth=rng.choice([1, 2, 3, 8]),
            )
        except ConfigError:
            continue


def _dram(rng: random.Random) -> DramModel:
    return DramModel(
        latency=rng.choice([1, 2, 20, 100]),
        read_bursts=rng.choice([1, 2, 3, 16, 32]),
        write_bursts=rng.choice([1, 2, 3, 16, 32]),
    )


def _small(rng: random.Random, high: int) -> int:
    """1 to `high`, mostly small."""
    return rng.choice([1, 1, 2, 3, rng.randint(1, high)])


def _transfer(rng: random.Random, units: int) -> dict[str, int]:
    """DRAM side of a LOAD or STORE; addresses are multiples of `units` ACT words."""
    return {
        "dram": rng.randrange(0, 400) * units,
        "planes": rng.choice([1, 1, 1, 2, 3]),
        "rows": _small(rng, 5),
        "words": _small(rng, 40),
        "dram_plane_stride": rng.randrange(0, 300) * units,
        "dram_row_stride": rng.randrange(0, 60) * units,
    }


def _random_load(rng: random.Random, config: NpuConfig) -> Load:
    memory = rng.choice([Memory.ACT, Memory.ACT, Memory.WGT, Memory.PAR])
    if memory is Memory.PAR:
        # a word lies within one beat or consists of whole beats
        units = max(1, min(config.wide_word_bytes, config.bus_bytes) // config.word_bytes)
        return Load(memory=memory, **_transfer(rng, units))
    pads = {}
    if rng.random() < 0.4:
        pads = {f"pad_{side}": rng.randrange(4) for side in ("top", "bottom", "left", "right")}
    bank = rng.randrange(config.act_banks) if memory is Memory.ACT else 0
    return Load(memory=memory, bank=bank, **pads, **_transfer(rng, 1))


def _random_matrix(rng: random.Random, config: NpuConfig) -> Matrix:
    return Matrix(
        accumulate=rng.randrange(2),
        act_bank=rng.randrange(config.act_banks),
        acc_bank=rng.randrange(config.acc_banks),
        channels=rng.choice([1, 1, 2, 3]),
        kernel_height=rng.choice([1, 1, 3]),
        kernel_width=rng.choice([1, 1, 2]),
        height=_small(rng, 6),
        width=_small(rng, 6),
        blocks=rng.choice([1, 1, 2, 3]),
    )


def _random_vector(rng: random.Random, config: NpuConfig) -> Vector:
    operation = rng.choice(operations_of(config))

    def place() -> tuple[Memory, int]:
        memory = rng.choice([Memory.ACT, Memory.ACC])
        return memory, rng.randrange(config.act_banks if memory is Memory.ACT else config.acc_banks)

    (a, a_bank), (b, b_bank), (out, out_bank) = place(), place(), place()
    if rng.random() < 0.2:
        out, out_bank = Memory.WGT, 0
    more: dict[str, Any] = {}
    if operation in TWO_SOURCE_OPERATIONS:
        more = {"b_memory": b, "b_bank": b_bank}
    if operation in WINDOW_OPERATIONS:
        more = {
            "window_height": rng.randint(1, 4),
            "window_width": rng.randint(1, 7),
            "window_step": rng.randint(1, 4),
        }
    return Vector(
        operation=operation,
        a_memory=a,
        a_bank=a_bank,
        out_memory=out,
        out_bank=out_bank,
        blocks=_small(rng, 5),
        height=_small(rng, 5),
        width=config.array if operation is Operation.TRANSPOSE else _small(rng, 6),
        **more,
    )


def _random_store(rng: random.Random, config: NpuConfig) -> Store:
    return Store(bank=rng.randrange(config.act_banks), **_transfer(rng, 1))


def _program(rng: random.Random, config: NpuConfig) -> list[Instruction]:
    """Instructions of all engines whose waits are satisfied by earlier signals."""
    makers = {
        Engine.LOAD: _random_load,
        Engine.MATRIX: _random_matrix,
        Engine.VECTOR: _random_vector,
        Engine.STORE: _random_store,
    }
    length = 150 if rng.random() < 0.02 else rng.randint(1, 24)  # 150: beyond one page of instructions
    engines = rng.choices(ENGINES, weights=[rng.random() + 0.05 for _ in ENGINES], k=length)
    chatter, drains = rng.random() * 0.6, rng.choice([0, 0.1, 0.4])
    there = {(one, other): 0 for one in ENGINES for other in ENGINES if one is not other}
    program: list[Instruction] = []
    for engine in engines:
        wait = signal = 0
        for other in ENGINES:
            if other is engine:
                continue
            if there[other, engine] and rng.random() < chatter + 0.2:
                there[other, engine] -= 1
                wait |= 1 << other
            if rng.random() < chatter:
                there[engine, other] += 1
                signal |= 1 << other
        one = makers[engine](rng, config)
        fields = {**one.__dict__, "wait": wait, "signal": signal, "drain": int(rng.random() < drains)}
        program.append(type(one)(**fields))
    return [*program, End()]


def _assert_equal(config: NpuConfig, program: Sequence[Instruction], dram: DramModel) -> None:
    mine = reference_timing(config, program, dram)
    theirs = simulate_timing(config, program, dram)
    for name in COLUMNS:
        expected, found = getattr(mine, name).tolist(), getattr(theirs, name).tolist()
        assert expected == found, f"{name}: reference {expected}, kernel {found}"
    assert mine.counters == theirs.counters


@pytest.mark.parametrize("seed", [20240607, random.SystemRandom().randrange(1 << 32)], ids=["fixed", "fresh"])
def test_random_programs_take_the_same_cycles(seed: int) -> None:
    print(f"seed {seed}")
    for number in range(PROGRAMS):
        rng = random.Random(f"{seed}/{number}")
        config, dram = _config(rng), _dram(rng)
        program = _program(rng, config)
        try:
            _assert_equal(config, program, dram)
        except Exception:
            print(f"seed {seed}, program {number}\n{config}\n{dram}\n{disassemble(program)}")
            raise


@pytest.mark.parametrize(
    "dram, text, column, index, cycle",
    [
        # the second STORE waits for the first, which still has addresses to send
        (DramModel(), "STORE rows=8\nSTORE\nEND\n", "start", 1, 126),
        # nothing has streamed, so the first TABLE need not wait for the pipeline to empty
        (DramModel(latency=1), "VECTOR operation=TABLE\nEND\n", "start", 0, 73),
        # LOAD's second address waits for the DRAM and stays when FETCH wants to ask as well
        (
            DramModel(latency=10, read_bursts=2),
            "LOAD memory=WGT rows=2\n" + "MATRIX\n" * 8 + "END\n",
            "queue",
            8,
            57,
        ),
    ],
    ids=["store-store", "first-table", "held-address"],
)
def test_cases_that_were_wrong_once(dram: DramModel, text: str, column: str, index: int, cycle: int) -> None:
    program = assemble(text)
    _assert_equal(NpuConfig(), program, dram)
    assert getattr(simulate_timing(NpuConfig(), program, dram), column)[index] == cycle


def test_example_in_the_document() -> None:
    program = assemble(DOCUMENT.split("```text\n")[1].split("```")[0])
    rows = re.findall(r"^\| (\d+) ([A-Z]+) \| (.*) \|$", DOCUMENT, re.MULTILINE)
    _assert_equal(preset("int8-16x16"), program, DramModel())
    schedule = simulate_timing(preset("int8-16x16"), program, DramModel())
    assert [name for _, name, _ in rows] == [one.mnemonic for one in program]
    for index, (number, _, cycles) in enumerate(rows):
        assert int(number) == index
        expected = [getattr(schedule, name)[index] for name in COLUMNS]
        assert [int(cell) for cell in cycles.split(" | ")] == expected
    sentence = DOCUMENT[DOCUMENT.index("The counters are `cycles`") :]
    stated = {name: int(value) for name, value in re.findall(r"`([a-z_]+)` (\d+)", sentence)}
    assert stated == {name: value for name, value in schedule.counters.items() if value}


@pytest.mark.parametrize(
    "row, constant",
    [
        ("R, ", "row_latency"),
        ("H, ", "accumulate_latency"),
        ("Lm, ", "matrix_latency"),
        ("Lv, ", "vector_latency"),
        ("D, ", "sweep_cycles"),
        ("K, ", "sweep_words"),
        ("Ls, ", "store_read_latency"),
        ("instructions in a FETCH burst", "fetch_burst"),
        ("passes of a word, requantise", "requantise_passes"),
        ("passes of a word, two sources", "two_source_passes"),
    ],
)
def test_constants_in_the_document(row: str, constant: str) -> None:
    (line,) = re.findall(rf"^\| {row}.*$", DOCUMENT, re.MULTILINE)
    cells = line.strip("| ").split(" | ")[2:]
    for size, cell in zip((4, 8, 16, 32), cells, strict=True):
        values = cell.split("; ")
        for dtype, value in zip(("int8", "bf16"), values * (2 // len(values)), strict=True):
            if (dtype, size) != ("bf16", 32):
                assert getattr(Timing(preset(f"{dtype}-{size}x{size}")), constant) == int(value)
