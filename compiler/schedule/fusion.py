"""Which layers are computed together, tile by tile, so that what is between them never leaves the chip."""

from typing import Any

from npukit.compiler.layers import BinaryLayer, ConvLayer, Subgraph
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.tasks import CaptureBox
from npukit.isa.instructions import Vector

__all__ = ["add_in_place_of_store", "fused_additions"]


def fused_additions(subgraph: Subgraph) -> dict[int, int]:
    """Number of a convolution -> number of the addition, or product, that follows it and takes its result at once.

    The convolution is the later one of the two sources' layers, and nothing else reads its result.
    """
    made, readers, outside = subgraph.makers(), subgraph.readers(), subgraph.outside()
    found: dict[int, int] = {}
    for number, layer in enumerate(subgraph.layers):
        if not isinstance(layer, BinaryLayer) or not all(isinstance(source, str) for source in layer.sources):
            continue
        if any(subgraph.tensors[name].layout is not None for name in layer.inputs):
            continue
        if any(subgraph.tensors[name].view != subgraph.tensors[layer.output].view for name in layer.inputs):
            continue
        if len({subgraph.tensors[name].storage for name in layer.inputs}) < 2:
            continue
        last = max(made.get(subgraph.tensors[name].storage, -1) for name in layer.inputs)
        if last < 0 or type(subgraph.layers[last]) is not ConvLayer:
            continue
        result = subgraph.layers[last].output
        if len(readers[result]) == 1 and result not in outside:
            found[last] = number
    return found


def kept_together(builder: Builder, result: str, addition: int | None) -> tuple[str, ...]:
    """The tensors of which a convolution's tile, and what an addition makes of it, takes the same part."""
    if addition is None:
        return (result,)
    layer = builder.subgraph.layers[addition]
    return (layer.output, *layer.inputs)


def add_in_place_of_store(builder: Builder, number: int, result: str, ready_part: Region, ready: Placed) -> None:
    """Combine a tile of `result`, on chip in `ready`, with the same part of the layer's other source, and store that.

    number: of the layer. ready_part: the tile, in words [block][row][column].
    """
    before, builder.node = builder.node, number
    layer = builder.subgraph.layers[number]
    assert isinstance(layer, BinaryLayer)
    lanes = builder.config.array
    rows, columns = (ready_part.first_y, ready_part.first_y + ready_part.rows), ready_part.x
    part = Region(builder.tensor(layer.output), lanes, ready_part.batch, ready_part.block, rows, columns)
    parameters = builder.parameters(layer.node, layer.operation, dict(layer.values), [])
    height, width, count = part.rows, part.columns, part.blocks
    operands, strides = [], dict[str, Any]()
    for side, source in zip(("a", "b"), layer.sources, strict=True):
        assert isinstance(source, str)
        tensor = builder.tensor(source)
        placed = ready
        if tensor.storage != result:
            placed = builder.load_region(Region(tensor, lanes, part.batch, part.block, rows, columns), 0)
        operands.append(placed.operand(side))
        strides |= {f"{side}_stride_block": placed.plane, f"{side}_stride_y": placed.pitch, f"{side}_stride_x": 1}
    out = builder.place(part)
    instruction = Vector(
        operation=layer.operation, blocks=count, height=height, width=width, **strides,
        out_stride_block=out.plane, out_stride_y=out.pitch, out_stride_x=1,
    )  # fmt: skip
    capture = CaptureBox(layer.output, part.batch, part.block[0], part.first_y, part.x[0])
    builder.vector(instruction, tuple(operands), out.operand("out", write=True), parameters, capture)
    builder.leave(part, out)
    builder.node = before
