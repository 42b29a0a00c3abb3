"""How an operator is recognised: inputs through DequantizeLinear, output through QuantizeLinear."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.channels import channel_axis
from npukit.compiler.frontends.onnx.operators.integer import Operand, activation, integer_result
from npukit.compiler.frontends.onnx.operators.quantisation import (
    ONNX_DOMAINS,
    Dequantized,
    activation_shape,
    constant,
    is_quantiser,
    parameters_of,
    tensor_of,
)
from npukit.compiler.frontends.onnx.operators.tables import Table, requantising_table
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Limits, Lookup, Rearrange, Reshape, SourceNode, TensorOperation
from npukit.compiler.ir.rearrange import moves_nothing
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.compiler.lines import Lines
from npukit.isa.config import NpuConfig
from npukit.isa.formats import BFLOAT16
from numpy.typing import NDArray

__all__ = [
    "Context",
    "DecomposedNormalization",
    "FloatChain",
    "Match",
    "Produced",
    "Refused",
    "alone",
    "float_tensor",
    "graphs_of",
    "limits_of",
    "match_of",
    "match_of_moved",
    "match_of_several",
    "produced",
    "quantized_output",
    "source",
    "sources_of",
    "used_values",
]


@dataclass(frozen=True)
class FloatChain:
    """Operators that are a function of one element of one tensor.

    Attributes:
        nodes: the last one first, which makes the result.
        source: what they are a function of.
        lines: that come near it, or None.
        problem: why there are none.
    """

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    lines: Lines | None
    problem: str = ""


@dataclass(frozen=True)
class DecomposedNormalization:
    """Nodes that normalise along the last dimension.

    Attributes:
        nodes: the last one first, which makes the result.
        source: what is normalised.
        scale, bias: of each channel, or one for all; None where there is none.
        epsilon: that is added to the variance.
        centred: whether the mean is subtracted.
    """

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    scale: NDArray[np.float32] | None
    bias: NDArray[np.float32] | None
    epsilon: float
    centred: bool


@dataclass(frozen=True)
class Context:
    """What the matchers look at besides the node."""

    config: NpuConfig
    integer: Mapping[str, str]
    """Tensor name -> operator, from ONNX Runtime's optimised graph."""
    graph_outputs: frozenset[str]
    opsets: Mapping[str, int]
    """Version of each operator set that the model imports."""
    tables: Mapping[ir.Node, Table] = field(default_factory=dict)
    """Of each node that ends a chain of functions of one element."""
    lines: Mapping[ir.Node, FloatChain] = field(default_factory=dict)
    """In bf16: the chain of each node that belongs to a function of one element."""
    normalizations: Mapping[ir.Node, DecomposedNormalization] = field(default_factory=dict)
    """In bf16: the normalisation of each node that belongs to one that is computed step by step."""

    @property
    def floats(self) -> bool:
        """Whether float tensors run on the machine, in bfloat16, and not quantised ones."""
        return self.config.activation.floating


@dataclass(frozen=True)
class Match:
    """A recognised node: all graph nodes that it absorbs, and the operations that it is, one for each result.

    Attributes:
        node: the one that computes.
        nodes: all of them.
        inputs: the activations that it reads.
        reads: the names under which the operation reads them.
        outputs: what it makes.
        graph: of the operations alone, with their tensors and constants.
    """

    node: ir.Node
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    reads: tuple[str, ...]
    outputs: tuple[ir.Value, ...]
    graph: Graph

    @property
    def alias(self) -> bool:
        """Whether the output lies where the input does, and there is nothing to compute."""
        return all(
            isinstance(one, Reshape)
            or isinstance(one, Rearrange)
            and moves_nothing(one, self.graph.tensors[one.input], self.graph.tensors[one.output])
            for one in self.graph.operations
        )


def match_of(
    node: ir.Node, result: "Produced", values: Sequence[ir.Value], tensors: Sequence[Tensor],
    operation: TensorOperation, constants: Sequence[Constant] = (),
) -> Match:  # fmt: skip
    """A match of one operation.

    Args:
        node: the one that computes.
        result: what it makes.
        values: the activations that it reads.
        tensors: their descriptions.
        operation: what it is.
        constants: that it reads.
    """
    return match_of_several(node, [result], values, tensors, [operation], constants)


