"""ONNX Runtime's first look at a model: what it finds, and models on which it crashes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.oracle import GraphOracle
from npukit.driver import apart
from npukit.driver import first_look as looks
from npukit.driver.executor import ArtifactError, Executor
from npukit.driver.first_look import CrashError, first_look
from npukit.driver.host import HostError
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from onnx import TensorProto, helper, numpy_helper

from npukit import zoo


def dies(model: onnx.ModelProto, folder: Path) -> Any:
    """A look in which ONNX Runtime crashes, on every machine."""
    os.kill(os.getpid(), signal.SIGSEGV)


def misread() -> onnx.ModelProto:
    """A model of which ONNX Runtime 1.31 reads a zero point that is not there: on many machines it crashes."""
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
        nodes, "misread", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 8, 4, 4])], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(autouse=True)
def own_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that other tests have left, as those of PyTorch do that load it, are not at work beside."""
    before, count = threading.active_count(), threading.active_count
    monkeypatch.setattr(threading, "active_count", lambda: count() - before + 1)


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


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process finds functions of this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.fixture
def crash(importable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime crashes on each model that it is to look at."""
    monkeypatch.setattr(looks, "_first_look", dies)


@pytest.mark.usefixtures("crash")
def test_a_crash_ends_the_other_process_alone(way: str) -> None:
    model = onnx.load_from_string(zoo.load("digits"))
    with pytest.raises(CrashError, match=r"^ONNX Runtime crashes on the model \(SIGSEGV\)$"):
        first_look(model)
    with pytest.raises(ModelError, match=r"^ONNX Runtime crashes on the model \(SIGSEGV\)$"):
        _ = GraphOracle(model).operators


def test_what_onnx_runtime_reads_that_is_not_there(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Whether that crashes depends on the machine; that this process goes on, and says nothing itself, does not."""
    with suppress(CrashError):
        first_look(misread())
    with suppress(ModelError):
        _ = GraphOracle(misread()).operators
    assert capfd.readouterr().out == ""


def test_what_it_finds(way: str) -> None:
    model = onnx.load_from_string(zoo.load("digits"))
    assert "QLinearConv" in first_look(model).values()
    model.graph.node[0].op_type = "Unknown"
    with pytest.raises(HostError, match="Unknown") as caught:
        first_look(model)
    assert not isinstance(caught.value, CrashError)


@pytest.mark.usefixtures("crash")
def test_a_compiled_model_whose_rest_crashes(way: str) -> None:
    """What stays in ONNX Runtime of a file that anybody can have written."""
    with pytest.raises(ArtifactError, match=r"the part of the model that stays: ONNX Runtime crashes on the model"):
        Executor(misread(), SimDevice(PRESETS["int8-4x4"]))


def test_children_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent may have told the system to take its children itself; then their status is not known."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert first_look(onnx.load_from_string(zoo.load("digits")))
        monkeypatch.setattr(looks, "_first_look", dies)
        with pytest.raises(CrashError):
            first_look(onnx.load_from_string(zoo.load("digits")))
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


@pytest.mark.usefixtures("importable")
def test_an_answer_that_cannot_be_written(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no crash of ONNX Runtime."""
    with pytest.raises(OSError, match=r"process that looks at the model ended with exit code 1(: IsADirectory.*)?$"):
        apart.run_apart(no_answer, onnx.ModelProto())


def no_answer(model: onnx.ModelProto, folder: Path) -> None:
    folder.joinpath("answer.json.half").mkdir()
