"""Estimates of cycles: of a convolution in tiles, and of an instruction, on a machine with a memory behind it.

What an engine does on chip is known to the cycle, and what DRAM does is its model's own estimate (`sim/dram.py`).
Engines work beside each other; so a tiling takes what its busiest engine takes, and what comes before that engine can
begin and after it has ended. `tests/cost.py` holds the estimates for convolutions to the timing simulator.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from npukit.compiler.tiling import KEEP, ConvShape, ConvTiling
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_words
from npukit.isa.instructions import Instruction, Load, Matrix, Memory, Store, Vector
from npukit.isa.timing import INSTRUCTION_BYTES, Timing
from npukit.sim.dram import AnyDram, DramModel
from npukit.sim.timing import stream_cycles

__all__ = ["ConvolutionCost", "CostModel"]

_FETCH_BYTES = 4 * INSTRUCTION_BYTES
"""FETCH reads instructions by about so many bytes at once."""
_FIRST_CYCLES = 10
"""From the start to the first address, and on the way to the first engine."""
_TILE_CYCLES = 20
"""Between two tiles, for tokens and pipelines that run empty."""
_GROUP_CYCLES = 40
"""More of them where a tile's input serves several groups of output blocks."""
_CHUNK_CYCLES = 4
"""Between two MATRIX instructions of a tile."""
_BLOCK_CYCLES = 8
"""Between two VECTOR instructions, and for parameters."""
_INTERFERENCE = 0.05
"""Share of other engines' work that keeps the busiest from its own."""
_EDGES = 0.4
"""Share of a layer's beginning and end for which neighbours in a program do not make up."""


