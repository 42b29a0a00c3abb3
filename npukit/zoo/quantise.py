"""Static quantisation by ONNX Runtime's quantiser."""

import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime import quantization

__all__ = ["quantise"]


class _Images(quantization.CalibrationDataReader):
    def __init__(self, name: str, data: NDArray[np.float32]) -> None:
        self._feeds = iter([{name: data[k : k + 1]} for k in range(len(data))])

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:  # type: ignore[override]
        return next(self._feeds, None)


def quantise(model: onnx.ModelProto, calibration: NDArray[np.float32]) -> onnx.ModelProto:
    """A QDQ model: int8 activations, int8 weights with a scale for each output channel.

    Args:
        model: a float model with one input.
        calibration: its input [images, ...] for the ranges of the activations.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        level = logging.getLogger().level
        logging.getLogger().setLevel(logging.ERROR)  # it advises a pre-processing that these models do not need
        try:
            quantization.quantize_static(
                source,
                target,
                _Images(model.graph.input[0].name, calibration),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                activation_type=quantization.QuantType.QInt8,
                weight_type=quantization.QuantType.QInt8,
            )
        finally:
            logging.getLogger().setLevel(level)
        return onnx.load(target)
