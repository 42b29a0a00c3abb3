"""Delays: in registers, in memories, and of nothing."""

import pytest
from amaranth import Cat, Module, Signal
from amaranth.back import rtlil
from amaranth.sim import Simulator
from npukit.hw.delay import delay_in_memory


@pytest.mark.parametrize("cycles", [1, 3, 9, 20])
def test_what_went_in_comes_out(cycles):
    m, value = Module(), Signal(12)
    result = delay_in_memory(m, value, cycles, "late")
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    seen = []

    async def bench(context):
        for number in range(60):
            context.set(value, 7 * number % 4096)
            seen.append(context.get(result))
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()
    assert seen[cycles:] == [7 * number % 4096 for number in range(60 - cycles)]


def test_nothing_needs_no_memory():
    # Yosys divides by the width of a memory: with one of no bits synthesis ends without a message
    m, source, sink = Module(), Signal(0), Signal()
    m.d.comb += sink.eq(delay_in_memory(m, Cat(source), 20, "late").any())
    assert "memory width" not in rtlil.convert(m, name="top", ports=[sink])