@dataclass(frozen=True)
class CostModel:
    """A configuration, and the memory behind it."""

    config: NpuConfig
    dram: AnyDram = field(default_factory=DramModel)

    @cached_property
    def _timing(self) -> Timing:
        return Timing(self.config)

    @cached_property
    def _runs(self) -> dict[tuple[int, bool], float]:
        return {}

    def transfer(self, runs: float, size: int, write: bool = False) -> float:
        """Cycles of the memory for runs of so many bytes, none of which goes on with another."""
        cycles = self._runs.get((size, write))
        if cycles is None:
            cycles = self._runs[size, write] = self.dram.run_cycles(self.config, size, write)
        return runs * cycles

    def convolution(self, shape: ConvShape) -> "ConvolutionCost":
        """What the tilings of a convolution cost."""
        return ConvolutionCost(self, shape)

    def instruction(self, one: Instruction) -> int:
        """For how long an instruction keeps its engine at work, if the memory keeps up."""
        config = self.config
        if isinstance(one, Load):
            word = config.wide_word_bytes if one.memory is Memory.PAR else config.word_bytes
            rows = one.planes * (one.rows + one.pad_top + one.pad_bottom)
            return rows * (one.words * max(1, word // config.bus_bytes) + one.pad_left + one.pad_right) + 2
        if isinstance(one, Store):
            return one.planes * one.rows * one.words * max(1, config.word_bytes // config.bus_bytes) + 3
        if isinstance(one, Matrix):
            steps = one.blocks * one.channels * one.kernel_height * one.kernel_width
            passes = steps * config.row_passes
            return passes * max(one.height * one.width, config.rows, self._timing.accumulate_latency)
        assert isinstance(one, Vector), one
        return one.blocks * stream_cycles(config, one) + max(_BLOCK_CYCLES, descriptor_words(config, one))


class _Work(NamedTuple):
    """Cycles of a convolution's engines, and what comes before and after the busiest."""

    matrix: float
    vector: float
    load: float
    store: float
    gaps: float
    """In which no engine that the others wait for has work; in a program, groups of blocks add some."""
    alone: float
    """All of it, from the start of a program to its end."""


class ConvolutionCost:
    """A convolution on a machine: estimates for its tilings."""

    def __init__(self, cost: CostModel, shape: ConvShape) -> None:
        self._cost, self._shape = cost, shape
        self._timing = Timing(cost.config)
        self._passes, self._accumulate = self._timing.requantise_passes, self._timing.accumulate_latency
        dram, config = cost.dram, cost.config
        self._shared = dram.shared
        self._response = dram.response_cycles(config)
        self._fetch = cost.transfer(1, _FETCH_BYTES)
        self._start = _FIRST_CYCLES + 2 * dram.answer_cycles(config) + self._fetch
        self._steps = shape.in_blocks * shape.kernel[0] * shape.kernel[1]
        self._inputs: dict[tuple[int, int], float] = {}

    def alone(self, tiling: ConvTiling) -> float:
        """From the start of a program that is this convolution alone to its end."""
        return self._work(tiling).alone

    def in_program(self, tiling: ConvTiling) -> float:
        """By how much a program is longer for it: its neighbours' work hides most of its beginning and end."""
        work = self._work(tiling)
        stores = 0.0 if self._shared else work.store  # which are in its loads
        steady = max(work.matrix, work.vector, work.load, work.store) + work.gaps
        return _EDGES * work.alone + (1 - _EDGES) * steady + _INTERFERENCE * (work.load + work.vector + stores)

    def _work(self, tiling: ConvTiling) -> _Work:
        shape, config, cost = self._shape, self._cost.config, self._cost
        tall, broad = shape.out_size
        images = tiling.images
        tiles = -(-shape.batch // images) * -(-tall // tiling.rows) * -(-broad // tiling.columns)
        groups = -(-shape.out_blocks // tiling.blocks)
        count, outputs = tiles * groups, tiling.rows * tiling.columns
        chunks = -(-shape.in_blocks // tiling.channels) * -(-shape.kernel[0] // tiling.kernel_rows)

        # of all tiles; blocks are shared out among them as evenly as can be
        blocks = tiles * shape.out_blocks
        least = max(config.rows, self._accumulate)
        streamed = images * max(least, outputs)
        if images > 1 and shape.in_line:
            streamed = max(least, images * shape.line)
        matrix = blocks * self._steps * config.row_passes * streamed
        vector = blocks * images * (outputs * self._passes + _BLOCK_CYCLES)
        store = blocks * images * self._stored(tiling, outputs * config.word_bytes) / tiling.blocks
        inputs, weights = images * self._loaded_inputs(tiling), self._loaded_weights(tiling)
        parameters = cost.transfer(1, (1 + 2 * tiling.blocks) * config.wide_word_bytes)
        # what is kept between tiles is loaded once
        inputs *= shape.kernel[0] if shape.by_row else 1
        kept_inputs = shape.in_blocks * shape.input_rows(tiling.rows) * shape.input_columns(tiling.columns)
        kept_inputs *= images * (shape.kernel[0] if shape.by_row else 1)
        kept_weights = shape.out_blocks * self._steps * config.array
        if tiling.weights_outer:
            kept_inputs, kept_weights = tiles * kept_inputs, kept_weights // groups
        load = groups * parameters + self._fetch * (count * (2 + 2 * chunks) + 3) * INSTRUCTION_BYTES / _FETCH_BYTES
        load += inputs * tiles * (1 if kept_inputs <= config.act_depth * config.act_banks * KEEP else groups)
        load += weights * groups * (1 if kept_weights <= config.wgt_depth * KEEP else tiles)

        # what comes before the busiest engine, and what is left when it ends
        first = inputs + weights + parameters
        product, results, result = matrix / count, vector / count, store / count
        last = result + self._response
        apart = images if images > 1 and not shape.in_line else 1
        gaps = count * (_TILE_CYCLES + _CHUNK_CYCLES * chunks * apart)
        by_matrix = (inputs + weights) / chunks + parameters + matrix + gaps + results + last
        # the first pass of the outer loop waits for all that it keeps for later ones, less where that comes in chunks;
        # the others have it
        passes = groups if tiling.weights_outer else tiles
        kept = inputs * tiles + weights if tiling.weights_outer else weights * groups + inputs
        waits = kept + parameters + product * 2 / (chunks + 1)
        by_first = waits + (matrix + gaps) * (passes - 1) / passes + results + last
        by_vector = first + product + vector + last
        if self._shared:
            load = store = load + store
            busiest = max(by_matrix, by_first, by_vector, load + product / chunks + results)
        else:
            by_load = load + product / chunks + results + last
            busiest = max(by_matrix, by_first, by_vector, by_load, first + product + results + store + self._response)
        others = sorted((matrix, vector, load) if self._shared else (matrix, vector, load, store))[:-1]
        alone = self._start + busiest + _INTERFERENCE * others[-1]
        return _Work(matrix, vector, load, store, gaps + _GROUP_CYCLES * (count - tiles), alone)

    def _loaded_inputs(self, tiling: ConvTiling) -> float:
        """A tile's input: cycles of the memory, or of LOAD, which writes the border as well."""
        key = tiling.rows, tiling.columns
        if key in self._inputs:
            return self._inputs[key]
        shape, word = self._shape, self._cost.config.word_bytes
        rows, columns = shape.input_rows(tiling.rows), shape.input_columns(tiling.columns)
        planes, place = (1, shape.in_blocks) if shape.folded else (shape.in_blocks, 1)
        runs, words = min(rows, shape.in_size[0]), min(columns, shape.in_size[1])
        if tiling.columns == shape.out_size[1] and shape.kernel == (1, 1) and shape.strides == (1, 1):
            runs, words = 1, runs * words  # whole rows without a border follow each other
        moved = self._cost.transfer(planes * runs, words * place * word)
        self._inputs[key] = found = max(moved, planes * rows * columns * place)
        return found

    def _loaded_weights(self, tiling: ConvTiling) -> float:
        """A group's weights."""
        shape, config = self._shape, self._cost.config
        words = run = tiling.blocks * self._steps * config.array
        kernel_row = shape.kernel[1] * config.array
        if tiling.kernel_rows < shape.kernel[0]:
            run = tiling.kernel_rows * kernel_row
        elif tiling.channels < shape.in_blocks:
            run = tiling.channels * shape.kernel[0] * kernel_row
        return max(self._cost.transfer(words / run, run * config.word_bytes), words)

    def _stored(self, tiling: ConvTiling, size: int) -> float:
        """A tile's result, of which each block has so many bytes."""
        runs, run = tiling.blocks, size
        if tiling.columns < self._shape.out_size[1]:
            runs, run = runs * tiling.rows, size // tiling.rows
        elif tiling.rows == self._shape.out_size[0]:
            runs, run = 1, runs * size
        return max(self._cost.transfer(runs, run, True), tiling.blocks * size // self._cost.config.word_bytes)
