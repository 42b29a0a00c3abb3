"""FETCH, queues, tokens and ports, each alone against a plain model, with random stalls."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.fetch import FetchUnit
from npukit.hw.issue import IssueQueue
from npukit.hw.ports import PortOwners
from npukit.hw.queue import Queue
from npukit.hw.tokens import TokenCounters
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES, End, Vector, encode
from npukit.isa.timing import INSTRUCTION_BYTES, TOKEN_LIMIT

from npukit.verify.generator import random_program
from tests.hw.blocks.bench import Bench, bits_of, seeds

CONFIG = PRESETS["int8-4x4"]
COUNT = len(ENGINES)


def run_queue(seed: str) -> None:
    """What goes in comes out, in order; as many as there is room for."""
    for depth in (1, 2, 7):
        dut = Queue(16, depth)
        bench = Bench(dut, f"{seed}/{depth}")
        sent = [bench.random.randrange(1 << 16) for _ in range(200)]
        found: list[int] = []
        offered = bench.source("writes", dut.writes, sent)
        bench.sink("reads", dut.reads, lambda one, found=found: found.append(bits_of(one)))
        levels = set()

        def look(ctx: Any, bench=bench, dut=dut, depth=depth, levels=levels, sent=sent, offered=offered) -> None:
            level = ctx.get(dut.level)
            levels.add(level)
            if not offered and not {0, depth} <= levels:  # chance has not filled it yet
                more = [bench.random.randrange(1 << 16) for _ in range(50)]
                sent.extend(more)
                offered.extend(more)
            assert bool(ctx.get(dut.reads.valid)) == (level > 0)
            assert bool(ctx.get(dut.writes.ready)) == (level < depth)

        bench.look(look)
        bench.run(lambda found=found, sent=sent: len(found) == len(sent), 20_000)
        assert found == sent and {0, depth} <= levels


def run_issue(seed: str) -> None:
    """Instructions in order, each once its tokens are there, and with `drain` once nothing is in flight."""
    dut = IssueQueue(CONFIG, Vector)
    bench = Bench(dut, seed)
    made = [
        one for k in range(8) for one in random_program(CONFIG, f"{seed}/{k}").instructions if isinstance(one, Vector)
    ]
    bench.source("queued", dut.queued, [int.from_bytes(encode(one), "little") for one in made])
    issued, flight, there = 0, 0, 0

    def take(word: Any) -> None:
        nonlocal issued, flight
        one = made[issued]
        assert bits_of(word) == int.from_bytes(encode(one), "little") & ((1 << dut.issued.payload.shape().size) - 1)
        assert one.wait & ~there == 0, "a token is not there"
        assert not one.drain or flight == 0, "something is in flight"
        issued += 1
        flight += 1

    bench.sink("issued", dut.issued, take)

    def drive(ctx: Any) -> None:
        nonlocal flight, there
        # a token that is there stays until it is used
        there = bench.random.randrange(16) if not ctx.get(dut.issued.valid) else there | bench.random.randrange(16)
        ended = flight > 0 and bench.random.random() < 0.3
        ctx.set(dut.there, there)
        ctx.set(dut.ended, ended)
        flight -= ended
        drive.ended = ended

    drive.ended = False

    def look(ctx: Any) -> None:
        # what ends in this cycle still counts in it
        assert bool(ctx.get(dut.idle)) <= (flight == 0)

    bench.drive(drive)
    bench.look(look)
    bench.run(lambda: issued == len(made), 200 * len(made))


def run_tokens(seed: str) -> None:
    """Counters of a plain model; overflow when one would pass 255."""
    dut = TokenCounters()
    bench = Bench(dut, seed)
    counts = {(source, target): 0 for source in range(COUNT) for target in range(COUNT) if source != target}
    full = [0] * COUNT
    greed = 0.5

    def cycle(ctx: Any) -> None:
        nonlocal greed, full
        draw = bench.random
        if bench.cycle % 400 == 0:
            greed = draw.choice([0.02, 0.5, 0.95])
        for target in range(COUNT):
            there = sum(1 << source for source in range(COUNT) if source != target and counts[source, target])
            assert ctx.get(dut.there[target]) == there
        assert ctx.get(dut.overflow) == sum(flag << k for k, flag in enumerate(full))
        ends = [draw.randrange(16) if draw.random() < 0.8 else 0 for _ in range(COUNT)]
        takes = []
        for target in range(COUNT):
            there = sum(1 << source for source in range(COUNT) if source != target and counts[source, target])
            takes.append(there & draw.randrange(16) if draw.random() < greed else 0)
        clear = draw.random() < 0.001
        for engine in range(COUNT):
            ctx.set(dut.ends[engine].valid, ends[engine] != 0)
            ctx.set(dut.ends[engine].payload, ends[engine])
            ctx.set(dut.issues[engine].valid, takes[engine] != 0)
            ctx.set(dut.issues[engine].payload, takes[engine])
        ctx.set(dut.clear, clear)
        full = [0] * COUNT
        for source, target in counts:
            more, fewer = ends[source] >> target & 1, takes[target] >> source & 1
            full[source] |= counts[source, target] == TOKEN_LIMIT and more > fewer
            counts[source, target] = 0 if clear else (counts[source, target] + more - fewer) % (TOKEN_LIMIT + 1)

    bench.drive(cycle)
    bench.run(lambda: bench.cycle >= 3000, 3001)


def run_ports(seed: str) -> None:
    """Requests in the order of engines; a port has one engine, which may hold it several times."""
    dut = PortOwners(CONFIG)
    bench = Bench(dut, seed)
    total = dut.requests[0].payload.as_value().shape().width
    held = [[0] * total for _ in range(COUNT)]
    wants = [0] * COUNT
    waited = 0

    def cycle(ctx: Any) -> None:
        nonlocal waited
        draw = bench.random
        for engine in range(COUNT):
            if not wants[engine] and draw.random() < 0.5:
                wants[engine] = sum(1 << draw.randrange(total) for _ in range(draw.choice([1, 1, 2, 3]))) & (
                    (1 << total) - 1
                )
            ctx.set(dut.requests[engine].valid, wants[engine] != 0)
            ctx.set(dut.requests[engine].payload.as_value(), wants[engine])
        expected, given = [], 0
        for engine in range(COUNT):
            blocked = any(
                held[other][k]
                for other in range(COUNT)
                if other != engine
                for k in range(total)
                if wants[engine] >> k & 1
            )
            grant = bool(wants[engine]) and not blocked and not wants[engine] & given
            given |= wants[engine] if grant else 0
            expected.append(grant)
        released = []
        for engine in range(COUNT):
            mask = sum(1 << k for k in range(total) if held[engine][k] and draw.random() < 0.2)
            ctx.set(dut.released[engine].as_value(), mask)
            released.append(mask)
        for engine in range(COUNT):
            assert bool(ctx.get(dut.requests[engine].ready)) == expected[engine], f"engine {engine}"
        for engine in range(COUNT):
            for k in range(total):
                held[engine][k] += (expected[engine] and wants[engine] >> k & 1) - (released[engine] >> k & 1)
                assert held[engine][k] < 8
            waited += bool(wants[engine]) and not expected[engine]
            if expected[engine]:
                wants[engine] = 0

    bench.drive(cycle)
    bench.run(lambda: bench.cycle >= 1500, 1501)
    assert waited > 100


def run_fetch(seed: str) -> None:
    """All instructions of a program to their queues, in order, from a memory that answers when it likes."""
    made = random_program(CONFIG, seed, length=30)
    code = b"".join(encode(one) for one in made.instructions)
    dut = FetchUnit(CONFIG)
    bench = Bench(dut, seed)
    bus = CONFIG.bus_bytes
    expected: list[deque[int]] = [deque() for _ in ENGINES]
    for one in made.instructions:
        if one.engine is not None:
            expected[one.engine].append(int.from_bytes(encode(one), "little"))
    beats: deque[int] = deque()
    asked = 0

    def read(burst: Any) -> None:
        nonlocal asked
        assert burst.offset == asked * INSTRUCTION_BYTES, "bursts follow each other"
        first, count = burst.offset, burst.beats + 1
        assert first // 4096 == (first + count * bus - 1) // 4096, "a burst crosses 4 KiB"
        asked += count * bus // INSTRUCTION_BYTES
        beats.extend(int.from_bytes(code[first + k * bus :][:bus].ljust(bus, b"\0"), "little") for k in range(count))

    def take(engine: int) -> Callable[[Any], None]:
        def one(word: Any) -> None:
            assert bits_of(word) == expected[engine].popleft()

        return one

    bench.sink("requests", dut.requests, read)
    for engine in ENGINES:
        bench.sink(f"queue of {engine.name}", dut.queues[engine], take(engine))
    started, done = False, 0

    def drive(ctx: Any) -> None:
        nonlocal started
        ctx.set(dut.start, bench.cycle == 3)
        ctx.set(dut.length, len(made.instructions))
        # the engines are idle some time after their last instruction
        ctx.set(dut.idle, not any(expected) and bench.random.random() < 0.2)
        now = bool(beats) and bench.random.random() < 0.6
        ctx.set(dut.beats.valid, now)
        if now:
            ctx.set(dut.beats.payload, beats.popleft())

    def look(ctx: Any) -> None:
        nonlocal done
        done += ctx.get(dut.done)
        if ctx.get(dut.done):
            assert not any(expected)
        assert not ctx.get(dut.illegal) and not ctx.get(dut.missing_end)
        assert done == 0 or not ctx.get(dut.requests.valid)

    bench.drive(drive)
    bench.look(look)
    bench.run(lambda: bool(done), 400 * len(made.instructions))
    assert isinstance(made.instructions[-1], End)


RUNS = {"queue": run_queue, "issue": run_issue, "tokens": run_tokens, "ports": run_ports, "fetch": run_fetch}


@pytest.mark.parametrize("block", RUNS)
def test_block(block: str) -> None:
    for seed in seeds():
        print("seed", seed)
        RUNS[block](seed)
