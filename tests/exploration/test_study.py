"""The search: its front, that nothing is lost by a kill or a worker, and what it leaves out."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import pytest
from npukit.compiler.errors import ModelError
from npukit.isa.config import PRESETS, NpuConfig
from npukit.sim.dram import DramModel

import npukit
from npukit import zoo
from npukit.errors import UsageError
from npukit.exploration.evaluate import Candidate, Model, Result, evaluate, least
from npukit.exploration.space import Limits, Space, read_space
from npukit.exploration.study import BATCH, Explored, Point, explore, front_of
from npukit.profiling.energy import energy_of

pytest.importorskip("optuna")

BASE = PRESETS["int8-8x8"]
CHOICES = {"array": (4, 8, 16), "bus_bytes": (4, 8, 16), "vector_lanes": (1, 2, 4), "act_depth": (256, 512, 1024)}
SPACE = Space(BASE, CHOICES)
MODELS = [Model("a", b"a", macs=10_000_000), Model("b", b"b", macs=400_000)]
OBJECTIVES = ["cycles", "memory", "energy"]


class Killed(BaseException):
    """As by a signal."""


def _result(model: Model, candidate: Candidate) -> Result:
    """A machine's cycles and energy by a formula that is above the bounds."""
    config = candidate.config
    cycles, energy = least(model, config)
    slow = 1 + 8 / config.bus_bytes + 2 / config.vector_lanes + (config.array * 16) / config.act_depth
    return Result(cycles=round(cycles * slow), macs=model.macs, energy=energy * (2 + config.act_depth / 512))


def _run(candidates: Sequence[Candidate], dies_after: list[int] | None = None) -> Iterator[list[Result]]:
    for one in candidates:
        if dies_after is not None:
            dies_after[0] -= 1
            if dies_after[0] < 0:
                raise Killed
        yield [_result(model, one) for model in MODELS]


def _seen(found: Explored) -> list[tuple]:
    return [(one.number, one.candidate, tuple(one.values.items())) for one in found.points]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_a_kill_changes_nothing(tmp_path: Path, sampler: str) -> None:
    """Wherever a run is stopped, between two evaluations or within what it tells, it goes on to the same points."""
    trials = 3 * BATCH + 5
    whole = explore(SPACE, MODELS, OBJECTIVES, trials, _run, sampler=sampler, seed=3)
    assert len(whole.points) == trials
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    journal = tmp_path / "journal"
    left = [draw.randrange(1, 20)]
    kills = 0
    while True:
        try:
            found = explore(
                SPACE, MODELS, OBJECTIVES, trials, partial(_run, dies_after=left),
                journal=journal, sampler=sampler, seed=3,
            )  # fmt: skip
            break
        except Killed:
            kills += 1
            left = [draw.randrange(BATCH - 2, 3 * BATCH)]
    assert kills >= 1
    assert _seen(found) == _seen(whole), f"seed {seed}"
    assert [one.number for one in found.front] == [one.number for one in whole.front]


def test_a_kill_while_results_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from npukit.exploration import study

    whole = explore(SPACE, MODELS, OBJECTIVES, 2 * BATCH, _run, seed=1)
    told, tell = [0], study._Search.tell

    def dying(self, *arguments) -> None:
        told[0] += 1
        if told[0] == 7:
            raise Killed
        tell(self, *arguments)

    monkeypatch.setattr(study._Search, "tell", dying)
    with pytest.raises(Killed):
        explore(SPACE, MODELS, OBJECTIVES, 2 * BATCH, _run, journal=tmp_path / "journal", seed=1)
    found = explore(SPACE, MODELS, OBJECTIVES, 2 * BATCH, _run, journal=tmp_path / "journal", seed=1)
    assert _seen(found) == _seen(whole)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_journal_that_ends_anywhere(tmp_path: Path, sampler: str) -> None:
    """A line or a part of one is the last that a killed run has written: the points are those of a whole run."""
    trials = BATCH + 6
    journal = tmp_path / "journal"
    whole = _seen(explore(SPACE, MODELS, OBJECTIVES, trials, _run, journal=journal, sampler=sampler, seed=4))
    lines = journal.read_bytes().splitlines(keepends=True)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for count in (1, 2, 3, *draw.sample(range(4, len(lines)), 9)):
        text = b"".join(lines[:count])
        journal.write_bytes(text + lines[count][: draw.choice([0, 1, 30])] if count < len(lines) else text)
        found = explore(SPACE, MODELS, OBJECTIVES, trials, _run, journal=journal, sampler=sampler, seed=4)
        assert _seen(found) == whole, f"seed {seed}, {count} lines of {len(lines)}"


