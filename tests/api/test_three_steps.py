"""`compile`, `load` and `run`, each by itself; devices and boards of other packages."""

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from npukit.compiler.errors import CompileError
from npukit.driver.sim_device import SimDevice
from npukit.fpga.boards import BoardError, board_of, boards
from npukit.isa.config import PRESETS
from npukit.isa.place import Place
from npukit.sim.dram import DramModel, SdramDram
from npukit.sim.timing import simulate_timing

import npukit
from npukit import zoo
from npukit.devices import DeviceOptions, device_names, make_device
from npukit.errors import UsageError

CONFIG = PRESETS["int8-8x8"]


@pytest.fixture
def images() -> dict[str, np.ndarray]:
    values, _, _ = zoo.digits_heldout()
    return {"image": values[0].astype(np.float32)}


def test_compiled_once_run_and_timed_often(images, tmp_path: Path) -> None:
    """A compiled model runs on two devices with equal results, and its cycles are those of the runs."""
    made = npukit.compile(zoo.load("digits"), CONFIG)
    assert made.config == CONFIG and made.compilation is not None and made.offload.nodes > 40
    slow = DramModel(latency=900)
    sim, other = npukit.load(made), npukit.load(made, options=DeviceOptions(dram=slow))
    first, second = sim.run(images), other.run(images)
    np.testing.assert_array_equal(first.outputs["logits"], second.outputs["logits"])
    for execution, dram in ((first, None), (second, slow)):
        (schedule,) = made.simulate(dram).values()
        assert execution.records["npukit_0"].counters["cycles"] == schedule.cycles
    assert made.simulate(slow)["npukit_0"].cycles > made.simulate()["npukit_0"].cycles
    made.save(tmp_path / "digits.onnx")
    again = npukit.compile(tmp_path / "digits.onnx")
    assert again.compilation is None and again.programs == dict(made.programs) and again.config == CONFIG
    with npukit.load(again, capture=True) as loaded:
        np.testing.assert_array_equal(loaded.run(images).outputs["logits"], first.outputs["logits"])
    with pytest.raises(UsageError, match="closed"):
        loaded.run(images)


def test_compiled_for_the_memory_that_it_runs_with(images) -> None:
    board = SdramDram()
    (there,) = npukit.compile(zoo.load("digits"), CONFIG, dram=board).programs.values()
    (elsewhere,) = npukit.compile(zoo.load("digits"), CONFIG).programs.values()
    assert there.to_bytes() != elsewhere.to_bytes()
    device = SimDevice(CONFIG, dram=board)
    for session in (
        npukit.Session(zoo.load("digits"), CONFIG, dram=board),
        npukit.Session(zoo.load("digits"), CONFIG, device=device),
    ):
        assert session.programs["npukit_0"].to_bytes() == there.to_bytes() and session.dram == board
        session.run(images)
        assert session.profile.cycles == session.compiled.simulate(board)["npukit_0"].cycles
    with pytest.raises(UsageError, match="the device has the memory SdramDram.* leave dram out"):
        npukit.Session(zoo.load("digits"), CONFIG, device=device, dram=DramModel())


def test_a_memory_that_does_not_go_with_the_configuration() -> None:
    wide = replace(CONFIG, bus_bytes=32)
    with pytest.raises(CompileError, match="4, 8 or 16 bytes, not 32"):
        npukit.compile(zoo.load("digits"), wide, dram=SdramDram())
    with pytest.raises(CompileError, match="the memory is a DramModel or an SdramDram, not 'sdram'"):
        npukit.compile(zoo.load("digits"), CONFIG, dram="sdram")  # type: ignore[arg-type]


