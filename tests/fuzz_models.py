"""Mutated ONNX models: what ONNX Runtime runs, the kit runs with equal results, or refuses with a reason.

`mutate_model` changes a valid model in one to three places that mean something (attributes, initializers, scales, zero
points, shapes, types, edges, operators, versions), `mutate_bytes` its file anywhere. `examine_model` says what becomes
of one. `python tests/fuzz.py --only models` does so with many, in processes that are watched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper, numpy_helper

__all__ = [
    "BAD", "CONFIGS", "MUTATIONS", "Examination", "Verdict", "base_model", "examine_bytes", "examine_model",
    "mutate_bytes", "mutate_model",
]  # fmt: skip


class Verdict(StrEnum):
    """What becomes of a model."""

    AGREE = "both run it and agree"
    BOTH_REFUSE = "both refuse it"
    KIT_REFUSES = "the kit refuses it with a reason"
    KIT_ALONE = "the kit runs it and ONNX Runtime does not"
    DIFFER = "the results differ"
    TRACEBACK = "the kit ends in a traceback"


BAD = frozenset({Verdict.KIT_ALONE, Verdict.DIFFER, Verdict.TRACEBACK})
"""What must not become of any."""


@dataclass(frozen=True)
class Examination:
    """A verdict, and the reason, the first difference or the error."""

    verdict: Verdict
    detail: str = ""


# ---- mutations: each changes a model in place, or does nothing where it finds no place

_INTEGERS = (-(2**63), -(2**31), -4097, -5, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 64, 1023, 4096, 2**31, 2**63 - 1)
_SMALL = (-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 9)
_REALS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-45, 1e-40, 1.2e-38, 2.0**-100, 2.0**-23, 2.0**23, 2.0**31, 2.0**100, 3e38, 127.5,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
_TEXTS = (
    "", "constant", "edge", "reflect", "wrap", "nearest", "linear", "cubic", "NOTSET", "SAME_UPPER", "SAME_LOWER",
    "VALID", "asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize", "floor", "ceil",
    "round_prefer_floor", "round_prefer_ceil", "none", "tanh", "stretch", "not_larger", "junk",
)  # fmt: skip
_TYPES = tuple(
    getattr(TensorProto, name)
    for name in "FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 BOOL FLOAT16 DOUBLE UINT32 BFLOAT16 INT4".split()
)
_OPERATORS = (
    "Add", "Mul", "Sub", "Div", "Relu", "Clip", "Sigmoid", "Tanh", "Abs", "Neg", "Softmax", "MaxPool", "AveragePool",
    "GlobalAveragePool", "GlobalMaxPool", "Conv", "ConvTranspose", "Gemm", "MatMul", "Concat", "Flatten", "Reshape",
    "Squeeze", "Unsqueeze", "Transpose", "Pad", "Slice", "Resize", "Upsample", "Identity", "Cast", "QuantizeLinear",
    "DequantizeLinear", "Max", "Min", "Pow", "PRelu", "Dropout", "BatchNormalization", "Nonsense",
)  # fmt: skip


def _one(rng: Generator, among: Sequence[Any]) -> Any:
    return among[int(rng.integers(len(among)))] if len(among) else None


def _initializers(model: onnx.ModelProto) -> dict[str, TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def _put(tensor: TensorProto, array: NDArray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, order="C"), tensor.name))


def _array(tensor: TensorProto) -> NDArray | None:
    try:
        return np.array(numpy_helper.to_array(tensor))
    except Exception:  # an earlier mutation has damaged it
        return None


def _own_parameter(rng: Generator, model: onnx.ModelProto, position: int) -> TensorProto | None:
    """The scale (1) or zero point (2) of some quantiser, as an initializer of its own."""
    known = _initializers(model)
    nodes = [
        node
        for node in model.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        and len(node.input) > position
        and node.input[position] in known
    ]
    node = _one(rng, nodes)
    if node is None:
        return None
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(known[node.input[position]])
    tensor.name += "_mutated"
    while tensor.name in known:
        tensor.name += "_"
    name = node.input[position]
    if rng.random() < 0.5:  # everywhere, so that quantiser and dequantiser still agree
        for other in model.graph.node:
            for place, value in enumerate(other.input):
                if value == name:
                    other.input[place] = tensor.name
    else:
        node.input[position] = tensor.name
    return tensor


def _reshaped(rng: Generator, array: NDArray) -> NDArray:
    """The same first number as a scalar, with one axis, with several, with none, or with one for each channel."""
    first = array.reshape(-1)[:1]
    kind = int(rng.integers(6))
    if kind == 5 or not first.size:
        return np.zeros(0, array.dtype)
    if kind == 4:
        return np.broadcast_to(first, int(_one(rng, (2, 3, 4, 8, 17)))).copy()
    return first.reshape([(), (1,), (1, 1), (1, 1, 1, 1)][kind])


def scale(rng: Generator, model: onnx.ModelProto) -> None:
    """Another scale: out of range, off by a power of two or the last bit, of another shape or type."""
    tensor = _own_parameter(rng, model, 1)
    array = _array(tensor) if tensor is not None else None
    if tensor is None or array is None:
        return
    kind = int(rng.integers(6))
    with np.errstate(all="ignore"):
        if kind == 0:
            array = np.full_like(array, _one(rng, _REALS))
        elif kind == 1:
            array = array * np.float32(2.0 ** float(rng.integers(-40, 41)))
        elif kind == 2:
            array = np.nextafter(array, np.float32(_one(rng, (0, 1e9))))
        elif kind == 3:
            array = _reshaped(rng, array)
        elif kind == 4 and array.size:
            array.reshape(-1)[int(rng.integers(array.size))] = _one(rng, _REALS)
        else:
            array = array.astype(_one(rng, (np.float16, np.float64, np.int32)))
    _put(tensor, array)


def zero_point(rng: Generator, model: onnx.ModelProto) -> None:
    """Another zero point: at the ends, of another shape or type, or none."""
    tensor = _own_parameter(rng, model, 2)
    array = _array(tensor) if tensor is not None else None
    if tensor is None or array is None:
        return
    kind = int(rng.integers(4))
    if kind == 0 and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        array = np.full_like(array, _one(rng, (limits.min, limits.max, 0, 1)))
    elif kind == 1:
        array = _reshaped(rng, array)
    elif kind == 2:
        with np.errstate(all="ignore"):
            array = array.astype(_one(rng, (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.float32)))
    else:
        for node in model.graph.node:
            if node.op_type in ("QuantizeLinear", "DequantizeLinear") and tensor.name in node.input[2:]:
                del node.input[2:]
                return
    _put(tensor, array)


def initializer(rng: Generator, model: onnx.ModelProto) -> None:
    """An initializer of other numbers, shape, type or place: also an input or output, twice, or gone."""
    tensor = _one(rng, model.graph.initializer)
    array = _array(tensor) if tensor is not None else None
    if tensor is None or array is None:
        return
    kind = int(rng.integers(10))
    value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims))
    with np.errstate(all="ignore"):
        if kind == 0 and array.size:
            limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
            among = (limits.min, limits.max, 0, 1) if limits else _REALS
            array.reshape(-1)[int(rng.integers(array.size))] = _one(rng, among)
            _put(tensor, array)
        elif kind == 1 and array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            _put(tensor, np.full_like(array, _one(rng, (limits.min, limits.max))))
        elif kind == 2:
            _put(tensor, array.astype(_one(rng, (np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64))))
        elif kind == 3:
            _put(tensor, _reshaped(rng, array))
        elif kind == 4 and tensor.dims:
            place = int(rng.integers(len(tensor.dims)))
            tensor.dims[place] = max(0, tensor.dims[place] + int(_one(rng, (-1, 1, 2))))
        elif kind == 5 and array.ndim > 1:
            _put(tensor, array.swapaxes(*rng.choice(array.ndim, 2, replace=False)))
        elif kind == 6:
            model.graph.input.append(value)
        elif kind == 7:
            model.graph.output.append(value)
        elif kind == 8:
            model.graph.initializer.remove(tensor)
        elif array.ndim and array.shape[0]:
            _put(tensor, array[: int(rng.integers(array.shape[0]))])


def attribute(rng: Generator, model: onnx.ModelProto) -> None:
    """An attribute of another value, length, name or type, twice, or gone."""
    node = _one(rng, [node for node in model.graph.node if node.attribute])
    if node is None:
        return
    one = _one(rng, node.attribute)
    kind = int(rng.integers(8))
    if kind == 0:
        node.attribute.remove(one)
    elif kind == 1:
        node.attribute.add().CopyFrom(one)
    elif kind == 2:
        one.name = _one(rng, ("axis", "axes", "pads", "group", "strides", "kernel_shape", "junk"))
    elif kind == 3:
        one.CopyFrom(helper.make_attribute(one.name, _one(rng, (1, 0.5, "junk", [1, 1], [0.5, 2.0]))))
    elif one.type == AttributeProto.INT:
        one.i = int(_one(rng, _INTEGERS if rng.random() < 0.3 else _SMALL))
    elif one.type == AttributeProto.FLOAT:
        one.f = float(_one(rng, _REALS))
    elif one.type == AttributeProto.STRING:
        one.s = _one(rng, _TEXTS).encode()
    elif one.type == AttributeProto.INTS:
        _change_list(rng, one.ints)


def _change_list(rng: Generator, values: Any) -> None:
    kind = int(rng.integers(4))
    if kind == 0 and len(values):
        del values[int(rng.integers(len(values)))]
    elif kind == 1:
        values.append(int(_one(rng, _SMALL)))
    elif len(values):
        values[int(rng.integers(len(values)))] = int(_one(rng, _INTEGERS if rng.random() < 0.2 else _SMALL))


def new_attribute(rng: Generator, model: onnx.ModelProto) -> None:
    """An attribute that the operator knows and the node does not state."""
    node = _one(rng, model.graph.node)
    version = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
    try:
        known = onnx.defs.get_schema(node.op_type, max(1, min(version, onnx.defs.onnx_opset_version())), "").attributes
    except Exception:  # an operator that ONNX does not know
        return
    stated = {one.name for one in node.attribute}
    name = _one(rng, sorted(name for name in known if name not in stated))
    if name is None:
        return
    kinds = onnx.defs.OpSchema.AttrType
    makers: dict[Any, Callable[[], Any]] = {
        kinds.INT: lambda: int(_one(rng, _SMALL)),
        kinds.FLOAT: lambda: float(_one(rng, _REALS)),
        kinds.STRING: lambda: str(_one(rng, _TEXTS)),
        kinds.INTS: lambda: [int(_one(rng, _SMALL)) for _ in range(int(rng.integers(1, 5)))],
    }
    if known[name].type in makers:
        node.attribute.append(helper.make_attribute(name, makers[known[name].type]()))


def shape(rng: Generator, model: onnx.ModelProto) -> None:
    """Another shape of an input, an output or a value in between, as the model states it."""
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    tensor = _one(rng, values).type.tensor_type
    kind = int(rng.integers(6))
    if kind == 0:
        tensor.ClearField("shape")
    elif kind == 1:
        tensor.shape.dim.add().dim_value = int(_one(rng, (0, 1, 2, 3)))
    elif not tensor.shape.dim:
        return
    elif kind == 2:
        del tensor.shape.dim[int(rng.integers(len(tensor.shape.dim)))]
    elif kind == 3:
        _one(rng, tensor.shape.dim).dim_param = str(_one(rng, ("batch", "n", "")))
    else:
        _one(rng, tensor.shape.dim).dim_value = int(_one(rng, (-1, 0, 1, 2, 3, 4, 5, 7, 16, 33)))


def element_type(rng: Generator, model: onnx.ModelProto) -> None:
    """Another element type of an input or output, as the model states it."""
    _one(rng, [*model.graph.input, *model.graph.output]).type.tensor_type.elem_type = _one(rng, _TYPES)


def edge(rng: Generator, model: onnx.ModelProto) -> None:
    """An input that comes from elsewhere, none, one too many, or in another order."""
    node = _one(rng, [node for node in model.graph.node if node.input])
    made = [name for one in model.graph.node for name in one.output]
    names = [*made, *(value.name for value in model.graph.input), *_initializers(model)]
    place = int(rng.integers(len(node.input)))
    kind = int(rng.integers(6))
    if kind == 0:
        node.input[place] = ""
    elif kind == 1:
        node.input.append(_one(rng, names))
    elif kind == 2:
        del node.input[place]
    elif kind == 3:
        other = int(rng.integers(len(node.input)))
        node.input[place], node.input[other] = node.input[other], node.input[place]
    elif kind == 4:
        # what is alike: made by the same operator
        makers = {name: one.op_type for one in model.graph.node for name in one.output}
        alike = [name for name in made if makers[name] == makers.get(node.input[place])]
        node.input[place] = _one(rng, alike or names)
    else:
        node.input[place] = _one(rng, names)


def result(rng: Generator, model: onnx.ModelProto) -> None:
    """A value in between as an output, an output less, one name for two results, a result more."""
    node = _one(rng, model.graph.node)
    kind = int(rng.integers(5))
    if kind <= 1 and node.output:
        model.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
        if kind:
            model.graph.output[-1].CopyFrom(helper.make_tensor_value_info(node.output[0], _one(rng, _TYPES[:3]), None))
    elif kind == 2 and len(model.graph.output) > 1:
        model.graph.output.remove(_one(rng, model.graph.output))
    elif kind == 3 and node.output:
        node.output[0] = _one(rng, [name for one in model.graph.node for name in one.output])
    else:
        node.output.append(str(_one(rng, ("more", ""))))


def node(rng: Generator, model: onnx.ModelProto) -> None:
    """A node of another operator or domain, twice, gone, elsewhere, or one more behind it."""
    graph = model.graph
    place = int(rng.integers(len(graph.node)))
    one = graph.node[place]
    kind = int(rng.integers(6))
    if kind == 0:
        one.op_type = _one(rng, _OPERATORS)
    elif kind == 1:
        one.domain = _one(rng, ("", "ai.onnx", "com.microsoft", "nonsense"))
    elif kind == 2 and one.input and one.output:  # bypassed
        for other in graph.node:
            for position, name in enumerate(other.input):
                if name == one.output[0]:
                    other.input[position] = one.input[0]
    elif kind == 3:
        graph.node.remove(one)
    elif kind == 4 and one.output:  # a copy, which others may read instead
        copy = onnx.NodeProto()
        copy.CopyFrom(one)
        copy.name, copy.output[0] = f"{one.name}_copy", f"{one.output[0]}_copy"
        graph.node.insert(place + 1, copy)
        readers = [(other, position) for other in graph.node for position, name in enumerate(other.input)
                   if name == one.output[0]]  # fmt: skip
        if readers:
            other, position = _one(rng, readers)
            other.input[position] = copy.output[0]
    elif one.output:
        name = f"{one.output[0]}_behind"
        for other in graph.node:
            for position, read in enumerate(other.input):
                if read == one.output[0]:
                    other.input[position] = name
        behind = _one(rng, ("Identity", "Relu", "Clip", "Sigmoid", "Neg", "Transpose", "Flatten", "MaxPool"))
        graph.node.insert(place + 1, helper.make_node(behind, [one.output[0]], [name], name=name))
        if behind == "MaxPool":
            graph.node[place + 1].attribute.append(helper.make_attribute("kernel_shape", [2, 2]))


def version(rng: Generator, model: onnx.ModelProto) -> None:
    """Another operator set or format version, an operator set twice, or none."""
    kind = int(rng.integers(5))
    if kind <= 1 and model.opset_import:
        model.opset_import[0].version = int(rng.integers(1, 30))
    elif kind == 2:
        model.ir_version = int(_one(rng, (1, 2, 3, 4, 7, 8, 9, 11, 12, 13, 14)))
    elif kind == 3:
        model.opset_import.append(
            helper.make_opsetid(_one(rng, ("", "ai.onnx", "com.microsoft")), int(rng.integers(1, 24)))
        )
    else:
        del model.opset_import[:]


MUTATIONS: tuple[Callable[[Generator, onnx.ModelProto], None], ...] = (
    scale, scale, zero_point, zero_point, initializer, initializer, attribute, attribute, attribute, new_attribute,
    new_attribute, shape, element_type, edge, edge, result, node, node, version,
)  # fmt: skip
"""Those that come more often stand here more often."""


def mutate_model(rng: Generator, model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a valid model, changed in one to three places."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        if copy.graph.node and copy.graph.input and copy.graph.output:
            _one(rng, MUTATIONS)(rng, copy)
    return copy


def mutate_bytes(rng: Generator, data: bytes) -> bytes:
    """A copy of a file's bytes with bits flipped, a stretch overwritten, repeated, taken out or moved, or cut short."""
    found = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        if not found:
            break
        start = int(rng.integers(len(found)))
        length = int(min(rng.choice([1, 2, 4, 16, 200]), len(found) - start))
        kind = int(rng.integers(6))
        if kind == 0:
            found[start] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            found[start : start + length] = rng.integers(0, 256, length, np.uint8).tobytes()
        elif kind == 2:
            found[start : start + length] = bytes([int(_one(rng, (0, 1, 127, 128, 255)))]) * length
        elif kind == 3:
            found[start:start] = found[start : start + length]
        elif kind == 4:
            del found[start : start + length]
        else:
            del found[start:]
    return bytes(found)