def match_of_moved(
    node: ir.Node, results: Sequence["Produced"], value: ir.Value, x: Tensor, operations: Sequence[TensorOperation],
    before: Sequence[TensorOperation] = (), between: Sequence[Tensor] = (),
) -> Match:  # fmt: skip
    """A match of a node that hands elements of one tensor on: an operation for each result.

    A result with other parameters is looked up in a table of what ONNX's DequantizeLinear and QuantizeLinear make of
    each number: what moves elements, or chooses the greatest, can do so before as well.

    before: operations that come first. between: what they make.
    """
    made: list[TensorOperation] = [*before]
    inner: list[Tensor] = [*between]
    tables: list[Constant] = []
    for result, operation in zip(results, operations, strict=True):
        y = result.tensor
        table = None if y.format.floating else requantising_table(x, y)
        if table is None:
            made.append(operation)
            continue
        moved = replace(x, name=f"{y.name} as {x.name}", shape=y.shape, channel_axis=y.channel_axis)
        lookup = Lookup(output=y.name, sources=operation.sources, input=moved.name, table=table.tensor.name)
        made += [replace(operation, output=moved.name), lookup]
        inner.append(moved)
        tables.append(table)
    return match_of_several(node, results, [value], [x], made, tables, inner)


def match_of_several(
    node: ir.Node, results: Sequence["Produced"], values: Sequence[ir.Value], tensors: Sequence[Tensor],
    operations: Sequence[TensorOperation], constants: Sequence[Constant] = (), inner: Sequence[Tensor] = (),
) -> Match:  # fmt: skip
    """A match of a node with several results: an operation for each, and for each of the `inner` tensors between them.
    See `match_of`."""
    graph = Graph(
        name=node.name or "",
        operations=tuple(operations),
        tensors={one.name: one for one in (*tensors, *inner, *(result.tensor for result in results))},
        constants={one.tensor.name: one for one in constants},
        inputs=tuple(dict.fromkeys(one.name for one in tensors)),
        outputs=tuple(result.tensor.name for result in results),
    )
    return Match(
        node=node,
        nodes=tuple(dict.fromkeys(one for result in results for one in result.nodes)),
        inputs=tuple(values),
        reads=tuple(one.name for one in tensors),
        outputs=tuple(result.value for result in results),
        graph=graph,
    )


def alone(nodes: Sequence[ir.Node], outputs: Collection[str]) -> bool:
    """Whether nothing but these nodes, the last one first, reads what all but that one make."""
    return not any(
        value.name in outputs or any(use.node not in nodes for use in value.uses())
        for node in nodes[1:]
        for value in node.outputs
    )


def sources_of(nodes: Sequence[ir.Node]) -> tuple[SourceNode, ...]:
    """The provenance of an operation that stands for these nodes, of which the first computes."""
    return tuple(SourceNode(node.name or "", node.op_type) for node in nodes)


def used_values(node: ir.Node) -> Iterator[ir.Value]:
    """A node's inputs, and what graphs inside of it (the branches of an If) take from the outside."""
    yield from (value for value in node.inputs if value is not None)
    for graph in graphs_of(node):
        own = {value for one in graph for value in one.outputs} | set(graph.inputs)
        taken = [*graph.outputs, *(value for one in graph for value in used_values(one))]
        yield from (value for value in taken if value not in own)


def graphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that a node holds in its attributes."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


@dataclass(frozen=True)
class Produced:
    """A node's result: the nodes up to it, the value, its description, and the limits that a
    node among them puts on it."""

    nodes: tuple[ir.Node, ...]
    value: ir.Value
    tensor: Tensor
    limits: Limits = None


def source(context: Context, operand: Operand, role: str = "input") -> tuple[ir.Value, Tensor]:
    """The value that the machine reads for an operand, and its description.

    Raises:
        Refused: when the machine cannot read it.
    """
    if not context.floats:
        return activation(operand, role)
    value = operand.value if isinstance(operand, Dequantized) else operand
    if value is None or constant(value) is not None:
        raise Refused(
            f"{role} {value.name if value is not None else '(absent)'} is a constant; it must be an activation"
        )
    return value, float_tensor(value)


def float_tensor(value: ir.Value) -> Tensor:
    """A float activation's description.

    Raises:
        Refused: for another type, or a shape that is not known.
    """
    if value.dtype != ir.DataType.FLOAT:
        raise Refused(f"{value.name} is {value.dtype}; float32 is supported")
    return Tensor(value.name or "", activation_shape(value), BFLOAT16, channel_axis=channel_axis(value))


