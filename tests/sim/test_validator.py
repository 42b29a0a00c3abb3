"""The validator: hand-written faults, each named with its instructions, and sound programs without a finding."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npukit.isa.config import PRESETS, NpuConfig
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
from npukit.sim.addressing import Operand, dram_operand, operands
from npukit.sim.dram import DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing
from npukit.sim.validator import Finding, ValidationError, refuse, validate

LOAD, MATRIX, VECTOR, STORE = (1 << engine for engine in ENGINES)
END = End()


def change(instructions: tuple[Instruction, ...], index: int, **fields: Any) -> tuple[Instruction, ...]:
    return (*instructions[:index], replace(instructions[index], **fields), *instructions[index + 1 :])


def check(
    config: NpuConfig,
    instructions: tuple[Instruction, ...],
    expected: list[tuple[str, tuple[int, ...], str]],
    *,
    dram_words: int = 64,
    initialised: tuple[tuple[int, int], ...] = ((0, 256),),
) -> None:
    """The findings are exactly these (rule, instructions, part of the sentence)."""
    findings = validate(config, instructions, dram_words * config.word_bytes, initialised)
    assert [(one.rule, one.instructions) for one in findings] == [(rule, which) for rule, which, _ in expected]
    for finding, (_, _, part) in zip(findings, expected, strict=True):
        assert part in str(finding)


# ---- the sound program, and what breaks when one thing is taken away


def test_a_sound_program(tiny: NpuConfig, programs: ModuleType) -> None:
    case = programs.sound()
    assert validate(tiny, case.instructions, case.dram_bytes, case.initialised) == []


@pytest.mark.parametrize(
    ("changes", "rule", "which", "part"),
    [
        # races on chip: a signal and its wait taken away
        ({2: {"signal": 0}, 3: {"wait": 0}}, "race", [(3, 2), (3, 0)], "race in ACT bank 0: instruction 3 "),
        ({3: {"signal": 0}, 4: {"wait": LOAD}}, "race", [(4, 3)], "race in ACC bank 0: instruction 4 (VE"),
        ({1: {"signal": 0}, 4: {"wait": MATRIX}}, "clean", [], ""),  # MATRIX has waited for a later LOAD
        ({4: {"signal": 0}, 5: {"wait": 0}}, "race", [(5, 4)], "race in ACT bank 1: instruction 5 (STORE "),
        # the order of the program
        ({3: {"wait": LOAD | STORE}}, "order", [(3,)], "waits for a token of STORE that no earlier"),
        ({3: {"signal": 0}}, "order", [(4,)], "waits for a token of MATRIX"),
        # words that nothing has written
        ({3: {"act_offset": 2}}, "unwritten", [(3,)], "act reads word 4 of ACT bank 0, which nothing"),
        ({3: {"wgt_offset": 1}}, "unwritten", [(3,)], "wgt reads word 4 of WGT bank 0"),
        ({3: {"accumulate": 1}}, "unwritten", [(3,)], "acc reads word 0 of ACC bank 0"),
        ({4: {"a_bank": 1}}, "unwritten", [(4,)], "a reads word 0 of ACC bank 1"),
        ({4: {"parameters": 1}}, "unwritten", [(4,)], "parameters reads word 3 of PAR bank 0"),
        ({5: {"offset": 1}}, "unwritten", [(5,)], "source reads word 4 of ACT bank 1"),
        ({2: {"dram": 17}}, "unwritten", [(2,)], "dram reads word 20 of DRAM"),
        # operands that leave their bank
        ({3: {"act_bank": 2}}, "bank", [(3,)], "act is in bank 2 of ACT, which has 2"),
        ({3: {"act_offset": 61}}, "bank", [(3,)], "act spans words 61 to 64, across the end of a ACT bank"),
        ({3: {"wgt_offset": 61}}, "bank", [(3,)], "wgt spans words 61 to 64"),
        ({3: {"acc_offset": 2, "acc_stride_x": -1}}, "bank", [(3,)], "acc spans words -1 to 2"),
        ({4: {"out_offset": 61}}, "bank", [(4,)], "out spans words 61 to 64"),
        ({4: {"parameters": 70}}, "bank", [(4,)], "parameters spans words 70 to 72"),
        ({2: {"offset": 61}}, "bank", [(2,)], "destination spans words 61 to 64"),
        ({0: {"bank": 1}}, "bank", [(0,)], "destination is in bank 1 of WGT, which has 1"),
        # DRAM
        ({5: {"dram": 21}}, "dram address", [(5,)], "DRAM words 21 to 24 are outside of the program's 24"),
        ({2: {"dram": 100}}, "dram address", [(2,)], "DRAM words 100 to 103 are outside"),
        ({1: {"dram": 16}}, "dram address", [(1,)], "DRAM words 16 to 27 are outside"),
        # one instruction against itself
        ({1: {"word_stride": 0, "words": 2}, 4: {"operation": Operation.COPY, "a_memory": Memory.ACT}},
         "overlap", [(1,)], "destination holds a word twice"),
        ({3: {"acc_stride_x": 0}, 4: {"a_stride_x": 0}}, "overlap", [(3,)], "acc holds a word twice"),
        ({4: {"out_stride_x": 0}, 5: {"words": 1}}, "overlap", [(4,)], "out holds a word twice"),
        ({5: {"rows": 3, "words": 2, "dram_row_stride": 1}}, "overlap", [(5,)], "dram holds a word twice"),
        # what cannot be encoded or has no meaning
        ({2: {"words": 0}}, "encoding", [(2,)], "words must be from 1 to 65536, not 0"),
        ({3: {"wait": LOAD | MATRIX}}, "mode", [(3,)], "an engine has no tokens with itself"),
        ({6: {"wait": LOAD}}, "mode", [(6,)], "END takes and gives no tokens"),
        ({0: {"memory": Memory.ACC}}, "mode", [(0,)], "LOAD writes ACT, WGT or PAR, not ACC"),
        ({1: {"pad_left": 1}}, "mode", [(1,)], "a LOAD to PAR has no border"),
        ({1: {"dram": 2}}, "mode", [(1,)], "multiples of a PAR word, 4 ACT words, not 2, 0, 0"),
        ({4: {"a_memory": Memory.ACT}}, "mode", [(4,)], "REQUANTIZE goes from ACC to ACT, not from ACT to ACT"),
        ({4: {"out_memory": Memory.ACC}}, "mode", [(4,)], "REQUANTIZE goes from ACC to ACT, not from ACC to ACC"),
        ({4: {"out_memory": Memory.WGT, "out_bank": 0}}, "mode", [(4,)], "to ACT, not from ACC to WGT"),
        ({4: {"operation": Operation.TRANSPOSE, "a_memory": Memory.ACT, "width": 3}}, "mode", [(4,)], "its width is 4"),
    ],
)  # fmt: skip
def test_one_fault_is_named(
    changes: dict[int, dict[str, Any]],
    rule: str,
    which: list[tuple[int, ...]],
    part: str,
    tiny: NpuConfig,
    programs: ModuleType,
) -> None:
    case = programs.sound()
    instructions = case.instructions
    for at, values in changes.items():
        instructions = change(instructions, at, **values)
    findings = validate(tiny, instructions, case.dram_bytes, case.initialised)
    assert [(one.rule, one.instructions) for one in findings] == [(rule, one) for one in which], [*map(str, findings)]
    assert not which or part in findings[0].message
    for finding in findings:
        for one in finding.instructions:
            assert f"instruction {one}" in finding.message


@pytest.mark.parametrize("array", [4, 16])
def test_bounds_follow_the_configuration(array: int) -> None:
    config = PRESETS[f"int8-{array}x{array}"]
    fill = Vector(operation=Operation.FILL, out_offset=config.act_depth - 1)
    program = (Load(memory=Memory.PAR, signal=VECTOR), replace(fill, wait=LOAD), END)
    check(config, program, [])
    outside = change(program, 1, out_offset=config.act_depth)
    check(config, outside, [("bank", (1,), f"of {config.act_depth} words")])


# ---- ends, limits, errors


@pytest.mark.parametrize("program", [(), (Load(),), (END, Load()), (END, END)])
def test_end_comes_once_and_last(program: tuple[Instruction, ...], tiny: NpuConfig) -> None:
    findings = validate(tiny, program, 256, ((0, 256),))
    assert findings[0].rule == "end"
    assert findings[0].message == "a program has exactly one END, its last instruction"


def test_findings_are_limited_and_refused(tiny: NpuConfig) -> None:
    program = (*(Load(dram=1000 + i) for i in range(30)), END)
    assert len(validate(tiny, program, 256)) == 20
    findings = validate(tiny, program, 256, limit=3)
    assert [one.instructions for one in findings] == [(0,), (1,), (2,)]
    with pytest.raises(ValidationError, match=r"^instruction 0 \(LOAD .*are outside.* \(and 2 more\)$") as caught:
        refuse(findings)
    assert caught.value.findings == findings
    with pytest.raises(ValidationError, match=r"outside of the program's 64 words$"):
        refuse(findings[:1])
    refuse([])


def test_undefined_operation(tiny: NpuConfig) -> None:
    config = replace(tiny, dtype="bf16")
    findings = validate(config, (Vector(operation=Operation.TABLE), END), 256)
    assert [one.rule for one in findings] == ["mode"]
    assert findings[0].message.endswith("): operation TABLE is not defined for dtype bf16")


@pytest.mark.parametrize(
    ("vector", "part"),
    [
        (
            Vector(operation=Operation.COPY, out_memory=Memory.ACC),
            "COPY goes from ACT to ACT or from ACT to WGT or from ACC to ACC, not from ACT to ACC",
        ),
        (Vector(operation=Operation.CONVERT), "CONVERT goes from ACT to ACC or from ACC to ACT, not from ACT to ACT"),
        (Vector(operation=Operation.MAX, a_stride_x=1), "a window operation has a_stride_x 0, not 1"),
        (Vector(operation=Operation.MAX, window_width=8), "window 1x8 exceeds max_window 7"),
        (Vector(operation=Operation.ADD, b_memory=Memory.ACC), "ADD reads its second source in ACT, not in ACC"),
        (Vector(operation=Operation.TABLE, a_memory=Memory.ACC), "TABLE goes from ACT to ACT, not from ACC to ACT"),
        (Vector(operation=Operation.MAX, out_memory=Memory.ACC), "MAX goes from ACT to ACT, not from ACT to ACC"),
    ],
)
def test_modes(vector: Vector, part: str, tiny: NpuConfig) -> None:
    findings = validate(tiny, (vector, END), 256)
    assert [one.rule for one in findings] == ["mode"]
    assert part in findings[0].message


# ---- DRAM as a way from STORE to LOAD

ROUND_TRIP = (
    Load(dram=0, words=2, word_stride=1, signal=STORE),
    Store(wait=LOAD, dram=10, words=2, word_stride=1, signal=LOAD),
    Load(wait=STORE, dram=10, words=2, word_stride=1, offset=8),
    END,
)


def test_a_load_after_a_store(tiny: NpuConfig) -> None:
    check(tiny, ROUND_TRIP, [], initialised=((0, 8),))
    without = change(change(ROUND_TRIP, 1, signal=0), 2, wait=0)
    message = "race in DRAM: instruction 2 (LOAD memory=ACT offset=8 dram=10 words=2 word_stride=1) reads what is"
    check(tiny, without, [("race", (2, 1), message)], initialised=((0, 8),))
    elsewhere = change(without, 2, dram=20)
    check(tiny, elsewhere, [], initialised=((0, 8), (80, 8)))
    check(tiny, elsewhere, [("unwritten", (2,), "dram reads word 20 of DRAM")], initialised=((0, 8),))


def test_results_that_are_never_written(tiny: NpuConfig) -> None:
    """Another program's data would come out as the result; words of which only a part is there count as unwritten."""
    program = (Load(dram=0, signal=STORE), Store(wait=LOAD, dram=4), END)
    size = tiny.word_bytes

    def found(start: int, length: int, initialised: int = size) -> list[str]:
        results = {"output y": (start * size, length)}
        return [one.message for one in validate(tiny, program, 40 * size, [(0, initialised)], results=results)]

    assert found(4, size) == [] and found(0, size) == [] and found(0, 0) == []
    assert found(4, size + 1) == ["output y: DRAM word 5 of it is never written"]
    assert found(3, 2 * size) == ["output y: DRAM word 3 of it is never written"]
    assert found(30, size) == ["output y: DRAM word 30 of it is never written"]
    assert found(4, size, size - 1) == [
        "instruction 0 (LOAD signal=STORE memory=ACT): dram reads word 0 of DRAM, which nothing has written"
    ]


