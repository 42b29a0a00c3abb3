"""Train, quantise and measure the `digits` network of the zoo.

    python examples/train_digits.py                       # writes build/digits/
    python examples/train_digits.py --output npukit/zoo   # renews the files of the package
    python examples/train_digits.py --check npukit/zoo    # measures them again; needs no torch

The network is a small residual CNN on scikit-learn's 8x8 digits. It is trained in torch with batch
normalisation, which is folded into the convolutions; the ONNX graph is written directly from the folded
weights and quantised by ONNX Runtime to QDQ int8: per-channel weights, asymmetric activations, so that a
Relu costs nothing (its output has zero point -128 and the saturation at -128 is the Relu).

One fifth of the images is held out: it takes part in neither training nor calibration, and no choice
(epochs, learning rate, calibration method) looks at it. The last epoch's weights are the result.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import npukit  # noqa: F401  # isort: skip  # before ONNX Runtime, whose telemetry it turns off
import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

__all__ = [
    "CLASSES",
    "Digits",
    "Weights",
    "accuracy",
    "build_model",
    "load_data",
    "logits",
    "main",
    "optimised_operators",
    "quantise",
    "report",
    "save",
    "shifted",
    "train",
    "whole_model",
]

Weights = Mapping[str, NDArray[np.float32]]

HELDOUT_IMAGES = 360
SPLIT_SEED = 8
OPSET = 17
IR_VERSION = 8

# What ONNX Runtime must turn the QDQ graph into. A further QuantizeLinear or DequantizeLinear would mean that
# some operator runs in float, and that the zoo's network is not an int8 network.
INTEGER_OPERATORS = {
    "QuantizeLinear": 1,
    "DequantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearAdd": 2,
    "QLinearGlobalAveragePool": 1,
    "QGemm": 1,
}

SOURCE = (
    "scikit-learn load_digits: test part of 'Optical Recognition of Handwritten Digits', "
    "E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998. "
    "heldout: indices into load_digits. accuracy: on heldout, by ONNX Runtime. "
    "Made by examples/train_digits.py"
)


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A 3x3 convolution with stride 1 and padding 1; the map keeps its size."""

    name: str
    channels_in: int
    channels_out: int


# Neither 24 nor 40 is a multiple of 16: arrays of 16 rows and columns have a ragged last tile.
CONVOLUTIONS = (
    Convolution(name="stem", channels_in=1, channels_out=24),
    Convolution(name="block1/conv1", channels_in=24, channels_out=24),
    Convolution(name="block1/conv2", channels_in=24, channels_out=24),
    Convolution(name="widen", channels_in=24, channels_out=40),
    Convolution(name="block2/conv1", channels_in=40, channels_out=40),
    Convolution(name="block2/conv2", channels_in=40, channels_out=40),
)
CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Digits:
    """The data set: images float32 [N, 1, 8, 8] in 0..1, labels int64 [N], and the split into two parts."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    training: NDArray[np.int64]
    heldout: NDArray[np.int64]


def load_data() -> Digits:
    """Load the digits and hold out HELDOUT_IMAGES of them, stratified by label."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        sys.exit("train_digits.py: scikit-learn is missing: pip install 'npukit[demo]'")
    pixels, labels = load_digits(return_X_y=True)
    training, heldout = train_test_split(
        np.arange(len(labels)), test_size=HELDOUT_IMAGES, stratify=labels, random_state=SPLIT_SEED
    )
    return Digits(
        images=(pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8),
        labels=np.asarray(labels).astype(np.int64),
        training=np.sort(training),
        heldout=np.sort(heldout),
    )


def shifted(images: Any) -> Any:
    """Each image of a torch tensor [N, 1, 8, 8] moved by up to one pixel either way, the border background."""
    import torch  # pyright: ignore[reportMissingImports]

    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    offsets = torch.randint(0, 3, (len(images), 2)).tolist()
    return torch.stack([image[:, dy : dy + 8, dx : dx + 8] for image, (dy, dx) in zip(padded, offsets, strict=True)])