def test_several_programs_lie_one_behind_the_other(graphs, monkeypatch) -> None:
    """`simulate` places them as a device does."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 9, 9)), 6)
    y = graph.quantize(graph.node("LpNormalization", [graph.dequantize(y)]), 0.004, -128)
    graph.output(graph.conv(y, 5))
    made = npukit.compile(graph.model(), CONFIG)
    loaded = npukit.load(made)
    assert len(made.programs) == 2
    address = 0
    for there in loaded.executor.loaded.values():
        place = Place.of(there.program, address)
        assert (there.base, there.limit, there.code_address, there.end) == astuple(place)
        address = place.end
    board = SdramDram()  # whose rows make addresses count
    for name, schedule in made.simulate(board).items():
        there = loaded.executor.loaded[name]
        dram = board.at(there.code_address, there.base)
        assert schedule.cycles == simulate_timing(CONFIG, there.program.instructions, dram).cycles
    asked = []
    monkeypatch.setattr(DramModel, "at", lambda self, program, base: asked.append((program, base)) or self)
    made.simulate()
    assert asked == [(there.code_address, there.base) for there in loaded.executor.loaded.values()]


def test_without_a_fallback(graphs) -> None:
    graph = graphs.Graph()
    y = graph.quantize(
        graph.node("LpNormalization", [graph.dequantize(graph.conv(graph.input((1, 4, 9, 9)), 6))]), 0.004, -128
    )
    graph.output(graph.conv(y, 5))
    made = npukit.compile(graph.model(), CONFIG)
    with pytest.raises(
        UsageError, match=r"1 node\(s\) run on the host, and there is to be no fallback: LpNormalization"
    ):
        npukit.load(made, fallback="none")


PACKAGE = """
from npukit.devices import make_simulator
from npukit.isa.place import Place
from npukit.fpga.boards import BOARDS
from dataclasses import replace

def make(config, options):
    device = make_simulator(config, options)
    device.from_elsewhere = True
    return device

BOARD = replace(BOARDS["ulx3s"], name="elsewhere", about="a board of another package")
"""
ENTRY_POINTS = """
[npukit.devices]
elsewhere = other_package:make
broken = other_package:absent
sim = other_package:absent

[npukit.boards]
elsewhere = other_package:BOARD
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that has a device and a board."""
    (tmp_path / "other_package.py").write_text(PACKAGE)
    metadata = tmp_path / "other_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return metadata


def test_devices_of_other_packages(other_package: Path, images) -> None:
    """By their names; the kit's own cannot be replaced, and one that does not load is an error of the user's."""
    assert device_names() == ("sim", "rtl", "serial", "broken", "elsewhere")
    session = npukit.Session(zoo.load("digits"), CONFIG, "elsewhere")
    assert getattr(session.device, "from_elsewhere", False)
    assert session.run(images)["logits"].shape == (1, 10)
    assert not hasattr(make_device("sim", CONFIG, DeviceOptions()), "from_elsewhere")
    with pytest.raises(UsageError, match=r"the device broken of other_package:absent cannot be loaded: .*absent"):
        npukit.Session(zoo.load("digits"), CONFIG, "broken")
    with pytest.raises(UsageError, match=r"the devices are sim, rtl, serial, broken, elsewhere, not 'gone'"):
        npukit.Session(zoo.load("digits"), CONFIG, "gone")


def test_boards_of_other_packages(other_package: Path) -> None:
    assert [*boards()] == ["ulx3s", "icepi-zero", "elsewhere"]
    assert boards()["elsewhere"].about == "a board of another package"
    assert board_of("int8-8x8", CONFIG, "elsewhere").name == "elsewhere"
    for name, value, message in (
        ("another", "other_package:BOARD", "other_package:BOARD is no board that is called another"),
        ("elsewhere", "other_package:gone", "the board elsewhere of other_package:gone cannot be loaded"),
    ):
        (other_package / "entry_points.txt").write_text(f"[npukit.boards]\n{name} = {value}\n")
        assert [*boards()] == ["ulx3s", "icepi-zero"]  # the kit's own are there
        with pytest.raises(BoardError, match=message):
            board_of("int8-8x8", CONFIG, name)
