"""The simulated device at its registers: what may be read and written, and errors that stay."""

from dataclasses import replace

import numpy as np
import pytest
from npukit.driver.device import Device, DeviceError, Observable, error_text, read_counters, read_wide, write_wide
from npukit.driver.loader import LoadedProgram
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from npukit.isa.instructions import End, Instruction, Load, Store, encode
from npukit.isa.registers import COUNTERS, REGISTERS, ErrorCause, address_of
from npukit.sim.dram import DramModel
from npukit.sim.timing import simulate_timing

CONFIG = PRESETS["int8-4x4"]
START, RESET = 1, 2
DONE, ERROR = 2, 4
COPY = (
    Load(words=4, word_stride=1, signal=8),
    Store(dram=16, words=4, word_stride=1, wait=1),
    End(),
)
"""Four words (16 bytes) from the base to 64 bytes behind it."""


def device(**options) -> SimDevice:
    return SimDevice(CONFIG, **{"memory_bytes": 1 << 20, **options})


def prepare(one: SimDevice, instructions: tuple[Instruction, ...] = COPY, base: int = 8192, limit: int = 4096) -> None:
    """A program at 4096 and everything that a start needs."""
    code = b"".join(encode(instruction) for instruction in instructions)
    one.write_memory(4096, np.frombuffer(code, np.uint8))
    write_wide(one, "PROGRAM_HASH", CONFIG.hash)
    write_wide(one, "PROGRAM", 4096)
    one.write_register(address_of("PROGRAM_LENGTH"), len(instructions))
    write_wide(one, "BASE", base)
    write_wide(one, "LIMIT", limit)


def start(one: SimDevice) -> tuple[int, set[ErrorCause]]:
    """Status and errors after a start."""
    one.write_register(address_of("CONTROL"), START)
    one.wait(1.0)
    bits = one.read_register(address_of("ERROR"))
    return one.read_register(address_of("STATUS")), {cause for cause in ErrorCause if bits >> cause & 1}


def test_protocols() -> None:
    one: Device = device()
    assert isinstance(one, Observable) and one.config is CONFIG and one.memory_bytes == 1 << 20


def test_values_after_reset() -> None:
    one = device()
    for register in REGISTERS:
        if not register.name.startswith("CONFIG_HASH"):
            assert one.read_register(register.offset) == register.reset, register.name
    assert read_wide(one, "CONFIG_HASH") == CONFIG.hash
    assert one.read_register(address_of("IDENTITY")).to_bytes(4, "big") == b"NPUK"


def test_access() -> None:
    """Read-only registers keep their value, the others the last one written, in the bits that they have; a reset
    restores all."""
    one = device()
    before = {register.name: one.read_register(register.offset) for register in REGISTERS}
    for register in REGISTERS:
        if register.access != "wo":
            one.write_register(register.offset, 0xFFFFFFFF)
    for register in REGISTERS:
        expected = (1 << register.width) - 1 if register.access == "rw" else before[register.name]
        assert one.read_register(register.offset) == expected, register.name
    one.write_register(address_of("CONTROL"), RESET)
    assert {register.name: one.read_register(register.offset) for register in REGISTERS} == before


def test_unknown_registers() -> None:
    one = device()
    for offset in (1, 2, 0x7C, 0x1000, -4):
        with pytest.raises(DeviceError, match=f"there is no register at offset {offset:#x}"):
            one.read_register(offset)
        with pytest.raises(DeviceError, match=f"there is no register at offset {offset:#x}"):
            one.write_register(offset, 0)
    for value in (-1, 1 << 32):
        with pytest.raises(DeviceError, match=f"for the value {value}"):
            one.write_register(address_of("BASE_LOW"), value)


def test_wide_registers() -> None:
    one = device()
    write_wide(one, "LIMIT", 0x123456789ABCDEF0)
    assert one.read_register(address_of("LIMIT_LOW")) == 0x9ABCDEF0
    assert one.read_register(address_of("LIMIT_HIGH")) == 0x12345678
    assert read_wide(one, "LIMIT") == 0x123456789ABCDEF0


def test_memory() -> None:
    """Zero at first, what was written after that, and an end."""
    one = device()
    assert not one.read_memory((1 << 20) - 10, 10).any()
    data = np.arange(100, dtype=np.uint8)
    one.write_memory(5000, data)
    copy = one.read_memory(5000, 100)
    assert np.array_equal(copy, data)
    copy[:] = 0
    assert np.array_equal(one.read_memory(5000, 100), data), "a read is a copy"
    for address, size in ((-1, 1), (1 << 20, 1), ((1 << 20) - 3, 4)):
        message = f"bytes {address} to {address + size} are outside of the device's 1048576 bytes"
        with pytest.raises(DeviceError, match=message):
            one.read_memory(address, size)
        with pytest.raises(DeviceError, match=message):
            one.write_memory(address, np.zeros(size, np.uint8))
    one.write_memory((1 << 20) - 4, data[:4])
    assert one.read_memory(0, 1 << 20).size == 1 << 20


def test_run_and_counters() -> None:
    one = device(dram=DramModel(latency=30))
    prepare(one)
    one.write_memory(8192, np.arange(16, dtype=np.uint8))
    assert start(one) == (DONE, set())
    assert np.array_equal(one.read_memory(8192 + 64, 16), np.arange(16))
    expected = simulate_timing(CONFIG, COPY, DramModel(latency=30)).counters
    assert read_counters(one) == expected and set(expected) == {name for name, _ in COUNTERS}
    assert error_text(one) is None
    assert start(one) == (DONE, set()), "a program may run again"


def test_timing_alone() -> None:
    one = device(compute=False)
    prepare(one)
    one.write_memory(8192, np.arange(16, dtype=np.uint8))
    assert start(one) == (DONE, set())
    assert not one.read_memory(8192 + 64, 16).any()
    assert read_counters(one) == simulate_timing(CONFIG, COPY).counters