def train(data: Digits, *, epochs: int, seed: int, batch: int = 32) -> dict[str, NDArray[np.float32]]:
    """Train on ``data.training`` and return the weights with batch normalisation folded in.

    Returns:
        For each convolution ``NAME/weight`` [out, in, 3, 3] and ``NAME/bias`` [out]; ``head/weight``
        [10, 40] and ``head/bias`` [10]. All float32.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
        from torch import nn  # pyright: ignore[reportMissingImports]
        from torch.nn import functional  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit("train_digits.py: torch is missing: pip install 'npukit[train]'")

    torch.set_num_threads(1)  # Sums in a fixed order: the same weights again on the same machine.
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)

    convolutions = {
        conv.name: nn.Conv2d(conv.channels_in, conv.channels_out, 3, padding=1, bias=False) for conv in CONVOLUTIONS
    }
    norms = {conv.name: nn.BatchNorm2d(conv.channels_out) for conv in CONVOLUTIONS}
    head = nn.Linear(CONVOLUTIONS[-1].channels_out, CLASSES)
    network = nn.ModuleList([*convolutions.values(), *norms.values(), head])

    def layer(name: str, x: torch.Tensor) -> torch.Tensor:
        return norms[name](convolutions[name](x))

    def block(name: str, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(layer(f"{name}/conv1", x))
        return functional.relu(layer(f"{name}/conv2", inner) + x)

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = block("block1", functional.relu(layer("stem", x)))
        x = functional.max_pool2d(x, 2)
        x = block("block2", functional.relu(layer("widen", x)))
        return head(x.mean(dim=(2, 3)))

    images = torch.from_numpy(data.images[data.training])
    labels = torch.from_numpy(data.labels[data.training])
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    network.train()
    for epoch in range(epochs):
        order = torch.randperm(len(images))
        total = 0.0
        for start in range(0, len(order) - batch + 1, batch):
            chosen = order[start : start + batch]
            loss = functional.cross_entropy(forward(shifted(images[chosen])), labels[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        if epoch % 10 == 9 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:3d}/{epochs}: training loss {total / (len(order) // batch):.4f}")

    network.eval()
    weights: dict[str, NDArray[np.float32]] = {}
    with torch.no_grad():
        for name, norm in norms.items():
            assert norm.running_mean is not None and norm.running_var is not None
            gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            weights[f"{name}/weight"] = (convolutions[name].weight * gain[:, None, None, None]).numpy()
            weights[f"{name}/bias"] = (norm.bias - norm.running_mean * gain).numpy()
        weights["head/weight"] = head.weight.numpy().copy()
        weights["head/bias"] = head.bias.numpy().copy()
        expected = forward(torch.from_numpy(data.images)).numpy()

    error = np.abs(logits(build_model(weights).SerializeToString(), data.images) - expected).max()
    if error > 1e-3:
        raise RuntimeError(f"folded ONNX model must agree with torch within 1e-3, not {error:.3g}")
    return weights


def build_model(weights: Weights) -> onnx.ModelProto:
    """The float network as an ONNX model: `image` float32 [1, 1, 8, 8] to `logits` float32 [1, 10].

    Args:
        weights: as :func:`train` returns them.
    """
    nodes: list[onnx.NodeProto] = []

    def add(operator: str, name: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        result = output or f"{name}/{operator.lower()}"
        nodes.append(helper.make_node(operator, list(inputs), [result], name=f"{name}/{operator}", **attributes))
        return result

    def convolution(name: str, x: str) -> str:
        return add(
            "Conv", name, x, f"{name}/weight", f"{name}/bias",
            kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1],
        )  # fmt: skip

    def block(name: str, x: str) -> str:
        inner = add("Relu", f"{name}/conv1", convolution(f"{name}/conv1", x))
        return add("Relu", name, add("Add", name, convolution(f"{name}/conv2", inner), x))

    x = block("block1", add("Relu", "stem", convolution("stem", "image")))
    x = add("MaxPool", "pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = block("block2", add("Relu", "widen", convolution("widen", x)))
    x = add("Flatten", "head", add("GlobalAveragePool", "head", x), axis=1)
    add("Gemm", "head", x, "head/weight", "head/bias", output="logits", transB=1)

    # The newest opset and file version would shut out runtimes that are only a little older.
    return whole_model("digits", nodes, weights, (OPSET, IR_VERSION), "train_digits.py")


def whole_model(
    name: str, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, NDArray], versions: tuple[int, int],
    producer: str,
) -> onnx.ModelProto:  # fmt: skip
    """A checked model of nodes that take `image` float32 [1, 1, 8, 8] to `logits` float32 [1, 10].

    versions: of the operator set, and of the file.
    """
    graph = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(np.ascontiguousarray(one), constant) for constant, one in constants.items()],
    )
    opsets = [helper.make_opsetid("", versions[0])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=versions[1], producer_name=producer)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    onnx.checker.check_model(model, full_check=True)
    return model


class _Calibration(CalibrationDataReader):
    """Feeds images [N, 1, 8, 8] one by one."""

    def __init__(self, images: NDArray[np.float32]):
        self._images: Iterator[NDArray[np.float32]] = iter(images)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:  # type: ignore[override]
        image = next(self._images, None)
        return None if image is None else {"image": image[None]}


def quantise(model: onnx.ModelProto, images: NDArray[np.float32]) -> onnx.ModelProto:
    """QDQ int8 version of ``model``.

    Args:
        model: as :func:`build_model` returns it.
        images: float32 [N, 1, 8, 8]; the minima and maxima over them are the activations' ranges.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "fp32.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        logging.disable(logging.WARNING)  # The quantiser advises shape inference, which build_model has done.
        try:
            quantize_static(
                source,
                target,
                _Calibration(images),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                extra_options={"ActivationSymmetric": False, "WeightSymmetric": True},
            )
        finally:
            logging.disable(logging.NOTSET)
        result = onnx.load(target)
    del result.opset_import[:]  # The quantiser imports domains that the graph does not use.
    result.opset_import.append(helper.make_opsetid("", OPSET))
    result.producer_name, result.producer_version = model.producer_name, ""
    del result.metadata_props[:]
    del result.graph.value_info[:]  # They still name the tensors before each Relu, which are gone.
    result = onnx.shape_inference.infer_shapes(result, strict_mode=True, data_prop=True)
    onnx.checker.check_model(result, full_check=True)
    return result


