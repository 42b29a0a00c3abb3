"""Static quantisation by ONNX Runtime's quantiser."""

import logging
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
from numpy.typing import NDArray
from onnxruntime import quantization

from npukit.quantisation.products import around_zero

__all__ = ["quantise"]


class _Samples(quantization.CalibrationDataReader):
    def __init__(self, samples: Iterable[Mapping[str, NDArray]]) -> None:
        self._feeds = iter(samples)

    def get_next(self) -> Mapping[str, NDArray] | None:  # type: ignore[override]
        return next(self._feeds, None)


def quantise(model: onnx.ModelProto, calibration: Iterable[Mapping[str, NDArray]]) -> onnx.ModelProto:
    """A QDQ model: int8 activations, int8 weights with a scale for each output channel.

    Args:
        model: a float model.
        calibration: inputs by name, for the ranges of the activations.
    """
    overrides = {name: [{"symmetric": True}] for name in around_zero(model.graph)}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        level = logging.getLogger().level
        logging.getLogger().setLevel(logging.ERROR)  # it advises a pre-processing that these models do not need
        try:
            quantization.quantize_static(
                source,
                target,
                _Samples(calibration),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                activation_type=quantization.QuantType.QInt8,
                weight_type=quantization.QuantType.QInt8,
                extra_options={"TensorQuantOverrides": overrides},
            )
        finally:
            logging.getLogger().setLevel(level)
        return onnx.load(target)
