"""TFLite files: read, written, and refused with one sentence."""

import pytest
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.tflite.importer import onnx_model
from npukit.compiler.frontends.tflite.model import TfliteModel, TfliteOperator, TfliteQuantization, TfliteTensor
from npukit.compiler.frontends.tflite.reader import read_model
from npukit.compiler.frontends.tflite.writer import write_model
from npukit.driver.executor import ArtifactError

from npukit import Session
from tests.tflite_models import OPERATORS, random_inputs, random_model

_SCALE = TfliteQuantization((0.5,), (3,))


def _add(**changes: object) -> TfliteModel:
    tensors = [TfliteTensor(name, (1, 4), "INT8", _SCALE) for name in ("a", "b", "y")]
    given = {
        "tensors": tuple(tensors), "operators": (TfliteOperator("ADD", (0, 1), (2,), "AddOptions", {}),),
        "inputs": (0, 1), "outputs": (2,),
    }  # fmt: skip
    return TfliteModel(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("op", OPERATORS)
def test_what_is_written_is_read(op: str) -> None:
    model = random_model(op, 5)
    again = read_model(write_model(model))
    assert (again.inputs, again.outputs) == (model.inputs, model.outputs)
    for one, other in zip(model.tensors, again.tensors, strict=True):
        assert (one.name, one.shape, one.type) == (other.name, other.shape, other.type)
        assert one.quantization == other.quantization
        if one.data is None or other.data is None:
            assert one.data is other.data
        else:
            assert (one.data == other.data).all()
    (mine,), (theirs,) = model.operators, again.operators
    assert (mine.op, mine.inputs, mine.outputs) == (theirs.op, theirs.inputs, theirs.outputs)
    assert {name: theirs.options[name] for name in mine.options} == dict(mine.options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_add(outputs=()), "its graph has no output"),
        (_add(inputs=(0, 0)), "its input 0 is a constant, comes twice"),
        (_add(inputs=(0,)), "operator 0, ADD, reads tensor 1, which nothing before it makes"),
        (_add(inputs=(0, 1, 9)), "its input 9 is a constant, comes twice, or does not exist"),
        (_add(operators=(), outputs=(2,)), "its output 2 is made by nothing"),
        (_add(tensors=tuple(TfliteTensor(one, (0, 4), "INT8") for one in "aby")), "tensor 'a' has the shape [0, 4]"),
        (
            _add(tensors=tuple(TfliteTensor(one, (1, 4), "INT8", TfliteQuantization((-1.0,), (0,))) for one in "aby")),
            "tensor 'a' has the scale -1; a positive number is supported",
        ),
        (
            _add(tensors=(TfliteTensor("a", (1, 4), "INT8", TfliteQuantization((1.0,) * 3, (0,))),)),
            "tensor 'a' of the shape [1, 4] has 3 scales along axis 0",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(model: TfliteModel, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_model(write_model(model), "model.tflite")
    assert str(caught.value).startswith(f"model.tflite: {message}")


def test_other_files_are_told_apart() -> None:
    with pytest.raises(ModelError, match="not a TFLite model"):
        read_model(b"\0" * 64)
    data = write_model(_add())
    with pytest.raises(ModelError, match="it is damaged or cut short"):
        read_model(data[:40])


def test_names_that_repeat_or_are_missing() -> None:
    model = _add(tensors=tuple(TfliteTensor("", (1, 4), "INT8", _SCALE) for _ in range(3)))
    graph = onnx_model(write_model(model)).graph
    names = [*(value.name for value in graph.input), graph.output[0].name]
    assert len(set(names)) == 3 and all(names)
    session = Session(write_model(model), "int8-4x4")
    outputs = session.run(dict(zip(names, random_inputs(model, 1), strict=False)))
    assert list(outputs) == names[2:]


def test_a_host_operator_that_the_interpreter_refuses() -> None:
    """LOGISTIC's result has the zero point -128, or TensorFlow Lite Micro refuses it as well."""
    model = _add(operators=(TfliteOperator("LOGISTIC", (0,), (2,)),), inputs=(0,))
    with pytest.raises(ArtifactError, match="LOGISTIC LOGISTIC_0: TensorFlow Lite Micro refuses the model"):
        Session(write_model(model), "int8-4x4")
