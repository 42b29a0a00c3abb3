"""The public functions that take models of any framework: `compile`, `quantize`, `profile` and `report`.

A PyTorch module goes to `npukit.pytorch`, which needs torch; anything else is an ONNX or TFLite model, or a file.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import onnx

from npukit import compiled as models
from npukit import quantisation
from npukit.compiled import CompiledModel
from npukit.errors import UsageError
from npukit.isa.config import NpuConfig
from npukit.profiling.boundary import HostModel
from npukit.profiling.timed import TimedModel
from npukit.session import Session

if TYPE_CHECKING:
    import torch  # pyright: ignore[reportMissingImports]

    from npukit.pytorch.module import CompiledModule, CompiledProgram
    from npukit.pytorch.quantised import CompiledQuantised, QuantisedModule
    from npukit.pytorch.reports import Report
    from npukit.quantisation import Quantised

__all__ = ["compile", "profile", "quantize", "report"]


def _is_module(model: object) -> bool:
    """Whether a model is PyTorch's, which nothing is before torch is loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    kinds = (torch.nn.Module, getattr(getattr(torch, "export", None), "ExportedProgram", torch.nn.Module))
    return isinstance(model, kinds)


@overload
def compile(
    model: "str | Path | bytes | onnx.ModelProto", config: str | NpuConfig | None = None, **options: Any
) -> CompiledModel: ...
@overload
def compile(
    model: "torch.nn.Module", example_inputs: Any = None, **options: Any
) -> "CompiledModule | CompiledQuantised": ...
@overload
def compile(model: "torch.export.ExportedProgram", **options: Any) -> "CompiledProgram": ...
def compile(model: Any, *arguments: Any, **options: Any) -> Any:
    """Compile a model for the machine.

    An ONNX or TFLite model, by path, bytes or proto: `compile(model, config, shapes=..., optimize=...)`, whose further
    arguments are those of `npukit.compiled.compile`, gives a `CompiledModel`, to be loaded or timed.

    A PyTorch module: `compile(module, example_inputs, config=..., device=...)`, whose options are those of
    `npukit.pytorch.target.Target`, gives a module that is called like it. A program of `torch.export`, or what
    `npukit.quantize` made of a module, has its shapes, and takes no example inputs.

    Raises:
        ConfigError, CompileError, ArtifactError, ValidationError, UsageError: each with one clear sentence.
    """
    if not _is_module(model):
        if callable(model):
            raise UsageError(
                f"{getattr(model, '__name__', type(model).__name__)} is a function: npukit.compile takes modules, "
                'programs and files, and torch.compile(function, backend="npukit") takes functions'
            )
        return models.compile(model, *arguments, **options)
    from npukit.pytorch.module import compile_module
    from npukit.pytorch.quantised import CompiledQuantised, QuantisedModule
    from npukit.pytorch.target import target_of

    example_inputs = options.pop("example_inputs", None)
    if len(arguments) > 1 or (arguments and example_inputs is not None):
        raise UsageError("a module takes example_inputs alone by position; its configuration is config=...")
    example_inputs = arguments[0] if arguments else example_inputs
    target = target_of(options)
    if isinstance(model, QuantisedModule):
        if example_inputs is not None:
            raise UsageError("a quantised module has its shapes already: leave example_inputs out")
        return CompiledQuantised(model, target)
    return compile_module(model, example_inputs, target)


@overload
def quantize(model: "str | Path | bytes | onnx.ModelProto", *arguments: Any, **options: Any) -> "Quantised": ...
@overload
def quantize(model: "torch.nn.Module", calibration: Iterable[Any], **options: Any) -> "QuantisedModule": ...
def quantize(model: Any, *arguments: Any, **options: Any) -> Any:
    """Quantise a float model to int8, and measure what each layer loses.

    An ONNX model: `quantize(model, data, options, shapes, most)` gives a `Quantised`, as `npukit.quantisation.quantize`
    does. A PyTorch module: `quantize(module, calibration, options=..., most=...)` gives a `QuantisedModule`, as
    `npukit.pytorch.quantised.quantize_module` does, which is called like the module, can be saved as an ONNX file, and
    runs on the machine once compiled.

    Raises:
        CompileError, UsageError: each with one clear sentence.
    """
    if not _is_module(model):
        return quantisation.quantize(model, *arguments, **options)
    from npukit.pytorch.quantised import quantize_module

    return quantize_module(model, *arguments, **options)


def profile(
    model: str | Path | bytes | onnx.ModelProto,
    config: str | NpuConfig | None = None,
    *,
    clock: float | None = None,
    host: HostModel | None = None,
    **options: Any,
) -> TimedModel:
    """Where a model's cycles go on a simulated machine; no values are computed.

    Args:
        model: path, bytes or proto of an ONNX or TFLite model, of one that npukit compiled, or of a program.
        config: preset name, TOML file or `NpuConfig`; default `int8-16x16`, or what a compiled model was compiled for.
        clock: megahertz; by default the SDRAM's, the configuration's board's, or the ULX3S's.
        host: what is assumed of the host, for what is not on the machine.
        options: those of `Session` but for the device: `dram`, `shapes`, `fallback`, `min_macs`, `optimize`, `search`,
            `limits`.

    Raises:
        ConfigError, CompileError, ArtifactError, ValidationError, UsageError: each with one clear sentence.
    """
    if _is_module(model) or not isinstance(model, str | Path | bytes | onnx.ModelProto):
        raise UsageError(
            f"npukit.profile takes models of ONNX or TFLite, not a {type(model).__name__}; of a compiled PyTorch "
            "module npukit.report says where the cycles go"
        )
    name = Path(model).stem if isinstance(model, str | Path) else "model"
    with Session(model, config, compute=False, **options) as session:
        return session.timed(name, clock, host)


def report(compiled: Any, megahertz: float | None = None) -> "Report":
    """What of a compiled PyTorch module runs on the machine, why the rest does not, and what it takes.

    Args:
        compiled: of `compile`, or of `torch.compile` with the backend npukit, which has been called.
        megahertz: the clock to assume; by default the SDRAM's, the configuration's board's, or the ULX3S's.

    Raises:
        UsageError: it is something else, or not compiled yet.
    """
    from npukit.pytorch.reports import report

    return report(compiled, megahertz)
