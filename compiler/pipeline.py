"""The compiler's passes, in their order."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import onnx
from npukit.compiler.artifact import build_artifact
from npukit.compiler.errors import CompileError
from npukit.compiler.layers import Subgraph
from npukit.compiler.passes.allocate import AllocatePass, Allocation, DoesNotFit
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.fold import FoldPass
from npukit.compiler.passes.importer import ImportPass, load_model, with_shapes
from npukit.compiler.passes.interleave import InterleavePass
from npukit.compiler.passes.lower import LowerPass
from npukit.compiler.passes.normalise import NormalisePass
from npukit.compiler.passes.partition import Partition, PartitionPass
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.tasks import Plan
from npukit.compiler.verify import (
    verify_allocation,
    verify_partition,
    verify_plan,
    verify_program,
    verify_subgraph,
)
from npukit.isa.config import NpuConfig
from npukit.isa.program import Program

__all__ = ["ATTEMPTS", "PASSES", "Attempt", "Compilation", "check_model", "compile_model"]

_T = TypeVar("_T")

PASSES = ("import", "normalise", "partition", "lower", "fold", "schedule", "interleave", "allocate", "emit")


@dataclass(frozen=True)
class Attempt:
    """keep: share of memory for kept buffers; room: share that may be in use, 0 for the order of the plan."""

    keep: float
    room: float = 0.0


ATTEMPTS = (Attempt(0.5, 0.6), Attempt(0.5, 0.45), Attempt(0.5), Attempt(0.25), Attempt(0.0))
"""Tried in turn until allocation succeeds."""


@dataclass
class Compilation:
    """What compiling a model made: the artifact, and every stage before it by the pass's name.

    `source` is the model with its input shapes fixed, which is what the oracle runs.
    """

    config: NpuConfig
    source: onnx.ModelProto
    stages: dict[str, object] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    artifact: onnx.ModelProto | None = None

    @property
    def partition(self) -> Partition:
        """The split into accelerated and staying nodes."""
        stage = self.stages["partition"]
        assert isinstance(stage, Partition)
        return stage

    @property
    def programs(self) -> tuple[Program, ...]:
        """One program per accelerated subgraph."""
        stage = self.stages["emit"]
        assert isinstance(stage, tuple)
        return stage


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
) -> Compilation:
    """Compile an ONNX model.

    Args:
        source: path, bytes or proto.
        config: what to compile for.
        shapes: of inputs that the model leaves open.
        stop_after: the last pass to run.
        progress: gets the name of each pass.
        min_macs: subgraphs of fewer multiply-accumulates stay in ONNX Runtime.
        all_nodes: fail when a node stays, other than quantisers at the edge.

    Raises:
        CompileError: a model that cannot be read or compiled; the message says what to do.
    """
    if stop_after is not None and stop_after not in PASSES:
        raise CompileError(f"the passes are {', '.join(PASSES)}, not {stop_after!r}")
    # tens of thousands of small objects without cycles: looking for some takes a quarter of the time
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _compile(source, config, shapes, stop_after, progress, min_macs, all_nodes)
    finally:
        if collecting:
            gc.enable()


def _compile(
    source: str | Path | bytes | onnx.ModelProto, config: NpuConfig, shapes: Mapping[str, Sequence[int]] | None,
    stop_after: str | None, progress: Callable[[str], None], min_macs: int, all_nodes: bool,
) -> Compilation:  # fmt: skip
    proto = load_model(source)
    if any(node.op_type == "EPContext" for node in proto.graph.node):
        raise CompileError("the model is compiled already: it has an EPContext node")
    result = Compilation(config, proto)

    def step(name: str, run: Callable[[], _T]) -> _T:
        progress(name)
        start = time.perf_counter()
        result.stages[name] = made = run()
        result.seconds[name] = time.perf_counter() - start
        return made

    imported = step("import", lambda: ImportPass(shapes or {}).run(proto))
    result.source = with_shapes(proto, shapes or {})
    if stop_after == "import":
        return result
    model = step("normalise", lambda: NormalisePass().run(imported))
    if stop_after == "normalise":
        return result

    def partition() -> Partition:
        made = PartitionPass(config, result.source, min_macs).run(model)
        verify_partition(made)
        if all_nodes and made.fallback:
            raise CompileError(_staying(made))
        return made

    split = step("partition", partition)
    if stop_after == "partition":
        return result

    def lower() -> tuple[Subgraph, ...]:
        made = LowerPass().run(split)
        for subgraph in made:
            verify_subgraph(subgraph)
        return made

    subgraphs = step("lower", lower)
    if stop_after == "lower":
        return result

    def fold() -> tuple[Subgraph, ...]:
        made = FoldPass(config).run(subgraphs)
        for subgraph in made:
            verify_subgraph(subgraph)
        return made

    folded = step("fold", fold)
    if stop_after == "fold":
        return result
    _back_end(result, step, folded, stop_after)
    if stop_after is None:
        result.artifact = build_artifact(proto, split, folded, result.programs)
    return result


def _staying(partition: Partition) -> str:
    nodes = [f"{reason.op} {reason.node} ({reason.reason})" for reason in partition.fallback]
    return f"{len(nodes)} node(s) cannot run on the accelerator, and there is to be no fallback: {'; '.join(nodes)}"


def _back_end(result: Compilation, step: Callable, subgraphs: tuple[Subgraph, ...], stop_after: str | None) -> None:
    config = result.config

    # how much is kept and mixed depends on what the allocation makes of it
    fitted = step("schedule", lambda: [_fit(config, subgraph) for subgraph in subgraphs])
    result.stages["schedule"] = tuple(one.plan for one in fitted)
    if stop_after == "schedule":
        return
    mixed = step("interleave", lambda: tuple(one.mixed for one in fitted))
    if stop_after == "interleave":
        return
    allocations = step("allocate", lambda: tuple(one.allocation for one in fitted))
    if stop_after == "allocate":
        return

    def emit() -> tuple[Program, ...]:
        programs = []
        for subgraph, plan, allocation in zip(subgraphs, mixed, allocations, strict=True):
            program = EmitPass(config, subgraph, plan).run(allocation)
            verify_program(program)
            programs.append(program)
        return tuple(programs)

    step("emit", emit)


@dataclass(frozen=True)
class _Fitted:
    plan: Plan
    mixed: Plan
    allocation: Allocation


def _fit(config: NpuConfig, subgraph: Subgraph) -> _Fitted:
    """Schedule, interleave and allocate, keeping fewer buffers and mixing fewer layers until all fit."""
    problem = ""
    for attempt in ATTEMPTS:
        plan = SchedulePass(config, attempt.keep).run(subgraph)
        verify_plan(config, plan)
        mixed = InterleavePass(config, attempt.room).run(plan) if attempt.room else plan
        try:
            allocation = AllocatePass(config, subgraph).run(mixed)
        except DoesNotFit as error:
            problem = str(error)
            continue
        verify_allocation(config, mixed, allocation)
        return _Fitted(plan, mixed, allocation)
    raise CompileError(f"{subgraph.name} does not fit on chip: {problem}; use a larger configuration")
