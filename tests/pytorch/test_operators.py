"""Each operator's ONNX form, computed by ONNX Runtime in fp32, against PyTorch itself."""

import importlib
import random
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from npukit.compiler.errors import ModelError  # noqa: E402
from npukit.compiler.frontends.pytorch.operators import OPERATORS, operator_name  # noqa: E402
from npukit.compiler.frontends.pytorch.program import translate_program  # noqa: E402
from npukit.compiler.frontends.pytorch.simplify import simplified  # noqa: E402
from npukit.driver.host import open_session, run_session  # noqa: E402
from torch.nn import functional as F  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

importlib.import_module("torch.ao.quantization.fx._decomposed")  # which registers quantized_decomposed
aten = torch.ops.aten
SEEDS = (11, random.randrange(10**6))


class Call(torch.nn.Module):
    """A function with some arguments that are parameters."""

    def __init__(self, function: Callable, *held) -> None:
        super().__init__()
        self.function = function
        for place, value in enumerate(held):
            self.register_buffer(f"held_{place}", value)
        self.count = len(held)

    def forward(self, *arguments):
        return self.function(*arguments, *(getattr(self, f"held_{place}") for place in range(self.count)))


def normal(*shape):
    return torch.randn(*shape)


def positive(*shape):
    return torch.rand(*shape) + 0.1


def small(*shape):
    return torch.rand(*shape) * 1.8 - 0.9


UNARY = {
    "abs": normal, "acos": small, "acosh": lambda *s: positive(*s) + 1, "asin": small, "asinh": normal, "atan": normal,
    "atanh": small, "ceil": normal, "cos": normal, "cosh": normal, "erf": normal, "exp": normal, "floor": normal,
    "hardswish": normal, "log": positive, "neg": normal, "reciprocal": positive, "relu": normal, "round": normal,
    "sigmoid": normal, "sign": normal, "sin": normal, "sinh": normal, "sqrt": positive, "tan": small, "tanh": normal,
    "rsqrt": positive, "relu6": lambda *s: normal(*s) * 8, "hardsigmoid": normal, "silu": normal, "mish": normal,
    "celu": normal, "t": lambda *s: normal(s[0], s[1]),
}  # fmt: skip


