"""`npukit.quantize` of PyTorch modules: int8 modules, on the host or on the machine."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

from npukit.compiler.frontends.pytorch.emitter import to_numpy
from npukit.compiler.frontends.pytorch.program import translate_program
from npukit.driver.host import open_session, run_session
from npukit.errors import UsageError
from npukit.npufile import write_bytes
from npukit.pytorch.module import export_module, with_arguments
from npukit.pytorch.target import Target
from npukit.quantisation import Quantised, QuantiserOptions, quantize
from npukit.session import Session

__all__ = ["CompiledQuantised", "QuantisedModule", "quantize_module"]


class _OnTensors(torch.nn.Module):
    """An ONNX model called as the module is that it was made of: with tensors, for the shapes of its export."""

    def __init__(self, inputs: tuple[str, ...], outputs: tuple[str, ...], taken: Any, made: Any) -> None:
        super().__init__()
        self._inputs, self._outputs = inputs, outputs
        self._taken, self._made = taken, made

    def arrays(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, NDArray]:
        """The model's inputs among a call's arguments.

        Raises:
            UsageError: there are others than those with which the module was quantised.
        """
        leaves, structure = pytree.tree_flatten((arguments, {**options}))
        if structure != self._taken:
            raise UsageError(
                f"it takes the arguments with which it was quantised, nested likewise: {self._taken}, not {structure}"
            )
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return {name: _float32(to_numpy(tensor)) for name, tensor in zip(self._inputs, tensors, strict=True)}

    def results(self, arrays: Mapping[str, NDArray], like: Iterable[Any]) -> Any:
        """The call's result of the model's outputs, on the device on which the arguments are."""
        device = next((one.device for one in pytree.tree_leaves([*like]) if isinstance(one, torch.Tensor)), None)
        tensors = [torch.from_numpy(arrays[name]).to(device) for name in self._outputs]
        return pytree.tree_unflatten(tensors, self._made)


class QuantisedModule(_OnTensors):
    """An int8 module, which ONNX Runtime computes on the host; `npukit.compile` of it runs on the machine, with equal
    results.

    Attributes:
        quantised: the ONNX model, and what each layer lost.
    """

    def __init__(self, quantised: Quantised, *form: Any) -> None:
        super().__init__(*form)
        self.quantised = quantised
        self._form = form
        self._session = open_session(quantised.model)

    def save(self, path: str | Path) -> None:
        """Write the model as an ONNX file, for `npukit run` and any other tool.

        Raises:
            UsageError, OutputError: it cannot be written.
        """
        write_bytes(path, self.quantised.model.SerializeToString())

    @torch.compiler.disable
    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Run on the host.

        Raises:
            UsageError: arguments of another structure. HostError: of other shapes.
        """
        arrays = self.arrays(arguments, options)
        found = run_session(self._session, [*self._outputs], arrays)
        return self.results(found, (arguments, options))


class CompiledQuantised(_OnTensors):
    """A quantised module on the machine.

    Attributes:
        session: which runs it.
    """

    def __init__(self, module: QuantisedModule, target: Target) -> None:
        super().__init__(*module._form)
        self.session = Session(
            module.quantised.model, target.config_for(quantised=True), target.device, dram=target.dram,
            optimize=target.optimize, min_macs=target.min_macs, capture=target.capture,
        )  # fmt: skip

    @torch.compiler.disable
    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Run on the machine; what it cannot do, in ONNX Runtime, as equal results need it.

        Raises:
            UsageError: arguments of another structure. InputError: of other shapes. DeviceError, HostError.
        """
        found = self.session.run(self.arrays(arguments, options))
        return self.results(found, (arguments, options))


def quantize_module(
    module: torch.nn.Module, calibration: Iterable[Any], options: QuantiserOptions | None = None,
    most: int | None = None, progress: Callable[[str], None] = lambda _: None,
) -> QuantisedModule:  # fmt: skip
    """An int8 module of a float one, by ONNX Runtime's static quantiser.

    Args:
        module: in evaluation mode.
        calibration: its arguments for typical inputs, each a tensor, a tuple of arguments, or a mapping of arguments by
            name, all of one shape, which is the quantised module's. A DataLoader serves; of pairs of inputs and labels,
            give the inputs.
        options: formats, types and what stays float.
        most: how many samples to take at most.
        progress: gets a line as each step begins.

    Raises:
        CompileError: the module cannot be exported, translated or quantised.
        UsageError: no samples, or such as are not its arguments.
    """
    if module.training:
        raise UsageError(f"{type(module).__name__} is in training mode: call eval() on it first")
    calls = []
    for number, sample in enumerate(calibration):
        if most is not None and number >= most:
            break
        calls.append(with_arguments(sample))
    if not calls:
        raise UsageError("there are no samples to calibrate with")
    arguments, named = calls[0]
    program = export_module(module, arguments, named)
    translation = translate_program(program)
    _, taken = pytree.tree_flatten((arguments, {**named}))
    form = translation.inputs, translation.outputs, taken, program.call_spec.out_spec
    if program.call_spec.out_spec is None or program.call_spec.out_spec.num_leaves != len(translation.outputs):
        raise UsageError(
            f"{type(module).__name__} returns something else than tensors, which a quantised module cannot"
        )
    shell = _OnTensors(*form)
    samples = [shell.arrays(*call) for call in calls]
    model = cast(onnx.ModelProto, translation.model)
    return QuantisedModule(quantize(model, samples, options, progress=progress), *form)


def _float32(array: NDArray) -> NDArray:
    """bfloat16 as float32, which the model takes in its place."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
