"""ONNX models: what ONNX Runtime runs, the kit runs with equal results, or refuses with a reason."""

from pathlib import Path
from random import Random

import numpy as np
from fuzz_models import CONFIGS, Verdict, base_model, examine_bytes, mutate_bytes, mutate_model

from .case import Outcome, Result

__all__ = ["Models", "make"]

_OUTCOMES = {
    Verdict.AGREE: Outcome.ACCEPTED,
    Verdict.BOTH_REFUSE: Outcome.REFUSED,
    Verdict.KIT_REFUSES: Outcome.REFUSED,
    Verdict.TRACEBACK: Outcome.TRACEBACK,
}
"""Of everything else: a wrong result."""
_BYTES_SHARE = 0.2


class Models:
    """See the module. An input is the number of a configuration, one byte, and a model."""

    seconds = 120.0
    megabytes = 2048
    suffix = ".model"

    def input(self, random: Random) -> bytes:
        """A model changed in a way that means something, or its file anywhere."""
        rng = np.random.default_rng(random.getrandbits(64))
        model = base_model(rng)
        if random.random() < _BYTES_SHARE:
            data = mutate_bytes(rng, model.SerializeToString())
        else:
            data = mutate_model(rng, model).SerializeToString()
        return bytes([random.randrange(len(CONFIGS))]) + data

    def run(self, data: bytes) -> Result:
        """A session, and ONNX Runtime beside it."""
        found = examine_bytes(data[1:], list(CONFIGS.values())[data[0]])
        return Result(_OUTCOMES.get(found.verdict, Outcome.WRONG), f"{found.verdict}: {found.detail}")


def make(folder: Path) -> Models:
    """The kind."""
    return Models()
