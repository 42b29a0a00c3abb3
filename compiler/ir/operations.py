"""Operations on tensors, in the field's terms: what is computed, not how a machine computes it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar

__all__ = [
    "OPERATIONS",
    "Add",
    "AveragePool",
    "ByElement",
    "Clamp",
    "Concatenation",
    "Convolution",
    "Depth",
    "DepthwiseConvolution",
    "Dilate",
    "Elementwise",
    "FullyConnected",
    "GlobalAveragePool",
    "Limits",
    "Lookup",
    "MatrixProduct",
    "MaxPool",
    "Multiply",
    "Normalization",
    "Pad",
    "PiecewiseLinear",
    "Rearrange",
    "Reinterpret",
    "Repeat",
    "Reshape",
    "Rounding",
    "Slice",
    "Softmax",
    "SourceNode",
    "TensorOperation",
    "TransposedConvolution",
    "Window",
    "attributes_of",
    "operands_of",
]

Limits = tuple[float, float] | None
"""The least and the greatest result, in the numbers of the result's format; None where the format alone limits it."""


class Rounding(StrEnum):
    """Whose arithmetic decides how a sum, scaled to the result's quantisation, is rounded."""

    ONNXRUNTIME = "onnxruntime"
    TFLITE = "tflite"
    TFLITE_SINGLE = "tflite_single"
    """As tflite, but the product of both sources' scales is rounded to binary32 first."""


@dataclass(frozen=True)
class SourceNode:
    """A node of the framework's graph."""

    name: str
    op: str


def operand(*, optional: bool = False) -> Any:
    """Declare a field that names a tensor or a constant, or several of them."""
    return field(default=None, metadata={"operand": True}) if optional else field(metadata={"operand": True})


@dataclass(frozen=True, kw_only=True)
class TensorOperation:
    """What all operations have.

    Attributes:
        output: the tensor that it makes.
        sources: the nodes of the framework's graph that it stands for, of which the first names it.
    """

    mnemonic: ClassVar[str] = ""

    output: str
    sources: tuple[SourceNode, ...]

    @property
    def node(self) -> str:
        """Name of the node that it stands for."""
        return self.sources[0].name

    @property
    def op(self) -> str:
        """Operator of the node that it stands for."""
        return self.sources[0].op

    @property
    def operands(self) -> tuple[str, ...]:
        """Tensors and constants that it reads, in order."""
        found: list[str] = []
        for name in operands_of(type(self)):
            value = getattr(self, name)
            found += [value] if isinstance(value, str) else [one for one in value or () if one is not None]
        return tuple(found)


_COMMON = ("output", "sources")


@cache
def operands_of(kind: type[TensorOperation]) -> tuple[str, ...]:
    """Names of the fields that name tensors or constants."""
    return tuple(one.name for one in fields(kind) if one.metadata.get("operand"))


@cache
def attributes_of(kind: type[TensorOperation]) -> tuple[str, ...]:
    """Names of the fields that describe the operation itself."""
    operands = operands_of(kind)
    return tuple(one.name for one in fields(kind) if one.name not in (*_COMMON, *operands))


@dataclass(frozen=True, kw_only=True)
class _Rounded(TensorOperation):
    """An operation whose result is scaled and rounded."""

    limits: Limits = None
    rounding: Rounding = Rounding.ONNXRUNTIME


@dataclass(frozen=True, kw_only=True)
class Window(TensorOperation):
    """An operation on the windows of an image.

    Attributes:
        input: [batch, channels, height, width].
        strides: vertical, horizontal.
        pads: top, left, bottom, right.
        dilations: vertical, horizontal.
    """

    input: str = operand()
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int] = (1, 1)


