"""What firmware is refused for, with the nodes and the way out, and that a refusal leaves nothing behind."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import zoo
from npukit.firmware.errors import FirmwareError
from npukit.firmware.names import identifier, identifiers, model_identifier
from tests.firmware.emitted import FLAGS, compiler, emit
from tests.firmware.test_host import OK, _values, agree, host_of, onnx_runtime
from tests.graphs import Graph

INT8 = PRESETS["int8-4x4"]


def _stays_behind() -> onnx.ModelProto:
    graph = Graph(seed=1)
    value = graph.dequantize(graph.conv(graph.input((1, 3, 5, 5), name="x"), 4))
    graph.output_value(graph.node("Det", [graph.node("Slice", [value, *_slice(graph)])], output="y"))
    return graph.model()


def _slice(graph: Graph) -> list[str]:
    values = ([0, 0], [3, 3], [2, 3])
    return [graph.constant(np.array(value, np.int64)) for value in values]


def _two_parts() -> onnx.ModelProto:
    graph = Graph(seed=1)
    first = graph.conv(graph.input((1, 3, 5, 5), name="x"), 4)
    # ReverseSequence is no operator of the machine, nor one of the edge
    lengths = graph.constant(np.array([2], np.int64))
    turned = graph.node(
        "ReverseSequence", [graph.dequantize(first), lengths], output="turned", batch_axis=0, time_axis=1
    )
    graph.output(graph.conv(graph.quantize(turned, 0.1), 4, 1))
    return graph.model()


def _nothing() -> onnx.ModelProto:
    node = helper.make_node("Det", ["x"], ["y"], name="determinant")
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3]), helper.make_tensor_value_info("y", 1, [])]
    graph = helper.make_graph([node], "graph", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _scale_per_channel() -> onnx.ModelProto:
    graph = Graph(seed=1)
    y = graph.conv(graph.input((1, 3, 5, 5), name="x"), 4)
    scales, zeros = graph.constant(np.array([0.1, 0.2, 0.3, 0.4], np.float32)), graph.constant(np.zeros(4, np.int8))
    graph.output_value(graph.node("DequantizeLinear", [y.name, scales, zeros], output="y", axis=1))
    return graph.model()


def _input_to_output() -> onnx.ModelProto:
    graph = Graph(seed=1)
    x = graph.input((1, 3, 5, 5), name="x")
    graph.output(graph.conv(x, 4))
    graph.output_value(graph.node("Identity", ["x"], output="same"))
    return graph.model()


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (_stays_behind, ("Det", "y", "stay on the host", "npukit check")),
        (_two_parts, ("ReverseSequence", "turned", "npukit check")),
        (_nothing, ("nothing of the model", "Det determinant")),
        (_scale_per_channel, ("DequantizeLinear", "4 elements", "by tensor")),
        (_input_to_output, ("same", "the input x itself", "change the model's edge")),
    ],
)
def test_refused(tmp_path: Path, make: Callable[[], onnx.ModelProto], parts: tuple[str, ...]) -> None:
    model = make()
    with pytest.raises(FirmwareError) as error:
        emit(tmp_path / "kit", model, INT8)
    for part in parts:
        assert part in str(error.value)
    assert not (tmp_path / "kit").exists()


def test_copies_at_the_edge(tmp_path: Path) -> None:
    """Reshapes that stay outside leave the order of elements; their shapes are the model's."""
    graph = Graph(seed=4)
    x = graph.input((2, 60), name="x")
    reshaped = graph.moved("Reshape", x, [np.array([1, 3, 8, 5])])
    y = graph.dequantize(graph.conv(reshaped, 5, 3))
    graph.output_value(graph.node("Flatten", [y], output="y"))
    model = graph.model()
    host = host_of(tmp_path, model)
    assert host.init() == OK
    inputs = {"x": _values(model.graph.input[0], np.random.default_rng(1))}
    agree(host, onnx_runtime(model)(inputs), inputs)


def test_one_input_quantised_in_two_ways(tmp_path: Path) -> None:
    graph = Graph(seed=6)
    first = graph.input((1, 3, 4, 4), 0.02, name="x")
    second = graph.quantize("x", 0.05)
    graph.output(graph.add(graph.conv(first, 4, 1), graph.conv(second, 4, 1)))
    model = graph.model()
    host = host_of(tmp_path, model)
    assert len(host.kit.model.boundary.inputs) == 2
    assert host.init() == OK
    inputs = {"x": _values(model.graph.input[0], np.random.default_rng(1))}
    agree(host, onnx_runtime(model)(inputs), inputs)


