"""A component as readable Verilog: a file for each module, with names that need no escapes.

Amaranth makes a module of each instance. Here instances that are alike share one, which is called after the first of
them, as `npu_machine_matrix_array_element_1_1`; its head says what it is.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npukit.hw.verilog import component_fragment, rtlil_verilog

if TYPE_CHECKING:
    from amaranth.hdl import Fragment
    from amaranth.lib import wiring

__all__ = ["module_files"]

_WIDTH = 120
_MODULE = re.compile(r"^module (\\\S+)\n(.*?)^end\n", re.MULTILINE | re.DOTALL)
"""Of RTLIL: a module's name, and what is in it."""
_CELL = re.compile(r"^  cell (\\\S+) ", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^ *attribute (?!\\init ).*\n", re.MULTILINE)
"""What may differ in modules that are alike: all but the value after the configuration of an FPGA."""
_VERILOG_MODULE = re.compile(r"^module .*?^endmodule\n", re.MULTILINE | re.DOTALL)
_ESCAPED = re.compile(r"\\(\S+) ")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PASSED = re.compile(r"port\$\d+\$\d+")
"""What Amaranth calls a port for a signal that has no name in that module."""
_CONNECTED = re.compile(rf"\.\\({_PASSED.pattern}) \(([^()]+)\)")


@dataclass(frozen=True)
class _Origin:
    """What a module was made of: the class's name, and its docstring."""

    name: str
    doc: str


def module_files(component: "wiring.Component", name: str) -> dict[str, str]:
    """Verilog of a component, one module a file.

    Args:
        component: its ports are the members' paths joined by one underscore, and `clk` and `rst`.
        name: of the top module, and what the names of all others begin with.

    Returns:
        Texts by the files' names, `<module>.v`, the top module's first.

    Raises:
        ToolError: when there is no Yosys, or it fails.
    """
    from amaranth.back import rtlil

    fragment, ports = component_fragment(component)
    origins = {".".join(path): one for path, one in _origins(fragment, (name,))}
    merged, users = _merge(rtlil.convert(fragment, name, ports=ports, emit_src=False))
    modules = _without_escapes(_VERILOG_MODULE.findall(rtlil_verilog(merged, name, keep_names=False)))
    files = {
        _module_name(text): _head(origins.get(path), users[path]) + _wrapped(text) for path, text in modules.items()
    }
    assert len(files) == len(modules), "two modules of one name"
    return {f"{one}.v": files[one] for one in sorted(files, key=lambda one: (one != name, one))}


def _origins(fragment: "Fragment", path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _Origin]]:
    for one in reversed(fragment.origins or ()):
        kind = type(one)
        if kind.__module__.startswith("amaranth.hdl"):  # a `Module`, or a component with another reset
            continue
        own = kind.__module__.startswith("npukit.")
        yield path, _Origin(f"{kind.__module__}.{kind.__qualname__}", (inspect.getdoc(kind) or "") if own else "")
        break
    for part, part_name, *_ in fragment.subfragments:
        if part_name is not None:
            yield from _origins(part, (*path, part_name))


def _merge(text: str) -> tuple[str, dict[str, list[str]]]:
    """RTLIL in which modules that are alike are one; the instances that are made of each, by its name."""
    bodies = {match[1]: match[2] for match in _MODULE.finditer(text)}
    kept: dict[str, str] = {}  # the module that stands for a text
    instead: dict[str, str] = {}

    def representative(one: str) -> str:
        if one not in instead:
            body = _CELL.sub(
                lambda match: f"  cell {representative(match[1]) if match[1] in bodies else match[1]} ", bodies[one]
            )
            instead[one] = kept.setdefault(_ATTRIBUTE.sub("", body), one)
            bodies[one] = body
        return instead[one]

    users: dict[str, list[str]] = {}
    for one in bodies:
        users.setdefault(representative(one)[1:], []).append(one[1:])
    head = text[: text.index("attribute")]
    parts = [f"module \\{one}\n{bodies[chr(92) + one]}end\n" for one in users]
    return head + "\n".join(parts), users


def _identifier(name: str) -> str:
    """As a plain identifier of Verilog: `b$5` is `b_5`."""
    plain = re.sub(r"\W+", "_", name).strip("_")
    return plain if plain and not plain[0].isdigit() else f"_{plain}"


def _without_escapes(modules: Iterable[str]) -> dict[str, str]:
    """The modules by the names that they had, with plain identifiers in place of escaped ones."""
    texts = list(modules)
    words = [set(_WORD.findall(text)) for text in texts]
    places: dict[str, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        for name in sorted(set(_ESCAPED.findall(text))):
            places[name].append(index)
    names = [_module_name(text) for text in texts]
    for name in names:
        if name in places:
            places[name] = list(range(len(texts)))  # all modules are in one space of names
    signals = _passed(texts)
    plain: dict[str, str] = {}
    for name, indices in places.items():
        # a port has one name in its module and wherever that is instantiated, so it must be free in all of these
        wanted = _identifier(signals.get(name, name))
        taken = set().union(*(words[index] for index in indices))
        if wanted == name:
            wanted += "_"  # a keyword
        free, number = wanted, 2
        while free in taken:
            free, number = f"{wanted}_{number}", number + 1
        plain[name] = free
        for index in indices:
            words[index].add(free)
    return {name: _ESCAPED.sub(lambda match: plain[match[1]], text) for name, text in zip(names, texts, strict=True)}


def _module_name(text: str) -> str:
    """As it is declared, without an escape."""
    return text.split("(", 1)[0].split()[1].removeprefix("\\")


def _passed(texts: Iterable[str]) -> dict[str, str]:
    """The names of signals that Amaranth passes on as `port$...`, as far as one has a name further up."""
    above: dict[str, str] = {}
    for text in texts:
        for port, signal in _CONNECTED.findall(text):
            name = re.sub(r"\s*\[[\d:]+\]\s*$", "", signal).strip().removeprefix("\\").strip()
            if not _PASSED.fullmatch(name):
                above.setdefault(port, re.sub(r"\$\d+$", "", name))
    return {port: name for port, name in above.items() if re.fullmatch(r"[A-Za-z]\w*", name)}


def _head(origin: _Origin | None, paths: list[str]) -> str:
    """The comment above a module: its component, where it is instantiated, and what the component's docstring says."""
    lines = []
    if origin is not None:
        lines.append(origin.name)
    lines.append("Instances: " + ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else ""))
    if origin is not None and origin.doc:
        lines += ["", *origin.doc.splitlines()]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines)


def _wrapped(text: str) -> str:
    """With the list of ports, which Yosys writes as one line, on several."""
    head, rest = text.split(");", 1)
    start, ports = head.split("(", 1)
    lines, line = [f"{start.rstrip()} ("], " "
    for port in ports.split(","):
        piece = f" {port.strip()},"
        if len(line) + len(piece) > _WIDTH:
            lines.append(line)
            line = " "
        line += piece
    return "\n".join([*lines, line.removesuffix(",")]) + "\n);" + rest