@dataclass(frozen=True, kw_only=True)
class Depth:
    """A third dimension of a convolution's windows: images that follow each other make volumes.

    Attributes:
        images: of a volume of the input. results: of a volume of the result.
        kernel: images of a window. dilation: from one of them to the next.
        stride: from one window to the next. pad: images of padding before the first.
    """

    images: int
    results: int
    kernel: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    def seen(self, result: int) -> tuple[tuple[int, int], ...]:
        """(position in the kernel, image of the input) of all that an image of the result sees, but for padding."""
        volume, place = divmod(result, self.results)
        first = place * self.stride - self.pad
        found = ((tap, first + tap * self.dilation) for tap in range(self.kernel))
        return tuple((tap, volume * self.images + image) for tap, image in found if 0 <= image < self.images)


@dataclass(frozen=True, kw_only=True)
class Convolution(_Rounded, Window):
    """A sum of products over a window and the channels of a group.

    Attributes:
        weights: [out channels, in channels of a group, kernel height, kernel width]; with `depth`, its second dimension
            is that of the kernel's images and of the channels in each.
        bias: [out channels], in units of both scales' product, or None.
        groups: of channels.
        alpha: a factor of the products.
        depth: where windows have a third dimension.
        counted: whether its products are the model's; those of what the model has no product for are not.
    """

    mnemonic = "convolution"

    weights: str = operand()
    bias: str | None = operand(optional=True)
    groups: int = 1
    alpha: float = 1.0
    depth: Depth | None = None
    counted: bool = True


@dataclass(frozen=True, kw_only=True)
class DepthwiseConvolution(_Rounded, Window):
    """A convolution in which each channel has a kernel of its own: weights [channels, 1, height, width].

    Attributes:
        counted: as of a Convolution.
    """

    mnemonic = "depthwise_convolution"

    weights: str = operand()
    bias: str | None = operand(optional=True)
    counted: bool = True


@dataclass(frozen=True, kw_only=True)
class TransposedConvolution(_Rounded, Window):
    """The gradient of a convolution by its input: each element adds its products with the kernel to a window.

    Attributes:
        weights: [in channels, out channels of a group, kernel height, kernel width].
        bias: [out channels], in units of both scales' product, or None.
        strides: of the windows in the result.
        pads: what is cut off the result at the top and the left; at the bottom and the right its shape decides.
        groups: of channels.
    """

    mnemonic = "transposed_convolution"

    weights: str = operand()
    bias: str | None = operand(optional=True)
    groups: int = 1


@dataclass(frozen=True, kw_only=True)
class FullyConnected(_Rounded):
    """A product of a matrix and constant weights.

    Attributes:
        input: [batch, inputs].
        weights: [inputs, outputs], or [outputs, inputs] if `transposed`.
        bias: [outputs], in units of both scales' product, or None.
        alpha: a factor of the products.
    """

    mnemonic = "fully_connected"

    input: str = operand()
    weights: str = operand()
    bias: str | None = operand(optional=True)
    transposed: bool = False
    alpha: float = 1.0


@dataclass(frozen=True, kw_only=True)
class MatrixProduct(_Rounded):
    """Products of matrices none of which is constant.

    Attributes:
        left: [..., rows, inner].
        right: [..., inner, columns]; dimensions before the last two repeat as ONNX's MatMul repeats them.
        bias: [columns], in units of both scales' product, or None.
        alpha: a factor of the products.
    """

    mnemonic = "matrix_product"

    left: str = operand()
    right: str = operand()
    bias: str | None = operand(optional=True)
    alpha: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Softmax(TensorOperation):
    """Exponentials of what a place's channels hold, over their sum.

    Attributes:
        input: of the result's shape and channels.
    """

    mnemonic = "softmax"

    input: str = operand()
    rounding: Rounding = Rounding.ONNXRUNTIME


@dataclass(frozen=True, kw_only=True)
class Normalization(TensorOperation):
    """What a place's channels hold, less its mean, over the root of its variance; then scaled and shifted.

    Attributes:
        input: of the result's shape and channels.
        scale: [channels].
        bias: [channels], or None.
        epsilon: that is added to the variance.
        centred: whether the mean is subtracted; else the variance is the mean of squares.
    """

    mnemonic = "normalization"

    input: str = operand()
    scale: str = operand()
    bias: str | None = operand(optional=True)
    epsilon: float
    centred: bool = True


