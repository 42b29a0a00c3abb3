"""Who evaluates machines: this process, others of its computer, or a cluster."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from npukit.driver.apart import in_this_process
from npukit.errors import UsageError
from npukit.exploration.evaluate import Candidate, Model, Result, evaluate
from npukit.hw.toolchain import ToolError, needs

__all__ = ["Evaluate", "workers"]

PATIENCE = 20.0
"""Seconds in which a scheduler must answer, and have a worker."""
_NOT_STARTED = "could not be started (--jobs 1 does the work in this process)"
Evaluate = Callable[[Sequence[Candidate]], Iterator[list[Result]]]


@contextmanager
def workers(models: Sequence[Model], jobs: int, scheduler: str | None) -> Iterator[Evaluate]:
    """What evaluates candidates.

    Args:
        jobs: processes; with 1, this one. scheduler: the address of a cluster's, in their place.

    Raises:
        ToolError: `distributed` is not installed; or later, from what is yielded: the cluster was lost, or cannot do
            the work.
        UsageError: no scheduler answers there, or it has no workers.
    """
    if jobs == 1 and scheduler is None:
        yield lambda candidates: (evaluate(models, one) for one in candidates)
        return
    with needs("explore", "more than one worker"):
        from distributed import Client, KilledWorker, LocalCluster, wait
    # for the rest of the process: what matters is told by errors, and a cluster that is closed at a signal has much to
    # say, some of it when it is forgotten
    for name in ("distributed", "distributed.client", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    cluster = None
    try:
        if scheduler is None:
            quiet: Any = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
            with _deaf_to_interrupts():
                cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, processes=True, **quiet)
        client = Client(cluster or scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:  # of an address that is none, of processes that do not start
        if cluster is not None:
            cluster.close()
        if scheduler is None:
            raise ToolError(f"{jobs} workers {_NOT_STARTED}: {error}") from None
        raise UsageError(f"--scheduler: nothing answers at {scheduler}: {error}") from None

    def run(candidates: Sequence[Candidate]) -> Iterator[list[Result]]:
        # a worker that is lost gives its trials back; one that is free gets the next one, as they take unequal times
        results: dict[int, list[Result]] = {}
        waiting = iter(enumerate(candidates))
        running: dict[Any, int] = {}
        there: Any
        try:
            there = client.scatter(list(models), broadcast=True, hash=True)
            while True:
                threads: Any = client.nthreads()
                free = max(1, sum(threads.values())) - len(running)
                for number, one in islice(waiting, max(0, free)):
                    running[client.submit(_evaluate, one, *there, pure=False, retries=3)] = number
                if not running:
                    break
                try:
                    with client.as_current():
                        ended: Any = wait(list(running), timeout=PATIENCE, return_when="FIRST_COMPLETED")
                except TimeoutError:  # it takes its time, or nobody works on it any more
                    client.wait_for_workers(1, timeout=PATIENCE)
                    continue
                for future in ended.done:
                    results[running.pop(future)] = future.result()
        except KilledWorker as error:
            raise ToolError(
                f"workers died while they evaluated a machine, four in turn, as they do when memory is short: {error}; "
                "the same command goes on where this one was, with fewer --jobs as well"
            ) from None
        except ImportError as error:
            where = f" at {scheduler}" if scheduler else ""
            raise ToolError(f"a worker{where} does not have what this process has: {error}") from None
        except (OSError, CancelledError) as error:
            raise ToolError(
                f"the cluster was lost, or a worker cannot work: {error or type(error).__name__}; the same command "
                "goes on where this one was"
            ) from None
        yield from (results[number] for number in range(len(candidates)))

    try:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            if scheduler is None:
                raise ToolError(f"{jobs} workers {_NOT_STARTED} in {PATIENCE:.0f} seconds") from None
            raise UsageError(
                f"--scheduler: {scheduler} has no workers after {PATIENCE:.0f} seconds; start some: dask worker "
                f"{scheduler}"
            ) from None
        yield run
    finally:
        with suppress(OSError):
            client.close()
        if cluster is not None:
            cluster.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started here ignore a terminal's interrupt, which goes to all processes at once: this one
    alone ends the others. It ignores one itself meanwhile, for a second or two."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _evaluate(candidate: Candidate, *models: Model) -> list[Result]:
    """In a worker, and ONNX Runtime looks at the models there: it did so in another process when the space's base was
    evaluated."""
    with in_this_process():
        return evaluate(models, candidate)
