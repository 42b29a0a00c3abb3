"""What reports and plots are made of: spans, advice, the boundary, and what notebooks show."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES
from npukit.sim.dram import SdramDram

import npukit
from npukit import zoo
from npukit.errors import UsageError
from npukit.profiling.advice import advise
from npukit.profiling.boundary import HostModel
from npukit.profiling.layers import LayerProfile
from npukit.profiling.spans import LAYERS, spans
from npukit.profiling.timed import TimedModel


@pytest.fixture(scope="module")
def digits() -> TimedModel:
    return npukit.profile(zoo.load("digits"), "int8-8x8", clock=100)


def test_spans_add_up(digits: TimedModel) -> None:
    """At full resolution, to the engines' counters and the layers' cycles; coarser, gaps alone are added."""
    exact = spans(digits.runs, resolution=10**9)
    busy: Counter[str] = Counter()
    layers: Counter[int] = Counter()
    for span in exact:
        busy[span.lane] += span.end - span.start
        layers[span.layer] += (span.end - span.start) * (span.lane == LAYERS)
    counters = digits.profile.counters
    assert {engine.name: counters[f"{engine.name.lower()}_busy"] for engine in ENGINES} == {
        name: count for name, count in busy.items() if name != LAYERS
    }
    assert [layers[number] for number in range(len(digits.profile.layers))] == [
        layer.cycles for layer in digits.profile.layers
    ]
    instructions = sum(len(program.instructions) - 1 for program, _ in digits.runs)  # all but END
    coarse = spans(digits.runs, resolution=50)
    assert sum(span.instructions for span in exact) == sum(span.instructions for span in coarse) == instructions
    assert len(coarse) < len(exact)
    for lane in (LAYERS, *(engine.name for engine in ENGINES)):
        mine = [span for span in coarse if span.lane == lane]
        assert all(before.end <= after.start for before, after in zip(mine, mine[1:], strict=False))


def test_several_programs_follow_each_other() -> None:
    """A node that stays cuts the model in two, whose spans, layers and cycles go on where the first ended."""
    model = onnx.load_from_string(zoo.load("digits"))
    timed = npukit.profile(model, "int8-8x8")
    (run,) = timed.runs
    twice = replace(timed, runs=[run, run])
    ends = [max(span.end for span in spans(one.runs)) for one in (timed, twice)]
    assert ends == [timed.profile.cycles, 2 * timed.profile.cycles]
    found = [span.layer for span in spans(twice.runs) if span.lane == LAYERS]
    assert set(found) == {number for number, layer in enumerate(twice.profile.layers) if layer.cycles}


def test_boundary(digits: TimedModel) -> None:
    """Bytes are those that a run moves; times are bytes and multiply-accumulates over the assumed rates."""
    model = zoo.load("digits")
    with npukit.Session(model, "int8-8x8") as session:
        session.run({session.inputs[0].name: np.zeros((1, 1, 8, 8), np.float32)})
        assert digits.boundary.bytes == session.profile.boundary.moved
    floating = npukit.profile(zoo.load("digits", "fp32"), "int8-8x8", host=HostModel(megabytes=10, gigamacs=0.5))
    told = floating.to_json()["boundary"]
    assert told["host_macs"] == floating.offload.macs_total > 0 and told["bytes"] == told["subgraphs"] == 0
    assert told["host_milliseconds"] == pytest.approx(1e3 * told["host_macs"] / 0.5e9)
    slow = replace(digits, host=HostModel(megabytes=0.3)).boundary
    assert slow.transfer_milliseconds == pytest.approx(1e3 * slow.bytes / 0.3e6)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="megabytes"):
            HostModel(megabytes=bad)


def _layer(**work: int) -> LayerProfile:
    shape = (1, 16, 8, 8)
    found = {"cycles": 0, "elapsed": 0, "array": 0, "vector": 0, "dram": 0, "macs": 0, "read_bytes": 0,
             "write_bytes": 0, "weight_bytes": 0, "window": 0, **work}  # fmt: skip
    return LayerProfile(node="one", op="Conv", inputs=(shape,), output=shape, utilization=0.5, bound="", **found)


def test_advice_by_hand() -> None:
    """Layers whose busiest engine is known, and what is left when it has less to do."""
    offload = npukit.profile(zoo.load("digits"), "int8-16x16").offload
    profile = npukit.profile(zoo.load("digits"), "int8-16x16").profile
    # the bus has 1000 of 1000 cycles; with half of them the array, 600, is the busiest
    profile.layers = [_layer(cycles=1000, dram=1000, array=600, vector=100)]
    profile.cycles = 1000
    found = {tuple(one.changes): one for one in advise(profile, offload)}
    assert found["bus_bytes",].cycles == 400 and found["bus_bytes",].share == 0.4
    assert found["bus_bytes",].options == "--set bus_bytes=16"
    assert ("array",) not in found and ("vector_taps",) not in found
    # half of the traffic are weights, of which three quarters go with a batch of four: 375 of 1000
    profile.layers = [_layer(cycles=1000, dram=1000, read_bytes=600, weight_bytes=500, write_bytes=400)]
    (batch,) = [one for one in advise(profile, offload) if "batch" in one.title]
    assert batch.cycles == 375
    # windows of 7 columns take two passes of 4 taps, and one of 8; those of 3 take one either way
    profile.config = replace(profile.config, vector_taps=4)
    profile.layers = [_layer(cycles=1000, vector=1000, window=7), _layer(cycles=1000, vector=1000, window=3)]
    assert {tuple(one.changes): one for one in advise(profile, offload)}["vector_taps",].cycles == 500
    # nothing is busy for 700 of 1000 cycles
    profile.layers = [_layer(cycles=1000, dram=300)]
    assert max(advise(profile, offload), key=lambda one: one.cycles).cycles == 700
    # a layer in the background has no cycles to lose
    profile.layers = [_layer(cycles=0, dram=1000), _layer(cycles=1000, array=1000)]
    assert ("bus_bytes",) not in {tuple(one.changes) for one in advise(profile, offload)}


def test_advice_is_possible() -> None:
    """No change is offered that the configuration or the board's memory forbids."""
    largest = replace(PRESETS["int8-16x16"], bus_bytes=64, vector_taps=16)
    timed = npukit.profile(zoo.load("mobilenetv2"), largest)
    assert not {"bus_bytes", "vector_taps"} & {name for one in timed.advice for name in one.changes}
    board = npukit.profile(zoo.load("digits"), "ulx3s-int8-8x8", dram=SdramDram(megahertz=60.0))
    for one in board.advice:
        board.dram.check(replace(board.config, **one.changes))


