"""Loops, bursts and memories, each alone against a plain model."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from npukit.hw.bursts import BurstGenerator
from npukit.hw.loops import LoopNest
from npukit.hw.memory import BankedMemory
from npukit.hw.transpose import Transposer
from npukit.isa.config import PRESETS

from tests.hw.blocks.bench import Bench, seeds

CONFIG = PRESETS["int8-4x4"]
_MASK = 0xFFFF
_UNKNOWN = -1
"""A word that is not there, and does not matter."""


def run_loops(seed: str) -> None:
    """All indices in order, with their addresses, and back to a noted one."""
    for levels, addresses, returns in ((1, 1, False), (3, 2, False), (3, 3, True), (6, 2, False), (4, 0, False)):
        dut = LoopNest([16] * levels, addresses, returns=returns)
        bench = Bench(dut, f"{seed}/{levels}/{addresses}")
        draw = bench.random

        def nests(dut=dut, draw=draw, levels=levels, addresses=addresses) -> Any:
            counts = [draw.choice([0, 0, 1, 2, 3]) for _ in range(levels)]
            strides = [[draw.choice([0, 1, draw.randrange(1 << 16)]) for _ in range(levels)] for _ in range(addresses)]
            return counts, strides, [draw.randrange(1 << 16) for _ in range(addresses)]

        state: dict[str, Any] = {"place": None, "nest": nests(), "done": 0, "noted": None}

        def cycle(ctx: Any, dut=dut, draw=draw, state=state, nests=nests, returns=returns) -> None:
            counts, strides, offsets = state["nest"]
            order = list(itertools.product(*(range(count + 1) for count in counts)))
            place = state["place"]
            # counts and strides hold from the cycle after `load` on
            for port, count in zip(dut.counts, counts, strict=True):
                ctx.set(port, count)
            for ports, values in zip(dut.strides, strides, strict=True):
                for port, value in zip(ports, values, strict=True):
                    ctx.set(port, value)
            if place is not None:
                index = order[place]
                assert [ctx.get(one) for one in dut.index] == list(index)
                assert [ctx.get(one) for one in dut.at_start] == [one == 0 for one in index]
                assert [ctx.get(one) for one in dut.at_end] == [a == b for a, b in zip(index, counts, strict=True)]
                for port, offset, values in zip(dut.address, offsets, strides, strict=True):
                    moved = sum(a * b for a, b in zip(index, values, strict=True))
                    assert ctx.get(port) == (offset + moved) & _MASK
            assert ctx.get(dut.last) == (place is None or place == len(order) - 1)
            load = (place is None or place == len(order) - 1 or draw.random() < 0.02) and draw.random() < 0.3
            step = place is not None and draw.random() < 0.7
            keep = returns and place is not None and draw.random() < 0.2
            noted = state["noted"]
            same = returns and noted is not None and place is not None and order[noted][0] == order[place][0]
            restore = bool(same) and draw.random() < 0.2
            step = step and not restore
            if returns:
                ctx.set(dut.keep, keep)
                ctx.set(dut.restore, restore)
            ctx.set(dut.step, step)
            ctx.set(dut.load, load)
            if keep:
                state["noted"] = place
            if load:
                state["nest"], state["place"], state["noted"] = nests(), 0, None
                state["done"] += 1
                for port, count in zip(dut.once, state["nest"][0], strict=True):
                    ctx.set(port, count == 0)
                for port, offset in zip(dut.offsets, state["nest"][2], strict=True):
                    ctx.set(port, offset)
            elif restore and not keep:
                state["place"] = noted
            elif step:
                assert place is not None
                state["place"] = min(place + 1, len(order) - 1)

        bench.drive(cycle)
        bench.run(lambda bench=bench: bench.cycle >= 500, 501)
        assert state["done"] > 1


def run_bursts(seed: str) -> None:
    """Planes of rows cut at 4 KiB, and at the longest burst."""
    for bus, most in ((4, 9), (8, 16), (64, 256)):
        config = replace(CONFIG, bus_bytes=bus, max_burst=most)
        dut = BurstGenerator(config)
        bench = Bench(dut, f"{seed}/{bus}")
        draw = bench.random
        expected: list[tuple[int, int, bool]] = []
        state: dict[str, Any] = {"transfer": None, "left": 25}

        def begin(
            ctx: Any, dut=dut, draw=draw, state=state, expected=expected, bus=bus, most=most, config=config
        ) -> None:
            load = not expected and state["transfer"] is None and draw.random() < 0.4 and state["left"] > 0
            ctx.set(dut.load, load)
            if not load:
                state["transfer"] = None if not expected else state["transfer"]
                return
            size = config.word_bytes
            planes, rows = draw.choice([1, 2, 3]), draw.choice([1, 2, 5])
            row_bytes = draw.choice([1, 2, 7, draw.randrange(1, 3000)]) * size
            start = draw.choice([draw.randrange(1 << 20), 4096 * 7 - size * draw.randrange(1, 9)]) // size * size
            plane_stride, row_stride = (draw.choice([0, size, -size, draw.randrange(1 << 16) * size]) for _ in range(2))
            mask = (1 << len(dut.start)) - 1
            for plane in range(planes):
                for row in range(rows):
                    address = start + plane * plane_stride + row * row_stride & mask
                    left = row_bytes
                    while left:
                        count = min(left, 4096 - address % 4096, most * bus - address % bus)
                        left -= count
                        last = not left and (plane, row) == (planes - 1, rows - 1)
                        expected.append((address, (address % bus + count - 1) // bus, last))
                        address = address + count & mask
            ctx.set(dut.start, start)
            ctx.set(dut.limit, 1 << 60)
            values = {"planes": planes - 1, "rows": rows - 1, "bytes": row_bytes - 1}
            ctx.set(dut.rows, {**values, "plane_stride": plane_stride & mask, "row_stride": row_stride & mask})
            state["transfer"], state["left"] = start, state["left"] - 1

        def take(burst: Any, expected=expected) -> None:
            assert (burst.address, burst.beats, bool(burst.last)) == expected.pop(0)

        bench.drive(begin)
        bench.sink("bursts", dut.bursts, take)
        bench.run(lambda state=state, expected=expected: not state["left"] and not expected, 60_000)


def run_memory(seed: str) -> None:
    """Words by bank and offset, two cycles later; clients never meet in a bank."""
    dut = BankedMemory(width=16, banks=3, depth=20, readers=2, writers=2, zero_without={0})
    bench = Bench(dut, seed)
    draw = bench.random
    words: dict[tuple[int, int], int] = {}
    coming: list[list[int | None]] = [[None, None], [None, None]]
    shown: list[int | None] = [None, None]
    outside_before = 0

    def cycle(ctx: Any) -> None:
        nonlocal outside_before
        for k, port in enumerate(dut.reads):
            word = coming[k].pop(0)
            if word is not None:
                shown[k] = None if word == _UNKNOWN else word
            elif k == 0:
                shown[k] = 0
            if shown[k] is not None and bench.cycle > 3:
                assert ctx.get(port.data) == shown[k], f"reader {k}"
        assert ctx.get(dut.read_outside) == outside_before
        banks = draw.sample(range(4), 4)
        outside_before = outside_now = 0
        for k, port in enumerate(dut.reads):
            place = (banks[k], draw.randrange(24))
            known = place in words
            asks = draw.random() < 0.8 and (known or place[0] >= 3 or place[1] >= 20)
            ctx.set(port.addresses.valid, asks)
            ctx.set(port.addresses.payload, {"bank": place[0], "offset": place[1]})
            inside = place[0] < 3 and place[1] < 20
            outside_before |= (asks and not inside) << k
            coming[k].append((words[place] if inside else _UNKNOWN) if asks else None)
        for k, port in enumerate(dut.writes):
            place, word = (banks[2 + k], draw.randrange(24)), draw.randrange(1 << 16)
            writes = draw.random() < 0.8
            ctx.set(port.valid, writes)
            ctx.set(port.payload, {"address": {"bank": place[0], "offset": place[1]}, "data": word})
            inside = place[0] < 3 and place[1] < 20
            outside_now |= (writes and not inside) << k
            if writes and inside:
                words[place] = word
        assert ctx.get(dut.write_outside) == outside_now

    bench.drive(cycle)
    bench.run(lambda: bench.cycle >= 1500, 1501)


def run_transposer(seed: str) -> None:
    """Tiles one behind the other or with pauses between them; a word leaves `size` cycles after one came."""
    for size, bits in ((4, 8), (8, 16), (16, 8)):
        dut = Transposer(size, bits)
        bench = Bench(dut, f"{seed}/{size}")
        draw = bench.random
        state: dict[str, Any] = {"left": 0, "tile": [], "tiles": 0}
        takes: list[int | None] = [None] * size
        """The words that are to be taken, in the cycles to come."""
        coming: list[int | None] = [None] * Transposer.latency

        def cycle(ctx: Any, dut=dut, draw=draw, state=state, takes=takes, coming=coming, size=size, bits=bits) -> None:
            expected = coming.pop(0)
            if expected is not None:
                assert ctx.get(dut.result) == expected
            if not state["left"] and draw.random() < 0.3:
                state["left"], state["tile"] = size * draw.choice([1, 1, 2, 3]), []
            putting = state["left"] > 0
            ctx.set(dut.put, putting)
            if putting:
                elements = [draw.randrange(1 << bits) for _ in range(size)]
                state["left"] -= 1
                state["tile"].append(elements)
                ctx.set(dut.word, sum(one << bits * k for k, one in enumerate(elements)))
            takes.append(None)
            if len(state["tile"]) == size:  # its first word leaves in the next cycle
                tile, state["tile"] = state["tile"], []
                takes[1:] = [sum(tile[k][lane] << bits * k for k in range(size)) for lane in range(size)]
                state["tiles"] += 1
            word = takes.pop(0)
            ctx.set(dut.take, word is not None)
            coming.append(word)

        bench.drive(cycle)
        bench.run(lambda bench=bench: bench.cycle >= 600, 601)
        assert state["tiles"] > 5


RUNS = {"loops": run_loops, "bursts": run_bursts, "memory": run_memory, "transposer": run_transposer}


@pytest.mark.parametrize("block", RUNS)
def test_block(block: str) -> None:
    for seed in seeds():
        print("seed", seed)
        RUNS[block](seed)
