"""The passes as a whole: their order, their text, the artifact, and what stops them."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
from npukit.compiler import pass_base
from npukit.compiler.errors import CompileError
from npukit.compiler.frontends.onnx.artifact import offload_of
from npukit.compiler.passes.allocate import AllocatePass
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.pipeline import PASSES, check_model, compile_model
from npukit.compiler.text import describe
from npukit.driver.executor import programs_of
from npukit.isa.config import PRESETS

from npukit import zoo
from npukit.npufile import read_model, write_artifact
from npukit.session import Session

CONFIG = PRESETS["int8-8x8"]


def two_parts(graphs):
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 9, 9)), 6)
    y = graph.quantize(graph.node("Softmax", [graph.dequantize(y)]), 0.004, -128)
    graph.output(graph.conv(y, 4))
    return graph.model()


@pytest.mark.parametrize("stage", PASSES)
def test_every_stage_has_a_text(stage) -> None:
    result = compile_model(zoo.load("digits"), CONFIG, stop_after=stage)
    assert list(result.stages) == list(PASSES[: PASSES.index(stage) + 1]) == list(result.seconds)
    assert result.artifact is None
    text = describe(result.stages[stage])
    lines = text.splitlines()
    assert len(lines) > 10 and all(line.strip() for line in lines)
    expected = {
        "import": "Conv block1/conv1/Conv: (",
        "normalise": "Conv block1/conv1/Conv: (",
        "zero_points": "Conv block1/conv1/Conv: (",
        "partition": "stays:",
        **dict.fromkeys(("lower", "legalise", "eliminate", "fold", "join", "fuse"), 'graph "npukit_0" {'),
        "schedule": "MATRIX ",
        "interleave": "MATRIX ",
        "allocate": "WGT bank 0 words ",
        "emit": "  # Conv block1/conv1/Conv",
        "validate": "  # Conv block1/conv1/Conv",
    }[stage]
    assert expected in text


def test_seconds_are_those_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that each pass moves on by its own number of seconds: of those that run again, by several."""
    clock, runs, told = [0.0], Counter[str](), list[str]()
    monkeypatch.setattr(pass_base.time, "perf_counter", lambda: clock[0])
    kinds = (SchedulePass, InterleavePass, AllocatePass, EmitPass)
    for number, kind in enumerate(kinds, 1):

        def run(self, given, number=number, kind=kind, original=kind.run):
            clock[0] += number
            runs[kind.name] += 1
            return original(self, given)

        monkeypatch.setattr(kind, "run", run)
    config = replace(CONFIG, act_depth=128, act_banks=2)
    result = compile_model(zoo.load("digits"), config, progress=told.append)
    assert tuple(told) == PASSES
    assert runs["allocate"] > runs["emit"] == 1, "the first strategy does not fit"
    assert {name: result.seconds[name] for name in runs} == {
        kind.name: number * runs[kind.name] for number, kind in enumerate(kinds, 1)
    }
    assert all(result.seconds[name] == 0 for name in PASSES if name not in runs)


def test_every_subgraph_is_in_the_text(graphs) -> None:
    result = compile_model(two_parts(graphs), CONFIG)
    assert describe(result.stages["lower"]).count("npukit_") == 2
    assert describe(result.stages["emit"]).count("END") == 2
    with pytest.raises(TypeError, match="nothing describes a int"):
        describe(3)


def test_progress_names_each_pass() -> None:
    seen: list[str] = []
    compile_model(zoo.load("digits"), CONFIG, progress=seen.append)
    assert tuple(seen) == PASSES


def test_unknown_pass() -> None:
    with pytest.raises(CompileError, match="the passes are import, normalise, .*, not 'optimise'"):
        compile_model(zoo.load("digits"), CONFIG, stop_after="optimise")


def test_check_stops_at_the_partition() -> None:
    result = check_model(zoo.load("digits"), CONFIG)
    assert list(result.stages)[-1] == "partition" and result.partition.nodes == 50


