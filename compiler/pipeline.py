"""The compiler's passes, in their order."""

import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import onnx
from npukit.compiler.cost import CostModel
from npukit.compiler.errors import CompileError
from npukit.compiler.frontends.onnx.artifact import build_artifact
from npukit.compiler.frontends.onnx.importer import Imported, ImportPass, load_model
from npukit.compiler.frontends.onnx.lower import LowerPass
from npukit.compiler.frontends.onnx.normalise import NormalisePass
from npukit.compiler.frontends.onnx.partition import PartitionPass
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.compiler.frontends.onnx.zero_points import ZeroPointsPass
from npukit.compiler.ir.graph import Graph
from npukit.compiler.pass_base import Pass, PassRunner
from npukit.compiler.passes.allocate import AllocatePass
from npukit.compiler.passes.eliminate import EliminatePass
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.fold import FoldPass
from npukit.compiler.passes.fuse import FusePass
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.join import JoinPass
from npukit.compiler.passes.legalise import LegalisePass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.passes.validate import ValidatePass
from npukit.compiler.search import Search, search_on
from npukit.compiler.strategy import LEVELS, Order, back_end, first_that_fits
from npukit.compiler.tasks import Allocation, Plan
from npukit.isa.config import NpuConfig
from npukit.isa.program import Program
from npukit.sim.dram import AnyDram, DramModel, SdramDram

__all__ = ["OPTIMIZE", "PASSES", "Compilation", "check_model", "compile_model"]

OPTIMIZE = (0, 1, 2)
"""Levels of optimisation: fast, the default, and a search."""


@dataclass
class Compilation:
    """What compiling a model made: the artifact, and every stage before it by the pass's name.

    Attributes:
        config: what it is compiled for.
        stages: what each pass made, and, of those that each subgraph has its own of, a tuple.
        seconds: how long each pass took in all of its runs; a search's simulations are no pass's.
        artifact: the compiled model, if no pass was named as the last.
    """

    config: NpuConfig
    stages: dict[str, object] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    artifact: onnx.ModelProto | None = None

    @property
    def source(self) -> onnx.ModelProto:
        """The model with its input shapes fixed, which is what the oracle runs."""
        return cast(Imported, self.stages[ImportPass.name]).source

    @property
    def partition(self) -> Partition:
        """The split into accelerated and staying nodes."""
        return cast(Partition, self.stages[PartitionPass.name])

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The accelerated parts, as the last of the passes over them left them."""
        passes = FusePass, JoinPass, FoldPass, EliminatePass, LegalisePass, LowerPass
        last = next(one.name for one in passes if one.name in self.stages)
        return cast(tuple[Graph, ...], self.stages[last])

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The tasks of each subgraph, in the order in which they were made."""
        return cast(tuple[Plan, ...], self.stages[SchedulePass.name])

    @property
    def interleaved(self) -> tuple[Plan, ...]:
        """The tasks of each subgraph, in the order in which they run."""
        return cast(tuple[Plan, ...], self.stages[InterleavePass.name])

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Where everything of each subgraph lies."""
        return cast(tuple[Allocation, ...], self.stages[AllocatePass.name])

    @property
    def programs(self) -> tuple[Program, ...]:
        """One program per accelerated subgraph."""
        return cast(tuple[Program, ...], self.stages[EmitPass.name])


def check_model(
    source: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig,
    shapes: Mapping[str, Sequence[int]] | None = None,
    min_macs: int = 0,
) -> Compilation:
    """Compile as far as the partition: what would run where, and why. Raises as `compile_model` does."""
    return compile_model(source, config, shapes, stop_after="partition", min_macs=min_macs)


def compile_model(
    source: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig,
    shapes: Mapping[str, Sequence[int]] | None = None,
    stop_after: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
    min_macs: int = 0,
    all_nodes: bool = False,
    optimize: int = 1,
    search: Search | None = None,
    dram: AnyDram | None = None,
) -> Compilation:
    """Compile an ONNX or TFLite model, or a program of torch.export.

    Args:
        source: path, bytes or proto.
        config: what to compile for.
        shapes: of inputs that the model leaves open.
        stop_after: the last pass whose result is wanted; of those after `join`, the ones behind it run as well, because
            they decide which strategy fits. Only the last pass, `validate`, examines the programs.
        progress: gets the name of each pass as it begins.
        min_macs: subgraphs of fewer multiply-accumulates stay in ONNX Runtime.
        all_nodes: fail when a node stays, other than quantisers at the edge.
        optimize: 0, fast; 1, within seconds; 2, a search with the timing simulator, minutes. Results are the same.
        search: for level 2: a folder for what it measures, and its progress.
        dram: the memory for which work is cut into tiles; by default the reference DRAM. Programs are right with any
            other, too.

    Raises:
        CompileError: a model that cannot be read or compiled; the message says what to do.
    """
    if stop_after is not None and stop_after not in PASSES:
        raise CompileError(f"the passes are {', '.join(PASSES)}, not {stop_after!r}")
    if optimize not in OPTIMIZE:
        raise CompileError(f"the levels of optimisation are {', '.join(map(str, OPTIMIZE))}, not {optimize!r}")
    with _without_collection:
        cost = CostModel(config, _memory(config, dram))
        passes = front_end(config, shapes or {}, min_macs, all_nodes)
        return _compile(source, shapes or {}, cost, passes, stop_after, progress, optimize, search or Search())


def _memory(config: NpuConfig, dram: AnyDram | None) -> AnyDram:
    """The memory to compile for. Raises CompileError for one that does not go with the configuration."""
    if dram is None:
        return DramModel()
    if not isinstance(dram, DramModel | SdramDram):
        raise CompileError(f"the memory is a DramModel or an SdramDram, not {dram!r}")
    try:
        dram.check(config)
    except ValueError as error:
        raise CompileError(str(error)) from None
    return dram


class _WithoutCollection:
    """No garbage collection while any thread is within.

    Compiling makes tens of thousands of small objects without cycles: looking for some takes a quarter of the time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._collecting = False

    def __enter__(self) -> None:
        with self._lock:
            if self._within == 0:
                self._collecting = gc.isenabled()
                gc.disable()
            self._within += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0 and self._collecting:
                gc.enable()


