"""A normalisation: statistics of each place, and its channels by them.

int8: the sums of a place go over all its words, and their root is found once. Then each channel block of some places
becomes accumulators, of which REQUANTIZE makes the result as it makes that of a product.

bf16: the array sums a place's channels up, by weights of 1; each lane of an accumulator then holds the same sum. With
the mean subtracted, it does so once more for the squares.
"""

from math import inf, sqrt
from typing import Any

import numpy as np
from npukit.compiler.ir.operations import Normalization
from npukit.compiler.limits import MAX_BLOCKS
from npukit.compiler.lines import descriptor_of, reciprocal_root, scaling
from npukit.compiler.normalization import normalization_descriptors, normalization_parameters
from npukit.compiler.schedule.builder import Builder, Placed, Region, blocked_channels
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import normalization_places, parts
from npukit.isa.descriptors import Indexing, pack_taps
from npukit.isa.instructions import Matrix, Memory, Operation, Vector
from npukit.sim.bfloat16 import narrow
from numpy.typing import NDArray

__all__ = ["schedule_normalization"]


def schedule_normalization(builder: Builder, layer: Normalization) -> None:
    """Emit the tasks of a normalisation: some places after the other."""
    kind = _FloatNormalization if builder.config.activation.floating else _IntegerNormalization
    normalization = kind(builder, layer)
    for first, last in parts(normalization.places, normalization.at_once):
        normalization.tile(first, last)


