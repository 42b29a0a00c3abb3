"""Compiled models: what stands around the programs in an EPContext file. Its digest is right again, mostly."""

from pathlib import Path
from random import Random

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from npukit.isa.config import PRESETS
from onnx import helper

from npukit.npufile import write_artifact

from .case import GOOD, Outcome, Result, WrongResult, answer_of, run_command
from .mutate import change_bytes, odd_number
from .samples import compiled_model

__all__ = ["Compiled", "change_message", "make"]

_CONFIGS = ("int8-4x4", "bf16-4x4", "int8-16x16")
_TEXTS = (
    "", "image", "x", "\u0000", "\u00e9\u202e", "y" * 4000, "line\nline", "EPContext", "npukit", "com.microsoft",
    "ai.onnx", "npukit_0", "npukit.digest", "../x", "QuantizeLinear", "Identity",
)  # fmt: skip
_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)


def _messages(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                found += _messages(one)
    return found


def _other(random: Random, field: FieldDescriptor, old: object) -> object:
    """Another value for a field that is no message."""
    if isinstance(old, str):
        return random.choice([*_TEXTS, old + "x", old[:-1]])
    if isinstance(old, bytes):
        return change_bytes(random, old, 2) if old and random.random() < 0.8 else b""
    if isinstance(old, float):
        return random.choice([0.0, -1.0, 1e38, float("nan"), float("inf"), old * 2])
    if isinstance(old, bool):
        return not old
    assert isinstance(old, int)
    if field.enum_type is not None:
        return random.choice(field.enum_type.values).number
    number = random.choice([old + 1, old - 1, odd_number(random), random.randrange(30)])
    bits = 64 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
    low = 0 if field.cpp_type in _UNSIGNED else -(1 << (bits - 1))
    return low + (number - low) % (1 << bits)


def change_message(random: Random, message: Message) -> None:
    """One change somewhere in it: a value, or an entry left out, doubled, moved, or put in from elsewhere."""
    every = _messages(message)
    place = random.choice(every)
    fields = place.ListFields()
    if not fields:
        return
    field, value = random.choice(fields)
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    if random.random() < 0.1:
        place.ClearField(field.name)
    elif field.is_repeated:
        at, change = random.randrange(len(value)), random.randrange(4)
        if change == 0:
            del value[at]
        elif change == 1:
            value.append(value[random.randrange(len(value))])
        elif change == 2 and len(value) > 1:
            entries = list(value)
            random.shuffle(entries)
            copies = [_copied(one) if is_message else one for one in entries]
            del value[:]
            value.extend(copies)
        elif is_message:
            value[at].CopyFrom(random.choice([one for one in every if one.DESCRIPTOR is value[at].DESCRIPTOR]))
        else:
            value[at] = _other(random, field, value[at])
    elif is_message:
        others = [one for one in every if one.DESCRIPTOR is value.DESCRIPTOR]
        value.CopyFrom(_copied(random.choice(others)))
    else:
        setattr(place, field.name, _other(random, field, value))


def _copied(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


class Compiled:
    """See the module."""

    seconds = 120.0
    megabytes = 1024
    suffix = ".onnx"

    def __init__(self, folder: Path) -> None:
        self.path, self.outputs = folder / "compiled.onnx", folder / "outputs.npz"
        self.models = [compiled_model(folder / f"{name}.onnx", PRESETS[name]) for name in _CONFIGS]

    def input(self, random: Random) -> bytes:
        """A compiled model of which some message has changed, with its digest; then, of a few, bytes."""
        model = _copied(random.choice(self.models))
        assert isinstance(model, onnx.ModelProto)
        for _ in range(random.choice([1, 1, 2, 3])):
            change_message(random, model)
        data = model.SerializeToString()
        if random.random() < 0.9:
            del model.metadata_props[:]
            write_artifact(self.path, model)
            data = self.path.read_bytes()
        return change_bytes(random, data, 2) if random.random() < 0.08 else data

    def run(self, data: bytes) -> Result:
        """`npukit run`, which writes each output as the graph declares it, and `npukit disasm` and `check`."""
        self.path.write_bytes(data)
        self.outputs.unlink(missing_ok=True)
        result = answer_of(run_command("run", self.path, "--output", self.outputs, "--quiet"))
        if result.outcome is Outcome.ACCEPTED:
            self._compare(data)
        for command in ("disasm", "check"):
            if result.outcome in GOOD:
                other = answer_of(run_command(command, self.path, "--quiet"))
                result = result if other.outcome in GOOD else other
        return result

    def _compare(self, data: bytes) -> None:
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
        except DecodeError:
            raise WrongResult("it runs, and is no model") from None
        with np.load(self.outputs) as found:
            names = [value.name for value in model.graph.output]
            if sorted(found.files) != sorted(names):
                raise WrongResult(f"the outputs are {found.files}, not {names}")
            for value in model.graph.output:
                dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
                if found[value.name].dtype != dtype:
                    raise WrongResult(f"output {value.name} is {found[value.name].dtype}, and declared {dtype}")


def make(folder: Path) -> Compiled:
    """The kind, with its files in `folder`."""
    return Compiled(folder)