_without_collection = _WithoutCollection()


def front_end(
    config: NpuConfig, shapes: Mapping[str, Sequence[int]], min_macs: int, all_nodes: bool
) -> tuple[Pass[Any, Any], ...]:
    """The passes from a model to the graphs of its accelerated parts, in their order."""
    return (
        ImportPass(shapes),
        NormalisePass(),
        ZeroPointsPass(config),
        PartitionPass(config, min_macs, all_nodes),
        LowerPass(),
        LegalisePass(config),
        EliminatePass(),
        FoldPass(config),
        JoinPass(config),
    )


_PLAIN = CostModel(NpuConfig())
_BACK = tuple(one.name for one in (*back_end(_PLAIN, LEVELS[0][0], Order()), ValidatePass()))
PASSES: tuple[str, ...] = (*(one.name for one in front_end(_PLAIN.config, {}, 0, False)), *_BACK)
"""Names of the passes, in their order. Those behind `join` run for each graph, and up to `emit` again under another
strategy where a program does not fit, or may be faster."""


def _compile(
    source: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]], cost: CostModel,
    passes: Sequence[Pass[Any, Any]], stop_after: str | None, progress: Callable[[str], None], optimize: int,
    search: Search,
) -> Compilation:  # fmt: skip
    proto = load_model(source, shapes)
    if any(node.op_type == "EPContext" for node in proto.graph.node):
        raise CompileError("the model is compiled already: it has an EPContext node")
    run, result = PassRunner(progress), Compilation(cost.config)
    made: Any = proto
    for one in passes:
        result.stages[one.name] = made = run(one, made)
        result.seconds = run.seconds
        if stop_after == one.name:
            return result
    last = ValidatePass.name if stop_after is None else stop_after
    wanted = _BACK[: _BACK.index(last) + 1]
    stages = [_back_end(cost, graph, optimize, search, run, ValidatePass.name in wanted) for graph in made]
    for name in wanted:
        result.stages[name] = tuple(one[name] for one in stages)
        with run.timed(name):  # where there is no subgraph, nothing has told of it yet
            pass
    result.seconds = {name: run.seconds[name] for name in result.stages}
    if stop_after is None:
        result.artifact = build_artifact(proto, result.partition, result.graphs, result.programs)
    return result


def _back_end(
    cost: CostModel, graph: Graph, optimize: int, search: Search, run: PassRunner, validated: bool
) -> Mapping[str, object]:
    """What each pass behind `join` makes of a graph. How much is kept on chip and interleaved depends on what the
    allocation makes of it."""
    fitted = first_that_fits(cost, graph, optimize, run)
    if optimize == 2:
        fitted = search_on(cost, graph, fitted, search, run)
    if not validated:
        return fitted.stages
    return {**fitted.stages, ValidatePass.name: run(ValidatePass(), fitted.program)}
