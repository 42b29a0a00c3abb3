"""How an operator is recognised: inputs through DequantizeLinear, output through QuantizeLinear."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir
from npukit.compiler.layers import Layer, QuantizedTensor
from npukit.isa.config import NpuConfig
from numpy.typing import NDArray

__all__ = [
    "MAX_PAD",
    "Context",
    "Dequantized",
    "Match",
    "Produced",
    "Refused",
    "Window",
    "activation",
    "constant",
    "dequantized",
    "float_tensor",
    "four_dimensions",
    "is_quantiser",
    "limits_of",
    "produced",
    "quantized_output",
    "ratio",
    "same_parameters",
    "source",
    "static_shape",
    "tensor_of",
    "used_values",
    "window_of",
]


MAX_PAD = 31
"""Rows or columns of border that a LOAD can add on one side."""
_ONNX = ("", "ai.onnx")


class Refused(Exception):
    """A node that stays in ONNX Runtime; the message is the constraint and the value that broke it."""


@dataclass(frozen=True)
class Context:
    """What the matchers look at besides the node."""

    config: NpuConfig
    integer: Mapping[str, str]
    """Tensor name -> operator, from ONNX Runtime's optimised graph."""
    graph_outputs: frozenset[str]
    opsets: Mapping[str, int]
    """Version of each operator set that the model imports."""

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
    """A recognised node: all graph nodes that it absorbs, its tensors, and how to build its layer.

    `build` gets the tensors by name, with their storage resolved. `alias` says that the output lies
    where the input does: nothing to compute.
    """

    node: ir.Node
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    output: ir.Value
    tensors: tuple[QuantizedTensor, ...]
    build: Callable[[Mapping[str, QuantizedTensor]], Layer] | None
    alias: bool = False


def used_values(node: ir.Node) -> Iterator[ir.Value]:
    """A node's inputs, and what graphs inside of it (the branches of an If) take from the outside."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        inner = (attribute.as_graph(),) if attribute.type == ir.AttributeType.GRAPH else ()
        if attribute.type == ir.AttributeType.GRAPHS:
            inner = attribute.as_graphs()
        for graph in inner:
            own = {value for one in graph for value in one.outputs} | set(graph.inputs)
            taken = [*graph.outputs, *(value for one in graph for value in used_values(one))]
            yield from (value for value in taken if value not in own)


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


def tensor_of(value: ir.Value, scale: NDArray, zero_point: NDArray) -> QuantizedTensor:
    """An activation's description.

    Raises:
        Refused: for parameters per channel, or another type than int8 and uint8.
    """
    if scale.size != 1 or zero_point.size != 1:
        raise Refused(f"{value.name} is quantised per channel; activations must be per tensor")
    if zero_point.dtype not in (np.int8, np.uint8):
        raise Refused(f"{value.name} is {zero_point.dtype}; activations must be int8 or uint8")
    shape = static_shape(value)
    if len(shape) not in (2, 4):
        raise Refused(f"{value.name} has {len(shape)} dimensions; 4 (NCHW) or 2 are supported")
    view = four_dimensions(shape)
    unsigned = zero_point.dtype == np.uint8
    name = value.name or ""
    zero = int(zero_point.reshape(-1)[0]) - (128 if unsigned else 0)
    return QuantizedTensor(name, shape, view, float(scale.reshape(-1)[0]), zero, unsigned, name)


def four_dimensions(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """A shape of 4, 2 or fewer dimensions as NCHW: two are batch and channels."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    batch, channels = (1,) * (2 - len(shape)) + tuple(shape)
    return batch, channels, 1, 1


def same_parameters(x: QuantizedTensor, y: QuantizedTensor, op: str) -> None:
    """Refuse an operator that moves values and changes their quantisation."""
    if (x.scale, x.zero_point, x.unsigned) != (y.scale, y.zero_point, y.unsigned):
        raise Refused(
            f"{op} changes the quantisation: scale {x.scale:g} to {y.scale:g}, zero point {x.zero_point} to "
            f"{y.zero_point}; equal parameters are supported"
        )


def ratio(above: Iterable[NDArray | float], below: Iterable[float]) -> NDArray[np.float32]:
    """A product of scales over another, each step rounded to fp32.

    Raises:
        Refused: when it is not a normal number, which the machine does not compute with.
    """
    one = np.float32(1)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        top, bottom = (reduce(np.multiply, (np.float32(v) for v in values), one) for values in (above, below))
        found = np.asarray(top / bottom)
    wrong = found[~(np.isfinite(found) & (found >= np.finfo(np.float32).tiny))].reshape(-1)
    if wrong.size:
        raise Refused(f"its scales make the factor {wrong[0]:g}, which is not a normal fp32 number")
    return found