# ---- errors


def illegal(one: SimDevice) -> None:
    one.write_memory(4096 + 32, np.full(1, 7, np.uint8))  # opcode 7


def reserved_bit(one: SimDevice) -> None:
    one.write_memory(4096 + 64 + 31, np.full(1, 0x80, np.uint8))


def hash_of_another(one: SimDevice) -> None:
    write_wide(one, "PROGRAM_HASH", PRESETS["int8-8x8"].hash)


def no_end(one: SimDevice) -> None:
    one.write_register(address_of("PROGRAM_LENGTH"), 2)


def early_end(one: SimDevice) -> None:
    one.write_memory(4096, np.frombuffer(encode(End()), np.uint8))


def no_instructions(one: SimDevice) -> None:
    one.write_register(address_of("PROGRAM_LENGTH"), 0)


def small_limit(one: SimDevice) -> None:
    write_wide(one, "LIMIT", 64)


def odd_base(one: SimDevice) -> None:
    write_wide(one, "BASE", 8192 + 64)


def odd_program(one: SimDevice) -> None:
    write_wide(one, "PROGRAM", 4096 + 32)


def outside_of_a_bank(one: SimDevice) -> None:
    code = encode(Load(words=9, word_stride=1, offset=CONFIG.act_depth - 8))
    one.write_memory(4096, np.frombuffer(code, np.uint8))


def program_beyond_the_memory(one: SimDevice) -> None:
    write_wide(one, "PROGRAM", 1 << 20)


def operands_beyond_the_memory(one: SimDevice) -> None:
    write_wide(one, "BASE", 1 << 20)


def result_beyond_the_memory(one: SimDevice) -> None:
    write_wide(one, "BASE", (1 << 20) - 4096)
    write_wide(one, "LIMIT", 8192)
    code = encode(replace(COPY[1], dram=4096 // CONFIG.word_bytes))
    one.write_memory(4096 + 32, np.frombuffer(code, np.uint8))


@pytest.mark.parametrize(
    ("plant", "cause", "index"),
    [
        (illegal, ErrorCause.ILLEGAL_INSTRUCTION, 1),
        (reserved_bit, ErrorCause.ILLEGAL_INSTRUCTION, 2),
        (hash_of_another, ErrorCause.CONFIGURATION, 0),
        (no_end, ErrorCause.MISSING_END, 1),
        (early_end, ErrorCause.MISSING_END, 0),
        (no_instructions, ErrorCause.MISSING_END, 0),
        (small_limit, ErrorCause.DRAM_ADDRESS, 1),
        (odd_base, ErrorCause.DRAM_ADDRESS, 0),
        (odd_program, ErrorCause.DRAM_ADDRESS, 0),
        (outside_of_a_bank, ErrorCause.ON_CHIP_ADDRESS, 0),
        (program_beyond_the_memory, ErrorCause.READ_RESPONSE, 0),
        (operands_beyond_the_memory, ErrorCause.READ_RESPONSE, 0),
        (result_beyond_the_memory, ErrorCause.WRITE_RESPONSE, 1),
    ],
)
def test_errors_stay_until_reset(plant, cause, index) -> None:
    one = device()
    prepare(one)
    plant(one)
    assert start(one) == (DONE | ERROR, {cause})
    assert one.read_register(address_of("ERROR_INDEX")) == index
    assert error_text(one) == f"instruction {index}: {cause.doc}"

    # a good program does not start, and writing the register clears nothing
    prepare(one)
    one.write_memory(8192, np.arange(16, dtype=np.uint8))
    one.write_register(address_of("ERROR"), 0)
    assert start(one) == (DONE | ERROR, {cause})
    assert not one.read_memory(8192 + 64, 16).any()

    one.write_register(address_of("CONTROL"), RESET)
    assert one.read_register(address_of("STATUS")) == 0 and error_text(one) is None
    prepare(one)
    assert start(one) == (DONE, set())
    assert np.array_equal(one.read_memory(8192 + 64, 16), np.arange(16))


def test_reset_and_start_in_one_write() -> None:
    one = device()
    prepare(one)
    illegal(one)
    start(one)
    one.write_register(address_of("CONTROL"), RESET | START)
    assert one.read_register(address_of("STATUS")) == 0, "a write of both bits only resets"
    assert error_text(one) is None


def test_a_program_that_never_ends() -> None:
    one = device()
    prepare(one, (Load(words=1, word_stride=1, wait=8), End()))
    with pytest.raises(DeviceError, match=r"the program never ends: instruction 0 \(LOAD\) waits for a token"):
        start(one)


@pytest.mark.parametrize("plant", [illegal, early_end, outside_of_a_bank])
def test_the_loaders_message(graphs, plant) -> None:
    """A program that is damaged on the device names itself, the instruction and the cause."""
    from npukit.compiler.pipeline import compile_model

    graph = graphs.Graph()
    x = graph.input((1, 4, 6, 6), integer=True, name="image")
    graph.output(graph.conv(x, 4), integer=True)
    (program,) = compile_model(graph.model(), CONFIG).programs
    one = SimDevice(CONFIG)
    loaded = LoadedProgram(one, program, 0)
    shift = loaded.code_address - 4096
    write = one.write_memory
    one.write_memory = lambda address, data: write(address + shift, data)  # type: ignore[method-assign]
    plant(one)
    one.write_memory = write  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match=r"^npukit_0 stopped at instruction \d+: "):
        loaded.run(graphs.inputs_of(graph.model()))


def test_other_configurations() -> None:
    assert read_wide(SimDevice(replace(CONFIG, act_banks=3)), "CONFIG_HASH") != CONFIG.hash
