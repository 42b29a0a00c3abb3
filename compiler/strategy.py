"""How a subgraph is scheduled: what to try, and, at level 2, a search with the timing simulator as judge.

No strategy changes a bit of any result.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from npukit.compiler.errors import CompileError
from npukit.compiler.layers import Subgraph
from npukit.compiler.passes.allocate import AllocatePass, Allocation, DoesNotFit
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.tasks import Plan
from npukit.compiler.verify import verify_allocation, verify_plan
from npukit.isa.config import NpuConfig
from npukit.isa.program import Program
from npukit.sim.timing import simulate_timing

__all__ = ["LEVELS", "Fitted", "Search", "Strategy", "choose"]


@dataclass(frozen=True)
class Strategy:
    """keep: share of memory for kept buffers. room: share that may be in use, 0 for the plan's own order. fuse: layers
    computed together. resident: share of ACT for tensors that stay on chip from layer to layer."""

    keep: float
    room: float = 0.0
    fuse: bool = True
    resident: float = 0.0


LEVELS: dict[int, tuple[Strategy, ...]] = {
    0: tuple(Strategy(keep, fuse=False) for keep in (0.5, 0.25, 0.0)),
    1: (
        Strategy(0.5, 0.6, resident=0.35), Strategy(0.5, 0.4, resident=0.35), Strategy(0.5, resident=0.35),
        Strategy(0.5, 0.6), Strategy(0.5, 0.4), Strategy(0.5), Strategy(0.25), Strategy(0.25, fuse=False),
        Strategy(0.0, fuse=False),
    ),
}  # fmt: skip
"""What each level of optimisation tries in turn until the allocation succeeds; level 2 searches around level 1."""

_GRID = tuple(
    Strategy(keep, room, fuse, resident)
    for keep, (fuse, resident), room in product(
        (0.35, 0.5, 0.65),
        ((True, 0.35), (True, 0.2), (True, 0.5), (True, 0.0), (False, 0.0)),
        (0.6, 0.4, 0.5, 0.7, 0.0),
    )
)


@dataclass(frozen=True)
class Fitted:
    """What scheduling, interleaving, allocation and emission made of a subgraph."""

    plan: Plan
    mixed: Plan
    allocation: Allocation
    program: Program


@dataclass(frozen=True)
class Search:
    """Level 2: where to keep what was measured, by content, and whom to tell how far it is."""

    folder: Path | None = None
    version: str = ""
    """Of the compiler: what was measured with another one does not count."""
    progress: Callable[[str], None] = lambda _: None


def choose(config: NpuConfig, subgraph: Subgraph, level: int, search: Search) -> Fitted:
    """The first of a level's strategies that fits; at level 2 the one with the fewest cycles.

    Raises:
        CompileError: none fits.
    """
    problem = CompileError("no strategy")
    for strategy in LEVELS[min(level, 1)]:
        try:
            fitted = _fit(config, subgraph, strategy)
        except DoesNotFit as error:
            problem = CompileError(f"{subgraph.name} does not fit on chip: {error}; use a larger configuration")
            continue
        except CompileError as error:  # sizes that instructions cannot express, which other strategies may not have
            problem = error
            continue
        return fitted if level < 2 else _search(config, subgraph, fitted, search)
    raise problem


def _fit(config: NpuConfig, subgraph: Subgraph, strategy: Strategy) -> Fitted:
    plan = SchedulePass(config, strategy.keep, strategy.fuse, strategy.resident).run(subgraph)
    verify_plan(config, plan)
    mixed = InterleavePass(config, strategy.room).run(plan) if strategy.room else plan
    allocation = AllocatePass(config, subgraph).run(mixed)
    verify_allocation(config, mixed, allocation)
    return Fitted(plan, mixed, allocation, EmitPass(config, subgraph, mixed).run(allocation))


def _search(config: NpuConfig, subgraph: Subgraph, first: Fitted, search: Search) -> Fitted:
    """Try the grid; what was measured before, in this run or another one that was cut short, is not tried again."""
    best = simulate_timing(config, first.program.instructions).cycles, first
    content = hashlib.sha256(first.program.to_bytes() + search.version.encode()).hexdigest()
    path = search.folder / f"{content[:32]}.json" if search.folder is not None else None
    known = _read(path)
    for number, strategy in enumerate(_GRID):
        search.progress(f"{subgraph.name}: {number + 1} of {len(_GRID)} strategies, {best[0]} cycles")
        name = f"keep {strategy.keep}, room {strategy.room}, fuse {strategy.fuse}, resident {strategy.resident}"
        before = known.get(name, 0)
        if before is None or before >= best[0]:
            continue
        cycles = None
        try:
            fitted = _fit(config, subgraph, strategy)
        except (DoesNotFit, CompileError):
            fitted = None
        if fitted is not None:
            cycles = simulate_timing(config, fitted.program.instructions).cycles
            if cycles < best[0]:
                best = cycles, fitted
        known[name] = cycles
        if path is not None:
            _write(path, known)
    return best[1]


def _read(path: Path | None) -> dict[str, int | None]:
    """What was measured before; nothing, if that cannot be read or is something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if value is None or type(value) is int}


def _write(path: Path, known: dict[str, int | None]) -> None:
    """In one step, so that a run that is cut short leaves what was there. A cache that cannot be written is none."""
    try:
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(part, path)
    except OSError:
        pass
