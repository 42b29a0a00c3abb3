"""Functions of one element, by table: any chain of elementwise operators between two quantised tensors."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import (
    Context,
    Dequantized,
    Match,
    Produced,
    activation,
    constant,
    dequantized,
    match_of,
    quantized_output,
    sources_of,
)
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.operations import Lookup
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.driver.host import HostError, open_session, run_session
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = ["UNARY", "SeveralTensors", "match_unary", "requantising_table"]

_ONE_INPUT = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity "
    "LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan "
    "Tanh ThresholdedRelu".split()
)
_MORE_INPUTS = frozenset("Add Clip Div Max Min Mul PRelu Pow Sub".split())
UNARY = _ONE_INPUT | _MORE_INPUTS
"""Operators that a table may hold: those of several inputs where all but one tensor are single numbers."""

_ENTRIES = 256
_POSITIONS = 67
"""Elements of a tensor that fills vectors of every width and leaves some over."""


class SeveralTensors(Refused):
    """A chain that is not a function of one tensor."""


def match_unary(context: Context, node: ir.Node) -> Match:
    """Any chain of these between two quantised tensors that is a function of one element, by a table of 256 entries."""
    chain: list[ir.Node] = []
    sources: dict[str, ir.Value] = {}
    constants: dict[str, NDArray] = {}
    _collect(context, node, chain, sources, constants)
    if len(sources) != 1:
        raise SeveralTensors(f"it combines {', '.join(sources) or 'constants'}; a table is a function of one tensor")
    for inner in chain:
        for value in inner.outputs:
            if inner is not node and (
                value.name in context.graph_outputs or any(use.node not in chain for use in value.uses())
            ):
                raise Refused(f"its float operand {value.name} is used elsewhere, too")
    nodes, out, y = quantized_output(context, node, (), absorb=False)
    (source,) = sources.values()
    quantized, x = activation(source, "input")
    if x.shape != y.shape:
        raise Refused(f"it turns the shape {list(x.shape)} into {list(y.shape)}")
    chain = [one for one in chain if one not in nodes]
    dequantiser = source.producer()
    assert dequantiser is not None
    # the same operators, run by ONNX Runtime on all values
    run = [dequantiser, *reversed(chain), *nodes]
    for one in (dequantiser, nodes[-1]):
        for value in one.inputs[1:]:
            if value is not None and (array := constant(value)) is not None:
                constants[value.name or ""] = array
    table = _evaluate(context, run, constants, quantized.name or "", x, out.name or "", y)

    nodes = (*nodes, *chain)
    operation = Lookup(output=y.name, sources=sources_of(nodes), input=x.name, table=table.tensor.name)
    return match_of(node, Produced(nodes, out, y), [quantized], [x], operation, [table])


def _collect(
    context: Context, node: ir.Node, chain: list[ir.Node], sources: dict[str, ir.Value], constants: dict[str, NDArray]
) -> None:
    """Walk from a node to what it is computed from."""
    if node in chain:
        chain.remove(node)  # it must come before both of its users
    chain.append(node)
    for value in node.inputs:
        if value is None or value.name == "":
            continue
        array = constant(value)
        found = dequantized(value) if array is None else None
        producer = value.producer()
        if array is not None:
            if array.size != 1:
                raise Refused(f"constant {value.name} has {array.size} elements; a table takes single numbers")
            constants[value.name or ""] = array
        elif found is not None and constant(found.value) is None:
            earlier = sources.setdefault(found.value.name or "", value)
            if not _alike(found, dequantized(earlier)):
                raise Refused(f"it reads {found.value.name} through two different DequantizeLinears")
        elif producer is not None and producer.op_type in UNARY and producer.domain in ("", "ai.onnx"):
            _collect(context, producer, chain, sources, constants)
        else:
            raise Refused(f"input {value.name} is float: it does not come from a DequantizeLinear; quantise the model")


def _alike(one: Dequantized, other: Dequantized | None) -> bool:
    return (
        other is not None
        and np.array_equal(one.scale, other.scale)
        and np.array_equal(one.zero_point, other.zero_point)
        and one.zero_point.dtype == other.zero_point.dtype
    )


def _evaluate(
    context: Context, nodes: Sequence[ir.Node], constants: Mapping[str, NDArray], source: str, x: Tensor,
    target: str, y: Tensor,
) -> Constant:  # fmt: skip
    protos = [ir.to_proto(node) for node in nodes]
    # users of other dequantisers of the same tensor
    made = {name for proto in protos for name in proto.output}
    for proto in protos[1:]:
        for position, name in enumerate(proto.input):
            if name and name not in made and name not in constants:
                proto.input[position] = protos[0].output[0]
    opsets = [helper.make_opsetid(domain, version) for domain, version in context.opsets.items()]
    return _run(protos, constants, opsets, source, x, target, y)


def requantising_table(x: Tensor, y: Tensor, taken: Collection[str] = ()) -> Constant | None:
    """From x's quantisation to y's; None where they are the same. `taken`: names that it must not have."""
    if (x.quantization, x.format) == (y.quantization, y.format):
        return None
    constants: dict[str, NDArray] = {}
    for name, tensor in (("x", x), ("y", y)):
        constants[f"{name}_scale"] = np.array(tensor.scale, np.float32)
        constants[f"{name}_zero"] = np.array(tensor.zero_point, tensor.format.storage)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "y_scale", "y_zero"], ["y"]),
    ]
    return _run(nodes, constants, [helper.make_opsetid("", 21)], "x", x, "y", y, taken)


def _run(
    nodes: Sequence[onnx.NodeProto], constants: Mapping[str, NDArray], opsets: Sequence[onnx.OperatorSetIdProto],
    source: str, x: Tensor, target: str, y: Tensor, taken: Collection[str] = (),
) -> Constant:  # fmt: skip
    """All 256 values through a graph, in ONNX Runtime: a table whose name says between which tensors it leads."""
    shape = [1] * (len(x.shape) - 1)
    dtypes = [helper.np_dtype_to_tensor_dtype(np.dtype(tensor.format.storage)) for tensor in (x, y)]
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info(source, dtypes[0], [*shape, None])],
        [helper.make_tensor_value_info(target, dtypes[1], None)],
        [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=list(opsets), ir_version=10)
    values = np.array(x.format.stored, x.format.storage)
    try:
        session = open_session(model)
        table = run_session(session, [target], {source: values.reshape(*shape, -1)})[target].reshape(-1)
        # ONNX Runtime's vector kernels and what is left over behind them may differ in the last place
        for value, entry in zip(values, table, strict=True):
            alone = np.full((*shape, _POSITIONS), value)
            if (run_session(session, [target], {source: alone})[target] != entry).any():
                raise Refused(f"for {value}, ONNX Runtime's result depends on the element's place in its tensor")
    except HostError as error:
        raise Refused(f"ONNX Runtime cannot make its table: {error}") from None
    name = free_name(f"{x.name} to {y.name}", {x.name, y.name, *taken})
    return Constant(Tensor(name, table.shape, y.format, y.quantization), table)
