"""Level 2: search, measured by the timing simulator, first for each convolution's tiles, then over strategies.

The estimate says which tilings are worth a try, and each of them is measured with the layer alone. What was measured,
in this run or another one that was cut short, is not measured again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path

from npukit.compiler.cost import CostModel
from npukit.compiler.errors import CompileError
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Convolution
from npukit.compiler.ir.tensor import MemoryLayout, Tensor
from npukit.compiler.pass_base import PassRunner
from npukit.compiler.passes.allocate import DoesNotFit
from npukit.compiler.schedule.conv import pieces
from npukit.compiler.strategy import Fitted, Order, Strategy, fit, has_long_work
from npukit.compiler.tiling import ConvShape, ConvTiling, best_tilings
from npukit.isa.config import NpuConfig
from npukit.isa.place import Place
from npukit.sim.timing import simulate_timing

from npukit.cache import keep, read_kept

__all__ = ["Search", "convolutions", "measure_alone", "search_on"]

_GRID = tuple(
    Strategy(keep, (Order(room),), fuse, resident)
    for keep, (fuse, resident), room in product(
        (0.5, 0.35, 0.65),
        ((True, 0.35), (True, 0.2), (True, 0.5), (True, 0.0), (False, 0.0)),
        (0.6, 0.4, 0.5, 0.7, 0.0),
    )
)
_AHEAD = tuple(Strategy(0.5, (Order(room, ahead),)) for ahead in (400, 300, 150, 100) for room in (0.9, 0.8, 0.7))
"""What is tried before those, where VECTOR has long operations of its own."""
_PATIENCE = 24
"""Strategies without a better one after which the search ends."""
_TILINGS = 6
"""Tilings of a convolution that are measured."""
_ALONE = Strategy(0.5, (Order(0.6), Order()), fuse=False)
"""How a layer is scheduled when it is measured alone."""


@dataclass(frozen=True)
class Search:
    """Where to keep what was measured, by content, and whom to tell how far it is."""

    folder: Path | None = None
    version: str = ""
    """Of the compiler: what was measured with another one does not count."""
    progress: Callable[[str], None] = lambda _: None


def search_on(cost: CostModel, graph: Graph, first: Fitted, search: Search, run: PassRunner) -> Fitted:
    """The best that is found, or `first`."""
    best = _cycles(cost, first), first
    tilings = _search_tilings(cost, graph, search, run)
    content = first.program.to_bytes() + repr((cost.dram, search.version)).encode()
    known = _Measured.open(search, content)
    strategies = (*_AHEAD, *_GRID) if has_long_work(graph) else _GRID
    trials = [(strategy, chosen) for strategy in strategies for chosen in ((tilings, {}) if tilings else ({},))]
    improved = 0
    for number, (strategy, chosen) in enumerate(trials):
        if number - improved > _PATIENCE:
            break
        search.progress(f"{graph.name}: {number + 1} of {len(trials)} strategies, {best[0]} cycles")
        name = f"{_words(strategy)}, {'measured' if chosen else 'estimated'} tiles"
        before = known.get(name, 0)
        if before is None or before >= best[0]:
            continue
        fitted = _try(cost, graph, strategy, run, chosen)
        cycles = None if fitted is None else _cycles(cost, fitted)
        known[name] = cycles
        if fitted is not None and cycles is not None and cycles < best[0]:
            best, improved = (cycles, fitted), number
    return best[1]


def _search_tilings(cost: CostModel, graph: Graph, search: Search, run: PassRunner) -> dict[ConvShape, ConvTiling]:
    """Of each shape whose best tiling, with the layer alone, is not the one that the estimate prefers: that tiling."""
    found: dict[ConvShape, ConvTiling] = {}
    layers = dict(convolutions(cost.config, graph))
    known = _Measured.open(search, repr((cost, search.version)).encode())
    for number, (shape, layer) in enumerate(layers.items()):
        search.progress(f"{graph.name}: tiles of {number + 1} of {len(layers)} convolutions")
        try:
            tilings = best_tilings(shape, cost.convolution(shape).in_program, _TILINGS)
        except CompileError:
            continue
        measured = []
        for tiling in tilings:
            name = f"{_words(shape)}, pads {layer.pads}; {_words(tiling)}"
            if name not in known:
                known[name] = measure_alone(cost, graph, layer, shape, tiling, run)
            measured.append(known[name])
        ranked = [(cycles, index) for index, cycles in enumerate(measured) if cycles is not None]
        if ranked and min(ranked)[1] > 0:
            found[shape] = tilings[min(ranked)[1]]
    return found


def measure_alone(
    cost: CostModel, graph: Graph, layer: Convolution, shape: ConvShape, tiling: ConvTiling, run: PassRunner
) -> int | None:
    """Cycles of a convolution of a graph, alone and in those tiles; None where they do not fit."""
    fitted = _try(cost, _layer_alone(graph, layer), _ALONE, run, {shape: tiling})
    return None if fitted is None else _cycles(cost, fitted)


def convolutions(config: NpuConfig, graph: Graph) -> Iterator[tuple[ConvShape, Convolution]]:
    """Shapes of convolutions whose cycles do not depend on the weights, and a layer of each."""
    for layer in graph.operations:
        if not isinstance(layer, Convolution) or layer.groups > 1:
            continue
        (piece,) = pieces(graph, layer, config.array)
        if len(piece.tiles) > 1:  # a second summand is left out where it is zero
            continue
        shape = ConvShape.of(config, graph, layer)
        yield replace(shape, in_blocks=piece.in_blocks, out_blocks=piece.out_blocks), layer


def _layer_alone(graph: Graph, layer: Convolution) -> Graph:
    """A graph of one layer, between DRAM and DRAM."""
    tensors = {name: _in_own_memory(graph.tensors[name]) for name in (layer.input, layer.output)}
    constants = {name: graph.constants[name] for name in layer.operands if name in graph.constants}
    return Graph(graph.name, (layer,), tensors, constants, (layer.input,), (layer.output,))


def _in_own_memory(tensor: Tensor) -> Tensor:
    return replace(tensor, layout=MemoryLayout(tensor.name, tensor.view, tensor.order, tensor.folded))


def _try(
    cost: CostModel, graph: Graph, strategy: Strategy, run: PassRunner, tilings: Mapping[ConvShape, ConvTiling]
) -> Fitted | None:
    try:
        return fit(cost, graph, strategy, run, tilings)
    except (DoesNotFit, CompileError):
        return None


def _cycles(cost: CostModel, fitted: Fitted) -> int:
    place = Place.of(fitted.program, 0)
    dram = cost.dram.at(place.code_address, place.base)
    return simulate_timing(cost.config, fitted.program.instructions, dram).cycles


def _words(one: Strategy | ConvShape | ConvTiling) -> str:
    """The fields that differ within a configuration."""
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    return ", ".join(f"{name} {value}" for name, value in values.items() if isinstance(value, int | float | tuple))


class _Measured(dict[str, int | None]):
    """Cycles by name, None for what does not fit; kept in a file."""

    path: Path | None = None

    @classmethod
    def open(cls, search: Search, content: bytes) -> "_Measured":
        """What was measured of that content before; nothing, if that cannot be read or is something else."""
        found = cls()
        if search.folder is None:
            return found
        found.path = search.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.json"
        try:
            before = json.loads(read_kept(found.path) or b"{}")
        except ValueError:
            return found
        if isinstance(before, dict):
            found.update({name: value for name, value in before.items() if value is None or type(value) is int})
        return found

    def __setitem__(self, name: str, cycles: int | None) -> None:
        """Kept at once, so that a run that is cut short leaves what it measured."""
        super().__setitem__(name, cycles)
        if self.path is not None:
            keep(self.path, json.dumps(self).encode(), durable=False)  # it is written often
