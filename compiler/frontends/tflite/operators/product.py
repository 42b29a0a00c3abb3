"""FULLY_CONNECTED."""

from dataclasses import replace

from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.tflite.operators.activations import fused_limits
from npukit.compiler.frontends.tflite.operators.base import Node, Operand, bias_of, constant_of, quantized
from npukit.compiler.ir.operations import FullyConnected, Rearrange, Rounding, TensorOperation
from npukit.compiler.ir.tensor import Tensor

__all__ = ["match_fully_connected"]

_BIAS = 0.02
"""Steps of the result by which a unit of the bias may differ from that of the products."""
_ROWS_IN_ORDER = 0
"""WeightsFormat DEFAULT."""


def match_fully_connected(node: Node) -> Match:
    """FULLY_CONNECTED: rows of so many elements as the weights have columns, whatever the input's shape."""
    tensor = constant_of(node, 1, "weights")
    assert tensor.data is not None
    if node.option("WeightsFormat") != _ROWS_IN_ORDER or len(tensor.shape) != 2:
        raise Refused(f"weights {tensor.name} have the shape {list(tensor.shape)} or another order than rows")
    value, given = node.activation(0)
    outputs, inputs = tensor.shape
    result = node.result(fused_limits(node))
    y = result.tensor
    rows, rest = divmod(_elements(given), inputs)
    if rest or y.shape[-1] != outputs or _elements(y) != rows * outputs:
        raise Refused(f"input {list(given.shape)} and weights {[inputs, outputs]} do not make {list(y.shape)}")
    weights, bias = quantized(node, tensor, tensor.data, 0), bias_of(node, 2, outputs)
    x, before, inner = _as_rows(node, given, rows, inputs)
    made = y if len(y.shape) == 2 else replace(y, name=f"{y.name} in rows", shape=(rows, outputs), channel_axis=1)
    single = not node.floats and len(weights.tensor.quantization.scale) == 1  # type: ignore[union-attr]
    if single and bias is not None:
        _check_bias(node, given, weights.tensor, y)
    operation = FullyConnected(
        output=made.name, sources=node.sources, input=x.name, weights=weights.tensor.name,
        bias=None if bias is None else bias.tensor.name, transposed=True, limits=result.limits,
        rounding=Rounding.TFLITE_SINGLE if single else node.rounding,
    )  # fmt: skip
    behind: list[TensorOperation] = []
    if made is not y:
        inner = [*inner, made]
        behind = [_in_order(node, made, y)]
    return node.match(result, [Operand(given, value)], [*before, operation, *behind], [weights, bias], inner)


def _check_bias(node: Node, x: Tensor, weights: Tensor, y: Tensor) -> None:
    """Refuse a bias in other units than the products', as TensorFlow Lite does (GetQuantizedConvolutionMultipler)."""
    found = node.present(2).quantization
    scale = 0.0 if found is None else found.scale[0]
    if abs(x.scale * weights.scale - scale) / y.scale > _BIAS:
        raise Refused(f"its bias has the scale {scale:g}, and its products {x.scale * weights.scale:g}")


def _elements(tensor: Tensor) -> int:
    found = 1
    for size in tensor.shape:
        found *= size
    return found


def _as_rows(node: Node, given: Tensor, rows: int, inputs: int) -> tuple[Tensor, list[TensorOperation], list[Tensor]]:
    """The input as a matrix, what makes it, and what is new."""
    if given.shape == (rows, inputs):
        return given, [], []
    x = replace(given, name=f"{given.name} in rows of {inputs}", shape=(rows, inputs), channel_axis=1)
    return x, [_in_order(node, given, x)], [x]


def _in_order(node: Node, x: Tensor, y: Tensor) -> Rearrange:
    """The same elements in the same order."""
    sizes = tuple(size for size in x.shape if size > 1) or (1,)
    return Rearrange(
        output=y.name, sources=node.sources, input=x.name, sizes=sizes, permutation=tuple(range(len(sizes)))
    )
