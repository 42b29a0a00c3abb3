"""Cases in processes that are watched: one that hangs or crashes is noted, and another goes on behind it."""

import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sources import KIT, sources_digest

from . import module_of
from .case import GOOD, Outcome, Result
from .worker import OUTCOMES, PRINTED, Shared, work

__all__ = ["Finding", "Report", "replay", "run_kind", "state_of"]

_SPAWN = multiprocessing.get_context("spawn")
_CHUNK = 100
_START_SECONDS = 900.0
"""For imports, and for what a kind builds before its first case."""
_SAVED = 2
"""Inputs that are kept of those that end in the same place."""


@dataclass
class Finding:
    """A case that went wrong, and where its input is."""

    index: int
    result: Result
    path: Path | None = None

    @property
    def place(self) -> str:
        """The same for cases that went wrong alike, mostly."""
        last = "".join(self.result.message.strip().splitlines()[-1:])
        return last if " at /" in last else re.sub(r"\d+", "0", f"{self.result.outcome}: {last}")


@dataclass
class Report:
    """What the cases of one kind came to."""

    kind: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    """Of processes that ran cases, their start left out."""
    notes: Counter[str] = field(default_factory=Counter)
    """What a kind counts besides."""

    @property
    def cases(self) -> int:
        """How many ran."""
        return sum(self.counts.values())

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return all(outcome in GOOD for outcome, count in self.counts.items() if count)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """These variables for processes that are started meanwhile."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


class _Worker:
    """A process, and the chunk that it works on."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.shared = _SPAWN.RawValue(Shared)
        self.folder = TemporaryDirectory(prefix="npukit-fuzz-", dir=folder)
        arguments = (name, seed, self.folder.name, theirs, self.shared)
        self.process = _SPAWN.Process(target=work, args=arguments, daemon=True)
        with _environment(getattr(module_of(name), "environment", dict)()):
            self.process.start()
        theirs.close()
        self.started = time.monotonic()
        self.ready = False
        self.seconds, self.suffix = 0.0, ""
        self.begun = 0.0
        self.chunk: tuple[int, int] | None = None

    def begin(self, chunk: tuple[int, int]) -> None:
        """Run the cases from the first number to before the second."""
        self.chunk, self.begun = chunk, time.monotonic()
        self.shared.index, self.shared.begun = chunk[0], self.begun
        self.pipe.send(("run", *chunk))

    def late(self) -> bool:
        """Whether it has hung."""
        if not self.ready:
            return time.monotonic() - self.started > _START_SECONDS
        return self.chunk is not None and time.monotonic() - self.shared.begun > self.seconds

    def ask(self, *order: Any) -> Any:
        """What it answers, or a `Result` of HANG or CRASH."""
        try:
            while not self.ready:
                self._hello(self.pipe.recv())
            self.pipe.send(order)
            if not self.pipe.poll(self.seconds):
                return Result(Outcome.HANG, f"more than {self.seconds:g} s")
            return self.pipe.recv()[-1]
        except EOFError:
            return Result(Outcome.CRASH, self.death())

    def _hello(self, message: tuple) -> None:
        _, self.seconds, self.suffix = message
        self.ready = True

    def take(self) -> tuple | None:
        """Its next message, None if it is dead."""
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return None
        if message[0] == "ready":
            self._hello(message)
        return message

    def death(self) -> str:
        """What it printed last, and how it died."""
        self.process.join(10)
        code = self.process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        printed = Path(self.folder.name, PRINTED)
        text = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
        errors = [line for line in text.splitlines() if "SUMMARY:" in line or "runtime error:" in line]
        return f"{text[-3000:]}\nended by {how} {' '.join(errors[-1:])}"

    def end(self) -> None:
        """End it, whatever it does."""
        self.pipe.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.folder.cleanup()

    def counts(self) -> Counter[str]:
        """Of the present chunk."""
        return Counter({one.value: count for one, count in zip(OUTCOMES, self.shared.counts, strict=True) if count})


def state_of(name: str, seed: int, cases: int, folder: Path) -> Path:
    """The file that says which cases of a run are left."""
    return folder / f"{name}-{seed}-{cases}.state"


def run_kind(
    name: str,
    seed: int,
    cases: int,
    folder: Path,
    workers: int = 2,
    progress: Callable[[Report], None] = lambda _: None,
    until: float = float("inf"),
) -> Report:
    """Run the cases 0 to `cases` - 1 of a seed; inputs of those that go wrong are saved in `folder`.

    Where a run of the same cases was interrupted, it goes on: the file `state_of(...)` says what is left, and stays.
    No chunk of cases is begun after `until`, of `time.monotonic`; the report then has fewer cases.
    """
    folder.mkdir(parents=True, exist_ok=True)
    watcher = _Watcher(name, seed, cases, folder, workers)
    try:
        watcher.run(workers, progress, until)
    finally:
        watcher.end()
    _save([one for one in _chosen(watcher.report.findings) if one.path is None], name, seed, folder)
    watcher.keep()
    return watcher.report


