"""A board's system through its pins: a host on the serial line, the SDRAM chip on the other side."""

import random
import struct
import warnings
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from amaranth.sim import Simulator
from npukit.fpga.interconnect import REGISTERS
from npukit.fpga.sdram_chip import SdramModel, SdramPins
from npukit.fpga.system import System
from npukit.fpga.uart import HostBridge
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import encode
from npukit.isa.registers import address_of
from npukit.isa.sdram import SdramChip
from npukit.sim.dram import SdramDram
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing

from npukit.verify.generator import random_program

CHIP = SdramChip(row_bits=11, refresh_period=16e6, power_up=100.0)
DIVISOR = 4
CONFIG = replace(
    PRESETS["int8-4x4"], act_depth=64, act_banks=2, wgt_depth=64, acc_depth=16, acc_banks=2, par_depth=32, bus_bytes=4,
    vector_lanes=1, fma_lanes=1,
)  # fmt: skip


@dataclass
class Line:
    """The host's end of a serial line, as a process beside the simulated board."""

    rx: object
    tx: object
    bits: deque = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    drift: float = 0.0
    """By how much the host's bits are longer than they should be."""

    def send(self, data: bytes, stop: int = 1) -> None:
        for byte in data:
            self.bits.extend([0, *(byte >> place & 1 for place in range(8)), stop, 1])

    async def run(self, ctx) -> None:
        level, shift, count, wait = 1, 0, 0, 0
        timer, late = 0, 0.0
        while True:
            if timer == 0:
                ctx.set(self.rx, self.bits.popleft() if self.bits else 1)
                late += DIVISOR * (1 + self.drift)
                timer = round(late)
                late -= timer
            timer -= 1
            level = ctx.get(self.tx)
            if count == 0:
                if not level:
                    count, wait = 10, DIVISOR // 2
            elif wait == 0:
                shift, count, wait = shift >> 1 | level << 9, count - 1, DIVISOR - 1
                if count == 0:
                    assert shift >> 9 and not shift & 1
                    self.received.append(shift >> 1 & 0xFF)
            else:
                wait -= 1
            await ctx.tick()


def write(address: int, words: list[int]) -> bytes:
    return b"W" + struct.pack(f"<IH{len(words)}I", address, len(words) - 1, *words)


def read(address: int, words: int) -> bytes:
    return b"R" + struct.pack("<IH", address, words - 1)


def converse(
    config: NpuConfig, exchanges: list[tuple[bytes, int]], megahertz: float = 60.0, memory: bytes = b""
) -> tuple[list[bytes], SdramModel]:
    """What the board answers to each command, of which the length is known; and the chip afterwards, of which the
    beginning was given."""
    dut = System(config, CHIP, megahertz, round(megahertz * 1e6 / DIVISOR))
    model = SdramModel(CHIP, megahertz)
    model.memory.view(np.uint8)[: len(memory)] = np.frombuffer(memory, np.uint8)
    line, answers = Line(dut.rx, dut.tx), []

    async def chip(ctx) -> None:
        pins = dut.sdram
        while True:
            found = SdramPins(
                ctx.get(pins.cke), ctx.get(pins.cs_n), ctx.get(pins.ras_n), ctx.get(pins.cas_n), ctx.get(pins.we_n),
                ctx.get(pins.bank), ctx.get(pins.address), ctx.get(pins.dqm),
                ctx.get(pins.dq_out) if ctx.get(pins.dq_drive) else None,
            )  # fmt: skip
            ctx.set(pins.dq_in, model.step(found) or 0)
            await ctx.tick()

    async def host(ctx) -> None:
        for command, length in exchanges:
            line.send(command)
            for _ in range(200_000):
                if len(line.received) >= length and not line.bits:
                    break
                await ctx.tick()
            answers.append(bytes(line.received))
            line.received.clear()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host)
    simulator.add_testbench(chip, background=True)
    simulator.add_testbench(line.run, background=True)
    simulator.run()
    return answers, model


@pytest.mark.parametrize("bus_bytes", [4, 8])
def test_memory_and_registers(bus_bytes: int) -> None:
    rng = random.Random(bus_bytes)
    words = [rng.getrandbits(32) for _ in range(5)]
    config = replace(CONFIG, bus_bytes=bus_bytes)
    answers, model = converse(
        config,
        [
            (write(0x1004, words), 1),
            (read(0x1004, 5), 21),
            (read(REGISTERS, 2), 9),
            (write(REGISTERS + 0x18, [0x12345000]), 1),
            (read(0x1008, 1), 5),
            (b"?\x00" + read(0x1014, 1), 5),
        ],
    )
    assert answers[0] == b"K"
    assert answers[1] == struct.pack("<5I", *words) + b"K"
    assert answers[2].endswith(b"K") and len(answers[2]) == 9
    assert answers[3] in (b"K", b"E")
    assert answers[4] == struct.pack("<I", words[1]) + b"K"
    assert answers[5] == struct.pack("<I", words[4]) + b"K"
    stored = model.memory.view(np.uint8)[0x1004 : 0x1004 + 20].tobytes()
    assert stored == struct.pack("<5I", *words)


