"""How an operator is recognised: inputs through DequantizeLinear, output through QuantizeLinear."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.tables import Table
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Limits, Reshape, SourceNode, TensorOperation
from npukit.compiler.ir.tensor import Constant, Quantization, Tensor
from npukit.isa.config import NpuConfig
from npukit.isa.formats import BFLOAT16, FORMATS
from numpy.typing import NDArray

__all__ = [
    "Context",
    "Dequantized",
    "Match",
    "Produced",
    "Refused",
    "Window",
    "activation",
    "constant",
    "declared_quantization",
    "dequantized",
    "float_tensor",
    "graphs_of",
    "is_quantiser",
    "limits_of",
    "match_of",
    "match_of_several",
    "produced",
    "quantization_of",
    "quantized_output",
    "same_parameters",
    "source",
    "sources_of",
    "static_shape",
    "tensor_of",
    "used_values",
    "window_attribute",
    "window_of",
]


_ONNX = ("", "ai.onnx")


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

    @property
    def floats(self) -> bool:
        """Whether float tensors run on the machine, in bfloat16, and not quantised ones."""
        return self.config.activation.floating


@dataclass(frozen=True)
class Dequantized:
    """A DequantizeLinear: the integer value, its scale and zero point (arrays), and its channel axis."""

    value: ir.Value
    scale: NDArray[np.float32]
    zero_point: NDArray[np.integer]
    axis: int


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
        return isinstance(self.graph.operations[0], Reshape)


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


def match_of_several(
    node: ir.Node, results: Sequence["Produced"], values: Sequence[ir.Value], tensors: Sequence[Tensor],
    operations: Sequence[TensorOperation], constants: Sequence[Constant] = (),
) -> Match:  # fmt: skip
    """A match of a node with several results: an operation for each. See `match_of`."""
    graph = Graph(
        name=node.name or "",
        operations=tuple(operations),
        tensors={one.name: one for one in (*tensors, *(result.tensor for result in results))},
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


def constant(value: ir.Value | None) -> NDArray | None:
    """The array of an initializer, or None for anything else."""
    if value is None or value.const_value is None or value.producer() is not None:
        return None
    return value.const_value.numpy()


def static_shape(value: ir.Value) -> tuple[int, ...]:
    """The shape of a value.

    Raises:
        Refused: when it is not known.
    """
    if value.shape is None or not all(isinstance(dim, int) for dim in value.shape):
        raise Refused(f"the shape of {value.name} is not static")
    shape = tuple(int(dim) for dim in value.shape.numpy())
    if min(shape, default=1) < 1:  # ONNX's shape inference gives a window larger than its input a negative result
        raise Refused(f"{value.name} has no elements: shape {list(shape)}")
    return shape


def _integer(node: ir.Node, name: str, default: int) -> int:
    """An attribute of a quantiser; ONNX checks its type in its own domain, and not in ONNX Runtime's."""
    try:
        return node.attributes.get_int(name, default)
    except TypeError:
        raise Refused(f"the attribute {name} of {node.name} is no integer") from None


def _parameters(node: ir.Node) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear: one number each, or one for each channel.

    Raises:
        Refused: for everything else that ONNX allows, and what it does not.
    """
    scale = constant(node.inputs[1])
    if scale is None:
        raise Refused(f"the scale of {node.name} is not constant")
    wrong = scale[~(np.isfinite(scale) & (scale > 0))].reshape(-1)
    if scale.dtype != np.float32 or wrong.size:
        value = f"{wrong[0]}" if wrong.size else f"{scale.dtype}"
        raise Refused(f"the scale of {node.name} must be positive float32, not {value}")
    if scale.ndim > 1 or not scale.size:
        raise Refused(
            f"the scale of {node.name} has the shape {list(scale.shape)}; one number or a vector is supported"
        )
    quantized = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    dtype = quantized.dtype.numpy() if quantized is not None and quantized.dtype is not None else None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        zero_point = constant(node.inputs[2])
        if zero_point is None:
            raise Refused(f"the zero point of {node.name} is not constant")
        if zero_point.ndim > 1 or zero_point.size != scale.size:
            raise Refused(
                f"the zero point of {node.name} has the shape {list(zero_point.shape)} and its scale "
                f"{list(scale.shape)}; the same shape is supported"
            )
        if dtype is not None and zero_point.dtype != dtype:
            raise Refused(f"the zero point of {node.name} is {zero_point.dtype} and its tensor {np.dtype(dtype)}")
    else:
        zero_point = np.zeros(scale.shape, dtype or np.uint8)
    if _integer(node, "block_size", 0):
        raise Refused(f"{node.name} quantises in blocks; per tensor or per channel is supported")
    if _integer(node, "precision", 0) not in (0, ir.DataType.FLOAT):
        raise Refused(f"{node.name} has a precision of its own; float32 is supported")
    return scale, zero_point


def is_quantiser(node: ir.Node, *ops: str) -> bool:
    """Whether a node is one of `ops`, by default one of both quantisers; also of ONNX Runtime's older domain."""
    return node.op_type in (ops or ("QuantizeLinear", "DequantizeLinear")) and node.domain in (*_ONNX, "com.microsoft")


