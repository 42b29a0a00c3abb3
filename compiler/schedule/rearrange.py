"""Elements in another order: places that move, channels that move, and channels that become places and back.

A tile of the result is a range of its places in one channel block. Each lane of it comes from one channel of the
input, at a place that moves with the tile's: where lanes stay what they are it is copied, and otherwise it is a sum of
products with matrices of zeros and ones, which is exact. Where all channels and as many places change places, tiles are
turned around.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from npukit.compiler.ir.operations import Rearrange
from npukit.compiler.ir.rearrange import Loop, loops_of, turn_of
from npukit.compiler.limits import MAX_COLUMNS
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.schedule.turning import turn_steps
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import elementwise_words, parts
from npukit.isa.instructions import Matrix, Memory, Operation, Vector

__all__ = ["rearrange_steps", "schedule_rearrange"]

_PARTS = 4
"""A tile of so many times the array's rows keeps it at work, where others wait for the places."""


@dataclass(frozen=True)
class _Lanes:
    """Lanes of a block of the result that come from one block of the input.

    Attributes:
        block: of the input.
        place: by how much their places lie behind those of the loops.
        lanes: pairs of the input's lane and the result's.
    """

    block: int
    place: int
    lanes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Step:
    """A loop over places within a tile: how many, and words of input and result from one to the next."""

    count: int
    source: int
    target: int


@dataclass(frozen=True)
class _Tile:
    """A range of places of the result.

    Attributes:
        target: its first place.
        words: how many.
        source: the place of the input from which the loops start.
        channel: the channel of the input from which channels are counted.
        places: loops over places in it.
        phases: loops over places of it that take other channels of the input, of which `source` counts channels.
    """

    target: int
    words: int
    source: int
    channel: int
    places: tuple[_Step, ...]
    phases: tuple[_Step, ...]

    @property
    def span(self) -> int:
        """Places of the input from the first to the last that the loops look at."""
        return 1 + sum((step.count - 1) * step.source for step in self.places)


def _step(loop: Loop) -> _Step:
    # one place has no next one, and instructions no room for how far it would be
    return _Step(loop.size, loop.source, loop.target) if loop.size > 1 else _Step(1, 0, 0)


def schedule_rearrange(builder: Builder, layer: Rearrange) -> None:
    """Emit a rearrangement's tasks."""
    for _ in rearrange_steps(builder, layer):
        pass


def rearrange_steps(builder: Builder, layer: Rearrange) -> Iterator[None]:
    """The same, a tile with each step."""
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    loops = loops_of(layer, x, y)
    assert loops is not None, layer
    turning = turn_of(loops, x, y) if builder.config.transpose else None
    if turning is not None:
        yield from turn_steps(builder, layer, turning)
    else:
        yield from _Rearrangement(builder, layer, loops).run()