# ---- examining


def _random_inputs(rng: Generator, session: Any) -> dict[str, NDArray]:
    inputs: dict[str, NDArray] = {}
    for value in session.inputs:
        tensor = value.type.tensor_type
        sizes = [dim.dim_value for dim in tensor.shape.dim]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            inputs[value.name] = rng.integers(limits.min, limits.max, sizes, dtype, endpoint=True)
        else:
            inputs[value.name] = rng.normal(0, 1.3, sizes).astype(dtype)
    return inputs


def examine_bytes(data: bytes, config: Any, seed: int = 0) -> Examination:
    """`examine_model` of a model file's contents."""
    return _examine(data, config, seed)


def examine_model(model: onnx.ModelProto, config: Any, seed: int = 0) -> Examination:
    """What becomes of a model on a configuration, with random inputs of that seed.

    The kit's outputs and every quantised tensor have to equal those of ONNX Runtime's reference, and its outputs those
    of the model as it is, where ONNX Runtime itself gives the same for both.
    """
    return _examine(model, config, seed)


def _examine(model: onnx.ModelProto | bytes, config: Any, seed: int) -> Examination:
    from npukit.compiler.frontends.onnx.bfloat16_models import without_bfloat16
    from npukit.driver.host import HostError, run_session

    from npukit import Session
    from npukit.compare import Oracle, compare
    from npukit.errors import TOOL_ERRORS, USER_ERRORS

    reason = ""
    inputs: dict[str, NDArray] | None = None
    outputs: dict[str, NDArray] = {}
    try:
        session = Session(model, config, capture=True)
        inputs = _random_inputs(np.random.default_rng(seed), session)
        outputs = session.run(inputs)
    except (*USER_ERRORS, *TOOL_ERRORS) as error:
        reason = f"{type(error).__name__}: {error}"
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place is not None else "?"
        return Examination(Verdict.TRACEBACK, f"{type(error).__name__} in {where}: {error}")
    if reason and "\n" in reason:
        return Examination(Verdict.TRACEBACK, f"an error of several lines: {reason}")
    try:
        proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else model
        plain = _open_plain(without_bfloat16(proto))
        if inputs is None:
            inputs = _oracle_inputs(np.random.default_rng(seed), proto)
        expected = run_session(plain, [value.name for value in plain.get_outputs()], inputs)
    except Exception as error:  # ONNX Runtime's, or protobuf's
        if reason:
            return Examination(Verdict.BOTH_REFUSE, reason)
        if not isinstance(error, HostError):
            return Examination(Verdict.TRACEBACK, f"in the validator: {type(error).__name__}: {error}")
        return Examination(Verdict.KIT_ALONE, str(error))
    if reason:
        return Examination(Verdict.KIT_REFUSES, reason)
    assert session.compilation is not None
    oracle = Oracle(session.compilation.source)
    try:
        found = compare(session, oracle, inputs, outputs)
    except HostError:  # it stops at a node that leads nowhere
        same = all(_same(want, outputs[name]) for name, want in expected.items())
        return Examination(Verdict.AGREE if same else Verdict.DIFFER, "without nodes that lead nowhere")
    if found.mismatches:
        return Examination(Verdict.DIFFER, str(found.first_mismatch))
    if found.tensors != found.tensors_total:
        return Examination(Verdict.DIFFER, f"{found.tensors} of {found.tensors_total} quantised tensors compared")
    for name, want in expected.items():
        got = outputs[name]
        if want.shape != got.shape or want.dtype != got.dtype:
            return Examination(Verdict.DIFFER, f"{name}: {want.dtype}{want.shape} is {got.dtype}{got.shape}")
        if _same(want, oracle.last[name]) and not _same(want, got):
            return Examination(Verdict.DIFFER, f"{name}, without other outputs")
    return Examination(Verdict.AGREE)


