"""The performance counters against plain ones, read at any time."""

import random
import secrets

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from amaranth.sim import Simulator
from npukit.hw.counters import Counters
from npukit.isa.registers import COUNTERS

NAMES = [name for name, _ in COUNTERS]


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
def test_random_events(seed: int | None) -> None:
    """A value is that of a cycle after it was asked for, whatever was read or cleared meanwhile."""
    drawn = secrets.randbelow(10**6) if seed is None else seed
    print("seed", drawn)
    draw = random.Random(drawn)
    dut = Counters()

    async def bench(ctx) -> None:
        totals, before = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
        clearing, count, was_reading, chance = 0, 1, False, 1.0
        reads = index = 0
        for cycle in range(6000):
            if cycle % 200 == 0:
                count, chance, reading_chance = draw.random() < 0.9, draw.choice([0.02, 0.5, 1.0]), draw.choice([0, 1])
            events = {name: draw.random() < chance for name in NAMES}
            clear = cycle > 0 and draw.random() < 0.002
            # a counter is read every other cycle at most
            reading = not was_reading and draw.random() < reading_chance
            if was_reading:
                reads += 1
                assert ctx.get(dut.value) == totals[NAMES[index]], (cycle, NAMES[index])
            index = draw.randrange(len(NAMES))
            for name, event in events.items():
                ctx.set(dut.events[name], event)
            ctx.set(dut.count, count)
            ctx.set(dut.clear, clear)
            ctx.set(dut.reading, reading)
            ctx.set(dut.index, index)
            await ctx.tick()
            # what the registers of events had is counted, unless a clear was registered with them
            totals = dict.fromkeys(NAMES, 0) if clearing else {name: totals[name] + before[name] for name in NAMES}
            before = {name: int(event and count) for name, event in events.items()}
            clearing, was_reading = clear, reading
        assert reads > 500

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
