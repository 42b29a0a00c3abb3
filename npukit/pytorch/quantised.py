"""`npukit.quantize` of PyTorch modules: int8 modules, on the host or on the machine."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

from npukit.compiler.frontends.pytorch.emitter import to_numpy
from npukit.compiler.frontends.pytorch.program import translate_program
from npukit.driver.host import open_session, run_session
from npukit.errors import UsageError
from npukit.npufile import write_bytes
from npukit.pytorch.module import bound, export_module, with_arguments
from npukit.pytorch.target import Target
from npukit.quantisation import Quantised, QuantiserOptions, quantize
from npukit.session import Session

__all__ = ["CompiledQuantised", "QuantisedModule", "quantize_module"]


@dataclass(frozen=True)
class _Form:
    """How a module is called.

    Attributes:
        inputs, outputs: names of its ONNX model's, in the order of the tensors among arguments and results.
        signature: of its `forward`.
        taken, made: how arguments and results are nested.
        others: the arguments that are no tensors, by their places.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    signature: inspect.Signature
    taken: pytree.TreeSpec
    made: pytree.TreeSpec
    others: Mapping[int, Any]

    def arrays(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, NDArray]:
        """The model's inputs among a call's arguments.

        Raises:
            UsageError: there are others than those with which the module was quantised.
        """
        try:
            bound = self.signature.bind(*arguments, **options)
        except TypeError as error:
            raise UsageError(f"it is called as the module that was quantised: {error}") from None
        leaves, structure = pytree.tree_flatten((bound.args, bound.kwargs))
        if structure != self.taken:
            want, got = (" ".join(str(one).split()) for one in (self.taken, structure))
            raise UsageError(f"it takes the arguments with which it was quantised, nested likewise: {want}, not {got}")
        for place, value in self.others.items():
            if leaves[place] != value:
                raise UsageError(
                    f"it was quantised with the argument {value!r}, and takes no other, as {leaves[place]!r}"
                )
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return {name: _float32(to_numpy(tensor)) for name, tensor in zip(self.inputs, tensors, strict=True)}

    def results(self, arrays: Mapping[str, NDArray], like: Iterable[Any]) -> Any:
        """The call's result of the model's outputs, on the device on which the arguments are."""
        device = next((one.device for one in pytree.tree_leaves([*like]) if isinstance(one, torch.Tensor)), None)
        tensors = [torch.from_numpy(arrays[name]).to(device) for name in self.outputs]
        return pytree.tree_unflatten(tensors, self.made)


class QuantisedModule(torch.nn.Module):
    """An int8 module, which ONNX Runtime computes on the host; `npukit.compile` of it runs on the machine, with equal
    results.

    Attributes:
        quantised: the ONNX model, and what each layer lost.
    """

    def __init__(self, quantised: Quantised, form: _Form) -> None:
        super().__init__()
        self.quantised, self.form = quantised, form
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
        found = run_session(self._session, [*self.form.outputs], self.form.arrays(arguments, options))
        return self.form.results(found, (arguments, options))


class CompiledQuantised(torch.nn.Module):
    """A quantised module on the machine.

    Attributes:
        session: which runs it.
    """

    def __init__(self, module: QuantisedModule, target: Target) -> None:
        super().__init__()
        self.form = module.form
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
        found = self.session.run(self.form.arrays(arguments, options))
        return self.form.results(found, (arguments, options))


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
    arguments, named = bound(module, *calls[0])
    program = export_module(module, arguments, named)
    translation, made = translate_program(program), program.call_spec.out_spec
    leaves, taken = pytree.tree_flatten((arguments, named))
    if made is None or made.num_leaves != len(translation.outputs):
        raise UsageError(
            f"{type(module).__name__} returns something else than tensors, which a quantised module cannot"
        )
    others = {place: one for place, one in enumerate(leaves) if not isinstance(one, torch.Tensor)}
    signature = inspect.signature(module.forward)
    form = _Form(translation.inputs, translation.outputs, signature, taken, made, others)
    samples = [form.arrays(*call) for call in calls]
    return QuantisedModule(quantize(translation.model, samples, options, progress=progress), form)


def _float32(array: NDArray) -> NDArray:
    """bfloat16 as float32, which the model takes in its place."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
