"""Products of matrices."""

from npukit.compiler.frontends.pytorch.emitter import Emitter, Untranslated
from npukit.compiler.frontends.pytorch.operators.quantized import turned, with_bias
from torch import fx

__all__ = ["OPERATORS"]


def _matmul(emit: Emitter, x: fx.Node, y: fx.Node) -> str:
    if min(len(emit.shape(x)), len(emit.shape(y))) < 2:
        raise Untranslated(f"{x.name} {list(emit.shape(x))} and {y.name} {list(emit.shape(y))} are not both matrices")
    return emit.node("MatMul", [emit(x), emit(y)])


def _linear(emit: Emitter, x: fx.Node, weight: fx.Node, bias: fx.Node | None = None) -> str:
    rank = len(emit.shape(x))
    if rank == 2:
        return emit.node("Gemm", with_bias(emit, [emit(x), emit(weight)], x, weight, bias), transB=1)
    if rank < 2 or len(emit.shape(weight)) != 2:
        raise Untranslated(f"{x.name} has {rank} dimensions; 2 and more are supported")
    product = emit.node("MatMul", [emit(x), turned(emit, weight)])
    return product if bias is None else emit.node("Add", [product, emit(bias)])


def _scaled(emit: Emitter, value: str, factor: float) -> str:
    return value if factor == 1 else emit.node("Mul", [value, emit.constant(factor, "float32")])


def _added(emit: Emitter, added: fx.Node, x: fx.Node, y: fx.Node, *, beta: float = 1, alpha: float = 1) -> str:
    """`beta * added + alpha * x @ y`, as a Gemm where `added` is a vector of constants."""
    if len(emit.shape(x)) == 2 and len(emit.shape(added)) == 1 and beta == alpha == 1:
        return emit.node("Gemm", with_bias(emit, [emit(x), emit(y)], x, y, added))
    product = _scaled(emit, _matmul(emit, x, y), alpha)
    return emit.node("Add", [product, _scaled(emit, emit(added), beta)])


OPERATORS = {
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.linear.default": _linear,
    "aten.addmm.default": _added,
    "aten.baddbmm.default": _added,
}
