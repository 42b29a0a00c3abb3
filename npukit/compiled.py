"""`compile`: a model's programs for one configuration, to load on devices, or to time with any memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from time import perf_counter

import onnx

from npukit.cache import cache_path
from npukit.compiler.frontends.onnx.artifact import offload_of
from npukit.compiler.frontends.onnx.offload import Offload
from npukit.compiler.pipeline import Compilation, compile_model
from npukit.compiler.search import Search
from npukit.driver.executor import ArtifactError, programs_of
from npukit.driver.graph_check import GraphError, check_program_memory
from npukit.errors import UsageError
from npukit.hw.toolchain import source_digest
from npukit.isa.config import ConfigError, NpuConfig, load_config
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.isa.place import Place
from npukit.isa.program import Program
from npukit.npufile import read_model, write_artifact
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.timing import Schedule, simulate_timing
from npukit.sim.validator import refuse, validate_program

__all__ = ["SOURCES", "CompiledModel", "cached_search", "compile", "staying_nodes"]

SOURCES = source_digest(
    Path(path) for name in ("compiler", "sim", "isa") for path in import_module(f"npukit.{name}").__path__
)
"""Of what decides how a search goes, as it is loaded: files that are edited later are not what this process runs."""


@dataclass(frozen=True)
class CompiledModel:
    """A model for one configuration.

    Attributes:
        artifact: the ONNX model whose accelerated parts are nodes with programs.
        config: what it is compiled for.
        programs: by the names of these nodes, in the order of execution.
        compilation: what the compiler's passes made; None of a model that was compiled elsewhere.
        seconds: that it took.
        optimize: how much the compiler tried; None of a model that was compiled elsewhere.
    """

    artifact: onnx.ModelProto
    config: NpuConfig
    programs: Mapping[str, Program]
    compilation: Compilation | None = field(default=None, repr=False)
    seconds: float = 0.0
    optimize: int | None = None

    @property
    def offload(self) -> Offload:
        """What runs on the device, and why the rest does not."""
        return self.compilation.partition if self.compilation else offload_of(self.artifact, self.programs)

    def save(self, path: str | Path) -> None:
        """Write it as an ONNX file, which `compile` and `Session` take in place of a model."""
        write_artifact(path, self.artifact)

    def simulate(self, dram: AnyDram | None = None) -> dict[str, Schedule]:
        """The timing of each program where it lies in a device's memory, by its name.

        Args:
            dram: what lies behind the accelerator; by default the reference DRAM.
        """
        found, address = {}, 0
        for name, program in self.programs.items():
            place = Place.of(program, address)
            there = (dram or DramModel()).at(place.code_address, place.base)
            found[name] = simulate_timing(self.config, program.instructions, there)
            address = place.end
        return found


def compile(
    model: str | Path | bytes | onnx.ModelProto,
    config: str | NpuConfig | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    all_nodes: bool = False,
    min_macs: int = 0,
    optimize: int = 1,
    search: Search | None = None,
    dram: AnyDram | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> CompiledModel:
    """Compile a model, or take a compiled one, or a program, whose programs the validator then examines.

    Args:
        model: path, bytes or proto.
        config: preset name, TOML file or `NpuConfig`; default `int8-16x16`, or what a compiled model was compiled for.
        shapes: input shapes that the model leaves open.
        all_nodes: refuse a model of which a node runs on the host, other than quantisers.
        min_macs: subgraphs of fewer multiply-accumulates are left to the host.
        optimize: how much the compiler tries: 0, 1 or 2; results are the same.
        search: at 2, where it keeps what it measures; by default the user's cache.
        dram: the memory for which work is cut into tiles; by default the reference DRAM. Programs run with any other,
            and of a model that is compiled already it changes nothing.
        limits: memory and cycles that a compiled model's programs may ask for.

    Raises:
        ConfigError, CompileError, ArtifactError, ValidationError, UsageError: each with one clear sentence.
    """
    start = perf_counter()
    proto = read_model(model, shapes)
    programs = programs_of(proto)
    wanted = load_config(config) if isinstance(config, str) else config
    if programs:
        if shapes:
            raise UsageError("a compiled model has its shapes already")
        if min_macs:
            raise UsageError("a compiled model is partitioned already: compile it again with --min-macs")
        if all_nodes and (stay := staying_nodes(proto)):
            raise UsageError(f"{len(stay)} node(s) run on the host, and there is to be no fallback: {', '.join(stay)}")
        found = _config_of(programs, wanted)
        try:
            check_program_memory(programs.values(), limits)
        except GraphError as error:
            raise UsageError(str(error)) from None
        for program in programs.values():
            refuse(validate_program(program, limits))
        return CompiledModel(proto, found, programs, None, perf_counter() - start)
    found = wanted or NpuConfig()
    compilation = compile_model(
        proto, found, shapes, min_macs=min_macs, all_nodes=all_nodes, optimize=optimize,
        search=search or (cached_search() if optimize > 1 else None), dram=dram,
    )  # fmt: skip
    assert compilation.artifact is not None
    made = {program.name: program for program in compilation.programs}
    return CompiledModel(compilation.artifact, found, made, compilation, perf_counter() - start, optimize)


def cached_search(progress: Callable[[str], None] = lambda _: None) -> Search:
    """A search that keeps what it measures in the user's cache."""
    return Search(cache_path("search"), SOURCES, progress)


def staying_nodes(model: onnx.ModelProto) -> list[str]:
    """Nodes of a compiled model that ONNX Runtime runs, but for those at the accelerator's edge."""
    device = ("EPContext", "QuantizeLinear", "DequantizeLinear")
    edge = {reason.node for reason in offload_of(model, {}).reasons if reason.edge}
    nodes = (node for node in model.graph.node if node.op_type not in device and node.name not in edge)
    return [f"{node.op_type} {node.name}" for node in nodes]


def _config_of(programs: Mapping[str, Program], wanted: NpuConfig | None) -> NpuConfig:
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