def cases() -> dict[str, tuple[Callable, list[Callable], list[Callable]]]:
    """(function, makers of its arguments, makers of its constants) by name; sizes are odd on purpose."""
    found: dict = {
        f"aten.{name}.default": (
            getattr(aten, name).default,
            [lambda make=make: make(3, 5, 7)[0] if 0 else make(3, 5)],
            [],
        )
        for name, make in UNARY.items()
    }

    def add(name, function, arguments, held=()):
        found[name] = function, arguments, list(held)

    def x(*shape, make=normal):
        return lambda: make(*shape)

    for n, shape, kernel in (
        (1, (2, 6, 11), (8, 3, 3)),
        (2, (2, 6, 9, 7), (8, 3, 3, 2)),
        (3, (1, 4, 5, 6, 7), (6, 2, 2, 3, 3)),
    ):
        conv = getattr(aten, f"conv{n}d")
        add(
            f"aten.conv{n}d.default",
            lambda a, w, b, conv=conv: conv.default(a, w, b, [2], [1], [1], 2),
            [x(*shape)],
            [x(*kernel), x(kernel[0])],
        )
        add(
            f"aten.conv{n}d.padding",
            lambda a, w, conv=conv, n=n: conv.padding(a, w, None, [1] * n, "same", [2] * n, 2),
            [x(*shape)],
            [x(*kernel)],
        )
        size = [2] * n
        turn = getattr(aten, f"conv_transpose{n}d")
        turn = turn.default if n == 1 else turn.input
        add(
            str(turn),
            lambda a, w, b, turn=turn, n=n: turn(a, w, b, [3] * n, [1] * n, [1] * n, 2, [2] * n),
            [x(*shape)],
            [x(shape[1], 3, *size), x(6)],
        )
        pool = getattr(aten, f"max_pool{n}d").default
        add(
            f"aten.max_pool{n}d.default",
            lambda a, pool=pool, n=n: pool(a, [3] * n, [2] * n, [1] * n, [1] * n, True),
            [x(*shape)],
        )
        average = getattr(aten, f"avg_pool{n}d").default
        add(
            f"aten.avg_pool{n}d.default",
            lambda a, average=average, n=n: average(a, [3] * n, [2] * n, [1] * n, False, False),
            [x(*shape)],
        )
        fit = (2, 6, *[6] * n)
        add(
            f"aten.adaptive_avg_pool{n}d.default",
            lambda a, n=n: getattr(aten, f"adaptive_avg_pool{n}d").default(a, [3] * n),
            [x(*fit)],
        )
        add(
            f"aten.adaptive_max_pool{n}d.default",
            lambda a, n=n: getattr(aten, f"adaptive_max_pool{n}d").default(a, [2] * n)[0],
            [x(*fit)],
        )
    for n in (2, 3):
        pool = getattr(aten, f"max_pool{n}d_with_indices").default
        add(
            f"aten.max_pool{n}d_with_indices.default",
            lambda a, pool=pool, n=n: pool(a, [2] * n)[0],
            [x(1, 3, *[5] * n)],
        )
    add(
        "aten.convolution.default",
        lambda a, w: aten.convolution.default(a, w, None, [2, 1], [1, 0], [1, 1], True, [1, 0], 1),
        [x(1, 3, 5, 4)],
        [x(3, 4, 3, 2)],
    )
    add("aten.matmul.default", aten.matmul.default, [x(2, 1, 3, 5), x(4, 5, 7)])
    add("aten.mm.default", aten.mm.default, [x(3, 5), x(5, 7)])
    add("aten.bmm.default", aten.bmm.default, [x(2, 3, 5), x(2, 5, 7)])
    add("aten.linear.default", aten.linear.default, [x(2, 3, 5)], [x(7, 5), x(7)])
    add("aten.addmm.default", lambda a, c, y: aten.addmm.default(c, a, y), [x(3, 5)], [x(7), x(5, 7)])
    add(
        "aten.baddbmm.default",
        lambda c, a, b: aten.baddbmm.default(c, a, b, beta=0.5, alpha=2),
        [x(2, 3, 7), x(2, 3, 5), x(2, 5, 7)],
    )
    add("aten.layer_norm.default", lambda a, w, b: aten.layer_norm.default(a, [7], w, b), [x(3, 5, 7)], [x(7), x(7)])
    add("aten.rms_norm.default", lambda a, w: aten.rms_norm.default(a, [7], w, 1e-5), [x(3, 5, 7)], [x(7)])
    four = [x(6), x(6), x(6), x(6, make=positive)]
    add(
        "aten._native_batch_norm_legit_no_training.default",
        lambda a, w, b, m, v: aten._native_batch_norm_legit_no_training.default(a, w, b, m, v, 0.1, 1e-5)[0],
        [x(2, 6, 5, 3)],
        four,
    )
    add("aten.softmax.int", lambda a: aten.softmax.int(a, 1), [x(3, 5, 7)])
    add("aten._softmax.default", lambda a: aten._softmax.default(a, -1, False), [x(3, 5, 7)])
    heads = [x(2, 4, 5, 8), x(2, 4, 6, 8), x(2, 4, 6, 8)]
    add("aten.scaled_dot_product_attention.default", aten.scaled_dot_product_attention.default, heads)
    add(
        "attention_mask",
        lambda q, k, v, m: aten.scaled_dot_product_attention.default(q, k, v, m),
        [*heads, lambda: (torch.rand(2, 1, 5, 6) > 0.4) | (torch.arange(6) == 2)],
    )
    for form in ("dim", "default"):
        mean = getattr(aten.mean, form)
        add(f"aten.mean.{form}", (lambda a, mean=mean: mean(a, [1, -1], True)) if form == "dim" else mean, [x(3, 5, 7)])
    add("aten.sum.dim_IntList", lambda a: aten.sum.dim_IntList(a, [0]), [x(3, 5, 7)])
    add("aten.sum.default", aten.sum.default, [lambda: torch.randint(0, 9, (3, 5))])
    add("aten.amax.default", lambda a: aten.amax.default(a, [1]), [x(3, 5, 7)])
    add("aten.amin.default", lambda a: aten.amin.default(a, [-1], True), [x(3, 5, 7)])
    for name, op in (("add", aten.add), ("sub", aten.sub)):
        add(f"aten.{name}.Tensor", lambda a, b, op=op: op.Tensor(a, b, alpha=3), [x(3, 5), x(5)])
        add(f"aten.{name}.Scalar", lambda a, op=op: op.Scalar(a, 2, 3), [x(3, 5)])
    add("aten.mul.Tensor", aten.mul.Tensor, [x(3, 1, 5), x(4, 5)])
    add("aten.mul.Scalar", lambda a: aten.mul.Scalar(a, 2.5), [x(3, 5)])
    add("aten.div.Tensor", aten.div.Tensor, [x(3, 5), x(5, make=positive)])
    add("aten.div.Scalar", lambda a: aten.div.Scalar(a, 3), [x(3, 5)])
    add(
        "aten.div.Tensor_mode",
        lambda a, b: aten.div.Tensor_mode(a, b, rounding_mode=None),
        [x(3, 5), x(5, make=positive)],
    )
    add("aten.maximum.default", aten.maximum.default, [x(3, 5), x(3, 5)])
    add("aten.minimum.default", aten.minimum.default, [x(3, 5), x(3, 5)])
    add("aten.rsub.Scalar", lambda a: aten.rsub.Scalar(a, 2, 3), [x(3, 5)])
    add("aten.rsub.Tensor", lambda a, b: aten.rsub.Tensor(a, b, alpha=2), [x(3, 5), x(3, 5)])
    add("aten.pow.Tensor_Scalar", lambda a: aten.pow.Tensor_Scalar(a, 3), [x(3, 5)])
    add("aten.pow.Tensor_Tensor", aten.pow.Tensor_Tensor, [x(3, 5, make=positive), x(3, 5)])
    add("aten.pow.Scalar", lambda a: aten.pow.Scalar(2.0, a), [x(3, 5)])
    add("aten.clamp.default", lambda a: aten.clamp.default(a, -0.5, 0.7), [x(3, 5)])
    add("aten.clamp.Tensor", aten.clamp.Tensor, [x(3, 5), lambda: -positive(5), lambda: positive(5)])
    add("aten.clamp_min.default", lambda a: aten.clamp_min.default(a, 0.1), [x(3, 5)])
    add("aten.clamp_max.default", lambda a: aten.clamp_max.default(a, 0.1), [x(3, 5)])
    add("aten.hardtanh.default", lambda a: aten.hardtanh.default(a, -0.3, 0.9), [x(3, 5)])
    add("aten.gelu.default", lambda a: aten.gelu.default(a, approximate="tanh"), [x(3, 5)])
    add("aten.leaky_relu.default", lambda a: aten.leaky_relu.default(a, 0.2), [x(3, 5)])
    add("aten.prelu.default", aten.prelu.default, [x(2, 3, 5)], [x(3)])
    add("aten._prelu_kernel.default", aten._prelu_kernel.default, [x(2, 3, 5)], [x(1, 3, 1)])
    add("aten.elu.default", lambda a: aten.elu.default(a, 1.6, 1.05), [x(3, 5)])
    add("aten.softplus.default", aten.softplus.default, [x(3, 5)])
    add("aten.hardshrink.default", aten.hardshrink.default, [x(3, 5)])
    add("aten.softshrink.default", lambda a: aten.softshrink.default(a, 0.3), [x(3, 5)])
    for name in ("alias", "clone", "contiguous", "detach", "lift_fresh_copy"):
        op = getattr(aten, name).default
        add(f"aten.{name}.default", lambda a, op=op: op(a) + 1, [x(3, 5)])
    for name in ("dropout", "feature_dropout", "alpha_dropout"):
        op = getattr(aten, name).default
        add(f"aten.{name}.default", lambda a, op=op: op(a, 0.5, False) + 1, [x(3, 5)])
    add("aten.native_dropout.default", lambda a: aten.native_dropout.default(a, 0.5, False)[0] + 1, [x(3, 5)])
    whole = lambda: torch.randint(-9, 9, (3, 5))  # noqa: E731
    add("aten._to_copy.default", lambda a: aten._to_copy.default(a, dtype=torch.float32), [whole])
    add("aten.to.dtype", lambda a: aten.to.dtype(a, torch.int32), [lambda: normal(3, 5) * 9])
    add("aten.to.dtype_layout", lambda a: aten.to.dtype_layout(a, dtype=torch.float32), [whole])
    add("aten.to.device", lambda a: aten.to.device(a, "cpu", torch.float32), [whole])
    shapes = {
        "view.default": lambda a: aten.view.default(a, [5, -1]),
        "reshape.default": lambda a: aten.reshape.default(a, [5, 21]),
        "_unsafe_view.default": lambda a: aten._unsafe_view.default(a, [105]),
        "flatten.using_ints": lambda a: aten.flatten.using_ints(a, 1),
        "unflatten.int": lambda a: aten.unflatten.int(a, 1, [5, 1]),
        "squeeze.default": lambda a: aten.squeeze.default(a[:1]),
        "squeeze.dim": lambda a: aten.squeeze.dim(a[:1], 0),
        "squeeze.dims": lambda a: aten.squeeze.dims(a[:1, :1], [0, 1]),
        "unsqueeze.default": lambda a: aten.unsqueeze.default(a, -1),
        "transpose.int": lambda a: aten.transpose.int(a, 0, -1),
        "permute.default": lambda a: aten.permute.default(a, [2, 0, -2]),
        "expand.default": lambda a: aten.expand.default(a[:1], [4, -1, -1]),
        "repeat.default": lambda a: aten.repeat.default(a, [2, 1, 3, 1]),
        "slice.Tensor": lambda a: aten.slice.Tensor(a, -1, -4, None, 2),
        "select.int": lambda a: aten.select.int(a, 1, -2),
        "split.Tensor": lambda a: aten.split.Tensor(a, 3, 2)[2] * 2,
        "split.sizes": lambda a: aten.split.sizes(a, [2, 5], 2)[1],
        "split_with_sizes.default": lambda a: aten.split_with_sizes.default(a, [4, 1], 1)[0],
        "chunk.default": lambda a: aten.chunk.default(a, 3, -1)[1],
        "unbind.int": lambda a: aten.unbind.int(a, 1)[3],
        "constant_pad_nd.default": lambda a: aten.constant_pad_nd.default(a, [1, 2, 0, 3], 0.5),
    }
    for name, function in shapes.items():
        add(f"aten.{name}", function, [x(3, 5, 7)])
    for mode in ("constant", "reflect", "replicate", "circular"):
        found[f"aten.pad.default {mode}"] = (
            lambda a, mode=mode: aten.pad.default(a, [1, 2, 2, 1], mode),
            [x(1, 2, 5, 7)],
            [],
        )
    add("getitem", lambda a: aten.split.Tensor(a, 2, 0)[1], [x(5, 3)])
    add("aten.cat.default", lambda a, b: aten.cat.default([a, b], -1), [x(3, 5), x(3, 2)])
    add("aten.stack.default", lambda a, b: aten.stack.default([a, b], 1), [x(3, 5), x(3, 5)])
    add("aten.pixel_shuffle.default", lambda a: aten.pixel_shuffle.default(a, 2), [x(1, 8, 3, 5)])
    add("aten.pixel_unshuffle.default", lambda a: aten.pixel_unshuffle.default(a, 2), [x(1, 2, 6, 4)])
    add("aten.upsample_nearest1d.default", lambda a: aten.upsample_nearest1d.default(a, [15]), [x(1, 2, 5)])
    add("aten.upsample_nearest2d.default", lambda a: aten.upsample_nearest2d.default(a, [7, 13]), [x(1, 2, 5, 6)])
    add("aten.upsample_nearest2d.vec", lambda a: aten.upsample_nearest2d.vec(a, None, [2.0, 3.0]), [x(1, 2, 5, 6)])
    add(
        "aten.upsample_bilinear2d.vec",
        lambda a: aten.upsample_bilinear2d.vec(a, None, False, [2.0, 2.0]),
        [x(1, 2, 5, 6)],
    )
    picks = lambda: torch.randint(0, 9, (2, 4))  # noqa: E731
    add("aten.embedding.default", lambda i, t: aten.embedding.default(t, i), [picks], [x(9, 5)])
    add("aten.index_select.default", lambda a, i: aten.index_select.default(a, -1, i), [x(3, 9), lambda: picks()[0]])
    add("aten.index.Tensor", lambda a, i, j: aten.index.Tensor(a, [i, j[:, :1]]), [x(9, 9, 5), picks, picks])
    add("aten.gather.default", lambda a, i: aten.gather.default(a, 1, i), [x(2, 9), picks])
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(aten, name)
        add(f"aten.{name}.Tensor", lambda a, b, op=op: op.Tensor(a, b), [whole, whole])
        add(f"aten.{name}.Scalar", lambda a, op=op: op.Scalar(a, 2.5), [whole])
    truth = lambda: torch.rand(3, 5) > 0.5  # noqa: E731
    for name in (
        "logical_and.default",
        "__and__.Tensor",
        "bitwise_and.Tensor",
        "logical_or.default",
        "__or__.Tensor",
        "bitwise_or.Tensor",
    ):
        packet, form = name.split(".")
        add(f"aten.{name}", getattr(getattr(aten, packet), form), [truth, truth])
    for name in ("logical_not", "bitwise_not"):
        add(f"aten.{name}.default", getattr(aten, name).default, [truth])
    add("aten.where.self", aten.where.self, [truth, x(3, 5), x(5)])
    add("aten.where.ScalarOther", lambda c, a: aten.where.ScalarOther(c, a, 2.0), [truth, x(3, 5)])
    add("aten.where.ScalarSelf", lambda c, a: aten.where.ScalarSelf(c, 2.0, a), [truth, x(3, 5)])
    add("aten.where.Scalar", lambda c: aten.where.Scalar(c, 1.0, -2.0), [truth])
    add("aten.masked_fill.Scalar", lambda a, m: aten.masked_fill.Scalar(a, m, -3), [x(3, 5), truth])
    add("aten.masked_fill.Tensor", lambda a, m: aten.masked_fill.Tensor(a, m, torch.tensor(4.0)), [x(3, 5), truth])
    add("aten.cumsum.default", lambda a: aten.cumsum.default(a, -1), [whole])
    add("aten.argmax.default", lambda a: aten.argmax.default(a, 1), [x(3, 5)])
    for kind, dtype, lowest, highest in (("int8", torch.int8, -128, 127), ("uint8", torch.uint8, 0, 255)):

        def both(a, dtype=dtype, lowest=lowest, highest=highest):
            q = torch.ops.quantized_decomposed
            made = q.quantize_per_tensor.default(a, 0.03, lowest + 100, lowest, highest, dtype)
            return q.dequantize_per_tensor.default(made, 0.03, lowest + 100, lowest, highest, dtype)

        found[f"quantized_decomposed.quantize_per_tensor.default {kind}"] = both, [x(3, 5)], []
    return found


