"""The oracle: what ONNX Runtime would compute of a model, and how, read from the graphs that it makes of it."""

import tempfile
from functools import cached_property
from pathlib import Path

import onnx
from npukit.compiler.errors import ModelError
from npukit.driver.first_look import CrashError, first_look, layout_look, optimise
from npukit.driver.host import HostError, output_values, reference_model

__all__ = ["GraphOracle", "HostError"]

COMPLETE_OPSET = 27
"""The newest whose QuantizeLinear and DequantizeLinear ONNX Runtime 1.32 has."""


class GraphOracle:
    """ONNX Runtime on a model, and on parts of it. What it is asked of the whole model, it is asked once."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._reference = reference_model(model)

    @cached_property
    def operators(self) -> dict[str, str]:
        """Tensor name -> operator that writes it, over the optimised graph, in which quantised nodes are fused.

        Raises:
            ModelError: when ONNX Runtime refuses the model, or crashes on it.
        """
        try:
            return first_look(self._reference)
        except CrashError as error:
            raise ModelError(str(error)) from None
        except HostError as error:
            raise ModelError(f"ONNX Runtime refuses the model: {error}{self._advice}") from None

    @property
    def _advice(self) -> str:
        """What to do about a model that is newer than what ONNX Runtime has all operators of."""
        opset = max((one.version for one in self._reference.opset_import if one.domain in ("", "ai.onnx")), default=0)
        if opset <= COMPLETE_OPSET:
            return ""
        return (
            f"; the model uses opset {opset}, of which ONNX Runtime does not have all operators: convert it to opset "
            f"{COMPLETE_OPSET} with onnx.version_converter, or export it so"
        )

    @cached_property
    def layout(self) -> dict[str, str]:
        """Tensor name -> how it is computed, over the graph that runs, in which floats may have channels in blocks.

        Raises:
            HostError: when ONNX Runtime refuses the model.
        """
        return layout_look(self._reference)

    @staticmethod
    def operators_of(part: onnx.ModelProto) -> tuple[dict[str, str], dict[str, onnx.ValueInfoProto]]:
        """The same as `operators` of a part of the model alone, and its outputs by name.

        Raises:
            HostError: when ONNX Runtime refuses the part, or an output is no tensor.
        """
        with tempfile.TemporaryDirectory() as folder:
            operators, session = optimise(part, Path(folder))
        return operators, output_values(session)

    @staticmethod
    def layout_of(part: onnx.ModelProto) -> dict[str, str]:
        """The same as `layout` of a part of the model alone.

        Raises:
            HostError: when ONNX Runtime refuses the part.
        """
        return layout_look(part)
