"""What ONNX Runtime itself would compute in integers: read from its optimised graph."""

import tempfile
from pathlib import Path

import onnx
import onnxruntime
from npukit.compiler.errors import ModelError
from npukit.driver.host import HostError, open_session, output_values, reference_model, session_options

__all__ = ["integer_tensors", "optimised"]


def integer_tensors(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> operator that writes it, over ONNX Runtime's optimised graph of the reference.

    Raises:
        ModelError: when ONNX Runtime refuses the model.
    """
    try:
        return _operators(reference_model(model))[0]
    except HostError as error:
        raise ModelError(f"ONNX Runtime refuses the model: {error}") from None


def optimised(part: onnx.ModelProto) -> tuple[dict[str, str], dict[str, onnx.ValueInfoProto]]:
    """Tensor name -> operator, over the optimised graph of a part of a model, and its outputs by name.

    Raises:
        HostError: when ONNX Runtime refuses the part, or an output is no tensor.
    """
    operators, session = _operators(part)
    return operators, output_values(session)


def _operators(model: onnx.ModelProto) -> tuple[dict[str, str], onnxruntime.InferenceSession]:
    options = session_options()
    # the extended level has all fusions; the layout level above it only renames tensors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        session = open_session(model, options)
        optimised = onnx.load(path, load_external_data=False)
    return {name: node.op_type for node in optimised.graph.node for name in node.output if name}, session
