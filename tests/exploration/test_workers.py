"""Workers: a cluster finds what one process finds, and what is wrong with one is told."""

import random
from collections.abc import Iterator, Sequence

import pytest
from npukit.hw.toolchain import ToolError
from npukit.isa.config import PRESETS

from npukit import zoo
from npukit.errors import UsageError
from npukit.exploration.evaluate import Candidate, Model, Result
from npukit.exploration.space import Space
from npukit.exploration.study import explore
from npukit.exploration.workers import workers

distributed = pytest.importorskip("distributed")

BASE = PRESETS["int8-8x8"]


@pytest.mark.slow
@pytest.mark.usefixtures("kept_in")
def test_a_cluster_that_loses_a_worker() -> None:
    """Three workers, of which one is killed, find what one process finds."""
    latency = random.randrange(20, 4000)  # which no earlier run has kept
    print(f"latency {latency}")
    choices = {"array": (4, 8), "bus_bytes": (4, 8, 16), "vector_lanes": (1, 2, 4)}
    space = Space(BASE, choices, latencies=(latency,))
    models = [Model("digits", zoo.load("digits"), macs=1_276_816)]
    quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=3, threads_per_worker=1, processes=True, **quiet) as cluster:
        with workers(models, 1, cluster.scheduler_address) as run:

            def losing(candidates: Sequence[Candidate]) -> Iterator[list[Result]]:
                cluster.sync(cluster.workers[0].kill)
                yield from run(candidates)

            found = explore(space, models, ["cycles", "energy"], 6, losing, sampler="random")
    with workers(models, 1, None) as run:
        alone = explore(space, models, ["cycles", "energy"], 6, run, sampler="random")
    assert len(alone.points) == 6 and found.points == alone.points


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npukit.exploration.workers.PATIENCE", 1.0)
    with pytest.raises(UsageError, match="nothing answers at tcp://127.0.0.1:9"), workers([], 1, "tcp://127.0.0.1:9"):
        pass


def test_clusters_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without workers, and one that goes away while it evaluates."""
    monkeypatch.setattr("npukit.exploration.workers.PATIENCE", 1.0)
    quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, "processes": False}
    models = [Model("a", b"no model")]
    with distributed.LocalCluster(n_workers=0, **quiet) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(UsageError, match=f"{address} has no workers after 1 seconds"), workers([], 1, address):
            pass
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, **quiet)
    with cluster, workers(models, 1, cluster.scheduler_address) as run:
        ((found,),) = run([Candidate(BASE)])
        assert found.refused
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        with pytest.raises(ToolError, match="the cluster was lost, or.* workers"):
            list(run([Candidate(BASE)]))
        cluster.close()
        with pytest.raises(ToolError, match="the cluster was lost.*goes on where"):
            list(run([Candidate(BASE)]))
