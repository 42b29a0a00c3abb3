"""Which nodes of a graph of ATen operators the machine runs, in which parts, and why the others do not."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from npukit.compiler.errors import CompileError
from npukit.compiler.frontends.onnx.offload import Reason
from npukit.compiler.frontends.pytorch.masks import attention_mask
from npukit.compiler.frontends.pytorch.operators import operator_name
from npukit.compiler.frontends.pytorch.translate import Translation, translate, untranslated_reason
from npukit.compiler.pipeline import check_model
from npukit.isa.config import NpuConfig

__all__ = ["Part", "Parts", "find_parts", "tensors_in"]

_FLOATS = (torch.float32, torch.bfloat16)
_INTEGERS = (torch.int8, torch.uint8)
_ALLOWED = "float32 and bfloat16 run on the machine, and quantised int8 and uint8"


@dataclass(frozen=True)
class Part:
    """Nodes that run on the machine as one model.

    Attributes:
        nodes: in their order.
        inputs: nodes that are computed before, in the order of the model's inputs.
        outputs: nodes of the part that others read, in the order of the model's outputs.
        views: nodes of the part that others read as well, and that share the memory of what they are made of. PyTorch
            makes them once more, of the outputs or inputs, in this order: whoever writes to one writes to the other.
        translation: its ONNX model.
    """

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    views: tuple[fx.Node, ...]
    translation: Translation


@dataclass
class Parts:
    """What runs on the machine, and for each node that does not, why, and whether it lies at the machine's edge."""

    parts: list[Part] = field(default_factory=list)
    reasons: dict[fx.Node, tuple[str, bool]] = field(default_factory=dict)


def find_parts(
    module: fx.GraphModule, constants: Mapping[fx.Node, torch.Tensor], config: NpuConfig, min_macs: int
) -> Parts:
    """Try the largest parts first, and leave out what the compiler refuses, until it takes all of them.

    Args:
        module: of ATen operators, simplified.
        constants: nodes whose numbers do not change.
        config: of the machine.
        min_macs: what a part must have at least.
    """
    found = Parts()
    wanted: set[fx.Node] = set()
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        reason = _reason(node)
        if reason is None:
            wanted.add(node)
        else:
            found.reasons[node] = reason, False
    _drop_lone_items(wanted, found)
    while wanted:
        found.parts = []
        before = len(wanted)
        for nodes in _groups(module, wanted):
            part = _part(nodes, constants, found)
            if part is not None:
                _check(part, config, min_macs, found)
                found.parts.append(part)
        wanted -= found.reasons.keys()
        _drop_lone_items(wanted, found)
        if len(wanted) == before:
            return found
    found.parts = []
    return found


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors of what a node makes."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for item in value for one in tensors_in(item)] if isinstance(value, tuple | list) else []


def _reason(node: fx.Node) -> str | None:
    """Why a node does not run on the machine, by itself."""
    reason = untranslated_reason(node)
    if reason is not None:
        return reason
    if node.target is attention_mask:
        return "it looks for rows that see nothing, which depends on numbers"
    numbers = [one for one in node.all_input_nodes if not tensors_in(one.meta.get("val"))]
    if numbers:
        return f"it reads {numbers[0].name}, a number that is known when it runs"
    made = tensors_in(node.meta.get("val"))
    used = [one for argument in node.all_input_nodes for one in tensors_in(argument.meta.get("val"))]
    quantises = "quantized_decomposed" in str(node.target)
    allowed = (*_FLOATS, *_INTEGERS)
    for tensor in (*made, *used):
        if tensor.dtype not in allowed and not (quantises and tensor.dtype in (torch.int64, torch.int32)):
            advice = ": convert the module with .float() or .bfloat16()" if tensor.is_floating_point() else ""
            return f"it computes with {str(tensor.dtype).removeprefix('torch.')}; {_ALLOWED}{advice}"
        if not all(isinstance(size, int) for size in tensor.shape):
            return f"its shape {list(tensor.shape)} is not static"
    return None if made else "it makes no tensor"