def test_a_program(tmp_path) -> None:
    """The accelerator runs a random program out of the SDRAM, started and watched over the serial line."""
    made = random_program(CONFIG, "board 11", 8)
    code = b"".join(encode(one) for one in made.instructions)
    base = 1 << 20
    megahertz = 60.0
    memory = bytearray(base + made.memory.size)
    memory[: len(code)] = code
    memory[base:] = made.memory.tobytes()

    def register(name: str, *values: int) -> tuple[bytes, int]:
        return write(REGISTERS + address_of(name), list(values)), 1

    answers, model = converse(
        CONFIG,
        [
            register("PROGRAM_HASH_LOW", CONFIG.hash & 0xFFFFFFFF, CONFIG.hash >> 32),
            register("PROGRAM_LOW", 0, 0, len(made.instructions), base, 0, made.memory.size, 0),
            register("CONTROL", 1),
            # as long as the program may take, the host talks
            *[(read(REGISTERS + address_of("STATUS"), 1), 5)] * 40,
            (read(REGISTERS + address_of("IDENTITY"), 1), 5),
            (read(REGISTERS + address_of("CYCLES_LOW"), 1), 5),
        ],
        memory=bytes(memory),
        megahertz=megahertz,
    )
    assert answers[:3] == [b"K"] * 3
    statuses = [struct.unpack("<I", answer[:4])[0] for answer in answers[3:-2]]
    assert statuses[0] == 1 and statuses[-1] == 2, statuses
    assert answers[-2] == b"KUPNK"
    # the cycles that the simulator says, for one of the moments at which a refresh may be due
    interval = CHIP.times(megahertz).refresh_interval
    dram = SdramDram(chip=CHIP, megahertz=megahertz, io_cycles=0, program=0, base=base)
    expected = {simulate_timing(CONFIG, made.instructions, replace(dram, phase=one)).cycles for one in range(interval)}
    assert struct.unpack("<I", answers[-1][:4])[0] in expected and len(expected) < 30, (answers[-1], expected)
    machine = FunctionalSimulator(CONFIG, made.memory.copy())
    for instruction in made.instructions:
        machine.execute(instruction)
    found = model.memory.view(np.uint8)[base : base + made.memory.size]
    assert np.array_equal(found, machine.dram)
    assert not np.array_equal(found, made.memory)


def bridge(
    exchanges: list[tuple[bytes, int, int]], patience: int = 40, drift: float = 0.0
) -> tuple[list[bytes], dict[int, int]]:
    """(command, stop bit, cycles to wait afterwards) to the bridge alone, before words that are refused from address
    0x1000 on; the answers, and what was written."""
    dut = HostBridge(DIVISOR, patience)
    line, memory, answers = Line(dut.rx, dut.tx, drift=drift), dict[int, int](), []
    bus = dut.bus

    async def slave(ctx) -> None:
        while True:
            for name in ("awready", "wready", "bvalid", "arready", "rvalid"):
                ctx.set(getattr(bus, name), 0)
            if ctx.get(bus.awvalid) and ctx.get(bus.wvalid):
                address = ctx.get(bus.awaddr)
                if address < 0x1000:
                    memory[address] = ctx.get(bus.wdata)
                for name in ("awready", "wready", "bvalid"):
                    ctx.set(getattr(bus, name), 1)
                ctx.set(bus.bresp, 0 if address < 0x1000 else 2)
            elif ctx.get(bus.arvalid):
                address = ctx.get(bus.araddr)
                ctx.set(bus.arready, 1)
                ctx.set(bus.rvalid, 1)
                ctx.set(bus.rdata, memory.get(address, 0))
                ctx.set(bus.rresp, 0 if address < 0x1000 else 2)
            await ctx.tick()

    async def host(ctx) -> None:
        for command, stop, cycles in exchanges:
            line.send(command, stop)
            while line.bits:
                await ctx.tick()
            await ctx.tick().repeat(cycles)
            answers.append(bytes(line.received))
            line.received.clear()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host)
    simulator.add_testbench(slave, background=True)
    simulator.add_testbench(line.run, background=True)
    simulator.run()
    return answers, memory