def test_a_store_after_a_load(tiny: NpuConfig) -> None:
    """STORE may not overwrite what an earlier LOAD may still read."""
    program = (
        Load(dram=0, signal=STORE),
        Load(dram=4, offset=4),
        Store(wait=LOAD, dram=4),
        END,
    )
    check(tiny, program, [("race", (2, 1), "overwrites what is read by instruction 1")])
    check(tiny, change(change(program, 0, signal=0), 1, signal=STORE), [])


# ---- overwriting


def test_overwriting_what_another_engine_reads(tiny: NpuConfig) -> None:
    program = (
        Load(signal=STORE),
        Store(wait=LOAD, dram=30, signal=LOAD),
        Load(wait=STORE, dram=1),
        END,
    )
    check(tiny, program, [])
    without = change(change(program, 1, signal=0), 2, wait=0)
    check(tiny, without, [("race", (2, 1), "overwrites what is read by instruction 1 (STORE ")])


def test_overwriting_what_another_engine_writes(tiny: NpuConfig) -> None:
    program = (
        Load(signal=VECTOR),
        Vector(wait=LOAD, operation=Operation.COPY, out_offset=5, signal=LOAD),
        Load(wait=VECTOR, dram=1, offset=5),
        END,
    )
    check(tiny, program, [])
    without = change(change(program, 1, signal=0), 2, wait=0)
    check(tiny, without, [("race", (2, 1), "overwrites what is written by instruction 1 (VECTOR ")])


