"""The search: trials in batches, whose results do not depend on how many workers there are or when a run was cut off.

All trials of a batch are drawn before any of it is told, each from a generator seeded by its number, and they are told
in order. What was drawn is in the study's journal, and what was evaluated in the cache, so that a run that was killed
goes on with the batch that it had begun, and draws afterwards what it would have drawn. A trial that was drawn in part
fails, and is drawn anew; failed trials do not count.
"""

import fcntl
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npukit.compiled import SOURCES
from npukit.errors import UsageError
from npukit.exploration.evaluate import Candidate, Model, Result, least
from npukit.exploration.space import Space
from npukit.exploration.workers import Evaluate
from npukit.hw.toolchain import needs
from npukit.isa.config import ConfigError, NpuConfig

if TYPE_CHECKING:
    import optuna

__all__ = ["OBJECTIVES", "SAMPLERS", "Explored", "Point", "explore", "front_of"]

OBJECTIVES = ("cycles", "area", "energy", "memory")
SAMPLERS = ("tpe", "nsga2", "random")
BATCH = 16
"""Trials that are drawn before any of them is told."""
_MOST_DRAWN = 50
"""Draws for each trial before a space is given up in which nothing is possible."""


@dataclass(frozen=True)
class Point:
    """A machine that was evaluated.

    Attributes:
        number: the trial's.
        values: of each objective, to be small: geometric means over the models of cycles and of picojoules; LUT4 by the
            area model; bytes on chip. Empty where the machine was refused, or left out.
        refused: why, if it was.
        origin: the preset that it is, or empty.
    """

    number: int
    candidate: Candidate
    values: Mapping[str, float]
    results: Sequence[Result]
    refused: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Explored:
    """All points, in the order of their trials."""

    space: Space
    models: Sequence[Model]
    objectives: Sequence[str]
    points: Sequence[Point]

    @property
    def front(self) -> list[Point]:
        """Those that no other one equals or beats in every objective."""
        return front_of(self.points, self.objectives)


def front_of(points: Sequence[Point], objectives: Sequence[str]) -> list[Point]:
    """Points with values that no other point is at least as good as in all objectives; of equal ones the first."""
    found: list[Point] = []
    valid = [one for one in points if one.values]
    for one in valid:
        mine = [one.values[name] for name in objectives]
        beaten = False
        for other in valid:
            theirs = [other.values[name] for name in objectives]
            if other is not one and all(a <= b for a, b in zip(theirs, mine, strict=True)):
                beaten |= theirs != mine or other.number < one.number
        if not beaten:
            found.append(one)
    return sorted(found, key=lambda one: [one.values[name] for name in objectives])