def run_bridge(seed: str) -> None:
    """Random commands, some of them with a damaged byte or cut off, against a dictionary."""
    draw = random.Random(seed)
    held: dict[int, int] = {}
    exchanges, expected = [], []
    for _ in range(25):
        address, count = draw.choice([draw.randrange(0, 64, 4), 0xFF8]), draw.choice([1, 1, 2, 5])
        places = range(address, address + 4 * count, 4)
        answer = b"E" if places[-1] >= 0x1000 else b"K"
        words = [draw.getrandbits(32) for _ in places]
        writes, kind = draw.random() < 0.6, draw.random()
        command = write(address, words) if writes else read(address, count)
        if kind < 0.15:  # as long as nothing comes, nothing is answered
            exchanges.append((command[:-1], 1, 400))
            expected.append(b"")
            words = words[:-1]
        elif kind < 0.3:
            exchanges.append((command[:-1], 1, 1))
            exchanges.append((command[-1:], 0, 600))
            expected += [b"", b"E"]
            words = words[:-1]
        else:
            exchanges.append((command, 1, 1200))
            values = b"" if writes else b"".join(
                struct.pack("<I", held.get(place, 0) if place < 0x1000 else 0) for place in places
            )  # fmt: skip
            expected.append(values + answer)
        if writes:
            held |= {place: word for place, word in zip(places, words, strict=False) if place < 0x1000}
    answers, memory = bridge(exchanges, drift=draw.choice([0.02, -0.02]))
    assert answers == expected
    assert memory == held


@pytest.mark.parametrize("seed", ["1", None], ids=["fixed", "fresh"])
def test_random_commands(seed: str | None) -> None:
    drawn = seed or str(random.SystemRandom().randrange(10**6))
    print("seed", drawn)
    run_bridge(drawn)


def test_a_host_that_stops_talking() -> None:
    """A command without its end is forgotten after a while, what came of its words stays."""
    answers, memory = bridge(
        [
            (write(0x100, [1, 2])[:-3], 1, 500),
            (read(0x100, 1), 1, 500),
            (write(0x200, [3])[:4], 1, 500),
            (read(0x100, 1), 1, 500),
        ]
    )
    assert answers == [b"", struct.pack("<I", 1) + b"K"] * 2
    assert memory == {0x100: 1}


def test_refused_and_damaged() -> None:
    """An access that is refused and a byte with a wrong stop bit are told, and what follows is not affected."""
    answers, memory = bridge(
        [
            (write(0xFFC, [7, 8]), 1, 300),
            (read(0xFFC, 2), 1, 1000),
            (read(0xFFC, 1), 1, 500),
            (write(0x10, [9]), 0, 300),
            (b"xyz" + write(0x10, [9]), 1, 300),
        ]
    )
    assert answers[0] == b"E" and answers[1] == struct.pack("<II", 7, 0) + b"E"
    assert answers[2] == struct.pack("<I", 7) + b"K"
    assert answers[3:] == [b"E", b"K"] and memory == {0xFFC: 7, 0x10: 9}


def damaged(command: bytes, place: int) -> list[tuple[bytes, int, int]]:
    """A command of which one byte has a wrong stop bit, and time to be quiet behind it."""
    return [(command[:place], 1, 1), (command[place : place + 1], 0, 1), (command[place + 1 :], 1, 400)]


@pytest.mark.parametrize("place", [0, 1, 5, 8, 11, 14])
def test_nothing_is_written_behind_a_damaged_byte(place: int) -> None:
    """It may be any part of a command: what follows must not be taken for another part."""
    command = write(0x100, [1, 2])
    answers, memory = bridge([*damaged(command, place), (write(0x200, [3]) + read(0x200, 1), 1, 500)])
    assert answers[:3] == [b"", b"", b"E"]
    assert memory == ({0x100: 1} if place > 10 else {}) | {0x200: 3}
    assert answers[3] == b"K" + struct.pack("<I", 3) + b"K"


def test_more_bytes_than_there_is_room_for() -> None:
    """Commands sent while long answers are on their way: a first part of them is carried out, and the end says E."""
    commands = [*[read(0, 6)] * 8, *[write(0x100 + 4 * one, [one + 1]) for one in range(12)]]
    answers, memory = bridge([(b"".join(commands), 1, 4000), (write(0x200, [3]), 1, 300)])
    reads, end = divmod(len(answers[0]), 25)
    assert 1 <= reads <= 8 and answers[0] == (bytes(24) + b"K") * reads + b"K" * (end - 1) + b"E"
    assert memory == {0x100 + 4 * one: one + 1 for one in range(end - 1)} | {0x200: 3}
    assert answers[1] == b"K" and end < 13


def test_an_answer_is_that_of_its_own_command() -> None:
    """A damaged byte that comes while an answer is on its way does not spoil that one."""
    answers, _ = bridge([(read(0, 6), 1, 1), (b"R", 0, 2000)])
    assert b"".join(answers) == bytes(24) + b"K" + b"E"


def test_baud_rates() -> None:
    with pytest.raises(ValueError, match="921600 baud is 7.8 % off at 2.0 MHz"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        System(CONFIG, CHIP, 2.0, 921600)
