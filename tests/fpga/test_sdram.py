"""The SDRAM controller against a chip model that checks the data sheet's times, and the model against violations."""

import random
import warnings

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from npukit.fpga.interconnect import MemoryArbiter
from npukit.fpga.sdram import SdramController
from npukit.fpga.sdram_chip import SdramModel, SdramPins, SdramViolation
from npukit.isa.sdram import SdramChip

from tests.fpga.axi_traffic import NOP, Manager, pins_of, run

CHIP = SdramChip(row_bits=11, refresh_period=16e6, power_up=100.0)
"""Fewer rows, as often refreshed; no long wait before the first command."""


def run_one(seed: str, bus_bytes: int, bursts: int, busy: float, megahertz: float, io_cycles: int = 0) -> SdramModel:
    """One manager alone, in all of memory."""
    dut = SdramController(CHIP, megahertz, bus_bytes, io_cycles=io_cycles)
    manager = Manager(dut.bus, bus_bytes, (0, CHIP.bytes), seed, bursts, busy)
    return run(dut, dut.pins, [manager], CHIP, megahertz, io_cycles)


@pytest.mark.parametrize("bus_bytes", [4, 8, 16])
@pytest.mark.parametrize("megahertz", [25.0, 60.0, 100.0, 133.0])
def test_random_traffic(bus_bytes: int, megahertz: float) -> None:
    for busy in (1.0, 0.5):
        model = run_one(f"{bus_bytes}/{megahertz}/{busy}", bus_bytes, 60, busy, megahertz)
        assert (
            model.commands["READ"] > 100 and model.commands["WRITE"] > 100 and model.refreshes > CHIP.initial_refreshes
        )


@pytest.mark.parametrize("io_cycles", [1, 2])
def test_registers_at_the_pins(io_cycles: int) -> None:
    run_one(f"registers/{io_cycles}", 4, 60, 0.9, 60.0, io_cycles)


def test_fresh_random_traffic() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    run_one(str(seed), 4, 100, 0.8, 60.0)


@pytest.mark.parametrize("seed", ["shared", None], ids=["fixed", "fresh"])
@pytest.mark.parametrize("bus_bytes", [4, 8])
def test_all_managers(bus_bytes: int, seed: str | None) -> None:
    drawn = seed or str(random.SystemRandom().randrange(10**6))
    print("seed", drawn)
    model = run_shared(drawn, bus_bytes)
    assert model.commands["READ"] > 100 and model.commands["WRITE"] > 100


def run_shared(seed: str, bus_bytes: int) -> SdramModel:
    """The accelerator's bursts and the host's words at once: nothing is lost, and each gets its own in its order."""
    m = Module()
    m.submodules.arbiter = arbiter = MemoryArbiter(bus_bytes)
    m.submodules.sdram = sdram = SdramController(CHIP, 60.0, bus_bytes)
    wiring.connect(m, arbiter.memory, sdram.bus)
    half = CHIP.bytes // 2
    managers = [
        Manager(arbiter.npu, bus_bytes, (0, half), f"npu/{seed}", 80, 0.9),
        Manager(arbiter.host, bus_bytes, (half, CHIP.bytes), f"host/{seed}", 160, 0.3, longest=1),
    ]
    return run(m, sdram.pins, managers, CHIP, 60.0, watched=(arbiter.memory,))


def test_sequential_reads_follow_each_other() -> None:
    """Columns of open rows come without a gap: 16 bursts of 64 beats take little more than their words."""
    cycles = sequential_cycles()
    words = 16 * 64 * 2
    assert words < cycles < 1.15 * words, cycles


def sequential_cycles() -> int:
    dut = SdramController(CHIP, 60.0, 4)
    model = SdramModel(CHIP, 60.0)
    found = []

    async def chip_process(ctx) -> None:
        while True:
            ctx.set(dut.pins.dq_in, model.step(pins_of(ctx, dut.pins)) or 0)
            await ctx.tick()

    async def reads(ctx) -> None:
        await ctx.tick().repeat(200)
        start = model.cycle
        ctx.set(dut.bus.rready, 1)
        ctx.set(dut.bus.arlen, 63)
        ctx.set(dut.bus.arvalid, 1)
        asked = beats = 0
        while beats < 16 * 64:
            _, _, ready, valid = await ctx.tick().sample(dut.bus.arready, dut.bus.rvalid)
            beats += valid
            if ready and asked < 16:
                asked += 1
                ctx.set(dut.bus.araddr, asked * 256)
                ctx.set(dut.bus.arvalid, asked < 16)
        found.append(model.cycle - start)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(reads)
    simulator.add_testbench(chip_process, background=True)
    simulator.run()
    return found[0]


# ---- the model


def command(name: str, bank: int = 0, address: int = 0, dq: int | None = None) -> SdramPins:
    code = {"MODE": 0, "REFRESH": 1, "PRECHARGE": 2, "ACTIVATE": 3, "WRITE": 4, "READ": 5, "STOP": 6}[name]
    return SdramPins(1, 0, code >> 2, code >> 1 & 1, code & 1, bank, address, 0, dq)


def started(chip: SdramChip = CHIP, megahertz: float = 100.0) -> SdramModel:
    """A chip after power-up, with bursts of two words."""
    model = SdramModel(chip, megahertz)
    times = model.times
    play(model, NOP, times.power_up, command("PRECHARGE", address=1 << 10), times.precharge)
    for _ in range(chip.initial_refreshes):
        play(model, command("REFRESH"), times.refresh_cycle)
    play(model, command("MODE", address=1 | times.cas_latency << 4), times.mode)
    return model