def _drop_lone_items(wanted: set[fx.Node], found: Parts) -> None:
    """What takes one of several results runs where they are made."""
    for node in [one for one in wanted if operator_name(one.target) == "getitem"]:
        if node.args[0] not in wanted:
            wanted.discard(node)
            found.reasons[node] = f"it takes a result of {node.args[0]}, which stays", True


class _Wanted(OperatorSupportBase):
    def __init__(self, wanted: set[fx.Node]) -> None:
        self._wanted = wanted

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node in self._wanted


def _groups(module: fx.GraphModule, wanted: set[fx.Node]) -> Iterable[list[fx.Node]]:
    """Nodes that can run as one: nothing between them depends on some of them and is read by others."""
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    partitioner = CapabilityBasedPartitioner(module, _Wanted(wanted), allows_single_node_partition=True)
    groups = [sorted(one.nodes, key=order.__getitem__) for one in partitioner.propose_partitions()]
    return sorted(groups, key=lambda nodes: order[nodes[0]])


def _part(nodes: Sequence[fx.Node], constants: Mapping[fx.Node, torch.Tensor], found: Parts) -> Part | None:
    """The part of these nodes; None, with its reasons, where one of them has no ONNX form."""
    inside = {*nodes}
    read = dict.fromkeys(one for node in nodes for one in node.all_input_nodes)
    inputs = tuple(one for one in read if one not in inside and one not in constants)
    wanted = {node for node in nodes if any(user not in inside for user in node.users)}
    views: set[fx.Node] = set()
    for node in wanted:
        base = node
        while base in inside and _is_view(base):
            views.add(base)
            base = base.all_input_nodes[0]
        wanted = wanted | ({base} & inside)
    outputs = tuple(node for node in nodes if node in wanted and node not in views)
    several = [one for one in outputs if not isinstance(one.meta["val"], torch.Tensor)]
    if several:
        found.reasons.update(dict.fromkeys(several, ("its several results are read outside of its part", False)))
        return None
    refused: list[fx.Node] = []

    def refuse(node: fx.Node, reason: str) -> None:
        refused.append(node)
        found.reasons[node] = reason, False

    try:
        made = translate(nodes, constants, {node: node.name for node in inputs}, outputs, refuse)
    except CompileError as error:
        found.reasons.update(dict.fromkeys(nodes, (str(error), False)))
        return None
    return None if refused else Part(tuple(nodes), inputs, outputs, tuple(one for one in nodes if one in views), made)


def _is_view(node: fx.Node) -> bool:
    """Whether a node's result lies in the memory of what it is made of."""
    if operator_name(node.target) == "getitem":
        return _is_view(node.all_input_nodes[0])
    schema = getattr(node.target, "_schema", None)
    return schema is not None and len(node.all_input_nodes) == 1 and any(one.alias_info for one in schema.returns)


def _check(part: Part, config: NpuConfig, min_macs: int, found: Parts) -> None:
    """Ask the compiler which nodes of a part stay."""
    try:
        partition = check_model(part.translation.model, config, min_macs=min_macs).partition
    except CompileError as error:
        found.reasons.update(dict.fromkeys(part.nodes, (f"the compiler refuses its part: {error}", False)))
        return
    staying: dict[fx.Node, list[Reason]] = {}
    for reason in partition.reasons:
        node = part.translation.owners.get(reason.node)
        if node is not None:
            staying.setdefault(node, []).append(reason)
    counts = Counter(part.translation.owners.values())
    for node, reasons in staying.items():
        first = next((one for one in reasons if not one.edge), None)
        # what only moves elements at the edge of an operator that runs is left to ONNX Runtime
        if first is not None or len(reasons) == counts[node]:
            first = first or reasons[0]
            found.reasons.setdefault(node, (first.reason, first.edge))
