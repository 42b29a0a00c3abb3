"""Convolution: tiles of output blocks, rows and columns; reductions in chunks that fit."""

from collections.abc import Iterator

import numpy as np
from npukit.compiler.layers import ConvLayer
from npukit.compiler.schedule.builder import Builder, Region
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import ConvShape, ConvTiling, choose_tiling, parts
from npukit.isa.instructions import Matrix, Memory, Operation, Vector
from numpy.typing import NDArray

__all__ = ["schedule_conv", "weight_tiles"]

_Range = tuple[int, int]


def weight_tiles(weights: NDArray[np.int8], size: int) -> NDArray[np.int8]:
    """[out, in, ky, kx] as tiles [out block][in block][ky][kx][in lane][out lane], padded with 0."""
    out, inner, height, width = weights.shape
    out_blocks, in_blocks = -(-out // size), -(-inner // size)
    padded = np.zeros((out_blocks * size, in_blocks * size, height, width), np.int8)
    padded[:out, :inner] = weights
    split = padded.reshape(out_blocks, size, in_blocks, size, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def _blocks(values: NDArray, size: int) -> NDArray:
    """[channels] as [blocks, lanes], padded with 0."""
    count = -(-len(values) // size)
    return np.pad(values, (0, count * size - len(values))).reshape(count, size)


def schedule_conv(builder: Builder, layer: ConvLayer) -> None:
    """Emit a convolution's tasks."""
    x, y = builder.tensor(layer.inputs[0]), builder.tensor(layer.output)
    shape = ConvShape.of(builder.config, layer, x, y)
    tiling = choose_tiling(shape)
    for batch, group, rows, columns in _tiles(shape, tiling):
        _tile(builder, layer, tiling, batch, group, rows, columns)


def _tiles(shape: ConvShape, tiling: ConvTiling) -> Iterator[tuple[int, _Range, _Range, _Range]]:
    groups = parts(shape.out_blocks, tiling.blocks)
    places = [
        (batch, rows, columns)
        for batch in range(shape.batch)
        for rows in parts(shape.out_size[0], tiling.rows)
        for columns in parts(shape.out_size[1], tiling.columns)
    ]
    if tiling.weights_outer:
        for group in groups:
            for batch, rows, columns in places:
                yield batch, group, rows, columns
    else:
        for batch, rows, columns in places:
            for group in groups:
                yield batch, group, rows, columns


def _tile(
    builder: Builder,
    layer: ConvLayer,
    tiling: ConvTiling,
    batch: int,
    group: _Range,
    rows: _Range,
    columns: _Range,
) -> None:
    shape = tiling.shape
    height, width, blocks = rows[1] - rows[0], columns[1] - columns[0], group[1] - group[0]
    size = builder.config.array
    bias, multiplier = _blocks(layer.bias, size), _blocks(layer.multiplier, size)
    parameters = builder.parameters(
        f"{layer.node}, block {group[0]},",
        Operation.REQUANTIZE,
        {"zero_point": layer.zero_point, "low": -128, "high": 127},
        [array[block : block + 1] for block in range(*group) for array in (bias, multiplier)],
    )
    acc = Buffer(Memory.ACC, blocks * height * width, layer.output)
    chunks = [
        (channels, kernel)
        for channels in parts(shape.in_blocks, tiling.channels)
        for kernel in parts(shape.kernel[0], tiling.kernel_rows)
    ]
    for index, (channels, kernel) in enumerate(chunks):
        # weights first: they wait for no earlier layer
        wgt = _weights(builder, layer, shape, group, channels, kernel)
        region = _input(builder, layer, shape, batch, channels, rows, columns)
        act = builder.load_region(region, layer.pad_value)
        pitch = region.columns
        instruction = Matrix(
            accumulate=int(index > 0),
            channels=channels[1] - channels[0],
            kernel_height=kernel[1] - kernel[0],
            kernel_width=shape.kernel[1],
            height=height,
            width=width,
            blocks=blocks,
            act_stride_channel=region.rows * pitch if channels[1] - channels[0] > 1 else 0,
            act_stride_kernel_y=shape.dilations[0] * pitch if kernel[1] - kernel[0] > 1 else 0,
            act_stride_kernel_x=shape.dilations[1] if shape.kernel[1] > 1 else 0,
            act_stride_y=(pitch if shape.kernel[0] == 1 else shape.strides[0] * pitch) if height > 1 else 0,
            act_stride_x=shape.strides[1] if width > 1 else 0,
            acc_stride_block=height * width,
            acc_stride_y=width,
            acc_stride_x=1,
        )
        start = kernel[0] * shape.dilations[0] * pitch
        builder.matrix(instruction, Operand("act", act, start), Operand("wgt", wgt), acc)
    out = Buffer(Memory.ACT, blocks * height * width, layer.output)
    instruction = Vector(
        operation=Operation.REQUANTIZE,
        blocks=blocks, height=height, width=width,
        a_memory=Memory.ACC, a_stride_block=height * width, a_stride_y=width, a_stride_x=1,
        out_stride_block=height * width, out_stride_y=width, out_stride_x=1,
    )  # fmt: skip
    capture = CaptureBox(layer.output, batch, group[0], rows[0], columns[0])
    builder.vector(instruction, (Operand("a", acc),), Operand("out", out, write=True), parameters, capture)
    target = builder.tensor(layer.output)
    builder.store_region(Region(target, size, batch, group, rows, columns), out)


def _input(
    builder: Builder,
    layer: ConvLayer,
    shape: ConvShape,
    batch: int,
    channels: _Range,
    rows: _Range,
    columns: _Range,
) -> Region:
    first_y = rows[0] * shape.strides[0] - layer.pads[0]
    first_x = columns[0] * shape.strides[1] - layer.pads[1]
    step = shape.strides[0] if shape.kernel[0] == 1 else 1
    last_y = first_y + (shape.input_rows(rows[1] - rows[0]) - 1) * step + 1
    last_x = first_x + shape.input_columns(columns[1] - columns[0])
    x = builder.tensor(layer.inputs[0])
    return Region(x, builder.config.array, batch, channels, (first_y, last_y), (first_x, last_x), step)


def _weights(
    builder: Builder, layer: ConvLayer, shape: ConvShape, group: _Range, channels: _Range, kernel: _Range
) -> Buffer:
    size = builder.config.array
    name = builder.constant(f"{layer.node} weights", lambda: weight_tiles(layer.weights, size))
    kernel_row = shape.kernel[1] * size
    block = shape.kernel[0] * kernel_row
    if kernel[1] - kernel[0] == shape.kernel[0]:
        run = (channels[1] - channels[0]) * block
    else:
        run = (kernel[1] - kernel[0]) * kernel_row
    return builder.load_constant(
        Memory.WGT,
        (name, group, channels, kernel),
        name,
        run,
        layer.node,
        planes=group[1] - group[0],
        offset=(group[0] * shape.in_blocks + channels[0]) * block + kernel[0] * kernel_row,
        plane_stride=shape.in_blocks * block,
    )
