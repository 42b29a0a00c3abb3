"""ONNX Runtime's first look at a model: what it finds, and models on which it crashes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.oracle import GraphOracle
from npukit.driver import apart, fork_server
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


@pytest.fixture(params=["fork", "server"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fork of this process, and one of a server's, where another thread works beside."""
    taken: list[str] = []
    for name, function in (("fork", apart._fork), ("server", apart.work_in_server)):
        monkeypatch.setattr(
            apart, function.__name__, lambda *given, _name=name, _real=function: taken.append(_name) or _real(*given)
        )
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(request.param == "server")]
    for thread in threads:
        thread.start()
    yield request.param
    over.set()
    for thread in threads:
        thread.join()
    assert set(taken) == {request.param}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """New servers, which find functions of this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(fork_server, "_idle", [])


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


SLOW = """
import os, sys, threading, time
from npukit.driver.apart import run_apart
import onnx
def slow(model, folder):
    with open(os.environ["SAID"], "w") as pipe:
        pipe.write(f"{os.getpid()} {folder}\\n")
    time.sleep(60)
if __name__ == "__main__":
    if "server" in sys.argv:
        from slow_work import slow
        threading.Thread(target=time.sleep, args=[60], daemon=True).start()
    run_apart(slow, onnx.ModelProto())
"""


@pytest.mark.parametrize(
    ("kind", "number"), [("fork", signal.SIGINT), ("server", signal.SIGINT), ("server", signal.SIGKILL)]
)
def test_a_process_that_ends_takes_the_other_one_along(tmp_path: Path, kind: str, number: signal.Signals) -> None:
    script, said = tmp_path / "slow_work.py", tmp_path / "said"
    script.write_text(SLOW)
    os.mkfifo(said)  # its own streams lead nowhere
    environment = os.environ | {"SAID": str(said), "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, str(script), kind], stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    child, folder = said.read_text().split()
    assert Path(folder).is_dir()
    process.send_signal(number)
    process.wait(20)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (Path(f"/proc/{child}").exists() or Path(folder).exists()):
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)
    assert not Path(folder).exists()


@pytest.fixture
def beside() -> Iterator[None]:
    """A thread beside, so that servers are used."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


def server_of(model: onnx.ModelProto, folder: Path) -> int:
    return os.getppid()


@pytest.mark.usefixtures("importable", "beside")
class TestServers:
    def test_one_is_used_again(self) -> None:
        first = apart.run_apart(server_of, onnx.ModelProto())
        assert apart.run_apart(server_of, onnx.ModelProto()) == first != os.getpid()

    def test_one_that_is_killed_while_it_waits_is_replaced(self) -> None:
        first = apart.run_apart(server_of, onnx.ModelProto())
        os.kill(first, signal.SIGKILL)
        fork_server._idle[0]._process.wait(20)
        assert apart.run_apart(server_of, onnx.ModelProto()) not in (first, os.getpid())

    def test_one_that_is_killed_at_work(self) -> None:
        with pytest.raises(OSError, match="^the process that looks at models was ended$"):
            apart.run_apart(kills_its_server, onnx.ModelProto())
        assert not fork_server._idle
        assert apart.run_apart(server_of, onnx.ModelProto())

    def test_threads_have_one_each(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            found = {*pool.map(lambda _: apart.run_apart(meets_others, onnx.ModelProto()), range(3))}
        assert len(found) == 3 == len(fork_server._idle)

    def test_a_fork_has_its_own(self) -> None:
        first = apart.run_apart(server_of, onnx.ModelProto())
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                fork = threading.Thread(target=time.sleep, args=[20], daemon=True)
                fork.start()
                os.write(writing, str(apart.run_apart(server_of, onnx.ModelProto())).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert int(os.read(reading, 20)) not in (first, os.getpid())
        assert apart.run_apart(server_of, onnx.ModelProto()) == first

    def test_the_environment_is_today_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for value in ("1", "2"):
            monkeypatch.setenv("NPUKIT_TEST_VALUE", value)
            assert apart.run_apart(environment_value, onnx.ModelProto()) == value


def kills_its_server(model: onnx.ModelProto, folder: Path) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1)


def meets_others(model: onnx.ModelProto, folder: Path) -> int:
    time.sleep(1)  # the others' work begins meanwhile
    return os.getppid()


def environment_value(model: onnx.ModelProto, folder: Path) -> str:
    return os.environ["NPUKIT_TEST_VALUE"]


@pytest.mark.usefixtures("beside")
def test_what_lies_in_the_working_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnx.py").write_text("raise SystemExit('this is not ONNX')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fork_server, "_idle", [])
    assert first_look(onnx.load_from_string(zoo.load("digits")))


@pytest.mark.usefixtures("importable")
def test_an_answer_that_cannot_be_written(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no crash of ONNX Runtime."""
    with pytest.raises(OSError, match=r"process that looks at the model ended with exit code 1(: IsADirectory.*)?$"):
        apart.run_apart(no_answer, onnx.ModelProto())


def no_answer(model: onnx.ModelProto, folder: Path) -> None:
    folder.joinpath("answer.json.half").mkdir()