def test_journals_that_are_none(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    explore(SPACE, MODELS, OBJECTIVES, 2, _run, journal=journal)
    good = journal.read_bytes()
    for bad in (b"\0\0\n", b"words\n", b"[1]\n"):
        journal.write_bytes(good + bad)
        with pytest.raises(UsageError, match=f"journal is damaged in line {good.count(10) + 1};"):
            explore(SPACE, MODELS, OBJECTIVES, 3, _run, journal=journal)
        assert journal.read_bytes() == good + bad
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot write .*folder: Is a directory"):
        explore(SPACE, MODELS, OBJECTIVES, 3, _run, journal=tmp_path / "folder")


def test_one_search_at_a_time(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def other(candidates: Sequence[Candidate]) -> Iterator[list[Result]]:
        with pytest.raises(UsageError, match="another search works with .*journal"):
            explore(SPACE, MODELS, OBJECTIVES, 4, _run, journal=journal)
        return _run(candidates)

    assert len(explore(SPACE, MODELS, OBJECTIVES, 4, other, journal=journal).points) == 4


def test_each_machine_once() -> None:
    """More lanes than columns are no other machine, and the search ends when all were tried."""
    space = Space(PRESETS["int8-4x4"], {"vector_lanes": (4, 8, 16), "bus_bytes": (4, 8)})
    found = explore(space, MODELS, ["memory", "cycles"], 20, _run, sampler="random")
    machines = [one.candidate.config for one in found.points]
    assert len(machines) == len(set(machines)) <= 2


def test_nothing_of_the_front_is_left_out() -> None:
    """What is told without being evaluated is what the whole space, evaluated, does not have on its front either."""
    small = Space(BASE, {name: CHOICES[name] for name in ("array", "bus_bytes", "vector_lanes")})
    found = explore(small, MODELS, OBJECTIVES, 500, _run, sampler="random", seed=5)
    every = []
    for number, values in enumerate(product(*small.choices.values())):
        config = small.config(dict(zip(small.choices, values, strict=True)))
        results = [_result(model, Candidate(config)) for model in MODELS]
        cycles, energy = (
            (results[0].cycles * results[1].cycles) ** 0.5,
            (results[0].energy * results[1].energy) ** 0.5,
        )
        every.append(Point(number, Candidate(config), {"cycles": cycles, "energy": energy,
                                                       "memory": config.on_chip_bytes}, results))  # fmt: skip
    wanted = {one.candidate.config for one in front_of(every, OBJECTIVES)}
    values = {tuple(round(one.values[name], 3) for name in OBJECTIVES) for one in found.front}
    by_hand = {tuple(round(one.values[name], 3) for name in OBJECTIVES) for one in every
               if one.candidate.config in wanted}  # fmt: skip
    assert values == by_hand


def test_front() -> None:
    """Against all pairs."""
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    points = [
        Point(number, Candidate(BASE), {name: draw.randrange(8) for name in OBJECTIVES}, [])
        for number in range(200)
    ]  # fmt: skip
    kept = front_of(points, OBJECTIVES)
    rows = {one.number: [one.values[name] for name in OBJECTIVES] for one in points}
    for one in points:
        better = [other for other in points if rows[other.number] != rows[one.number]
                  and all(a <= b for a, b in zip(rows[other.number], rows[one.number], strict=True))]  # fmt: skip
        first = min(number for number, row in rows.items() if row == rows[one.number])
        assert (one in kept) == (not better and first == one.number), f"seed {seed}"


def test_limits() -> None:
    limited = Space(BASE, CHOICES, limits=Limits(on_chip_kib=200))
    found = explore(limited, MODELS, OBJECTIVES, 20, _run)
    assert found.points and all(one.candidate.config.on_chip_bytes <= 200 * 1024 for one in found.points)
    with pytest.raises(UsageError, match="no machine drawn from the space is possible.*KiB on chip"):
        explore(Space(BASE, CHOICES, limits=Limits(on_chip_kib=1)), MODELS, OBJECTIVES, 5, _run)


def test_another_search(tmp_path: Path) -> None:
    explore(SPACE, MODELS, OBJECTIVES, 3, _run, journal=tmp_path / "journal")
    with pytest.raises(UsageError, match="different: objectives"):
        explore(SPACE, MODELS, ["cycles", "memory"], 3, _run, journal=tmp_path / "journal")
    with pytest.raises(UsageError, match="different: models"):
        explore(SPACE, MODELS[:1], OBJECTIVES, 3, _run, journal=tmp_path / "journal")


def test_evaluation(kept_in: Path) -> None:
    """What a profile says; the same again from what is kept, and anew where that is damaged."""
    model = Model("digits", zoo.load("digits"))
    candidate = Candidate(BASE, latency=40)
    (found,) = evaluate([model], candidate)
    timed = npukit.profile(model.data, BASE, dram=DramModel(latency=40))
    assert (found.cycles, found.macs) == (timed.profile.cycles, timed.profile.macs) and not found.refused
    assert found.energy == pytest.approx(timed.energy.total)
    assert least(model, BASE) == (0, 0)
    bound = least(Model("digits", b"", macs=found.macs), BASE)
    assert bound[0] <= found.cycles and bound[1] <= found.energy
    (kept,) = kept_in.glob("*.json")
    assert evaluate([model], candidate) == [found]
    kept.write_bytes(kept.read_bytes()[:-20])
    assert evaluate([model], candidate) == [found]


@pytest.mark.parametrize("rows", [0, 4])
@pytest.mark.usefixtures("kept_in")
def test_bounds_of_rectangles(rows: int) -> None:
    """No program is below what the multiply-accumulates alone take, however many passes the array needs."""
    model, config = Model("digits", zoo.load("digits")), replace(PRESETS["int8-16x16"], array_rows=rows)
    (found,) = evaluate([model], Candidate(config))
    cycles, energy = least(Model("digits", b"", macs=found.macs), config)
    assert cycles <= found.cycles
    compiled = npukit.compile(model.data, config)
    parts = [energy_of(one, range(len(one.instructions))) for one in compiled.programs.values()]
    assert energy <= sum(one.array for one in parts)


def test_what_fails_on_the_host_is_not_kept(kept_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("digits", zoo.load("digits"))
    with monkeypatch.context() as patched:
        patched.setattr("npukit.exploration.evaluate.compile", Mock(side_effect=ModelError("killed by signal 9")))
        (found,) = evaluate([model], Candidate(BASE))
    assert "killed by signal 9" in found.refused and not [*kept_in.iterdir()]
    (found,) = evaluate([model], Candidate(BASE))
    assert not found.refused and [*kept_in.iterdir()]


@pytest.mark.parametrize(
    ("base", "chosen", "expected"),
    [
        ("int8-16x16", {"array": 12, "bus_bytes": 4, "vector_lanes": 16, "array_rows": 8}, (12, 6, 12, 4, 2)),
        ("int8-16x16", {"array": 20, "bus_bytes": 4, "vector_lanes": 8, "array_rows": 16}, (20, 10, 5, 4, 2)),
        ("int8-16x16", {"array": 4, "bus_bytes": 4, "vector_lanes": 8, "array_rows": 16}, (4, 0, 4, 4, 2)),
        ("bf16-16x16", {"array": 6, "bus_bytes": 4, "vector_lanes": 4, "array_rows": 4}, (6, 0, 3, 6, 2)),
    ],
)
def test_numbers_that_divide_the_columns(base: str, chosen: dict[str, int], expected: tuple[int, ...]) -> None:
    space = Space(PRESETS[base], {name: (value,) for name, value in chosen.items()})
    found = space.config(chosen)
    names = ("array", "array_rows", "vector_lanes", "softmax_cycles", "normalize_cycles")
    assert tuple(getattr(found, name) for name in names) == expected


@pytest.mark.usefixtures("kept_in")
def test_a_machine_that_needs_the_host_is_refused() -> None:
    """Fewer cycles because softmax stays on the host are no gain."""
    model = Model("digits-vit", zoo.load("digits-vit"))
    without = NpuConfig(**{**BASE.to_dict(), "softmax_cycles": 0})
    (found,) = evaluate([model], Candidate(without))
    assert "would stay on the host" in found.refused and found.staying
    (allowed,) = evaluate([Model("digits-vit", model.data, frozenset(found.staying))], Candidate(without))
    assert not allowed.refused and allowed.cycles


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("array = 3", "array"), ("[fields]\nsize = [1]", "size"),
        ("[fields]\narray = 8", "fields.array must be a list"),
        ("[fields]\narray = []", "one value or more"), ("[fields]\narray = [8, 8]", "each once"),
        ('[fields]\narray = ["8"]', "whole number"), ("[limits]\nlut4 = -1", "above 0"), ("[", "space.toml"),
        ("optimize = [3]", "from 0 to 2"), ('base = "none"', "none"), ("\x00", "space.toml"),
    ],
)  # fmt: skip
def test_bad_spaces(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=part):
        read_space(path, BASE)


def test_a_space_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text('base = "int8-4x4"\ndram_latency = [50, 100]\noptimize = [0, 1]\n[fields]\narray = [4, 16]\n'
                    "vector_lanes = [8]\n[limits]\non_chip_kib = 384\n")  # fmt: skip
    space = read_space(path, BASE)
    assert space.base == PRESETS["int8-4x4"] and space.limits == Limits(on_chip_kib=384)
    assert (space.latencies, space.levels) == ((50, 100), (0, 1))
    small, large = (space.config({"array": size, "vector_lanes": 8}) for size in (4, 16))
    assert (small.vector_lanes, large.vector_lanes) == (4, 8), "no more lanes than columns"
    with pytest.raises(UsageError, match="cannot read"):
        read_space(tmp_path / "none.toml", BASE)
    assert "int8-8x8" in Space(BASE, {"array": (8,)}).presets()
