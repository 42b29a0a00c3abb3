"""import: what is no usable model, and what the graph looks like after it."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.importer import MAX_IR_VERSION, MAX_OPSET, ImportPass, load_model, with_shapes
from npukit.compiler.pipeline import check_model
from npukit.driver.executor import InputError
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import Session, zoo


def model_of(graphs, name="image"):
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((2, 3, 6, 6), name=name), 4))
    return graph.model()


def test_every_source_gives_the_same_model(tmp_path) -> None:
    data = zoo.load("digits")
    (tmp_path / "m.onnx").write_bytes(data)
    models = [load_model(data), load_model(tmp_path / "m.onnx"), load_model(str(tmp_path / "m.onnx"))]
    assert len({model.SerializeToString(deterministic=True) for model in models}) == 1
    assert load_model(models[0]) is models[0]


@pytest.mark.parametrize("content", [b"", b"text", bytes(9)])
def test_not_a_model(content) -> None:
    with pytest.raises(ModelError, match="the model is not an ONNX model, or it is cut short"):
        load_model(content)


def test_text_that_is_none(graphs) -> None:
    """protobuf reads any bytes as a string; later they would fail anywhere."""
    data = model_of(graphs, "picture").SerializeToString().replace(b"picture", b"pic\xff\xffre")
    with pytest.raises(ModelError, match=r"the model is damaged: onnx\.\S+ b'pic.*' is not text"):
        load_model(data)


def test_external_data_that_is_missing(graphs, tmp_path) -> None:
    model = model_of(graphs)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    load_model(tmp_path / "m.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"m\.onnx: external data cannot be read"):
        load_model(tmp_path / "m.onnx")


def test_external_data_without_a_folder(graphs, tmp_path, monkeypatch) -> None:
    """They would be looked for in the working folder, whatever lies there under that name."""
    model = model_of(graphs)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    message = "lie in another file, and a model that comes as bytes or as a proto has no folder: give the model's path"
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(ModelError, match=message):
            load_model(source)
        with pytest.raises(ModelError, match=message):
            Session(source)
    assert load_model(onnx.load(path)).graph.initializer[0].raw_data


def test_shape_inference_that_crashes(capfd) -> None:
    """ONNX ends the process at a Slice of a tensor that its shape inference takes for one of negative width."""
    starts, ends, axes = (numpy_helper.from_array(np.array([value], np.int64), name) for name, value in
                          (("starts", -2), ("ends", 1000), ("axes", 3)))  # fmt: skip
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pooled"], kernel_shape=[1, 9]),
        helper.make_node("Slice", ["pooled", "starts", "ends", "axes"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 1])
    graph = helper.make_graph(
        nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [starts, ends, axes]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match=r"^ONNX's shape inference crashes on the model \(SIGABRT\)$"):
        check_model(model, PRESETS["int8-4x4"])
    assert capfd.readouterr() == ("", "")


def test_versions(graphs) -> None:
    model = model_of(graphs)
    ImportPass({}).run(model)
    model.opset_import[0].version = MAX_OPSET + 1
    with pytest.raises(ModelError, match=f"uses opset {MAX_OPSET + 1}; at most {MAX_OPSET} is supported: export it"):
        ImportPass({}).run(model)
    model.opset_import[0].version = 21
    model.ir_version = MAX_IR_VERSION + 1
    with pytest.raises(ModelError, match=f"IR version {MAX_IR_VERSION + 1}; at most {MAX_IR_VERSION}"):
        ImportPass({}).run(model)


def test_shapes(graphs) -> None:
    model = model_of(graphs)
    dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    dim.dim_param = model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(ModelError, match=r"shape \[batch, 3, 6, 6\]; .*--input-shape image=1,3,6,6$"):
        with_shapes(model, {})
    fixed = with_shapes(model, {"image": (5, 3, 6, 6)})
    assert fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5
    assert dim.dim_param == "batch", "the model itself stays as it is"
    shapes = [node.outputs[0].shape for node in ImportPass({"image": (5, 3, 6, 6)}).run(model).model.graph]
    assert {tuple(shape) for shape in shapes if shape is not None} >= {(5, 3, 6, 6), (5, 4, 4, 4)}
    dim.ClearField("dim_param")
    with pytest.raises(ModelError, match=r"shape \[\?, 3, 6, 6\]"):
        with_shapes(model, {})
    dim.dim_value = 0
    with pytest.raises(ModelError, match="has no elements"):
        with_shapes(model, {})


def test_initializers_among_the_inputs(graphs) -> None:
    """Files of early ONNX versions list initializers as inputs; these are no inputs to give."""
    model = model_of(graphs)
    model.ir_version = 3  # from 4 on, such an initializer may change, so that nothing folds
    for tensor in model.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims))
        model.graph.input.append(value)
    graphs.agree(model, "int8-4x4", inputs=graphs.inputs_of(model_of(graphs)))


def test_nodes_get_names_of_their_own(graphs) -> None:
    model = model_of(graphs)
    for node in model.graph.node:
        node.name = ""
    model.graph.node[0].name = "Conv_6"
    conv = [node.op_type for node in model.graph.node].index("Conv")
    names = [node.name for node in ImportPass({}).run(model).model.graph]
    assert len(set(names)) == len(names)
    given = names[conv]
    assert names[0] == "Conv_6" and given is not None and given.startswith(f"Conv_{conv}")


def test_invalid_graphs(graphs) -> None:
    model = model_of(graphs)
    model.graph.node[-1].input[0] = "nowhere"
    with pytest.raises(ModelError, match="the model is not valid ONNX: .*nowhere"):
        ImportPass({}).run(model)
    model = model_of(graphs)
    model.graph.initializer[0].raw_data += b"12345"
    with pytest.raises(ModelError, match="ONNX Runtime refuses the model: .*scale_.*raw_data size"):
        check_model(model, PRESETS["int8-4x4"])
    model.graph.initializer[0].raw_data = b"1"
    with pytest.raises(ModelError, match="the model is not valid ONNX: .*scale_.*raw_data size .* is too small"):
        check_model(model, PRESETS["int8-4x4"])


def test_sequence_input(graphs) -> None:
    model = model_of(graphs)
    model.graph.input.append(helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, [1]))
    with pytest.raises(ModelError, match="input more is sequence; only tensors are supported"):
        with_shapes(model, {})


def test_the_source_model_is_not_changed(graphs) -> None:
    model = model_of(graphs)
    before = model.SerializeToString(deterministic=True)
    ImportPass({}).run(model)
    graphs.agree(model, "int8-4x4", inputs={"image": np.zeros((2, 3, 6, 6), np.float32)})
    assert model.SerializeToString(deterministic=True) == before


def test_bfloat16_tensors(graphs) -> None:
    """A model of bfloat16 tensors is the one of the same numbers in fp32: constants, casts, types, inner graphs."""
    random = np.random.default_rng(3)
    numbers = {
        "weights": random.standard_normal((8, 3, 3, 3)).astype(ml_dtypes.bfloat16),
        "bias": random.standard_normal(8).astype(ml_dtypes.bfloat16),
    }

    def model(kind: type, code: int) -> onnx.ModelProto:
        constant = numpy_helper.from_array(np.full((8, 1, 1), 0.5, ml_dtypes.bfloat16).astype(kind), "half")
        nodes = [
            helper.make_node("Cast", ["x"], ["cast"], to=code),
            helper.make_node("Conv", ["cast", "weights", "bias"], ["conv"], pads=[1, 1, 1, 1]),
            helper.make_node("Constant", [], ["half"], value=constant),
            helper.make_node("Mul", ["conv", "half"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes, "g",
            [helper.make_tensor_value_info("x", code, [1, 3, 6, 5])],
            [helper.make_tensor_value_info("y", code, [1, 8, 6, 5])],
            [numpy_helper.from_array(value.astype(kind), name) for name, value in numbers.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)

    halves = model(ml_dtypes.bfloat16, onnx.TensorProto.BFLOAT16)
    assert halves.graph.initializer[0].data_type == onnx.TensorProto.BFLOAT16
    image = random.standard_normal((1, 3, 6, 5)).astype(ml_dtypes.bfloat16)
    outputs = []
    for one in (halves, model(np.float32, onnx.TensorProto.FLOAT)):
        session = Session(one, "bf16-4x4")
        assert len(session.programs) == 1
        for array in (image, image.astype(np.float32)):
            outputs.append(session.run({"x": array})["y"])
    assert all(one.dtype == np.float32 and np.array_equal(one, outputs[0]) for one in outputs)
    assert halves.graph.initializer[0].data_type == onnx.TensorProto.BFLOAT16  # the caller's is as it was
    with pytest.raises(InputError, match="must be float32, not float16"):
        Session(halves, "bf16-4x4").run({"x": image.astype(np.float16)})
