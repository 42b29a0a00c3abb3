"""Train, quantise and measure the `digits-vit` network of the zoo.

    python examples/train_digits_vit.py                       # writes build/digits-vit/
    python examples/train_digits_vit.py --output npukit/zoo   # renews the files of the package
    python examples/train_digits_vit.py --check npukit/zoo    # measures them again; needs no torch

The network is a vision transformer on scikit-learn's 8x8 digits: sixteen patches of two by two pixels, attention, and
the mean of what it makes of them. It is trained in torch, written as ONNX node by node, and quantised as `npukit
quantize` does it. Images, split and measure are those of `train_digits.py`.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import npukit  # isort: skip  # before ONNX Runtime, whose telemetry it turns off
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from train_digits import CLASSES, Digits, Weights, accuracy, load_data, logits, report, save, shifted, whole_model

from npukit.zoo.build import IR_VERSION, OPSET

__all__ = ["build_model", "main", "train"]

NAME = "digits-vit"
# Neither 40 nor 10 is a multiple of 16 or 8: arrays have ragged last tiles.
WIDTH, HEADS, LAYERS, PATCH = 40, 4, 2, 2
HEAD = WIDTH // HEADS
STEPS = (8 // PATCH) ** 2
EPSILON = 1e-5


def train(data: Digits, *, epochs: int, seed: int, batch: int = 32) -> dict[str, NDArray[np.float32]]:
    """Train on ``data.training`` and return the weights, float32, by the names that :func:`build_model` has.

    Matrices are [inputs, outputs].
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
        from torch import nn  # pyright: ignore[reportMissingImports]
        from torch.nn import functional  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit("train_digits_vit.py: torch is missing: pip install 'npukit[train]'")

    torch.set_num_threads(1)  # Sums in a fixed order: the same weights again on the same machine.
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)

    parameters: dict[str, nn.Parameter] = {}

    def linear(name: str, inner: int, outer: int) -> None:
        parameters[f"{name}/weight"] = nn.Parameter(torch.randn(inner, outer) * inner**-0.5)
        parameters[f"{name}/bias"] = nn.Parameter(torch.zeros(outer))

    def norm(name: str) -> None:
        parameters[f"{name}/scale"] = nn.Parameter(torch.ones(WIDTH))
        parameters[f"{name}/shift"] = nn.Parameter(torch.zeros(WIDTH))

    parameters["patches/weight"] = nn.Parameter(torch.randn(WIDTH, 1, PATCH, PATCH) / PATCH)
    parameters["patches/bias"] = nn.Parameter(torch.zeros(WIDTH))
    parameters["places"] = nn.Parameter(torch.randn(1, STEPS, WIDTH) * 0.5)
    for number in range(LAYERS):
        for part in ("query", "key", "value", "mixed"):
            linear(f"layer{number}/{part}", WIDTH, WIDTH)
        linear(f"layer{number}/inner", WIDTH, 2 * WIDTH)
        linear(f"layer{number}/outer", 2 * WIDTH, WIDTH)
        norm(f"layer{number}/norm1")
        norm(f"layer{number}/norm2")
    norm("norm")
    linear("head", WIDTH, CLASSES)

    def apply(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ parameters[f"{name}/weight"] + parameters[f"{name}/bias"]

    def normal(name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (WIDTH,), parameters[f"{name}/scale"], parameters[f"{name}/shift"], EPSILON)

    def forward(images: torch.Tensor) -> torch.Tensor:
        x = functional.conv2d(images, parameters["patches/weight"], parameters["patches/bias"], stride=PATCH)
        x = x.reshape(-1, WIDTH, STEPS).transpose(1, 2) + parameters["places"]
        for number in range(LAYERS):
            name = f"layer{number}"
            y = normal(f"{name}/norm1", x)
            query, key, value = (
                apply(f"{name}/{part}", y).reshape(-1, STEPS, HEADS, HEAD).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            weights = functional.softmax(query @ key.transpose(2, 3) * HEAD**-0.5, dim=-1)
            mixed = (weights @ value).transpose(1, 2).reshape(-1, STEPS, WIDTH)
            x = x + apply(f"{name}/mixed", mixed)
            y = functional.gelu(apply(f"{name}/inner", normal(f"{name}/norm2", x)))
            x = x + apply(f"{name}/outer", y)
        return apply("head", normal("norm", x).mean(dim=1))

    images, labels = (torch.from_numpy(one[data.training]) for one in (data.images, data.labels))
    optimiser = torch.optim.AdamW(parameters.values(), lr=2e-3, weight_decay=0.05)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
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
        if epoch % 20 == 19 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:3d}/{epochs}: training loss {total / (len(order) // batch):.4f}", flush=True)

    with torch.no_grad():
        weights = {name: parameter.numpy().copy() for name, parameter in parameters.items()}
        expected = forward(torch.from_numpy(data.images)).numpy()
    error = np.abs(logits(build_model(weights).SerializeToString(), data.images) - expected).max()
    if error > 1e-3:
        raise RuntimeError(f"the ONNX model must agree with torch within 1e-3, not {error:.3g}")
    return weights


def build_model(weights: Weights) -> onnx.ModelProto:
    """The float network as an ONNX model: `image` float32 [1, 1, 8, 8] to `logits` float32 [1, 10].

    Args:
        weights: as :func:`train` returns them.
    """
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, NDArray] = dict(weights)

    def add(operator: str, name: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def numbers(*values: int) -> str:
        name = "shape/" + "x".join(map(str, values))
        constants[name] = np.array(values, np.int64)
        return name

    def linear(name: str, x: str) -> str:
        return add("Add", f"{name}/sum", add("MatMul", f"{name}/product", x, f"{name}/weight"), f"{name}/bias")

    def norm(name: str, x: str) -> str:
        return add("LayerNormalization", f"{name}/normal", x, f"{name}/scale", f"{name}/shift", epsilon=EPSILON)

    def heads(name: str, x: str, order: list[int]) -> str:
        apart = add("Reshape", f"{name}/heads", linear(name, x), numbers(1, STEPS, HEADS, HEAD))
        return add("Transpose", f"{name}/turned", apart, perm=order)

    size = [PATCH, PATCH]
    x = add("Conv", "patches", "image", "patches/weight", "patches/bias", kernel_shape=size, strides=size)
    x = add("Transpose", "steps", add("Reshape", "flat", x, numbers(1, WIDTH, STEPS)), perm=[0, 2, 1])
    x = add("Add", "placed", x, "places")
    constants["scale"] = np.array(HEAD**-0.5, np.float32)
    for number in range(LAYERS):
        name = f"layer{number}"
        y = norm(f"{name}/norm1", x)
        query, value = (heads(f"{name}/{part}", y, [0, 2, 1, 3]) for part in ("query", "value"))
        key = heads(f"{name}/key", y, [0, 2, 3, 1])
        scores = add("Mul", f"{name}/scaled", add("MatMul", f"{name}/scores", query, key), "scale")
        mixed = add("MatMul", f"{name}/context", add("Softmax", f"{name}/softmax", scores, axis=-1), value)
        mixed = add("Transpose", f"{name}/back", mixed, perm=[0, 2, 1, 3])
        mixed = add("Reshape", f"{name}/joined", mixed, numbers(1, STEPS, WIDTH))
        x = add("Add", f"{name}/attended", x, linear(f"{name}/mixed", mixed))
        y = add("Gelu", f"{name}/gelu", linear(f"{name}/inner", norm(f"{name}/norm2", x)))
        x = add("Add", f"{name}/result", x, linear(f"{name}/outer", y))
    x = add("ReduceMean", "mean", norm("norm", x), numbers(1), keepdims=0)
    add("Gemm", "logits", x, "head/weight", "head/bias")

    return whole_model(NAME, nodes, constants, (OPSET, IR_VERSION), "train_digits_vit.py")


def record(measured: dict[str, float]) -> str:
    """Text of digits-vit.json: the accuracies on the images that digits.json holds out."""
    fields = {
        "classes": CLASSES,
        "accuracy": {precision: round(share, 4) for precision, share in measured.items()},
        "source": "images and held-out part as of digits.json. Made by examples/train_digits_vit.py",
    }
    return "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items()) + "\n}\n"


def check(folder: Path, data: Digits) -> None:
    """Measure the files in ``folder`` again; exit with a message unless digits-vit.json says the same."""
    models = {"fp32": folder / f"{NAME}_fp32.onnx", "int8": folder / f"{NAME}.onnx"}
    measured = {precision: accuracy(path.read_bytes(), data) for precision, path in models.items()}
    report(measured)
    if (folder / f"{NAME}.json").read_text(encoding="utf-8") != record(measured):
        sys.exit(f"train_digits_vit.py: {folder / f'{NAME}.json'} does not match what was measured")


def main(arguments: list[str] | None = None) -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(
        description="Train the digits-vit network, quantise it to int8 and measure both on held-out images."
    )
    parser.add_argument(
        "--output", type=Path, default=Path(f"build/{NAME}"), metavar="DIR",
        help="folder for the two models and the record (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--epochs", type=int, default=250, help="passes over the training images (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of weights, order and shifts (%(default)s)")
    parser.add_argument("--check", type=Path, metavar="DIR", help="train nothing; measure the files in DIR again")
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
    int8_model = npukit.quantize(float_model, [{"image": one[None]} for one in data.images[data.training]]).model
    models = {"fp32": float_model.SerializeToString(), "int8": int8_model.SerializeToString()}
    measured = {precision: accuracy(model, data) for precision, model in models.items()}
    report(measured)

    save(options.output, NAME, models, record(measured))


if __name__ == "__main__":
    main()
