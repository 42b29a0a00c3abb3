"""What a model's header says of its inputs and outputs in memory, as one reads it who has nothing else."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from numpy.typing import NDArray

from npukit import Session, zoo
from tests.firmware.emitted import OK, PAGE, Host, emit
from tests.firmware.test_host import (
    _deep,
    _rows,
    _stride_two,
    _two_of_each,
    _values,
    images,
    onnx_runtime,
    product_of_integers,
)
from tests.graphs import Graph

INT8, BF16 = PRESETS["int8-4x4"], PRESETS["bf16-4x4"]
FORM = re.compile(
    r"/\* In memory: (\S+) of ([^,]+), from (\S+) on, in loops from the outermost inwards:\n"
    r"((?: \*   \d+ steps of -?\d+ byte\(s\) and -?\d+ on axis \d+\n)*)"
    r"((?: \* .*\n)*) \*/\n"
    r"#define NET_(INPUT|OUTPUT)_(\w+)_OFFSET(?:_\d+)? (\d+)u\n"
    r"#define NET_\w+_BYTES(?:_\d+)? (\d+)u\n"
)
STEP = re.compile(r"(\d+) steps of (-?\d+) byte\(s\) and (-?\d+) on axis (\d+)")


@dataclass(frozen=True)
class Form:
    """One comment, with the macros below it."""

    kind: str
    field: str
    shape: tuple[int, ...]
    element: str
    origin: tuple[int, ...]
    loops: tuple[tuple[int, int, int, int], ...]
    notes: str
    offset: int
    size: int

    def places(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Bytes from the offset, and the element that lies there."""
        for steps in product(*(range(count) for count, *_ in self.loops)):
            index, place = list(self.origin), 0
            for step, (_, stride, further, axis) in zip(steps, self.loops, strict=True):
                place += step * stride
                index[axis] += step * further
            if all(0 <= one < size for one, size in zip(index, self.shape, strict=True)):
                yield place, tuple(index)

    def quantisation(self) -> tuple[float, int] | None:
        """Scale and zero point."""
        scale = re.search(r"([\d.e+-]+)f\b", self.notes)
        zero_point = re.search(r"\((-?\d+)\)", self.notes)
        return None if scale is None or zero_point is None else (float(scale[1]), int(zero_point[1]))

    def image(self, tensor: NDArray) -> NDArray[np.uint8]:
        """An input's bytes in memory."""
        kept = self.quantisation()
        if kept is not None:
            scale, zero_point = kept
            low, high = (0, 255) if self.element.startswith("uint8") else (-128, 127)
            tensor = np.clip(np.rint(tensor / np.float32(scale)) + zero_point, low, high).astype(int)
        values = tensor.reshape(self.shape)
        padding = re.search(r"belongs to no element is 0x([0-9a-f]+)", self.notes)
        memory = np.full(self.size, 0xA5, np.uint8)
        if padding is not None:
            memory[:] = np.resize(np.frombuffer(bytes.fromhex(padding[1])[::-1], np.uint8), self.size)
        for place, index in self.places():
            data = self._bytes(values[index])
            memory[place : place + len(data)] = np.frombuffer(data, np.uint8)
        return memory

    def _bytes(self, value: np.generic) -> bytes:
        if self.element == "bfloat16 (low byte first)":
            return int(np.float32(value).view(np.uint32) >> 16).to_bytes(2, "little")
        byte = int(value) & 0xFF
        return bytes([byte ^ 0x80 if self.element == "uint8 (highest bit inverted)" else byte])

    def tensor(self, memory: NDArray[np.uint8], dtype: np.dtype) -> NDArray:
        """An output from its bytes."""
        whole = np.zeros(self.shape, np.uint8)
        if "bytes of an int32" in self.notes:
            for place, index in self.places():
                whole[index] = memory[place]
            return whole.view("<i4")[..., 0]
        for place, index in self.places():
            whole[index] = memory[place] ^ (0x80 if self.element == "uint8 (highest bit inverted)" else 0)
        number = whole.astype(np.uint8).view(np.uint8 if self.element.startswith("uint8") else np.int8)
        kept = self.quantisation()
        if kept is not None:
            return (number.astype(np.int32) - kept[1]).astype(np.float32) * np.float32(kept[0])
        return number.astype(dtype)