def test_an_engine_overwrites_its_own_words_in_order(tiny: NpuConfig) -> None:
    check(tiny, (Load(), Load(dram=1), Load(memory=Memory.WGT), END), [])
    copies = (
        Load(words=2, word_stride=1, signal=VECTOR),
        Vector(wait=LOAD, operation=Operation.COPY, a_offset=0, out_offset=4),
        Vector(operation=Operation.COPY, a_offset=1, out_offset=4),  # the same word again
        Vector(operation=Operation.COPY, a_offset=1, out_offset=0),  # what instruction 1 has read
        END,
    )
    check(tiny, copies, [])


# ---- drain


def test_vector_after_vector_needs_a_drain(tiny: NpuConfig) -> None:
    program = (
        Load(signal=VECTOR),
        Vector(wait=LOAD, operation=Operation.COPY, out_offset=5),
        Vector(operation=Operation.COPY, a_offset=5, out_offset=6, drain=1),
        END,
    )
    check(tiny, program, [])
    check(
        tiny,
        change(program, 2, drain=0),
        [("race", (2, 1), "reads what is written by instruction 1 (VECTOR ")],
    )
    # a drain between the two does as well, and so does a way round by another engine
    between = Vector(operation=Operation.COPY, out_offset=9, drain=1)
    check(tiny, (*program[:2], between, replace(program[2], drain=0), END), [])
    around = (
        *change(program[:2], 1, signal=STORE),
        Store(wait=VECTOR, offset=5, dram=40, signal=VECTOR),
        replace(program[2], drain=0, wait=STORE),
        END,
    )
    check(tiny, around, [])