def dequantized(value: ir.Value | None) -> Dequantized | None:
    """The DequantizeLinear that makes a value, or None."""
    node = value.producer() if value is not None else None
    if node is None or not is_quantiser(node, "DequantizeLinear") or node.inputs[0] is None:
        return None
    scale, zero_point = _parameters(node)
    return Dequantized(node.inputs[0], scale, zero_point, _integer(node, "axis", 1))


def tensor_of(value: ir.Value, scale: NDArray, zero_point: NDArray) -> Tensor:
    """An activation's description.

    Raises:
        Refused: for parameters per channel, or another type than int8 and uint8.
    """
    if scale.size != 1 or zero_point.size != 1:
        raise Refused(f"{value.name} is quantised per channel; activations must be per tensor")
    if zero_point.dtype not in (np.int8, np.uint8):
        raise Refused(f"{value.name} is {zero_point.dtype}; activations must be int8 or uint8")
    return Tensor(
        value.name or "", _image_or_matrix(value), FORMATS[zero_point.dtype.name], quantization_of(scale, zero_point)
    )


def quantization_of(scale: NDArray, zero_point: NDArray, axis: int | None = None) -> Quantization:
    """Scales and zero points as the IR has them: one of each, or one for each index along `axis`."""
    scales = tuple(float(one) for one in scale.reshape(-1))
    return Quantization(scales, tuple(int(one) for one in zero_point.reshape(-1)), axis)


def _image_or_matrix(value: ir.Value) -> tuple[int, ...]:
    shape = static_shape(value)
    if len(shape) not in (2, 4):
        raise Refused(f"{value.name} has {len(shape)} dimensions; 4 (NCHW) or 2 are supported")
    return shape


def same_parameters(x: Tensor, y: Tensor, op: str) -> None:
    """Refuse an operator that moves values and changes their quantisation."""
    if (x.quantization, x.format) != (y.quantization, y.format):
        raise Refused(
            f"{op} changes the quantisation: {x.format.name} of scale {x.scale:g} and zero point {x.zero_point} to "
            f"{y.format.name} of {y.scale:g} and {y.zero_point}; equal parameters are supported"
        )


def activation(value: ir.Value | None, role: str) -> tuple[ir.Value, Tensor]:
    """The integer value behind a float input, and its description.

    The description has the integer value's name, or, where this is another reading of its numbers, the float value's.

    Raises:
        Refused: when the input is not a dequantised activation.
    """
    found = dequantized(value)
    if found is None:
        name = value.name if value is not None else "(absent)"
        raise Refused(f"{role} {name} is float: it does not come from a DequantizeLinear; quantise the model (QDQ)")
    if constant(found.value) is not None:
        raise Refused(f"{role} {found.value.name} is a constant; it must be an activation")
    tensor = tensor_of(found.value, found.scale, found.zero_point)
    assert value is not None
    if tensor.quantization != declared_quantization(found.value):
        tensor = replace(tensor, name=value.name or "")
    return found.value, tensor


def declared_quantization(value: ir.Value) -> Quantization:
    """The quantisation of an integer value: that of the QuantizeLinear that makes it, or of who reads it first.

    Only those with one scale count, and at least one reader has one.
    """
    maker = value.producer()
    readers = [use.node for use in value.uses() if use.idx == 0 and is_quantiser(use.node, "DequantizeLinear")]
    for node in ([maker] if maker is not None and is_quantiser(maker, "QuantizeLinear") else []) + readers:
        try:
            scale, zero_point = _parameters(node)
        except Refused:  # that quantiser stays
            continue
        if scale.size == 1:
            return quantization_of(scale, zero_point)
    raise AssertionError(f"nothing reads {value.name} with one scale")


@dataclass(frozen=True)
class Produced:
    """A node's result: the nodes up to it, the value, its description, and the limits that a
    node among them puts on it."""

    nodes: tuple[ir.Node, ...]
    value: ir.Value
    tensor: Tensor
    limits: Limits = None