def activation(value: ir.Value | None, role: str) -> tuple[ir.Value, QuantizedTensor]:
    """The integer value behind a float input, and its description.

    Raises:
        Refused: when the input is not a dequantised activation.
    """
    found = dequantized(value)
    if found is None:
        name = value.name if value is not None else "(absent)"
        raise Refused(f"{role} {name} is float: it does not come from a DequantizeLinear; quantise the model (QDQ)")
    if constant(found.value) is not None:
        raise Refused(f"{role} {found.value.name} is a constant; it must be an activation")
    return found.value, tensor_of(found.value, found.scale, found.zero_point)


@dataclass(frozen=True)
class Produced:
    """A node's result: the nodes up to it, the value, its description, and the limits that they put on it."""

    nodes: tuple[ir.Node, ...]
    value: ir.Value
    tensor: QuantizedTensor
    low: float
    high: float


def source(context: Context, value: ir.Value | None, role: str = "input") -> tuple[ir.Value, QuantizedTensor]:
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


def float_tensor(value: ir.Value) -> QuantizedTensor:
    """A float activation's description.

    Raises:
        Refused: for another type, or a shape that is not known.
    """
    if value.dtype != ir.DataType.FLOAT:
        raise Refused(f"{value.name} is {value.dtype}; float32 is supported")
    shape = static_shape(value)
    if len(shape) not in (2, 4):
        raise Refused(f"{value.name} has {len(shape)} dimensions; 4 (NCHW) or 2 are supported")
    name = value.name or ""
    return QuantizedTensor(name, shape, four_dimensions(shape), 1.0, 0, False, name, floating=True)


def produced(context: Context, node: ir.Node, operators: tuple[str, ...] = (), *, clamp: bool = True) -> Produced:
    """What a node gives. `operators`: see `quantized_output`. `clamp`: the machine's operation limits its result, so
    that a Relu or Clip behind a float one can be absorbed.

    Raises:
        Refused: when the machine cannot produce it.
    """
    if not context.floats:
        return Produced(*quantized_output(context, node, operators), -128, 127)
    value = node.outputs[0]
    uses = list(value.uses())
    if clamp and len(uses) == 1 and value.name not in context.graph_outputs and uses[0].idx == 0:
        follower = uses[0].node
        limits = limits_of(follower) if follower.domain in _ONNX and follower.graph is node.graph else None
        if limits is not None:
            return Produced((node, follower), follower.outputs[0], float_tensor(follower.outputs[0]), *limits)
    return Produced((node,), value, float_tensor(value), -np.inf, np.inf)


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
    context: Context, node: ir.Node, operators: tuple[str, ...], absorb: bool = True
) -> tuple[tuple[ir.Node, ...], ir.Value, QuantizedTensor]:
    """The nodes from `node` to its QuantizeLinear, the quantised value, and its description.

    A Relu or Clip between them is absorbed where the quantiser's range lies within its own, as ONNX Runtime
    does, unless not `absorb`. `operators` are the integer operators as which ONNX Runtime must run the node.

    Raises:
        Refused: when the output is used as float, or ONNX Runtime computes it in float.
    """
    nodes = [node]
    value = node.outputs[0]
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


def _check_limits(node: ir.Node, tensor: QuantizedTensor) -> None:
    """Refuse a Relu or Clip that leaves out a part of what its quantiser can hold."""
    limits = limits_of(node)
    if limits is None:
        raise Refused(f"the limits of Clip {node.name} are not constant")
    least, most = (float(np.float32(limit - tensor.zero_point) * np.float32(tensor.scale)) for limit in (-128, 127))
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


def window_of(node: ir.Node, x: QuantizedTensor, y: QuantizedTensor, kernel: Sequence[int]) -> Window:
    """The window of a Conv or pool, of its attributes `strides`, `dilations`, `pads`, `auto_pad` and `ceil_mode`.

    Raises:
        Refused: for attributes out of range, or where ONNX's shape inference sees another result than they give.
    """
    if len(x.shape) != 4 or len(y.shape) != 4:
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {node.op_type} needs 4 (NCHW)")
    size, out = x.view[2:], y.view[2:]
    kernel = _attribute("kernel_shape", kernel, 2, 1)
    strides = _attribute("strides", node.attributes.get_ints("strides") or (1, 1), 2, 1)
    dilations = _attribute("dilations", node.attributes.get_ints("dilations") or (1, 1), 2, 1)
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    given = (0, 0, 0, 0)
    if mode == "NOTSET":
        given = _attribute("pads", node.attributes.get_ints("pads") or given, 4, 0)
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


def _attribute(name: str, values: Sequence[int], count: int, least: int) -> Sequence[int]:
    if len(values) != count or min(values) < least:
        raise Refused(f"its attribute {name} is {list(values)}; {count} numbers from {least} on are supported")
    return values
