"""The FuseSoC core file (CAPI2) of a package."""

import json
from collections.abc import Sequence

from npukit.hw.verilog import MODULE

__all__ = ["core_file", "core_name"]


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
        testbench: paths of the files below `tb/`, which go to the folder in which tools run, with the Verilog beside
            them.
    """
    rtl = "".join(f"      - {path}\n" for path in sources)
    copies = "".join(
        f"      - {path}: {{file_type: user, copyto: {json.dumps(path)}}}\n" for path in (*sources, waivers, *testbench)
    )
    return f"""\
CAPI=2:
name: {core_name(name, version)}
description: {json.dumps(description)}

filesets:
  rtl:
    files:
{rtl}    file_type: verilogSource-2005
  waivers:
    files:
      - {waivers}
    file_type: vlt
  tb:
    files:
{copies}
scripts:
  testbench:
    cmd: [python3, tb/run.py]

targets:
  default: &default
    filesets: [rtl]
    toplevel: {MODULE}

  lint: &lint
    <<: *default
    description: Verilator's lint, with all warnings but the waived ones
    filesets: [waivers, rtl]
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall]

  # FuseSoC's own flow for cocotb knows none from 2.1 on, and passes without a test; cocotb's runner builds the model
  sim:
    <<: *lint
    description: Lint, then the testbench, with cocotb in Verilator
    filesets: [waivers, rtl, tb]
    hooks:
      post_build: [testbench]
"""
