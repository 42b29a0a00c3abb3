"""A normalisation: statistics of each place, and its channels by them.

The sums of a place go over all its words, and their root is found once. Then each channel block of some places becomes
accumulators, of which REQUANTIZE makes the result as it makes that of a product.
"""

from npukit.compiler.ir.operations import Normalization
from npukit.compiler.limits import MAX_BLOCKS
from npukit.compiler.normalization import normalization_descriptors, normalization_parameters
from npukit.compiler.schedule.builder import Builder, Region, blocked_channels
from npukit.compiler.tasks import Buffer, CaptureBox, Operand
from npukit.compiler.tiling import normalization_places, parts
from npukit.isa.instructions import Memory, Operation, Vector

__all__ = ["schedule_normalization"]


def schedule_normalization(builder: Builder, layer: Normalization) -> None:
    """Emit the tasks of a normalisation: some places after the other."""
    normalization = _Normalization(builder, layer)
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
        self._descriptors = normalization_descriptors(builder.graph, layer, config.array)
        bias, multiplier = normalization_parameters(builder.graph, layer)
        self._channels = [blocked_channels(array, config.array) for array in (bias, multiplier)]

    def tile(self, first: int, last: int) -> None:
        """Emit the tasks of some places."""
        builder, count = self._builder, last - first
        source, result = (
            Region(tensor, builder.config.array, 0, (0, self.blocks), (0, 1), (first, last))
            for tensor in (self._source, self._result)
        )
        numbers, out = builder.load_tile(source, 0), builder.result_tile(result)
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
            capture = CaptureBox(self._layer.output, begin * self.places + first, self.places, self.places, 1)
            values = self._parameters(Operation.REQUANTIZE, begin, end)
            builder.vector(requantize, (Operand("a", normalized),), target, values, capture)
        builder.store_result(result, out)

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
