"""import: an ONNX file as an onnx-ir graph with static shapes, or one clear sentence why not."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.bfloat16_models import without_bfloat16
from npukit.compiler.frontends.tflite.importer import onnx_model as tflite_model
from npukit.compiler.frontends.tflite.reader import is_tflite_file
from npukit.compiler.pass_base import Pass
from npukit.driver.apart import Crash, run_apart
from npukit.driver.first_look import CrashError, shapes_look
from npukit.driver.host import HostError
from npukit.driver.tflite_host import DOMAIN, is_tflite
from onnx import helper

__all__ = ["MAX_OPSET", "ImportPass", "Imported", "external_files", "load_model", "name_nodes", "with_shapes"]

MAX_OPSET = 28
MAX_IR_VERSION = 14
"""The newest that the oracle, ONNX Runtime 1.32, reads."""
_ZIP = b"PK\x03\x04"
"""How archives begin, programs of torch.export among them."""
_SHAPE_BYTES = 1 << 16
"""A tensor that holds more is no shape."""


def load_model(
    source: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> onnx.ModelProto:
    """An ONNX model from a path, bytes, or a proto (returned as it is), its bfloat16 tensors widened to fp32. TFLite
    models and programs of torch.export come in the form that the other passes take.

    Args:
        source: the model.
        shapes: of inputs that a program of torch.export leaves open, which is translated for them.

    Raises:
        ModelError: no such file, not a model, cut short, external data missing or without a folder, too new.
    """
    if isinstance(source, onnx.ModelProto):
        _refuse_external_data(source)
        _refuse_tflite_nodes(source)
        return without_bfloat16(source)
    name = "the model" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror}") from None
    if is_tflite_file(data):
        return tflite_model(data, name)
    if data.startswith(_ZIP):
        return _torch_program(data, name, shapes or {})
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # protobuf's DecodeError, whose class depends on the backend
        raise ModelError(f"{name} is not an ONNX model, or it is cut short: its protobuf does not parse") from None
    if not model.opset_import or not model.graph.output:
        raise ModelError(f"{name} is not an ONNX model, or it is cut short: it has no operator set or no output")
    field = _not_text(model)
    if field is not None:
        raise ModelError(f"{name} is damaged: {field} is not text (UTF-8)")
    if isinstance(source, bytes):
        _refuse_external_data(model)
    else:
        try:
            onnx.load_external_data_for_model(model, str(Path(source).parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(f"{name}: external data cannot be read: {str(error).splitlines()[0]}") from None
    _refuse_tflite_nodes(model)
    return without_bfloat16(model)


def _torch_program(data: bytes, name: str, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    try:
        # PyTorch takes seconds to load, and is an extra
        from npukit.compiler.frontends.pytorch.archive import onnx_model as torch_model
    except ImportError as error:
        raise ModelError(
            f"reading programs of torch.export needs the package {error.name}: pip install 'npukit[torch]'"
        ) from None
    return torch_model(data, name, shapes)


def _refuse_tflite_nodes(model: onnx.ModelProto) -> None:
    """Nodes that hold TFLite models are taken from TFLite files, and what was compiled of them, alone."""
    nodes = [node for node in model.graph.node if node.domain == DOMAIN]
    if nodes and not is_tflite(model) and all(node.op_type != "EPContext" for node in model.graph.node):
        raise ModelError(f"{nodes[0].op_type} {nodes[0].name} is of the domain {DOMAIN}: give the TFLite file itself")


def _refuse_external_data(model: onnx.ModelProto) -> None:
    """A model without a file has no folder, and libraries would take the data from the working folder."""
    outside = next(_tensors_outside(model), None)
    if outside is not None:
        raise ModelError(
            f"the data of tensor {outside.name!r} lie in another file, and a model that comes as bytes or as a proto "
            "has no folder: give the model's path, or load it with onnx.load, which reads them"
        )


def external_files(model: str | Path) -> list[Path]:
    """The files beside a model in which its tensors' data lie; none where no model can be read, which is said later.

    A pipe is left alone: what is read of it here is not there any more when the model is wanted.
    """
    proto = onnx.ModelProto()
    if not Path(model).is_file():
        return []
    try:
        proto.ParseFromString(Path(model).read_bytes())
    except Exception:  # protobuf's DecodeError, whose class depends on the backend, and what the system refuses
        return []
    entries = (entry for tensor in _tensors_outside(proto) for entry in tensor.external_data)
    locations = dict.fromkeys(entry.value for entry in entries if entry.key == "location")
    return [Path(model).parent / location for location in locations]


def _tensors_outside(message: Any) -> Iterator[onnx.TensorProto]:
    """Tensors whose data lie in other files."""
    if isinstance(message, onnx.TensorProto):
        if message.data_location == onnx.TensorProto.EXTERNAL:
            yield message
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in (value,) if hasattr(value, "ListFields") else value:
                yield from _tensors_outside(one)


def _not_text(message: Any) -> str | None:
    """The first text field of a protobuf that holds bytes which are no text; its parser lets them pass."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for one in (value,) if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value:
            if isinstance(one, bytes):
                return f"{field.full_name} {one!r}"
            found = _not_text(one) if field.type == field.TYPE_MESSAGE else None
            if found is not None:
                return found
    return None


