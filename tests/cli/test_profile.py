"""`npukit profile` and `--optimize`: what is written adds up, and no level changes a bit."""

import csv
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.compiler.search import Search
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES
from npukit.sim.dram import AnyDram, DramModel, SdramDram
from npukit.sim.timing import simulate_timing

from npukit import zoo
from npukit.cache import read_kept, sealed
from npukit.profiling.clock import clock_of
from npukit.profiling.layers import timing_profile
from npukit.profiling.occupancy import occupancy
from npukit.profiling.roofline import ceiling
from npukit.profiling.trace import perfetto_trace, token_pairs

CONFIG = PRESETS["int8-8x8"]


@pytest.fixture(scope="module")
def run():
    (program,) = compile_model(zoo.load("digits"), CONFIG).programs
    return program, simulate_timing(CONFIG, program.instructions)


def test_files(npukit, digits, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    result = npukit("profile", digits, "-o", folder, "--config", "int8-8x8", "--json", "--dram-latency", 40)
    assert result.code == 0, result.err
    summary = json.loads((folder / "summary.json").read_text())
    assert result.json == summary and summary["schema"] == 1
    dram = DramModel(latency=40)
    (program,) = compile_model(zoo.load("digits"), CONFIG, dram=dram).programs
    schedule = simulate_timing(CONFIG, program.instructions, dram)
    assert summary["counters"] == schedule.counters and summary["cycles"] == schedule.cycles
    with open(folder / "layers.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == [layer["node"] for layer in summary["layers"]]
    assert sum(int(row["cycles"]) for row in rows) == schedule.cycles
    assert sum(int(row["macs"]) for row in rows) == summary["macs"]
    # a beat holds up to bus_bytes; rows of a tile may begin within one
    assert 0 < summary["dram"]["write_bytes"] <= schedule.counters["write_beats"] * CONFIG.bus_bytes
    assert (folder / "roofline.svg").read_text().startswith("<svg") and (folder / "trace.perfetto-trace").exists()
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_trace_adds_up(run) -> None:
    """Every instruction once, no overlap on a track, and the sums of the counters, of the layers' cycles, of the bytes
    on the bus and of the MACs."""
    trace_module = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    program, schedule = run
    trace = trace_module.Trace()
    trace.ParseFromString(perfetto_trace([(program, schedule)]))
    names = {packet.track_descriptor.uuid: packet.track_descriptor.name for packet in trace.packet
             if packet.HasField("track_descriptor")}  # fmt: skip
    event = trace_module.TrackEvent
    opened: dict[int, int] = {}
    busy: Counter[str] = Counter()
    seen: list[int] = []
    flows: dict[int, list[int]] = defaultdict(list)
    layers: Counter[str] = Counter()
    told: dict[str, list[tuple[int, float]]] = defaultdict(list)
    name = ""
    for packet in trace.packet:
        one = packet.track_event
        if not packet.HasField("track_event"):
            continue
        if one.type == event.TYPE_COUNTER:
            told[names[one.track_uuid]].append((packet.timestamp, one.double_counter_value))
        elif names[one.track_uuid] == "layers":
            name = one.name or name
            layers[name] += packet.timestamp if one.type == event.TYPE_SLICE_END else -packet.timestamp
        elif one.type == event.TYPE_SLICE_BEGIN:
            assert one.track_uuid not in opened, "slices of a track overlap"
            opened[one.track_uuid] = packet.timestamp
            (index,) = [note.int_value for note in one.debug_annotations if note.name == "instruction"]
            seen.append(index)
            for flow in one.flow_ids:
                flows[flow].append(index)
        else:
            busy[names[one.track_uuid]] += packet.timestamp - opened.pop(one.track_uuid)
    assert not opened
    rows = timing_profile(CONFIG, [run]).layers
    assert {row.node: row.cycles for row in rows if row.cycles} == layers
    amounts = {}
    for track in ("DRAM bytes a cycle", "array utilisation"):
        times, values = np.array(told[track]).T
        assert times[0] == 0 and times[-1] == schedule.cycles
        amounts[track] = float((np.diff(times) * values[:-1]).sum())
    assert amounts["DRAM bytes a cycle"] == pytest.approx(sum(row.read_bytes + row.write_bytes for row in rows))
    macs = sum(row.macs for row in rows)
    assert amounts["array utilisation"] == pytest.approx(100 * macs / CONFIG.array**2)
    assert all(value <= 100.001 for _, value in told["array utilisation"])
    assert sorted(seen) == list(range(len(program.instructions) - 1))
    assert {engine.name: schedule.counters[f"{engine.name.lower()}_busy"] for engine in ENGINES} == dict(busy)
    assert sorted(map(tuple, map(sorted, flows.values()))) == sorted(token_pairs(program))
    for giver, taker in token_pairs(program):
        assert schedule.end[giver] < schedule.issue[taker]


def test_occupancy_by_words(run) -> None:
    """Against a count of each word by itself."""
    program, schedule = run
    from npukit.sim.addressing import bank_depth, operands

    spans = defaultdict(list)
    for index, instruction in enumerate(program.instructions):
        found = operands(CONFIG, instruction)
        for access in sorted(found, key=lambda one: one.write):
            for word in np.unique(access.words()).tolist():
                lives = spans[access.memory, access.bank, word]
                start, end = int(schedule.start[index]), int(schedule.end[index])
                if not access.write:
                    lives[-1][1] = max(lives[-1][1], end)
                elif lives and lives[-1][1] >= end:
                    pass
                else:
                    lives.append([start, end])
    times = {memory: Counter() for memory, *_ in spans}
    for (memory, *_), lives in spans.items():
        for start, end in lives:
            times[memory][start] += 1
            times[memory][end + 1] -= 1
    edges = np.array([0, 1, 1000, schedule.cycles // 2, schedule.cycles])
    for memory, found in occupancy(program, schedule, slices=5).items():
        cycles, words = found.times, found.used
        depth = found.words // bank_depth(CONFIG, memory)[0]
        held = np.zeros((5, len(edges) - 1))
        for (where, bank, word), lives in spans.items():
            for start, end in lives if where is memory else ():
                part = (bank * depth + word) * 5 // found.words
                held[part] += (np.minimum(edges[1:], end + 1) - np.maximum(edges[:-1], start)).clip(0)
        assert found.map(edges) == pytest.approx(held / np.diff(edges))
        wanted = times.get(memory, Counter())
        steps = np.diff(words, prepend=0)
        assert {int(c): int(s) for c, s in zip(cycles, steps, strict=True) if s} == {
            cycle: change for cycle, change in wanted.items() if change
        }, memory
        assert words.min(initial=0) >= 0 and (len(words) == 0 or words[-1] == 0)


@pytest.mark.parametrize(
    ("name", "preset", "dram"),
    [("mobilenetv2", "int8-16x16", DramModel()), ("digits", "ulx3s-int8-8x8", SdramDram(megahertz=60.0))],
    ids=["mobilenetv2", "digits"],
)
def test_no_layer_does_more_than_the_machine_can(name: str, preset: str, dram: AnyDram) -> None:
    """Layers that hide behind others, too: MobileNetV2 has some of which hardly a cycle is in the foreground."""
    config = PRESETS[preset]
    programs = compile_model(zoo.load(name), config, dram=dram).programs
    runs = [(program, simulate_timing(config, program.instructions, dram)) for program in programs]
    layers = timing_profile(config, runs, dram).layers
    hidden = 0
    for layer in layers:
        assert 0 < layer.elapsed <= sum(schedule.cycles for _, schedule in runs) and layer.utilization <= 1
        if layer.macs:
            most = ceiling(config, layer.macs, layer.read_bytes, layer.write_bytes, dram)
            assert layer.macs <= most * layer.elapsed
            hidden += layer.macs > config.array**2 * layer.cycles
    assert hidden or name == "digits"


def test_elapsed_cycles(run) -> None:
    """Against a set of cycles."""
    program, schedule = run
    for node, layer in zip(program.nodes, timing_profile(CONFIG, [run]).layers, strict=True):
        spans = [range(schedule.start[one], schedule.end[one] + 1) for one in node.indices()]
        assert layer.elapsed == len(set().union(*spans))


def test_clocks(npukit, digits, tmp_path: Path) -> None:
    """Asked for, a board's, the SDRAM's, or assumed; and told in milliseconds."""
    for options, megahertz, source in (
        (("--config", "int8-8x8"), 60.0, "assumed, as on the board ulx3s"),
        (("--config", "icepi-zero-int8-4x4"), 50.0, "of the board icepi-zero"),
        (("--config", "int8-8x8", "--clock", 250), 250.0, "as asked for"),
        (("--config", "ulx3s-int8-8x8", "--dram", "sdram", "--dram-megahertz", 48), 48.0, "the SDRAM's"),
        (("--config", "ulx3s-int8-16x16", "--dram", "sdram"), 50.0, "half the SDRAM's"),
    ):
        found = npukit("run", digits, "--timing-only", "--json", *options).json
        assert found["clock"]["megahertz"] == megahertz and found["clock"]["source"] == source
        assert found["clock"]["milliseconds"] == found["cycles"] / megahertz / 1e3
        assert found["clock"]["inferences_per_second"] == pytest.approx(megahertz * 1e6 / found["cycles"])
    assert clock_of(PRESETS["bf16-4x4"]).megahertz == 40.0
    told = npukit("run", digits, "--timing-only", "--config", "int8-8x8", "--clock", 100)
    assert " inferences a second, at 100 MHz (as asked for)" in told.err
    for options in (("--clock", 0), ("--clock", "nan"), ("--clock", 40, "--dram", "sdram", "--dram-megahertz", 48)):
        for command in (("run", digits), ("profile", digits, "-o", tmp_path / "none")):
            refused = npukit(*command, "--config", "ulx3s-int8-8x8", *options)
            assert refused.code == 2 and ("MHz" in refused.err or "megahertz" in refused.err)
    assert not (tmp_path / "none").exists()


def test_layers_share_all_cycles(run) -> None:
    program, schedule = run
    profile = timing_profile(CONFIG, [run])
    assert sum(layer.cycles for layer in profile.layers) == profile.cycles == schedule.cycles
    assert all(layer.cycles >= 0 for layer in profile.layers)


def test_levels(npukit, digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cycles, outputs = [], []
    for level in (0, 1, 2, 2):
        path = tmp_path / f"{level}.npz"
        result = npukit("run", digits, "--config", "int8-8x8", "--optimize", level, "--output", path, "--json")
        assert result.code == 0, result.err
        cycles.append(result.json["cycles"])
        with np.load(path) as found:
            outputs.append(dict(found))
    assert cycles[0] > cycles[1] >= cycles[2] == cycles[3]
    assert all(np.array_equal(one[name], outputs[0][name]) for one in outputs for name in outputs[0])
    files = sorted((tmp_path / "npukit" / "search").glob("*.json"))
    found = [json.loads(read_kept(kept) or b"") for kept in files]
    strategies, tiles = sorted(found, key=lambda one: "keep" not in next(iter(one)))
    assert min(value for value in strategies.values() if value) >= cycles[2]
    assert len(tiles) > 5 and all("kernel" in name for name in tiles)
    for kept in files:
        kept.write_text("{")  # cut short
    assert (
        npukit("run", digits, "--config", "int8-8x8", "--optimize", 2, "--timing-only", "--json").json["cycles"]
        == (cycles[2])
    )


def test_explain(npukit, digits) -> None:
    text = npukit("explain", digits, "head/Gemm", "--config", "int8-16x16")
    assert text.code == 0, text.err
    assert "Gemm head/Gemm: 1x40 to 1x10, 400 MACs" in text.out
    assert "40 input channels pad to 48" in text.out and "10 output channels pad to 16" in text.out
    found = npukit("explain", digits, "block1/conv1/Conv", "--config", "int8-16x16", "--json").json
    assert found["schema"] == 1 and found["layer"]["node"] == "block1/conv1/Conv"
    assert any(line.startswith("array: ") for line in found["text"])
    npukit("explain", digits, "block1/conv9/Conv").refused("no node 'block1/conv9/Conv'", "block1/conv1/Conv")


def test_a_compiled_model_says_what_its_nodes_cost(npukit, digits, tmp_path: Path) -> None:
    path = tmp_path / "compiled.onnx"
    assert npukit("compile", digits, "-o", path, "--config", "int8-8x8").code == 0
    (node,) = [one for one in onnx.load(path).graph.node if one.op_type == "EPContext"]
    notes = {entry.key: entry.value for entry in node.metadata_props}
    layers = npukit("run", path, "--timing-only", "--json").json["layers"]
    assert list(notes) == [f"npukit: {layer['node']}" for layer in layers]
    for layer in layers:
        assert f", {layer['cycles']} cycles, " in notes[f"npukit: {layer['node']}"]


def test_a_program_without_nodes(npukit, tmp_path: Path) -> None:
    text, program = tmp_path / "p.asm", tmp_path / "p.npu"
    text.write_text("LOAD words=4 row_stride=1 word_stride=1\nEND\n")
    assert npukit("asm", text, "-o", program).code == 0
    assert npukit("profile", program, "-o", tmp_path / "made").code == 0
    assert len((tmp_path / "made" / "layers.csv").read_text().splitlines()) == 1
    npukit("explain", program, "conv").refused("names no nodes")


@pytest.mark.parametrize("content", ["[]", "null", "3", '{"keep 0.35, room 0.0, fuse True": "abc"}', "{"])
def test_a_cache_of_something_else(content: str, digits, tmp_path: Path) -> None:
    search = Search(tmp_path)
    model = zoo.load("digits")
    wanted = compile_model(model, CONFIG, optimize=2, search=search).programs[0].to_bytes()
    kept = tmp_path / "kept"
    for one in tmp_path.glob("*.json"):
        one.write_bytes(sealed(content.encode()))
        kept = one
    assert compile_model(model, CONFIG, optimize=2, search=search).programs[0].to_bytes() == wanted
    for folder in (tmp_path / "no" / "folder", kept):  # nothing can be kept there
        assert compile_model(model, CONFIG, optimize=2, search=Search(folder)).programs[0].to_bytes() == wanted


def test_what_was_measured_with_another_memory_does_not_count(tmp_path: Path) -> None:
    model, board = zoo.load("digits"), SdramDram()
    for dram in (None, board):
        compile_model(model, CONFIG, optimize=2, search=Search(tmp_path), dram=dram)
    alone = compile_model(model, CONFIG, optimize=2, dram=board).programs[0]
    again = compile_model(model, CONFIG, optimize=2, search=Search(tmp_path), dram=board).programs[0]
    assert again.to_bytes() == alone.to_bytes()


def test_bad_options(npukit, digits, tmp_path: Path) -> None:
    npukit("profile", digits).refused("--output")
    npukit("profile", digits, "-o", digits).refused("is not a folder")
    npukit("profile", digits, "-o", tmp_path, "--optimize", 3).refused("--optimize")
    npukit("profile", digits, "-o", tmp_path, "--dram-latency", 0).refused("--dram-latency")
    npukit("profile", tmp_path / "no.onnx", "-o", tmp_path).refused("no.onnx")
