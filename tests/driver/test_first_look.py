"""ONNX Runtime's first look at a model: what it finds, and models on which it crashes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from npukit.compiler.oracle import integer_tensors
from npukit.driver import apart
from npukit.driver.executor import ArtifactError, Executor
from npukit.driver.first_look import CrashError, first_look
from npukit.driver.host import HostError
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import zoo


def crashing() -> onnx.ModelProto:
    """A model of which ONNX Runtime 1.31 reads a zero point that is not there."""
    constants = [
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        numpy_helper.from_array(np.zeros(0, np.int8), "none"),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    nodes = [
        *(helper.make_node("QuantizeLinear", [name, "scale", "none"], [f"{name}_quantised"]) for name in "xy"),
        *(
            helper.make_node("DequantizeLinear", [f"{name}_quantised", "scale", "none"], [f"{name}_again"])
            for name in "xy"
        ),
        helper.make_node("Concat", ["x_again", "y_again"], ["both"], axis=1),
        helper.make_node("QuantizeLinear", ["both", "scale", "zero"], ["quantised"]),
        helper.make_node("DequantizeLinear", ["quantised", "scale", "zero"], ["out"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4, 4]) for name in "xy"]
    graph = helper.make_graph(
        nodes, "crashing", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 8, 4, 4])], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(params=["fork", "new process"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both kinds of process; a new one is made where another thread works beside."""
    taken: list[str] = []
    for name, function in (("fork", apart._fork), ("new process", apart._new_process)):
        monkeypatch.setattr(
            apart, function.__name__, lambda *given, _name=name, _real=function: taken.append(_name) or _real(*given)
        )
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(request.param == "new process")]
    for thread in threads:
        thread.start()
    yield request.param
    over.set()
    for thread in threads:
        thread.join()
    assert set(taken) == {request.param}


def test_a_crash_ends_the_other_process_alone(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CrashError, match=r"^ONNX Runtime crashes on the model \(SIG\w+\)$"):
        first_look(crashing())
    with pytest.raises(ModelError, match=r"^ONNX Runtime crashes on the model \(SIG\w+\)$"):
        integer_tensors(crashing())
    assert capfd.readouterr().out == ""


def test_what_it_finds(way: str) -> None:
    model = onnx.load_from_string(zoo.load("digits"))
    assert "QLinearConv" in first_look(model).values()
    model.graph.node[0].op_type = "Unknown"
    with pytest.raises(HostError, match="Unknown") as caught:
        first_look(model)
    assert not isinstance(caught.value, CrashError)


def test_a_compiled_model_whose_rest_crashes(way: str) -> None:
    """What stays in ONNX Runtime of a file that anybody can have written."""
    with pytest.raises(ArtifactError, match=r"the part of the model that stays: ONNX Runtime crashes on the model"):
        Executor(crashing(), SimDevice(PRESETS["int8-4x4"]))


def test_children_that_nobody_waits_for() -> None:
    """A parent may have told the system to take its children itself; then their status is not known."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert first_look(onnx.load_from_string(zoo.load("digits")))
        with pytest.raises(CrashError):
            first_look(crashing())
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_interrupt_ends_the_other_process(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from npukit.driver.apart import run_apart\n"
        "def slow(*_):\n"
        "    os.write(int(sys.argv[1]), f'{os.getpid()}\\n'.encode())\n"
        "    time.sleep(60)\n"
        "run_apart(slow, None)\n"
    )
    reading, writing = os.pipe()  # its own streams lead nowhere
    command = [sys.executable, "-c", script, str(writing)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=[writing])
    os.close(writing)
    with os.fdopen(reading) as pipe:
        child = int(pipe.readline())
    process.send_signal(signal.SIGINT)
    process.wait(20)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_lies_in_the_working_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnx.py").write_text("raise SystemExit('this is not ONNX')\n")
    monkeypatch.chdir(tmp_path)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert first_look(onnx.load_from_string(zoo.load("digits")))
    finally:
        over.set()
        thread.join()


def test_an_answer_that_cannot_be_written(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no crash of ONNX Runtime."""
    with pytest.raises(OSError, match="the process that looks at the model ended with exit code 1"):
        apart.run_apart(no_answer, onnx.ModelProto())


def no_answer(model: onnx.ModelProto, folder: Path) -> None:
    folder.joinpath("answer.json.half").mkdir()
