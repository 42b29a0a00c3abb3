"""`npukit.compile` of PyTorch modules."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.pytorch.tracing import tracing
from npukit.errors import UsageError
from npukit.pytorch.gradients import refuse_gradients, wants_gradients
from npukit.pytorch.graph import AcceleratedGraph
from npukit.pytorch.target import Target
from npukit.pytorch.variants import Variants, kind_of

__all__ = [
    "CompiledModule",
    "CompiledProgram",
    "bound",
    "compile_module",
    "export_module",
    "ordinary",
    "with_arguments",
]


class CompiledModule(torch.nn.Module):
    """A module that runs on the machine, called like the module that it was made of.

    It is compiled again for arguments of other shapes or types, in training and evaluation mode, and when parameters or
    buffers were changed. What the machine cannot do runs in PyTorch, on the device on which the module is.

    Attributes:
        module: what it was made of; its parameters are this module's as well.
        target: what it is compiled for, and where it runs.
    """

    def __init__(self, module: torch.nn.Module, target: Target) -> None:
        super().__init__()
        self.module, self.target = module, target
        self.variants = Variants(target, type(module).__name__)
        self.training = module.training

    def graph(self, *arguments: Any, **options: Any) -> AcceleratedGraph:
        """What it is compiled to for these arguments."""
        arguments, options = bound(self.module, arguments, options)
        leaves, structure = pytree.tree_flatten((arguments, options))
        if any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
            raise UsageError(
                f"{type(self.module).__name__} is called within torch.autocast, which npukit.compile does not follow: "
                'convert it with .bfloat16(), or use torch.compile(module, backend="npukit")'
            )
        modules = tuple((id(one), type(one), one.training) for one in self.module.modules())
        kind = structure, modules, tuple(map(kind_of, leaves))
        held = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return self.variants.get(kind, held, lambda: export_module(self.module, arguments, options))

    @property
    def latest(self) -> AcceleratedGraph | None:
        """What ran last, or was compiled last."""
        return self.variants.latest

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Run on arguments as the module takes them.

        Raises:
            CompileError, DeviceError: what compiling or running meets. UsageError: within `torch.autocast`.
        """
        arguments, options = bound(self.module, arguments, options)
        results = self.graph(*arguments, **options)(*arguments, **options)
        given = [*pytree.tree_leaves((arguments, options)), *self.module.parameters()]
        anchor = wants_gradients(given)
        return results if anchor is None else refuse_gradients(results, anchor, [*given, *self.module.buffers()])

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is made of a copy of the module, and compiles anew."""
        return CompiledModule, (self.module, self.target)


class CompiledProgram(torch.nn.Module):
    """A program of `torch.export` that runs on the machine, for the shapes with which it was exported."""

    def __init__(self, program: ExportedProgram, target: Target) -> None:
        super().__init__()
        self.target = target
        self._graph = AcceleratedGraph(program, target)

    @property
    def latest(self) -> AcceleratedGraph:
        """What it is compiled to."""
        return self._graph

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Run on arguments as the exported module takes them."""
        results = self._graph(*arguments, **options)
        given = pytree.tree_leaves((arguments, options))
        anchor = wants_gradients(given)
        return results if anchor is None else refuse_gradients(results, anchor, given)


def compile_module(
    module: torch.nn.Module | ExportedProgram, example_inputs: Any, target: Target
) -> CompiledModule | CompiledProgram:
    """Compile a module for the machine, or a program of `torch.export`.

    Args:
        module: in evaluation mode; in training mode, dropout and statistics of batches run in PyTorch.
        example_inputs: a tensor, a tuple of arguments, or a mapping of arguments by name, for which it is compiled at
            once. Of a program none: it has its shapes.
        target: what to compile for.

    Raises:
        CompileError, UsageError: each with one clear sentence.
    """
    if isinstance(module, ExportedProgram):
        if example_inputs is not None:
            raise UsageError("an exported program has its shapes already: leave example_inputs out")
        return CompiledProgram(module, target)
    compiled = CompiledModule(module, target)
    arguments, options = with_arguments(example_inputs)
    compiled.graph(*arguments, **options)
    return compiled


def with_arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of example inputs.

    Raises:
        UsageError: they are of another kind.
    """
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    if isinstance(example_inputs, Mapping):
        return (), {**example_inputs}
    raise UsageError(
        "example_inputs must be a tensor, a tuple of arguments, or a mapping of arguments by name, "
        f"not {type(example_inputs).__name__}"
    )


def bound(
    module: torch.nn.Module, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments by position where a module's `forward` takes them so, whether they were given by name or not.

    Raises:
        TypeError: they are not the function's.
    """
    found = inspect.signature(module.forward).bind(*arguments, **options)
    return found.args, found.kwargs


def ordinary(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that may be traced: a copy of one that was made in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor


def export_module(module: torch.nn.Module, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> ExportedProgram:
    """A module as a program, with the shapes of these arguments.

    Raises:
        ModelError: `torch.export` refuses it. UsageError: it was made in inference mode.
    """
    held = next((name for name, one in module.named_parameters() if one.is_inference()), None)
    if held is not None:
        raise UsageError(
            f"parameter {held} was made in inference mode: make the module outside of torch.inference_mode()"
        )
    try:
        with tracing(), torch.inference_mode(False), torch.no_grad():
            arguments, options = pytree.tree_map_only(torch.Tensor, ordinary, (arguments, {**options}))
            return torch.export.export(module, arguments, {**options}, strict=False)
    except Exception as error:  # whatever the module raises, and many classes of torch.export's
        reason = " ".join(str(error).split())[:300]
        values = "data-dependent" in reason.lower() or "DataDependent" in type(error).__name__
        advice = (
            '; its control flow depends on values: torch.compile(module, backend="npukit") takes such modules'
            if values
            else ""
        )
        raise ModelError(
            f"torch.export refuses {type(module).__name__}: {type(error).__name__}: {reason}{advice}"
        ) from error
