"""A quantizer of PyTorch's PT2E flow for the int8 machine. It needs torchao.

    prepared = prepare_pt2e(torch.export.export(module, arguments).module(), NpukitQuantizer())
    ...  # call it with typical inputs
    compiled = npukit.compile(convert_pt2e(prepared), arguments)

A tensor is quantised once, where it is made, and whoever reads it gets what that left of it.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e.observer import HistogramObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from npukit.compiler.frontends.pytorch.operators.windows import spread
from npukit.compiler.legality import average_problem
from npukit.pytorch.rewrites import is_float, plain_name, rewrite

__all__ = ["NpukitQuantizer"]

_LOWEST, _HIGHEST, _LEAST_SCALE = -128, 127, 2.0**-20
"""Numbers of int8, and the scale of what is zero, or nearly: beside such weights a bias must still fit into int32."""
_MOST_PARTS = 255
"""The largest denominator of a fraction that is tried as a ratio of scales."""


class _Observer(HistogramObserver):
    """Chooses scales with which the machine's integers are what ONNX Runtime computes in floats.

    Attributes:
        averages: of an average, what observes the numbers that are averaged, and how many these may be.
        in_powers: whether the scale is a power of two.
    """

    averages: Any = None
    in_powers = False

    def calculate_qparams(self, *unused: Any, **options: Any) -> Any:
        """The scale and zero point.

        Averages must not lie in the middle between two results. Where the ratio of the scales is a fraction with an odd
        denominator, none does: such fractions are tried, from the nearest that needs no smaller scale on.
        """
        scale, zero_point = super().calculate_qparams(*unused, **options)
        if self.in_powers:
            power = _power(scale)
            return power, (_LOWEST + torch.round((zero_point - _LOWEST) * scale / power)).to(zero_point)
        if self.averages is None:
            return scale, zero_point
        observer, counts = self.averages
        given, most = float(observer.calculate_qparams()[0]), max(counts)
        parts = [(odd, math.floor(given * odd / (float(scale) * most))) for odd in range(1, _MOST_PARTS + 1, 2)]
        for one in map(torch.tensor, sorted(given * odd / (count * most) for odd, count in parts if count)):
            if all(average_problem(given, float(one), count) is None for count in counts):
                return one.reshape(scale.shape).to(scale), zero_point
        return scale, zero_point


class _PerChannelObserver(PerChannelMinMaxObserver):
    """Of weights. torchao gives an axis only to what has PerChannel in its name.

    Attributes:
        in_powers: whether the scales are powers of two.
    """

    in_powers = False

    def calculate_qparams(self, *unused: Any, **options: Any) -> Any:
        """The scales and zero points."""
        scale, zero_point = super().calculate_qparams(*unused, **options)
        return (_power(scale) if self.in_powers else scale), zero_point


def _power(scale: torch.Tensor) -> torch.Tensor:
    """The next power of two."""
    return torch.exp2(torch.ceil(torch.log2(scale)))


def _weight(axis: int) -> QuantizationSpec:
    """Weights are symmetric, with a scale for each output channel."""
    observer = _PerChannelObserver.with_args(eps=_LEAST_SCALE)
    return QuantizationSpec(torch.int8, observer, -_HIGHEST, _HIGHEST, torch.per_channel_symmetric, ch_axis=axis)


_ACTIVATION = QuantizationSpec(
    torch.int8, _Observer.with_args(eps=_LEAST_SCALE), _LOWEST, _HIGHEST, torch.per_tensor_affine
)
_SHARE = FixedQParamsQuantizationSpec(torch.int8, 1 / 256, _LOWEST, _LOWEST, _HIGHEST, qscheme=torch.per_tensor_affine)
"""A softmax makes numbers from 0 to 1."""
_WEIGHT_AXES = {
    **{f"aten.conv{n}d.{form}": 0 for n in (1, 2, 3) for form in ("default", "padding")},
    "aten.conv_transpose1d.default": 1, "aten.conv_transpose2d.input": 1, "aten.linear.default": 0,
}  # fmt: skip
"""Products with weights, and along which axis of these the output channels lie."""
_PRODUCTS = frozenset(f"aten.{name}.default" for name in ("matmul", "mm", "bmm"))
_SUMS = frozenset({"aten.add.Tensor", "aten.mul.Tensor"})
LIMITERS = frozenset(f"aten.{name}.default" for name in ("relu", "relu6", "hardtanh", "clamp", "clamp_min"))
_OF_ONE = LIMITERS | {
    *(f"aten.{name}.default" for name in (
        "abs", "atan", "ceil", "celu", "clamp_max", "cos", "elu", "erf", "exp", "floor", "gelu", "hardshrink",
        "hardsigmoid", "hardswish", "leaky_relu", "mish", "neg", "prelu", "round", "selu", "sigmoid", "sign", "silu",
        "sin", "softplus", "softshrink", "tanh",
    )),
    *(f"aten.{name}.{form}" for name in ("add", "sub", "mul", "div") for form in ("Scalar", "Tensor")),
    "aten.rsub.Scalar", "aten.pow.Tensor_Scalar",
}  # fmt: skip
"""Functions of one element that are finite for each number; those of two where the other one is a single constant."""
_AVERAGES = frozenset({"aten.mean.dim", *(
    f"aten.{name}{n}d.default" for name in ("avg_pool", "adaptive_avg_pool") for n in (1, 2, 3)
)})  # fmt: skip
_NORMALISATIONS = frozenset({"aten.layer_norm.default", "aten.rms_norm.default"})
_SOFTMAXES = frozenset({"aten.softmax.int", "aten._softmax.default"})
_MOVEMENTS = frozenset({
    *(f"aten.max_pool{n}d.default" for n in (1, 2, 3)),
    *(f"aten.{name}.default" for name in (
        "amax", "cat", "constant_pad_nd", "numpy_T", "pad", "permute", "pixel_shuffle", "reshape", "split_with_sizes",
        "squeeze", "t", "unsqueeze", "upsample_nearest2d", "view",
    )),
    "aten.chunk.default", "aten.flatten.using_ints", "aten.slice.Tensor", "aten.split.Tensor", "aten.split.sizes",
    "aten.squeeze.dim", "aten.squeeze.dims", "aten.transpose.int", "aten.unflatten.int", "aten.upsample_nearest2d.vec",
    "getitem",
})  # fmt: skip
"""What they make consists of elements of what they read, and shares its scale."""


class NpukitQuantizer(Quantizer):
    """Annotates what the int8 machine runs; everything else stays float."""

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Put operators in the place of others, where the machine runs only the former."""
        rewrite(model, LIMITERS)
        return model

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """Say how tensors are quantised."""
        annotator = _Annotator()
        for node in model.graph.nodes:
            annotator.visit(node)
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing is refused: what is not annotated stays float."""

    def prepare_obs_or_fq_callback(self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]) -> None:
        """Tell observers what their scales have to do."""
        for place, observer in edge_or_node_to_obs_or_fq.items():
            node = place[1] if isinstance(place, tuple) else place
            made = node.args[0] if plain_name(node) in LIMITERS else node  # limits may be part of what is before them
            if isinstance(made, fx.Node) and plain_name(made).startswith("aten.conv_transpose"):
                observer.in_powers = True
            elif node is place and plain_name(node) in _AVERAGES:
                source = edge_or_node_to_obs_or_fq.get((node.args[0], node))
                if source is not None and source is not observer:
                    observer.averages = source, _counts(node)


class _Annotator:
    """Annotates nodes in their order.

    Attributes:
        constants: nodes that depend on no input.
        inside: nodes whose results stay float, because one integer operator contains them and the node behind them.
        limiters: nodes that a product or sum before them contains.
    """

    def __init__(self) -> None:
        self.constants: set[fx.Node] = set()
        self.inside: set[fx.Node] = set()
        self.limiters: set[fx.Node] = set()

    def visit(self, node: fx.Node) -> None:
        """Annotate a node, if the machine runs it."""
        if node.op not in ("placeholder", "output") and self.constants.issuperset(node.all_input_nodes):
            self.constants.add(node)
        elif node.op == "call_function" and not any(isinstance(one, fx.Node) for one in node.kwargs.values()):
            read = [one for one in node.all_input_nodes if one not in self.constants]
            if all(is_float(one) or plain_name(node) == "getitem" for one in read):
                self._annotate(node, read, [one for one in node.all_input_nodes if one in self.constants])

    def _annotate(self, node: fx.Node, read: Sequence[fx.Node], beside: Sequence[fx.Node]) -> None:
        name, first = plain_name(node), read[0]
        of_one = name in _OF_ONE and len(read) == 1 and all(one.meta["val"].numel() == 1 for one in beside)
        weighted = name in _WEIGHT_AXES and len(read) == 1 and first is node.args[0]
        summed = name in _SUMS and not of_one and not node.kwargs
        output: QuantizationSpecBase | None = _ACTIVATION
        given: dict[fx.Node, QuantizationSpecBase] = {}
        if weighted:
            given[node.all_input_nodes[1]] = _weight(_WEIGHT_AXES[name])
        elif name in _PRODUCTS:
            matrix = [one for one in beside if one is node.args[1] and one.meta["val"].dim() == 2]
            given = {**dict.fromkeys(beside, _ACTIVATION), **{one: _weight(1) for one in matrix}}
        elif summed:
            given = dict.fromkeys(beside, _ACTIVATION)
        elif name in _SOFTMAXES:
            output = _SHARE
        elif name in _MOVEMENTS:
            if not is_float(node) and not isinstance(node.meta.get("val"), list | tuple):
                return
            if name == "getitem" and Q_ANNOTATION_KEY not in first.meta:
                return
            if len(node.all_input_nodes) > 1 and any(_origin(one) is _SHARE for one in read):
                return
            output = SharedQuantizationSpec((first, node))
            given = dict.fromkeys([*read[1:], *beside], output)
        elif not of_one and name not in _NORMALISATIONS | _AVERAGES:
            return
        follower = next(iter(node.users)) if len(node.users) == 1 else node
        if (weighted or summed) and _limits_to_positive(follower):
            self.limiters.add(follower)
            output = None
        elif (
            of_one
            and node not in self.limiters
            and plain_name(follower) in _OF_ONE
            and follower.all_input_nodes == [node]
        ):
            output = None
        if output is None:
            self.inside.add(node)
        sources = {one: _quantised(one) for one in read if one not in self.inside and one not in given}
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({**sources, **given}, output, _annotated=True)


def _quantised(node: fx.Node) -> QuantizationSpecBase:
    """What a node makes, quantised as it says, or else as any activation."""
    annotation = node.meta.setdefault(Q_ANNOTATION_KEY, QuantizationAnnotation())
    annotation.output_qspec = annotation.output_qspec or _ACTIVATION
    return SharedQuantizationSpec(node)


def _origin(node: fx.Node) -> QuantizationSpecBase | None:
    """How a tensor is quantised that is moved until it is a node's result."""
    while True:
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        found = None if annotation is None else annotation.output_qspec
        if not isinstance(found, SharedQuantizationSpec):
            return found
        assert isinstance(found.edge_or_node, tuple)
        node = found.edge_or_node[0]


def _limits_to_positive(node: fx.Node) -> bool:
    """Whether a quantiser can stand for the limits, because a calibrated range of positive numbers lies within them."""
    numbers = {"aten.relu.default": [0], "aten.relu6.default": [0]}.get(plain_name(node), node.args[1:2])
    return plain_name(node) in LIMITERS and [*numbers] == [0]


def _counts(node: fx.Node) -> list[int]:
    """Of how many elements averages are made."""
    values = node.meta["val"], node.args[0].meta["val"]  # type: ignore[union-attr]
    if "avg_pool" not in plain_name(node) or "adaptive" in plain_name(node):
        return [values[1].numel() // values[0].numel()]
    kernel, padding, with_padding = node.args[1], [*node.args, 0, 0][3], [*node.args, *[True] * 5][5]
    sizes = spread(kernel, values[0].dim() - 2)
    if with_padding or not any(spread(padding, len(sizes))):
        return [math.prod(sizes)]
    return sorted({math.prod(one) for one in product(*(range(1, size + 1) for size in sizes))})
