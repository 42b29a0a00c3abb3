"""`Session`: a model on a device, run like an ONNX Runtime session."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter, sleep
from typing import NoReturn

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from npukit.cache import cache_path
from npukit.compiler.frontends.onnx.artifact import Offload, offload_of
from npukit.compiler.frontends.onnx.partition import Partition
from npukit.compiler.pipeline import Compilation, compile_model
from npukit.compiler.search import Search
from npukit.driver.device import Device
from npukit.driver.executor import ArtifactError, Execution, Executor, programs_of
from npukit.driver.graph_check import GraphError, check_input_memory, check_program_memory
from npukit.driver.host import quantized_tensors
from npukit.driver.sim_device import SimDevice
from npukit.errors import UsageError
from npukit.hw.toolchain import source_digest
from npukit.isa.config import ConfigError, NpuConfig, load_config
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.isa.program import Program
from npukit.npufile import read_model
from npukit.profiling.layers import Profile, layer_profiles
from npukit.sim.dram import AnyDram, DramModel, SdramDram
from npukit.sim.judge import judge_program, refuse
from npukit.sim.timing import Schedule, simulate_timing

__all__ = ["DEVICES", "FALLBACKS", "Session", "cached_search"]

FALLBACKS = ("cpu", "cuda", "none")
CUDA = "CUDAExecutionProvider"
DEVICES = ("sim", "rtl")
_SOURCES = source_digest(
    Path(path) for name in ("compiler", "sim", "isa") for path in import_module(f"npukit.{name}").__path__
)
"""Of what decides how a search goes, as it is loaded: files that are edited later are not what this process runs."""


class Session:
    """Compile a model (or take a compiled one) and run it.

    Threads may share a session, and sessions a device: its programs run one after the other. A session stays in the
    process that made it. `close`, or the end of a `with` block, frees the device, unless it was given as an object.

    Args:
        model: path, bytes or proto of an ONNX model, of a model that npukit compiled, or of a program.
        config: preset name, TOML file or `NpuConfig`; default `int8-16x16`, or what a compiled model
            was compiled for.
        device: `sim`, `rtl` (the hardware in Verilator, built on first use), or an object with the device protocol.
        dram: what lies behind the accelerator: the reference DRAM, or a board's SDRAM with its controller.
        shapes: input shapes that the model leaves open.
        compute: False runs timing alone; outputs are then zeros. The RTL always computes.
        fallback: what runs the nodes that the accelerator cannot: `cpu`, `cuda` (ONNX Runtime's GPU build), or `none`,
            which refuses a model that has such nodes.
        min_macs: subgraphs of fewer multiply-accumulates are left to the fallback.
        optimize: how much the compiler tries: 0, 1 or 2; results are the same. search: at 2, where it keeps what it
            measures; by default the user's cache.
        vcd, vcd_cycles: a waveform file of the RTL, and the first and last cycle in it.
        limits: memory and cycles that a compiled model's programs may ask for; the judge examines them before anything
            is made for them. Of a model that is compiled here, its inputs are held to them.

    Raises:
        ConfigError, CompileError, ArtifactError, JudgeError, UsageError: each with one clear sentence.
    """

    def __init__(
        self,
        model: str | Path | bytes | onnx.ModelProto,
        config: str | NpuConfig | None = None,
        device: str | Device = "sim",
        *,
        dram: AnyDram | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        compute: bool = True,
        capture: bool = False,
        fallback: str = "cpu",
        min_macs: int = 0,
        optimize: int = 1,
        search: Search | None = None,
        vcd: str | Path | None = None,
        vcd_cycles: tuple[int, int] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        start = perf_counter()
        providers = _providers(fallback)
        proto = read_model(model)
        programs = programs_of(proto)
        wanted = load_config(config) if isinstance(config, str) else config
        self.compilation: Compilation | None = None
        if programs:
            if shapes:
                raise UsageError("a compiled model has its shapes already")
            if min_macs:
                raise UsageError("a compiled model is partitioned already: compile it again with --min-macs")
            if fallback == "none" and (stay := _staying(proto)):
                raise UsageError(
                    f"{len(stay)} node(s) run on the host, and there is to be no fallback: {', '.join(stay)}"
                )
            self.config = _config_of(programs, wanted)
            try:
                check_program_memory(programs.values(), limits)
            except GraphError as error:
                raise UsageError(str(error)) from None
            for program in programs.values():
                refuse(judge_program(program, limits))
        else:
            self.config = wanted or NpuConfig()
            self.compilation = compile_model(
                proto, self.config, shapes, min_macs=min_macs, all_nodes=fallback == "none", optimize=optimize,
                search=search or (cached_search() if optimize > 1 else None),
            )  # fmt: skip
            assert self.compilation.artifact is not None
            proto = self.compilation.artifact
        self.artifact = proto
        self._owns_device = isinstance(device, str)
        if isinstance(device, str):
            if device not in DEVICES:
                raise UsageError(f"the devices are {', '.join(DEVICES)}, not {device!r}")
            device = _make_device(device, self.config, dram, compute, vcd, vcd_cycles)
        self.device = device
        self.dram: AnyDram = dram or getattr(device, "dram", None) or DramModel()
        expose = frozenset({*quantized_tensors(proto), *_program_inputs(proto)}) if capture else frozenset()
        # judged here, or by the compiler, which has let ONNX Runtime see the model
        self._executor = Executor(proto, device, expose, providers, None, look=bool(programs))
        try:
            check_input_memory(self._executor.inputs, limits)
        except GraphError as error:
            raise UsageError(str(error)) from None
        self._compile_seconds = perf_counter() - start
        self._capture = capture
        self._process = os.getpid()
        self._running: dict[object, int] = {}  # the thread of each run
        self._closed = False
        self._last = _Measured(Profile(self.config), {})
        self._mine = threading.local()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
        close = getattr(self.device, "close", None)  # the simulator holds nothing but memory
        if self._owns_device and close is not None:
            close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Session cannot be pickled or copied: it holds a device and ONNX Runtime's sessions; make another one, "
            "for which its `artifact`, the compiled model, can be pickled"
        )

    @property
    def profile(self) -> Profile:
        """Where the cycles of a run went: the latest of this thread, or in one without a run, of all threads."""
        return self._latest.profile

    @property
    def tensors(self) -> dict[str, NDArray]:
        """With `capture`, every quantised tensor of the run that `profile` describes."""
        return self._latest.tensors

    @property
    def _latest(self) -> "_Measured":
        return getattr(self._mine, "run", self._last)

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The model's inputs."""
        return self._executor.inputs

    def check_input(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Refuse an input that `run` would refuse, by what is known before its values are.

        Raises:
            InputError: of the wrong name, dtype or shape.
        """
        self._executor.check_input(name, dtype, shape)

    @property
    def programs(self) -> dict[str, Program]:
        """The accelerated subgraphs' programs by name."""
        return self._executor.programs

    def schedules(self) -> dict[str, Schedule]:
        """The simulated timing of each program where it lies in memory, by the same names."""
        return {
            name: simulate_timing(
                self.config, loaded.program.instructions, self.dram.at(loaded.code_address, loaded.base)
            )
            for name, loaded in self._executor.loaded.items()
        }

    @property
    def offload(self) -> Partition | Offload:
        """What runs on the device, and why the rest does not."""
        return self.compilation.partition if self.compilation else offload_of(self.artifact, self.programs)

    def run(self, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Run on {name: array}; returns {name: array}. `profile` then tells where the cycles went.

        With `capture`, `tensors` then holds every quantised tensor. Both are of the calling thread's own run.

        Raises:
            UsageError: the session is closed, or of another process.
            InputError: an input of the wrong name, shape or dtype.
            DeviceError: what the device reports.
            HostError: what ONNX Runtime reports of the nodes that stay.
        """
        if os.getpid() != self._process:  # ONNX Runtime's threads are not here
            raise UsageError(
                f"the session was made in process {self._process} and does not work in its fork {os.getpid()}: "
                "make the Session in the process that uses it"
            )
        run = object()
        try:
            # first this, then the look at `_closed`: `close` does it the other way round
            self._running[run] = threading.get_ident()
            if self._closed:
                raise UsageError("the session is closed: make another one")
            start = perf_counter()
            execution = self._executor.run(inputs, self._capture)
            profile = self._profile(execution, perf_counter() - start)
            self._mine.run = self._last = _Measured(profile, execution.tensors)
            return execution.outputs
        finally:
            self._running.pop(run, None)

    def _profile(self, execution: Execution, seconds: float) -> Profile:
        profile = Profile(self.config, boundary_bytes=execution.boundary_bytes)
        programs = self.programs
        for name, record in execution.records.items():
            program = programs[name]
            cycles = record.counters["cycles"]
            profile.cycles += cycles
            profile.macs += sum(node.macs for node in program.nodes)
            for counter, value in record.counters.items():
                profile.counters[counter] = profile.counters.get(counter, 0) + value
            profile.layers.extend(layer_profiles(program, record.events, cycles, self.dram))
        profile.seconds = {
            "compile": self._compile_seconds,
            "simulate": sum(record.seconds_device for record in execution.records.values()),
            "host": execution.host_seconds + sum(record.seconds_host for record in execution.records.values()),
            "total": seconds,
        }
        return profile


@dataclass(frozen=True)
class _Measured:
    """Beside the outputs of a run: its profile, and the tensors that were captured."""

    profile: Profile
    tensors: dict[str, NDArray]


def _program_inputs(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node if node.op_type == "EPContext" for name in node.input]


def _providers(fallback: str) -> tuple[str, ...]:
    """ONNX Runtime's execution providers for a fallback."""
    if fallback not in FALLBACKS:
        raise UsageError(f"the fallbacks are {', '.join(FALLBACKS)}, not {fallback!r}")
    cpu = "CPUExecutionProvider"
    if fallback != "cuda":
        return (cpu,)
    if CUDA not in onnxruntime.get_available_providers():
        raise UsageError("this ONNX Runtime has no CUDA: pip install onnxruntime-gpu in place of onnxruntime")
    return CUDA, cpu


def _staying(model: onnx.ModelProto) -> list[str]:
    """Nodes of a compiled model that ONNX Runtime runs, but for quantisers."""
    device = ("EPContext", "QuantizeLinear", "DequantizeLinear")
    return [f"{node.op_type} {node.name}" for node in model.graph.node if node.op_type not in device]


def cached_search(progress: Callable[[str], None] = lambda _: None) -> Search:
    """A search that keeps what it measures in the user's cache."""
    return Search(cache_path("search"), _SOURCES, progress)


def _make_device(
    name: str,
    config: NpuConfig,
    dram: AnyDram | None,
    compute: bool,
    vcd: str | Path | None,
    vcd_cycles: tuple[int, int] | None,
) -> Device:
    size = {"memory_bytes": dram.chip.bytes} if isinstance(dram, SdramDram) else {}
    if name == "sim":
        return SimDevice(config, dram, compute=compute, **size)
    # heavy, and not needed by the simulator
    from npukit.driver.rtl_device import RtlDevice
    from npukit.verify.sdram import SdramRtlDevice

    if isinstance(dram, SdramDram):
        return SdramRtlDevice(config, dram, vcd=vcd, vcd_cycles=vcd_cycles, **size)
    return RtlDevice(config, dram, vcd=vcd, vcd_cycles=vcd_cycles)


def _config_of(programs: dict[str, Program], wanted: NpuConfig | None) -> NpuConfig:
    config = next(iter(programs.values())).config
    for name, program in programs.items():
        if program.config != config:
            fields = "; ".join(config.difference(program.config))
            raise ArtifactError(
                f"the programs are for several configurations ({next(iter(programs))}, {name}: {fields})"
            )
    if wanted is not None and wanted != config:
        fields = "; ".join(config.difference(wanted))
        raise ConfigError(
            f"the model is compiled for another configuration (compiled, asked for: {fields}); compile it again"
        )
    return config
