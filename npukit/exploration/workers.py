"""Who evaluates machines: this process, others of its computer, or a cluster."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from npukit.errors import UsageError
from npukit.exploration.evaluate import Candidate, Model, Result, evaluate
from npukit.hw.toolchain import ToolError, needs

__all__ = ["Evaluate", "workers"]

PATIENCE = 20.0
"""Seconds in which a scheduler must answer, and have a worker."""
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
        from distributed import Client, KilledWorker, LocalCluster
    # what matters to the user is told by errors; a cluster that is closed at a signal has much to say
    for name in ("distributed", "distributed.client", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    cluster = None
    try:
        if scheduler is None:
            quiet: Any = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
            with _deaf_to_interrupts():
                cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, processes=True, **quiet)
        client = Client(cluster or scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:  # the latter of an address that is none
        if cluster is not None:
            cluster.close()
        raise UsageError(f"--scheduler: nothing answers at {scheduler}: {error}") from None

    def run(candidates: Sequence[Candidate]) -> Iterator[list[Result]]:
        # a worker that is lost gives its trials back; the results come in the order of the candidates
        try:
            there: Any = client.scatter(list(models), broadcast=True, hash=True)
            futures = [client.submit(_evaluate, one, *there, pure=False, retries=3) for one in candidates]
            results: Any = client.gather(futures)
        except KilledWorker as error:
            raise ToolError(
                f"workers died while they evaluated a machine, four in turn, as they do when memory is short: {error}; "
                "the same command goes on where this one was, with fewer --jobs as well"
            ) from None
        except ImportError as error:
            raise ToolError(f"a worker at {scheduler} does not have what this process has: {error}") from None
        except (OSError, CancelledError) as error:
            raise ToolError(
                f"the cluster was lost: {error or type(error).__name__}; the same command goes on where this one was"
            ) from None
        yield from results

    try:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
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
    return evaluate(models, candidate)
