"""Charts of profiles, with Altair: for pages, and for notebooks, which show them as they are."""

from collections.abc import Sequence
from math import log2
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from npukit.hw.toolchain import needs
from npukit.isa.instructions import ENGINES, Memory
from npukit.profiling.activity import activity
from npukit.profiling.layers import Profile
from npukit.profiling.occupancy import Occupancy, occupancy
from npukit.profiling.spans import LAYERS, spans

if TYPE_CHECKING:
    from npukit.profiling.difference import ProfileDifference
    from npukit.profiling.timed import TimedModel

__all__ = ["elements_map", "gains", "memory_map", "roofline", "stacked", "svg", "timeline", "trade_off", "traffic"]

_WIDTH = 800
_LABELLED = 12
"""Points of the roofline that have their layer's name beside them: those with the most cycles."""
_NEAR = 3
"""Points in the same part of this size of a power of two have one label."""
_CHANGED = 30
"""Layers of two profiles in the chart of what changed."""
_WINDOWS = 400
"""For which traffic is told."""
_MAP_WINDOWS, _SLICES = 200, 24
"""Of a memory's map, across and up."""


def _data(rows: list[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=rows)


def svg(chart: alt.TopLevelMixin) -> str:
    """A chart as a picture.

    Raises:
        ToolError: the package `vl-convert-python` is not installed.
    """
    with needs("profile", "a plot"):
        from vl_convert import vegalite_to_svg
    return vegalite_to_svg(chart.to_json())


def stacked(charts: Sequence[alt.Chart]) -> alt.VConcatChart:
    """Charts one below the other."""
    return alt.vconcat(*charts)


def roofline(profile: Profile) -> alt.LayerChart | alt.FacetChart:
    """MACs a cycle over MACs a byte of the busier DRAM channel, both logarithmic, and what array and DRAM allow.

    Layers without MACs are left out. The cycles are those in which the layer was at work, beside others or not, so
    that no point lies above the roof.
    """
    config, rate = profile.config, profile.dram.bytes_per_cycle(profile.config)
    rows = [
        {
            "node": layer.node,
            "op": layer.op,
            "intensity": layer.macs / max(1, profile.dram.traffic(layer.read_bytes, layer.write_bytes)),
            "speed": layer.macs / layer.elapsed,
            "cycles": layer.cycles,
            "bound": layer.bound,
        }
        for layer in profile.layers
        if layer.macs and layer.elapsed
    ]
    roofs = {"array": config.array_macs}
    if profile.peak > config.array_macs:
        roofs["VECTOR"] = profile.peak
    peak = max(roofs.values())
    across = [row["intensity"] for row in rows] + [peak / rate]
    low, high = min(across) / 2, max(across) * 2
    roof = [
        {"of": name, "intensity": x, "speed": min(most, x * rate)}
        for name, most in roofs.items() for x in (low, most / rate, high)
    ]  # fmt: skip
    x = alt.X("intensity:Q", scale=alt.Scale(type="log"), title="MACs a byte of the busier DRAM channel")
    y = alt.Y("speed:Q", scale=alt.Scale(type="log"), title="MACs a cycle")
    low_speed = min([row["speed"] for row in rows] + [low * rate]) / 1.5
    y = y.scale(type="log", domain=[low_speed, 2.5 * peak], nice=False)
    line = alt.Chart(_data(roof)).mark_line(color="#a00").encode(x=x, y=y, detail="of:N")
    limits = [{"intensity": high, "speed": most, "text": f"{name}: {most} MACs and {rate:g} bytes a cycle"}
              for name, most in roofs.items()]  # fmt: skip
    name = alt.Chart(_data(limits)).mark_text(align="right", dy=12, color="#a00")
    points = alt.Chart(_data(rows)).mark_circle(opacity=0.7).encode(
        x=x, y=y, size=alt.Size("cycles:Q", legend=None), color=_by_operator(profile),
        tooltip=["node:N", "op:N", "cycles:Q", "bound:N", alt.Tooltip("speed:Q", format=".1f", title="MACs a cycle"),
                 alt.Tooltip("intensity:Q", format=".1f", title="MACs a byte")],
    )  # fmt: skip
    labels = alt.Chart(_data(_labels(rows))).mark_text(align="left", dx=6, dy=-6, fontSize=9, angle=320)
    labels = labels.encode(x=x, y=y, text="text:N")
    name = name.encode(x=x, y=y, text="text:N")
    return alt.layer(line, name, points, labels).properties(width=_WIDTH, height=420).interactive()


def _labels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The places of the layers with the most cycles, with the name of one that lies there and the number of others."""
    places: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: -row["cycles"]):
        place = round(_NEAR * log2(row["intensity"])), round(_NEAR * log2(row["speed"]))
        places.setdefault(place, []).append(row)
    return [
        {**alike[0], "text": alike[0]["node"] + (f" and {len(alike) - 1} more" if len(alike) > 1 else "")}
        for alike in list(places.values())[:_LABELLED]
    ]


def _by_operator(profile: Profile) -> alt.Color:
    """The same colours in all charts of a model."""
    operators = sorted({layer.op for layer in profile.layers})
    return alt.Color("op:N", title="operator", scale=alt.Scale(domain=operators))


def timeline(timed: "TimedModel") -> alt.Chart:
    """When each engine was at work, and for which layer; the x axis is moved and widened by mouse."""
    layers = timed.profile.layers
    rows = [
        {
            "lane": span.lane,
            "start": span.start,
            "end": span.end,
            "node": layers[span.layer].node if span.layer >= 0 else "",
            "op": layers[span.layer].op if span.layer >= 0 else "",
            "instructions": span.instructions,
        }
        for span in spans(timed.runs)
    ]
    lanes = [LAYERS, *(engine.name for engine in ENGINES)]
    return (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("start:Q", title="cycle", scale=alt.Scale(domain=[0, max(1, timed.profile.cycles)], nice=False)),
            x2="end:Q",
            y=alt.Y("lane:N", sort=lanes, title=None),
            color=_by_operator(timed.profile),
            tooltip=["lane:N", "node:N", "op:N", "start:Q", "end:Q", "instructions:Q"],
        )
        .properties(width=_WIDTH, height=180)
        .interactive(bind_y=False)
    )


def traffic(timed: "TimedModel") -> alt.LayerChart | alt.FacetChart:
    """Bytes a cycle to and from DRAM over time, with what it lets through in one direction."""
    rows, begin = [], 0
    total = max(1, timed.profile.cycles)
    for program, schedule in timed.runs:
        done = activity(program, schedule, max(1, round(_WINDOWS * schedule.cycles / total)))
        for start, end, read, written in zip(done.edges[:-1], done.edges[1:], done.read, done.written, strict=True):
            for way, amount in (("read", read), ("written", written)):
                rows.append(
                    {
                        "start": begin + int(start),
                        "end": begin + int(end),
                        "way": way,
                        "rate": round(float(amount / (end - start)), 3),
                    }
                )
        begin += schedule.cycles
    rate = timed.dram.bytes_per_cycle(timed.config)
    bars = alt.Chart(_data(rows)).mark_area(interpolate="step-after").encode(
        x=alt.X("start:Q", title="cycle", scale=alt.Scale(domain=[0, total], nice=False)),
        y=alt.Y("rate:Q", title="bytes a cycle", stack="zero"),
        color=alt.Color("way:N", title=None),
        tooltip=["way:N", "start:Q", "end:Q", "rate:Q"],
    )  # fmt: skip
    limit = alt.Chart(_data([{"rate": rate}])).mark_rule(color="#a00", strokeDash=[4, 4]).encode(y="rate:Q")
    return alt.layer(bars, limit).properties(width=_WIDTH, height=160)


def gains(found: "ProfileDifference") -> alt.Chart:
    """Cycles that layers took more or fewer, of those that changed most."""
    rows = [
        {"node": one.layer.node, "op": one.layer.op, "cycles": one.cycles, "bound": one.bound,
         "row": number}
        for number, one in enumerate(found.layers[:_CHANGED]) if one.cycles
    ]  # fmt: skip
    return alt.Chart(_data(rows)).mark_bar().encode(
        x=alt.X("cycles:Q", title="cycles"),
        y=alt.Y("row:O", title=None, axis=None),
        color=alt.condition("datum.cycles < 0", alt.value("#06700d"), alt.value("#a00")),
        tooltip=["node:N", "op:N", "cycles:Q", "bound:N"],
    ).properties(width=_WIDTH, height=18 * max(1, len(rows)))  # fmt: skip


def elements_map(cells: list[dict[str, Any]]) -> alt.Chart:
    """A plane of a tensor, with `row`, `column`, `state`, `expected` and `actual` of each element."""
    states = ["differs", "differs, in the tile", "differs, outside", "equal", "equal, in the tile", "equal, outside"]
    colours = ["#a00", "#a00", "#e08a00", "#b9d3ee", "#b9d3ee", "#e4e4e4"]
    return alt.Chart(_data(cells)).mark_rect(stroke="white", strokeWidth=0.5).encode(
        x=alt.X("column:O", title="column"),
        y=alt.Y("row:O", title="row"),
        color=alt.Color("state:N", title=None, scale=alt.Scale(domain=states, range=colours)),
        tooltip=["row:O", "column:O", "state:N", "expected:N", "actual:N"],
    ).properties(width=alt.Step(14), height=alt.Step(14))  # fmt: skip


def trade_off(rows: list[dict[str, Any]], across: str, up: str) -> alt.LayerChart | alt.FacetChart:
    """Machines by two objectives; `kind` is `front` or `other`, and presets have their names beside them."""
    x = alt.X(f"{across}:Q", scale=alt.Scale(type="log", nice=False, padding=12))
    y = alt.Y(f"{up}:Q", scale=alt.Scale(type="log", nice=False, padding=12))
    points = alt.Chart(_data(rows)).mark_circle(size=70, opacity=0.8).encode(
        x=x, y=y,
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=["front", "other"], range=["#a00", "#9ab"])),
        tooltip=["trial:Q", "machine:N", "preset:N", f"{across}:Q", f"{up}:Q"],
    )  # fmt: skip
    labels = alt.Chart(_data([row for row in rows if row["preset"]])).mark_text(align="left", dx=8, fontSize=10)
    return (
        alt.layer(points, labels.encode(x=x, y=y, text="preset:N")).properties(width=_WIDTH, height=320).interactive()
    )


def memory_map(timed: "TimedModel") -> dict[Memory, alt.Chart]:
    """What of each on-chip memory is in use over time: addresses up, cycles across."""
    rows: dict[Memory, list[dict[str, Any]]] = {memory: [] for memory in Memory}
    sizes: dict[Memory, int] = {}
    begin, total = 0, max(1, timed.profile.cycles)
    for program, schedule in timed.runs:
        windows = max(1, round(_MAP_WINDOWS * schedule.cycles / total))
        edges = np.unique(np.linspace(0, max(1, schedule.cycles), windows + 1).astype(np.int64))
        for memory, found in occupancy(program, schedule, _SLICES).items():
            sizes[memory] = found.words
            rows[memory] += _cells(found, edges, begin)
        begin += schedule.cycles
    return {
        memory: alt.Chart(_data(rows[memory])).mark_rect().encode(
            x=alt.X("start:Q", title="cycle", scale=alt.Scale(domain=[0, total], nice=False)),
            x2="end:Q",
            y=alt.Y("first:Q", title=f"{memory.name} words", scale=alt.Scale(domain=[0, size], nice=False)),
            y2="last:Q",
            color=alt.Color(
                "share:Q", title="in use, %", scale=alt.Scale(domain=[0, 100], scheme="blues"),
            ),
            tooltip=["first:Q", "last:Q", "start:Q", "end:Q", "share:Q"],
        ).properties(width=_WIDTH, height=110)
        for memory, size in sizes.items()
    }  # fmt: skip


def _cells(found: Occupancy, edges: np.ndarray, begin: int) -> list[dict[str, int]]:
    """Rectangles of the map in whole per cent, where neighbours in time that are equal are one."""
    bounds = np.ceil(np.arange(len(found.slices) + 1) * found.words / len(found.slices)).astype(int)
    cells = []
    for number, row in enumerate(found.map(edges)):
        first, last = int(bounds[number]), int(bounds[number + 1])
        shares = np.rint(100 * row / max(1, last - first)).astype(int)
        changes = np.flatnonzero(np.diff(shares, prepend=-1))
        for start, end in zip(changes, np.append(changes[1:], len(shares)), strict=True):
            if shares[start]:
                cells.append({
                    "first": first, "last": last, "start": begin + int(edges[start]), "end": begin + int(edges[end]),
                    "share": int(shares[start]),
                })  # fmt: skip
    return cells
