"""Each engine alone against the functional simulator, with random stalls on all that it has to do with others."""

from collections import deque
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.load import LoadEngine
from npukit.hw.matrix import MatrixEngine
from npukit.hw.store import StoreEngine
from npukit.hw.vector import VectorEngine
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Load, Matrix, Memory, Store, Vector

from tests.hw.blocks.bench import seeds
from tests.hw.blocks.engines import EngineBench

CONFIG = PRESETS["int8-4x4"]


def run_load(seed: str, count: int, config=CONFIG) -> EngineBench:
    """LOAD with a memory that answers bursts in order, whenever it likes."""
    bench = EngineBench(config, LoadEngine, Load, seed, count)
    bus = config.bus_bytes
    beats = bench.bench.source("beats", bench.engine.beats)

    def read(burst: Any) -> None:
        assert not burst.outside
        first = burst.address // bus * bus
        assert first // 4096 == (first + (burst.beats + 1) * bus - 1) // 4096, "a burst crosses 4 KiB"
        for k in range(burst.beats + 1):
            beats.append(int.from_bytes(bench.dram[first + k * bus :][:bus].tobytes().ljust(bus, b"\0"), "little"))

    bench.bench.sink("requests", bench.engine.requests, read)
    bench.bench.drive(lambda ctx: ctx.set(bench.engine.limit, bench.dram.size))
    for port, memory in (
        (bench.engine.act, Memory.ACT),
        (bench.engine.wgt, Memory.WGT),
        (bench.engine.par, Memory.PAR),
    ):
        bench.writer(port, memory)
    bench.run()
    return bench


def run_store(seed: str, count: int, config=CONFIG) -> EngineBench:
    """STORE with a memory that answers a burst when its data have come, whenever it likes."""
    bench = EngineBench(config, StoreEngine, Store, seed, count)
    bus = config.bus_bytes
    bursts: deque[Any] = deque()
    answers = 0

    def write(beat: Any) -> None:
        nonlocal answers
        address, left = bursts[0]
        for byte in range(bus):
            if beat.strobe >> byte & 1:
                bench.dram[address + byte] = beat.data >> 8 * byte & 0xFF
        assert beat.last == (left == 0), "the last beat of a burst"
        bursts[0] = address + bus, left - 1
        if left == 0:
            bursts.popleft()
            answers += 1

    def request(burst: Any) -> None:
        assert not burst.outside
        bursts.append((burst.address // bus * bus, burst.beats))

    def answer(ctx: Any) -> None:
        nonlocal answers
        now = answers > 0 and bench.bench.random.random() < 0.3
        answers -= now
        ctx.set(bench.engine.response, now)

    bench.bench.sink("requests", bench.engine.requests, request)
    bench.bench.sink("beats", bench.engine.beats, write)
    bench.bench.drive(answer)
    bench.bench.drive(lambda ctx: ctx.set(bench.engine.limit, bench.dram.size))
    bench.reader(bench.engine.act, Memory.ACT)
    bench.run()
    return bench


def run_matrix(seed: str, count: int, config=CONFIG) -> EngineBench:
    """MATRIX with its memories."""
    bench = EngineBench(config, MatrixEngine, Matrix, seed, count)
    engine = bench.engine
    bench.reader(engine.act, Memory.ACT)
    bench.reader(engine.wgt, Memory.WGT)
    bench.reader(engine.acc_in, Memory.ACC, zero=True)
    bench.writer(engine.acc_out, Memory.ACC)
    bench.run()
    return bench


def run_vector(seed: str, count: int, config=CONFIG) -> EngineBench:
    """VECTOR with its memories."""
    bench = EngineBench(config, VectorEngine, Vector, seed, count)
    engine = bench.engine
    for port, memory in (
        (engine.a, Memory.ACT),
        (engine.b, Memory.ACT),
        (engine.acc, Memory.ACC),
        (engine.par, Memory.PAR),
    ):
        bench.reader(port, memory)
    bench.writer(engine.act_out, Memory.ACT)
    bench.writer(engine.acc_out, Memory.ACC)
    bench.writer(engine.wgt_out, Memory.WGT)
    bench.run()
    return bench


RUNS = {"load": (run_load, 12), "store": (run_store, 12), "matrix": (run_matrix, 8), "vector": (run_vector, 8)}


@pytest.mark.parametrize("engine", RUNS)
def test_engine(engine: str) -> None:
    run, count = RUNS[engine]
    for seed in seeds():
        print("seed", seed)
        run(seed, count)
