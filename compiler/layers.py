"""The compiler's own description of what the machine computes, between ONNX and tiles.

Everything is in the machine's int8 domain: a uint8 tensor has its top bit flipped, its zero point is
lowered by 128. Tensors are four-dimensional, NCHW.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AddLayer",
    "ConvLayer",
    "GlobalAverageLayer",
    "Layer",
    "MaxPoolLayer",
    "QuantizedTensor",
    "Subgraph",
]

Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class QuantizedTensor:
    """An activation tensor: `value` is its number in `zero_point`'s int8 domain.

    `storage` names the tensor in whose memory it lies: itself, or, for a reshape that moves nothing,
    the tensor that was reshaped. `shape` is the framework's, `view` the NCHW shape in memory.
    """

    name: str
    shape: tuple[int, ...]
    view: Shape
    scale: float
    zero_point: int
    unsigned: bool
    storage: str

    @property
    def dtype(self) -> str:
        """The framework's dtype."""
        return "uint8" if self.unsigned else "int8"


class Layer(Protocol):
    """A node that the machine computes."""

    @property
    def node(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def output(self) -> str: ...
    @property
    def macs(self) -> int: ...


@dataclass(frozen=True)
class ConvLayer:
    """Convolution, or a matrix product as a 1x1 one, requantised.

    weights: int8 [out channels, in channels, kernel height, kernel width]; bias: int32 [out channels]
    with the input's zero point folded in; multiplier: float32 [out channels]. pads: top, left,
    bottom, right.
    """

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    multiplier: NDArray[np.float32]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    pad_value: int
    zero_point: int
    macs: int


@dataclass(frozen=True)
class AddLayer:
    """Sum of two tensors of one shape; `unsigned` has a flag for each source and the result."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    ra: np.float32
    rb: np.float32
    offset: np.float32
    unsigned: tuple[bool, bool, bool]
    macs: int = 0


@dataclass(frozen=True)
class MaxPoolLayer:
    """Maximum over windows; padding never wins."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    macs: int = 0


@dataclass(frozen=True)
class GlobalAverageLayer:
    """Sum over height and width, requantised: (sum + bias) * multiplier + zero point."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    bias: int
    multiplier: np.float32
    zero_point: int
    macs: int = 0


@dataclass(frozen=True)
class Subgraph:
    """Layers that one program computes, in order, and the tensors between them."""

    name: str
    layers: tuple[Layer, ...]
    tensors: dict[str, QuantizedTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
