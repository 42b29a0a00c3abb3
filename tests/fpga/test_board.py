"""A board's system through its pins: a host on the serial line, the SDRAM chip on the other side."""

import random
import struct
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from amaranth.sim import Simulator
from npukit.fpga.sdram_chip import SdramModel, SdramPins
from npukit.fpga.system import System, identity_of
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.host_link import IDENTITY_WORDS, REGISTERS, baud_of, divisor_of
from npukit.isa.instructions import encode
from npukit.isa.registers import address_of
from npukit.isa.sdram import SdramChip
from npukit.sim.dram import SdramDram
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing

from npukit.verify.generator import random_program
from tests.fpga.link_bench import DIVISOR, IDENTITY, REFUSED, LinkBench, check
from tests.fpga.link_model import LinkModel, framed, request
from tests.fuzzing.link import Link

CHIP = SdramChip(row_bits=11, refresh_period=16e6, power_up=100.0)
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

    def send(self, data: bytes) -> None:
        for byte in data:
            self.bits.extend([0, *(byte >> place & 1 for place in range(8)), 1, 1])

    async def run(self, ctx) -> None:
        level, shift, count, wait = 1, 0, 0, 0
        timer = 0
        while True:
            if timer == 0:
                ctx.set(self.rx, self.bits.popleft() if self.bits else 1)
                timer = DIVISOR
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


SESSION = 0x7D7E1234


def write(sequence: int, address: int, *words: int) -> bytes:
    return request(3, sequence, SESSION, address, data=struct.pack(f"<{len(words)}I", *words))


def read(sequence: int, address: int, words: int) -> bytes:
    return request(2, sequence, SESSION, address, words)


def answer(frame: bytes) -> tuple[int, int, bytes]:
    """Kind, status and data of an answer that is whole."""
    content = frame.strip(b"\x7e")
    for byte in (b"\x7e", b"\x7d"):
        content = content.replace(b"\x7d" + bytes([byte[0] ^ 0x20]), byte)
    assert framed(content[:-4]) == frame
    return content[0] & 0x7F, content[-5], content[8:-5]


def converse(
    config: NpuConfig, exchanges: list[bytes], megahertz: float = 60.0, memory: bytes = b""
) -> tuple[list[tuple[int, int, bytes]], SdramModel]:
    """What the board answers to each request; and the chip afterwards, of which the beginning was given."""
    dut = System(config, CHIP, identity_of(config, CHIP, megahertz, round(megahertz * 1e6 / DIVISOR), "a board"))
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
        for frame in [request(1, 0, SESSION), *exchanges]:
            line.send(frame)
            for _ in range(200_000):
                if line.received.count(0x7E) == 2:
                    break
                await ctx.tick()
            answers.append(answer(bytes(line.received)))
            line.received.clear()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host)
    simulator.add_testbench(chip, background=True)
    simulator.add_testbench(line.run, background=True)
    simulator.run()
    assert answers.pop(0) == (1, 0, b"")
    return answers, model


def test_memory_and_registers() -> None:
    """With a bus of two words; one of one word is what the boards have, see `tests/board_sim`."""
    rng = random.Random(8)
    words = [rng.getrandbits(32) for _ in range(5)]
    config = replace(CONFIG, bus_bytes=8)
    answers, model = converse(
        config,
        [
            write(1, 0x1004, *words),
            read(2, 0x1004, 5),
            read(3, REGISTERS, 2),
            write(4, REGISTERS + address_of("INTERRUPT_ENABLE"), 3),
            read(5, REGISTERS + address_of("INTERRUPT_ENABLE"), 1),
            read(6, REGISTERS + 0xFF0, 1),
            read(7, 0x1008, 1),
            request(4, 8, SESSION, 0x1004, 5),
            request(0, 9, 0),
        ],
    )
    data = struct.pack("<5I", *words)
    identity = identity_of(config, CHIP, 60.0, 15_000_000, "a board")
    held = {0x1004 + 4 * index: word for index, word in enumerate(words)}
    model_of_link = LinkModel(identity.to_words(), held, session=SESSION)
    for byte in request(4, 8, SESSION, 0x1004, 5):
        model_of_link.hear(byte)
    (expected,) = model_of_link.answers
    assert answers == [
        (3, 0, b""),
        (2, 0, data),
        (2, 0, b"KUPN" + struct.pack("<I", identity.isa_version)),
        (3, 0, b""),
        (2, 0, struct.pack("<I", 3)),
        (2, 1, bytes(4)),
        (2, 0, data[4:8]),
        answer(expected),
        (0, 0, struct.pack(f"<{IDENTITY_WORDS}I", *identity.to_words())),
    ]
    assert model.memory.view(np.uint8)[0x1004 : 0x1004 + 20].tobytes() == data


