"""Files of `torch.export.save`: what is read has an ONNX model, and everything else is refused."""

from pathlib import Path
from random import Random

from npukit.compiler.errors import CompileError

from .case import Outcome, Result

__all__ = ["Files", "make"]


class Files:
    """See the module. An input is the file of a small module, in which bytes, entries or fields are changed."""

    seconds = 10.0
    megabytes = 2048
    suffix = ".pt2"

    def __init__(self) -> None:
        import torch  # pyright: ignore[reportMissingImports]
        from npukit.compiler.frontends.pytorch.archive import onnx_model
        from pytorch.torch_files import Small, mutated, saved

        torch.manual_seed(1)
        given = (torch.randn(2, 4),), {"scale": torch.randn(3)}
        self.bases = [saved(Small(), *given)]
        self.bases.append(saved(Small(), *given, dynamic_shapes={"x": {0: torch.export.Dim("b")}, "scale": None}))
        self.read, self.mutated = onnx_model, mutated
        for base in self.bases:
            self.run(base)  # which takes seconds the first time

    def input(self, random: Random) -> bytes:
        """A file with a few changes; one in sixteen as it is."""
        base = random.choice(self.bases)
        return base if random.random() < 0.0625 else self.mutated(random, base)

    def run(self, data: bytes) -> Result:
        """The ONNX model of it."""
        try:
            self.read(data, "model.pt2", {"x": (2, 4)})
        except CompileError as error:
            text = str(error)
            clear = "\n" not in text and "Traceback" not in text and text.startswith("model.pt2")
            return Result(Outcome.REFUSED if clear else Outcome.UNCLEAR, text)
        return Result(Outcome.ACCEPTED)


def make(folder: Path) -> Files:
    """The kind."""
    return Files()
