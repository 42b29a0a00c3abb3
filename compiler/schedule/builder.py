"""Collects tasks in program order, and keeps loaded buffers for those that want them again."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
from npukit.compiler.arithmetic import channel_parameters
from npukit.compiler.cost import CostModel
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Convolution, DepthwiseConvolution
from npukit.compiler.ir.tensor import Tensor
from npukit.compiler.limits import MAX_BLOCKS, MAX_COLUMNS, MAX_ROWS, MAX_RUN
from npukit.compiler.schedule.postponed import Postponed
from npukit.compiler.schedule.residency import Resident
from npukit.compiler.tasks import Box, Buffer, CaptureBox, DramUse, Operand, Plan, Task
from npukit.compiler.tiling import ConvShape, ConvTiling, choose_tiling, parts
from npukit.isa.descriptors import encode_descriptor
from npukit.isa.instructions import Engine, Load, Matrix, Memory, Operation, Store, Vector
from npukit.sim.bfloat16 import narrow
from numpy.typing import NDArray

__all__ = ["Builder", "Placed", "Region", "blocked_channels"]

_LOOPS = (MAX_BLOCKS, MAX_ROWS, MAX_COLUMNS)
"""Blocks, rows and columns of a VECTOR instruction, at most."""


def blocked_channels(values: NDArray, size: int) -> NDArray:
    """[channels, ...] as [blocks, lanes, ...], padded with 0."""
    count = -(-len(values) // size)
    padded = np.zeros((count * size, *values.shape[1:]), values.dtype)
    padded[: len(values)] = values
    return padded.reshape(count, size, *values.shape[1:])


class Region:
    """A tile of a blocked tensor [block][batch][y][x] in DRAM: one image, ranges of the rest.

    `step_y`: only every so many rows. Rows and columns outside of the tensor are border. Of a folded tensor, whose
    words of a place follow each other, all blocks belong to it, and `place` of them make a column.
    """

    def __init__(
        self,
        tensor: Tensor,
        lanes: int,
        batch: int,
        block: tuple[int, int],
        y: tuple[int, int],
        x: tuple[int, int],
        step_y: int = 1,
    ) -> None:
        self.images, channels, self.height, self.width = self.view = tensor.view
        self.place = -(-channels // lanes) if tensor.folded is not None else 1
        if tensor.folded is not None:
            block = (0, 1)
        self.tensor = tensor.storage
        self.batch, self.block, self.x, self.step_y = batch, block, x, step_y
        self.first_y = y[0]
        self.rows = -(-(y[1] - y[0]) // step_y)
        inside = [row for row in range(self.rows) if 0 <= y[0] + row * step_y < self.height]
        self.top = inside[0] if inside else self.rows
        self.valid_rows = len(inside)
        self.bottom = self.rows - self.top - self.valid_rows
        self.left = max(0, -x[0])
        self.right = max(0, x[1] - self.width)
        self.columns = x[1] - x[0]
        self.valid_columns = min(x[1], self.width) - max(x[0], 0)

    @property
    def empty(self) -> bool:
        """Whether the region is nothing but border."""
        return self.valid_rows <= 0 or self.valid_columns <= 0

    @property
    def key(self) -> Hashable:
        """What identifies the contents."""
        return self.tensor, self.view, self.batch, self.block, self.first_y, self.rows, self.step_y, self.x

    @property
    def blocks(self) -> int:
        """Channel blocks."""
        return self.block[1] - self.block[0]

    @property
    def words(self) -> int:
        """Words on chip, border included."""
        return self.blocks * self.rows * self.pitch

    @property
    def pitch(self) -> int:
        """Words of a row on chip."""
        return self.columns * self.place

    @property
    def y(self) -> int:
        """First row inside of the tensor."""
        return self.first_y + self.top * self.step_y

    @property
    def offset(self) -> int:
        """DRAM words from the tensor's start to the first word."""
        plane = self.block[0] * self.images + self.batch
        return ((plane * self.height + self.y) * self.width + max(self.x[0], 0)) * self.place

    @property
    def box(self) -> Box:
        """The part inside of the tensor."""
        first = self.batch * self.height + self.y
        last = first + (self.valid_rows - 1) * self.step_y + 1
        return Box(self.block, (first, last), (max(self.x[0], 0), min(self.x[1], self.width)), self.width)


