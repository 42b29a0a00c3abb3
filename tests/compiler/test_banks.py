"""banks: places for buffers while tasks are put in order, and ports that engines keep from each other."""

import random
from dataclasses import replace
from math import inf

import pytest
from npukit.compiler.passes.allocate import DoesNotFit
from npukit.compiler.passes.banks import Banks
from npukit.compiler.passes.list_scheduling import list_schedule
from npukit.compiler.tasks import Buffer, Operand, Task
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Engine, Load, Matrix, Memory, Store, Vector

CONFIG = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=4, acc_depth=16, acc_banks=2, wgt_depth=64)
INSTRUCTION = {Engine.LOAD: Load(), Engine.MATRIX: Matrix(), Engine.VECTOR: Vector(), Engine.STORE: Store()}


def act(words: int, label: str = "x") -> Buffer:
    return Buffer(Memory.ACT, words, label)


def task(engine: Engine, reads: tuple[Buffer, ...] = (), writes: tuple[Buffer, ...] = ()) -> Task:
    operands = [Operand("a", one) for one in reads] + [Operand("out", one, write=True) for one in writes]
    return Task(engine, INSTRUCTION[engine], tuple(operands), 0)


def test_readers_of_one_bank_wait_for_each_other() -> None:
    """One read port a bank: another engine waits until the first has read, the same one does not."""
    x = act(8)
    tasks = [task(Engine.LOAD, writes=(x,)), *(task(one, (x,)) for one in (Engine.MATRIX, Engine.VECTOR))]
    tasks.append(task(Engine.MATRIX, (x,)))
    banks = Banks(CONFIG, tasks, 10)
    assert banks.begin(tasks[0], 0, None) is None
    banks.end(tasks[0], 10, 20)
    assert banks.begin(tasks[1], 5, None) is None, "the side that is written is another one"
    banks.end(tasks[1], 100, 130)
    assert banks.begin(tasks[2], 50, None) == (100, Memory.ACT)
    assert banks.begin(tasks[2], 100, None) is None
    assert banks.begin(tasks[3], 50, None) is None


def test_sums_are_read_and_written() -> None:
    """MATRIX holds both sides of the bank that it sums up in, so that VECTOR cannot read others' sums there."""
    config = replace(PRESETS["int8-4x4"], acc_depth=16, acc_banks=1)
    sums, others = (Buffer(Memory.ACC, 4, "sums") for _ in range(2))
    tasks = [task(Engine.VECTOR, writes=(others,)), task(Engine.MATRIX, writes=(sums,)), task(Engine.VECTOR, (others,))]
    banks = Banks(config, tasks, 10)
    for one, end in zip(tasks[:2], (10, 100), strict=True):
        assert banks.begin(one, end - 10, None) is None
        banks.end(one, end, end)
    assert banks.begin(tasks[2], 50, None) == (100, Memory.ACC)


def test_a_result_keeps_away_from_a_bank_that_is_read() -> None:
    x, y = act(8), act(8)
    tasks = [task(Engine.LOAD, writes=(x,)), task(Engine.MATRIX, (x,)), task(Engine.VECTOR, (), (y,))]
    banks = Banks(CONFIG, [*tasks, task(Engine.STORE, (x, y))], 10)
    for one, at in zip(tasks[:2], (0, 10), strict=True):
        assert banks.begin(one, at, None) is None
        banks.end(one, at + 500, at + 500)
    assert banks.begin(tasks[2], 20, None) is None
    assert banks.place[x][0] != banks.place[y][0]


def test_words_are_free_when_their_last_user_ends() -> None:
    config = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=1)
    x, y = act(40), act(40)
    tasks = [task(Engine.LOAD, writes=(x,)), task(Engine.STORE, (x,)), task(Engine.LOAD, writes=(y,))]
    banks = Banks(config, tasks, 10)
    assert banks.begin(tasks[0], 0, None) is None
    assert banks.end(tasks[0], 10, 20) == set()
    assert banks.begin(tasks[2], 15, None) == (inf, Memory.ACT), "somebody has yet to read it"
    assert banks.begin(tasks[1], 20, None) is None
    assert banks.end(tasks[1], 70, 90) == {Memory.ACT}
    assert banks.begin(tasks[2], 30, None) == (70, Memory.ACT)
    assert y not in banks.place
    assert banks.begin(tasks[2], 70, None) is None
    assert banks.place[y] == (0, 0)


