"""zero_points: a product of integers whose zero point is known when it runs becomes one without, and a difference.

    sum((a - z) * w) = sum((a - m) * w) - (z - m) * sum(w)

with m the number that is 0 on the machine. The first sum is the machine's; the last one is a constant, which is
multiplied and subtracted as int32 in ONNX Runtime. Whole numbers of 32 bits wrap, so that both sides are equal whatever
they are. At the border of an image, where there are fewer products, `sum(w)` is of those that there are: it is what the
operator itself makes of an image of ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from npukit.compiler.frontends.onnx.importer import Imported, SourceForm
from npukit.compiler.frontends.onnx.operators.quantisation import ONNX_DOMAINS, constant, machine_zero
from npukit.compiler.pass_base import Pass
from npukit.driver.host import open_session, run_session
from npukit.isa.config import NpuConfig
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["ZeroPointsPass"]


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
        for node in list(graph):
            if node.op_type in ("ConvInteger", "MatMulInteger") and node.domain in ONNX_DOMAINS and _is_split(node):
                added += _split(graph, node)
        if not added:
            return imported
        forms = {**imported.forms, **{node: SourceForm.of(node) for node in added}}
        return replace(imported, source=ir.to_proto(imported.model), forms=forms)


def _is_split(node: ir.Node) -> bool:
    """Whether a node has one zero point, which is not the machine's, and weights and shapes that are known."""
    value, weights = node.inputs[0], constant(node.inputs[1])
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None or weights is None or constant(value) is not None or value.shape is None:
        return False
    if value.dtype not in (ir.DataType.INT8, ir.DataType.UINT8) or not all(isinstance(one, int) for one in value.shape):
        return False
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        of_weights = constant(node.inputs[3])
        # ONNX Runtime has several for products of matrices alone
        if of_weights is None or node.op_type == "ConvInteger" and of_weights.size > 1:
            return False
    known = np.zeros(1, np.int64) if zero is None else constant(zero)
    if known is not None:
        return known.size == 1 and int(known.reshape(-1)[0]) != machine_zero(value.dtype)
    return zero is not None and zero.shape is not None and zero.shape.numpy() in ((), (1,))


def _split(graph: ir.Graph, node: ir.Node) -> list[ir.Node]:
    """Put nodes in the place of one; they are returned."""
    value, weights, *rest = node.inputs
    assert value is not None and weights is not None and value.dtype is not None
    result = node.outputs[0]
    zero, of_weights = rest[0] if rest else None, rest[1:2]
    known, wanted = None if zero is None else constant(zero), machine_zero(value.dtype)
    added: list[ir.Node] = []

    def make(op: str, inputs: Sequence[ir.Value | None], what: str, like: ir.Value, **attributes: Any) -> ir.Value:
        one = ir.node(op, inputs, attributes, name=f"{node.name}: {what}" if added else node.name)
        made = one.outputs[0]
        made.name, made.shape, made.type = f"{result.name}: {what}", like.shape, ir.TensorType(ir.DataType.INT32)
        added.append(one)
        return made

    def number(what: str, array: NDArray) -> ir.Value:
        name = f"{result.name}: {what}"
        held = ir.Value(
            name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        )  # fmt: skip
        graph.register_initializer(held)
        return held

    of_machine = number("zero of the machine", np.array(wanted, value.dtype.numpy()))
    attributes = {name: one.value for name, one in node.attributes.items()}
    products = make(node.op_type, [value, weights, of_machine, *of_weights], "products", result, **attributes)
    sums = _sums_of_weights(node)
    if zero is None or known is not None:
        difference = (0 if known is None else int(known.reshape(-1)[0])) - wanted
        term = number("what its zero point adds", (sums.astype(np.int64) * difference).astype(np.int32))
    else:
        whole = make("Cast", [zero], "zero point as int32", zero, to=ir.DataType.INT32)
        less = make("Sub", [whole, number("128", np.array(wanted, np.int32))], "zero point less 128", zero)
        held = number("sums of weights", sums)
        term = make("Mul", [held, less if wanted else whole], "what its zero point adds", held)
    make("Sub", [products, term], "difference", result)
    end = added[-1].outputs[0]
    ir.convenience.replace_nodes_and_values(graph, node, [node], added, [result], [end])
    return added


def _sums_of_weights(node: ir.Node) -> NDArray[np.int32]:
    """What an operator makes of ones: of one row or image, and of one place where all are alike."""
    value, weights, *rest = node.inputs
    assert value is not None and value.shape is not None and weights is not None
    rows = node.op_type == "MatMulInteger"
    sizes = [int(size) for size in value.shape.numpy()]
    of_weights = [one for one in rest[1:2] if one is not None]
    tensors = {"x": np.ones([1, sizes[-1]] if rows else [1, *sizes[1:]], np.uint8), "w": constant(weights)}
    if of_weights:
        tensors["z"] = constant(of_weights[0])
    inputs = ["x", "w", "", "z"] if of_weights else ["x", "w"]
    alone = helper.make_node(node.op_type, inputs, ["y"])
    alone.attribute.extend(ir.to_proto(one) for one in node.attributes.values())
    initializers = [numpy_helper.from_array(array, name) for name, array in tensors.items() if array is not None]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    model = helper.make_model(
        helper.make_graph([alone], "sums", [], [output], initializers), opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )  # fmt: skip
    sums = run_session(open_session(model), ["y"], {})["y"]
    place = sums if rows else sums[(slice(None), slice(None), *(slice(1),) * (sums.ndim - 2))]
    return place if (sums == place).all() else sums
