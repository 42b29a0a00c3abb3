"""What runs where and where the cycles go, as text and as JSON objects: of commands and of reports."""

from collections.abc import Collection, Sequence
from typing import Any

from npukit.compiler.frontends.onnx.offload import Offload, Reason
from npukit.profiling.layers import Profile

__all__ = [
    "aligned",
    "boundary_text",
    "layer_table",
    "offload_json",
    "offload_text",
    "printable",
    "shape_text",
    "thousands",
]


def thousands(value: int) -> str:
    """1234567 as 1 234 567."""
    return f"{value:,}".replace(",", " ")


def printable(text: str) -> str:
    """Without characters that a terminal would obey: names come from files."""
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def encodable(text: str) -> str:
    """A file's name as UTF-8 can hold it: bytes that are none stand as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def shape_text(shape: Sequence[int]) -> str:
    """(1, 3, 8, 8) as 1x3x8x8."""
    return "x".join(map(str, shape))


def offload_json(offload: Offload, profile: Profile | None = None) -> dict[str, Any]:
    """Nodes and MACs taken over, and a reason for each node that stays; of a run, the bytes that crossed."""
    result: dict[str, Any] = {
        "nodes": offload.nodes,
        "nodes_total": offload.nodes_total,
        "macs": offload.macs,
        "macs_total": offload.macs_total,
        "macs_unknown": offload.macs_unknown,
        "suggestion": offload.suggestion,
        "reasons": [vars(reason) for reason in offload.reasons],
    }
    if profile is not None:
        result["boundary_bytes"], result["gpu_bytes"] = profile.boundary.moved, profile.transfers.moved
    return result


def boundary_text(profile: Profile) -> str:
    """What it cost to cut the graph, and what the rest took."""
    text = (
        f"{thousands(profile.boundary.moved)} bytes to and from the accelerator, laid out in "
        f"{1e3 * profile.boundary.seconds:.1f} ms; the host's part in "
        f"{1e3 * profile.seconds['fallback']:.1f} ms"
    )
    if profile.transfers.moved:
        text += (
            f", of which {1e3 * profile.transfers.seconds:.1f} ms for {thousands(profile.transfers.moved)} bytes to "
            "and from the GPU"
        )
    return text


def offload_text(offload: Offload) -> str:
    """The same as text, where nodes that stay for the same reason are one line, those with the most MACs first."""
    share = 100 * offload.macs / offload.macs_total if offload.macs_total else 0.0
    first = f"on the accelerator: {offload.nodes} of {offload.nodes_total} nodes, "
    first += f"{thousands(offload.macs)} of {thousands(offload.macs_total)} MACs ({share:.1f} %)"
    if offload.macs_unknown:
        first += f"; those of {offload.macs_unknown} node(s) are not known"
    lines = [first]
    if not offload.nodes:
        lines.append("nothing runs on the accelerator" + (f": {offload.suggestion}" if offload.suggestion else ""))
    elif offload.suggestion:
        lines.append(f"no products run on the accelerator: {offload.suggestion}")
    lines += [_reason_text(alike) for alike in offload.grouped()]
    return "\n".join(lines)


_NAMED = 3


def _reason_text(alike: Sequence[Reason]) -> str:
    """Why nodes stay; of several, the first one's reason and some of their names."""
    first = alike[0]
    macs = sum(one.macs or 0 for one in alike)
    text = f"  stays: {first.op} {first.node}: {first.reason}"
    if macs:
        text += f" ({thousands(macs)} MACs)" if len(alike) == 1 else f" ({thousands(macs)} MACs with those below)"
    if len(alike) > 1:
        names = ", ".join(one.node for one in alike[1 : 1 + _NAMED])
        others = f" and {len(alike) - 1 - _NAMED} more" if len(alike) > 1 + _NAMED else ""
        text += f"\n    and likewise {len(alike) - 1} x {first.op}: {names}{others}"
    return text


def layer_table(profile: Profile) -> str:
    """One line per layer, and the total."""
    header = ("node", "operator", "input", "output", "MACs", "cycles", "util %", "bound by")
    rows = [
        (
            layer.node,
            layer.op,
            shape_text(layer.inputs[0]),
            shape_text(layer.output),
            thousands(layer.macs),
            thousands(layer.cycles),
            f"{100 * layer.utilization:.1f}",
            layer.bound,
        )
        for layer in profile.layers
    ]
    rows.append(
        (
            "total", "", "", "", thousands(profile.macs), thousands(profile.cycles),
            f"{100 * profile.utilization:.1f}", "",
        )
    )  # fmt: skip
    lines = aligned([header, *rows], {4, 5, 6})
    lines.insert(-1, lines[1])
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """Lines of a table, with a rule below the first row; the columns `right` are aligned there."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]]