def test_what_looks_ahead_leaves_room() -> None:
    """A share of the memory, and a stretch for the plan's longest buffer."""
    config = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=2)
    small, large = [act(20, str(index)) for index in range(5)], act(60)
    tasks = [task(Engine.LOAD, writes=(one,)) for one in (*small, large)]
    banks = Banks(config, tasks * 2, 10)
    assert [banks.begin(one, 0, 1.0) is None for one in tasks[:5]] == [True, True, True, False, False]
    assert {banks.place[one][0] for one in small[:3]} == {banks.place[small[0]][0]}
    assert banks.begin(tasks[5], 0, None) is None, "its turn has come"
    banks = Banks(config, tasks[:5] * 2, 10)
    assert [banks.begin(one, 0, 0.4) is None for one in tasks[:5]] == [True, True, False, False, False]


def test_what_fails_takes_nothing() -> None:
    """A task of which one buffer has no place takes none for the others."""
    config = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=1)
    x, y, z = act(30), act(30), act(10)
    both = task(Engine.VECTOR, (x,), (y,))
    banks = Banks(config, [task(Engine.LOAD, writes=(z,)), both, task(Engine.VECTOR, (z,))], 10)
    assert banks.begin(task(Engine.LOAD, writes=(z,)), 0, None) is None
    assert banks.begin(both, 0, None) == (inf, Memory.ACT)
    assert {x, y}.isdisjoint(banks.place)
    banks.end(task(Engine.LOAD, writes=(z,)), 5, 5)
    assert banks.begin(task(Engine.LOAD, writes=(act(50),)), 5, None) is None


def chains(rng: random.Random, count: int) -> list[Task]:
    """Load, compute and store, many times, of buffers that several tasks read."""
    tasks: list[Task] = []
    kept: list[Buffer] = []
    for number in range(count):
        x, y = act(rng.choice((1, 3, 12, 30)), f"x{number}"), act(rng.choice((1, 8, 30)), f"y{number}")
        sums = Buffer(Memory.ACC, rng.choice((1, 5, 16)), f"sums{number}")
        tasks += [task(Engine.LOAD, writes=(x,)), task(Engine.MATRIX, (x, *kept[-1:]), (sums,))]
        tasks += [task(Engine.VECTOR, (sums,), (y,)), task(Engine.STORE, (y,))]
        kept = [*kept, x][-rng.randint(1, 2) :]
    return tasks


@pytest.mark.parametrize("room", [0.3, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3, pytest.param(random.randrange(1 << 30), id="fresh")])
def test_random_plans(seed: int, room: float) -> None:
    """Buffers that live at the same time lie apart, and each task comes behind those that it waits for."""
    print("seed", seed)
    rng = random.Random(seed)
    tasks = chains(rng, 60)
    cycles = {one: rng.randint(1, 300) for one in tasks}
    order, place = list_schedule(
        CONFIG, tasks, 40, room, lambda one, _: cycles[one], dict.fromkeys(Engine, rng.randint(0, 20))
    )
    assert sorted(map(id, order)) == sorted(map(id, tasks))
    at = {one: index for index, one in enumerate(order)}
    users: dict[Buffer, list[int]] = {}
    for one in tasks:
        for operand in one.operands:
            users.setdefault(operand.buffer, []).append(at[one])
    for buffer, mine in users.items():
        assert mine[0] == min(mine), "it is written first"
        bank, low = place[buffer]
        banks, depth = (4, 64) if buffer.memory is Memory.ACT else (2, 16)
        assert 0 <= bank < banks and 0 <= low <= depth - buffer.words
        for other, theirs in users.items():
            if other is not buffer and other.memory is buffer.memory and place[other][0] == bank:
                apart = low + buffer.words <= place[other][1] or place[other][1] + other.words <= low
                assert apart or max(mine) < min(theirs) or max(theirs) < min(mine)


def test_no_room_at_all() -> None:
    """Two buffers that are used together, and a memory that holds one."""
    config = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=1)
    x, y = act(40), act(40, "the second")
    tasks = [task(Engine.LOAD, writes=(x,)), task(Engine.LOAD, writes=(y,)), task(Engine.VECTOR, (x, y))]
    with pytest.raises(DoesNotFit, match="40 words of ACT for the second beside what is in use"):
        list_schedule(config, tasks, 10, 1.0, lambda one, _: 1, dict.fromkeys(Engine, 0))


def test_long_buffers_that_are_wanted_together_keep_their_banks() -> None:
    """Three in four banks: what looks ahead shares the fourth, until one of them has its place."""
    long, small = [act(60, str(index)) for index in range(3)], [act(30, str(index)) for index in range(4)]
    tasks = [task(Engine.LOAD, writes=(one,)) for one in long] + [task(Engine.VECTOR, tuple(long))]
    tasks += [task(Engine.LOAD, writes=(one,)) for one in small]
    banks = Banks(CONFIG, tasks * 2, 10)
    assert [banks.begin(one, 0, 1.0) is None for one in tasks[4:]] == [True, True, False, False]
    assert all(banks.begin(one, 0, None) is None for one in tasks[:3])
