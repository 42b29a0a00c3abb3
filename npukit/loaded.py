"""`load`: a compiled model in a device's memory, to be run any number of times."""

import os
import threading
from collections.abc import Mapping, Sequence
from time import sleep
from typing import NoReturn

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto

from npukit.compiled import CompiledModel, staying_nodes
from npukit.devices import DeviceOptions, make_device
from npukit.driver.device import Device
from npukit.driver.executor import Execution, Executor
from npukit.driver.graph_check import GraphError, check_input_memory
from npukit.driver.host import quantized_tensors
from npukit.errors import UsageError
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.sim.dram import AnyDram, DramModel

__all__ = ["FALLBACKS", "LoadedModel", "load", "providers_of"]

FALLBACKS = ("cpu", "cuda", "none")
CUDA = "CUDAExecutionProvider"


class LoadedModel:
    """A compiled model on a device, which others may use as well; threads may run it at the same time.

    Attributes:
        compiled: what was loaded.
        device: where.
        dram: what lies behind the accelerator.
        executor: of its programs and the parts that stay.
    """

    def __init__(
        self, compiled: CompiledModel, device: Device, dram: AnyDram, executor: Executor, owns_device: bool,
        capture: bool,
    ) -> None:  # fmt: skip
        self.compiled, self.device, self.dram, self.executor = compiled, device, dram, executor
        self._owns_device, self._capture = owns_device, capture
        self._process = os.getpid()
        self._running: dict[object, int] = {}  # the thread of each run
        self._closed = False

    def __enter__(self) -> "LoadedModel":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a loaded model cannot be pickled or copied: it holds a device and ONNX Runtime's sessions; load its "
            "`compiled` again, whose artifact can be pickled"
        )

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The model's inputs."""
        return self.executor.inputs

    def run(self, inputs: Mapping[str, NDArray]) -> Execution:
        """Run on {name: array}: outputs, counters of each program, and, with `capture`, all tensors.

        Raises:
            UsageError: it is closed, or another process has loaded it.
            InputError: an input of the wrong name, shape or dtype.
            DeviceError: what the device reports.
            HostError: what ONNX Runtime reports of the nodes that stay.
        """
        if os.getpid() != self._process:  # ONNX Runtime's threads are not here
            raise UsageError(
                f"the session was made in process {self._process} and does not work in its fork {os.getpid()}: "
                "make the Session, or load the model, in the process that uses it"
            )
        run = object()
        try:
            # first this, then the look at `_closed`: `close` does it the other way round
            self._running[run] = threading.get_ident()
            if self._closed:
                raise UsageError("the session is closed: make another one, or load the model again")
            return self.executor.run(inputs, self._capture)
        finally:
            self._running.pop(run, None)

    def close(self) -> None:
        """Free the device once all runs have ended; a run after that is refused. A device that was given stays.

        Raises:
            UsageError: from within a run of the same thread.
        """
        if os.getpid() != self._process:  # the device is the other process's
            return
        if threading.get_ident() in list(self._running.values()):
            raise UsageError("a session cannot be closed from within a run of its own")
        self._closed = True
        while self._running:
            sleep(0.005)
        if self._owns_device:
            _close(self.device)


def load(
    compiled: CompiledModel,
    device: str | Device = "sim",
    *,
    options: DeviceOptions | None = None,
    capture: bool = False,
    fallback: str = "cpu",
    limits: Limits = DEFAULT_LIMITS,
) -> LoadedModel:
    """Load a compiled model on a device.

    Args:
        compiled: of `compile`.
        device: a name (see `npukit.devices`), or an object with the device protocol.
        options: what the device is made with.
        capture: show every quantised tensor of a run.
        fallback: what runs the nodes that the accelerator cannot: `cpu`, `cuda` (ONNX Runtime's GPU build), or `none`,
            which refuses a model that has such nodes.
        limits: memory that inputs may ask for.

    Raises:
        ArtifactError, DeviceError, UsageError: each with one clear sentence.
    """
    options = options or DeviceOptions()
    providers = providers_of(fallback)
    if fallback == "none" and (stay := staying_nodes(compiled.artifact)):
        raise UsageError(f"{len(stay)} node(s) run on the host, and there is to be no fallback: {', '.join(stay)}")
    if isinstance(device, str):
        made = make_device(device, compiled.config, options)
        try:
            return _load(compiled, made, options, capture, providers, limits, owns_device=True)
        except BaseException:
            _close(made)
            raise
    return _load(compiled, device, options, capture, providers, limits, owns_device=False)


def _close(device: Device) -> None:
    close = getattr(device, "close", None)  # the simulator holds nothing but memory
    if close is not None:
        close()


def _load(
    compiled: CompiledModel, device: Device, options: DeviceOptions, capture: bool, providers: Sequence[str],
    limits: Limits, owns_device: bool,
) -> LoadedModel:  # fmt: skip
    behind = getattr(device, "dram", None)
    if not owns_device and behind is not None and options.dram not in (None, behind):
        raise UsageError(f"the device has the memory {behind}, not {options.dram}: leave dram out")
    dram: AnyDram = options.dram or behind or DramModel()
    model = compiled.artifact
    shown = frozenset({*quantized_tensors(model), *_program_inputs(model), *_of_sums(model)})
    # validated by `compile`, or made by the compiler, which has let ONNX Runtime see the model
    executor = Executor(
        compiled.artifact, device, shown if capture else frozenset(), providers, None,
        look=compiled.compilation is None,
    )  # fmt: skip
    try:
        check_input_memory(executor.inputs, limits)
    except GraphError as error:
        raise UsageError(str(error)) from None
    return LoadedModel(compiled, device, dram, executor, owns_device, capture)


def _program_inputs(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node if node.op_type == "EPContext" for name in node.input]


def _of_sums(model: onnx.ModelProto) -> list[str]:
    """What the host makes of programs' sums, whose zero point may not have been known before."""
    whole = {value.name for value in model.graph.value_info if value.type.tensor_type.elem_type == TensorProto.INT32}
    sums = {name for node in model.graph.node if node.op_type == "EPContext" for name in node.output if name in whole}
    return [name for node in model.graph.node if not sums.isdisjoint(node.input) for name in node.output]


def providers_of(fallback: str) -> tuple[str, ...]:
    """ONNX Runtime's execution providers for a fallback.

    Raises:
        UsageError: there is none of that name, or this ONNX Runtime does not have it.
    """
    if fallback not in FALLBACKS:
        raise UsageError(f"the fallbacks are {', '.join(FALLBACKS)}, not {fallback!r}")
    cpu = "CPUExecutionProvider"
    if fallback != "cuda":
        return (cpu,)
    if CUDA not in onnxruntime.get_available_providers():
        raise UsageError("this ONNX Runtime has no CUDA: pip install onnxruntime-gpu in place of onnxruntime")
    return CUDA, cpu