def produced(
    context: Context, node: ir.Node, operators: tuple[str, ...] = (), *, clamp: bool = True, output: int = 0
) -> Produced:
    """What a node gives as one of its outputs. `operators`: see `quantized_output`. `clamp`: the machine's operation
    limits its result, so that a Relu or Clip behind a float one can be absorbed.

    Raises:
        Refused: when the machine cannot produce it.
    """
    if not context.floats:
        own = integer_result(node, output)
        if own is not None:
            return Produced((node,), node.outputs[output], own)
        return Produced(*quantized_output(context, node, operators, output=output))
    value = node.outputs[output]
    uses = list(value.uses())
    if clamp and len(uses) == 1 and value.name not in context.graph_outputs and uses[0].idx == 0:
        follower = uses[0].node
        free = follower.domain in ONNX_DOMAINS and follower.graph is node.graph and follower not in context.lines
        limits = limits_of(follower) if free else None
        if limits is not None:
            return Produced((node, follower), follower.outputs[0], float_tensor(follower.outputs[0]), limits)
    return Produced((node,), value, float_tensor(value))


def limits_of(node: ir.Node) -> tuple[float, float] | None:
    """Limits of a Relu, or of a Clip whose limits are constant numbers; None for anything else."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip":
        return None
    found = [node.attributes.get_float("min", -np.inf), node.attributes.get_float("max", np.inf)]
    for position, value in enumerate(node.inputs[1:3]):
        if value is not None:
            array = constant(value)
            if array is None or array.size != 1:
                return None
            found[position] = float(array.reshape(-1)[0])
    return found[0], found[1]


def quantized_output(
    context: Context, node: ir.Node, operators: tuple[str, ...], absorb: bool = True, output: int = 0
) -> tuple[tuple[ir.Node, ...], ir.Value, Tensor]:
    """The nodes from `node` to its QuantizeLinear, the quantised value, and its description.

    A Relu or Clip between them is absorbed where the quantiser's range lies within its own, as ONNX Runtime
    does, unless not `absorb`. `operators` are the integer operators as which ONNX Runtime must run the node.

    Raises:
        Refused: when the output is used as float, or ONNX Runtime computes it in float.
    """
    nodes = [node]
    value = node.outputs[output]
    while True:
        uses = list(value.uses())
        if value.name in context.graph_outputs or len(uses) != 1:
            raise Refused(f"its float result {value.name} is used besides by one QuantizeLinear")
        follower = uses[0].node
        quantises = is_quantiser(follower, "QuantizeLinear")
        limits = absorb and follower.op_type in ("Relu", "Clip") and follower.domain in ONNX_DOMAINS
        if not (quantises or limits) or uses[0].idx != 0 or follower.graph is not node.graph:
            raise Refused(f"its result goes to {follower.op_type} {follower.name} in float, not to a QuantizeLinear")
        nodes.append(follower)
        value = follower.outputs[0]
        if quantises:
            break
    scale, zero_point = parameters_of(nodes[-1])
    tensor = tensor_of(value, scale, zero_point)
    runs_as = context.integer.get(tensor.name)
    if runs_as not in operators:  # else ONNX Runtime has absorbed what stands between
        for limiter in nodes[1:-1]:
            _check_limits(limiter, tensor)
    if operators and runs_as not in operators:
        seen = f"as {runs_as}" if runs_as not in (None, "QuantizeLinear") else "in float"
        raise Refused(
            f"ONNX Runtime runs it {seen}, not as {' or '.join(operators)}, so its integer result is not defined"
        )
    return tuple(nodes), value, tensor


def _check_limits(node: ir.Node, tensor: Tensor) -> None:
    """Refuse a Relu or Clip that leaves out a part of what its quantiser can hold."""
    limits = limits_of(node)
    if limits is None:
        raise Refused(f"the limits of Clip {node.name} are not constant")
    stored = tensor.format.stored
    ends = stored.start - tensor.zero_point, stored.stop - 1 - tensor.zero_point
    least, most = (float(np.float32(one) * np.float32(tensor.scale)) for one in ends)
    if not (limits[0] <= least and most <= limits[1]):  # nor where one is NaN
        raise Refused(
            f"{node.op_type} {node.name} is not absorbed by its quantiser: {tensor.name} holds {least:g} to {most:g}, "
            f"the limits are {limits[0]:g} and {limits[1]:g}, so ONNX Runtime computes in float"
        )
