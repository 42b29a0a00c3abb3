"""Sum of two tensors: tiles of whole blocks, or of rows of one block."""

from collections.abc import Iterator
from typing import Any

from npukit.compiler.layers import AddLayer, QuantizedTensor
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import parts
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = ["elementwise_tiles", "schedule_add"]

_Range = tuple[int, int]


def elementwise_tiles(config: NpuConfig, tensor: QuantizedTensor) -> Iterator[tuple[int, _Range, _Range, _Range]]:
    """(batch, blocks, rows, columns) of tiles small enough for two sources and a result, twice."""
    batch, channels, height, width = tensor.view
    most = min(1024, config.act_depth * min(config.act_banks, 8) // 8)
    for index in range(batch):
        for columns in parts(width, most):
            wide = columns[1] - columns[0]
            for rows in parts(height, max(1, most // wide)):
                area = (rows[1] - rows[0]) * wide
                whole = rows == (0, height) and columns == (0, width)
                for blocks in parts(-(-channels // config.array), min(256, max(1, most // area)) if whole else 1):
                    yield index, blocks, rows, columns


def schedule_add(builder: Builder, layer: AddLayer) -> None:
    """Emit an addition's tasks."""
    config = builder.config
    a, b = (builder.tensor(name) for name in layer.inputs)
    y = builder.tensor(layer.output)
    low, high = (0, 255) if layer.unsigned[2] else (-128, 127)
    values = {
        "ra": layer.ra,
        "rb": layer.rb,
        "offset": layer.offset,
        "low": low,
        "high": high,
        "a_unsigned": layer.unsigned[0],
        "b_unsigned": layer.unsigned[1],
        "out_unsigned": layer.unsigned[2],
    }
    for batch, blocks, rows, columns in elementwise_tiles(config, y):
        place = (config.array, batch, blocks, rows, columns)
        parameters = builder.parameters(layer.node, Operation.ADD, values, [])
        left = builder.load_region(Region(a, *place), 0)
        right = builder.load_region(Region(b, *place), 0)
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        out = Buffer(Memory.ACT, (blocks[1] - blocks[0]) * height * width, layer.output)
        steps = {"stride_block": height * width, "stride_y": width, "stride_x": 1}
        strides: dict[str, Any] = {
            f"{side}_{name}": value for side in ("a", "b", "out") for name, value in steps.items()
        }
        instruction = Vector(
            operation=Operation.ADD,
            blocks=blocks[1] - blocks[0],
            height=height,
            width=width,
            **strides,
        )
        builder.vector(
            instruction,
            (Operand("a", left), Operand("b", right)),
            Operand("out", out, write=True),
            parameters,
            CaptureBox(layer.output, batch, blocks[0], rows[0], columns[0]),
        )
        builder.store_region(Region(y, *place), out)
