"""Programs of `torch.export`, whole: with shapes that are fixed, and as ONNX models."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.pytorch.simplify import simplified
from npukit.compiler.frontends.pytorch.tracing import tracing
from npukit.compiler.frontends.pytorch.translate import Translation, translate
from npukit.compiler.ir.names import free_name
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

__all__ = ["translate_program", "with_static_shapes"]


def translate_program(program: ExportedProgram) -> Translation:
    """A program as an ONNX model. Its inputs have the names of the module's arguments, its outputs their keys, or
    `output_0` and so on.

    Raises:
        ModelError: an operator has no ONNX form, or the program changes its buffers or arguments.
    """
    simple = simplified(program)
    if simple.changed:
        raise ModelError(
            f"the program changes {', '.join(simple.changed)} when it runs, as a module in training mode does: call "
            "eval() on the module before torch.export"
        )
    module, nodes = simple.module, [*simple.module.graph.nodes]
    inputs = {node: str(node.target) for node in nodes if node.op == "placeholder" and _is_tensor(node)}
    results = pytree.tree_leaves(module.graph.output_node().args[0])
    kept = [place for place, node in enumerate(results) if isinstance(node, fx.Node)]
    if not kept:
        raise ModelError("the program has no output that is a tensor")
    names = _output_names(program, len(results), [*inputs.values()])
    return translate(
        nodes, simple.constants, inputs, [results[place] for place in kept],
        output_names=[names[place] for place in kept],
    )  # fmt: skip


def with_static_shapes(program: ExportedProgram, shapes: Mapping[str, Sequence[int]]) -> ExportedProgram:
    """A program whose arguments have the given shapes, by name, where it leaves them open.

    Raises:
        ModelError: an unknown name, a shape that contradicts the program's, or one that stays open.
    """
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    users = [one.arg for one in program.graph_signature.input_specs if one.kind == InputKind.USER_INPUT]
    tensors = {one.name: values[one.name] for one in users if isinstance(values.get(one.name), torch.Tensor)}
    for name in shapes:
        if name not in tensors:
            raise ModelError(f"the model has the inputs {', '.join(tensors)}, not {name!r}")
    wanted = {name: _shape(name, value, shapes.get(name)) for name, value in tensors.items()}
    if all(isinstance(size, int) for value in tensors.values() for size in value.shape):
        return program
    leaves = [
        torch.zeros(wanted[one.name], dtype=tensors[one.name].dtype)
        if one.name in wanted
        else getattr(one, "value", None)
        for one in users
    ]
    structure = program.call_spec.in_spec
    assert structure is not None
    arguments, options = pytree.tree_unflatten(leaves, structure)
    try:
        with tracing(), torch.no_grad():
            return torch.export.export(program.module(check_guards=False), arguments, options, strict=False)
    except Exception as error:  # many classes of torch.export's
        raise ModelError(f"torch.export refuses these shapes: {' '.join(str(error).split())[:300]}") from None


def _shape(name: str, value: torch.Tensor, given: Sequence[int] | None) -> tuple[int, ...]:
    known = [size if isinstance(size, int) else None for size in value.shape]
    if given is None:
        if None in known:
            example = ",".join(str(size or 1) for size in known)
            raise ModelError(
                f"input {name} has the shape {[str(size) for size in value.shape]}; every dimension must be a fixed "
                f"number above 0: give it, as in --input-shape {name}={example}"
            )
        return tuple(value.shape)
    if len(given) != len(known):
        raise ModelError(f"input {name} has {len(known)} dimensions, not {len(given)}: {[*given]}")
    for size, fixed in zip(given, known, strict=True):
        if fixed is not None and size != fixed:
            raise ModelError(f"input {name} has the fixed dimension {fixed}, not {size}")
    return tuple(given)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _output_names(program: ExportedProgram, count: int, taken: Sequence[str]) -> list[str]:
    """Names of outputs: where a module returns a mapping, its keys."""
    spec = program.call_spec.out_spec
    keys: list[Any] = [None] * count
    if spec is not None and spec.num_leaves == count:
        paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten([*range(count)], spec))
        keys = ["_".join(str(getattr(key, "key", getattr(key, "idx", ""))) for key in path) for path, _ in paths]
    names: list[str] = []
    for place, key in enumerate(keys):
        name = key if isinstance(key, str) and key.isidentifier() else f"output_{place}"
        names.append(free_name(name, {*taken, *names}))
    return names
