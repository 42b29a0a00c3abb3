"""TensorFlow Lite Micro as the oracle of models that came as TFLite files."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import onnx
from numpy.typing import NDArray

from npukit.compiler.frontends.tflite.importer import tensor_numbers
from npukit.defined import Definition
from npukit.driver.host import HostError, quantized_tensors
from npukit.driver.tflite_host import TfliteReference
from npukit.errors import UsageError

__all__ = ["TfliteOracle"]


class TfliteOracle:
    """The whole file in TensorFlow Lite Micro's interpreter, which shows every tensor.

    Raises:
        UsageError: the package is missing, or the interpreter refuses the model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        try:
            self._reference = TfliteReference(model)
        except HostError as error:
            raise UsageError(f"--compare: {error}") from None
        self.outputs = self._reference.outputs
        self.tensors = quantized_tensors(model)
        self.definitions: dict[str, Definition] = {}
        self.last: dict[str, NDArray] = {}
        """What the last run returned."""
        self.inputs = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input
        }
        self._numbers = tensor_numbers(model)

    @property
    def name(self) -> str:
        """What it is, for reports."""
        try:
            return f"TensorFlow Lite Micro {version('tflite-micro')}"
        except PackageNotFoundError:
            return "TensorFlow Lite Micro"

    def run(self, inputs: Mapping[str, NDArray], given: Mapping[str, NDArray] | None = None) -> dict[str, NDArray]:
        """Outputs and all tensors by name; none is given, because all are held to the interpreter's own."""
        assert not given
        self.last = self._reference.run(inputs, {name: self._numbers[name] for name in self.tensors})
        return self.last