class _Normalization:
    """A normalisation that is scheduled.

    Attributes:
        places: of the tensor. blocks: of their channels. at_once: places of a tile.
    """

    def __init__(self, builder: Builder, layer: Normalization) -> None:
        self._builder, self._layer = builder, layer
        config = builder.config
        x, y = builder.tensor(layer.input), builder.tensor(layer.output)
        images, channels, height, width = y.view
        self.places = images * height * width
        self.blocks = -(-channels // config.array)
        self.at_once = min(MAX_BLOCKS, normalization_places(config, channels))
        row = (1, channels, 1, self.places)
        self._source, self._result = x.seen_as(x.storage, row), y.seen_as(y.storage, row)

    def tile(self, first: int, last: int) -> None:
        """Emit the tasks of some places."""
        builder = self._builder
        source, result = (
            Region(tensor, builder.config.array, 0, (0, self.blocks), (0, 1), (first, last))
            for tensor in (self._source, self._result)
        )
        out = builder.result_tile(result)
        self._normalize(builder.load_tile(source, 0), first, last, out)
        builder.store_result(result, out)

    def _normalize(self, numbers: Buffer, first: int, last: int, out: Placed) -> None:
        """Emit the tasks of some places, words [block][place], whose result goes to `out`."""
        raise NotImplementedError

    def _capture(self, begin: int, first: int) -> CaptureBox:
        """What an instruction makes of blocks from `begin` on, of places from `first` on."""
        return CaptureBox(self._layer.output, begin * self.places + first, self.places, self.places, 1)


class _IntegerNormalization(_Normalization):
    """MOMENTS, their RECIPROCAL_ROOT, and NORMALIZE."""

    def __init__(self, builder: Builder, layer: Normalization) -> None:
        super().__init__(builder, layer)
        size = builder.config.array
        self._descriptors = normalization_descriptors(builder.graph, layer, size)
        bias, multiplier = normalization_parameters(builder.graph, layer)
        self._channels = [blocked_channels(array, size) for array in (bias, multiplier)]

    def _normalize(self, numbers: Buffer, first: int, last: int, out: Placed) -> None:
        builder, count = self._builder, last - first
        statistics = self._statistics(numbers, count)
        config = builder.config
        room = min(config.acc_depth, config.acc_depth * config.acc_banks // 2)
        most = max(1, min(MAX_BLOCKS, room // count, (config.par_depth // 4 - 1) // 2))
        for begin, end in parts(self.blocks, most):
            normalized = Buffer(Memory.ACC, (end - begin) * count, self._layer.output)
            normalize = Vector(
                operation=Operation.NORMALIZE, blocks=end - begin, width=count, a_memory=Memory.ACC, a_stride_x=1,
                b_stride_block=count, b_stride_x=1,
                out_memory=Memory.ACC, out_stride_block=count, out_stride_x=1,
            )  # fmt: skip
            operands = Operand("a", statistics), Operand("b", numbers, begin * count)
            descriptor = self._parameters(Operation.NORMALIZE)
            builder.vector(normalize, operands, Operand("out", normalized, write=True), descriptor)
            requantize = Vector(
                operation=Operation.REQUANTIZE, blocks=end - begin, width=count, a_memory=Memory.ACC,
                a_stride_block=count, a_stride_x=1, out_stride_block=count, out_stride_x=1,
            )  # fmt: skip
            target = out.operand("out", begin * count, write=True)
            values = self._parameters(Operation.REQUANTIZE, begin, end)
            builder.vector(requantize, (Operand("a", normalized),), target, values, self._capture(begin, first))

    def _statistics(self, numbers: Buffer, count: int) -> Buffer:
        """A word for each place: the sum, and what NORMALIZE multiplies with."""
        builder = self._builder
        moments, statistics = (Buffer(Memory.ACC, count, self._layer.output) for _ in range(2))
        summing = Vector(
            operation=Operation.MOMENTS, blocks=count, height=self.blocks, a_stride_block=1, a_stride_y=count,
            out_memory=Memory.ACC, out_stride_block=1,
        )  # fmt: skip
        descriptor = self._parameters(Operation.MOMENTS)
        builder.vector(summing, (Operand("a", numbers),), Operand("out", moments, write=True), descriptor)
        root = Vector(
            operation=Operation.RECIPROCAL_ROOT, width=count, a_memory=Memory.ACC, a_stride_x=1,
            out_memory=Memory.ACC, out_stride_x=1,
        )  # fmt: skip
        descriptor = self._parameters(Operation.RECIPROCAL_ROOT)
        builder.vector(root, (Operand("a", moments),), Operand("out", statistics, write=True), descriptor)
        return statistics

    def _parameters(self, operation: Operation, begin: int = 0, end: int = 0) -> Buffer:
        """A descriptor, and parameters of channel blocks."""
        blocks = [array[block : block + 1] for block in range(begin, end) for array in self._channels]
        key = f"{self._layer.node} {operation.name} {begin} to {end}"
        return self._builder.parameters(key, operation, self._descriptors[operation], blocks)


class _FloatNormalization(_Normalization):
    """Sums by the array, and a reciprocal root by straight lines."""

    def __init__(self, builder: Builder, layer: Normalization) -> None:
        super().__init__(builder, layer)
        graph, config = builder.graph, builder.config
        size, channels = config.array, builder.tensor(layer.output).view[1]
        scale = graph.constants[layer.scale].data.astype(np.float32)
        bias = np.zeros_like(scale) if layer.bias is None else graph.constants[layer.bias].data.astype(np.float32)
        self._scales = blocked_channels(narrow(scale), size)
        self._biases = blocked_channels(bias, size)

        def ones() -> NDArray[np.uint16]:
            weights = np.zeros((self.blocks * size, size), np.float32)
            weights[:channels] = 1
            return narrow(weights)

        self._ones_name = builder.constant(f"{layer.node} ones", ones)
        factor = descriptor_of(scaling(-1 / channels), Indexing.VALUE)
        root = descriptor_of(reciprocal_root(sqrt(channels)), Indexing.RECIPROCAL_ROOT)
        self._constants: dict[str, tuple[Operation, dict[str, Any]]] = {
            "unlimited": (Operation.ADD, {"low": -inf, "high": inf}),
            "mean": (Operation.FUNCTION, factor),
            "epsilon": (Operation.FILL, {"value": channels * layer.epsilon}),
            "root": (Operation.FUNCTION, root),
        }

    def _normalize(self, numbers: Buffer, first: int, last: int, out: Placed) -> None:
        builder, count = self._builder, last - first
        if self._layer.centred:
            sums = Buffer(Memory.ACC, count, self._layer.output)
            self._sum(numbers, sums, count, begun=False)
            numbers = self._with_each(Operation.ADD, self._function(sums, count, "mean"), numbers, count)
        squares = self._buffer(count)
        square = Vector(
            operation=Operation.MULTIPLY, height=self.blocks, width=count, a_stride_y=count, a_stride_x=1,
            b_stride_y=count, b_stride_x=1, out_stride_y=count, out_stride_x=1,
        )  # fmt: skip
        operands = Operand("a", numbers), Operand("b", numbers)
        builder.vector(square, operands, Operand("out", squares, write=True), self._constant("unlimited"))
        sums = Buffer(Memory.ACC, count, self._layer.output)
        fill = Vector(operation=Operation.FILL, width=count, out_memory=Memory.ACC, out_stride_x=1)
        builder.vector(fill, (), Operand("out", sums, write=True), self._constant("epsilon"))
        self._sum(squares, sums, count, begun=True)
        normal = self._with_each(Operation.MULTIPLY, self._function(sums, count, "root"), numbers, count)
        most = max(1, min(MAX_BLOCKS, (builder.config.par_depth // 4 - 1) // 2))
        for begin, end in parts(self.blocks, most):
            scale = Vector(
                operation=Operation.DEPTHWISE, blocks=end - begin, width=count, a_stride_block=count,
                window_stride_x=1, out_stride_block=count, out_stride_x=1,
            )  # fmt: skip
            target = out.operand("out", begin * count, write=True)
            source = Operand("a", normal, begin * count)
            builder.vector(scale, (source,), target, self._parameters(begin, end), self._capture(begin, first))

    def _constant(self, name: str) -> Buffer:
        """A descriptor by its name."""
        return self._builder.parameters(f"{self._layer.node} {name}", *self._constants[name], [])

    def _sum(self, numbers: Buffer, sums: Buffer, count: int, begun: bool) -> None:
        """Emit what sums the channels of each place up, in every lane, beside what is there if it has `begun`."""
        instruction = Matrix(
            accumulate=int(begun), channels=self.blocks, width=count, act_stride_channel=count, act_stride_x=1,
            acc_stride_x=1,
        )  # fmt: skip
        name, words = self._ones_name, self.blocks * self._builder.config.array
        ones = self._builder.load_constant(Memory.WGT, name, name, words, name)
        self._builder.matrix(instruction, Operand("act", numbers), Operand("wgt", ones), sums)

    def _function(self, numbers: Buffer, count: int, name: str) -> Buffer:
        """A function of accumulators, as such; `name`: of its descriptor."""
        out = Buffer(Memory.ACC, count, self._layer.output)
        instruction = Vector(
            operation=Operation.FUNCTION, width=count, a_memory=Memory.ACC, a_stride_x=1, out_memory=Memory.ACC,
            out_stride_x=1,
        )  # fmt: skip
        operands = (Operand("a", numbers),)
        self._builder.vector(instruction, operands, Operand("out", out, write=True), self._constant(name))
        return out

    def _with_each(self, operation: Operation, statistics: Buffer, numbers: Buffer, count: int) -> Buffer:
        """A place's statistics with each of its words."""
        out = self._buffer(count)
        instruction = Vector(
            operation=operation, height=self.blocks, width=count, a_memory=Memory.ACC, a_stride_x=1,
            b_stride_y=count, b_stride_x=1, out_stride_y=count, out_stride_x=1,
        )  # fmt: skip
        operands = Operand("a", statistics), Operand("b", numbers)
        self._builder.vector(instruction, operands, Operand("out", out, write=True), self._constant("unlimited"))
        return out

    def _buffer(self, count: int) -> Buffer:
        return Buffer(Memory.ACT, self.blocks * count, self._layer.output)

    def _parameters(self, begin: int, end: int) -> Buffer:
        """What scales and shifts channel blocks."""
        blocks: list[NDArray] = []
        for block in range(begin, end):
            taps = pack_taps(self._builder.config, self._scales[block : block + 1])
            blocks += [self._biases[block : block + 1], taps]
        key = f"{self._layer.node} scales {begin} to {end}"
        return self._builder.parameters(key, Operation.DEPTHWISE, {"low": -inf, "high": inf}, blocks)
