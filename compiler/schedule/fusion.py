"""What follows a tile that is on chip already: an addition, a product, or a table."""

from typing import Any

from npukit.compiler.arithmetic import elementwise_descriptor
from npukit.compiler.ir.operations import Elementwise, Lookup
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.elementwise import look_up
from npukit.isa.instructions import Vector

__all__ = ["kept_together", "take_in_place_of_store"]


def kept_together(builder: Builder, result: str, follower: int | None) -> tuple[str, ...]:
    """The tensors of which a convolution's tile, and what its follower makes of it, takes the same part."""
    if follower is None:
        return (result,)
    layer = builder.graph.operations[follower]
    return (layer.output, *builder.graph.activations(layer))


def take_in_place_of_store(builder: Builder, number: int, result: str, ready_part: Region, ready: Placed) -> None:
    """Compute the part of a layer's result that a tile of `result`, on chip in `ready`, is for, and store that.

    number: of the layer. ready_part: the tile, in words [block][row][column].
    """
    builder = builder.of(number)
    layer = builder.graph.operations[number]
    if isinstance(layer, Lookup):
        _look_up(builder, layer, ready_part, ready)
        return
    assert isinstance(layer, Elementwise)
    lanes = builder.config.array
    rows, columns = (ready_part.first_y, ready_part.first_y + ready_part.rows), ready_part.x
    part = Region(builder.tensor(layer.output), lanes, ready_part.batch, ready_part.block, rows, columns)
    operation, values = elementwise_descriptor(builder.graph, layer)
    parameters = builder.parameters(layer.node, operation, values, [])
    height, width, count = part.rows, part.columns, part.blocks
    operands, strides = [], dict[str, Any]()
    for side, source in zip(("a", "b"), layer.operands, strict=True):
        tensor = builder.tensor(source)
        placed = ready
        if tensor.storage != result:
            placed = builder.load_region(Region(tensor, lanes, part.batch, part.block, rows, columns), 0)
        operands.append(placed.operand(side))
        strides |= {f"{side}_stride_block": placed.plane, f"{side}_stride_y": placed.pitch, f"{side}_stride_x": 1}
    out = builder.result_tile(part)
    instruction = Vector(
        operation=operation, blocks=count, height=height, width=width, **strides,
        out_stride_block=out.plane, out_stride_y=out.pitch, out_stride_x=1,
    )  # fmt: skip
    capture = builder.capture(layer.output, part.batch, part.block[0], part.first_y, part.x[0])
    builder.vector(instruction, tuple(operands), out.operand("out", write=True), parameters, capture)
    builder.store_result(part, out)


def _look_up(builder: Builder, layer: Lookup, ready_part: Region, ready: Placed) -> None:
    rows, columns = (ready_part.first_y, ready_part.first_y + ready_part.rows), ready_part.x
    lanes, batch, blocks = builder.config.array, ready_part.batch, ready_part.block
    part = Region(builder.tensor(layer.output), lanes, batch, blocks, rows, columns)
    out = builder.result_tile(part)
    capture = builder.capture(layer.output, batch, blocks[0], part.first_y, columns[0])
    look_up(builder, builder.graph.constants[layer.table], ready, out, part, capture)
    builder.store_result(part, out)