def explore(
    space: Space, models: Sequence[Model], objectives: Sequence[str], trials: int, run: Evaluate, *,
    journal: Path | None = None, sampler: str = "tpe", seed: int = 0,
    progress: Callable[[Explored], None] = lambda _: None,
) -> Explored:  # fmt: skip
    """Evaluate machines until there are so many trials, those of an earlier run with the same journal included.

    Args:
        journal: a file in which trials are kept; None: nowhere.
        progress: called after each batch.

    Raises:
        ToolError: Optuna is not installed.
        UsageError: the journal is of another search, damaged, or in use; or nothing in the space is possible.
    """
    with needs("explore", "npukit explore"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    search = _Search(space, models, objectives, sampler, seed)
    with _held(journal):
        study = search.open(journal)
        while True:
            found = search.explored(study.trials)
            progress(found)
            done = len(found.points)
            # a batch that a killed run has told in part is told to its end before another one is drawn
            batch = search.drawn(study, min(BATCH - done % BATCH, trials - done), found) if done < trials else []
            if not batch:
                return found
            candidates = [search.candidate(one.params) for one in batch]
            results = list(run(candidates))
            for trial, one in zip(batch, results, strict=True):
                search.tell(study, trial, one)


@contextmanager
def _held(journal: Path | None) -> Iterator[None]:
    """A journal for this process alone, and whole: a line that a kill cut off is taken away.

    Raises:
        UsageError: another process has it, or it is damaged.
    """
    if journal is None:
        yield
        return
    try:
        file = open(journal, "ab+")
    except OSError as error:
        raise UsageError(f"cannot write {journal}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another search works with {journal}; give another folder, or wait for it") from None
        file.seek(0)
        text = file.read()
        end = text.rfind(b"\n") + 1
        for number, line in enumerate(text[:end].splitlines(), 1):
            try:
                whole = isinstance(json.loads(line), dict)
            except ValueError:
                whole = False
            if not whole:
                raise UsageError(
                    f"{journal} is damaged in line {number}; give another folder, or remove it: what was evaluated "
                    "stays in the cache"
                )
        if end < len(text):
            os.truncate(file.fileno(), end)
        yield


class _Search:
    def __init__(
        self, space: Space, models: Sequence[Model], objectives: Sequence[str], sampler: str, seed: int
    ) -> None:
        self.space, self.models, self.objectives = space, models, objectives
        self.sampler, self.seed = sampler, seed

    def open(self, journal: Path | None) -> "optuna.Study":
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        storage = JournalStorage(JournalFileBackend(str(journal))) if journal else None
        study = optuna.create_study(
            storage=storage,
            study_name="npukit",
            load_if_exists=True,
            directions=[optuna.study.StudyDirection.MINIMIZE] * len(self.objectives),
        )
        told = self._described()
        before = study.user_attrs.get("search")
        if before is None:
            for name, chosen in {"base": self.space.chosen(self.space.base), **self.space.presets()}.items():
                if chosen is not None:
                    params = {**chosen, "dram_latency": self.space.latencies[0], "optimize": self.space.levels[0]}
                    study.enqueue_trial(params, user_attrs={"origin": name}, skip_if_exists=True)
            study.set_user_attr("search", told)
        elif before != told:
            different = ", ".join(name for name in told if told[name] != before.get(name))
            raise UsageError(
                f"{journal} is of another search (different: {different}); give another folder, or remove it"
            )
        return study

    def _described(self) -> dict[str, Any]:
        from hashlib import sha256

        return {
            "models": [[one.name, sha256(one.data).hexdigest()] for one in self.models],
            "base": self.space.base.to_dict(),
            "fields": {name: list(values) for name, values in self.space.choices.items()},
            "dram_latency": list(self.space.latencies),
            "optimize": list(self.space.levels),
            "limits": vars(self.space.limits),
            "objectives": list(self.objectives),
            "sampler": self.sampler,
            "seed": self.seed,
            "release of npukit": SOURCES,
        }

    def _sampler(self, number: int) -> "optuna.samplers.BaseSampler":
        from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler

        seed = (self.seed * 1_000_003 + number) % (1 << 32)
        if self.sampler == "nsga2":
            return NSGAIISampler(population_size=BATCH, seed=seed)
        if self.sampler == "random":
            return RandomSampler(seed=seed)
        return TPESampler(multivariate=True, n_startup_trials=2 * BATCH, seed=seed)

    def candidate(self, params: Mapping[str, int]) -> Candidate:
        """Raises: ConfigError."""
        return Candidate(self.space.config(params), params["dram_latency"], params["optimize"])

    def drawn(self, study: "optuna.Study", count: int, so_far: Explored) -> list["optuna.Trial"]:
        """Trials to evaluate, those that a killed run had drawn first; none where none is left that could be on the
        front. Machines that are not possible, that were tried, or that cannot be on the front are told at once.

        Raises:
            UsageError: nothing is possible.
        """
        import optuna
        from optuna.trial import TrialState

        choices = {**self.space.choices, "dram_latency": self.space.latencies, "optimize": self.space.levels}
        pending = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        tried = {one.candidate: f"the same machine as trial {one.number}" for one in so_far.points}
        found: list[optuna.Trial] = []
        reason = ""
        for _ in range(_MOST_DRAWN * count):
            if len(found) == count:
                break
            if pending:
                begun = pending.pop(0)
                if len(begun.params) < len(choices) and "fixed_params" not in begun.system_attrs:
                    study.tell(begun.number, state=TrialState.FAIL)
                    continue
                # Optuna has no other way to go on with a trial that another process has begun
                trial = optuna.Trial(study, begun._trial_id)
            else:
                study.sampler = self._sampler(len(_counted(study.get_trials(deepcopy=False))))
                trial = study.ask()
            for name, values in choices.items():
                trial.suggest_categorical(name, list(values))
            if "drawn" not in trial.user_attrs:  # what a killed run has told of the batch does not count here
                reason = self._impossible(trial.params, so_far.front) or tried.get(self.candidate(trial.params), "")
                if reason:
                    trial.set_user_attr("left out", reason)
                    study.tell(trial.number, state=TrialState.PRUNED)
                    continue
                trial.set_user_attr("drawn", True)
            tried[self.candidate(trial.params)] = "the same machine as another one of its batch"
            found.append(trial)
        if not found and not so_far.points:
            raise UsageError(f"no machine drawn from the space is possible; the last one: {reason}")
        return found

    def _impossible(self, params: Mapping[str, int], front: Sequence[Point]) -> str:
        """Why a machine need not be evaluated; empty where it has to be."""
        try:
            candidate = self.candidate(params)
        except ConfigError as error:
            return str(error)
        config, limits = candidate.config, self.space.limits
        if limits.on_chip_kib is not None and config.on_chip_bytes > 1024 * limits.on_chip_kib:
            return f"{config.on_chip_bytes / 1024:g} KiB on chip"
        if limits.lut4 is not None and (area := self._area(config)) > limits.lut4:
            return f"{area:.0f} LUT4"
        bounds = [least(model, config) for model in self.models]
        best = {"cycles": _mean([cycles for cycles, _ in bounds]), "energy": _mean([energy for _, energy in bounds]),
                **self._known(config)}  # fmt: skip
        for point in front:
            if all(point.values[name] <= best[name] for name in self.objectives):
                return f"trial {point.number} is at least as good as it could be"
        return ""

    def _area(self, config: NpuConfig) -> float:
        from npukit.fpga.area_model import predict

        return float(predict(config).lut4)

    def _known(self, config: NpuConfig) -> dict[str, float]:
        found = {"memory": float(config.on_chip_bytes)}
        if "area" in self.objectives:
            found["area"] = self._area(config)
        return found

    def tell(self, study: "optuna.Study", trial: "optuna.Trial", results: Sequence[Result]) -> None:
        """Keep what a machine makes of the models."""
        from optuna.trial import TrialState

        trial.set_user_attr("results", [asdict(one) for one in results])
        values = self._values(self.candidate(trial.params).config, results)
        if values:
            study.tell(trial.number, [values[name] for name in self.objectives])
        else:
            study.tell(trial.number, state=TrialState.PRUNED)

    def _values(self, config: NpuConfig, results: Sequence[Result]) -> dict[str, float]:
        if any(one.refused for one in results):
            return {}
        return {"cycles": _mean([one.cycles for one in results]), "energy": _mean([one.energy for one in results]),
                **self._known(config)}  # fmt: skip

    def explored(self, trials: Sequence["optuna.trial.FrozenTrial"]) -> Explored:
        found = []
        for number, trial in enumerate(_counted(trials)):
            stored = trial.user_attrs.get("results")
            if not trial.state.is_finished() or stored is None:
                continue
            candidate = self.candidate(trial.params)
            results = [Result(**{**one, "staying": tuple(one["staying"])}) for one in stored]
            refused = next((one.refused for one in results if one.refused), "")
            values = {} if refused else self._values(candidate.config, results)
            origin = trial.user_attrs.get("origin", "")
            found.append(Point(number, candidate, values, results, refused, origin))
        return Explored(self.space, self.models, self.objectives, found)


def _counted(trials: Sequence["optuna.trial.FrozenTrial"]) -> list["optuna.trial.FrozenTrial"]:
    """All but those that were drawn in part."""
    return [one for one in trials if one.state.name != "FAIL"]


def _mean(values: Sequence[float]) -> float:
    """The geometric mean; 0 if one is."""
    if len(values) == 1:
        return float(values[0])
    if not values or min(values) <= 0:
        return 0.0
    return exp(sum(map(log, values)) / len(values))
