"""What follows a tile that is on chip already: additions, products and tables, one after the other."""

from collections.abc import Sequence

from npukit.compiler.ir.operations import ByElement, Elementwise
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.elementwise import combine, evaluate
from npukit.compiler.tasks import Buffer
from npukit.isa.instructions import Memory

__all__ = ["kept_together", "take_in_place_of_store"]


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
    rows, columns = (ready_part.first_y, ready_part.first_y + ready_part.rows), ready_part.x
    for number in followers:
        own = builder.of(number)
        layer = own.graph.operations[number]
        y = own.tensor(layer.output)
        part = Region(y, own.config.array, ready_part.batch, ready_part.block, rows, columns)
        if number == followers[-1]:
            out = own.result_tile(part)
        else:
            out = Placed(Buffer(Memory.ACT, part.words, part.tensor), 0, part.rows * part.pitch, part.pitch)
        if isinstance(layer, ByElement):
            capture = own.capture(layer.output, part.batch, part.block[0], part.first_y, columns[0])
            evaluate(own, layer, ready, out, part, capture)
        else:
            assert isinstance(layer, Elementwise)
            combine(own, layer, part, out, (result, ready))
        if number == followers[-1]:
            own.store_result(part, out)
        result, ready = y.storage, out