def test_artifact(graphs, tmp_path) -> None:
    """An ONNX file: two EPContext nodes with programs, the other nodes as they were, and what it remembers."""
    model = two_parts(graphs)
    model.metadata_props.add(key="author", value="me")
    result = compile_model(model, CONFIG)
    assert result.artifact is not None
    onnx.checker.check_model(result.artifact)
    operators = [node.op_type for node in result.artifact.graph.node]
    assert operators == [
        "QuantizeLinear", "EPContext", "DequantizeLinear", "Softmax", "QuantizeLinear", "EPContext", "DequantizeLinear"
    ]  # fmt: skip
    assert list(programs_of(result.artifact)) == ["npukit_0", "npukit_1"]
    assert tuple(programs_of(result.artifact).values()) == result.programs
    assert [value.name for value in result.artifact.graph.output] == [value.name for value in model.graph.output]
    assert {tensor.name for tensor in result.artifact.graph.initializer} == {
        name for node in result.artifact.graph.node for name in node.input if name.startswith(("scale", "zero_point"))
    }
    notes = {entry.key: entry.value for entry in result.artifact.metadata_props}
    assert notes["author"] == "me" and json.loads(notes["npukit.offload"])["macs"] == result.partition.macs
    offload = offload_of(result.artifact, programs_of(result.artifact))
    assert offload.reasons == result.partition.reasons and offload.macs_total == result.partition.macs_total
    assert offload.nodes == result.partition.nodes and offload.suggestion == ""
    write_artifact(tmp_path / "a.onnx", result.artifact)
    again = read_model(tmp_path / "a.onnx")
    inputs = graphs.inputs_of(model)
    outputs = [list(Session(one, CONFIG).run(inputs).values())[0] for one in (model, result.artifact, again)]
    assert np.array_equal(outputs[0], outputs[1]) and np.array_equal(outputs[0], outputs[2])


def test_what_a_damaged_note_of_the_offload_does(graphs) -> None:
    artifact = compile_model(two_parts(graphs), CONFIG).artifact
    assert artifact is not None
    for text in ("", "[]", "{}", '{"nodes": 1, "reasons": [3]}'):
        copy = onnx.ModelProto()
        copy.CopyFrom(artifact)
        copy.metadata_props[-1].value = text
        found = offload_of(copy, programs_of(copy))
        assert (found.nodes, found.nodes_total, found.reasons) == (2, 2, ())


def test_compiled_models_are_not_compiled_again(graphs) -> None:
    artifact = compile_model(two_parts(graphs), CONFIG).artifact
    assert artifact is not None
    with pytest.raises(CompileError, match="the model is compiled already: it has an EPContext node"):
        compile_model(artifact, CONFIG)


def test_a_tensor_beyond_the_address_fields(graphs) -> None:
    """Rows that lie further apart than LOAD's stride reaches."""
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 1, 4097, 2100)), 4, 1, strides=[4096, 2], bias=False))
    with pytest.raises(CompileError, match="^Conv:.* exceeds an instruction's field: LOAD: dram_row_stride"):
        compile_model(graph.model(), CONFIG)


def test_model_without_anything_to_accelerate() -> None:
    result = compile_model(zoo.load("digits", "fp32"), CONFIG)
    assert result.programs == () and result.partition.subgraphs == () and result.artifact is not None
    assert programs_of(result.artifact) == {}
    assert all(describe(result.stages[name]) == "" for name in ("lower", "schedule", "allocate", "emit"))


def test_names_that_look_alike(graphs) -> None:
    """Constants of a node `a` and of a node `a.0`, and tensors called as constants are, keep apart."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 6, 6))
    graph.output(graph.add(graph.conv(x, 4, pads=[1] * 4), x))
    model = graph.model()
    for node in model.graph.node:
        node.name = {"Conv": "a", "Add": "a.0"}.get(node.op_type, node.name)
    data = model.SerializeToString()
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    for node in renamed.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == x.name:
                    names[index] = "a weights"
    for one in (onnx.load_from_string(data), renamed):
        _, found = graphs.agree(one, replace(CONFIG, act_depth=64))
        assert found.tensors == 3
