"""Make `npukit/zoo/digits.tflite`: the digits network in TensorFlow Lite's int8 arithmetic.

The weights are those of the float model in the zoo; ranges are measured on the digits that are not held out. Weights
have a scale for each output channel. Then the held-out digits are classified, by TensorFlow Lite Micro and on the
simulated machine, which must agree.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from npukit.compiler.frontends.tflite.model import TfliteModel, TfliteOperator, TfliteQuantization, TfliteTensor
from npukit.compiler.frontends.tflite.writer import write_model
from npukit.driver.host import open_session, run_session
from numpy.typing import NDArray
from onnx import numpy_helper
from sklearn.datasets import load_digits

from npukit import Session, zoo
from npukit.compare import oracle_of

FILE = Path(zoo.__file__).parent / "digits.tflite"
_RELU, _NONE = 1, 0


class _Maker:
    """Builds the file's graph, NHWC, beside the float model whose tensors it names."""

    def __init__(self, model: onnx.ModelProto, ranges: dict[str, tuple[float, float]]) -> None:
        self.weights = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        self.ranges = ranges
        self.tensors: list[TfliteTensor] = []
        self.operators: list[TfliteOperator] = []

    def activation(self, name: str, shape: tuple[int, ...], like: int | None = None) -> int:
        """A tensor with the range that was measured, or with the scale of another."""
        if like is not None:
            quantization = self.tensors[like].quantization
        else:
            low, high = self.ranges[name]
            scale = float(np.float32((high - low) / 255))
            quantization = TfliteQuantization((scale,), (int(np.clip(round(-128 - low / scale), -128, 127)),))
        self.tensors.append(TfliteTensor(name, shape, "INT8", quantization))
        return len(self.tensors) - 1

    def constants(self, name: str, values: NDArray, source: int) -> tuple[int, int]:
        """Weights, of whose first axis each output has a scale, and the bias."""
        largest = np.abs(values).reshape(len(values), -1).max(axis=1)
        scales = np.maximum(largest, 1e-6).astype(np.float32) / np.float32(127)
        shape = (-1, *(1,) * (values.ndim - 1))
        whole = np.clip(np.rint(values / scales.reshape(shape)), -127, 127).astype(np.int8)
        given = self.tensors[source].quantization
        assert given is not None
        units = given.scale[0] * scales.astype(np.float64)
        bias = np.rint(self.weights[f"{name}/bias"] / units).astype(np.int32)
        zeros = (0,) * len(values)
        for what, data, quantization in (
            ("weight", whole, TfliteQuantization(tuple(map(float, scales)), zeros)),
            ("bias", bias, TfliteQuantization(tuple(float(np.float32(one)) for one in units), zeros)),
        ):
            kind = "INT8" if what == "weight" else "INT32"
            self.tensors.append(TfliteTensor(f"{name}/{what}", data.shape, kind, quantization, data))
        return len(self.tensors) - 2, len(self.tensors) - 1

    def conv(self, name: str, source: int, result: str, activation: int) -> int:
        """A convolution of 3 by 3 whose image keeps its size."""
        values = self.weights[f"{name}/weight"].transpose(0, 2, 3, 1)
        weights, bias = self.constants(name, values, source)
        made = self.activation(result, (*self.tensors[source].shape[:3], len(values)))
        options = {"Padding": 0, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": activation}
        self.operators.append(TfliteOperator("CONV_2D", (source, weights, bias), (made,), "Conv2DOptions", options, 3))
        return made

    def block(self, name: str, source: int) -> int:
        """Two convolutions, and the addition of what they read."""
        inner = self.conv(f"{name}/conv1", source, f"{name}/conv1/relu", _RELU)
        last = self.conv(f"{name}/conv2", inner, f"{name}/conv2/conv", _NONE)
        made = self.activation(f"{name}/relu", self.tensors[source].shape)
        options = {"FusedActivationFunction": _RELU}
        self.operators.append(TfliteOperator("ADD", (last, source), (made,), "AddOptions", options, 2))
        return made

    def model(self) -> TfliteModel:
        """All of it."""
        image = self.activation("image", (1, 8, 8, 1))
        first = self.block("block1", self.conv("stem", image, "stem/relu", _RELU))
        pooled = self.activation("pool/maxpool", (1, 4, 4, 24), like=first)
        options = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
        self.operators.append(TfliteOperator("MAX_POOL_2D", (first,), (pooled,), "Pool2DOptions", options, 2))
        second = self.block("block2", self.conv("widen", pooled, "widen/relu", _RELU))
        axes = np.array([1, 2], np.int32)
        self.tensors.append(TfliteTensor("axes", axes.shape, "INT32", None, axes))
        mean = self.activation("head/globalaveragepool", (1, 40))
        self.operators.append(
            TfliteOperator("MEAN", (second, len(self.tensors) - 2), (mean,), "ReducerOptions", {"KeepDims": False}, 2)
        )
        weights, bias = self.constants("head", self.weights["head/weight"], mean)
        logits = self.activation("logits", (1, 10))
        self.operators.append(
            TfliteOperator("FULLY_CONNECTED", (mean, weights, bias), (logits,), "FullyConnectedOptions", {}, 4)
        )
        return TfliteModel(
            tuple(self.tensors), tuple(self.operators), (image,), (logits,), "digits; made by examples/digits_tflite.py"
        )


def _ranges(model: onnx.ModelProto, images: NDArray[np.float32]) -> dict[str, tuple[float, float]]:
    """The least and the greatest number in each tensor over some images; each range holds 0."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output]
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    session = open_session(copy)
    found = {"image": (0.0, 1.0)}
    for image in images:
        for name, values in run_session(session, names, {"image": image}).items():
            low, high = found.get(name, (0.0, 0.0))
            found[name] = min(low, float(values.min())), max(high, float(values.max()))
    return found


def main() -> int:
    """Write the file, and say how many of the held-out digits it classifies right."""
    images, labels, indices = zoo.digits_heldout()
    pixels = np.asarray(load_digits(return_X_y=True)[0], np.float32)
    everything = pixels.reshape(-1, 1, 1, 8, 8) / np.float32(16)
    rest = np.setdiff1d(np.arange(len(everything)), indices)
    model = onnx.load_from_string(zoo.load("digits", "fp32"))
    data = write_model(_Maker(model, _ranges(model, everything[rest])).model())
    FILE.write_bytes(data)
    session = Session(data, "int8-8x8", fallback="none")
    assert session.compilation is not None
    oracle, right, differ = oracle_of(session.compilation.source), 0, 0
    for image, label in zip(images, labels, strict=True):
        whole = np.clip(np.rint(image.reshape(1, 8, 8, 1) * 255) - 128, -128, 127).astype(np.int8)
        (found,) = session.run({"image": whole}).values()
        differ += not np.array_equal(found, oracle.run({"image": whole})["logits"])
        right += int(found.argmax() == label)
    print(f"wrote {FILE.name}: {len(data)} bytes; {right} of {len(labels)} right, {differ} differ from the reference")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