def source(context: Context, value: ir.Value | None, role: str = "input") -> tuple[ir.Value, Tensor]:
    """The value that the machine reads for an input, and its description.

    Raises:
        Refused: when the machine cannot read it.
    """
    if not context.floats:
        return activation(value, role)
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
    return Tensor(value.name or "", _image_or_matrix(value), BFLOAT16)


def produced(
    context: Context, node: ir.Node, operators: tuple[str, ...] = (), *, clamp: bool = True, output: int = 0
) -> Produced:
    """What a node gives as one of its outputs. `operators`: see `quantized_output`. `clamp`: the machine's operation
    limits its result, so that a Relu or Clip behind a float one can be absorbed.

    Raises:
        Refused: when the machine cannot produce it.
    """
    if not context.floats:
        return Produced(*quantized_output(context, node, operators, output=output))
    value = node.outputs[output]
    uses = list(value.uses())
    if clamp and len(uses) == 1 and value.name not in context.graph_outputs and uses[0].idx == 0:
        follower = uses[0].node
        limits = limits_of(follower) if follower.domain in _ONNX and follower.graph is node.graph else None
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
        limits = absorb and follower.op_type in ("Relu", "Clip") and follower.domain in _ONNX
        if not (quantises or limits) or uses[0].idx != 0 or follower.graph is not node.graph:
            raise Refused(f"its result goes to {follower.op_type} {follower.name} in float, not to a QuantizeLinear")
        nodes.append(follower)
        value = follower.outputs[0]
        if quantises:
            break
    scale, zero_point = _parameters(nodes[-1])
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


@dataclass(frozen=True)
class Window:
    """How a window moves over an image: (vertical, horizontal), and padding (top, left, bottom, right).

    Bottom and right are what the output's size needs; a negative need is 0.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]


def window_of(node: ir.Node, x: Tensor, y: Tensor, kernel: Sequence[int]) -> Window:
    """The window of a Conv or pool, of its attributes `strides`, `dilations`, `pads`, `auto_pad` and `ceil_mode`.

    Raises:
        Refused: for attributes out of range, or where ONNX's shape inference sees another result than they give.
    """
    if len(x.shape) != 4 or len(y.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {node.op_type} needs 4 (NCHW)")
    size, out = x.view[2:], y.view[2:]
    kernel = window_attribute("kernel_shape", kernel, 2, 1)
    strides = window_attribute("strides", node.attributes.get_ints("strides") or (1, 1), 2, 1)
    dilations = window_attribute("dilations", node.attributes.get_ints("dilations") or (1, 1), 2, 1)
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    given = (0, 0, 0, 0)
    if mode == "NOTSET":
        given = window_attribute("pads", node.attributes.get_ints("pads") or given, 4, 0)
    elif mode not in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        raise Refused(f"auto_pad is {mode}; NOTSET, VALID, SAME_UPPER and SAME_LOWER are supported")
    reach = [(kernel[axis] - 1) * dilations[axis] + 1 for axis in (0, 1)]
    need = [(out[axis] - 1) * strides[axis] + reach[axis] - size[axis] for axis in (0, 1)]
    before, after = [given[0], given[1]], [given[2], given[3]]
    for axis in (0, 1):
        if mode.startswith("SAME"):
            total = max(0, need[axis])
            before[axis] = total // 2 if mode == "SAME_UPPER" else -(-total // 2)
            fits = out[axis] == -(-size[axis] // strides[axis])
        else:
            room = size[axis] + before[axis] + after[axis] - reach[axis]
            last = -(-room // strides[axis]) if node.attributes.get_int("ceil_mode", 0) else room // strides[axis]
            # with ceil_mode, a window that begins behind the image counts or not, by the operator set
            fits = room >= 0 and room // strides[axis] <= out[axis] - 1 <= last
        if not fits:
            raise Refused(
                f"kernel {kernel[0]}x{kernel[1]} with strides {list(strides)}, dilations {list(dilations)} and pads "
                f"{list(given)} does not make {list(y.shape)} of {list(x.shape)}"
            )
    pads = before[0], before[1], max(0, need[0] - before[0]), max(0, need[1] - before[1])
    return Window((kernel[0], kernel[1]), (strides[0], strides[1]), (dilations[0], dilations[1]), pads)


def window_attribute(name: str, values: Sequence[int], count: int, least: int) -> Sequence[int]:
    """An attribute of a window: `count` numbers, none below `least`. Raises Refused for others."""
    if len(values) != count or min(values) < least:
        raise Refused(f"its attribute {name} is {list(values)}; {count} numbers from {least} on are supported")
    return values
