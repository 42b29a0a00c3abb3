"""How long compiling takes beside opening the same model in ONNX Runtime, both in one run: `make bench`."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from npukit.compiler.pipeline import compile_model
from npukit.driver.host import open_session
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper
from sections import machine, write_section

from npukit import zoo
from npukit.zoo.build import images
from npukit.zoo.quantise import quantise

__all__ = ["detector", "main"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
REPETITIONS = 3
_NOTE = """`compile_model`, from the bytes of the model to the artifact, beside `onnx.load` and the opening of a session
in ONNX Runtime with all optimisations, in turns; the best of three each, in one process. `detector` has the shape of a
YOLOv8n: 64 convolutions, SiLU, splits, concatenations, pools and two enlargements, 640x640, weights at random.
"""


class _Detector:
    """Backbone, neck and head of a small detector."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._random = np.random.default_rng(1)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"{op.lower()}_{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attributes))
        return names

    def constant(self, values: np.ndarray) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str, inner: int, outer: int, kernel: int = 1, stride: int = 1, activation: bool = True) -> str:
        shape = outer, inner, kernel, kernel
        weights = self._random.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(inner) * kernel)
        names = [x, self.constant(weights), self.constant(np.zeros(outer, np.float32))]
        (y,) = self.node("Conv", names, strides=[stride] * 2, pads=[kernel // 2] * 4)
        if not activation:
            return y
        (gate,) = self.node("Sigmoid", [y])
        return self.node("Mul", [y, gate])[0]

    def block(self, x: str, inner: int, outer: int, repeats: int, shortcut: bool) -> str:
        """Half of the channels go on through pairs of convolutions; all that came by is put together."""
        half = outer // 2
        sizes = self.constant(np.array([half, half], np.int64))
        parts = self.node("Split", [self.conv(x, inner, outer), sizes], 2, axis=1)
        for _ in range(repeats):
            y = self.conv(self.conv(parts[-1], half, half, 3), half, half, 3)
            parts.append(self.node("Add", [parts[-1], y])[0] if shortcut else y)
        return self.conv(self.node("Concat", parts, axis=1)[0], half * len(parts), outer)

    def enlarged(self, x: str) -> str:
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        attributes: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return self.node("Resize", [x, "", scales], **attributes)[0]

    def together(self, *parts: str) -> str:
        return self.node("Concat", parts, axis=1)[0]

    def model(self) -> onnx.ModelProto:
        x = self.conv(self.conv("image", 3, 16, 3, 2), 16, 32, 3, 2)
        x = self.block(x, 32, 32, 1, True)
        fine = self.block(self.conv(x, 32, 64, 3, 2), 64, 64, 2, True)
        middle = self.block(self.conv(fine, 64, 128, 3, 2), 128, 128, 2, True)
        x = self.block(self.conv(middle, 128, 256, 3, 2), 256, 256, 1, True)
        pooled = [self.conv(x, 256, 128)]
        for _ in range(3):
            pooled += self.node("MaxPool", [pooled[-1]], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
        coarse = self.conv(self.together(*pooled), 512, 256)
        neck = self.block(self.together(self.enlarged(coarse), middle), 384, 128, 1, False)
        first = self.block(self.together(self.enlarged(neck), fine), 192, 64, 1, False)
        second = self.block(self.together(self.conv(first, 64, 64, 3, 2), neck), 192, 128, 1, False)
        third = self.block(self.together(self.conv(second, 128, 128, 3, 2), coarse), 384, 256, 1, False)
        outputs = []
        for y, channels in ((first, 64), (second, 128), (third, 256)):
            for results in (64, 80):
                branch = self.conv(self.conv(y, channels, 64, 3), 64, 64, 3)
                outputs.append(self.conv(branch, 64, results, activation=False))
        outputs[0] = self.conv(outputs[0], 64, 4, activation=False)  # in place of the sums over distributions of edges
        graph = helper.make_graph(
            self._nodes,
            "detector",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, self.size, self.size])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self._constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def detector(size: int = 640) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A network of the shape of a YOLOv8n, in fp32 and quantised."""
    model = _Detector(size).model()
    return model, quantise(model, [{model.graph.input[0].name: images(1, (3, size, size), 1)}])


def _best(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _row(name: str, model: bytes, config: str, folder: Path) -> tuple[float, float]:
    """Seconds to compile, and to load and open."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model)
    compiled, opened = [], []
    for _ in range(REPETITIONS):
        compiled.append(_best(lambda: compile_model(model, PRESETS[config])))
        opened.append(_best(lambda: open_session(onnx.load(path))))
    print(f"{name} on {config}: {min(compiled):.2f} s", file=sys.stderr)
    return min(compiled), min(opened)


def measure() -> str:
    """The table."""
    models = [(name, zoo.load(name), "int8-16x16") for name in ("resnet18", "resnet50", "mobilenetv2")]
    models += [(f"{name}, fp32", zoo.load(name, "fp32"), "bf16-16x16") for name in ("resnet18", "mobilenetv2")]
    floats, quantised = detector()
    models.append(("detector", quantised.SerializeToString(), "int8-16x16"))
    models.append(("detector, fp32", floats.SerializeToString(), "bf16-16x16"))
    lines = ["| network | configuration | compile | load and open | ratio |", "|---|---|---|---|---|"]
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, config in models:
            compiled, opened = _row(name, model, config, Path(folder))
            found[name] = compiled
            lines.append(f"| {name} | `{config}` | {compiled:.2f} s | {opened:.2f} s | {compiled / opened:.1f} |")
    ratio = found["detector, fp32"] / found["detector"]
    lines.append(f"\nThe detector takes {ratio:.1f} times as long in bf16 as in int8.")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description="Compile time beside ONNX Runtime's.")
    parser.add_argument("-o", "--output", type=Path, default=DOCUMENT)
    options = parser.parse_args(arguments)
    text = f"## Compile time\n\n{_NOTE}\n{machine('npukit', 'onnx', 'onnxruntime')}\n\n{measure()}"
    write_section(options.output, "bench/compile_time.py", "# Benchmarks\n", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
