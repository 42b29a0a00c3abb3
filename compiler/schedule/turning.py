"""Tiles turned around: words that hold channels of a place become words that hold places of a channel."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from npukit.compiler.ir.operations import Rearrange
from npukit.compiler.ir.rearrange import Turn
from npukit.compiler.limits import MAX_BLOCKS, MAX_COLUMNS
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import parts, softmax_tile_words
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = ["Turned", "turn", "turn_steps"]


@dataclass(frozen=True)
class Turned:
    """Channels of groups of as many places as a word has lanes: words [group][channel] of a buffer."""

    buffer: Buffer
    groups: int
    words: int
    """From group to group."""


def turn(builder: Builder, source: Buffer, blocks: int, count: int, label: str) -> Turned:
    """Turn a tile around, words [block][place] of so many channel blocks and places.

    What is missing of the last group's words is 0, or whatever it is where `source` has words to spare for them.
    """
    size = builder.config.array
    groups, words = -(-count // size), blocks * size
    plane = groups * size
    missing = plane - count
    if missing and source.words >= blocks * count + missing:
        builder.fill_part(source, 0, blocks * count, (1, 1, missing), (0, 0))
        plane = count
    elif missing:
        padded = Buffer(Memory.ACT, blocks * plane, label)
        copy = Vector(
            operation=Operation.COPY, height=blocks, width=count, a_stride_y=count, a_stride_x=1,
            out_stride_y=plane, out_stride_x=1,
        )  # fmt: skip
        builder.vector(copy, (Operand("a", source),), Operand("out", padded, write=True))
        builder.fill_part(padded, 0, count, (1, blocks, missing), (0, plane))
        source = padded
    turned = Buffer(Memory.ACT, groups * words, label)
    instruction = Vector(
        operation=Operation.TRANSPOSE, blocks=groups, height=blocks, width=size,
        a_stride_block=size, a_stride_y=plane, a_stride_x=1,
        out_stride_block=words, out_stride_y=size, out_stride_x=1,
    )  # fmt: skip
    builder.vector(instruction, (Operand("a", source),), Operand("out", turned, write=True))
    return Turned(turned, groups, words)


def turn_steps(builder: Builder, layer: Rearrange, turning: Turn) -> Iterator[None]:
    """Emit the tasks of a rearrangement in which channels and places change places, matrix by matrix, a tile with each
    step."""
    x, y = builder.tensor(layer.input), builder.tensor(layer.output)
    size = builder.config.array
    channels, places = x.order[1], y.order[1]
    rows = [tensor.order[0] * tensor.order[2] for tensor in (x, y)]
    source = x.seen_as(x.storage, (1, channels, 1, rows[0]))
    result = y.seen_as(y.storage, (1, places, 1, rows[1]))
    room = softmax_tile_words(builder.config) // 2
    for indices in product(*(range(loop.size) for loop in turning.matrices)):
        at = [*zip(turning.matrices, indices, strict=True)]
        first = sum(loop.source * index for loop, index in at)
        target = sum(loop.target * index for loop, index in at)
        for blocks in parts(-(-places // size), min(MAX_BLOCKS, max(1, min(room, MAX_COLUMNS) // size))):
            low, high = blocks[0] * size, min(places, blocks[1] * size)
            groups = blocks[1] - blocks[0]
            for begin, end in parts(-(-channels // size), max(1, min(room // groups, MAX_COLUMNS) // size)):
                tile = Region(source, size, 0, (begin, end), (0, 1), (first + low, first + high))
                found = turn(builder, builder.load_tile(tile, 0), end - begin, high - low, layer.output)
                count = min(channels, end * size) - begin * size
                start = target + begin * size
                out = Buffer(Memory.ACT, groups * count, layer.output)
                copy = Vector(
                    operation=Operation.COPY, blocks=groups, width=count, a_stride_block=found.words, a_stride_x=1,
                    out_stride_block=count, out_stride_x=1,
                )  # fmt: skip
                capture = CaptureBox(layer.output, blocks[0] * rows[1] + start, rows[1], rows[1], 1)
                builder.vector(copy, (Operand("a", found.buffer),), Operand("out", out, write=True), None, capture)
                builder.store_region(Region(result, size, 0, blocks, (0, 1), (start, start + count)), out)
                yield
