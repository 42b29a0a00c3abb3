"""What follows a tile that is on chip already: additions, products and tables, one after the other."""

from collections.abc import Sequence

from npukit.compiler.ir.operations import ByElement, Elementwise
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.elementwise import combine, evaluate
from npukit.compiler.tasks import Buffer
from npukit.isa.instructions import Memory

__all__ = ["follow", "kept_together", "take_in_place_of_store"]


def kept_together(builder: Builder, result: str, followers: Sequence[int]) -> tuple[str, ...]:
    """The tensors of which a layer's tile, and what its followers make of it, takes the same part."""
    layers = [builder.graph.operations[number] for number in followers]
    if not layers:
        return (result,)
    used = [name for layer in layers for name in builder.graph.activations(layer)]
    return tuple(dict.fromkeys([*used, *(layer.output for layer in layers)]))


def take_in_place_of_store(
    builder: Builder, followers: Sequence[int], result: str, ready_part: Region, ready: Placed
) -> None:
    """Compute what layers make of a tile of `result`, on chip in `ready`, and store what the last one makes; or the
    tile itself, if there are none.

    followers: numbers of the layers, each of which takes the result of the one before it. ready_part: the tile, in
        words [block][row][column].
    """
    if not followers:
        builder.store_result(ready_part, ready)
        return
    last = _same_part(builder, followers[-1], ready_part)
    own = builder.of(followers[-1])
    out = own.result_tile(last)
    follow(builder, followers, result, ready_part, ready, out)
    own.store_result(last, out)


def follow(
    builder: Builder, followers: Sequence[int], result: str, ready_part: Region, ready: Placed, last: Placed
) -> None:
    """Compute what layers make of a tile as in `take_in_place_of_store`, and leave what the last one makes in `last`.

    There is at least one.
    """
    for number in followers:
        own = builder.of(number)
        layer = own.graph.operations[number]
        part = _same_part(builder, number, ready_part)
        if number == followers[-1]:
            out = last
        else:
            out = Placed(Buffer(Memory.ACT, part.words, part.tensor), 0, part.rows * part.pitch, part.pitch)
        if isinstance(layer, ByElement):
            capture = own.capture(layer.output, part.batch, part.block[0], part.first_y, part.x[0])
            evaluate(own, layer, ready, out, part, capture)
        else:
            assert isinstance(layer, Elementwise)
            combine(own, layer, part, out, (result, ready))
        result, ready = own.tensor(layer.output).storage, out


def _same_part(builder: Builder, number: int, part: Region) -> Region:
    """That part of the result of another layer."""
    y = builder.tensor(builder.graph.operations[number].output)
    rows = part.first_y, part.first_y + part.rows
    return Region(y, builder.config.array, part.batch, part.block, rows, part.x)