def forms(host: Host) -> list[Form]:
    """All of a header's."""
    header = next(path for path in host.kit.files if path.name == "net.h").read_text()
    found = []
    for match in FORM.finditer(header):
        shape, origin = (tuple(map(int, re.findall(r"-?\d+", match[group]))) for group in (1, 3))
        loops = tuple(tuple(map(int, step)) for step in STEP.findall(match[4]))
        found.append(
            Form(match[6], match[7], shape, match[2], origin, loops, match[5], int(match[8]), int(match[9]))  # type: ignore[arg-type]
        )
    assert len(found) == len(re.findall(r"_BYTES(?:_\d+)? \d+u$", header, re.M)) - 2  # those of all the memory
    return found


def put(host: Host, inputs: dict[str, NDArray]) -> None:
    """Write inputs to the device's memory, as a DMA does."""
    for form in forms(host):
        if form.kind == "INPUT":
            (name,) = [name for name in inputs if host.kit.model.fields[f"input {name}"].upper() == form.field]
            host.device.write_memory(PAGE + form.offset, form.image(inputs[name]))


def take(host: Host, name: str, dtype: np.dtype) -> NDArray:
    """Read an output from the device's memory."""
    field = host.kit.model.fields[f"output {name}"].upper()
    (form,) = [form for form in forms(host) if (form.kind, form.field) == ("OUTPUT", field)]
    return form.tensor(host.device.read_memory(PAGE + form.offset, form.size), dtype)


def _digits() -> onnx.ModelProto:
    return onnx.load_model_from_string(zoo.load("digits"))


def _two_ways() -> onnx.ModelProto:
    """One input that is quantised in two ways, so that it lies in memory twice."""
    graph = Graph(seed=6)
    first = graph.input((1, 3, 4, 4), 0.02, name="x")
    second = graph.quantize("x", 0.05)
    graph.output(graph.add(graph.conv(first, 4, 1), graph.conv(second, 4, 1)))
    return graph.model()


def _graph(make: Callable[[Graph], None], dtype: type) -> onnx.ModelProto:
    graph = Graph(seed=2, dtype=dtype)
    make(graph)
    return graph.model()


@pytest.mark.parametrize(
    "make",
    [
        _digits,
        lambda: _two_of_each(np.uint8, True),
        lambda: _two_of_each(np.int8, False),
        lambda: _graph(_deep, np.uint8),
        lambda: _graph(_stride_two, np.int8),
        lambda: _graph(_rows, np.uint8),
        product_of_integers,
        _two_ways,
    ],
    ids=["digits", "integers", "two", "deep", "windows", "rows", "sums", "ways"],
)
def test_a_run_without_conversions(tmp_path: Path, make: Callable[[], onnx.ModelProto]) -> None:
    """Inputs written, and outputs read, by what the header says: as ONNX Runtime has them."""
    model = make()
    host = Host(tmp_path, emit(tmp_path / "kit", model, INT8), SimDevice(INT8, memory_bytes=1 << 22))
    random = np.random.default_rng(11)
    inputs = {value.name: _values(value, random) for value in model.graph.input}
    assert host.init() == OK
    put(host, inputs)
    assert host.start_in_place() == OK
    for name, wanted in onnx_runtime(model)(inputs).items():
        found = take(host, name, wanted.dtype)
        assert found.tobytes() == wanted.tobytes(), name


def test_floats(tmp_path: Path) -> None:
    """bfloat16 takes two bytes."""
    model = zoo.load("digits", "fp32")
    host = Host(tmp_path, emit(tmp_path / "kit", model, BF16), SimDevice(BF16, memory_bytes=1 << 22))
    image = (np.rint(images(1)[0] * 16) / 16).astype(np.float32)  # such numbers are bfloat16
    assert host.init() == OK
    put(host, {"image": image})
    assert host.start_in_place() == OK
    result, outputs = host.end()
    assert result == OK
    assert outputs["logits"].tobytes() == Session(model, config=BF16).run({"image": image})["logits"].tobytes()