CASES = cases()
NOT_ALONE = {
    # refused with a reason, which test_modules looks at
    "aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.default",
    # what quantisers make, which test_pt2e looks at
    *(name for name in OPERATORS if name.startswith("quantized_decomposed")),
}  # fmt: skip


def test_every_operator_has_a_case():
    assert set(OPERATORS) <= {name.split(" ")[0] for name in CASES} | NOT_ALONE


@pytest.mark.sample(50)
@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    function, makers, held = CASES[name]
    print(f"seeds {SEEDS}")
    torch.manual_seed(SEEDS[0])
    module, arguments = Call(function, *(make() for make in held)).eval(), tuple(make() for make in makers)
    program = torch.export.export(module, arguments, strict=False)
    translation = translate_program(program)
    session = open_session(translation.model)
    for seed in SEEDS:
        torch.manual_seed(seed)
        arguments = tuple(make() for make in makers)
        want = module(*arguments)
        feeds = {one: value.numpy() for one, value in zip(translation.inputs, arguments, strict=True)}
        got = run_session(session, list(translation.outputs), feeds)[translation.outputs[0]]
        assert got.shape == tuple(want.shape) and got.dtype == want.numpy().dtype
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-4, atol=2e-5)
    bare = name.split(" ")[0]
    if bare in OPERATORS and bare not in FOLDED:  # others are taken apart by PyTorch
        nodes = simplified(program).module.graph.nodes
        assert bare in {operator_name(node.target) for node in nodes if node.op == "call_function"}