def test_a_drain_knows_nothing_of_other_engines(tiny: NpuConfig) -> None:
    program = (Load(), Vector(operation=Operation.COPY, out_offset=5, drain=1), END)
    check(tiny, program, [("race", (1, 0), "reads what is written by instruction 0")])


MATRICES = (
    Load(memory=Memory.WGT, words=8, word_stride=1),
    Load(words=4, word_stride=1, signal=MATRIX),
    Matrix(wait=LOAD, width=4, act_stride_x=1, acc_stride_x=1),
    Matrix(accumulate=1, width=4, act_stride_x=1, acc_stride_x=1, wgt_offset=4),
    END,
)


def test_matrix_may_add_to_its_own_words_if_it_walks_alike(tiny: NpuConfig) -> None:
    check(tiny, MATRICES, [])
    backwards = change(MATRICES, 3, acc_offset=3, acc_stride_x=-1)
    check(tiny, backwards, [("race", (3, 2), "race in ACC bank 0: instruction 3")])
    check(tiny, change(backwards, 3, drain=1), [])
    moved = change(MATRICES, 3, acc_offset=1, width=3)
    check(tiny, moved, [("race", (3, 2), "race in ACC bank 0: instruction 3")])
    check(tiny, change(moved, 3, accumulate=0), [])


