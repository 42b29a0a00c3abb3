"""import: an ONNX file as an onnx-ir graph with static shapes, or one clear sentence why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from npukit.compiler.errors import ModelError

__all__ = ["MAX_OPSET", "ImportPass", "load_model"]

MAX_OPSET = 26
MAX_IR_VERSION = 13
"""The newest that the oracle, ONNX Runtime 1.31, reads."""


def load_model(source: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """An ONNX model from a path, bytes, or a proto (returned as it is).

    Raises:
        ModelError: no such file, not ONNX, cut short, external data missing, too new.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    name = "the model" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror}") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # protobuf's DecodeError, whose class depends on the backend
        raise ModelError(f"{name} is not an ONNX model, or it is cut short: its protobuf does not parse") from None
    if not model.opset_import or not model.graph.output:
        raise ModelError(f"{name} is not an ONNX model, or it is cut short: it has no operator set or no output")
    if not isinstance(source, bytes):
        try:
            onnx.load_external_data_for_model(model, str(Path(source).parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(f"{name}: external data cannot be read: {str(error).splitlines()[0]}") from None
    return model


@dataclass(frozen=True)
class ImportPass:
    """Check a model and infer its shapes; `shapes` fixes those that the model leaves open."""

    shapes: Mapping[str, Sequence[int]]
    name = "import"

    def run(self, proto: onnx.ModelProto) -> ir.Model:
        """The graph, every value with a static shape.

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
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        self._fix_inputs(copy)
        try:
            onnx.checker.check_model(copy)
            copy = onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise ModelError(f"the model is not valid ONNX: {' '.join(str(error).split())[:300]}") from None
        except ValueError as error:
            raise ModelError(f"the model cannot be checked: {' '.join(str(error).split())[:300]}") from None
        model = ir.from_proto(copy)
        for index, node in enumerate(model.graph):
            if not node.name:
                node.name = f"{node.op_type}_{index}"
        return model

    def _fix_inputs(self, proto: onnx.ModelProto) -> None:
        initializers = {tensor.name for tensor in proto.graph.initializer}
        inputs = [value for value in proto.graph.input if value.name not in initializers]
        names = [value.name for value in inputs]
        for name in self.shapes:
            if name not in names:
                raise ModelError(f"the model has the inputs {', '.join(names)}, not {name!r}")
        for value in inputs:
            shape = value.type.tensor_type.shape
            fixed = self.shapes.get(value.name)
            if fixed is not None:
                if len(fixed) != len(shape.dim):
                    raise ModelError(
                        f"input {value.name} has {len(shape.dim)} dimensions, not {len(fixed)}: {list(fixed)}"
                    )
                for dim, size in zip(shape.dim, fixed):
                    if dim.HasField("dim_value") and dim.dim_value != size:
                        raise ModelError(
                            f"input {value.name} has the fixed dimension {dim.dim_value}, not {size}"
                        )
                    dim.ClearField("dim_param")
                    dim.dim_value = int(size)
            dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in shape.dim]
            if any(not isinstance(dim, int) or dim <= 0 for dim in dims):
                example = ",".join(str(d) if isinstance(d, int) and d > 0 else "1" for d in dims)
                text = ", ".join(map(str, dims))
                raise ModelError(
                    f"input {value.name} has the shape [{text}]; every dimension must be a fixed number above 0: "
                    f"give it, as in --input-shape {value.name}={example}"
                )
