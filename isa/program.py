"""The program container: what the compiler writes and a device runs.

File: magic, version (4 bytes), SHA-256 of all that follows, length of the JSON head (8 bytes), JSON
head, instructions, constants. Reading one parses JSON and bytes; nothing in it is ever executed.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from npukit.isa.config import ConfigError, NpuConfig
from npukit.isa.instructions import INSTRUCTION_BITS, Instruction, InstructionError, decode, encode
from npukit.isa.layout import Layout, LayoutDim

__all__ = ["MAGIC", "VERSION", "Capture", "NodeInfo", "Program", "ProgramError", "TensorInfo"]

MAGIC = b"NPUKIT\r\n"
VERSION = 3
_BYTES = INSTRUCTION_BITS // 8
_FIXED = len(MAGIC) + 4 + 32 + 8


class ProgramError(ValueError):
    """A program file that is cut short, damaged, or of another version."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in DRAM. `role` is `input`, `output` or `internal`; `address` is bytes from base.

    `dtype` and `shape` are the framework's; `layout.shape` has the same elements in the same order. Of int8 and
    uint8 the machine has int8; `flip` says that the framework's tensor is uint8 and its top bit is flipped on the
    way in and out. Of float32 it has bfloat16.
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

    Its (block, y, x) index is the word at batch `batch`, channel block `block` + block,
    row `y` + y * `step_y`, column `x` + x * `step_x`. With `rows_are_blocks`, y counts channel blocks, and block rows.
    """

    instruction: int
    tensor: str
    batch: int
    block: int
    y: int
    x: int
    step_y: int = 1
    step_x: int = 1
    rows_are_blocks: bool = False


@dataclass(frozen=True)
class Program:
    """Instructions, constants and the tables that say what they compute.

    `constants` is the DRAM image from offset 0; `dram_bytes` is all that the program touches.
    `captured` maps the name of each quantised tensor that VECTOR writes to its (NCHW shape on the
    machine, framework's shape, framework's dtype);
    `aliases` the name of a reshaped one to (name of what was reshaped, shape).
    """

    config: NpuConfig
    instructions: tuple[Instruction, ...]
    constants: bytes = b""
    dram_bytes: int = 0
    tensors: tuple[TensorInfo, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    captures: tuple[Capture, ...] = ()
    captured: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = field(default_factory=dict)
    aliases: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    name: str = ""

    @cached_property
    def code(self) -> bytes:
        """The encoded instructions."""
        return b"".join(encode(instruction) for instruction in self.instructions)

    def tensor(self, name: str) -> TensorInfo:
        """The DRAM tensor of that name."""
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def to_bytes(self) -> bytes:
        """The program as a file."""
        code = self.code
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
            "captured": self.captured,
            "aliases": self.aliases,
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        body = len(text).to_bytes(8, "little") + text + code + self.constants
        return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, data: bytes) -> "Program":
        """Read a program file.

        Raises:
            ProgramError: not a program, another version, cut short, or any byte changed.
        """
        if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
            raise ProgramError("not an npukit program: the file does not begin with its magic")
        if len(data) < _FIXED:
            raise ProgramError(f"the program is cut short: {len(data)} bytes, its head alone has {_FIXED}")
        at = len(MAGIC)
        version = int.from_bytes(data[at : at + 4], "little")
        if version != VERSION:
            raise ProgramError(f"the program has format version {version}; this npukit reads {VERSION}")
        body = data[at + 36 :]
        if hashlib.sha256(body).digest() != data[at + 4 : at + 36]:
            raise ProgramError("the program's digest does not match: the file is damaged or cut short")
        try:
            return cls._from_body(body)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
            raise ProgramError(f"the program's contents break the format: {error}") from None

    @classmethod
    def _from_body(cls, body: bytes) -> "Program":
        length = int.from_bytes(body[:8], "little")
        head: dict[str, Any] = json.loads(body[8 : 8 + length])
        config = NpuConfig.from_dict(head["config"])
        if f"{config.hash:016x}" != head["config_hash"]:
            raise ConfigError("the stored configuration hash is not the configuration's")
        start = 8 + length
        end = start + head["instructions"] * _BYTES
        if len(body) != end + head["constants"]:
            raise InstructionError(f"{len(body)} bytes where {end + head['constants']} were announced")
        nodes = tuple(_node(entry) for entry in head["nodes"])
        for node in nodes:
            if not node.runs or any(not 0 <= first < end < head["instructions"] for first, end in node.runs):
                raise ValueError(f"node {node.name} has the instructions {node.runs}")
        return cls(
            config=config,
            instructions=tuple(decode(body[at : at + _BYTES]) for at in range(start, end, _BYTES)),
            constants=body[end:],
            dram_bytes=int(head["dram_bytes"]),
            tensors=tuple(_tensor(entry) for entry in head["tensors"]),
            nodes=nodes,
            captures=tuple(Capture(*entry) for entry in head["captures"]),
            captured={
                name: (tuple(view), tuple(shape), dtype) for name, (view, shape, dtype) in head["captured"].items()
            },
            aliases={name: (source, tuple(shape)) for name, (source, shape) in head["aliases"].items()},
            name=head["name"],
        )


def _tensor(entry: dict[str, Any]) -> TensorInfo:
    raw = entry["layout"]
    layout = Layout(
        shape=tuple(raw["shape"]),
        dims=tuple(LayoutDim(**dim) for dim in raw["dims"]),
        origin=tuple(raw["origin"]),
        pad=raw["pad"],
        length=raw.get("length", 0),
    )
    return TensorInfo(**{**entry, "shape": tuple(entry["shape"]), "layout": layout})


def _node(entry: dict[str, Any]) -> NodeInfo:
    return NodeInfo(
        **{
            **entry,
            "inputs": tuple(tuple(shape) for shape in entry["inputs"]),
            "runs": tuple((first, end) for first, end in entry["runs"]),
            "output": tuple(entry["output"]),
        }
    )