# ---- in place


COPY = Vector(operation=Operation.COPY, width=4, a_stride_x=1, out_stride_x=1)
ROW = Vector(operation=Operation.MAX, width=4, window_width=2, window_stride_x=1, out_stride_x=1)
COLUMN = Vector(operation=Operation.MAX, height=4, window_height=2, a_stride_y=1, window_stride_y=1, out_stride_y=1)


@pytest.mark.parametrize(
    ("vector", "is_sound"),
    [
        (COPY, True),
        (replace(COPY, a_offset=1), True),
        (replace(COPY, out_offset=1), False),
        (replace(COPY, out_offset=4), True),
        (replace(COPY, out_offset=3, out_stride_x=-1), False),
        (replace(COPY, width=1, out_offset=3, out_stride_x=-1), True),
        (ROW, True),
        (replace(ROW, out_offset=1), False),
        (replace(ROW, window_step=2), True),
        (COLUMN, True),
        (replace(COLUMN, out_offset=1), False),
    ],
)
def test_in_place(vector: Vector, is_sound: bool, tiny: NpuConfig) -> None:
    program = (Load(words=16, word_stride=1, signal=VECTOR), replace(vector, wait=LOAD), END)
    expected = [] if is_sound else [("overlap", (1,), "overwrites words of a before it reads them")]
    check(tiny, program, expected)


def test_rings(tiny: NpuConfig) -> None:
    load = Load(words=8, offset=12, word_stride=1, wrap=4, signal=STORE)
    store = Store(wait=LOAD, words=4, word_stride=1, dram=40)
    check(tiny, (load, store, END), [])  # words 12 to 15, then 0 to 3
    check(
        tiny,
        (load, replace(store, offset=4), END),
        [("unwritten", (1,), "source reads word 4 of ACT bank 0")],
    )
    check(tiny, (replace(load, wrap=3), replace(store, offset=8), END), [])
    check(tiny, (replace(load, words=17), store, END), [("overlap", (0,), "destination holds a word twice")])


# ---- token counters


def test_token_overflow(tiny: NpuConfig) -> None:
    signals = tuple(Load(signal=MATRIX) for _ in range(256))
    check(tiny, (*signals[:255], END), [])
    found = [("token overflow", (255,), "could be the signal number 256 from LOAD that MATRIX has not taken")]
    check(tiny, (*signals, END), found)


def test_token_overflow_that_only_timing_could_prevent(tiny: NpuConfig) -> None:
    loads = Load(memory=Memory.WGT, words=4, word_stride=1), Load()
    pairs = tuple(one for _ in range(300) for one in (Load(offset=8, signal=MATRIX), Matrix(wait=LOAD)))
    findings = validate(tiny, (*loads, *pairs, END), 256, ((0, 256),))
    assert {one.rule for one in findings} == {"token overflow"}
    assert findings[0].instructions == (2 + 2 * 255,)
    # with an answer every 100 signals the counter is known to fall
    answered = list(pairs)
    for at in range(199, 600, 200):
        answered[at] = replace(answered[at], signal=LOAD)
        if at + 1 < 600:
            answered[at + 1] = replace(answered[at + 1], wait=MATRIX)
    check(tiny, (*loads, *answered, END), [])


# ---- random programs against the relation itself


def _touched(config: NpuConfig, instruction: Instruction) -> list[tuple[set, bool]]:
    found: list[Operand] = list(operands(config, instruction))
    if isinstance(instruction, Load | Store):
        found.append(dram_operand(config, instruction))
    return [
        ({(one.memory, one.bank, int(word)) for word in one.words().reshape(-1)}, one.write)
        for one in sorted(found, key=lambda one: one.write)
    ]