@dataclass(frozen=True, kw_only=True)
class Elementwise(_Rounded):
    """An operation on the elements of two tensors, of which one repeats where it has 1 element along a dimension."""

    left: str = operand()
    right: str = operand()


@dataclass(frozen=True, kw_only=True)
class Add(Elementwise):
    """left + right, or left - right."""

    mnemonic = "add"

    subtract: bool = False


@dataclass(frozen=True, kw_only=True)
class Multiply(Elementwise):
    """left * right."""

    mnemonic = "multiply"


@dataclass(frozen=True, kw_only=True)
class Clamp(TensorOperation):
    """No less than the first of `limits`, and no more than the second."""

    mnemonic = "clamp"

    input: str = operand()
    limits: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ByElement(TensorOperation):
    """A function of each element by itself, which `table` describes."""

    input: str = operand()
    table: str = operand()


@dataclass(frozen=True, kw_only=True)
class Lookup(ByElement):
    """`table` holds a result for each number of the input's format, in order."""

    mnemonic = "lookup"


@dataclass(frozen=True, kw_only=True)
class PiecewiseLinear(ByElement):
    """Straight lines: `table` holds a slope and an intercept for each of 256 segments.

    Attributes:
        step: log2 of a segment's width.
        offset: number of the segment that begins at 0; the first and the last one go on for ever.
    """

    mnemonic = "piecewise_linear"

    step: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class Pad(TensorOperation):
    """The tensor with `before` and `after` elements of `value` along each dimension; where they are negative, less."""

    mnemonic = "pad"

    input: str = operand()
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


@dataclass(frozen=True, kw_only=True)
class Slice(TensorOperation):
    """A part of a tensor, from `starts` on."""

    mnemonic = "slice"

    input: str = operand()
    starts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Concatenation(TensorOperation):
    """Tensors one after the other along `axis`; through a table, as of Lookup, each that has other parameters.

    Some of them may be constant: in the result's quantization, or of float32.
    """

    mnemonic = "concatenation"

    inputs: tuple[str, ...] = operand()
    tables: tuple[str | None, ...] = operand()
    axis: int


@dataclass(frozen=True, kw_only=True)
class Repeat(TensorOperation):
    """Each element so many times along height and width."""

    mnemonic = "repeat"

    input: str = operand()
    factors: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Dilate(TensorOperation):
    """The tensor with one element less than `factors` of padding, 0, between neighbours along height and width."""

    mnemonic = "dilate"

    input: str = operand()
    factors: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class MaxPool(Window):
    """Maximum over windows; padding never is the greatest."""

    mnemonic = "max_pool"

    kernel: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class AveragePool(_Rounded, Window):
    """Average over windows, in which padding counts or not."""

    mnemonic = "average_pool"

    kernel: tuple[int, int]
    count_padding: bool


@dataclass(frozen=True, kw_only=True)
class GlobalAveragePool(_Rounded):
    """Average over height and width."""

    mnemonic = "global_average_pool"

    input: str = operand()


@dataclass(frozen=True, kw_only=True)
class Reshape(TensorOperation):
    """The same elements in the same order under another shape."""

    mnemonic = "reshape"

    input: str = operand()


@dataclass(frozen=True, kw_only=True)
class Rearrange(TensorOperation):
    """The same elements in another order.

    Attributes:
        sizes: a shape under which the input's elements are seen.
        permutation: of its dimensions, in the order in which the result has them, whatever its own shape.
    """

    mnemonic = "rearrange"

    input: str = operand()
    sizes: tuple[int, ...]
    permutation: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Reinterpret(TensorOperation):
    """The same numbers in the same places under another quantisation."""

    mnemonic = "reinterpret"

    input: str = operand()


def _named(kind: type[TensorOperation]) -> Iterator[type[TensorOperation]]:
    if kind.mnemonic:
        yield kind
    for one in kind.__subclasses__():
        yield from _named(one)


OPERATIONS: dict[str, type[TensorOperation]] = {one.mnemonic: one for one in _named(TensorOperation)}
"""All operations by their names."""
