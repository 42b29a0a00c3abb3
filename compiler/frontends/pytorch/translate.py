"""A graph of ATen operators as an ONNX model.

Its inputs and outputs are the graph's, in order. It goes through ONNX, and not into the tensor IR directly, so that
the passes that find what the machine can run, how operators are computed together and what comparisons run are the same
for all frameworks, and because `npukit.quantize`, ONNX Runtime on the host and compiled files take ONNX.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import torch
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.pytorch.emitter import IR_VERSION, ONNX_TYPES, OPSET, Emitter, Untranslated, value_of
from npukit.compiler.frontends.pytorch.operators import OPERATORS, operator_name
from onnx import helper
from torch import fx

__all__ = ["Translation", "translate", "untranslated_reason"]


@dataclass(frozen=True)
class Translation:
    """An ONNX model, and where its nodes come from.

    Attributes:
        model: of float32, int8, uint8 and, for what no machine computes, other tensors.
        inputs, outputs: names in the order of the graph's.
        owners: the ATen node that each ONNX node was made for, by the ONNX node's name.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    owners: Mapping[str, fx.Node]


def translate(
    nodes: Iterable[fx.Node], constants: Mapping[fx.Node, torch.Tensor], inputs: Mapping[fx.Node, str],
    results: Sequence[object], refuse: Callable[[fx.Node, str], None] | None = None,
    output_names: Sequence[str] = (),
) -> Translation:  # fmt: skip
    """Translate a graph, or a part of one.

    Args:
        nodes: of ATen operators, in their order, each with `meta["val"]`.
        constants: nodes whose numbers are known.
        inputs: names of the nodes that the model reads, in their order.
        results: nodes that are the model's outputs.
        refuse: is told of every node that has no ONNX form, and why; nodes that depend on one are left out. By default
            the first one ends the translation.
        output_names: of the model's outputs; by default those of the nodes.

    Raises:
        ModelError: a node has no ONNX form.
    """
    emit = Emitter(constants)
    graph_inputs = []
    for node, name in inputs.items():
        emit.values[node] = name
        graph_inputs.append(_value_info(node, name))
    for node in nodes:
        if node.op != "call_function" or node in constants:
            continue
        if any(emit.values.get(one) is None and one not in constants for one in node.all_input_nodes):
            continue  # what it reads was refused
        reason = _emit(emit, node)
        if reason is not None:
            (refuse or _raise)(node, reason)
    names = _named_after_nodes(emit)
    outputs, infos = _outputs(emit, results, names, output_names)
    made = helper.make_graph(emit.nodes, "pytorch", graph_inputs, infos, _used_initializers(emit, outputs))
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="npukit"
    )
    return Translation(model, tuple(inputs.values()), outputs, emit.owners)


def untranslated_reason(node: fx.Node) -> str | None:
    """Why a node has no ONNX form, by its operator alone; None where it may have one."""
    name = operator_name(node.target)
    return None if name in OPERATORS else f"{name} is not translated"


def _raise(node: fx.Node, reason: str) -> None:
    raise ModelError(
        f"{operator_name(node.target)} {node.name}: {reason}; a module that has it runs with "
        'torch.compile(module, backend="npukit"), which leaves to PyTorch what is not translated'
    )


def _emit(emit: Emitter, node: fx.Node) -> str | None:
    """Emit a node; why not, if not."""
    reason = untranslated_reason(node)
    if reason is not None:
        return reason
    emit.begin(node)
    before = len(emit.nodes)
    try:
        emit.values[node] = OPERATORS[operator_name(node.target)](emit, *node.args, **node.kwargs)
    except Untranslated as error:
        del emit.nodes[before:]
        return str(error)
    return None


def _value_info(node: fx.Node, name: str) -> onnx.ValueInfoProto:
    value = value_of(node)
    if value.dtype not in ONNX_TYPES:
        raise ModelError(
            f"input {node.name} is {str(value.dtype).removeprefix('torch.')}; "
            f"{', '.join(str(one).removeprefix('torch.') for one in ONNX_TYPES)} are supported"
        )
    return helper.make_tensor_value_info(name, ONNX_TYPES[value.dtype], list(value.shape))


def _named_after_nodes(emit: Emitter) -> dict[str, str]:
    """Give tensors the names of the ATen nodes whose results they are; returns the new name of each old one."""
    made = {name for node in emit.nodes for name in node.output}
    names: dict[str, str] = {}
    for node, value in emit.values.items():
        if isinstance(value, str) and value in made:
            names.setdefault(value, node.name)
    _rename(emit, names)
    return names


def _rename(emit: Emitter, names: Mapping[str, str]) -> None:
    for node in emit.nodes:
        for values in (node.input, node.output):
            for index, value in enumerate(values):
                values[index] = names.get(value, value)


def _outputs(
    emit: Emitter, results: Sequence[object], names: Mapping[str, str], wanted: Sequence[str]
) -> tuple[tuple[str, ...], list[onnx.ValueInfoProto]]:
    """The model's outputs, each a tensor of its own, that no other output, input or constant is. The name of one that
    has no ONNX form is empty."""
    found: list[str] = []
    renamed: dict[str, str] = {}
    infos = []
    for place, node in enumerate(results):
        if not isinstance(node, fx.Node):
            raise ModelError(f"output {place} of the model is {node!r}; tensors are supported")
        if emit.values.get(node) is None and node not in emit.constants:
            found.append("")
            continue
        value = emit(node)
        name = names.get(value, "")
        if not name or name in renamed or name in found:
            name = f"{node.name}.output{place}"
            emit.nodes.append(helper.make_node("Identity", [names.get(value, value)], [name], name=name))
        if wanted:
            renamed[name] = name = wanted[place]
        found.append(name)
        infos.append(_value_info(node, name))
    _rename(emit, renamed)
    return tuple(found), infos


def _used_initializers(emit: Emitter, outputs: Sequence[str]) -> list[onnx.TensorProto]:
    used = {name for node in emit.nodes for name in node.input} | set(outputs)
    return [tensor for name, tensor in emit.initializers.items() if name in used]
