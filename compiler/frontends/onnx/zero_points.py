"""zero_points: a product of integers whose zero point is known when it runs becomes one without, and a difference.

    sum((a - z) * w) = sum((a - m) * w) - (z - m) * sum(w)

with m the number that is 0 on the machine. The first sum is the machine's; the last one is a constant, which is
multiplied and subtracted as int32 in ONNX Runtime. Whole numbers of 32 bits wrap, so that both sides are equal whatever
they are. At the border of an image `sum(w)` is of those weights that meet the image: there are as many different ones
as the border has rows and columns, which Gather puts in their places.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.functions import ADDED
from npukit.compiler.frontends.onnx.importer import Imported, SourceForm
from npukit.compiler.frontends.onnx.operators.quantisation import (
    ONNX_DOMAINS,
    constant,
    machine_zero,
    static_shape,
)
from npukit.compiler.frontends.onnx.operators.windows import window_axes
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.pass_base import Pass
from npukit.isa.config import NpuConfig
from npukit.isa.formats import INT8, INT32
from numpy.typing import NDArray

__all__ = ["ZeroPointsPass"]

_LARGEST = 1 << 20
"""Rows or columns of an image that is looked at."""


@dataclass(frozen=True)
class ZeroPointsPass(Pass[Imported, Imported]):
    """MatMulInteger and ConvInteger with the zero point that the machine has; bf16 machines have none of them."""

    config: NpuConfig
    name = "zero_points"

    def run(self, imported: Imported) -> Imported:
        """The same graph, changed in place; the nodes that come in count as the model's, also for ONNX Runtime."""
        if self.config.activation.floating:
            return imported
        graph = imported.model.graph
        added: list[ir.Node] = []
        names = _names(graph)
        for node in list(graph):
            if node.op_type in ("ConvInteger", "MatMulInteger") and node.domain in ONNX_DOMAINS:
                sums = _sums_of_weights(node)
                if sums is not None:
                    added += _split(graph, node, sums, names)
        if not added:
            return imported
        forms = {**imported.forms, **{node: SourceForm.of(node) for node in added}}
        return replace(imported, source=ir.to_proto(imported.model), forms=forms)


def _names(graph: ir.Graph) -> set[str]:
    """All names of nodes and values, in graphs inside of others too."""
    found = {name for name in graph.initializers} | {value.name or "" for value in graph.inputs}
    for node in graph.all_nodes():
        found |= {node.name or "", *(value.name or "" for value in (*node.inputs, *node.outputs) if value is not None)}
    return found


@dataclass(frozen=True)
class _Sums:
    """Sums of weights: [1, outputs], or [1, outputs, ...] of the places that differ; and for each axis of the image
    which of them each place has, if there is more than one."""

    values: NDArray[np.int32]
    places: tuple[NDArray[np.int64] | None, ...] = ()


def _sums_of_weights(node: ir.Node) -> _Sums | None:
    """What the zero point of a node is multiplied with; None where the machine's zero point is the node's, or where the
    node is none that the machine could compute, so that it stays as it is."""
    value, weights, zero, of_weights = (*node.inputs, None, None)[:4]
    raw = constant(weights)
    if value is None or raw is None or raw.dtype not in (np.int8, np.uint8) or constant(value) is not None:
        return None
    if value.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return None
    points = np.zeros((), np.int64) if of_weights is None else constant(of_weights)
    if points is None or (of_weights is not None and points.dtype != raw.dtype):
        return None
    try:
        shape, result = static_shape(value), static_shape(node.outputs[0])
        if not _is_other(zero, value.dtype):
            return None
        if node.op_type == "MatMulInteger":
            return _of_matrix(raw, points, shape)
        return _of_windows(node, raw, points, shape, result)
    except Refused:
        return None


def _is_other(zero: ir.Value | None, dtype: ir.DataType | None) -> bool:
    """Whether a zero point is one number, and not known to be the machine's."""
    known = np.zeros(1, np.int64) if zero is None else constant(zero)
    if known is not None:
        return known.size == 1 and int(known.reshape(-1)[0]) != machine_zero(dtype)
    assert zero is not None
    return zero.shape is not None and zero.dtype == dtype and static_shape(zero) in ((), (1,))


def _of_matrix(weights: NDArray, points: NDArray, shape: tuple[int, ...]) -> _Sums | None:
    if weights.ndim != 2 or len(shape) < 2 or shape[-1] != len(weights) or points.ndim > 1:
        return None
    if points.size not in (1, weights.shape[1]):
        return None
    whole = weights.astype(np.int64) - points.astype(np.int64).reshape(-1)
    return _Sums(_wrapped(whole.sum(axis=0)[None]))