def test_names_of_a_model_become_names_in_c(tmp_path: Path) -> None:
    """Inputs whose names are keywords, differ in case or in punctuation alone, or are no ASCII."""
    graph = Graph(seed=2)
    names = ["int", "INT", "a.b", "a/b", "9", "é*/", "class", "???/\n"]
    graph.output(graph.concat([graph.input((1, 4, 2, 2), name=name) for name in names], 1))
    graph.output(graph.conv(graph.input((1, 4, 2, 2), name="more"), 4, 1))
    model = graph.model()
    host = host_of(tmp_path, model)
    assert host.init() == OK
    random = np.random.default_rng(1)
    inputs = {value.name: _values(value, random) for value in model.graph.input}
    agree(host, onnx_runtime(model)(inputs), inputs)
    fields = [host.kit.model.fields[f"input {name}"] for name in names]
    assert fields == ["int_", "INT", "a_b", "a_b_2", "model_9", "model", "class_", "model_2"]


def test_identifiers() -> None:
    assert identifiers(["x", "X", "x"]) == {"x": "x", "X": "X_2"}
    assert model_identifier("ResNet-50 v1.5") == "resnet_50_v1_5"
    for taken in ("npu", "npu_port", "stdint", "string", "example", "NPU", "features"):
        assert model_identifier(taken) == f"model_{taken.lower()}"
    assert model_identifier("50") == "model_50"
    assert len(model_identifier("x" * 100)) == 100
    with pytest.raises(
        FirmwareError, match=r"xxx\.\.\. has 101 characters.* at most 100: give a shorter one with --name"
    ):
        model_identifier("x" * 101)


def test_no_model_hides_a_header_of_the_system(tmp_path: Path) -> None:
    """Of all that this machine's compiler reads for headers of C and POSIX. Those in subfolders are in no danger."""
    headers = "assert ctype errno fenv inttypes math pthread setjmp signal stdint stdio stdlib string time unistd wchar"
    source = tmp_path / "all.c"
    source.write_text("".join(f"#include <{name}.h>\n" for name in headers.split()))
    found = subprocess.run([compiler(), "-M", str(source)], check=True, capture_output=True, text=True).stdout
    asked = [path for path in map(Path, found.split()) if path.suffix == ".h"]
    names = {path.stem for path in asked if path.parent.name == "include"}
    assert {"stdint", "features", "stddef"} <= names
    assert [name for name in names if identifier(name).lower() == name and model_identifier(name) == name] == []


def _symbols(tmp_path: Path, model: str | bytes | onnx.ModelProto, config: str) -> set[str]:
    """Functions and objects of a model's own object, uninlined."""
    kit = emit(tmp_path / "kit", model, PRESETS[config])
    source, target = kit.files[0].parent / "net.c", tmp_path / "net.o"
    subprocess.run([compiler(), *FLAGS, "-O0", "-c", str(source), "-o", str(target)], check=True)
    lines = subprocess.run(["nm", str(target)], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if line.split()[-2] in "tTdDrRbB"}


def _integers() -> onnx.ModelProto:
    graph = Graph(seed=1, dtype=np.uint8)
    graph.output(graph.conv(graph.input((1, 4, 5, 5), name="x", integer=True), 4), integer=True)
    return graph.model()


@pytest.mark.parametrize(
    ("make", "config", "helpers"),
    [
        (lambda: zoo.load("digits"), "int8-4x4", {"quantize", "integer"}),
        (lambda: zoo.load("digits-vit"), "int8-4x4", {"quantize", "integer"}),
        (lambda: zoo.load("digits", "fp32"), "bf16-4x4", {"narrow", "widen"}),
        (_integers, "int8-4x4", set()),
    ],
    ids=("digits", "digits-vit", "bf16", "integers"),
)
def test_no_symbol_that_the_model_does_not_use(tmp_path: Path, make, config: str, helpers: set[str]) -> None:
    entry = {"net_attach", "net_init", "net_start", "net_finish", "net_run"}
    wanted = entry | {"program", "constants", "code", "write_input_0", "read_output_0"} | helpers
    assert _symbols(tmp_path, make(), config) == wanted


