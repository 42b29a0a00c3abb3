"""What a netlist needs so that nextpnr's router comes to an end.

The router takes a whole net out again whenever another one needs any of its wires. So one net with thousands of ends,
all over the chip, keeps everything else from settling.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npukit.fpga.boards import Device
from npukit.fpga.floorplan import place_blocks

__all__ = ["prepare_netlist"]

_MANY = 1000
"""Flip-flops from which on a reset gets a global net; the chip has 16 of those, and clocks need a few."""


def prepare_netlist(source: Path, target: Path, device: Device | None = None) -> None:
    """Rewrite a netlist for ECP5 (Yosys' JSON): resets of very many flip-flops on global nets, where nextpnr puts
    clocks alone; no net of zeros to the addresses of small memories; on a device, places for multipliers and memories.
    """
    design = json.loads(source.read_text(encoding="utf-8"))
    for module in design.get("modules", {}).values():
        cells: dict[str, Any] = module["cells"]
        _promote_resets(cells)
        _tie_addresses(cells)
        if device is not None:
            place_blocks(cells, device)
    target.write_text(json.dumps(design), encoding="utf-8")


def _of_type(cells: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    return (cell for cell in cells.values() if cell["type"] == kind)


def _promote_resets(cells: dict[str, Any]) -> None:
    """Through a clock buffer each."""
    flip_flops = [cell["connections"] for cell in _of_type(cells, "TRELLIS_FF")]
    ends = Counter(pins["LSR"][0] for pins in flip_flops if pins.get("LSR"))
    used = (bit for cell in cells.values() for bits in cell["connections"].values() for bit in bits)
    unused = 1 + max((bit for bit in used if isinstance(bit, int)), default=0)
    wide = [bit for bit, count in ends.items() if isinstance(bit, int) and count >= _MANY]
    for buffered, bit in enumerate(wide, unused):
        for pins in flip_flops:
            if pins.get("LSR") == [bit]:
                pins["LSR"] = [buffered]
        cells[f"reset_buffer_{bit}"] = {
            "type": "DCCA",
            "parameters": {},
            "attributes": {},
            "port_directions": {"CLKI": "input", "CE": "input", "CLKO": "output"},
            "connections": {"CLKI": [bit], "CE": ["1"], "CLKO": [buffered]},
        }


def _tie_addresses(cells: dict[str, Any]) -> None:
    """A memory of 8 words or less uses half of its cell; its topmost address bit follows the next one instead of 0."""
    for cell in _of_type(cells, "TRELLIS_DPR16X4"):
        addresses = [cell["connections"][pins] for pins in ("RAD", "WAD")]
        if all(pins[3] == "0" for pins in addresses):
            for pins in addresses:
                pins[3] = pins[2]
            half = cell["parameters"]["INITVAL"][32:]
            cell["parameters"]["INITVAL"] = half + half