def test_notebooks(digits: TimedModel) -> None:
    frame = digits.to_dataframe()
    assert list(frame["cycles"]) == [layer.cycles for layer in digits.profile.layers]
    assert sum(frame["cycles"]) == digits.profile.cycles
    assert set(frame.columns) >= {"node", "op", "macs", "elapsed", "weight_bytes"}
    for plot in (digits.plot_roofline, digits.plot_timeline, digits.plot_traffic, digits.plot_memory):
        assert plot().to_dict()["$schema"].endswith(".json")
    points = digits.plot_roofline().to_dict()["layer"][2]["data"]["values"]
    assert [point["node"] for point in points] == [layer.node for layer in digits.profile.layers if layer.macs]
    with npukit.Session(zoo.load("digits"), "int8-8x8") as session:
        before = session._repr_html_()
        session.run({session.inputs[0].name: np.zeros((1, 1, 8, 8), np.float32)})
        text = session._repr_html_()
    assert "total" not in before and f"<td>{digits.profile.cycles}</td>" in text
    assert f"{digits.offload.nodes} of {digits.offload.nodes_total} nodes" in digits.offload._repr_html_()
    assert "at 100 MHz (as asked for)" in digits._repr_html_()


def test_roof_of_the_engine_that_computes(graphs) -> None:
    """A depthwise layer on a machine whose VECTOR has more multipliers than its array lies below VECTOR's own roof."""
    config = replace(PRESETS["int8-16x16"], array_rows=4, vector_lanes=16, vector_taps=7)
    graph = graphs.Graph(seed=1)
    x = graph.conv(graph.input((1, 16, 28, 28)), 64, 1)
    graph.output(graph.conv(x, 64, 7, group=64, pads=[3] * 4))
    timed = npukit.profile(graph.model(), config)
    assert config.array_macs == 64 and timed.profile.peak == 112
    depthwise = max(timed.profile.layers, key=lambda layer: layer.macs / layer.elapsed)
    assert not depthwise.array and 64 < depthwise.macs / depthwise.elapsed <= 112
    assert "% of 112 MACs a cycle" in timed.explain(depthwise.node)
    line, names, points, _ = timed.plot_roofline().to_dict()["layer"]
    top = {row["of"]: row["speed"] for row in line["data"]["values"]}
    assert top == {"array": 64, "VECTOR": 112} and len(names["data"]["values"]) == 2
    assert all(point["speed"] <= 112 for point in points["data"]["values"])
    found = timed.to_json()
    moved = max(found["dram"]["read_bytes"], found["dram"]["write_bytes"])
    assert found["roofline_utilization"] == pytest.approx(min(112, 8 * found["macs"] / moved) / 112)


def test_what_is_no_model() -> None:
    with pytest.raises(UsageError, match="npukit.report"):
        npukit.profile(3)  # pyright: ignore[reportArgumentType]
