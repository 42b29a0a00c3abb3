"""Emitted C on RISC-V: it compiles for a processor without an operating system, and runs on one, emulated."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS

from npukit import Session, zoo
from tests.firmware.emitted import emit
from tests.firmware.riscv import Processor, compile_object
from tests.firmware.test_host import _two_of_each, _values, images, onnx_runtime

INT8, BF16 = PRESETS["int8-4x4"], PRESETS["bf16-4x4"]


@pytest.fixture(autouse=True)
def _tools() -> None:
    pytest.importorskip("ziglang", reason="ziglang is not installed: pip install npukit[test]")
    pytest.importorskip("unicorn", reason="unicorn is not installed: pip install npukit[test]")


@pytest.mark.parametrize("interrupt", (False, True), ids=("polling", "interrupt"))
def test_digits(tmp_path: Path, interrupt: bool) -> None:
    model = onnx.load_model_from_string(zoo.load("digits"))
    processor = Processor(tmp_path, emit(tmp_path / "kit", model, INT8), interrupt=interrupt)
    run = onnx_runtime(model)
    for image in images(2):
        outputs = processor.run(SimDevice(INT8), {"image": image})
        assert outputs["logits"].tobytes() == run({"image": image})["logits"].tobytes()


def test_digits_in_bf16(tmp_path: Path) -> None:
    model = zoo.load("digits", "fp32")
    processor = Processor(tmp_path, emit(tmp_path / "kit", model, BF16))
    image = images(1)[0]
    outputs = processor.run(SimDevice(BF16), {"image": image})
    assert outputs["logits"].tobytes() == Session(model, config=BF16).run({"image": image})["logits"].tobytes()


def test_uint8(tmp_path: Path) -> None:
    model = _two_of_each(np.uint8, True)
    processor = Processor(tmp_path, emit(tmp_path / "kit", model, INT8))
    random = np.random.default_rng(6)
    inputs = {value.name: _values(value, random) for value in model.graph.input}
    outputs = processor.run(SimDevice(INT8), inputs)
    for name, wanted in onnx_runtime(model)(inputs).items():
        assert outputs[name].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("model", ("digits", "digits-vit"))
def test_every_source_compiles(tmp_path: Path, model: str) -> None:
    kit = emit(tmp_path / "kit", zoo.load(model), INT8, model)
    for source in ("npu.c", f"{kit.model.name}.c", "example.c"):
        assert compile_object(tmp_path, kit, source).stat().st_size > 0


def test_a_model_that_others_have_put_in_memory_takes_no_flash(tmp_path: Path) -> None:
    """With `attach` alone, the linker leaves constants and instructions out."""
    kit = emit(tmp_path / "kit", zoo.load("digits"), INT8)
    sizes = {}
    for attach in (False, True):
        folder = tmp_path / str(attach)
        folder.mkdir()
        sizes[attach] = Processor(folder, kit, attach=attach).loaded_bytes
    arrays = len(kit.model.constants) + len(kit.model.code)
    assert sizes[False] > arrays
    assert sizes[True] < 8192
    assert sizes[False] - sizes[True] > arrays - 64