def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Else ONNX Runtime turns int8 activations into uint8 on some processors.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.log_severity_level = 3
    return options


def logits(model: bytes, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Outputs [N, 10] of a serialised model for images [N, 1, 8, 8], by ONNX Runtime on the CPU."""
    session = ort.InferenceSession(model, _options(), providers=["CPUExecutionProvider"])
    return np.concatenate([np.asarray(session.run(["logits"], {"image": image[None]})[0]) for image in images])


def optimised_operators(model: bytes) -> Counter[str]:
    """How often each operator occurs in the graph that ONNX Runtime executes for ``model``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "optimised.onnx")
        options = _options()
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load(path).graph.node)


def accuracy(model: bytes, data: Digits) -> float:
    """Share of the held-out images that a serialised model classifies correctly."""
    predicted = logits(model, data.images[data.heldout]).argmax(axis=1)
    return float((predicted == data.labels[data.heldout]).mean())


def record(data: Digits, measured: Mapping[str, float]) -> str:
    """Text of digits.json: the held-out image numbers, the accuracies and the source of the images."""
    fields = {
        "classes": CLASSES,
        "accuracy": {precision: round(share, 4) for precision, share in measured.items()},
        "source": SOURCE,
        "heldout": data.heldout.tolist(),
    }
    return "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items()) + "\n}\n"


def check(folder: Path, data: Digits) -> None:
    """Measure the files in ``folder`` again; exit with a message unless digits.json says the same."""
    models = {"fp32": folder / "digits_fp32.onnx", "int8": folder / "digits.onnx"}
    measured = {precision: accuracy(path.read_bytes(), data) for precision, path in models.items()}
    report(measured)
    verify_integer(models["int8"].read_bytes())
    if (folder / "digits.json").read_text(encoding="utf-8") != record(data, measured):
        sys.exit(f"train_digits.py: {folder / 'digits.json'} does not match what was measured")


def report(measured: Mapping[str, float]) -> None:
    for precision, share in measured.items():
        print(f"accuracy {precision}: {100 * share:.2f} % of {HELDOUT_IMAGES} held-out images")


def verify_integer(model: bytes) -> None:
    """Exit with a message unless ONNX Runtime executes the whole network in integers."""
    operators = optimised_operators(model)
    print("ONNX Runtime executes:", ", ".join(f"{n} {name}" for name, n in sorted(operators.items())))
    for name, count in INTEGER_OPERATORS.items():
        if operators[name] != count:
            sys.exit(f"train_digits.py: ONNX Runtime must execute {count} {name}, not {operators[name]}")


def main(arguments: list[str] | None = None) -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(
        description="Train the digits network, quantise it to int8 and measure both on held-out images."
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/digits"),
        metavar="DIR",
        help="folder for digits.onnx, digits_fp32.onnx and digits.json (default: %(default)s)",
    )
    parser.add_argument("--epochs", type=int, default=60, help="passes over the training images (%(default)s)")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="seed of weights, order and shifts (%(default)s); the split is fixed",
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="DIR",
        help="train nothing; measure the files in DIR and compare digits.json",
    )
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, not {options.epochs}")

    data = load_data()
    if options.check is not None:
        check(options.check, data)
        return

    start = time.perf_counter()
    weights = train(data, epochs=options.epochs, seed=options.seed)
    print(f"trained in {time.perf_counter() - start:.0f} s")
    float_model = build_model(weights)
    int8_model = quantise(float_model, data.images[data.training])
    models = {"fp32": float_model.SerializeToString(), "int8": int8_model.SerializeToString()}
    measured = {precision: accuracy(model, data) for precision, model in models.items()}
    report(measured)
    verify_integer(models["int8"])

    save(options.output, "digits", models, record(data, measured))


def save(folder: Path, name: str, models: Mapping[str, bytes], text: str) -> None:
    """Write a network's files: both models, and the record of their accuracies."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}_fp32.onnx": models["fp32"], f"{name}.onnx": models["int8"], f"{name}.json": text.encode()}
    for file, content in files.items():
        (folder / file).write_bytes(content)
        print(f"wrote {folder / file}, {len(content)} bytes")


if __name__ == "__main__":
    main()