@dataclass(frozen=True)
class SourceForm:
    """What a node was when it was imported: its operator, attributes, and the names of its inputs."""

    domain: str
    op_type: str
    overload: str
    attributes: Mapping[str, ir.Attr]
    inputs: tuple[str | None, ...]

    @classmethod
    def of(cls, node: ir.Node) -> "SourceForm":
        """What a node is now."""
        inputs = tuple(None if value is None else value.name for value in node.inputs)
        return cls(node.domain, node.op_type, node.overload, dict(node.attributes), inputs)


@dataclass(frozen=True)
class Imported:
    """A model.

    Attributes:
        source: as ONNX Runtime, the oracle, sees it, with its input shapes fixed.
        model: its graph, in which every value has a static shape.
        forms: of each node, as it came, those of graphs inside of others included.
        initializers: the values of the graph's initializers, as they came.
        outputs: the names of the graph's outputs, as they came.
        renamed: names of values that are gone, and under which each is read instead.
    """

    source: onnx.ModelProto
    model: ir.Model
    forms: Mapping[ir.Node, SourceForm]
    initializers: Mapping[str, ir.TensorProtocol | None]
    outputs: tuple[str | None, ...]
    renamed: Mapping[str | None, str | None]


@dataclass(frozen=True)
class ImportPass(Pass[onnx.ModelProto, Imported]):
    """Check a model and infer its shapes; `shapes` fixes those that the model leaves open."""

    shapes: Mapping[str, Sequence[int]]
    name = "import"

    def run(self, proto: onnx.ModelProto) -> Imported:
        """The model with the shapes that were given, and its graph.

        Raises:
            ModelError: too new, malformed, or a shape that stays unknown.
        """
        for entry in proto.opset_import:
            if entry.domain in ("", "ai.onnx") and entry.version > MAX_OPSET:
                raise ModelError(
                    f"the model uses opset {entry.version}; at most {MAX_OPSET} is supported: export it with "
                    f"opset_version={MAX_OPSET} or convert it with onnx.version_converter"
                )
        if proto.ir_version > MAX_IR_VERSION:
            raise ModelError(
                f"the model has IR version {proto.ir_version}; at most {MAX_IR_VERSION} is supported: "
                f"set model.ir_version = {MAX_IR_VERSION} and save it again"
            )
        source = with_shapes(proto, self.shapes)
        try:
            run_apart(infer_without_weights, source)
        except Crash as crash:
            raise ModelError(f"ONNX's shape inference crashes on the model ({crash})") from None
        try:
            onnx.checker.check_model(source)
            inferred = onnx.shape_inference.infer_shapes(source, strict_mode=True, data_prop=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise ModelError(f"the model is not valid ONNX: {' '.join(str(error).split())[:300]}") from None
        except ValueError as error:
            raise ModelError(f"the model cannot be checked: {' '.join(str(error).split())[:300]}") from None
        _add_shapes(inferred)
        try:
            model = ir.from_proto(inferred)
        except Exception as error:  # onnx-ir raises many classes for a damaged model
            raise ModelError(f"the model cannot be read: {' '.join(str(error).split())[:300]}") from None
        name_nodes(list(model.graph))
        _check_quantisation(model.graph)
        graph = model.graph
        return Imported(
            source=source,
            model=model,
            forms={node: SourceForm.of(node) for node in graph.all_nodes()},
            initializers={name: value.const_value for name, value in graph.initializers.items()},
            outputs=tuple(value.name for value in graph.outputs),
            renamed={},
        )


def infer_without_weights(model: onnx.ModelProto, folder: Path) -> None:
    """Let ONNX infer shapes, and see whether it crashes; what it finds or refuses is seen when it is called again.

    Shapes do not depend on what large tensors hold, so their data need not be copied to it.
    """
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > _SHAPE_BYTES:
            tensor.ClearField("raw_data")
    with suppress(Exception):
        onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def _add_shapes(model: onnx.ModelProto) -> None:
    """Add the shapes that ONNX Runtime infers where a model has operators that ONNX does not know.

    Raises:
        ModelError: when it crashes on the model. What it refuses is said when it is asked how it computes the model.
    """
    graph = model.graph
    if all(node.domain in ("", "ai.onnx", DOMAIN) for node in graph.node):
        return
    known = {value.name for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape")}
    try:
        found = shapes_look(model)
    except CrashError as crash:
        raise ModelError(str(crash)) from None
    except HostError:
        return
    for value in [value for value in graph.value_info if value.name in found and value.name not in known]:
        graph.value_info.remove(value)
    graph.value_info.extend(
        helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in found.items() if name not in known
    )


def _check_quantisation(graph: ir.Graph) -> None:
    """ONNX Runtime crashes on some models whose zero point has no elements, so it must not see one."""
    for node in graph.all_nodes():
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        for what, value in zip(("scale", "zero point"), node.inputs[1:], strict=False):
            if value is not None and value.shape is not None and 0 in value.shape:
                shape = list(value.shape)
                raise ModelError(f"{node.op_type} {node.name}: its {what} {value.name} has no elements: shape {shape}")


def with_shapes(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy of a model whose inputs have the given shapes, by name, where it leaves them open.

    Raises:
        ModelError: an unknown name, a shape that contradicts the model's, or a shape that stays open.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    initializers = {tensor.name for tensor in copy.graph.initializer}
    inputs = [value for value in copy.graph.input if value.name not in initializers]
    names = [value.name for value in inputs]
    for name in shapes:
        if name not in names:
            raise ModelError(f"the model has the inputs {', '.join(names)}, not {name!r}")
    open_inputs: list[tuple[str, str]] = []
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "of no type"
            raise ModelError(f"input {value.name} is {kind.removesuffix('_type')}; only tensors are supported")
        open_inputs += _fix_shape(value, shapes.get(value.name))
    if open_inputs:
        found = ", ".join(text for text, _ in open_inputs)
        options = " ".join(f"--input-shape {example}" for _, example in open_inputs)
        raise ModelError(f"{found}; every dimension must be a fixed number above 0: give it, as in {options}")
    return copy


def _fix_shape(value: onnx.ValueInfoProto, fixed: Sequence[int] | None) -> list[tuple[str, str]]:
    """Give an input a shape where its model leaves dimensions open; of one that stays open, what is known of it, and a
    shape that it might have.

    A dimension below 0 is open as well: some exporters write so.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        if fixed is None:
            return [(f"input {value.name} has no shape", f"{value.name}=1,3,224,224")]
        for _ in fixed:
            tensor.shape.dim.add()
    dims = tensor.shape.dim
    if fixed is not None:
        if len(fixed) != len(dims):
            raise ModelError(f"input {value.name} has {len(dims)} dimensions, not {len(fixed)}: {list(fixed)}")
        for dim, size in zip(dims, fixed, strict=True):
            if dim.HasField("dim_value") and dim.dim_value >= 0 and dim.dim_value != size:
                raise ModelError(f"input {value.name} has the fixed dimension {dim.dim_value}, not {size}")
            dim.dim_value = int(size)
    sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]
    text = f"input {value.name} has the shape [{', '.join(map(str, sizes))}]"
    if 0 in sizes:
        raise ModelError(f"{text}, which has no elements: there is nothing to compute")
    if all(isinstance(size, int) and size > 0 for size in sizes):
        return []
    example = ",".join(str(size) if isinstance(size, int) and size > 0 else "1" for size in sizes)
    return [(text, f"{value.name}={example}")]


def name_nodes(nodes: Sequence[ir.Node] | Sequence[onnx.NodeProto]) -> None:
    """Give each node a name of its own: reports, constants, the artifact and the quantiser tell them apart by it."""
    taken = {node.name for node in nodes}
    seen: set[str | None] = {None, ""}
    for index, node in enumerate(nodes):
        if node.name in seen:
            name = f"{node.name or node.op_type}_{index}"
            while name in taken:
                name += "_"
            node.name = name
            taken.add(name)
        seen.add(node.name)
