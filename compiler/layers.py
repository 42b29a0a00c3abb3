"""The compiler's own description of what the machine computes, between ONNX and tiles.

Integers are in the machine's int8 domain: a uint8 tensor has its top bit flipped, its zero point is lowered by 128.
bfloat16 numbers are their bits as uint16. Tensors are four-dimensional, NCHW.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from npukit.isa.instructions import Operation
from npukit.isa.layout import Layout
from numpy.typing import NDArray

__all__ = [
    "AverageLayer",
    "BinaryLayer",
    "ConcatLayer",
    "ConstantSource",
    "ConvLayer",
    "CopyLayer",
    "DepthwiseLayer",
    "GlobalAverageLayer",
    "Layer",
    "MaxPoolLayer",
    "QuantizedTensor",
    "ResizeLayer",
    "Subgraph",
    "TableLayer",
]

Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class QuantizedTensor:
    """An activation tensor; `floating`: fp32 in the framework and bfloat16 on the machine, without scale.

    `storage` names the tensor in whose memory it lies: itself, or, for a reshape that moves nothing,
    the tensor that was reshaped. `shape` is the framework's, `view` the NCHW shape in memory. `layout`: how the host
    lays out a folded input, whose words of a place follow each other; None for channel blocks.
    """

    name: str
    shape: tuple[int, ...]
    view: Shape
    scale: float
    zero_point: int
    unsigned: bool
    storage: str
    floating: bool = False
    layout: Layout | None = None

    @property
    def dtype(self) -> str:
        """The framework's dtype."""
        if self.floating:
            return "float32"
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

    weights: int16, less their zero point, -255 to 255, or bfloat16 [out channels, in channels of a group, kernel
    height, kernel width]. channels: what REQUANTIZE reads for each output channel, 32 bits each: int32 bias with the
    input's zero point folded in, and float32 multiplier; for bfloat16 float32 bias alone. values: its descriptor's
    fields. pads: top, left, bottom, right.
    """

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    weights: NDArray
    channels: tuple[NDArray, ...]
    values: Mapping[str, Any]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    pad_value: float
    macs: int
    group: int = 1


@dataclass(frozen=True)
class DepthwiseLayer(ConvLayer):
    """A convolution in which each channel has a kernel of its own, small enough for VECTOR's row-windows."""


@dataclass(frozen=True)
class ConstantSource:
    """A constant operand [batch, channels, height, width], of which batch, height and width may be 1."""

    name: str
    data: NDArray


@dataclass(frozen=True)
class BinaryLayer:
    """ADD or MULTIPLY of two sources, activations' names or constants; `values` are the descriptor's fields.

    A source's dimension of 1 repeats, but for channels.
    """

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    operation: Operation
    sources: tuple[str | ConstantSource, str | ConstantSource]
    values: Mapping[str, Any]
    macs: int = 0


@dataclass(frozen=True)
class TableLayer:
    """A function of each element by itself: its int8 results for -128 to 127."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    table: NDArray[np.int8]
    macs: int = 0


@dataclass(frozen=True)
class CopyLayer:
    """A window of a tensor, moved: output (y, x) is input (y - offset[0], x - offset[1]), or `pad_value` outside."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    offset: tuple[int, int]
    first_channel: int
    pad_value: float
    macs: int = 0


@dataclass(frozen=True)
class ConcatLayer:
    """Tensors one after the other along an axis of NCHW; a table for each that changes its quantisation, else None."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    axis: int
    tables: tuple[NDArray[np.int8] | None, ...]
    macs: int = 0


@dataclass(frozen=True)
class ResizeLayer:
    """Each element repeated `factors` times along height and width."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    factors: tuple[int, int]
    macs: int = 0


@dataclass(frozen=True)
class MaxPoolLayer:
    """Maximum over windows; padding holds the least value, `pad_value`."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    pad_value: float = -128
    macs: int = 0


@dataclass(frozen=True)
class GlobalAverageLayer:
    """Sum over height and width, requantised; `values` are the descriptor's fields."""

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    values: Mapping[str, Any]
    macs: int = 0


@dataclass(frozen=True)
class AverageLayer:
    """Average over windows, whose padding does not count unless `count_padding`: sums, requantised.

    values: the descriptor's fields of a window with so many elements.
    """

    node: str
    op: str
    inputs: tuple[str, ...]
    output: str
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    count_padding: bool
    pad_value: float
    values: Callable[[int], Mapping[str, Any]]
    macs: int = 0

    def counts(self, axis: int, size: int, out_size: int) -> list[int]:
        """Rows (axis 0) or columns (axis 1) that count in each output's windows."""
        low, high = (-self.pads[axis], size + self.pads[axis + 2]) if self.count_padding else (0, size)
        starts = [place * self.strides[axis] - self.pads[axis] for place in range(out_size)]
        return [min(start + self.kernel[axis], high) - max(start, low) for start in starts]

    @property
    def dilations(self) -> tuple[int, int]:
        """Average pools have none."""
        return 1, 1


@dataclass(frozen=True)
class Subgraph:
    """Layers that one program computes, in order, and the tensors between them."""

    name: str
    layers: tuple[Layer, ...]
    tensors: dict[str, QuantizedTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def makers(self) -> dict[str, int]:
        """The number of the layer that makes a tensor, by its name."""
        return {layer.output: number for number, layer in enumerate(self.layers)}

    def readers(self) -> dict[str, list[int]]:
        """The numbers of the layers that read a tensor, by the name of its storage."""
        found: dict[str, list[int]] = {}
        for number, layer in enumerate(self.layers):
            for name in {self.tensors[one].storage for one in layer.inputs}:
                found.setdefault(name, []).append(number)
        return found

    def outside(self) -> set[str]:
        """Storages of the outputs."""
        return {self.tensors[name].storage for name in self.outputs}