class _Watcher:
    """Hands chunks to workers; the state file always says which are not done."""

    def __init__(self, name: str, seed: int, cases: int, folder: Path, workers: int) -> None:
        self.report, self.folder = Report(name, seed), folder
        self.workers: list[_Worker] = []
        self.state = state_of(name, seed, cases, folder)
        size = max(1, min(_CHUNK, -(-cases // workers)))
        self.left = [(first, min(first + size, cases)) for first in range(0, cases, size)][::-1]
        self.sources = sources_digest(
            ("tests/fuzz*.py", "tests/fuzzing/*.py", *getattr(module_of(name), "SOURCES", KIT))
        )
        if self.state.exists():
            kept = json.loads(self.state.read_text(encoding="utf-8"))
            if kept.get("sources") == self.sources:
                self._restore(kept)
            else:
                print(f"{name}: the sources have changed since it was cut off, so it begins anew", file=sys.stderr)

    def _restore(self, kept: dict[str, Any]) -> None:
        report = self.report
        self.left = [(first, end) for first, end in kept["left"]]
        report.counts, report.notes = Counter(kept["counts"]), Counter(kept["notes"])
        report.seconds = kept["seconds"]
        report.findings = [
            Finding(index, Result(Outcome(outcome), message), Path(path) if path else None)
            for index, outcome, message, path in kept["findings"]
        ]

    def keep(self) -> None:
        """Write the state file."""
        begun = [worker.chunk for worker in self.workers if worker.chunk is not None]
        report = self.report
        found = [
            (one.index, one.result.outcome.value, one.result.message, str(one.path or ""))
            for one in report.findings
            if not any(first <= one.index < end for first, end in begun)
        ]
        kept = {
            "sources": self.sources, "left": self.left + begun, "counts": report.counts, "notes": report.notes,
            "seconds": report.seconds, "findings": found,
        }  # fmt: skip
        partial = self.state.with_suffix(".partial")
        partial.write_text(json.dumps(kept), encoding="utf-8")
        partial.replace(self.state)

    def end(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.end()

    def run(self, most: int, progress: Callable[[Report], None], until: float) -> None:
        """Until every chunk is done, or time is over."""
        while True:
            late = time.monotonic() > until
            if not any(worker.chunk for worker in self.workers) and (late or not self.left):
                return
            idle = sum(worker.chunk is None for worker in self.workers)
            while len(self.workers) < most and idle < len(self.left) and not late:
                self.workers.append(_Worker(self.report.kind, self.report.seed, self.folder))
                idle += 1
            ready = wait([worker.pipe for worker in self.workers], timeout=0.1)
            for worker in list(self.workers):
                if worker.pipe in ready:
                    self._hear(worker)
                elif worker.late():
                    self._lost(worker, Result(Outcome.HANG, f"more than {worker.seconds:g} s"))
                if worker in self.workers and worker.ready and worker.chunk is None and self.left and not late:
                    worker.begin(self.left.pop())
            progress(self.report)

    def _hear(self, worker: _Worker) -> None:
        message = worker.take()
        if message is None:
            self._lost(worker, Result(Outcome.CRASH, worker.death()))
        elif message[0] == "result":
            self.report.findings.append(Finding(*message[1:]))
        elif message[0] == "done":
            self._count(worker)
            self.report.notes.update(message[1])
            worker.chunk = None
            self.keep()

    def _count(self, worker: _Worker) -> None:
        self.report.counts.update(worker.counts())
        self.report.seconds += time.monotonic() - worker.begun

    def _lost(self, worker: _Worker, result: Result) -> None:
        """One hung or died: what is left of its chunk is for another."""
        self.workers.remove(worker)
        chunk, index = worker.chunk, worker.shared.index
        if chunk is None:
            worker.end()
            raise RuntimeError(f"a process for {self.report.kind} did not come to its first case: {result.message}")
        self._count(worker)
        self.report.counts[result.outcome] += 1
        self.report.findings.append(Finding(index, result))
        worker.end()
        if index + 1 < chunk[1]:
            self.left.append((index + 1, chunk[1]))
        self.keep()


def _chosen(findings: list[Finding]) -> list[Finding]:
    """Those whose inputs are saved: a few of each place."""
    seen: Counter[str] = Counter()
    chosen = []
    for finding in sorted(findings, key=lambda one: one.index):
        seen[finding.place] += 1
        if seen[finding.place] <= _SAVED:
            chosen.append(finding)
    return chosen


def _save(findings: list[Finding], name: str, seed: int, folder: Path) -> None:
    """Write inputs to files, if they can be made at all."""
    worker: _Worker | None = None
    for finding in findings:
        stem = f"{name}-{seed}-{finding.index}"
        worker = worker or _Worker(name, seed, folder)
        data = worker.ask("input", finding.index)
        if isinstance(data, bytes):
            finding.path = folder / f"{stem}{worker.suffix}"
            finding.path.write_bytes(data)
        if isinstance(data, Result):
            worker.end()
            worker = None
    if worker is not None:
        worker.end()


def replay(name: str, data: bytes, folder: Path) -> Result:
    """Run one input in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    worker = _Worker(name, 0, folder)
    try:
        return worker.ask("replay", data)
    finally:
        worker.end()
