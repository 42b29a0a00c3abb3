"""What stays beside the accelerator, told apart from it: by a model, because a profile runs nothing."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import isfinite, prod
from typing import Any

import numpy as np

from npukit.compiler.frontends.onnx.offload import Offload
from npukit.errors import UsageError
from npukit.isa.program import Program

__all__ = ["Boundary", "HostModel"]


@dataclass(frozen=True)
class HostModel:
    """A host as two rates.

    Attributes:
        megabytes: that go to or from the accelerator's memory in a second.
        gigamacs: 10^9 multiply-accumulates that it does in a second.

    Raises:
        UsageError: a rate that is not above 0.
    """

    megabytes: float = 1000.0
    gigamacs: float = 1.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (isfinite(value) and value > 0):
                raise UsageError(f"the host's {name} a second must be above 0, not {value:g}")


@dataclass(frozen=True)
class Boundary:
    """What crosses between accelerator and host, and what the host computes.

    Attributes:
        host: the rates that are assumed.
        subgraphs: parts of the model on the accelerator.
        bytes: of their inputs and outputs, in the framework's types.
        host_macs: multiply-accumulates of the nodes that stay; their other work is not counted.
    """

    host: HostModel
    subgraphs: int
    bytes: int
    host_macs: int

    @classmethod
    def of(cls, host: HostModel, programs: Iterable[Program], offload: Offload) -> "Boundary":
        """That of a model with these programs."""
        programs = list(programs)
        crossing = (tensor for program in programs for tensor in program.tensors if tensor.role != "internal")
        moved = sum(prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in crossing)
        return cls(host, len(programs), moved, offload.macs_total - offload.macs)

    @property
    def transfer_milliseconds(self) -> float:
        """For the bytes."""
        return self.bytes / self.host.megabytes / 1e3

    @property
    def host_milliseconds(self) -> float:
        """For the host's multiply-accumulates."""
        return self.host_macs / self.host.gigamacs / 1e6

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "model": "assumed rates, nothing was run",
            "host_megabytes_per_second": self.host.megabytes,
            "host_gigamacs_per_second": self.host.gigamacs,
            "subgraphs": self.subgraphs,
            "bytes": self.bytes,
            "transfer_milliseconds": self.transfer_milliseconds,
            "host_macs": self.host_macs,
            "host_milliseconds": self.host_milliseconds,
        }