def races_by_reachability(config: NpuConfig, instructions: tuple[Instruction, ...]) -> set[tuple[int, int]]:
    """All (later, earlier) that conflict without order, from a graph of issues and ends."""
    count = len(instructions) - 1
    reach = np.zeros((2 * count, 2 * count), bool)  # nodes: issue i, then end i
    latest: dict[Engine, int] = {}
    given: dict[tuple[Engine, Engine], list[int]] = {(a, b): [] for a in ENGINES for b in ENGINES}
    for index, one in enumerate(instructions[:-1]):
        engine = one.engine
        assert engine is not None
        reach[index, count + index] = True
        if engine in latest:
            before = latest[engine]
            reach[before, index] = reach[count + before, count + index] = True
            if one.drain:
                reach[count + before, index] = True
        for source in ENGINES:
            if one.wait >> source & 1:
                reach[count + given[source, engine].pop(0), index] = True
            if one.signal >> source & 1:
                given[engine, source].append(index)
        latest[engine] = index
    for middle in range(2 * count):
        reach |= np.outer(reach[:, middle], reach[middle])
    touched = [_touched(config, one) for one in instructions[:-1]]
    same = (
        "acc_bank",
        "acc_offset",
        "acc_stride_block",
        "acc_stride_y",
        "acc_stride_x",
        "blocks",
        "height",
        "width",
    )
    found = set()
    for later in range(count):
        for words, writes in touched[later]:
            remaining = set(words)
            for earlier in reversed(range(later)):
                one, two = instructions[later], instructions[earlier]
                alike = one.engine is two.engine
                ordered = reach[count + earlier, later]
                for others, wrote in touched[earlier]:
                    meet = remaining & others
                    if not meet or not (writes or wrote):
                        continue
                    if not writes:  # a reader looks at the last writer of each word
                        remaining -= meet
                        walks = isinstance(one, Matrix) and isinstance(two, Matrix)
                        walks = walks and all(getattr(one, name) == getattr(two, name) for name in same)
                        if not ordered and not walks:
                            found.add((later, earlier))
                    elif not ordered and not alike:
                        found.add((later, earlier))
    return found


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 12), orderly=st.sampled_from([0.3, 0.7, 0.95]))
def test_races_are_those_of_the_relation(
    seed: int, length: int, orderly: float, tiny: NpuConfig, programs: ModuleType
) -> None:
    case = programs.random_case(seed, length, orderly=orderly)
    findings = validate(tiny, case.instructions, case.dram_bytes, case.initialised, limit=1000)
    assert {one.rule for one in findings} <= {"race", "overlap"}, [str(one) for one in findings]
    expected = races_by_reachability(tiny, case.instructions)
    # if there is a race, one is named, and the first that is named is one (later ones may follow from it)
    named = [one.instructions for one in findings if one.rule == "race"]
    assert bool(named) == bool(expected)
    assert not named or named[0] in expected


def test_random_programs_are_of_both_kinds(tiny: NpuConfig, programs: ModuleType) -> None:
    cases = [programs.random_case(seed, 6) for seed in range(60)]
    racy = sum(bool(validate(tiny, one.instructions, one.dram_bytes, one.initialised)) for one in cases)
    assert 10 < racy < 50


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), latency=st.sampled_from([1, 10, 300]), depth=st.sampled_from([1, 8]))
def test_sound_programs_compute_the_same_in_the_order_of_time(
    seed: int, latency: int, depth: int, tiny: NpuConfig, programs: ModuleType
) -> None:
    """What the validator lets pass gives the results of program order, whenever instructions end."""
    case = programs.random_case(seed, 8)
    if validate(tiny, case.instructions, case.dram_bytes, case.initialised):
        return
    config = replace(tiny, queue_depth=depth)
    schedule = simulate_timing(config, case.instructions, DramModel(latency=latency))
    dram = np.random.default_rng(seed).integers(0, 256, case.dram_bytes, dtype=np.uint8)
    machines = [FunctionalSimulator(tiny, dram.copy()) for _ in range(2)]
    for machine, order in zip(machines, (range(len(schedule.end)), np.argsort(schedule.end)), strict=True):
        with np.errstate(all="ignore"):  # random bits as multipliers
            for index in order:
                machine.execute(case.instructions[index])
    one, two = machines
    for name in ("act", "wgt", "acc", "par", "dram"):
        assert (getattr(one, name) == getattr(two, name)).all(), name


def test_findings_are_values() -> None:
    one = Finding("race", (2, 1), "text")
    assert str(one) == "text" and one == Finding("race", (2, 1), "text")
