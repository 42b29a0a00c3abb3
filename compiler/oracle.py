"""What ONNX Runtime itself would compute in integers: read from its optimised graph."""

import tempfile
from pathlib import Path

import onnx
import onnxruntime
from npukit.compiler.errors import ModelError
from npukit.driver.host import HostError, open_session, session_options

__all__ = ["integer_tensors"]


def integer_tensors(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> operator that writes it, over ONNX Runtime's optimised graph.

    Raises:
        ModelError: when ONNX Runtime refuses the model.
    """
    options = session_options()
    # the extended level has all fusions; the layout level above it only renames tensors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        try:
            open_session(model, options)
        except HostError as error:
            raise ModelError(f"ONNX Runtime refuses the model: {error}") from None
        optimised = onnx.load(path, load_external_data=False)
    return {name: node.op_type for node in optimised.graph.node for name in node.output if name}