@pytest.mark.parametrize(
    ("make", "config"),
    [
        (lambda: zoo.load("digits"), "int8-16x16"),
        (lambda: zoo.load("digits-vit"), "int8-4x4"),
        (lambda: zoo.load("digits", "fp32"), "bf16-4x4"),
        (_integers, "int8-4x4"),
    ],
    ids=("digits", "digits-vit", "bf16", "integers"),
)
def test_every_source_compiles(tmp_path: Path, make, config: str) -> None:
    kit = emit(tmp_path / "kit", make(), PRESETS[config])
    for source in ("npu.c", "net.c", "example.c"):
        for defined in ("-DNPU_PROGRAM_IN_PLACE", "-DNPU_WAIT_FOR_INTERRUPT(npu)=((void)(npu),0)"):
            for level in ("-O0", "-O2"):
                command = [compiler(), *FLAGS, level, defined, "-c", str(kit.files[0].parent / source)]
                subprocess.run([*command, "-o", str(tmp_path / "object.o")], check=True)


def test_the_headers_are_for_c_plus_plus_too(tmp_path: Path) -> None:
    kit = emit(tmp_path / "kit", zoo.load("digits"), INT8)
    source = tmp_path / "main.cpp"
    source.write_text('#include "net.h"\nint main() { return sizeof(net_inputs) == 0; }\n')
    folder = kit.files[0].parent
    command = [compiler(), "-x", "c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    subprocess.run([*command, "-c", str(source), "-o", str(tmp_path / "main.o")], check=True)


def _padded() -> onnx.ModelProto:
    """An input with so much padding that a compiler would rather call memset."""
    graph = Graph(seed=1)
    graph.output(graph.conv(graph.input((1, 5, 64, 64), name="x"), 4, 1))
    return graph.model()


@pytest.mark.parametrize("level", ("-Os", "-O2", "-O3"))
@pytest.mark.parametrize(("make", "config"), [(_padded, "int8-4x4"), (lambda: zoo.load("digits", "fp32"), "bf16-4x4")])
def test_no_library(tmp_path: Path, level: str, make, config: str) -> None:
    """Freestanding, the sources need nothing; soft floating point is the compiler's own."""
    kit = emit(tmp_path / "kit", make(), PRESETS[config])
    objects = []
    for source in ("npu.c", "net.c"):
        path = kit.files[0].parent / source
        objects.append(str(tmp_path / f"{source}.o"))
        subprocess.run([compiler(), *FLAGS, level, "-ffreestanding", "-c", str(path), "-o", objects[-1]], check=True)
    subprocess.run(["ld", "-r", *objects, "-o", str(tmp_path / "all.o")], check=True)
    found = subprocess.run(["nm", "-u", str(tmp_path / "all.o")], check=True, capture_output=True, text=True).stdout
    assert set(found.split()) - {"U", "_GLOBAL_OFFSET_TABLE_"} == set()


@pytest.mark.parametrize("in_place", (False, True))
def test_instructions_are_aligned_where_it_matters(tmp_path: Path, in_place: bool) -> None:
    kit = emit(tmp_path / "kit", zoo.load("digits"), INT8)
    target = tmp_path / "net.o"
    defined = ["-DNPU_PROGRAM_IN_PLACE"] if in_place else []
    source = kit.files[0].parent / "net.c"
    subprocess.run([compiler(), *FLAGS, *defined, "-c", str(source), "-o", str(target)], check=True)
    table = subprocess.run(["objdump", "-h", str(target)], check=True, capture_output=True, text=True).stdout
    alignment = max(1 << int(power) for power in re.findall(r"2\*\*(\d+)", table))
    assert alignment == 4096 if in_place else alignment <= 64


def test_a_default_of_an_input(tmp_path: Path) -> None:
    graph = Graph(seed=1)
    graph.output(graph.conv(graph.input((1, 3, 5, 5), name="x"), 4))
    model = graph.model()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 3, 5, 5), np.float32), "x"))
    with pytest.raises(FirmwareError, match="input x has a default value|no inputs"):
        emit(tmp_path / "kit", model, INT8)


def test_other_quantisation_at_the_edge(tmp_path: Path) -> None:
    """What is quantised twice in different ways is no copy."""
    graph = Graph(seed=4)
    x = graph.input((2, 60), 0.02, 3, name="x")
    value = graph.node("Reshape", [graph.dequantize(x), graph.constant(np.array([1, 3, 8, 5]))])
    graph.output(graph.conv(graph.quantize(value, 0.03, 3), 5, 3))
    with pytest.raises(FirmwareError, match="made by QuantizeLinear, DequantizeLinear, QuantizeLinear"):
        emit(tmp_path / "kit", graph.model(), INT8)
