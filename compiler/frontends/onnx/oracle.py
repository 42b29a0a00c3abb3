"""What ONNX Runtime itself would compute in integers: read from its optimised graph."""

import tempfile
from pathlib import Path

import onnx
from npukit.compiler.errors import ModelError
from npukit.driver.first_look import CrashError, first_look, optimise
from npukit.driver.host import HostError, output_values, reference_model

__all__ = ["integer_tensors", "optimised"]


def integer_tensors(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> operator that writes it, over ONNX Runtime's optimised graph of the reference.

    Raises:
        ModelError: when ONNX Runtime refuses the model, or crashes on it.
    """
    try:
        return first_look(reference_model(model))
    except CrashError as error:
        raise ModelError(str(error)) from None
    except HostError as error:
        raise ModelError(f"ONNX Runtime refuses the model: {error}") from None


def optimised(part: onnx.ModelProto) -> tuple[dict[str, str], dict[str, onnx.ValueInfoProto]]:
    """Tensor name -> operator, over the optimised graph of a part of a model, and its outputs by name.

    Raises:
        HostError: when ONNX Runtime refuses the part, or an output is no tensor.
    """
    with tempfile.TemporaryDirectory() as folder:
        operators, session = optimise(part, Path(folder))
    return operators, output_values(session)
