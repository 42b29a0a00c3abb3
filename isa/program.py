"""The program container: what the compiler writes and a device runs.

File: magic, version (4 bytes), SHA-256 of all that follows, length of the JSON head (8 bytes), JSON
head, instructions, constants. Reading one parses JSON and bytes; nothing in it is ever executed.

A head is read against its schema: whatever it holds, it is refused, or every index in it is one of something that is
there, every box lies in its tensor, and every tensor in DRAM. That the instructions are legal is the validator's
matter.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from npukit.isa import schema
from npukit.isa.config import ConfigError, NpuConfig
from npukit.isa.instructions import INSTRUCTION_BITS, Instruction, InstructionError, Vector, decode, encode
from npukit.isa.layout import Layout, LayoutDim, blocked, blocked_parts
from npukit.isa.schema import MOST, SchemaError
from numpy.typing import NDArray

__all__ = ["MAGIC", "VERSION", "Capture", "CapturedTensor", "NodeInfo", "Program", "ProgramError", "TensorInfo"]

MAGIC = b"NPUKIT\r\n"
VERSION = 5
_BYTES = INSTRUCTION_BITS // 8
_FIXED = len(MAGIC) + 4 + 32 + 8


class ProgramError(ValueError):
    """A program file that is cut short, damaged, or of another version."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in DRAM. `role` is `input`, `output` or `internal`; `address` is bytes from base.

    `dtype` and `shape` are the framework's; `layout.shape` has the same elements in the same order. Of int8 and
    uint8 the machine has int8; `flip` says that the framework's tensor is uint8 and its top bit is flipped on the
    way in and out. Of float32 it has bfloat16. An output of int32 is four bytes an element, the last axis of
    `layout.shape`.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    address: int
    layout: Layout
    flip: bool = False


@dataclass(frozen=True)
class NodeInfo:
    """A graph node that the program computes, and the runs [first, end) of instructions that do it, in order."""

    name: str
    op: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    macs: int
    runs: tuple[tuple[int, int], ...]

    @property
    def first(self) -> int:
        """Its first instruction."""
        return self.runs[0][0]

    @property
    def last(self) -> int:
        """Its last instruction."""
        return self.runs[-1][1] - 1

    def indices(self) -> list[int]:
        """All its instructions."""
        return [index for run in self.runs for index in range(*run)]


@dataclass(frozen=True)
class Capture:
    """Instruction `instruction` (VECTOR) writes a part of a quantised tensor.

    Its (block, y, x) index is the tensor's word `first` + block * `stride_block` + y * `stride_y` + x * `stride_x`,
    counted as they lie in DRAM.
    """

    instruction: int
    tensor: str
    first: int
    stride_block: int
    stride_y: int
    stride_x: int

    def words(self, instruction: Vector) -> NDArray[np.int64]:
        """The tensor's words [block, y, x] that the instruction writes."""
        counts = instruction.blocks, instruction.height, instruction.width
        block, y, x = np.ogrid[: counts[0], : counts[1], : counts[2]]
        return self.first + block * self.stride_block + y * self.stride_y + x * self.stride_x


@dataclass(frozen=True)
class CapturedTensor:
    """A quantised tensor that VECTOR writes, or another shape of one.

    Attributes:
        source: the name under which its words are captured.
        order: its elements in the framework's order, numbered by three indices, of which words hold the second.
        shape: the framework's.
        dtype: the framework's.
    """

    source: str
    order: tuple[int, int, int]
    shape: tuple[int, ...]
    dtype: str

    def layout(self, config: NpuConfig) -> Layout:
        """How its words follow each other."""
        parts = config.activation.parts_of(self.dtype)
        return blocked(self.order, config.array) if parts == 1 else blocked_parts(self.order, config.array, parts)


