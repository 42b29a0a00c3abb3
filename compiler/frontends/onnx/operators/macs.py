"""Multiply-accumulates of a node, whether or not the machine can run it."""

from collections.abc import Callable, Mapping
from math import prod

import onnx_ir as ir
from npukit.compiler.frontends.onnx.operators.base import graphs_of
from npukit.compiler.frontends.onnx.operators.quantisation import ONNX_DOMAINS
from npukit.compiler.frontends.tflite.macs import tflite_macs
from npukit.driver.tflite_host import DOMAIN

__all__ = ["macs_of"]


def macs_of(node: ir.Node) -> int | None:
    """Multiply-accumulates of a node; None where a shape, or how often a loop runs, is not known.

    Convolutions, products of matrices, recurrent layers and attention multiply and accumulate; anything else counts as
    0. Products with padding count. Of an If, the larger branch counts.
    """
    if node.domain == DOMAIN:
        return tflite_macs(node)
    count = _COUNTS.get(node.op_type) if node.domain in (*ONNX_DOMAINS, "com.microsoft") else None
    try:
        if count is not None:
            return count(node)
        return _inside(node)
    except _Unknown:
        return None


class _Unknown(Exception):
    """A shape that is not known."""


def _shape(value: ir.Value | None, dimensions: int | None = None) -> tuple[int, ...]:
    """The shape of a value, of so many dimensions if that matters. Raises _Unknown for any other."""
    if value is None or value.shape is None or not all(isinstance(dim, int) for dim in value.shape):
        raise _Unknown
    if dimensions is not None and len(value.shape) != dimensions:
        raise _Unknown
    return tuple(int(dim) for dim in value.shape.numpy())


def _input(node: ir.Node, position: int) -> ir.Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _convolution(weights: int) -> Callable[[ir.Node], int]:
    """Each element of the result is a sum over a kernel; `weights`: which input they are."""
    return lambda node: prod(_shape(node.outputs[0])) * prod(_shape(_input(node, weights))[1:])


def _transposed_convolution(node: ir.Node) -> int:
    """Each element of the input meets its group's kernels."""
    return prod(_shape(_input(node, 0))) * prod(_shape(_input(node, 1))[1:])


def _product(left: int, transposed: str = "") -> Callable[[ir.Node], int]:
    """Each element of the result is a sum along a dimension of input `left`: the last but one, if the attribute
    `transposed` is there and says so, or the last."""

    def count(node: ir.Node) -> int:
        shape = _shape(_input(node, left))
        across = transposed and node.attributes.get_int(transposed, 0) and len(shape) > 1
        return prod(_shape(node.outputs[0])) * (shape[-2 if across else -1] if shape else 1)

    return count


def _recurrent(gates: int, *, turned: bool = False) -> Callable[[ir.Node], int]:
    """In each step, each gate takes the input and the state; weights are [directions, gates * hidden, inputs], or with
    the last two `turned`."""

    def count(node: ir.Node) -> int:
        steps, batch, _ = _shape(_input(node, 0), 3)
        directions, *others = _shape(_input(node, 1), 3)
        rows, inputs = others[::-1] if turned else others
        return steps * batch * directions * rows * (inputs + rows // gates)

    return count


def _einsum(node: ir.Node) -> int:
    """A product for each value of all indices together, if there are two operands or more."""
    if len(node.inputs) < 2:
        return 0
    terms = node.attributes.get_string("equation", "").replace(" ", "").split("->")[0].split(",")
    if len(terms) != len(node.inputs) or any("." in term for term in terms):
        raise _Unknown
    sizes: dict[str, int] = {}
    for term, value in zip(terms, node.inputs, strict=True):
        shape = _shape(value)
        if len(shape) != len(term):
            raise _Unknown
        for index, size in zip(term, shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return prod(sizes.values())


def _attention(node: ir.Node) -> int:
    """Products of queries with keys, and of what comes of them with values: [batch, sequence, heads * size] or with
    heads apart. ONNX Runtime's own takes projections along, whose weights are its second input."""
    query = _shape(_input(node, 0))
    if node.domain == "com.microsoft":
        inner, columns = _shape(_input(node, 1), 2)
        rows = prod(query[:-1])
        return rows * inner * columns + 2 * rows * query[-2] * (columns // 3)
    key = _shape(_input(node, 1))
    heads = 1 if len(query) == 3 else query[1]
    made = _shape(node.outputs[0])  # by all heads, which may share values
    return query[0] * heads * query[-2] * key[-2] * (query[-1] + made[-1])


def _inside(node: ir.Node) -> int:
    """Of the graphs that a node holds: all runs of a loop's, the larger one of branches."""
    bodies = [_sum(graph) for graph in graphs_of(node)]
    if not any(bodies):
        return 0
    if node.op_type == "If":
        return max(bodies)
    if node.op_type == "Scan":
        scanned = _shape(node.inputs[-1])
        axes = node.attributes.get_ints("scan_input_axes") or (0,)
        return sum(bodies) * scanned[axes[-1]]
    trips = _input(node, 0)
    counted = _input(node, 1) is None  # a condition may end it before
    if node.op_type == "Loop" and counted and trips is not None and trips.const_value is not None:
        return sum(bodies) * int(trips.const_value.numpy().reshape(-1)[0])
    raise _Unknown


def _sum(graph: ir.Graph) -> int:
    counts = [macs_of(node) for node in graph]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        raise _Unknown
    return sum(known)


_COUNTS: Mapping[str, Callable[[ir.Node], int]] = {
    "Attention": _attention,
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "ConvTranspose": _transposed_convolution,
    "DeformConv": _convolution(1),
    "Einsum": _einsum,
    "FusedConv": _convolution(1),
    "FusedGemm": _product(0, "transA"),
    "FusedMatMul": _product(0, "transA"),
    "GRU": _recurrent(3),
    "Gemm": _product(0, "transA"),
    "LSTM": _recurrent(4),
    "MatMul": _product(0),
    "MatMulInteger": _product(0),
    "MatMulIntegerToFloat": _product(0),
    "DynamicQuantizeLSTM": _recurrent(4, turned=True),
    "DynamicQuantizeMatMul": _product(0),
    "QGemm": _product(0, "transA"),
    "QLinearConv": _convolution(3),
    "QLinearMatMul": _product(0),
    "RNN": _recurrent(1),
}
"""How the multiply-accumulates of each operator that has some are counted."""