FOLDED = {"aten.lift_fresh_copy.default", "aten.alias.default", "aten.detach.default"}
"""Of which an export leaves nothing where they do nothing."""


@pytest.mark.parametrize(
    "function, arguments, reason",
    [
        (lambda a: F.conv2d(a, torch.ones(2, 3, 1, 1)), (torch.ones(3, 4, 4),), "without a batch"),
        (lambda a: F.avg_pool2d(a, 2, divisor_override=3), (torch.ones(1, 1, 4, 4),), "its divisor is 3"),
        (lambda a: F.adaptive_avg_pool2d(a, 3), (torch.ones(1, 1, 4, 4),), "does not divide into"),
        (lambda a: torch.div(a, 2, rounding_mode="floor"), (torch.ones(2, 2),), "its rounding mode is floor"),
        (lambda a: F.softplus(a, beta=2), (torch.ones(2, 2),), "beta is 2"),
        (lambda a: a[a > 0], (torch.ones(2, 2),), "by a mask"),
        (lambda a: torch.fft.fft(a).real, (torch.ones(2, 4),), "is not translated"),
        (lambda a: F.dropout(a, 0.5, True), (torch.ones(2, 2),), "in training mode"),
    ],
)
def test_what_has_no_onnx_form_is_named(function, arguments, reason):
    with pytest.raises(ModelError, match=reason):
        translate_program(torch.export.export(Call(function), arguments, strict=False))
