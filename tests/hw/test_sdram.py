"""The SDRAM controller against a chip model that checks the data sheet's times, and the model against violations."""

import random
import warnings
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from amaranth.sim import Simulator
from npukit.fpga.sdram import SdramController
from npukit.fpga.sdram_chip import SdramModel, SdramPins, SdramViolation
from npukit.isa.sdram import SdramChip

CHIP = SdramChip(row_bits=11, refresh_period=16e6, power_up=100.0)
"""Fewer rows, as often refreshed; no long wait before the first command."""
NOP = SdramPins()


def pins_of(ctx, pins) -> SdramPins:
    return SdramPins(
        cke=ctx.get(pins.cke), cs_n=ctx.get(pins.cs_n), ras_n=ctx.get(pins.ras_n), cas_n=ctx.get(pins.cas_n),
        we_n=ctx.get(pins.we_n), bank=ctx.get(pins.bank), address=ctx.get(pins.address), dqm=ctx.get(pins.dqm),
        dq=ctx.get(pins.dq_out) if ctx.get(pins.dq_drive) else None,
    )  # fmt: skip


@dataclass
class Traffic:
    """Random bursts, and memory as it must be: reads may return a byte as it was at any time since they were asked for,
    as long as no write of it was under way."""

    seed: str
    bus_bytes: int
    bursts: int
    busy: float
    memory: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def burst(self) -> tuple[int, int]:
        """(address, beats - 1) of a burst within 4 KiB; often in few rows of each bank."""
        random = self.random
        length = random.choice([0, 0, 1, 3, 7, 15, random.randrange(64)])
        page = random.choice([random.randrange(8), random.randrange(8), random.randrange(CHIP.bytes >> 12)]) << 12
        room = 4096 // self.bus_bytes - length
        return page + random.randrange(room) * self.bus_bytes, length