def _of_windows(
    node: ir.Node, weights: NDArray, points: NDArray, shape: tuple[int, ...], result: tuple[int, ...]
) -> _Sums | None:
    kernel, groups = weights.shape[2:], node.attributes.get_int("group", 1)
    if weights.ndim != len(shape) or weights.ndim not in (3, 4) or points.size != 1:
        return None  # ONNX Runtime has several zero points of weights for products of matrices alone
    if groups < 1 or weights.shape[0] % groups or shape[1] != weights.shape[1] * groups:
        return None
    if list(node.attributes.get_ints("kernel_shape") or kernel) != list(kernel):
        return None
    if max(result) > _LARGEST:
        return None
    sums = (weights.astype(np.int64) - int(points.reshape(-1)[0])).sum(axis=1)
    places: list[NDArray[np.int64] | None] = []
    windows = window_axes(node, Tensor("the image", shape, INT8), Tensor("the result", result, INT32), kernel)
    for axis, window in enumerate(windows[-len(kernel) :]):
        first = np.arange(result[2 + axis])[:, None] * window.stride - window.before
        seen = first + np.arange(kernel[axis])[None] * window.dilation
        inside, which = np.unique((seen >= 0) & (seen < shape[2 + axis]), axis=0, return_inverse=True)
        sums = np.moveaxis(np.tensordot(sums, inside.astype(np.int64), ([1 + axis], [1])), -1, 1 + axis)
        places.append(which.reshape(-1) if len(inside) > 1 else None)
    return _Sums(_wrapped(sums[None]), tuple(places))


def _wrapped(sums: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.ascontiguousarray(sums.astype(np.uint32, casting="unsafe").view(np.int32))


def _split(graph: ir.Graph, node: ir.Node, sums: _Sums, names: set[str]) -> list[ir.Node]:
    """Put nodes in the place of one; they are returned."""
    value, weights, zero, of_weights = (*node.inputs, None, None)[:4]
    assert value is not None and weights is not None
    result = node.outputs[0]
    known, wanted = None if zero is None else constant(zero), machine_zero(value.dtype)
    added: list[ir.Node] = []

    def free(name: str) -> str:
        found = free_name(name, names)
        names.add(found)
        return found

    def make(op: str, inputs: Sequence[ir.Value | None], what: str, shape: Any, **attributes: Any) -> ir.Value:
        one = ir.node(op, inputs, attributes, name=free(f"{node.name}: {what}") if added else node.name)
        if added:
            one.meta[ADDED] = node.name
        made = one.outputs[0]
        made.name, made.shape, made.type = free(f"{result.name}: {what}"), shape, ir.TensorType(ir.DataType.INT32)
        added.append(one)
        return made

    def number(what: str, array: NDArray) -> ir.Value:
        name = free(f"{result.name}: {what}")
        held = ir.Value(
            name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        )  # fmt: skip
        graph.register_initializer(held)
        return held

    of_machine = number("zero of the machine", np.asarray(np.uint8(wanted) if wanted else np.int8(wanted)))
    attributes = {name: one.value for name, one in node.attributes.items()}
    operands = [value, weights, of_machine, *([of_weights] if of_weights is not None else [])]
    products = make(node.op_type, operands, "products", result.shape, **attributes)
    term = number("sums of weights", sums.values)
    if zero is None or known is not None:
        difference = (0 if known is None else int(known.reshape(-1)[0])) - wanted
        term = number("what its zero point adds", _wrapped(sums.values.astype(np.int64) * difference))
    else:
        less = make("Cast", [zero], "zero point as int32", zero.shape, to=ir.DataType.INT32)
        if wanted:
            less = make("Sub", [less, number("128", np.array(wanted, np.int32))], "zero point less 128", zero.shape)
        term = make("Mul", [term, less], "what its zero point adds", term.shape)
    sizes = list(sums.values.shape)
    for axis, which in enumerate(sums.places, 2):
        if which is not None:
            sizes[axis] = len(which)
            term = make("Gather", [term, number(f"places {axis}", which)], f"along {axis}", ir.Shape(sizes), axis=axis)
    make("Sub", [products, term], "difference", result.shape)
    end = added[-1].outputs[0]
    ir.convenience.replace_nodes_and_values(graph, node, [node], added, [result], [end])
    return added
