"""How a convolution can be cut into tiles that fit on chip."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from itertools import pairwise
from math import isqrt, prod

from npukit.compiler.arithmetic import requantize_operation
from npukit.compiler.errors import CompileError
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import AveragePool, Convolution
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.limits import (
    MAX_BLOCKS,
    MAX_CHANNELS,
    MAX_COLUMNS,
    MAX_DILATION,
    MAX_KERNEL,
    MAX_ROWS,
    MAX_STRIDE,
)
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import block_parameters, descriptor_words
from npukit.isa.instructions import SOFTMAX_OPERATIONS, Operation, Vector

_SMALL = 4
"""Images of so many times the array's rows keep it at work while the next weights are loaded."""
_WAIT = 1 / 16
"""Share of a convolution's cycles that are lost where what follows cannot begin before all of it is there."""
KEEP = 0.5
"""Share of a memory for buffers that are kept between tiles, where all fits."""

__all__ = [
    "KEEP",
    "ConvShape",
    "ConvTiling",
    "attention_rows",
    "average_window",
    "best_tilings",
    "choose_tiling",
    "depthwise_blocks",
    "elementwise_words",
    "kernel_problem",
    "normalization_places",
    "parameter_words",
    "parts",
    "softmax_accumulators",
    "softmax_loops",
    "softmax_tile_words",
    "softmax_words",
    "split",
    "window_counts",
    "window_problem",
    "window_words",
]


def split(total: int, pieces: int) -> list[tuple[int, int]]:
    """`total` in `pieces` half-open ranges as equal as can be, larger first."""
    small, more = divmod(total, pieces)
    edges = [0]
    for index in range(pieces):
        edges.append(edges[-1] + small + (index < more))
    return [(low, high) for low, high in pairwise(edges) if high > low]


