"""What the operators are, and what keeps a node from the accelerator: read from the matchers and checks themselves."""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from npukit.compiler import arithmetic, legality, tiling
from npukit.compiler.frontends.onnx.operators import (
    MATCHERS,
    base,
    integer,
    quantisation,
    tables,
    unary,
    volume,
    weights,
    windows,
)
from npukit.compiler.frontends.onnx.operators.unary import UNARY, match_unary
from npukit.compiler.frontends.tflite.operators import TFLITE_MATCHERS, activations
from npukit.compiler.frontends.tflite.operators import base as tflite_base
from npukit.compiler.frontends.tflite.operators import integers as tflite_integers
from npukit.compiler.frontends.tflite.operators import windows as tflite_windows
from npukit.compiler.ir.operations import TensorOperation
from npukit.compiler.legality import LEGALITY

__all__ = ["OperatorEntry", "catalogue", "markdown", "tflite_catalogue"]


_INTRODUCTION = (
    "What the compiler takes over from ONNX, int8 or uint8, and each reason for which a node stays in ONNX Runtime",
    "instead. `npukit ops --markdown` writes this page from the compiler's own checks; a name in braces stands for the",
    "value that the message states.",
    "",
    "Models may be in the QDQ form, where QuantizeLinear and DequantizeLinear stand around operators on floats, or",
    "in the QOperator form, where ONNX Runtime's operators on integers quantise by themselves: QLinearConv,",
    "QLinearMatMul, QGemm, QLinearAdd, QLinearMul, QLinearAveragePool, QLinearGlobalAveragePool, QLinearConcat,",
    "QLinearLeakyRelu, QLinearSigmoid and QLinearSoftmax count below as the operators whose names they hold, and",
    "between them MaxPool, Concat, Pad, Slice, Split, Resize and reshapes of integers.",
    "",
    "A node also stays where ONNX Runtime itself, in its optimised graph, computes it in float: then there is no",
    "integer result to be equal to. And it stays where ONNX Runtime, without it, would compute a node that stays",
    "otherwise than in the whole graph.",
)


_TFLITE = (
    "Of int8 models on int8 configurations, equal to TensorFlow Lite Micro, and of float models on bf16 ones. Tensors",
    "have one scale, weights of convolutions one for each output as well. Everything else runs on the host in",
    "TensorFlow Lite Micro itself.",
)


@dataclass(frozen=True)
class OperatorEntry:
    """Operators of one matcher: what is taken, and the reasons why a node stays, with a name for each value."""

    names: tuple[str, ...]
    summary: str
    reasons: tuple[str, ...]


def catalogue() -> tuple[OperatorEntry, ...]:
    """An entry for each matcher, those of convolutions and products first, and one for tables."""
    names: dict[Callable, list[str]] = {}
    for name, matcher in MATCHERS.items():
        names.setdefault(matcher, []).append(name)
    names[match_unary] = sorted(UNARY)
    return _entries(names)


def tflite_catalogue() -> tuple[OperatorEntry, ...]:
    """The same of TFLite's operators."""
    names: dict[Callable, list[str]] = {}
    for name, matcher in TFLITE_MATCHERS.items():
        names.setdefault(matcher, []).append(name)
    return _entries(names)


def _entries(names: Mapping[Callable, Sequence[str]]) -> tuple[OperatorEntry, ...]:
    return tuple(
        OperatorEntry(
            tuple(mine), inspect.getdoc(matcher) or "", tuple(dict.fromkeys(_reasons(matcher, _module(matcher), set())))
        )
        for matcher, mine in names.items()
    )


def markdown() -> str:
    """docs/operators.md."""
    entries = catalogue()
    everywhere = [reason for reason in entries[0].reasons if all(reason in entry.reasons for entry in entries)]
    lines = [
        "# Operators",
        "",
        *_INTRODUCTION,
        "",
        "## All of them",
        "",
        "A node stays, with one of these reasons:",
        "",
    ]
    lines += [f"- {reason}" for reason in everywhere]
    for entry in entries:
        own = [f"- {reason}" for reason in entry.reasons if reason not in everywhere]
        lines += ["", f"## {', '.join(entry.names)}", "", entry.summary, "", "A node stays:", "", *own]
    lines += ["", "## TFLite's operators", "", *_TFLITE]
    for entry in tflite_catalogue():
        lines += ["", f"### {', '.join(entry.names)}", "", entry.summary]
        if entry.reasons:
            lines += ["", "A node stays:", "", *(f"- {reason}" for reason in entry.reasons)]
    return "\n".join(lines) + "\n"


def _module(function: Callable) -> ModuleType:
    module = inspect.getmodule(function)
    assert module is not None
    return module


def _reasons(function: Callable, module: ModuleType, seen: set[Callable]) -> Iterator[str]:
    """Messages of `Refused` in a function, in those of the compiler that it calls, and in the checks of the operations
    that a matcher makes, in the order of its text."""
    if function in seen:
        return
    seen.add(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    # a function whose name ends so returns a message, or None; it is raised where it is assigned
    raised = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    is_problem = function.__name__.endswith("_problem")
    for node in ast.walk(tree):
        made = None
        if isinstance(node, ast.Name) and module not in (legality, arithmetic):
            made = getattr(module, node.id, None)
        check = LEGALITY.get(made) if inspect.isclass(made) and issubclass(made, TensorOperation) else None
        if check is not None:
            yield from _reasons(check, legality, seen)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("Refused", "SeveralTensors") and isinstance(
                node.args[0], (ast.JoinedStr, ast.Constant, ast.Call)
            ):
                text = _text(node.args[0], module)
                if len(text) > 12:
                    yield text
                continue
            called = getattr(module, node.func.id, None)
            if called is not None and called.__name__.endswith("_problem") and id(node) not in raised:
                continue
            if inspect.isfunction(called) and _module(called) in _MODULES:
                yield from _reasons(called, _module(called), seen)
        elif made is not None and _is_own_class(made, module):
            yield from _reasons(made, module, seen)
        elif is_problem and isinstance(node, ast.Return) and isinstance(node.value, (ast.JoinedStr, ast.Constant)):
            if node.value is not None and _text(node.value, module):
                yield _text(node.value, module)


def _is_own_class(made: object, module: ModuleType) -> bool:
    """Whether something is a class that a matcher's module keeps for itself, with checks in its methods."""
    return inspect.isclass(made) and made.__module__ == module.__name__ and made.__name__.startswith("_")


def _text(node: ast.expr, module: ModuleType) -> str:
    """A string or f-string; of each expression, a name in braces, or the value of a constant."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            # fmt: off
            names = [one.attr if isinstance(one, ast.Attribute) else one.id for one in ast.walk(part.value)
                     if isinstance(one, ast.Attribute) or isinstance(one, ast.Name) and not _is_function(one)]
            # fmt: on
            name = names[0] if names else "value"
            parts.append(str(getattr(module, name)) if name.isupper() else f"{{{name}}}")
    return "".join(parts)


def _is_function(name: ast.Name) -> bool:
    """Whether a name says nothing about the value: of a built-in function, or a private one."""
    return name.id.startswith("_") or hasattr(builtins, name.id)


_MODULES = {
    base,
    integer,
    quantisation,
    unary,
    tables,
    tiling,
    volume,
    weights,
    windows,
    legality,
    arithmetic,
    activations,
    tflite_base,
    tflite_integers,
    tflite_windows,
    *(_module(matcher) for matcher in (*MATCHERS.values(), *TFLITE_MATCHERS.values())),
}