def test_a_program(tmp_path) -> None:
    """The accelerator runs a random program out of the SDRAM, started and watched over the serial line."""
    made = random_program(CONFIG, "board 11", 8)
    code = b"".join(encode(one) for one in made.instructions)
    base = 1 << 20
    megahertz = 60.0
    memory = bytearray(base + made.memory.size)
    memory[: len(code)] = code
    memory[base:] = made.memory.tobytes()

    def register(sequence: int, name: str, *values: int) -> bytes:
        return write(sequence, REGISTERS + address_of(name), *values)

    status = [read(10 + index, REGISTERS + address_of("STATUS"), 1) for index in range(14)]
    answers, model = converse(
        CONFIG,
        [
            register(1, "PROGRAM_HASH_LOW", CONFIG.hash & 0xFFFFFFFF, CONFIG.hash >> 32),
            register(2, "PROGRAM_LOW", 0, 0, len(made.instructions), base, 0, made.memory.size, 0),
            register(3, "CONTROL", 1),
            *status,  # as long as the program may take, the host talks
            read(80, REGISTERS + address_of("CYCLES_LOW"), 1),
        ],
        memory=bytes(memory),
        megahertz=megahertz,
    )
    assert answers[:3] == [(3, 0, b"")] * 3
    statuses = [int.from_bytes(data, "little") for _, _, data in answers[3:-1]]
    assert statuses[0] == 1 and statuses[-1] == 2, statuses
    cycles = int.from_bytes(answers[-1][2], "little")
    # the cycles that the simulator says, for one of the moments at which a refresh may be due
    interval = CHIP.times(megahertz).refresh_interval
    dram = SdramDram(chip=CHIP, megahertz=megahertz, io_cycles=0, program=0, base=base)
    expected = {simulate_timing(CONFIG, made.instructions, replace(dram, phase=one)).cycles for one in range(interval)}
    assert cycles in expected and len(expected) < 30, (cycles, expected)
    machine = FunctionalSimulator(CONFIG, made.memory.copy())
    for instruction in made.instructions:
        machine.execute(instruction)
    found = model.memory.view(np.uint8)[base : base + made.memory.size]
    assert np.array_equal(found, machine.dram)
    assert not np.array_equal(found, made.memory)


def spoken(frame: bytes, wrong: int = -1) -> list[tuple[int, bool, int]]:
    """A frame on the line, of which one byte has a wrong stop bit."""
    return [(one, at != wrong, 0) for at, one in enumerate(frame)]


def held_to_the_model(groups: list[list[tuple[int, bool, int]]], seed: int = 1, drift: float = 0.0) -> LinkModel:
    """Frames to the board's end of the link alone; what it answers and writes is what the protocol says."""
    heard = LinkBench(random.Random(seed), drift).run(groups)
    model = LinkModel(IDENTITY.to_words(), refused=REFUSED)
    for group, one in zip(groups, heard, strict=True):
        check(model, group, one)
    return model


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
def test_random_frames(seed: int | None) -> None:
    drawn = seed or random.SystemRandom().randrange(10**6)
    print("seed", drawn)
    kind, draw = Link(), random.Random(drawn)
    for _ in range(3):
        kind.run(kind.input(draw))


