"""`Session`: a model on a device, run like an ONNX Runtime session."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter

import onnx
import onnxruntime
from numpy.typing import NDArray

from npukit.compiler.artifact import Offload, offload_of
from npukit.compiler.passes.partition import Partition
from npukit.compiler.pipeline import Compilation, compile_model
from npukit.compiler.search import Search
from npukit.driver.device import Device
from npukit.driver.executor import Execution, Executor, programs_of
from npukit.driver.host import quantized_tensors
from npukit.driver.sim_device import SimDevice
from npukit.errors import UsageError
from npukit.hw.toolchain import cache_folder, source_digest
from npukit.isa.config import ConfigError, NpuConfig, load_config
from npukit.isa.program import Program
from npukit.npufile import read_model
from npukit.profiling.layers import Profile, layer_profiles
from npukit.sim.dram import AnyDram, DramModel, SdramDram
from npukit.sim.timing import Schedule, simulate_timing

__all__ = ["DEVICES", "FALLBACKS", "Session", "cached_search"]

FALLBACKS = ("cpu", "cuda", "none")
CUDA = "CUDAExecutionProvider"
DEVICES = ("sim", "rtl")


class Session:
    """Compile a model (or take a compiled one) and run it.

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

    Raises:
        ConfigError, CompileError, ArtifactError, UsageError: each with one clear sentence.
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
        else:
            self.config = wanted or NpuConfig()
            self.compilation = compile_model(
                proto, self.config, shapes, min_macs=min_macs, all_nodes=fallback == "none", optimize=optimize,
                search=search or (cached_search() if optimize > 1 else None),
            )  # fmt: skip
            assert self.compilation.artifact is not None
            proto = self.compilation.artifact
        self.artifact = proto
        if isinstance(device, str):
            if device not in DEVICES:
                raise UsageError(f"the devices are {', '.join(DEVICES)}, not {device!r}")
            device = _make_device(device, self.config, dram, compute, vcd, vcd_cycles)
        self.device = device
        self.dram: AnyDram = dram or getattr(device, "dram", None) or DramModel()
        expose = frozenset({*quantized_tensors(proto), *_program_inputs(proto)}) if capture else frozenset()
        self._executor = Executor(proto, device, expose, providers)
        self._compile_seconds = perf_counter() - start
        self._capture = capture
        self.profile = Profile(self.config)
        self.tensors: dict[str, NDArray] = {}

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The model's inputs."""
        return self._executor.inputs

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

        With `capture`, `tensors` then holds every quantised tensor.

        Raises:
            InputError: an input of the wrong name, shape or dtype.
            DeviceError: what the device reports.
            HostError: what ONNX Runtime reports of the nodes that stay.
        """
        start = perf_counter()
        execution = self._executor.run(inputs, self._capture)
        self.tensors = execution.tensors
        self.profile = self._profile(execution, perf_counter() - start)
        return execution.outputs

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
    packages = [Path(path) for name in ("compiler", "sim", "isa") for path in import_module(f"npukit.{name}").__path__]
    try:
        folder = cache_folder("search")
    except OSError:  # then nothing is kept
        folder = None
    return Search(folder, source_digest(packages), progress)


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
    if wanted is not None and wanted != config:
        fields = "; ".join(config.difference(wanted))
        raise ConfigError(
            f"the model is compiled for another configuration (compiled, asked for: {fields}); compile it again"
        )
    return config
