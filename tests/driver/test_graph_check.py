"""Compiled models whose parts do not fit: each is refused with the reason, before anything runs."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.driver.executor import ArtifactError, Executor, InputError, programs_of
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from npukit.isa.limits import Limits
from onnx import TensorProto, helper

from npukit.errors import UsageError
from npukit.session import Session


@pytest.fixture(scope="module")
def artifact(graphs: ModuleType) -> onnx.ModelProto:
    """A program, a node that stays, and a program again."""
    graph = graphs.Graph(seed=1)
    x = graph.conv(graph.input((1, 3, 6, 6), integer=True, name="image"), 9, pads=[1, 1, 1, 1])
    stays = graph.node("CumSum", [graph.dequantize(x), graph.constant(np.int64(1), "axis")], "total")
    stays = graph.quantize(stays, 0.5, output="totals")
    graph.output(graph.conv(stays, 5), integer=True)
    graph.output(x, integer=True)
    made = compile_model(graph.model(), PRESETS["int8-4x4"]).artifact
    assert made is not None
    assert [node.op_type for node in made.graph.node].count("EPContext") == 2
    return made


def programs(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "EPContext"]


def of_host(model: onnx.ModelProto, operator: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == operator)


def rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "picture"


def rename_read(model: onnx.ModelProto) -> None:
    programs(model)[0].input[0] = "picture"


def rename_made(model: onnx.ModelProto) -> None:
    programs(model)[1].output[0] = "other"


def leave_out(model: onnx.ModelProto) -> None:
    model.graph.node.remove(programs(model)[0])


def turn_round(model: onnx.ModelProto) -> None:
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1])


def leave_out_host(model: onnx.ModelProto) -> None:
    model.graph.node.remove(of_host(model, "CumSum"))
    model.graph.value_info.append(helper.make_tensor_value_info("total", TensorProto.FLOAT, [1, 9, 6, 6]))


def double(model: onnx.ModelProto) -> None:
    model.graph.node.append(programs(model)[0])


def double_under_another_name(model: onnx.ModelProto) -> None:
    model.graph.node.append(programs(model)[0])
    model.graph.node[-1].name = "again"


def ask_for_more(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("nothing", TensorProto.INT8, [1]))


def make_output_floats(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT


def make_output_larger(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 6


def make_input_unknown(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 0


def make_input_negative(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -3


def make_input_open(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "N"


def double_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def double_output(model: onnx.ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


def make_input_no_tensor(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.INT8


def give_out_damaged_constant(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"\0" * 7))
    model.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [3]))


def make_source_no_text(model: onnx.ModelProto) -> None:
    next(one for one in programs(model)[0].attribute if one.name == "source").s = b"\xff\xfe"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename_input, "EPContext node npukit_0 reads image, which nothing before it makes"),
        (rename_read, "EPContext node npukit_0 has the inputs picture, its program image"),
        (rename_made, "EPContext node npukit_1 has the outputs other, its program "),
        (leave_out, "a part that stays reads .*, which nothing before it makes"),
        (turn_round, "which nothing before it makes|ONNX Runtime refuses the part"),
        (leave_out_host, "a part that stays reads total, which nothing before it makes"),
        (double, "two EPContext nodes are called 'npukit_0'"),
        (double_under_another_name, "EPContext node again makes .*, which is there already"),
        (ask_for_more, "nothing makes the output nothing"),
        (make_output_floats, "output .* is int8 by the program of npukit_1, and declared otherwise"),
        (make_output_larger, r"output .* has the shape \[1, 5, 4, 4\] by the program of npukit_1, not \[1, 6, 4, 4\]"),
        (make_input_unknown, "input image is no tensor of a type that is known"),
        (make_input_negative, r"input image has the shape \[1, -3, 6, 6\]; every dimension must be a fixed number"),
        (make_input_open, r"input image has the shape \[1, 0, 6, 6\]; every dimension must be a fixed number"),
        (double_input, "the input 'image' is there twice"),
        (double_output, "the output '.*' is there twice"),
        (make_input_no_tensor, "input image is no tensor of a type that is known"),
        (give_out_damaged_constant, "initializer c is damaged: "),
        (make_source_no_text, "EPContext node npukit_0 was made by "),
    ],
)
def test_parts_that_do_not_fit(
    artifact: onnx.ModelProto, change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    model = onnx.ModelProto.FromString(artifact.SerializeToString())
    change(model)
    with pytest.raises(ArtifactError, match=message):
        Session(model)


def test_the_whole_one_runs(artifact: onnx.ModelProto, graphs: ModuleType) -> None:
    assert len(Session(artifact).run(graphs.inputs_of(artifact))) == 2


def test_an_input_of_another_type_than_the_program_reads(artifact: onnx.ModelProto, graphs: ModuleType) -> None:
    model = onnx.ModelProto.FromString(artifact.SerializeToString())
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(InputError, match="image is uint8 when it runs, and npukit_0 is compiled for int8"):
        Session(model).run(graphs.inputs_of(model))


def test_programs_are_held_to_a_limit_of_memory_together(artifact: onnx.ModelProto) -> None:
    """Each of the two fits."""
    sizes = [program.host_bytes for program in programs_of(artifact).values()]
    assert len(sizes) == 2
    Session(artifact, limits=Limits(memory=sum(sizes)))
    with pytest.raises(UsageError, match="the model's 2 programs take 1 MiB of host memory together, above the limit"):
        Session(artifact, limits=Limits(memory=sum(sizes) - 1))
    with pytest.raises(ArtifactError, match="the model's 2 programs take 1 MiB of host memory together"):
        Executor(
            artifact, SimDevice(next(iter(programs_of(artifact).values())).config), limits=Limits(memory=max(sizes))
        )


def test_inputs_are_held_to_a_limit_of_memory(artifact: onnx.ModelProto) -> None:
    model = onnx.ModelProto.FromString(artifact.SerializeToString())
    model.graph.input.append(helper.make_tensor_value_info("large", TensorProto.FLOAT, [1 << 40, 3]))
    with pytest.raises(
        UsageError, match=r"the model's inputs take \d+ MiB of host memory, above the limit of 1024 MiB"
    ):
        Session(model)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 1 << 20
    assert Session(model).inputs[1].name == "large"
    with pytest.raises(UsageError, match=r"take 13 MiB of host memory, above the limit of 12 MiB"):
        Session(model, limits=Limits(memory=12 << 20))
