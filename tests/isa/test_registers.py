"""The register map."""

import pytest
from npukit.isa.instructions import ENGINES
from npukit.isa.registers import COUNTERS, REGISTERS, ErrorCause, address_of


def test_registers_are_aligned_and_apart() -> None:
    offsets = [register.offset for register in REGISTERS]
    assert all(offset % 4 == 0 and 0 <= offset < 4096 for offset in offsets)
    assert offsets == sorted(set(offsets))
    names = [register.name for register in REGISTERS]
    assert len(set(names)) == len(names)


def test_registers_are_described() -> None:
    for register in REGISTERS:
        assert register.access in ("ro", "rw", "wo", "w1c")
        assert 0 <= register.reset < 1 << 32
        assert register.doc
        assert address_of(register.name) == register.offset


def test_halves_of_a_quantity_are_neighbours() -> None:
    names = {register.name for register in REGISTERS}
    for name in names:
        if name.endswith("_LOW"):
            high = name.removesuffix("LOW") + "HIGH"
            assert high in names
            assert address_of(high) == address_of(name) + 4


def test_identity_is_ascii() -> None:
    identity = next(register for register in REGISTERS if register.name == "IDENTITY")
    assert identity.offset == 0
    assert identity.reset.to_bytes(4, "big") == b"NPUK"


def test_every_counter_has_its_registers_in_order() -> None:
    addresses = [address_of(f"{name.upper()}_LOW") for name, _ in COUNTERS]
    assert addresses == [addresses[0] + 8 * index for index in range(len(COUNTERS))]
    assert addresses[0] > address_of("LIMIT_HIGH")


def test_every_engine_is_observed() -> None:
    names = [name for name, _ in COUNTERS]
    assert len(set(names)) == len(names)
    for engine in ENGINES:
        for cause in ("busy", "token", "port", "dram"):
            assert f"{engine.name.lower()}_{cause}" in names
    assert names[0] == "cycles"


def test_error_causes_are_bits_of_one_register() -> None:
    assert [cause.value for cause in ErrorCause] == list(range(len(ErrorCause)))
    assert all(cause.doc for cause in ErrorCause) and len(ErrorCause) <= 32


def test_unknown_register() -> None:
    with pytest.raises(KeyError, match="SPEED"):
        address_of("SPEED")


def test_what_a_write_leaves() -> None:
    """Of a register with bits, these alone; ones that are written clear those of `w1c`."""
    enable, status = (
        next(one for one in REGISTERS if one.name == f"INTERRUPT_{name}") for name in ("ENABLE", "STATUS")
    )
    base = next(one for one in REGISTERS if one.name == "BASE_LOW")
    assert [enable.written(1, value) for value in (0, 2, 0xFFFFFFFF)] == [0, 2, 3]
    assert [status.written(3, value) for value in (0, 1, 2, 0xFFFFFFFF)] == [3, 2, 1, 0]
    assert base.written(5, 0xFFFFF000) == 0xFFFFF000 and base.width == 32 and enable.width == status.width == 2