def run_link(seed: str) -> None:
    """Some of what each part of the board's end of the link is for, and random frames."""
    draw = random.Random(seed)
    frame = write(1, 0x100, draw.getrandbits(32), draw.getrandbits(32))
    damaged = bytearray(frame)
    damaged[16] ^= 4
    groups = [
        *(request(1, 0, SESSION), frame, frame, read(2, 0x100, 2), bytes(damaged), write(3, REFUSED - 4, 1, 2)),
        *(request(3, 4, 5, 0x100, data=bytes(4)), frame.replace(b"\x7d", b"\x7d\x7d", 1), read(5, 0x100, 2)),
    ]
    held_to_the_model([spoken(one) for one in groups], draw.getrandbits(30), draw.choice([0.02, -0.02]))
    kind = Link()
    kind.run(kind.input(draw))


@pytest.mark.parametrize("drift", [0.02, -0.02])
def test_a_clock_that_is_off(drift: float) -> None:
    """By two in a hundred, through the longest frames."""
    data = random.Random(1).randbytes(1024)
    frames = [request(1, 0, 1), request(3, 1, 1, 0x100, data=data), request(2, 2, 1, 0x100, 256)]
    model = held_to_the_model([spoken(frame) for frame in frames], drift=drift)
    assert len(model.memory) == 256


@pytest.mark.parametrize("place", [0, 1, 2, 5, 9, 14, 20, -1])
def test_nothing_comes_of_a_damaged_frame(place: int) -> None:
    """Whatever part of it is damaged; and what follows is not affected."""
    frame = write(1, 0x100, 1, 2)
    model = held_to_the_model(
        [
            spoken(request(1, 0, SESSION)),
            spoken(frame, place % len(frame)),
            spoken(write(2, 0x200, 3)),
            spoken(read(3, 0x200, 1)),
        ]
    )
    assert model.memory == {0x200: 3}


def test_a_write_that_comes_again() -> None:
    """It is carried out once, and answered as before; another session begins anew."""
    frame, refused = write(1, 0x100, 7), write(2, 0xFFC, 8, 9)
    other = request(3, 2, 5, 0x104, data=bytes(4))
    groups = [request(1, 0, SESSION), frame, frame, refused, refused, request(1, 1, 5), other, other, frame]
    model = held_to_the_model([spoken(one) for one in groups])
    assert model.memory == {0x100: 7, 0xFFC: 8, 0x104: 0}


def test_more_frames_than_there_is_room_for() -> None:
    """Requests sent while a long answer is on its way: two are kept, those behind them are told as damaged."""
    frames = [read(number, 0x100, 40) for number in range(5)]
    bench = LinkBench(random.Random(1))
    _, (received, _), (after, _) = bench.run(
        [spoken(request(1, 9, SESSION)), spoken(b"".join(frames)), spoken(read(7, 0x100, 1))]
    )
    parts = [answer(b"\x7e" + part + b"\x7e") for part in received.split(b"\x7e") if part]
    assert [kind for kind, _, _ in parts if kind != 0x7F] == [2, 2] and 1 <= len(parts) - 2 <= 3
    assert answer(after) == (2, 0, bytes(4))


def test_baud_rates() -> None:
    with pytest.raises(ValueError, match="921600 baud is 7.8 % off at 2 MHz, with 2 cycles for a bit"):
        identity_of(CONFIG, CHIP, 2.0, 921600, "a board")
    assert [(baud_of(clock), divisor_of(clock, baud_of(clock))) for clock in (60, 40, 50, 24)] == [
        (3_000_000, 20), (2_000_000, 20), (2_000_000, 25), (3_000_000, 8)
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"7\.3 MHz gives none of the rates"):
        baud_of(7.3)
