"""The compiler's passes, in their order."""

import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import onnx
from npukit.compiler.artifact import build_artifact
from npukit.compiler.errors import CompileError
from npukit.compiler.layers import Subgraph
from npukit.compiler.passes.eliminate import EliminatePass
from npukit.compiler.passes.fold import FoldPass
from npukit.compiler.passes.importer import ImportPass, load_model, with_shapes
from npukit.compiler.passes.lower import LowerPass
from npukit.compiler.passes.normalise import NormalisePass
from npukit.compiler.passes.partition import Partition, PartitionPass
from npukit.compiler.search import Search, search_on
from npukit.compiler.strategy import Fitted, first_that_fits
from npukit.compiler.verify import (
    verify_partition,
    verify_program,
    verify_subgraph,
)
from npukit.isa.config import NpuConfig
from npukit.isa.program import Program

__all__ = ["OPTIMIZE", "PASSES", "Compilation", "check_model", "compile_model"]

_T = TypeVar("_T")

PASSES = (
    "import",
    "normalise",
    "partition",
    "lower",
    "eliminate",
    "fold",
    "schedule",
    "interleave",
    "allocate",
    "emit",
)


OPTIMIZE = (0, 1, 2)
"""Levels of optimisation: fast, the default, and a search."""


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
    optimize: int = 1,
    search: Search | None = None,
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
        optimize: 0, fast; 1, within seconds; 2, a search with the timing simulator, minutes. Results are the same.
        search: for level 2: a folder for what it measures, and its progress.

    Raises:
        CompileError: a model that cannot be read or compiled; the message says what to do.
    """
    if stop_after is not None and stop_after not in PASSES:
        raise CompileError(f"the passes are {', '.join(PASSES)}, not {stop_after!r}")
    if optimize not in OPTIMIZE:
        raise CompileError(f"the levels of optimisation are {', '.join(map(str, OPTIMIZE))}, not {optimize!r}")
    with _without_collection:
        return _compile(source, config, shapes, stop_after, progress, min_macs, all_nodes, optimize, search or Search())


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


def _compile(
    source: str | Path | bytes | onnx.ModelProto, config: NpuConfig, shapes: Mapping[str, Sequence[int]] | None,
    stop_after: str | None, progress: Callable[[str], None], min_macs: int, all_nodes: bool, optimize: int,
    search: Search,
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

    subgraphs = step("lower", lambda: _verified(LowerPass().run(split)))
    if stop_after == "lower":
        return result

    needed = step("eliminate", lambda: _verified(EliminatePass().run(subgraphs)))
    if stop_after == "eliminate":
        return result

    folded = step("fold", lambda: _verified(FoldPass(config).run(needed)))
    if stop_after == "fold":
        return result
    _back_end(result, step, folded, stop_after, optimize, search)
    if stop_after is None:
        result.artifact = build_artifact(proto, split, folded, result.programs)
    return result


def _verified(subgraphs: tuple[Subgraph, ...]) -> tuple[Subgraph, ...]:
    for subgraph in subgraphs:
        verify_subgraph(subgraph)
    return subgraphs


def _staying(partition: Partition) -> str:
    nodes = [f"{reason.op} {reason.node} ({reason.reason})" for reason in partition.fallback]
    return f"{len(nodes)} node(s) cannot run on the accelerator, and there is to be no fallback: {'; '.join(nodes)}"


def _back_end(
    result: Compilation, step: Callable, subgraphs: tuple[Subgraph, ...], stop_after: str | None, optimize: int,
    search: Search,
) -> None:  # fmt: skip
    config = result.config

    def schedule(subgraph: Subgraph) -> Fitted:
        # how much is kept and mixed depends on what the allocation makes of it
        fitted = first_that_fits(config, subgraph, optimize)
        return fitted if optimize < 2 else search_on(config, subgraph, fitted, search)

    fitted = step("schedule", lambda: [schedule(subgraph) for subgraph in subgraphs])
    result.stages["schedule"] = tuple(one.plan for one in fitted)
    if stop_after == "schedule":
        return
    step("interleave", lambda: tuple(one.mixed for one in fitted))
    if stop_after == "interleave":
        return
    step("allocate", lambda: tuple(one.allocation for one in fitted))
    if stop_after == "allocate":
        return

    def emit() -> tuple[Program, ...]:
        for one in fitted:
            verify_program(one.program)
        return tuple(one.program for one in fitted)

    step("emit", emit)