@dataclass(frozen=True)
class Placed:
    """Where a tile lies on chip: words [block][row][column] of a buffer, blocks and rows so far apart.

    part: of the tensor, where the buffer holds more of it than the tile.
    """

    buffer: Buffer
    offset: int
    plane: int
    pitch: int
    part: Box | None = None

    def behind(self, words: int) -> "Placed":
        """The tile from a word of it on."""
        return replace(self, offset=self.offset + words)

    def operand(self, field: str, offset: int = 0, write: bool = False) -> Operand:
        """The tile as an operand, from a word of it on."""
        return Operand(field, self.buffer, self.offset + offset, write, self.part)


class Builder:
    """The state of scheduling one graph, and the operation whose tasks are made: `of` gives one for another operation.

    `cost` says which tiles are best. `keep` is the share of each memory that may hold buffers kept for later use; what
    does not fit is loaded again. `residents`: tensors that stay on chip, which are neither stored nor loaded.
    `tilings`: of convolutions for which somebody knows better than the estimate. `in_parts`: numbers of the operations
    whose neighbours wait for places, see `to_compute_in_parts`.
    """

    def __init__(
        self, cost: CostModel, graph: Graph, keep: float, residents: Mapping[str, Resident],
        tilings: Mapping[ConvShape, ConvTiling], in_parts: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.config = config = cost.config
        self._cost = cost
        self.residents = residents
        self._tilings = tilings
        self._chosen: dict[tuple[ConvShape, bool], ConvTiling] = {}
        self._in_parts = in_parts
        self._begun: set[Buffer] = set()
        self.graph = graph
        self._channels: dict[tuple[str, tuple[int, ...] | None], list[NDArray]] = {}
        self.plan = Plan(graph)
        self._number = 0
        self._postponed: dict[str, Postponed] = {}
        self._kept: dict[Memory, OrderedDict[Hashable, Buffer]] = {memory: OrderedDict() for memory in Memory}
        self._held = dict.fromkeys(Memory, 0)
        """Words of what is kept."""
        self._budget = {
            Memory.ACT: int(config.act_depth * config.act_banks * keep),
            Memory.WGT: int(config.wgt_depth * keep),
            Memory.PAR: int(config.par_depth * keep),
        }

    def of(self, number: int) -> "Builder":
        """The same state, for tasks of the operation of that number."""
        other = copy(self)
        other._number = number
        return other

    @property
    def in_parts(self) -> bool:
        """Whether the operation's neighbours wait for places of it."""
        return self._number in self._in_parts

    def postpone(self, result: str, steps: Iterator[None]) -> None:
        """Emit an operation's tasks not before what they store is loaded; `steps` emit them."""
        self._postponed[result] = Postponed(self.tensor(result), steps, self.config.array)

    def finish(self) -> None:
        """Emit the tasks that are still put off."""
        for one in self._postponed.values():
            one.finish()
        self._postponed.clear()

    def tensor(self, name: str) -> Tensor:
        """The activation of that name."""
        return self.graph.tensors[name]

    def channels(self, layer: Convolution | DepthwiseConvolution, taps: tuple[int, ...] | None = None) -> list[NDArray]:
        """What REQUANTIZE and DEPTHWISE read for each output channel, [block, lane] each; see `channel_parameters`."""
        if (layer.output, taps) not in self._channels:
            arrays = channel_parameters(self.graph, layer, taps)
            self._channels[layer.output, taps] = [blocked_channels(array, self.config.array) for array in arrays]
        return self._channels[layer.output, taps]

    def tiling(self, shape: ConvShape) -> ConvTiling:
        """How to cut a convolution. Raises CompileError where nothing fits."""
        if shape in self._tilings:
            return self._tilings[shape]
        key = shape, self.in_parts
        if key not in self._chosen:
            self._chosen[key] = choose_tiling(shape, self._cost.convolution(shape).in_program, self.in_parts)
        return self._chosen[key]

    def resident(self, memory: Memory, key: Hashable, words: int, label: str, fill: Callable[[Buffer], None]) -> Buffer:
        """The buffer with those contents: one that is still there, or a new one that `fill` loads."""
        kept = self._kept[memory]
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        buffer = Buffer(memory, words, label)
        self._held[memory] += words
        while kept and self._held[memory] > self._budget[memory]:
            self._held[memory] -= kept.popitem(last=False)[1].words
        kept[key] = buffer
        fill(buffer)
        return buffer

    def constant(self, what: str, make: Callable[[], NDArray]) -> str:
        """Register a constant of the layer in DRAM; `make` is called once. Returns its name.

        The layer's number makes the name unique, which nodes and tensors of any name may be close to.
        """
        name = f"layer {self._number}: {what}"
        if name not in self.plan.constants:
            self.plan.constants[name] = np.ascontiguousarray(make()).view(np.uint8).reshape(-1)
        return name

    def moved_lanes(self, pairs: Iterable[tuple[int, int]]) -> Buffer:
        """A tile of weights that brings lanes of ACT to lanes of the sums: pairs of both."""
        chosen, size = tuple(pairs), self.config.array

        def tile() -> NDArray:
            found = np.zeros((size, size), np.float32)
            for source, lane in chosen:
                found[source, lane] = 1
            return narrow(found) if self.config.activation.floating else found.astype(np.int8)

        name = self.constant(f"lanes {chosen}", tile)
        return self.load_constant(Memory.WGT, name, name, size, "lanes")

    def capture(
        self, name: str, batch: int, block: int, y: int, x: int, step_y: int = 1, step_x: int = 1,
        rows_are_blocks: bool = False,
    ) -> CaptureBox:  # fmt: skip
        """The part of a tensor that a VECTOR task writes, in the tensor's dimensions in memory.

        Its (block, y, x) index is the word at channel block `block` + block of image `batch`, row `y` + y * `step_y`,
        column `x` + x * `step_x`. With `rows_are_blocks`, y counts channel blocks, and block rows.
        """
        images, _, height, width = self.tensor(name).view
        plane, row = images * height * width, width * step_y
        first = block * plane + (batch * height + y) * width + x
        return CaptureBox(name, first, *((row, plane) if rows_are_blocks else (plane, row)), step_x)

    def _emit(
        self,
        engine: Engine,
        instruction: Load | Matrix | Vector | Store,
        operands: tuple[Operand, ...],
        dram: DramUse | None = None,
        captures: tuple[CaptureBox, ...] = (),
    ) -> None:
        postponed = None if dram is None else self._postponed.get(dram.tensor)
        if postponed is not None and dram is not None and dram.box is not None:
            if dram.write:
                postponed.store(dram.box)
            else:
                postponed.need(dram.box)
        self.plan.tasks.append(Task(engine, instruction, operands, self._number, dram, captures))

    def matrix(self, instruction: Matrix, act: Operand, wgt: Operand, acc: Buffer, acc_offset: int = 0) -> None:
        """A MATRIX task."""
        self._emit(Engine.MATRIX, instruction, (act, wgt, Operand("acc", acc, acc_offset, write=True)))

    def vector(
        self,
        instruction: Vector,
        sources: tuple[Operand, ...],
        out: Operand,
        parameters: Buffer | None = None,
        capture: CaptureBox | None = None,
    ) -> None:
        """A VECTOR task."""
        operands = (*sources, out)
        if parameters is not None:
            operands = (*operands, Operand("parameters", parameters))
        self._emit(Engine.VECTOR, instruction, operands, captures=(capture,) if capture else ())

    def load_constant(
        self, memory: Memory, key: Hashable, name: str, words: int, label: str,
        planes: int = 1, offset: int = 0, plane_stride: int = 0,
    ) -> Buffer:  # fmt: skip
        """`planes` runs of `words` words of a constant; offset and stride in ACT words of DRAM."""

        def fill(buffer: Buffer) -> None:
            run, count, stride = words, planes, plane_stride
            if count > 1 and stride == run and memory is not Memory.PAR and run * count <= MAX_RUN:
                run, count, stride = run * count, 1, 0
            assert run <= MAX_RUN, (name, run)
            instruction = Load(
                memory=memory, planes=count, words=run, word_stride=1,
                plane_stride=run if count > 1 else 0, dram_plane_stride=stride if count > 1 else 0,
            )  # fmt: skip
            self._emit(Engine.LOAD, instruction, (Operand("", buffer, write=True),), DramUse(name, offset, None))

        return self.resident(memory, key, planes * words, label, fill)

    def parameters(self, key: str, operation: Operation, values: dict, blocks: list[NDArray]) -> Buffer:
        """A descriptor and its blocks' parameters ([words, array] each) in PAR; `key` is the layer's own."""

        def image() -> NDArray:
            head = encode_descriptor(self.config, operation, values)
            return np.concatenate([head, *(np.ascontiguousarray(block).view(np.uint32) for block in blocks)])

        name = self.constant(f"{key} parameters", image)
        words = self.plan.constants[name].size // self.config.wide_word_bytes
        return self.load_constant(Memory.PAR, name, name, words, name)

    def block_parts(self, total: int, most: int, names: Iterable[str], start: int = 0) -> list[tuple[int, int]]:
        """Channel blocks, counted from block `start` of some tensors, in ranges of at most `most`; none crosses a slab
        of those tensors that stay."""
        storages = {self.tensor(name).storage for name in names} & set(self.residents)
        slabs = {edge - start for name in storages for edge in self.residents[name].edges}
        edges = sorted({0, total, *(edge for edge in slabs if 0 < edge < total)})
        return [(low + first, low + last) for low, high in pairwise(edges) for first, last in parts(high - low, most)]

    def result_tile(self, region: Region) -> Placed:
        """Where a layer is to leave a tile of its result: a new buffer, or the tile's place in a tensor that stays."""
        if region.tensor in self.residents:
            return self._in_resident(region)
        buffer = Buffer(Memory.ACT, region.words, region.tensor)
        return Placed(buffer, 0, region.rows * region.pitch, region.pitch)

    def _in_resident(self, region: Region) -> Placed:
        resident = self.residents[region.tensor]
        buffer, offset = resident.slab(region.batch, region.block)
        if buffer not in self._begun:
            self._begun.add(buffer)
            self._fill_border(resident, buffer)
        top, left = resident.border[:2]
        offset += (top + region.first_y) * resident.pitch + left + region.x[0]
        return Placed(buffer, offset, resident.plane, resident.pitch * region.step_y, region.box)

    def _fill_border(self, resident: Resident, buffer: Buffer) -> None:
        top, left, bottom, right = resident.border
        pitch, blocks = resident.pitch, buffer.words // resident.plane
        beside = top * pitch
        for start, rows, columns in (
            (0, top, pitch),
            ((resident.tall - bottom) * pitch, bottom, pitch),
            (beside, resident.rows, left),
            (beside + pitch - right, resident.rows, right),
        ):
            if rows and columns:
                shape = blocks, rows, columns
                self.fill_part(buffer, resident.pad_value, start, shape, (resident.plane, pitch))

    def load_region(self, region: Region, pad_value: float) -> Placed:
        """A tile of an activation, with its border, in ACT: loaded, unless the tensor stays there."""
        if region.tensor in self.residents:
            return self._in_resident(region)
        return Placed(self.load_tile(region, pad_value), 0, region.rows * region.pitch, region.pitch)

    def load_weights(self, region: Region, start: int, buffer: Buffer) -> None:
        """Words of a row of an activation to WGT, where they are rows of tiles."""
        assert region.blocks == region.rows == 1 and not (region.left or region.right)
        instruction = Load(memory=Memory.WGT, words=region.columns, word_stride=1)
        self._emit(
            Engine.LOAD, instruction, (Operand("", buffer, start, write=True),),
            DramUse(region.tensor, region.offset, region.box),
        )  # fmt: skip

    def load_tile(self, region: Region, pad_value: float) -> Buffer:
        """A tile of an activation that does not stay on chip, its words without gaps."""
        return self.load_tiles([region], pad_value)

    def load_tiles(self, regions: Sequence[Region], pad_value: float) -> Buffer:
        """The same of several tiles, of as many words each, one behind the other."""
        first = regions[0]
        assert first.tensor not in self.residents, first.tensor
        key = (*(region.key for region in regions), pad_value)

        def fill(buffer: Buffer) -> None:
            for position, region in enumerate(regions):
                self._fill_tile(buffer, position * first.words, region, pad_value)

        return self.resident(Memory.ACT, key, len(regions) * first.words, first.tensor, fill)

    def _fill_tile(self, buffer: Buffer, start: int, region: Region, pad_value: float) -> None:
        if region.empty:
            self.fill_part(buffer, pad_value, start, (1, 1, region.words), (0, 0))
            return
        shape = (region.blocks, region.valid_rows, region.valid_columns * region.place)
        line = region.width * region.place
        dram = (region.images * region.height * line, region.step_y * line)
        chip = (region.rows * region.pitch, region.pitch)
        border = bool(region.top or region.bottom or region.left or region.right)
        if not border:
            shape, chip, dram = _merge(shape, chip, dram)
        instruction = Load(
            memory=Memory.ACT,
            planes=shape[0], rows=shape[1], words=shape[2],
            plane_stride=chip[0] if shape[0] > 1 else 0, row_stride=chip[1], word_stride=1,
            dram_plane_stride=dram[0] if shape[0] > 1 else 0,
            dram_row_stride=dram[1] if shape[1] > 1 else 0,
            pad_top=region.top, pad_bottom=region.bottom,
            pad_left=region.left, pad_right=region.right, pad_value=self._element(pad_value) if border else 0,
        )  # fmt: skip
        self._emit(
            Engine.LOAD, instruction, (Operand("", buffer, start, write=True),),
            DramUse(region.tensor, region.offset, None if region.tensor in self.plan.constants else region.box),
        )  # fmt: skip

    def _element(self, value: float) -> int:
        """A number as the bits of an element."""
        return int(narrow(np.array(value, np.float32))) if self.config.activation.floating else int(value) & 0xFF

    def fill_part(
        self, buffer: Buffer, value: float, start: int, counts: tuple[int, int, int], strides: tuple[int, int],
        capture: CaptureBox | None = None,
    ) -> None:  # fmt: skip
        """Set words [block][row][column] of a buffer in ACT or WGT, blocks and rows so far apart.

        capture: which part of a tensor they are; then one instruction has to be enough for them.
        """
        assert capture is None or all(count <= most for count, most in zip(counts, _LOOPS, strict=True))
        for blocks, rows, columns in product(*(parts(count, most) for count, most in zip(counts, _LOOPS, strict=True))):
            shape = tuple(high - low for low, high in (blocks, rows, columns))
            at = start + blocks[0] * strides[0] + rows[0] * strides[1] + columns[0]
            instruction = Vector(
                operation=Operation.FILL, blocks=shape[0], height=shape[1], width=shape[2], out_memory=buffer.memory,
                out_stride_block=strides[0] if shape[0] > 1 else 0,
                out_stride_y=strides[1] if shape[1] > 1 else 0, out_stride_x=1,
            )  # fmt: skip
            parameters = self.parameters(f"fill {value}", Operation.FILL, {"value": value}, [])
            self.vector(instruction, (), Operand("out", buffer, at, write=True), parameters, capture)

    def store_result(self, region: Region, placed: Placed) -> None:
        """Store a tile from where `result_tile` put it; one of a tensor that stays is where it belongs."""
        if region.tensor not in self.residents:
            self.store_region(region, placed.buffer)

    def store_region(self, region: Region, buffer: Buffer) -> None:
        """Write a tile, the words [block][y][x] of a buffer in ACT, to its tensor."""
        shape = (region.blocks, region.rows, region.columns)
        shape, chip, dram = _merge(
            shape,
            (region.rows * region.columns, region.columns),
            (region.images * region.height * region.width, region.width),
        )
        instruction = Store(
            planes=shape[0], rows=shape[1], words=shape[2],
            plane_stride=chip[0] if shape[0] > 1 else 0,
            row_stride=chip[1] if shape[1] > 1 else 0,
            word_stride=1,
            dram_plane_stride=dram[0] if shape[0] > 1 else 0,
            dram_row_stride=dram[1] if shape[1] > 1 else 0,
        )  # fmt: skip
        self._emit(
            Engine.STORE, instruction, (Operand("", buffer),),
            DramUse(region.tensor, region.offset, region.box, write=True),
        )  # fmt: skip


_Three = tuple[int, int, int]
_Two = tuple[int, int]


def _merge(shape: _Three, chip: _Two, dram: _Two) -> tuple[_Three, _Two, _Two]:
    """Join rows, then planes, that follow each other both on chip and in DRAM."""
    planes, rows, words = shape
    if rows > 1 and chip[1] == dram[1] == words:
        rows, words = 1, rows * words
    if rows == 1 and planes > 1 and chip[0] == dram[0] == words and planes * words <= MAX_RUN:
        planes, words = 1, planes * words
    return (planes, rows, words), chip, dram