def run(traffic: Traffic, megahertz: float, chip: SdramChip = CHIP, io_cycles: int = 0) -> SdramModel:
    """Reads and writes at random, of other halves of memory at a time; all that is read is compared."""
    size = traffic.bus_bytes
    dut = SdramController(chip, megahertz, size, io_cycles=io_cycles)
    model = SdramModel(chip, megahertz)
    there, back = deque([NOP] * (io_cycles // 2)), deque([0] * (io_cycles - io_cycles // 2))
    rng = np.random.default_rng(traffic.random.getrandbits(32))
    model.memory[:] = rng.integers(0, 1 << 16, model.memory.size, np.uint16)
    expected = model.memory.view(np.uint8).copy()
    random, bus = traffic.random, dut.bus
    # writes and reads take turns in rounds: what one round wrote, later rounds read
    rounds = max(1, traffic.bursts // 20)

    async def chip_process(ctx) -> None:
        while True:
            there.append(pins_of(ctx, dut.pins))
            word = model.step(there.popleft())
            back.append(word if word is not None else random.randrange(1 << 16))
            ctx.set(dut.pins.dq_in, back.popleft())
            await ctx.tick()

    async def writes(ctx, bursts) -> None:
        beats = deque()
        addresses = deque()
        for address, length in bursts:
            addresses.append((address, length))
            for beat in range(length + 1):
                data, strobe = (
                    random.randrange(1 << 8 * size),
                    random.choice([(1 << size) - 1, random.randrange(1 << size)]),
                )
                beats.append((data, strobe, beat == length))
                for byte in range(size):
                    if strobe >> byte & 1:
                        expected[address + beat * size + byte] = data >> 8 * byte & 0xFF
        responses = len(addresses)
        while responses:
            valid = bool(addresses) and random.random() < traffic.busy
            if valid or ctx.get(bus.awvalid):
                ctx.set(bus.awaddr, addresses[0][0])
                ctx.set(bus.awlen, addresses[0][1])
                ctx.set(bus.awvalid, 1)
            if (beats and random.random() < traffic.busy) or ctx.get(bus.wvalid):
                ctx.set(bus.wdata, beats[0][0])
                ctx.set(bus.wstrb, beats[0][1])
                ctx.set(bus.wlast, beats[0][2])
                ctx.set(bus.wvalid, 1)
            ctx.set(bus.bready, random.random() < traffic.busy)
            _, _, awready, awvalid, wready, wvalid, bvalid, bready = await ctx.tick().sample(
                bus.awready, bus.awvalid, bus.wready, bus.wvalid, bus.bvalid, bus.bready
            )
            if awready and awvalid:
                addresses.popleft()
                ctx.set(bus.awvalid, 0)
            if wready and wvalid:
                beats.popleft()
                ctx.set(bus.wvalid, 0)
            responses -= bvalid & bready
        ctx.set(bus.bready, 0)

    async def reads(ctx, bursts) -> None:
        addresses = deque(bursts)
        waiting = deque((address, beat, length) for address, length in bursts for beat in range(length + 1))
        while waiting:
            if (addresses and random.random() < traffic.busy) or ctx.get(bus.arvalid):
                ctx.set(bus.araddr, addresses[0][0])
                ctx.set(bus.arlen, addresses[0][1])
                ctx.set(bus.arvalid, 1)
            ctx.set(bus.rready, random.random() < traffic.busy)
            _, _, arready, arvalid, rvalid, rready, data, last = await ctx.tick().sample(
                bus.arready, bus.arvalid, bus.rvalid, bus.rready, bus.rdata, bus.rlast
            )
            if arready and arvalid:
                addresses.popleft()
                ctx.set(bus.arvalid, 0)
            if rvalid and rready:
                address, beat, length = waiting.popleft()
                at = address + beat * size
                assert data == int.from_bytes(expected[at : at + size].tobytes(), "little"), (hex(address), beat)
                assert last == (beat == length)
        ctx.set(bus.rready, 0)

    done = {"write": 0, "read": 0}
    plans = []
    for _ in range(rounds):
        half = random.randrange(2) * (CHIP.bytes // 2)
        pick = lambda base: [((a % (CHIP.bytes // 2)) + base, n) for a, n in (traffic.burst() for _ in range(10))]  # noqa: E731
        plans.append((pick(half), pick(CHIP.bytes // 2 - half)))

    async def writer(ctx) -> None:
        for number, (bursts, _) in enumerate(plans):
            await writes(ctx, bursts)
            done["write"] = number + 1
            while done["read"] <= number:
                await ctx.tick()
        await ctx.tick().repeat(2 * size)  # the last words are on their way to the chip

    async def reader(ctx) -> None:
        for number, (_, bursts) in enumerate(plans):
            await reads(ctx, bursts)
            done["read"] = number + 1
            while done["write"] <= number:
                await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(writer)
    simulator.add_testbench(reader)
    simulator.add_testbench(chip_process, background=True)
    simulator.run()
    assert np.array_equal(model.memory.view(np.uint8), expected)
    return model


@pytest.mark.parametrize("bus_bytes", [4, 8, 16])
@pytest.mark.parametrize("megahertz", [25.0, 60.0, 100.0, 133.0])
def test_random_traffic(bus_bytes: int, megahertz: float) -> None:
    for busy in (1.0, 0.5):
        model = run(Traffic(f"{bus_bytes}/{megahertz}/{busy}", bus_bytes, 60, busy), megahertz)
        assert (
            model.commands["READ"] > 100 and model.commands["WRITE"] > 100 and model.refreshes > CHIP.initial_refreshes
        )


@pytest.mark.parametrize("io_cycles", [1, 2])
def test_registers_at_the_pins(io_cycles: int) -> None:
    run(Traffic(f"registers/{io_cycles}", 4, 60, 0.9), 60.0, io_cycles=io_cycles)


def test_fresh_random_traffic() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    run(Traffic(str(seed), 4, 100, 0.8), 60.0)


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
