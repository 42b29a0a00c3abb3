"""TFLite files: what the reader takes runs, equal to TensorFlow Lite Micro, and everything else is refused."""

from pathlib import Path
from random import Random

from npukit.compiler.frontends.tflite.writer import write_model
from tflite_models import FLOAT_OPERATORS, OPERATORS, random_model

from .case import Outcome, Result, answer_of, run_command
from .mutate import change_bytes

__all__ = ["Files", "make"]

_HEAD = 8
"""Bytes with the identifier, which most changes leave alone."""


class Files:
    """See the module. An input is a file of one operator, in which bytes are changed."""

    seconds = 30.0  # shapes may state a hundred million elements, which take the interpreter as long
    megabytes = 2048
    suffix = ".tflite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "model.tflite"

    def input(self, random: Random) -> bytes:
        """A model of one operator, int8 or float, with a few changes; one in eight as it is."""
        floats = random.random() < 0.2
        op = random.choice([*(FLOAT_OPERATORS if floats else OPERATORS)])
        data = write_model(random_model(op, random.randrange(1 << 20), floats))
        if random.random() < 0.125:
            return data
        head = 0 if random.random() < 0.05 else _HEAD
        return data[:head] + change_bytes(random, data[head:], most=3)

    def run(self, data: bytes) -> Result:
        """`npukit run --compare` with it."""
        self.path.write_bytes(data)
        answer = run_command("run", self.path, "--config", "int8-4x4", "--compare", "--quiet")
        if answer.code == 1 and not answer.err and "nothing ran on the accelerator" in answer.out:
            return Result(Outcome.ACCEPTED)
        if answer.code == 1 and not answer.err:
            return Result(Outcome.WRONG, answer.out[-400:])
        return answer_of(answer)


def make(folder: Path) -> Files:
    """The kind."""
    return Files(folder)