def parts(total: int, most: int) -> list[tuple[int, int]]:
    """`total` in the fewest ranges of at most `most`, as equal as can be."""
    return split(total, -(-total // most))


def kernel_problem(config: NpuConfig, kernel: tuple[int, int], dilations: tuple[int, int] = (1, 1)) -> str | None:
    """Why not even one output word of a convolution can be computed, or None."""
    if kernel[0] > MAX_KERNEL:
        return f"kernel {kernel[0]}x{kernel[1]} has more than {MAX_KERNEL} rows"
    if kernel[1] * config.array > config.wgt_depth:
        return f"a kernel row of {kernel[1]} tiles does not fit in wgt_depth {config.wgt_depth}"
    window = (kernel[1] - 1) * dilations[1] + 1
    if not _fits(config, window):
        return f"a window's row of {window} words does not fit in act_depth {config.act_depth}"
    return None


def _fits(config: NpuConfig, words: int) -> bool:
    """Whether an input of so many words fits, with a word of the result where a single bank holds both."""
    return words + (config.act_banks == 1) <= config.act_depth


def window_words(config: NpuConfig) -> int:
    """ACT words of a window operation's source tile, so that results and the next tile fit beside it."""
    return config.act_depth * min(config.act_banks, 4) // 8


def window_problem(
    config: NpuConfig, kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]
) -> str | None:
    """Why VECTOR's row-windows cannot compute a window operation, or None."""
    if max(kernel) > config.max_window:
        return f"kernel {kernel[0]}x{kernel[1]} exceeds max_window {config.max_window}"
    if dilations[1] > MAX_DILATION:
        return f"dilation {list(dilations)} exceeds {MAX_DILATION}"
    window = ((kernel[0] - 1) * dilations[0] + 1) * ((kernel[1] - 1) * dilations[1] + 1)
    if window > window_words(config):
        return (
            f"one window of {window} words exceeds the {window_words(config)} words of a tile: "
            "use a configuration with a larger act_depth"
        )
    return None


def parameter_words(config: NpuConfig, operation: Operation) -> int:
    """Words of PAR that a block of channels takes, but for taps."""
    return len(block_parameters(config, operation))


def depthwise_blocks(config: NpuConfig, kernel: tuple[int, int], operation: Operation) -> int:
    """Blocks whose descriptor, parameters and taps take no more than half of PAR.

    operation: DEPTHWISE or DEPTHWISE_FIXED.
    """
    words = parameter_words(config, operation) + -(-kernel[0] * kernel[1] * config.element_bytes // 4)
    return (config.par_depth // 2 - 2) // words


def elementwise_words(config: NpuConfig) -> int:
    """Words of a tile small enough for two sources and a result, twice."""
    return min(1024, config.act_depth * min(config.act_banks, 8) // 8)


def softmax_loops(numbers: int) -> tuple[int, int] | None:
    """Rows and columns in which one instruction sums up so many numbers, or None."""
    columns = next(size for size in range(min(numbers, MAX_COLUMNS), 0, -1) if numbers % size == 0)
    rows = numbers // columns
    return (rows, columns) if rows <= MAX_ROWS else None


def softmax_tile_words(config: NpuConfig) -> int:
    """Words of a tile that is turned around and back, with what is found in between, beside the next one."""
    return config.act_depth * min(config.act_banks, 8) // 8


def attention_rows(config: NpuConfig, blocks: int) -> int:
    """Rows of a matrix of so many channel blocks whose scores and softmax are computed on chip, a multiple of the
    array's size. Half of a softmax's own tile, where that is enough: scores of other rows are there as well."""
    words, least = softmax_tile_words(config), blocks * config.array
    return max(words // 2 // least, min(1, words // least)) * config.array


def softmax_accumulators(config: NpuConfig) -> int:
    """Words of ACC for what a bf16 softmax finds in between, beside others."""
    return config.acc_depth if config.acc_banks > 2 else config.acc_depth * config.acc_banks // 4


def normalization_places(config: NpuConfig, channels: int) -> int:
    """Places whose channels are normalised at once: with a tile's words, and a fourth of the accumulators, for their
    statistics and what becomes of a channel block. Half of a softmax's tile, where that is enough, lets the array
    begin sooner with what is normalised."""
    words, blocks = softmax_tile_words(config), -(-channels // config.array)
    places = max(words // 2 // blocks, min(1, words // blocks))
    return min(places, config.acc_depth, config.acc_depth * config.acc_banks // 4)


def softmax_words(config: NpuConfig) -> int:
    """Words of PAR that a softmax holds at once: two tables, in bf16 one after the other, and descriptors of what it
    takes besides."""
    if config.activation.floating:
        return descriptor_words(config, Vector(operation=Operation.FUNCTION)) + 2
    return sum(descriptor_words(config, Vector(operation=one)) for one in SOFTMAX_OPERATIONS) + 2


def average_window(config: NpuConfig) -> int:
    """Height and width of the windows that a global average sums: the largest that the tiles hold."""
    return min(config.max_window, isqrt(window_words(config)))


def window_counts(operation: AveragePool, axis: int, x: Tensor, y: Tensor) -> list[int]:
    """Rows (axis 0) or columns (axis 1) that count in each output's windows."""
    size, pads = x.view[2 + axis], operation.pads
    low, high = (-pads[axis], size + pads[axis + 2]) if operation.count_padding else (0, size)
    starts = [place * operation.strides[axis] - pads[axis] for place in range(y.view[2 + axis])]
    return [min(start + operation.kernel[axis], high) - max(start, low) for start in starts]


@dataclass(frozen=True)
class ConvShape:
    """Sizes of one convolution in words and blocks.

    `folded`: the input's blocks lie together, and come together; `deep`: windows have images as a third dimension;
    `parameters`: words of PAR that a block of the result takes.
    """

    config: NpuConfig
    batch: int
    in_blocks: int
    out_blocks: int
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    folded: bool = False
    deep: bool = False
    parameters: int = 2

    @classmethod
    def of(cls, config: NpuConfig, graph: Graph, operation: Convolution) -> "ConvShape":
        """The sizes of an operation of a graph."""
        x, y = graph.tensor(operation.input), graph.tensor(operation.output)
        return cls(
            config=config,
            batch=y.view[0] // y.parts,
            in_blocks=-(-x.view[1] // config.array) * (1 if operation.depth is None else operation.depth.kernel),
            out_blocks=-(-y.view[1] // config.array),
            in_size=(x.view[2], x.view[3]),
            out_size=(y.view[2], y.view[3]),
            kernel=graph.kernel(operation),
            strides=operation.strides,
            dilations=operation.dilations,
            folded=x.folded is not None,
            deep=operation.depth is not None,
            parameters=parameter_words(config, requantize_operation(operation)),
        )

    @property
    def by_row(self) -> bool:
        """Whether a window does not fit, so that the input comes once for each row of the kernel."""
        tall, wide = ((self.kernel[axis] - 1) * self.dilations[axis] + 1 for axis in (0, 1))
        return not _fits(self.config, tall * wide)

    @cached_property
    def line(self) -> int:
        """Words of ACC for an image of the result, where its rows are computed as one line over the input's, with what
        lies between them."""
        return (self.out_size[0] - 1) * self.input_columns(self.out_size[1]) + self.out_size[1]

    @cached_property
    def in_line(self) -> bool:
        """Whether images of the result are computed so, many by an instruction, because that takes less time than one
        by an instruction, of which none takes less than the array has rows."""
        step = 1 if self.kernel[0] == 1 else self.strides[0]
        return self.line < max(self.config.array, prod(self.out_size)) and step == self.strides[1]

    @cached_property
    def together(self) -> int:
        """Images of a batch for which weights are loaded once: small ones, which would otherwise wait for them."""
        places = prod(self.out_size)
        if self.batch == 1 or self.deep or self.folded or self.by_row or places >= _SMALL * self.config.array:
            return 1
        most = self.config.acc_depth // (self.line if self.in_line else places)
        return max(1, min(self.batch, most, MAX_ROWS))

    def input_rows(self, rows: int) -> int:
        """Input rows that `rows` output rows look at; rows between them are left out where the kernel, or what of it
        is computed at a time, has one row."""
        if self.kernel[0] == 1 or self.by_row:
            return rows
        return (rows - 1) * self.strides[0] + (self.kernel[0] - 1) * self.dilations[0] + 1

    def input_columns(self, columns: int) -> int:
        """Input columns from the first to the last that `columns` output columns look at."""
        return (columns - 1) * self.strides[1] + (self.kernel[1] - 1) * self.dilations[1] + 1


@dataclass(frozen=True)
class ConvTiling:
    """Sizes of a tile: output blocks, rows and columns; input blocks and kernel rows per MATRIX.

    `weights_outer`: the loop over output blocks is outside of the one over rows and columns. `images`: whole ones of a
    batch, which share the weights that are loaded.
    """

    shape: ConvShape
    blocks: int
    rows: int
    columns: int
    channels: int
    kernel_rows: int
    weights_outer: bool
    images: int = 1

    @property
    def first_share(self) -> float:
        """Share of the result's places that all channels are computed of before others are begun."""
        if self.weights_outer and self.blocks < self.shape.out_blocks:
            return 1.0
        return self.images * self.rows * self.columns / (self.shape.batch * prod(self.shape.out_size))

    @cached_property
    def input_words(self) -> int:
        """ACT words of one reduction chunk's input."""
        plane = self.shape.input_rows(self.rows) * self.shape.input_columns(self.columns)
        return self.images * self.channels * plane

    @cached_property
    def weight_words(self) -> int:
        """WGT words of one reduction chunk's weights."""
        return self.blocks * self.channels * self.kernel_rows * self.shape.kernel[1] * self.shape.config.array


def _sizes(total: int, most: int, count: int) -> list[int]:
    """The `count` largest sizes of the largest part when `total` is cut in 1, 2, ... parts, at most `most`."""
    found: list[int] = []
    pieces = -(-total // most)
    while len(found) < count:
        size = -(-total // pieces)
        found.append(size)
        if size == 1:
            break
        pieces = -(-total // (size - 1))
    return found[::-1]


def choose_tiling(shape: ConvShape, cost: Callable[[ConvTiling], float], in_parts: bool = False) -> ConvTiling:
    """The cheapest tiling.

    Args:
        shape: to be cut.
        cost: cycles of a tiling.
        in_parts: neighbours wait for all channels of a place; two halves of the places are best then.

    Raises:
        CompileError: when not even one output word's window and weights fit.
    """

    def with_wait(tiling: ConvTiling) -> float:
        # parts that are smaller than the rest spare nobody a wait, and each costs those behind it instructions
        return cost(tiling) * (1 + _WAIT * max(tiling.first_share, 1 - tiling.first_share))

    return best_tilings(shape, with_wait if in_parts else cost, 1)[0]


def best_tilings(shape: ConvShape, cost: Callable[[ConvTiling], float], most: int) -> list[ConvTiling]:
    """The cheapest tilings, the best first. Raises as `choose_tiling` does."""
    config = shape.config
    # a quarter of one bank where input, output and the next tile must share it
    bank = config.act_depth if config.act_banks >= 4 else config.act_depth * config.act_banks // 4
    # a part of a memory leaves room for the next tiles; where that is too little, all of it, and then every size
    for bound, weights, count in (
        (bank, config.wgt_depth // 3, 12),
        (config.act_depth, config.wgt_depth, 12),
        (config.act_depth, config.wgt_depth, 1024),
    ):
        found = nsmallest(most, _tilings(shape, bound, weights, count), key=cost)
        if found:
            return found
    raise CompileError(
        f"a window of {shape.kernel[0]}x{shape.kernel[1]} with stride {shape.strides} does not fit on chip: "
        f"act_depth {config.act_depth}, wgt_depth {config.wgt_depth}"
    )


def _tilings(shape: ConvShape, act: int, wgt: int, count: int) -> Iterator[ConvTiling]:
    most = min(shape.config.acc_depth, MAX_STRIDE)
    if shape.together > 1:
        yield from _candidates(shape, *shape.out_size, act, wgt, count // 3, shape.together)
    for rows in _sizes(shape.out_size[0], min(most, MAX_ROWS), count):
        for columns in _sizes(shape.out_size[1], min(most // rows, MAX_COLUMNS), count):
            yield from _candidates(shape, rows, columns, act, wgt, count // 3)


def _candidates(
    shape: ConvShape, rows: int, columns: int, act: int, wgt: int, count: int, images: int = 1
) -> list[ConvTiling]:
    config = shape.config
    plane = images * shape.input_rows(rows) * shape.input_columns(columns)
    least = plane * shape.in_blocks if shape.folded else plane
    places = images * rows * columns
    if least > act or places > act:
        return []
    found = []
    sums = images * shape.line if images > 1 and shape.in_line else places
    most_blocks = min(config.acc_depth // sums, act // places, shape.out_blocks, MAX_BLOCKS)
    most_blocks = min(most_blocks, (config.par_depth // 2 - 1) // shape.parameters)
    row_tiles = shape.kernel[1] * config.array
    for blocks in _sizes(shape.out_blocks, most_blocks, count):
        kernel_rows = shape.kernel[0]
        # a single bank holds the result as well
        room = min(act, config.act_depth - blocks * places) if config.act_banks == 1 else act
        if room < least:
            continue
        fitting = shape.in_blocks if shape.folded else room // plane
        channels = min(fitting, wgt // (blocks * kernel_rows * row_tiles), shape.in_blocks, MAX_CHANNELS)
        if shape.by_row:
            if blocks * row_tiles > wgt:
                continue
            kernel_rows = channels = 1
        elif channels == 0:
            kernel_rows = wgt // (blocks * row_tiles)
            channels = 1
            if kernel_rows == 0:
                continue
        channels = -(-shape.in_blocks // -(-shape.in_blocks // channels))
        # with one group of blocks, or one place, either loop is the outer one
        one = blocks >= shape.out_blocks or (rows, columns, shape.batch) == (*shape.out_size, images)
        for weights_outer in (True,) if one else (True, False):
            found.append(ConvTiling(shape, blocks, rows, columns, channels, kernel_rows, weights_outer, images))
    return found
