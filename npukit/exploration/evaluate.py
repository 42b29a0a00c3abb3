"""What a machine makes of models: compiled and simulated once, and kept by content."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from npukit.cache import cache_folder, keep, read_kept
from npukit.compiled import SOURCES, compile
from npukit.compiler.errors import CompileError, ModelError
from npukit.errors import USER_ERRORS
from npukit.isa.config import NpuConfig
from npukit.profiling.energy import MAC_PICOJOULES, Energy, energy_of
from npukit.profiling.layers import peak_macs, timing_profile
from npukit.sim.dram import DramModel

__all__ = ["Candidate", "Model", "Result", "evaluate", "least"]


@dataclass(frozen=True)
class Model:
    """A model that is explored.

    Attributes:
        name: for tables.
        data: its bytes.
        staying: nodes that may stay on the host: those that stay on the space's base.
        macs: multiply-accumulates on the accelerator there.
    """

    name: str
    data: bytes
    staying: frozenset[str] = frozenset()
    macs: int = 0


@dataclass(frozen=True)
class Candidate:
    """A machine, its memory, and how much the compiler tries."""

    config: NpuConfig
    latency: int = 100
    level: int = 1


@dataclass(frozen=True)
class Result:
    """What a machine makes of one model.

    Attributes:
        refused: why it cannot run the model as a whole; empty where it can.
        energy: picojoules, by `npukit.profiling.energy`.
        dram_bytes: traffic.
    """

    refused: str = ""
    cycles: int = 0
    macs: int = 0
    energy: float = 0.0
    dram_bytes: int = 0
    staying: tuple[str, ...] = ()


def evaluate(models: Sequence[Model], candidate: Candidate) -> list[Result]:
    """Of each model; nothing after one that is refused."""
    found = []
    for model in models:
        found.append(_kept(model, candidate))
        if found[-1].refused:
            break
    return found


def _kept(model: Model, candidate: Candidate) -> Result:
    """From the user's cache, if this kit has compiled this model for this machine before."""
    path = _path(model, candidate)
    if path is not None:
        kept = read_kept(path)
        if kept is not None:
            with suppress(ValueError, TypeError):
                value = json.loads(kept)
                return Result(**{**value, "staying": tuple(value["staying"])})
    try:
        found = _result(model, candidate)
    except USER_ERRORS as error:
        found = Result(refused=f"{model.name}: {error}")
        # what the host makes of a model may be something else next time
        if isinstance(error, ModelError) or not isinstance(error, CompileError):
            return found
    if path is not None:
        keep(path, json.dumps(asdict(found)).encode())
    return found


def _path(model: Model, candidate: Candidate) -> Path | None:
    digest = hashlib.sha256(model.data)
    digest.update(json.dumps([candidate.config.to_dict(), candidate.latency, candidate.level, SOURCES,
                              sorted(model.staying)]).encode())  # fmt: skip
    try:
        return cache_folder("explore") / f"{digest.hexdigest()}.json"
    except OSError:
        return None


def _result(model: Model, candidate: Candidate) -> Result:
    config, dram = candidate.config, DramModel(latency=candidate.latency)
    compiled = compile(model.data, config, optimize=candidate.level, dram=dram)
    if not compiled.programs:
        return Result(refused=f"nothing of {model.name} runs on the accelerator")
    staying = tuple(sorted(reason.node for reason in compiled.offload.fallback))
    more = [name for name in staying if name not in model.staying]
    schedules = compiled.simulate(dram)
    runs = [(program, schedules[name]) for name, program in compiled.programs.items()]
    profile = timing_profile(config, runs, dram)
    energy = sum((energy_of(program, range(len(program.instructions))) for program, _ in runs), Energy())
    return Result(
        refused=f"{model.name}: {len(more)} nodes would stay on the host, the first is {more[0]}" if more else "",
        cycles=profile.cycles, macs=profile.macs, energy=energy.total,
        dram_bytes=sum(layer.read_bytes + layer.write_bytes for layer in profile.layers), staying=staying,
    )  # fmt: skip


def least(model: Model, config: NpuConfig) -> tuple[float, float]:
    """(cycles, picojoules) that no program for that machine can be below: all multipliers at work, and nothing else
    paid for."""
    return model.macs / peak_macs(config, on_array=False), model.macs * MAC_PICOJOULES[config.dtype]
