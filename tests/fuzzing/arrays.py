"""Files of inputs (.npz): the zip around, the heads and the data of the arrays in it."""

import struct
import warnings
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
from npukit.isa.config import PRESETS
from numpy.typing import NDArray

from npukit.session import Session

from .case import Outcome, Result, WrongResult, answer_of, run_command
from .mutate import change_bytes, odd_number
from .samples import compiled_model

__all__ = ["Arrays", "make"]

_DESCRIPTIONS = (
    "'|i1'", "'<i1'", "'|u1'", "'<f4'", "'>f4'", "'<f2'", "'<f8'", "'|b1'", "'<i8'", "'|O'", "'|S1'", "'<U4'", "'|V2'",
    "'<M8[s]'", "'<M8[99999999999s]'", "'|S0'", "'<U1000000000'", "'bfloat16'", "'<i100'", "'i1,i1'", "''", "None", "1",
    "[('a', '|i1')]", "[('a', '|i1'), ('a', '|i1')]", "[('a', '|i1', (1, 3, 6, 6))]", "[]", "{}", "('|i1', (3,))",
    "('|i1', (1000000, 1000000))", "{'names': ['a'], 'formats': ['i1'], 'offsets': [1000000000000]}", "'(65,)i1'",
)  # fmt: skip
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_NAMES = (
    "image",
    "image",
    "image",
    "Image",
    "",
    "a/b",
    "../image",
    "file",
    "x" * 3000,
    "\u00e9",
    "image\n",
    "image.npy",
)
_SENTENCE = b"words, not arrays"
_ZEROS = 1 << 20


