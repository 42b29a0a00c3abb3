"""ONNX Runtime's static quantiser."""

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import quantization

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.operators import MATCHERS
from npukit.compiler.frontends.onnx.operators.unary import UNARY
from npukit.errors import UsageError
from npukit.quantisation.chains import inner_nodes
from npukit.quantisation.products import around_zero

__all__ = ["CALIBRATIONS", "FORMATS", "TYPES", "QuantiserOptions", "run_quantiser"]

CALIBRATIONS = {
    "minmax": quantization.CalibrationMethod.MinMax,
    "entropy": quantization.CalibrationMethod.Entropy,
    "percentile": quantization.CalibrationMethod.Percentile,
}
FORMATS = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
TYPES = {"int8": quantization.QuantType.QInt8, "uint8": quantization.QuantType.QUInt8}
_WARNINGS, _ERRORS = 2, 3
"""ONNX Runtime's levels of logging, of which the first is its default."""
_OPERATORS = {*MATCHERS, *UNARY}
"""What the machine runs."""


@dataclass(frozen=True)
class QuantiserOptions:
    """How a model is quantised.

    Attributes:
        format: "qdq" or "qoperator".
        calibration: how the range of an activation follows from samples: "minmax", "entropy" or "percentile".
        activations, weights: "int8" or "uint8".
        per_channel: weights have a scale for each output channel.
        exclude: names of nodes that stay float.
        exclude_operators: operators whose nodes stay float.
        exact_scales: in the QDQ form, scales around ConvTranspose and AveragePool are chosen so that their results do
            not depend on the order in which ONNX Runtime adds floats; without that the machine leaves them to it.
    """

    format: str = "qdq"
    calibration: str = "minmax"
    activations: str = "int8"
    weights: str = "int8"
    per_channel: bool = True
    exclude: tuple[str, ...] = ()
    exclude_operators: tuple[str, ...] = ()
    exact_scales: bool = True

    def __post_init__(self) -> None:
        """Raises UsageError for what is not among the choices, or does not go together."""
        choices = (("format", FORMATS), ("calibration", CALIBRATIONS), ("activations", TYPES), ("weights", TYPES))
        for name, known in choices:
            value = getattr(self, name)
            if value not in known:
                raise UsageError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        if self.activations == "int8" and self.weights == "uint8":
            raise UsageError("ONNX Runtime has no uint8 weights for int8 activations: take uint8 activations as well")


class _Samples(quantization.CalibrationDataReader):
    def __init__(self, samples: Sequence[Mapping[str, NDArray]], progress: Callable[[str], None]) -> None:
        self._feeds = iter(samples)
        self._progress, self._count, self._done = progress, len(samples), 0
        self._stdout = sys.stdout

    def get_next(self) -> Mapping[str, NDArray] | None:  # type: ignore[override]
        found = next(self._feeds, None)
        if found is not None:
            self._done += 1
            with contextlib.redirect_stdout(self._stdout):  # not where the calibrators' prints go
                self._progress(f"calibrating: sample {self._done} of {self._count}")
        return found


def run_quantiser(
    model: onnx.ModelProto, samples: Sequence[Mapping[str, NDArray]], options: QuantiserOptions,
    progress: Callable[[str], None],
) -> tuple[onnx.ModelProto, tuple[str, ...]]:  # fmt: skip
    """A quantised model, and the nodes that were left float so that the machine can compute them as one.

    Raises:
        ModelError: unknown names of nodes or operators to exclude, or when the quantiser fails.
    """
    names = {node.name for node in model.graph.node}
    operators = {node.op_type for node in model.graph.node}
    for name in options.exclude:
        if name not in names:
            raise ModelError(f"the model has no node {name!r} to exclude, once constants are folded")
    for name in options.exclude_operators:
        if name not in operators:
            raise ModelError(f"the model has no {name} to exclude; it has {', '.join(sorted(operators))}")
    chosen = sorted((_OPERATORS & operators) - {*options.exclude_operators})
    if not chosen:  # the quantiser would take that for all
        raise ModelError(f"nothing is left to quantise: the model has {', '.join(sorted(operators))}")
    inner = inner_nodes(model.graph)
    reader = _Samples(samples, progress)
    overrides = {name: [{"symmetric": True}] for name in around_zero(model.graph)}
    with tempfile.TemporaryDirectory() as folder, _silence():
        source, target = Path(folder, "float.onnx"), Path(folder, "quantised.onnx")
        onnx.save(model, source)  # of a proto, the quantiser would move the data to files
        try:
            quantization.quantize_static(
                source,
                target,
                reader,
                quant_format=FORMATS[options.format],
                op_types_to_quantize=chosen,
                per_channel=options.per_channel,
                activation_type=TYPES[options.activations],
                weight_type=TYPES[options.weights],
                nodes_to_exclude=[*inner, *options.exclude],
                calibrate_method=CALIBRATIONS[options.calibration],
                extra_options={"TensorQuantOverrides": overrides},
            )
        except Exception as error:  # it raises many classes
            if "scale issue" in str(error):
                reason = "the float model makes numbers of the samples that are not finite, so that they have no range"
                raise ModelError(f"ONNX Runtime's quantiser fails: {reason}; give other data") from None
            raise ModelError(f"ONNX Runtime's quantiser fails: {' '.join(str(error).split())[:300]}") from None
        return onnx.load(target), inner


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without its advice to do beforehand what has been done, and its calibrators' prints."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(_ERRORS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, about ranges of numbers that are not finite
            yield
    finally:
        logging.getLogger().setLevel(level)
        onnxruntime.set_default_logger_severity(_WARNINGS)
