"""`Session`: a model on a device, run like an ONNX Runtime session: `compile`, `load` and `run` in one."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NoReturn

import numpy as np
import onnx
from numpy.typing import NDArray

from npukit.compiled import compile
from npukit.compiler.frontends.onnx.offload import Offload
from npukit.compiler.pipeline import Compilation
from npukit.compiler.search import Search
from npukit.devices import DeviceOptions, check_device
from npukit.driver.device import Device
from npukit.driver.executor import Execution
from npukit.isa.config import NpuConfig
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.isa.program import Program
from npukit.loaded import load, providers_of
from npukit.profiling.boundary import HostModel
from npukit.profiling.clock import clock_of
from npukit.profiling.layers import Profile, layer_profiles
from npukit.profiling.timed import TimedModel
from npukit.serial_line import board_behind
from npukit.sim.dram import AnyDram
from npukit.sim.timing import Schedule

__all__ = ["Session"]


class Session:
    """Compile a model (or take a compiled one) and run it.

    Threads may share a session, and sessions a device: its programs run one after the other. A session stays in the
    process that made it. `close`, or the end of a `with` block, frees the device, unless it was given as an object.

    Args:
        model: path, bytes or proto of an ONNX model, of a model that npukit compiled, or of a program.
        config: preset name, TOML file or `NpuConfig`; default `int8-16x16`, or what a compiled model
            was compiled for.
        device: `sim`, `rtl` (the hardware in Verilator, built on first use), or an object with the device protocol.
        dram: what lies behind the accelerator, and what is compiled for: the reference DRAM, or a board's SDRAM with
            its controller.
        shapes: input shapes that the model leaves open.
        compute: False runs timing alone; outputs are then zeros. The RTL always computes.
        fallback: what runs the nodes that the accelerator cannot: `cpu`, `cuda` (ONNX Runtime's GPU build), or `none`,
            which refuses a model that has such nodes.
        min_macs: subgraphs of fewer multiply-accumulates are left to the fallback.
        optimize: how much the compiler tries: 0, 1 or 2; results are the same. search: at 2, where it keeps what it
            measures; by default the user's cache.
        vcd, vcd_cycles: a waveform file of the RTL, and the first and last cycle in it.
        limits: memory and cycles that a compiled model's programs may ask for; the validator examines them before
            anything is made for them. Of a model that is compiled here, its inputs are held to them.

    Raises:
        ConfigError, CompileError, ArtifactError, ValidationError, UsageError: each with one clear sentence.
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
        providers_of(fallback)  # before anything that takes long
        if isinstance(device, str):
            check_device(device)
            board = board_behind(device)
            if board is not None:  # what it was flashed with, and its memory, are the defaults
                config, dram = config or board.config, dram or board.dram
        self.compiled = compile(
            model, config, shapes=shapes, all_nodes=fallback == "none", min_macs=min_macs, optimize=optimize,
            search=search, dram=dram or getattr(device, "dram", None), limits=limits,
        )  # fmt: skip
        self.loaded = load(
            self.compiled, device, options=DeviceOptions(dram, compute, vcd, vcd_cycles), capture=capture,
            fallback=fallback, limits=limits,
        )  # fmt: skip
        self._compile_seconds = perf_counter() - start
        self._last = _Measured(Profile(self.config, self.dram), {})
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
        self.loaded.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Session cannot be pickled or copied: it holds a device and ONNX Runtime's sessions; make another one, "
            "for which its `artifact`, the compiled model, can be pickled"
        )

    @property
    def config(self) -> NpuConfig:
        """What the model is compiled for."""
        return self.compiled.config

    @property
    def compilation(self) -> Compilation | None:
        """What the compiler's passes made; None of a model that was compiled elsewhere."""
        return self.compiled.compilation

    @property
    def artifact(self) -> onnx.ModelProto:
        """The compiled model."""
        return self.compiled.artifact

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.loaded.device

    @property
    def dram(self) -> AnyDram:
        """What lies behind the accelerator."""
        return self.loaded.dram

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
        return self.loaded.inputs

    def check_input(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Refuse an input that `run` would refuse, by what is known before its values are.

        Raises:
            InputError: of the wrong name, dtype or shape.
        """
        self.loaded.executor.check_input(name, dtype, shape)

    @property
    def programs(self) -> Mapping[str, Program]:
        """The accelerated subgraphs' programs by name."""
        return self.compiled.programs

    def schedules(self) -> dict[str, Schedule]:
        """The simulated timing of each program where it lies in memory, by the same names."""
        return self.compiled.simulate(self.dram)

    def timed(self, name: str = "model", clock: float | None = None, host: HostModel | None = None) -> TimedModel:
        """The simulated timing, from which reports and plots are made.

        Args:
            name: the model's, for titles.
            clock: megahertz; by default the SDRAM's, the configuration's board's, or the ULX3S's.
            host: what is assumed of the host.

        Raises:
            UsageError: a clock that is not above 0, or not the SDRAM's.
        """
        found = clock_of(self.config, clock, self.dram)
        schedules = self.schedules()
        runs = [(program, schedules[one]) for one, program in self.programs.items()]
        return TimedModel(
            name, self.config, runs, self.dram, found, self.offload, host or HostModel(),
            optimize=self.compiled.optimize,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        config = self.config
        machine = f"{config.rows} by {config.array} {config.dtype}, hash {config.hash:016x}"
        parts = [f"<p>Session on {machine}</p>", self.offload._repr_html_()]
        if self.profile.layers:
            parts.append(self.profile._repr_html_())
        return "".join(parts)

    @property
    def offload(self) -> Offload:
        """What runs on the device, and why the rest does not."""
        return self.compiled.offload

    def run(self, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Run on {name: array}; returns {name: array}. `profile` then tells where the cycles went.

        With `capture`, `tensors` then holds every quantised tensor. Both are of the calling thread's own run.

        Raises:
            UsageError: the session is closed, or of another process.
            InputError: an input of the wrong name, shape or dtype.
            DeviceError: what the device reports.
            HostError: what ONNX Runtime reports of the nodes that stay.
        """
        start = perf_counter()
        execution = self.loaded.run(inputs)
        profile = self._profile(execution, perf_counter() - start)
        self._mine.run = self._last = _Measured(profile, execution.tensors)
        return execution.outputs

    def _profile(self, execution: Execution, seconds: float) -> Profile:
        profile = Profile(self.config, self.dram, boundary=execution.boundary, transfers=execution.transfers)
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
            "host": execution.host_seconds + execution.write_seconds + execution.boundary.seconds,
            "fallback": execution.host_seconds,
            "boundary": execution.boundary.seconds,
            "gpu": execution.transfers.seconds,
            "total": seconds,
        }
        return profile


@dataclass(frozen=True)
class _Measured:
    """Beside the outputs of a run: its profile, and the tensors that were captured."""

    profile: Profile
    tensors: dict[str, NDArray]
