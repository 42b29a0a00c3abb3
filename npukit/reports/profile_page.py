"""A profile as a page: what a model costs, where it goes, and what would help."""

from npukit.profiling.text import shape_text, thousands
from npukit.profiling.timed import TimedModel
from npukit.reports.charts import memory_map, roofline, timeline, traffic
from npukit.reports.page import Cell, cards, chart, note, page, section, table

__all__ = ["profile_page"]


def profile_page(timed: TimedModel) -> str:
    """One HTML file.

    Raises:
        ToolError: packages of the extra `profile` are not installed.
    """
    parts = [_summary(timed)]
    if timed.advice:
        parts.append(_advice(timed))
    if timed.profile.layers:
        parts += [
            _layers(timed),
            section(
                "Roofline",
                note(
                    "A point for each layer with multiply-accumulates, as large as it has cycles. Below the slope the "
                    "DRAM is the limit, below the flat part the array."
                ),
                chart("roofline", roofline(timed.profile).to_dict()),
            ),
        ]
    if timed.runs:
        parts += [
            section(
                "Engines over time",
                note("Drag to move, turn the wheel to zoom. The lane of layers has the layer that owns each cycle."),
                chart("timeline", timeline(timed).to_dict()),
            ),
            section("DRAM traffic over time", chart("traffic", traffic(timed).to_dict())),
            section(
                "On-chip memory over time",
                note("A word is in use from when it is written until it is read for the last time."),
                *(chart(f"memory-{memory.name}", one.to_dict()) for memory, one in memory_map(timed).items()),
            ),
        ]
    parts.append(_offload(timed))
    return page(f"{timed.name} on {timed.label}", parts, timed.to_json())


def _summary(timed: TimedModel) -> str:
    profile, clock, boundary, config = timed.profile, timed.clock, timed.boundary, timed.config
    milliseconds = clock.milliseconds(profile.cycles)
    moved = sum(layer.read_bytes + layer.write_bytes for layer in profile.layers)
    entries = [
        (thousands(profile.cycles), "cycles on the accelerator"),
        (f"{milliseconds:.4g} ms", f"at {clock.megahertz:g} MHz ({clock.source})"),
        (f"{1e3 / milliseconds:.4g}" if milliseconds else "-", "inferences a second, accelerator alone"),
        (f"{100 * profile.utilization:.1f} %", f"of the {config.rows} by {config.array} array's MACs"),
        (thousands(profile.macs), "MACs on the accelerator"),
        (f"{moved / 1e6:.3g} MB", "DRAM traffic"),
        (f"{timed.energy.total / 1e6:.4g} uJ", "energy of arithmetic, memories and DRAM (modelled)"),
        (f"{boundary.transfer_milliseconds:.3g} ms", f"transfers of {thousands(boundary.bytes)} bytes (modelled)"),
        (f"{boundary.host_milliseconds:.3g} ms", f"{thousands(boundary.host_macs)} MACs on the host (modelled)"),
    ]
    machine = (
        f"{config.rows} by {config.array} {config.dtype}, {config.on_chip_bytes / 1024:g} KiB on chip, "
        f"{config.bus_bytes} bytes a cycle. Cycles are simulated. Transfers and the host's part are no measurement: "
        f"they assume {boundary.host.megabytes:g} MB and {boundary.host.gigamacs:g} * 10^9 MACs a second. Energy is "
        "no measurement either: operations and accesses are counted, and multiplied with published figures for 45 nm."
    )
    parts = [cards(entries), note(machine)]
    if not timed.runs:
        parts.insert(0, note("Nothing of this model runs on the accelerator; the reasons are below."))
    return section("Summary", *parts)


def _advice(timed: TimedModel) -> str:
    rows = []
    for one in timed.advice:
        gain = one.cycles if one.measured is None else one.measured
        share = 100 * gain / timed.profile.cycles if timed.profile.cycles else 0.0
        known = gain or one.changes
        rows.append(
            [
                Cell(one.title),
                Cell(one.why),
                Cell.number(gain, f"{thousands(gain)} ({share:.1f} %)" if known else "-", "gain" if gain > 0 else ""),
                Cell("estimated" if one.measured is None else "simulated"),
                Cell(", ".join(one.layers)),
                Cell(one.options),
            ]
        )
    heads = ["change", "because", "cycles saved", "how known", "layers that gain most", "to try it"]
    return section(
        "What would help",
        note(
            "The greatest gain first. Estimates shorten what the busiest engine of each layer has to do, and leave out "
            "that tiles change; npukit profile --measure-advice compiles and simulates each change."
        ),
        table("advice", heads, rows),
    )


def _layers(timed: TimedModel) -> str:
    heads = ["layer", "operator", "input", "output", "MACs", "cycles", "share", "at work", "utilisation", "bound by"]
    heads += ["array", "VECTOR", "bus", "bytes read", "of these weights", "bytes written", "energy, nJ"]
    rows = [
        [
            Cell(layer.node), Cell(layer.op), Cell(shape_text(layer.inputs[0])), Cell(shape_text(layer.output)),
            Cell.number(layer.macs), Cell.number(layer.cycles),
            Cell.number(layer.cycles, f"{100 * layer.cycles / max(1, timed.profile.cycles):.1f} %"),
            Cell.number(layer.elapsed), Cell.number(layer.utilization, f"{100 * layer.utilization:.1f} %"),
            Cell(layer.bound), Cell.number(layer.array), Cell.number(layer.vector), Cell.number(layer.dram),
            Cell.number(layer.read_bytes), Cell.number(layer.weight_bytes), Cell.number(layer.write_bytes),
            Cell.number(energy.total, thousands(round(energy.total / 1e3))),
        ]
        for layer, energy in zip(timed.profile.layers, timed.energies, strict=True)
    ]  # fmt: skip
    return section(
        "Layers",
        note(
            "Cycles add up to the program's: each belongs to one layer. A layer is at work beside others as well, "
            "which its cycles at work count. Array, VECTOR and bus: cycles that each would take by itself."
        ),
        table("layers", heads, rows, filtered=True),
    )


def _offload(timed: TimedModel) -> str:
    offload = timed.offload
    share = 100 * offload.macs / offload.macs_total if offload.macs_total else 0.0
    first = (
        f"{offload.nodes} of {offload.nodes_total} nodes and {thousands(offload.macs)} of "
        f"{thousands(offload.macs_total)} MACs ({share:.1f} %) are on the accelerator."
    )
    if offload.suggestion:
        first += f" {offload.suggestion}"
    rows = [
        [
            Cell(alike[0].op),
            Cell.number(len(alike)),
            Cell.number(sum(one.macs or 0 for one in alike)),
            Cell(alike[0].reason),
            Cell(", ".join(one.node for one in alike)),
        ]
        for alike in offload.grouped()
    ]
    heads = ["operator", "nodes", "MACs", "why it stays", "names"]
    return section("Host", note(first), *([table("offload", heads, rows)] if rows else []))
