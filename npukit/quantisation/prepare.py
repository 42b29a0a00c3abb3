"""A float model as the quantiser wants it: fixed shapes, a recent operator set, batch normalisations folded, and
recurrent layers step by step."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
import onnxruntime
from onnx import helper, numpy_helper

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.importer import ImportPass, load_model, name_nodes
from npukit.driver.first_look import CrashError, first_look
from npukit.driver.host import HostError, names_used, open_session, quantises, session_options
from npukit.quantisation.recurrent import with_steps

__all__ = ["prepare"]

_OLDEST, _TARGET = 13, 17
"""Per-channel quantisers came with operator set 13; older models are converted to another that all tools know."""


def prepare(source: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A model ready to be quantised.

    Raises:
        ModelError: it cannot be read, is quantised already, or ONNX Runtime refuses it.
    """
    proto = load_model(source, shapes)
    made = next((node.op_type for node in proto.graph.node if _quantised(node)), None)
    if made is not None:
        raise ModelError(f"the model is quantised already: it has a {made} node; run it as it is")
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    model = _recent(ImportPass(shapes).run(proto).source)
    try:
        first_look(model)
        return _folded(model)
    except CrashError as error:
        raise ModelError(str(error)) from None
    except HostError as error:
        raise ModelError(f"ONNX Runtime refuses the model: {error}") from None


def _quantised(node: onnx.NodeProto) -> bool:
    return node.op_type in ("DequantizeLinear", "DynamicQuantizeLinear", "EPContext") or quantises(node)


def _recent(model: onnx.ModelProto) -> onnx.ModelProto:
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), _TARGET)
    if version >= _OLDEST:
        return model
    try:
        return onnx.version_converter.convert_version(model, _TARGET)
    except Exception as error:  # the converter raises RuntimeError and others
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"the model uses opset {version}, and ONNX cannot convert it to {_TARGET} ({reason}): export it with "
            f"opset_version={_TARGET}"
        ) from None


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what ONNX Runtime computes beforehand: batch normalisations in convolutions, constants."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "folded.onnx"
        options = session_options()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        open_session(model, options)
        folded = onnx.load(path)
    domains = {node.domain for node in folded.graph.node}
    own = {node.domain for node in model.graph.node}
    prepared = with_steps(_with_means(_with_convolutions(folded if domains <= own | {"", "ai.onnx"} else model)))
    name_nodes(prepared.graph.node)
    return prepared


def _with_means(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with GlobalAveragePool in place of a ReduceMean over all dimensions but batch and channels, which
    exporters write for it: that is computed on integers."""
    inferred = onnx.shape_inference.infer_shapes(model)
    known = (*inferred.graph.value_info, *inferred.graph.input)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in known}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes += _as_mean(node, ranks.get(node.input[0], 0), constants) if node.op_type == "ReduceMean" else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _as_mean(node: onnx.NodeProto, rank: int, constants: Mapping[str, onnx.TensorProto]) -> list[onnx.NodeProto]:
    """What a ReduceMean is in place of which a GlobalAveragePool can stand, or itself."""
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    axes = attributes.get("axes")
    if len(node.input) > 1 and node.input[1] in constants:
        axes = numpy_helper.to_array(constants[node.input[1]]).tolist()
    axes = sorted({axis % rank for axis in axes}) if axes and rank else []
    others = [axis for axis in range(rank) if axis not in axes]
    if rank not in (3, 4) or len(others) != 2 or others[0] != 0:
        return [node]
    if axes == [2] and rank == 3 and attributes.get("keepdims", 1):  # of a normalisation over channels that are last
        return [node]
    order = [*others, *axes]
    result, found = node.input[0], []

    def add(op: str, **more: Any) -> None:
        nonlocal result
        name = f"{node.output[0]} {len(found)}"
        found.append(helper.make_node(op, [result], [name], f"{node.name} {len(found)}", **more))
        result = name

    if order != sorted(order):
        add("Transpose", perm=order)
    add("GlobalAveragePool")
    if not attributes.get("keepdims", 1):
        add("Flatten")
    elif order != sorted(order):
        add("Transpose", perm=[order.index(axis) for axis in range(rank)])
    found[-1].output[0] = node.output[0]
    found[0].name = node.name
    return found


def _with_convolutions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a convolution of each channel by itself in place of a batch normalisation that no convolution
    takes along, as those of DenseNets: that can be computed on integers, and is the same function."""
    inferred = onnx.shape_inference.infer_shapes(model)
    known = (*inferred.graph.value_info, *inferred.graph.input)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in known}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        axes = ranks.get(node.input[0], 0) - 2 if node.op_type == "BatchNormalization" else 0
        if axes < 1 or len(node.output) > 1 or any(name not in constants for name in node.input[1:]):
            continue
        scale, shift, mean, variance = (numpy_helper.to_array(constants[name]) for name in node.input[1:])
        if scale.dtype != np.float32 or (variance < 0).any():
            continue
        epsilon = next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5)
        factor = scale / np.sqrt(variance + np.float32(epsilon))
        values = {"weights": factor.reshape(-1, 1, *[1] * axes), "bias": shift - mean * factor}
        names = [f"{node.output[0]} {name}" for name in values]
        for name, value in zip(names, values.values(), strict=True):
            model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
        attributes = {"group": len(factor), "kernel_shape": [1] * axes}
        node.CopyFrom(helper.make_node("Conv", [node.input[0], *names], [node.output[0]], node.name, **attributes))
    used = {name for node in model.graph.node for name in names_used(node)} | {one.name for one in model.graph.output}
    for tensor in [one for one in model.graph.initializer if one.name not in used]:
        model.graph.initializer.remove(tensor)  # of which ONNX Runtime would warn
    return model