class _Rearrangement:
    def __init__(self, builder: Builder, layer: Rearrange, loops: Sequence[Loop]) -> None:
        self.builder, self.layer, config = builder, layer, builder.config
        self.size = config.array
        x, y = builder.tensor(layer.input), builder.tensor(layer.output)
        self.count = prod(y.order) // y.order[1]
        # all places of a block as one row
        self.x = x.seen_as(x.storage, (1, x.order[1], 1, self._places(x.order)))
        self.y = y.seen_as(y.storage, (1, y.order[1], 1, self.count))
        self.most = min(elementwise_words(config), config.acc_depth, MAX_COLUMNS)
        if builder.in_parts:
            self.most = min(self.most, _PARTS * self.size)
        self.loops = sorted((loop for loop in loops if not loop.to_channel), key=lambda loop: -loop.target)
        channel = np.arange(y.order[1])
        self.channels, self.shifts = np.zeros_like(channel), np.zeros_like(channel)
        """Of each channel of the result: the input's channel, and by how many places it lies behind."""
        for loop in loops:
            if loop.to_channel:
                digit = channel // loop.target % loop.size * loop.source
                if loop.from_channel:
                    self.channels += digit
                else:
                    self.shifts += digit

    @staticmethod
    def _places(order: tuple[int, int, int]) -> int:
        return order[0] * order[2]

    def run(self) -> Iterator[None]:
        """All tiles, and in each all channel blocks."""
        # lanes that come from places near each other are read together; those from far away, as of heads, apart
        reach = int(self.shifts.max())
        reach = reach if 2 * reach <= self.most else 0
        most = self.most
        tiles = [*self._tiles(most)]
        # what a tile reads is to fit on chip as well
        while most > 1 and max(tile.span for tile in tiles) + reach > self.most:
            most //= 2
            tiles = [*self._tiles(most)]
        for tile in tiles:
            for block in range(-(-len(self.channels) // self.size)):
                self._block(tile, block)
                yield

    def _tiles(self, most: int) -> Iterator[_Tile]:
        """Ranges of at most so many places of the result, each made by whole loops."""
        inner, words = len(self.loops), 1
        while inner and words * self.loops[inner - 1].size <= most:
            inner -= 1
            words *= self.loops[inner].size
        within = self.loops[inner:]
        if not inner:
            yield self._tile([], within, words)
            return
        # the loop that is cut, and those around it
        *outer, cut = self.loops[:inner]
        step = max(1, most // words)
        for places in product(*(range(loop.size) for loop in outer)):
            for first, last in parts(cut.size, step):
                at = [*zip(outer, places, strict=True), (cut, first)]
                yield self._tile(at, [replace(cut, size=last - first), *within], (last - first) * words)

    def _tile(self, at: Sequence[tuple[Loop, int]], within: Sequence[Loop], words: int) -> _Tile:
        return _Tile(
            target=sum(loop.target * place for loop, place in at),
            words=words,
            source=sum(loop.source * place for loop, place in at if not loop.from_channel),
            channel=sum(loop.source * place for loop, place in at if loop.from_channel),
            places=tuple(_step(loop) for loop in within if not loop.from_channel),
            phases=tuple(_step(loop) for loop in within if loop.from_channel),
        )

    def _block(self, tile: _Tile, block: int) -> None:
        """A tile of one channel block of the result."""
        builder = self.builder
        out = Buffer(Memory.ACT, tile.words, self.layer.output)
        *outer, rows, columns = (*(_Step(1, 0, 0),) * 2, *tile.places)
        for phase in product(*(range(step.count) for step in tile.phases)):
            channel = tile.channel + sum(step.source * place for step, place in zip(tile.phases, phase, strict=True))
            target = sum(step.target * place for step, place in zip(tile.phases, phase, strict=True))
            found = self._lanes(block, channel)
            for places in product(*(range(step.count) for step in outer)):
                source = sum(step.source * place for step, place in zip(outer, places, strict=True))
                to = target + sum(step.target * place for step, place in zip(outer, places, strict=True))
                self._part(tile, block, found, (source, to), rows, columns, out)
        whole = Region(self.y, self.size, 0, (block, block + 1), (0, 1), (tile.target, tile.target + tile.words))
        builder.store_region(whole, out)

    def _lanes(self, block: int, channel: int) -> list[_Lanes]:
        """Where the lanes of a block come from, of channels of the input from `channel` on."""
        size, first = self.size, block * self.size
        groups: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for lane in range(min(size, len(self.channels) - first)):
            source = int(self.channels[first + lane]) + channel
            groups[source // size, int(self.shifts[first + lane])].append((source % size, lane))
        return [_Lanes(one, place, tuple(lanes)) for (one, place), lanes in groups.items()]

    def _part(
        self, tile: _Tile, block: int, found: list[_Lanes], at: tuple[int, int], rows: _Step, columns: _Step,
        out: Buffer,
    ) -> None:  # fmt: skip
        """Rows and columns of a tile; `at`: their first place, from the tile's first, of input and result."""
        builder = self.builder
        capture = CaptureBox(
            self.layer.output, block * self.count + tile.target + at[1], self.count, rows.target, columns.target
        )
        result = Operand("out", out, at[1], write=True)
        strides: dict[str, Any] = {
            "height": rows.count, "width": columns.count,
            "out_stride_y": rows.target, "out_stride_x": columns.target,
        }  # fmt: skip
        if len(found) == 1 and all(source == lane for source, lane in found[0].lanes):
            act = self._source(tile, found[0], found, at[0])
            instruction = Vector(operation=Operation.COPY, a_stride_y=rows.source, a_stride_x=columns.source, **strides)
            builder.vector(instruction, (replace(act, field="a"),), result, None, capture)
            return
        acc = Buffer(Memory.ACC, rows.count * columns.count, self.layer.output)
        for number, lanes in enumerate(found):
            instruction = Matrix(
                accumulate=int(number > 0), height=rows.count, width=columns.count,
                act_stride_y=rows.source, act_stride_x=columns.source,
                acc_stride_y=columns.count, acc_stride_x=1,
            )  # fmt: skip
            builder.matrix(
                instruction,
                self._source(tile, lanes, found, at[0]),
                Operand("wgt", builder.moved_lanes(lanes.lanes)),
                acc,
            )
        instruction = Vector(
            operation=Operation.CONVERT, a_memory=Memory.ACC, a_stride_y=columns.count, a_stride_x=1, **strides
        )
        builder.vector(instruction, (Operand("a", acc),), result, None, capture)

    def _source(self, tile: _Tile, lanes: _Lanes, found: list[_Lanes], at: int) -> Operand:
        """What a tile reads of a block of the input, with what other lanes read of it where that lies near."""
        shifts = [one.place for one in found if one.block == lanes.block]
        first, last = min(shifts), max(shifts)
        if last - first + tile.span > self.most:
            first = last = lanes.place
        columns = tile.source + first, tile.source + last + tile.span
        region = Region(self.x, self.size, 0, (lanes.block, lanes.block + 1), (0, 1), columns)
        return Operand("act", self.builder.load_tile(region, 0), lanes.place - first + at)
