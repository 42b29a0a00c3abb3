"""ONNX Runtime's first look at a model, in a process of its own: it crashes on some, and must not take this one along.

What is seen there serves as well: which operators the model comes to once ONNX Runtime has optimised it.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import onnx
import onnxruntime
from npukit.driver.host import HostError, open_session, session_options

__all__ = ["CrashError", "first_look", "optimise"]

_MODEL, _OPTIMISED, _ANSWER = "model.onnx", "optimised.onnx", "answer.json"


class CrashError(HostError):
    """ONNX Runtime ends the process that it runs in."""


def first_look(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> operator that writes it, over ONNX Runtime's optimised graph of a model.

    The process is a fork of this one, or, where other threads are at work beside, whose locks a fork would find taken
    for ever, a new one, which takes half a second longer.

    Raises:
        HostError: when ONNX Runtime refuses the model.
        CrashError: when it crashes on it.
    """
    with tempfile.TemporaryDirectory(prefix="npukit-look-") as name:
        folder = Path(name)
        alone = hasattr(os, "fork") and threading.active_count() == 1
        status = _in_fork(model, folder) if alone else _in_new_process(model, folder)
        try:
            answer = json.loads((folder / _ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise CrashError(f"ONNX Runtime crashes on the model ({_reason(status)})") from None
    if answer["error"] is not None:
        raise HostError(answer["error"])
    return answer["operators"]


def optimise(model: onnx.ModelProto, folder: Path) -> tuple[dict[str, str], onnxruntime.InferenceSession]:
    """The same in this process, and the session; `folder` takes the optimised model.

    Raises:
        HostError: when ONNX Runtime refuses the model.
    """
    options = session_options()
    # the extended level has all fusions; the layout level above it only renames tensors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / _OPTIMISED)
    session = open_session(model, options)
    graph = onnx.load(folder / _OPTIMISED, load_external_data=False).graph
    return {name: node.op_type for node in graph.node for name in node.output if name}, session


def _answer(model: onnx.ModelProto, folder: Path) -> None:
    """What the other process does; its answer is a file, which is there whole or not at all."""
    operators, error = {}, None
    try:
        operators, _ = optimise(model, folder)
    except HostError as refusal:
        error = str(refusal)
    half = folder / f"{_ANSWER}.half"
    half.write_text(json.dumps({"operators": operators, "error": error}), encoding="utf-8")
    half.rename(folder / _ANSWER)


def _in_fork(model: onnx.ModelProto, folder: Path) -> int:
    """Answer in a fork; its status as `subprocess` states it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # what they take back is the parent's
            faulthandler.disable()  # a crash here is an answer, too
            _answer(model, folder)
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's is closed or written here
    try:
        return _status_of(child)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _status_of(child)
        raise


def _status_of(child: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # whoever started this process lets the system take its children
        return 0


def _in_new_process(model: onnx.ModelProto, folder: Path) -> int:
    (folder / _MODEL).write_bytes(model.SerializeToString())
    return subprocess.run(
        [sys.executable, "-c", "from npukit.driver.first_look import main; main()", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode


def _reason(status: int) -> str:
    known = {number.value: number.name for number in signal.Signals}
    return known.get(-status, f"exit code {status}")


def main() -> None:
    """What a new process does; its argument is the folder."""
    folder = Path(sys.argv[1])
    _answer(onnx.load(folder / _MODEL, load_external_data=False), folder)
