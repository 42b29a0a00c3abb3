"""Tables and JSON objects that commands print."""

from typing import Any

from npukit.cli.common import shape_text, thousands
from npukit.compiler.frontends.onnx.artifact import Offload
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.profiling.layers import Profile

__all__ = ["layer_table", "offload_json", "offload_text"]


def offload_json(partition: Partition | Offload, boundary_bytes: int | None = None) -> dict[str, Any]:
    """Nodes and MACs taken over, and a reason for each node that stays."""
    result: dict[str, Any] = {
        "nodes": partition.nodes,
        "nodes_total": partition.nodes_total,
        "macs": partition.macs,
        "macs_total": partition.macs_total,
        "reasons": [vars(reason) for reason in partition.reasons],
    }
    if boundary_bytes is not None:
        result["boundary_bytes"] = boundary_bytes
    return result


def offload_text(partition: Partition | Offload) -> str:
    """The same as text."""
    share = 100 * partition.macs / partition.macs_total if partition.macs_total else 0.0
    lines = [
        (
            f"on the accelerator: {partition.nodes} of {partition.nodes_total} nodes, "
            f"{thousands(partition.macs)} of {thousands(partition.macs_total)} MACs ({share:.1f} %)"
        )
    ]
    lines += [f"  stays: {reason.op} {reason.node}: {reason.reason}" for reason in partition.reasons]
    return "\n".join(lines)


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
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    right = {4, 5, 6}

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    rule = "-" * len(line(tuple("x" * width for width in widths)))
    return "\n".join([line(header), rule, *(line(row) for row in rows[:-1]), rule, line(rows[-1])])