def play(model: SdramModel, *steps: SdramPins | int) -> list[int | None]:
    """Pins, each followed by so many cycles in all from its own on; what the chip drives."""
    found = []
    for index, pins in enumerate(steps):
        if isinstance(pins, int):
            continue
        following = steps[index + 1] if index + 1 < len(steps) else 1
        found.append(model.step(pins))
        found += [model.step(NOP) for _ in range((following if isinstance(following, int) else 1) - 1)]
    return found


WORD = SdramPins(dq=7)


def test_words_come_when_the_data_sheet_says() -> None:
    model = started()
    times = model.times
    play(
        model, command("ACTIVATE", 1, 5), times.activate_to_column, command("WRITE", 1, 8, 0x1234), SdramPins(dq=0x5678)
    )
    found = play(model, command("READ", 1, 8), 6)
    assert found == [None] * (times.cas_latency - 1) + [0x1234, 0x5678] + [None] * (5 - times.cas_latency)


@pytest.mark.parametrize(
    "rule, make",
    [
        ("before the chip is ready", lambda t: None),
        ("after tRCD", lambda t: [command("ACTIVATE"), t.activate_to_column - 1, command("READ")]),
        ("after tRAS", lambda t: [command("ACTIVATE"), t.row_active - 1, command("PRECHARGE")]),
        ("after tRP", lambda t: [
            command("ACTIVATE"), t.row_active, command("PRECHARGE"), t.precharge - 1, command("ACTIVATE")]),
        ("after tRRD", lambda t: [command("ACTIVATE"), t.bank_to_bank - 1, command("ACTIVATE", 1)]),
        ("REFRESH with row", lambda t: [command("ACTIVATE"), 20, command("REFRESH")]),
        ("MODE with row", lambda t: [command("ACTIVATE"), 20, command("MODE", address=0x21)]),
        ("has no CAS latency", lambda t: [command("MODE", address=0x11)]),
        ("before the chip is ready", lambda t: [command("REFRESH"), t.refresh_cycle - 1, command("ACTIVATE")]),
        ("REFRESH after tRP", lambda t: [
            command("ACTIVATE"), t.row_active, command("PRECHARGE"), t.precharge - 1, command("REFRESH")]),
        ("with row 0 open", lambda t: [command("ACTIVATE"), 20, command("ACTIVATE", address=1)]),
        ("a row that the chip does not have", lambda t: [command("ACTIVATE", address=1 << 11)]),
        ("READ of a closed bank", lambda t: [command("ACTIVATE"), 20, command("READ", 1)]),
        ("column beyond the row", lambda t: [command("ACTIVATE"), 20, command("READ", address=1 << 10)]),
        ("cuts another one short", lambda t: [command("ACTIVATE"), 20, command("READ"), command("READ")]),
        ("PRECHARGE cuts a READ short", lambda t: [command("ACTIVATE"), 20, command("READ"), command("PRECHARGE")]),
        ("after tWR", lambda t: [
            command("ACTIVATE"), 20, command("WRITE", dq=1), WORD, t.write_recovery - 1, command("PRECHARGE")]),
        ("while a WRITE still", lambda t: [command("ACTIVATE"), 20, command("WRITE", dq=1), command("READ")]),
        ("a WRITE without data", lambda t: [command("ACTIVATE"), 20, command("WRITE", dq=1), NOP]),
        ("both drive", lambda t: [command("ACTIVATE"), 20, command("READ"), t.cas_latency + 2, command("WRITE", dq=1)]),
        ("more than tRAS max", lambda t: [command("ACTIVATE"), t.row_active_most + 2]),
        ("refreshes where", lambda t: [NOP, 9 * t.refresh_interval]),
        ("STOP is not modelled", lambda t: [command("STOP")]),
    ],
)  # fmt: skip
def test_violations(rule: str, make) -> None:
    if (steps := make(SdramModel(CHIP, 100.0).times)) is None:
        model, steps = SdramModel(CHIP, 100.0), [command("PRECHARGE", address=1 << 10)]
    else:
        chip = CHIP if "refreshes" in rule else SdramChip(row_bits=11, refresh_period=1e9, power_up=100.0)
        model = started(chip)
    with pytest.raises(SdramViolation, match=rule):
        play(model, *steps)


def test_what_the_same_steps_may_do() -> None:
    """A cycle later each of them is allowed."""
    model = started(SdramChip(row_bits=11, refresh_period=1e9, power_up=100.0))
    t = model.times
    play(model, command("ACTIVATE"), t.activate_to_column, command("WRITE", dq=1), WORD, t.write_recovery)
    play(model, NOP, t.row_active, command("PRECHARGE"), t.precharge, command("ACTIVATE"), t.bank_to_bank)
    play(model, command("ACTIVATE", 1), t.activate_to_column, command("READ", 1), t.cas_latency + 3)
    play(model, command("WRITE", 1, dq=1), WORD, t.write_recovery, command("PRECHARGE", address=1 << 10), t.precharge)
    play(model, NOP, t.row_cycle, command("REFRESH"), t.refresh_cycle, command("ACTIVATE"))


def test_refused() -> None:
    with pytest.raises(ValueError, match="up to 133 MHz, not 200"):
        CHIP.times(200.0)
    with pytest.raises(ValueError, match="4, 8 or 16 bytes, not 32"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SdramController(CHIP, 60.0, 32)
