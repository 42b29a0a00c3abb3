"""Which tensors stay on chip from the layer that makes them to the last that reads them, and where they lie there."""

from collections.abc import Sequence
from dataclasses import dataclass

from npukit.compiler.arithmetic import window_border
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import (
    AveragePool,
    ByElement,
    Convolution,
    DepthwiseConvolution,
    Elementwise,
    GlobalAveragePool,
    MaxPool,
    TensorOperation,
    Window,
)
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.limits import MAX_STRIDE
from npukit.compiler.tasks import Buffer
from npukit.compiler.tiling import ConvShape, parts
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory

__all__ = ["Resident", "choose_residents"]


@dataclass(frozen=True)
class Resident:
    """A tensor on chip: blocks of rows of words, with the border that its readers want around it.

    border: top, left, bottom, right. slabs: of each image, ranges of channel blocks, each in a buffer of its own.
    """

    rows: int
    columns: int
    border: tuple[int, int, int, int]
    pad_value: float
    slabs: tuple[tuple[tuple[tuple[int, int], Buffer], ...], ...]

    @property
    def pitch(self) -> int:
        """Words of a row."""
        return self.border[1] + self.columns + self.border[3]

    @property
    def tall(self) -> int:
        """Rows, border included."""
        return self.border[0] + self.rows + self.border[2]

    @property
    def plane(self) -> int:
        """Words of a channel block."""
        return self.tall * self.pitch

    @property
    def words(self) -> int:
        """Words of all of it."""
        return sum(buffer.words for image in self.slabs for _, buffer in image)

    @property
    def edges(self) -> set[int]:
        """Channel blocks with which slabs begin and end."""
        return {edge for blocks, _ in self.slabs[0] for edge in blocks}

    def slab(self, batch: int, blocks: tuple[int, int]) -> tuple[Buffer, int]:
        """The buffer that holds some blocks of an image, and the word where they begin."""
        for (low, high), buffer in self.slabs[batch]:
            if low <= blocks[0] and blocks[1] <= high:
                return buffer, (blocks[0] - low) * self.plane
        raise AssertionError(f"blocks {blocks} lie in several slabs")


def choose_residents(config: NpuConfig, graph: Graph, room: list[float]) -> dict[str, Resident]:
    """The tensors that stay: those first that are read most often for the time that they stay, small ones before large.

    Args:
        config: what to compile for.
        graph: whose operations are in groups.
        room: words of ACT that may be theirs while each unit is computed; what is taken is taken off.
    """
    units = graph.units()
    at = {number: position for position, unit in enumerate(units) for number in unit}
    readers, outside = graph.readers(), graph.outside()
    candidates = []
    for unit in units:
        last = graph.operations[unit[-1]]
        if not isinstance(last, _MAKERS) or any(_grouped(graph.operations[number]) for number in unit):
            continue
        tensor = graph.tensors[last.output]
        users = readers.get(tensor.name, [])
        if not users or tensor.name in outside or tensor.folded is not None:
            continue
        if not all(_reads(config, graph, number, tensor, units[at[number]]) for number in users):
            continue
        resident = _place(config, graph, tensor, [graph.operations[number] for number in users])
        if resident is None:
            continue
        end = max(at[number] for number in users)
        start = at[unit[0]]
        uses = (1 + len(users)) / (end - start + 1)
        candidates.append((-uses, resident.words, start, end, tensor.name, resident))
    found: dict[str, Resident] = {}
    for _, words, start, end, name, resident in sorted(candidates, key=lambda one: one[:5]):
        if min(room[start : end + 1]) >= words:
            found[name] = resident
            for position in range(start, end + 1):
                room[position] -= words
    return found


_MAKERS = (
    Convolution, DepthwiseConvolution, Elementwise, ByElement, MaxPool, AveragePool, GlobalAveragePool,
)  # fmt: skip
"""Operations whose schedules leave a result where it is to stay, and read what stays."""


def _grouped(operation: TensorOperation) -> bool:
    return isinstance(operation, Convolution) and operation.groups > 1


def _reads(config: NpuConfig, graph: Graph, number: int, tensor: Tensor, unit: Sequence[int]) -> bool:
    """Whether an operation of a unit can read a tensor where it stays."""
    operation = graph.operations[number]
    sources = [graph.tensors[name] for name in graph.activations(operation)]
    if any(source.view != tensor.view for source in sources if source.storage == tensor.name):
        return False
    if isinstance(operation, Elementwise):
        return True
    if isinstance(operation, Convolution):
        shape = ConvShape.of(config, graph, operation)
        if shape.together > 1 and shape.in_line:  # which wants its images one behind the other
            return False
    return isinstance(operation, _MAKERS) and not _grouped(operation) and unit[0] == number


def _place(config: NpuConfig, graph: Graph, tensor: Tensor, users: list[TensorOperation]) -> Resident | None:
    """The tensor's slabs, with the border that its readers want; None if they want different ones."""
    batch, channels, height, width = tensor.view
    border = [0, 0, 0, 0]
    values = set()
    for layer in users:
        if not isinstance(layer, Convolution | DepthwiseConvolution | MaxPool | AveragePool):
            continue
        wanted = _border(graph.kernel(layer), layer, tensor.view, graph.tensors[layer.output].view)
        if any(wanted):
            values.add(window_border(graph, layer))
        border = [max(one, other) for one, other in zip(border, wanted, strict=True)]
    if len(values) > 1:
        return None
    plane = (border[0] + height + border[2]) * (border[1] + width + border[3])
    most = config.act_depth // plane
    if most < 1 or plane > MAX_STRIDE:
        return None
    ranges = parts(-(-channels // config.array), most)
    return Resident(
        rows=height,
        columns=width,
        border=(border[0], border[1], border[2], border[3]),
        pad_value=values.pop() if values else 0,
        slabs=tuple(
            tuple((blocks, Buffer(Memory.ACT, (blocks[1] - blocks[0]) * plane, tensor.name)) for blocks in ranges)
            for _ in range(batch)
        ),
    )


def _border(
    kernel: tuple[int, int], layer: Window, source: Sequence[int], result: Sequence[int]
) -> tuple[int, int, int, int]:
    """Rows and columns around an image that a convolution looks at: top, left, bottom, right."""
    after = []
    for axis in (0, 1):
        extent = (kernel[axis] - 1) * layer.dilations[axis] + 1
        reach = (result[2 + axis] - 1) * layer.strides[axis] + extent
        after.append(max(0, reach - layer.pads[axis] - source[2 + axis]))
    return layer.pads[0], layer.pads[1], after[0], after[1]