def _open_plain(model: onnx.ModelProto) -> Any:
    """A session of a model as it is, without nodes that lead nowhere, which the kit leaves out, and which ONNX Runtime
    runs.

    Raises:
        HostError: when ONNX Runtime refuses the model, or crashes on it.
    """
    from npukit.driver.first_look import first_look
    from npukit.driver.host import names_used, open_session

    first_look(model)
    needed = {value.name for value in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(names_used(node))
            kept.append(node)
    live = onnx.ModelProto()
    live.CopyFrom(model)
    del live.graph.node[:]
    live.graph.node.extend(reversed(kept))
    first_look(live)
    return open_session(live)


def _same(one: NDArray, other: NDArray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def _oracle_inputs(rng: Generator, model: onnx.ModelProto) -> dict[str, NDArray]:
    """Inputs for a model that the kit refuses; open dimensions are 1.

    Raises:
        ValueError: for one of no known shape, for which ONNX Runtime has been seen to abort the process.
    """
    inputs: dict[str, NDArray] = {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name in constants:
            continue
        if not tensor.HasField("shape"):
            raise ValueError(f"{value.name} has no shape")
        sizes = [max(1, dim.dim_value) for dim in tensor.shape.dim]
        inputs[value.name] = rng.normal(0, 1.3, sizes).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return inputs


# ---- cases


def _configs() -> dict[str, Any]:
    from npukit.isa.config import PRESETS
    from properties import TIGHT

    return {**{name: PRESETS[name] for name in ("int8-4x4", "int8-8x8")}, **TIGHT}


CONFIGS: dict[str, Any] = _configs()
"""Machines on which all of a small graph runs, and some so small that parts of it stay."""


def base_model(rng: Generator) -> onnx.ModelProto:
    """A small valid model."""
    from random_graphs import build_graph

    from npukit import zoo

    if rng.random() < 0.03:
        return onnx.load_from_string(zoo.load("digits"))
    return build_graph(int(rng.integers(2**31)), ties=True, small=True)
