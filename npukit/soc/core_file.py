"""The FuseSoC core file (CAPI2) of a package."""

import json
from collections.abc import Sequence

from npukit.hw.verilog import MODULE

__all__ = ["core_file", "core_name"]

_TESTS = "test_npu"


def core_name(name: str, version: str) -> str:
    """Vendor, library, name and version, as FuseSoC writes them."""
    return f"npukit:npu:{name}:{version}"


def core_file(
    name: str, version: str, description: str, sources: Sequence[str], waivers: str, testbench: Sequence[str]
) -> str:
    """The core file.

    Args:
        name: of the configuration.
        version: of the kit.
        description: one line.
        sources: paths of the Verilog.
        waivers: path of Verilator's waivers.
        testbench: paths of the files below `tb/`, which cocotb finds in the folder in which the simulation runs.
    """
    verilog = "".join(f"      - {path}\n" for path in sources)
    copies = "".join(
        f"      - {path}: {{file_type: user, copyto: {json.dumps(path.removeprefix('tb/'))}}}\n" for path in testbench
    )
    return f"""\
CAPI=2:
name: {core_name(name, version)}
description: {json.dumps(description)}

filesets:
  rtl:
    files:
{verilog}    file_type: verilogSource-2005
  waivers:
    files:
      - {waivers}
    file_type: vlt
  tb:
    files:
{copies}
targets:
  default: &default
    filesets: [rtl]
    toplevel: {MODULE}

  lint:
    <<: *default
    description: Verilator's lint, with all warnings but the waived ones
    filesets: [waivers, rtl]
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall]

  sim:
    <<: *default
    description: The testbench, with cocotb in Verilator
    filesets: [waivers, rtl, tb]
    flow: sim
    flow_options:
      tool: verilator
      cocotb_module: {_TESTS}
      verilator_options: [--timescale, 1ns/1ps, --output-split, "20000"]
"""