class Arrays:
    """See the module."""

    seconds = 60.0
    megabytes = 512
    suffix = ".npz"

    def __init__(self, folder: Path) -> None:
        self.path, self.outputs = folder / "inputs.npz", folder / "outputs.npz"
        names = ("int8-4x4", "bf16-4x4")
        self.models = {name: folder / f"{name}.onnx" for name in names}
        self.sessions = {name: Session(compiled_model(self.models[name], PRESETS[name])) for name in names}

    # ---- making

    def input(self, random: Random) -> bytes:
        """A zip of arrays, of which any part may be wrong; then, of some, bytes changed."""
        if random.random() < 0.03:
            return random.choice([b"", _SENTENCE, self._array(random), b"PK\x05\x06" + bytes(18), b"PK\x03\x04"])
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names twice
            for _ in range(random.choice([0, 1, 1, 1, 1, 1, 2, 3])):
                name = "image" if random.random() < 0.7 else random.choice(_NAMES)
                self._member(random, file, name + ("" if random.random() < 0.03 else ".npy"))
            if random.random() < 0.05:
                file.comment = random.randbytes(20)
        data = buffer.getvalue()
        if random.random() < 0.02:
            data = self._large(random)
        if random.random() < 0.3:
            data = self._wrong_directory(random, data)
        if random.random() < 0.25:
            data = change_bytes(random, data)
        return data

    def _member(self, random: Random, file: zipfile.ZipFile, name: str) -> None:
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.compress_type = random.choice(_METHODS)
        file.writestr(info, _SENTENCE if random.random() < 0.03 else self._array(random))

    def _array(self, random: Random) -> bytes:
        """An array as .npy; its head, which need not be true, its data, and perhaps more or fewer bytes."""
        kind = random.choice(["|i1", "<f4"])
        values = np.frombuffer(random.randbytes(4 * 108), np.int8)[: 108 * np.dtype(kind).itemsize]
        if kind == "<f4":
            values = values.astype(np.float32).view(np.int8)[: 4 * 108]
        description, fortran, shape = repr(kind), "False", "(1, 3, 6, 6)"
        if random.random() < 0.5:
            match random.randrange(4):
                case 0:
                    description = random.choice(_DESCRIPTIONS)
                case 1:
                    fortran = random.choice(["True", "True", "True", "1", "None", "'False'"])
                case 2:
                    shape = self._shape(random)
                case _:
                    description, shape = random.choice(_DESCRIPTIONS), self._shape(random)
        head = f"{{'descr': {description}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
        if random.random() < 0.08:
            head = random.choice(
                ["", "{}", "[" * 4000, "-" * 9000 + "1", "()" * 3000, head[:-3], head * 2, "{'descr': 1}", "a" * 70000,
                 head[:-2] + "'x': 1}", "{1: 2}", "None", "\u00e9", "{**{}}", "9" * 5000]
            )  # fmt: skip
        version = random.choice([1, 1, 1, 1, 2, 3]) if random.random() < 0.95 else random.choice([0, 4, 255])
        text = head.encode()
        text += b" " * (-len(text) % 64) + b"\n"
        stated = len(text) if random.random() < 0.95 else odd_number(random)
        size = struct.pack("<I", stated & 0xFFFFFFFF) if version > 1 else struct.pack("<H", stated & 0xFFFF)
        data = values.tobytes()
        if random.random() < 0.1:
            data = random.choice([data[:-1], data + b"\x00", b"", data * 2])
        return b"\x93NUMPY" + bytes([version, 0]) + size + text + data

    @staticmethod
    def _shape(random: Random) -> str:
        if random.random() < 0.3:
            return random.choice(["()", "(108,)", "(1, 3, 36)", "(3, 1, 6, 6)", "(1, 3, 6, 6, 1)", "[1, 3, 6, 6]"])
        sizes = [random.choice(["1", "3", "6", "True", "1.0", "'1'", "None", str(odd_number(random))])
                 for _ in range(random.choice([1, 2, 4, 4, 4, 65]))]  # fmt: skip
        return f"({', '.join(sizes)},)"

    @staticmethod
    def _large(random: Random) -> bytes:
        """A member that grows a thousandfold when it is read, with a head that says so, or one that does not."""
        count = random.choice([64, 1100])
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        head = f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({count * _ZEROS},), }}"
        if random.random() < 0.3:
            head = "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3, 6, 6), }"
        first = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head.encode() + b"\n"
        data = packer.compress(first) + packer.flush(zlib.Z_FULL_FLUSH)
        block = packer.compress(bytes(_ZEROS)) + packer.flush(zlib.Z_FULL_FLUSH)
        data += block * count + packer.flush()
        name = random.choice([b"image.npy", b"other.npy"])
        sizes = struct.pack("<III", 0, len(data), len(first) + count * _ZEROS)
        place = struct.pack("<HHH", 20, 0, zipfile.ZIP_DEFLATED) + bytes(4) + sizes + struct.pack("<HH", len(name), 0)
        local = b"PK\x03\x04" + place + name + data
        central = b"PK\x01\x02" + struct.pack("<H", 20) + place + bytes(14) + name
        end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
        return local + central + end

    @staticmethod
    def _wrong_directory(random: Random, data: bytes) -> bytes:
        """A field of the zip's directory, or of a member's own head, that is not right."""
        changed = bytearray(data)
        marks = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06")
        places = [at for mark in marks if (at := data.find(mark)) >= 0]
        if places:
            at = random.choice(places) + random.randrange(4, 40, 2)
            changed[at : at + 2] = (odd_number(random) & 0xFFFF).to_bytes(2, "little")
        return bytes(changed)

    # ---- running

    def run(self, data: bytes) -> Result:
        """`npukit run --input`, whose outputs must be those of the arrays as numpy reads them."""
        self.path.write_bytes(data)
        return self._run("bf16-4x4" if b"<f4" in data else "int8-4x4")

    def _run(self, name: str) -> Result:
        words = ("--input", self.path, "--output", self.outputs, "--quiet")
        result = answer_of(run_command("run", self.models[name], *words))
        if result.outcome is Outcome.ACCEPTED:
            expected = self.sessions[name].run(self._arrays())
            with np.load(self.outputs) as found:
                for key, array in expected.items():
                    if not np.array_equal(found[key], array, equal_nan=array.dtype.kind == "f"):
                        raise WrongResult(f"{name}: output {key} is not that of the arrays in the file")
        return result

    def _arrays(self) -> dict[str, NDArray]:
        with np.load(self.path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}


def make(folder: Path) -> Arrays:
    """The kind, with its files in `folder`."""
    return Arrays(folder)