@dataclass(frozen=True)
class Program:
    """Instructions, constants and the tables that say what they compute.

    `constants` is the DRAM image from offset 0; `dram_bytes` is all that the program touches.
    `captured` has the quantised tensors that VECTOR writes, and what they are under other names and shapes.
    """

    config: NpuConfig
    instructions: tuple[Instruction, ...]
    constants: bytes = b""
    dram_bytes: int = 0
    tensors: tuple[TensorInfo, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    captures: tuple[Capture, ...] = ()
    captured: dict[str, CapturedTensor] = field(default_factory=dict)
    name: str = ""

    @cached_property
    def code(self) -> bytes:
        """The encoded instructions."""
        return b"".join(encode(instruction) for instruction in self.instructions)

    def tensor(self, name: str) -> TensorInfo:
        """The DRAM tensor of that name."""
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def to_bytes(self) -> bytes:
        """The program as a file.

        Raises:
            ProgramError: when it has more instructions than a file may hold, or tables longer than a head may be.
        """
        code = self.code
        if len(self.instructions) > _MOST_INSTRUCTIONS:
            raise ProgramError(
                f"the program has {len(self.instructions)} instructions; at most {_MOST_INSTRUCTIONS} are supported: "
                "split the model"
            )
        head = {
            "name": self.name,
            "config": self.config.to_dict(),
            "config_hash": f"{self.config.hash:016x}",
            "instructions": len(self.instructions),
            "constants": len(self.constants),
            "dram_bytes": self.dram_bytes,
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "nodes": [dict(vars(node)) for node in self.nodes],
            "captures": [list(vars(capture).values()) for capture in self.captures],
            "captured": {name: list(vars(tensor).values()) for name, tensor in self.captured.items()},
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        _check_head(len(text))
        body = len(text).to_bytes(8, "little") + text + code + self.constants
        return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants in DRAM: whole words, the last one filled up with zeros."""
        return -(-len(self.constants) // self.config.word_bytes) * self.config.word_bytes

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that running it takes at most, roughly: for its DRAM, what the validator keeps of it,
        and its instructions and tensors on their way in and out."""
        config = self.config
        words = self.dram_bytes // config.word_bytes
        found = 2 * self.dram_bytes + 8 * words  # a device's memory grows by doubling; a writer and a reader
        found += _INSTRUCTION_BYTES * len(self.instructions)
        for tensor in self.tensors:
            loops = prod(dim.size for dim in tensor.layout.dims)
            found += _INDEX_BYTES * loops + 8 * (tensor.layout.elements + prod(tensor.shape))
        for tensor in self.captured.values():
            found += (_INDEX_BYTES + 4 * config.element_bytes) * _image_words(config, tensor) * config.array
        return found

    @classmethod
    def from_bytes(cls, data: bytes) -> "Program":
        """Read a program file. Nothing is allocated for what it only announces; see `host_bytes`.

        Raises:
            ProgramError: not a program, another version, cut short, any byte changed, or a head that breaks its schema.
        """
        if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
            raise ProgramError("not an npukit program: the file does not begin with its magic")
        if len(data) < _FIXED:
            raise ProgramError(f"the program is cut short: {len(data)} bytes, its head alone has {_FIXED}")
        at = len(MAGIC)
        version = int.from_bytes(data[at : at + 4], "little")
        if version != VERSION:
            raise ProgramError(
                f"the program has format version {version}; this npukit reads {VERSION}: compile the model again"
            )
        body = data[at + 36 :]
        if hashlib.sha256(body).digest() != data[at + 4 : at + 36]:
            raise ProgramError("the program's digest does not match: the file is damaged or cut short")
        length = int.from_bytes(body[:8], "little")
        if length > len(body) - 8:
            raise ProgramError(f"the program's contents break the format: its head has {length} of {len(body)} bytes")
        _check_head(length)
        try:
            return cls._from_body(body, length)
        except (ConfigError, InstructionError, SchemaError) as error:
            raise ProgramError(f"the program's contents break the format: {error}") from None

    @classmethod
    def _from_body(cls, body: bytes, length: int) -> "Program":
        start = 8 + length
        head = schema.record(schema.parse(body[8:start]), _HEAD, "the head")
        names = [one.name for one in fields(NpuConfig)]
        values = schema.record(head["config"], names, "config", optional=("array_rows",))  # which came later
        config = NpuConfig.from_dict(values)
        if f"{config.hash:016x}" != head["config_hash"]:
            raise ConfigError("the stored configuration hash is not the configuration's")
        count = schema.whole(head["instructions"], 0, _MOST_INSTRUCTIONS, "instructions")
        end = start + count * _BYTES
        dram_bytes = schema.whole(head["dram_bytes"], 0, MOST, "dram_bytes")
        size = schema.whole(head["constants"], 0, dram_bytes, "constants")
        if len(body) != end + size:
            raise InstructionError(f"{len(body)} bytes where {end + size} were announced")
        instructions = tuple(decode(body[at : at + _BYTES]) for at in range(start, end, _BYTES))
        captured = _read_captured(config, head["captured"])
        return cls(
            config=config,
            instructions=instructions,
            constants=body[end:],
            dram_bytes=dram_bytes,
            tensors=_read_tensors(config, dram_bytes, head["tensors"]),
            nodes=_read_nodes(count, head["nodes"]),
            captures=_read_captures(config, instructions, captured, head["captures"]),
            captured=captured,
            name=schema.text(head["name"], "name"),
        )


_HEAD = (
    "name", "config", "config_hash", "instructions", "constants", "dram_bytes", "tensors", "nodes", "captures",
    "captured",
)  # fmt: skip
_ROLES = ("input", "output", "internal")
_MOST_HEAD = 1 << 25
"""Bytes of a head; read as JSON, they take up to 24 times as much memory."""
_INDEX_BYTES = 48
"""Host memory for each element of a tensor's image while it is put in order."""
_INSTRUCTION_BYTES = 3000
"""Host memory for each instruction while the validator looks at the program."""
_MOST_INSTRUCTIONS = 1 << 20
"""Of a program; decoding them takes a minute or two."""
_MOST_DIMS = 16
"""Loops of a layout and axes of a tensor; numpy has 64."""


def _check_head(length: int) -> None:
    if length > _MOST_HEAD:
        raise ProgramError(
            f"the program's head has {length} bytes; at most {_MOST_HEAD} are supported: split the model"
        )


def _image_words(config: NpuConfig, tensor: CapturedTensor) -> int:
    """Words of a captured tensor as it is collected."""
    outer, channels, inner = tensor.order
    return config.activation.parts_of(tensor.dtype) * outer * -(-channels // config.array) * inner


def _read_layout(value: Any, place: str) -> Layout:
    raw = schema.record(value, [one.name for one in fields(Layout)], place, optional=("length",))
    shape = schema.shape(raw["shape"], place, "shape")
    names = [one.name for one in fields(LayoutDim)]
    dims = []
    for number, entry in enumerate(schema.items(raw["dims"], place, "dims")):
        inner = f"{place}.dims[{number}]"
        dim = schema.record(entry, names, inner)
        dims.append(
            LayoutDim(
                size=schema.whole(dim["size"], 1, MOST, inner, "size"),
                axis=schema.whole(dim["axis"], 0, len(shape) - 1, inner, "axis"),
                step=schema.whole(dim["step"], -(1 << 31), 1 << 31, inner, "step"),
                stride=schema.whole(dim["stride"], 0, MOST, inner, "stride"),
            )
        )
    if max(len(shape), len(dims)) > _MOST_DIMS:
        raise SchemaError(f"{place} has {len(shape)} axes and {len(dims)} loops; at most {_MOST_DIMS} are supported")
    origin = schema.items(raw["origin"], place, "origin", len(shape))
    for start in origin:
        schema.whole(start, -(1 << 31), 1 << 31, place, "origin")
    layout = Layout(
        shape=shape,
        dims=tuple(dims),
        origin=tuple(origin),
        pad=schema.whole(raw["pad"], -(1 << 15), (1 << 16) - 1, place, "pad"),
        length=schema.whole(raw.get("length", 0), 0, MOST, place, "length"),
    )
    places = prod(dim.size for dim in layout.dims)
    if places > layout.elements:
        raise SchemaError(f"{place} has loops over {places} places of an image of {layout.elements} elements")
    return layout


def _read_tensors(config: NpuConfig, dram_bytes: int, value: Any) -> tuple[TensorInfo, ...]:
    names = [one.name for one in fields(TensorInfo)]
    datapath, pads = config.datapath, config.activation.stored
    found: dict[str, TensorInfo] = {}
    for number, entry in enumerate(schema.items(value, "tensors")):
        place = f"tensors[{number}]"
        raw = schema.record(entry, names, place, optional=("flip",))
        layout = _read_layout(raw["layout"], f"{place}.layout")
        schema.whole(layout.pad, pads[0], pads[-1], place, "layout.pad")
        role = schema.one_of(raw["role"], _ROLES, place, "role")
        dtypes = datapath.tensor_types + (datapath.sum_types if role == "output" else ())
        tensor = TensorInfo(
            name=schema.text(raw["name"], place, "name"),
            role=role,
            dtype=schema.one_of(raw["dtype"], dtypes, place, "dtype"),
            shape=schema.shape(raw["shape"], place, "shape"),
            address=schema.whole(raw["address"], 0, MOST, place, "address"),
            layout=layout,
            flip=schema.flag(raw.get("flip", False), place, "flip"),
        )
        if tensor.flip != (tensor.dtype == "uint8"):
            raise SchemaError(f"{place}.flip must be true for uint8, and for nothing else")
        parts = config.activation.parts_of(tensor.dtype)
        if parts > 1 and layout.shape[-1] != parts:
            raise SchemaError(f"{place}.layout has the shape {layout.shape}, and {parts} elements make one number")
        if parts * prod(tensor.shape) != prod(layout.shape) or len(tensor.shape) > _MOST_DIMS:
            raise SchemaError(f"{place} has the shape {tensor.shape}, and its layout {layout.shape}")
        end = tensor.address + layout.elements * config.element_bytes
        if end > dram_bytes:
            raise SchemaError(f"{place} ends at byte {end} of {dram_bytes} bytes of DRAM")
        if tensor.name in found:
            raise SchemaError(f"{place}.name is another tensor's as well: {tensor.name!r}")
        found[tensor.name] = tensor
    return tuple(found.values())


def _read_nodes(count: int, value: Any) -> tuple[NodeInfo, ...]:
    names = [one.name for one in fields(NodeInfo)]
    found = []
    owned: list[tuple[int, int, int]] = []
    for number, entry in enumerate(schema.items(value, "nodes")):
        place = f"nodes[{number}]"
        raw = schema.record(entry, names, place)
        runs = []
        for run in schema.items(raw["runs"], place, "runs"):
            first, end = schema.items(run, place, "runs", 2)
            schema.whole(first, 0, count - 1, place, "runs")
            runs.append((first, schema.whole(end, first + 1, count - 1, place, "runs")))
        if not runs or runs != sorted(runs):
            raise SchemaError(f"{place}.runs must be one or more runs of instructions, in order")
        owned += [(*run, number) for run in runs]
        inputs = schema.items(raw["inputs"], place, "inputs")
        if not inputs:
            raise SchemaError(f"{place}.inputs must have a shape or more, not none")
        found.append(
            NodeInfo(
                name=schema.text(raw["name"], place, "name"),
                op=schema.text(raw["op"], place, "op"),
                inputs=tuple(schema.shape(shape, place, "inputs") for shape in inputs),
                output=schema.shape(raw["output"], place, "output"),
                macs=schema.whole(raw["macs"], 0, MOST, place, "macs"),
                runs=tuple(runs),
            )
        )
    owned.sort()
    for (_, end, one), (first, _, other) in zip(owned, owned[1:], strict=False):
        if first < end:
            raise SchemaError(f"nodes[{one}] and nodes[{other}] both have instruction {first}")
    return tuple(found)


def _read_captured(config: NpuConfig, value: Any) -> dict[str, CapturedTensor]:
    names = [one.name for one in fields(CapturedTensor)]
    entries = schema.mapping(value, "captured")
    types = config.datapath.tensor_types + config.datapath.sum_types
    found: dict[str, CapturedTensor] = {}
    for name, entry in entries.items():
        place = f"captured[{name!r}]"
        source, order, shape, dtype = schema.items(entry, place, length=len(names))
        outer, channels, inner = schema.shape(schema.items(order, place, "order", 3), place, "order")
        shape = schema.shape(shape, place, "shape")
        if outer * channels * inner != prod(shape) or len(shape) > _MOST_DIMS:
            raise SchemaError(f"{place} has the order {[outer, channels, inner]} and the shape {list(shape)}")
        found[name] = CapturedTensor(
            source=schema.one_of(source, entries, place, "source"),
            order=(outer, channels, inner),
            shape=shape,
            dtype=schema.one_of(dtype, types, place, "dtype"),
        )
    for name, tensor in found.items():
        source = found[tensor.source]
        if source.source != tensor.source or _image_words(config, source) != _image_words(config, tensor):
            raise SchemaError(f"captured[{name!r}] is no other shape of {tensor.source!r}")
    return found


def _read_captures(
    config: NpuConfig, instructions: Sequence[Instruction], captured: dict[str, CapturedTensor], value: Any
) -> tuple[Capture, ...]:
    names = [one.name for one in fields(Capture)]
    found: dict[int, Capture] = {}
    own = [name for name, tensor in captured.items() if tensor.source == name]
    for number, entry in enumerate(schema.items(value, "captures")):
        place = f"captures[{number}]"
        capture = Capture(*schema.items(entry, place, length=len(names)))
        schema.whole(capture.instruction, 0, len(instructions) - 1, place, "instruction")
        one = instructions[capture.instruction]
        if not isinstance(one, Vector) or capture.instruction in found:
            raise SchemaError(f"{place}.instruction must be a VECTOR without another capture: {capture.instruction}")
        schema.one_of(capture.tensor, own, place, "tensor")
        for name in ("first", "stride_block", "stride_y", "stride_x"):
            schema.whole(getattr(capture, name), 0, MOST, place, name)
        last = capture.first + (one.blocks - 1) * capture.stride_block
        last += (one.height - 1) * capture.stride_y + (one.width - 1) * capture.stride_x
        total = _image_words(config, captured[capture.tensor])
        if last >= total:
            raise SchemaError(f"{place} ends at word {last} of the {total} of {capture.tensor!r}")
        found[capture.instruction] = capture
    return tuple(found.values())
