"""The digits CNN in PyTorch: eager, compiled with one changed line, quantised, and through ONNX.

Classifies the 360 handwritten digits that training never saw in each way, and compares the predictions. Needs PyTorch
and scikit-learn: pip install 'npukit[torch,demo]'.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports]
from onnx import numpy_helper
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

import npukit
from npukit import zoo
from npukit.session import Session


class Digits(nn.Module):
    """A residual CNN for images of 8 by 8: float32 [N, 1, 8, 8] to logits float32 [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.widen = nn.Conv2d(1, 24, 3, padding=1), nn.Conv2d(24, 40, 3, padding=1)
        self.block1, self.block2 = (
            nn.ModuleDict({name: nn.Conv2d(width, width, 3, padding=1) for name in ("conv1", "conv2")})
            for width in (24, 40)
        )
        self.head = nn.Linear(40, 10)

    @staticmethod
    def _block(block: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(block["conv2"](functional.relu(block["conv1"](x))) + x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images."""
        x = self._block(self.block1, functional.relu(self.stem(x)))
        x = functional.max_pool2d(x, 2)
        x = self._block(self.block2, functional.relu(self.widen(x)))
        return self.head(x.mean(dim=(2, 3)))


def trained() -> Digits:
    """The network with the weights that come with the kit."""
    model = onnx.load_from_string(zoo.load("digits", "fp32"))
    weights = {one.name.replace("/", "."): numpy_helper.to_array(one) for one in model.graph.initializer}
    network = Digits().eval()
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return network


def main() -> int:
    """Run the example; 1 when predictions differ between eager, compiled and through ONNX."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=360, help="how many held-out images (default: all 360)")
    options = parser.parse_args()
    images, labels, _ = zoo.digits_heldout()
    batch = torch.from_numpy(np.concatenate(images[: options.images]))
    truth = torch.from_numpy(np.asarray(labels[: options.images]))
    network = trained()

    compiled = torch.compile(network, backend="npukit")  # the changed line

    def classify(name: str, run) -> torch.Tensor:
        start = time.perf_counter()
        with torch.no_grad():
            found = torch.cat([run(image[None]) for image in batch]).argmax(1)
        share = 100 * float((found == truth).float().mean())
        print(f"{name:<12} {share:6.2f} % right, {time.perf_counter() - start:6.2f} s")
        return found

    eager = classify("eager", network)
    results = [classify("compiled", compiled)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "digits.pt2")
        torch.export.save(torch.export.export(network, (batch[:1],)), path)
        with Session(path, "bf16-16x16") as session:
            name = session.inputs[0].name

            def through_onnx(image: torch.Tensor) -> torch.Tensor:
                return torch.from_numpy(next(iter(session.run({name: image.numpy()}).values())))

            results.append(classify("through ONNX", through_onnx))
    quantised = npukit.quantize(network, [image[None] for image in batch[:64]])
    classify("int8", npukit.compile(quantised))
    print()
    print(npukit.report(compiled))
    same = all(torch.equal(eager, other) for other in results)
    print("predictions of eager, compiled and through ONNX are", "the same" if same else "NOT the same")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
