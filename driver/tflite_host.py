"""TensorFlow Lite Micro on the host: operators of TFLite models that the machine does not run, and what these models
are compared with."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np
import onnx
from npukit.driver.apart import Crash, run_apart
from npukit.driver.host import TFLITE, HostError
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = [
    "ATTRIBUTE",
    "DOMAIN",
    "FILE",
    "TfliteNode",
    "TfliteReference",
    "is_tflite",
    "look_at_tflite",
]

DOMAIN = TFLITE
ATTRIBUTE = "model"
"""Of such a node: a TFLite model of it alone."""
FILE = "npukit.tflite.file"
"""The initializer that holds the file from which a graph was made."""

_ARENA = 1 << 20
"""Bytes of memory for what an interpreter keeps besides tensors."""
_COPIES = 4
"""As many times what tensors take, for kernels that work on copies of them."""
_MOST_BYTES = 1 << 28
_one_at_a_time = threading.RLock()


def is_tflite(model: onnx.ModelProto) -> bool:
    """Whether a graph was made of a TFLite file."""
    return any(tensor.name == FILE for tensor in model.graph.initializer)


class _Interpreter:
    """A TFLite model in TensorFlow Lite Micro's interpreter.

    Args:
        data: the file.
        tensor_bytes: of all of its activations.

    Raises:
        HostError: the package is missing, or the interpreter refuses the model.
    """

    def __init__(self, data: bytes, tensor_bytes: int) -> None:
        try:
            from tflite_micro import runtime
        except ImportError as error:
            raise HostError(
                f"operators of TFLite models on the host, and comparisons with them, need the package {error.name}, "
                "which there is for Linux on x86-64: pip install 'npukit[tflite]'"
            ) from None
        if tensor_bytes > _MOST_BYTES:
            raise HostError(
                f"its tensors take {tensor_bytes} bytes; on the host, TensorFlow Lite Micro gets {_MOST_BYTES} at most"
            )
        arena = _ARENA + len(data) + _COPIES * tensor_bytes
        with _explained("refuses the model"):
            self._interpreter = runtime.Interpreter.from_bytes(
                data, arena_size=arena, intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors
            )

    def run(self, inputs: Sequence[NDArray], outputs: int) -> list[NDArray]:
        """The first so many outputs. Raises HostError when the interpreter stops."""
        with _explained("stops"):
            for index, array in enumerate(inputs):
                self._interpreter.set_input(np.ascontiguousarray(array), index)
            self._interpreter.invoke()
            return [np.array(self._interpreter.get_output(index)) for index in range(outputs)]

    def tensor(self, index: int) -> NDArray:
        """What a tensor of the model held at the end of the last run."""
        return np.array(self._interpreter.GetTensor(index, 0)["tensor_data"])


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Make one error of what is raised and of what is written to stderr meanwhile, where the interpreter, in C++, says
    why; so one thread at a time works with it.

    Raises:
        HostError: for any exception.
    """
    with _one_at_a_time:
        problem: Exception | None = None
        kept = os.dup(2)
        # no pipe: a process that another thread starts meanwhile would hold its end
        with tempfile.TemporaryFile() as file:
            try:
                os.dup2(file.fileno(), 2)
                try:
                    yield
                except Exception as error:  # RuntimeError as a rule, and what reading a damaged model raises
                    problem = error
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            file.seek(0)
            said = file.read(1 << 16).decode(errors="replace")
        if problem is not None:
            text = " ".join(f"{said} {problem}".split())
            short = text if len(text) <= 300 else f"{text[:100]} ... {text[-200:]}"
            raise HostError(f"TensorFlow Lite Micro {what}: {short}") from None


def _bytes_of(values: Mapping[str, onnx.ValueInfoProto], names: Sequence[str]) -> int:
    """Of tensors whose shapes are known."""
    found = 0
    for name in names:
        kind = values[name].type.tensor_type
        item = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).itemsize
        found += item * prod(dim.dim_value for dim in kind.shape.dim)
    return found


def _values(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    graph = model.graph
    return {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}


class TfliteNode:
    """One of TFLite's operators, run by itself.

    Raises:
        HostError: the package is missing, or the interpreter refuses the operator.
    """

    def __init__(self, node: onnx.NodeProto, values: Mapping[str, onnx.ValueInfoProto]) -> None:
        self.inputs, self.outputs = list(node.input), list(node.output)
        self._name = f"{node.op_type} {node.name}"
        try:
            tensor = next(one.t for one in node.attribute if one.name == ATTRIBUTE)
            data, size = numpy_helper.to_array(tensor).tobytes(), _bytes_of(values, [*self.inputs, *self.outputs])
        except (StopIteration, KeyError, ValueError, TypeError):
            raise HostError(f"{self._name} is damaged") from None
        try:
            self._interpreter = _Interpreter(data, size)
        except HostError as error:
            raise HostError(f"{self._name}: {error}") from None

    def run(self, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Its outputs by name. Raises HostError when the interpreter stops."""
        try:
            found = self._interpreter.run([inputs[name] for name in self.inputs], len(self.outputs))
        except HostError as error:
            raise HostError(f"{self._name}: {error}") from None
        return dict(zip(self.outputs, found, strict=True))


class TfliteReference:
    """A whole TFLite file, run by TensorFlow Lite Micro.

    Args:
        model: the graph that was made of it.

    Raises:
        HostError: the package is missing, the interpreter refuses the model, or crashes on it.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        _look_apart(_look_at_file, model)
        self.inputs = [value.name for value in model.graph.input]
        self.outputs = [value.name for value in model.graph.output]
        self._interpreter = _of_file(model)

    def run(self, inputs: Mapping[str, NDArray], tensors: Mapping[str, int]) -> dict[str, NDArray]:
        """Outputs, and tensors of which the numbers in the file are given, by name.

        Raises:
            HostError: when the interpreter stops.
        """
        with _one_at_a_time:  # until all that this run has made is read
            found = self._interpreter.run([inputs[name] for name in self.inputs], len(self.outputs))
            shown = {name: self._interpreter.tensor(index) for name, index in tensors.items()}
        return {**shown, **dict(zip(self.outputs, found, strict=True))}


def look_at_tflite(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Run operators once in another process: the interpreter may crash on some.

    Raises:
        HostError: the package is missing, the interpreter refuses one, or crashes.
    """
    used = {name for node in nodes for name in (*node.input, *node.output)}
    values = [value for name, value in _values(model).items() if name in used]
    _look_apart(_look, helper.make_model(helper.make_graph(list(nodes), "host", [], [], value_info=values)))


def _look_apart(look: Callable[[onnx.ModelProto, Path], str], model: onnx.ModelProto) -> None:
    try:
        problem = run_apart(look, model)
    except Crash as crash:
        raise HostError(f"TensorFlow Lite Micro crashes on the model ({crash})") from None
    if problem:
        raise HostError(problem)


def _look(part: onnx.ModelProto, _folder: Path) -> str:
    """What is wrong with the nodes of a model, or ""."""
    values = _values(part)
    try:
        for node in part.graph.node:
            TfliteNode(node, values).run({name: _zeros(values[name]) for name in node.input})
    except HostError as error:
        return str(error)
    except (KeyError, ValueError, TypeError, IndexError):
        return f"{node.op_type} {node.name} is damaged"
    return ""


def _look_at_file(model: onnx.ModelProto, _folder: Path) -> str:
    """What is wrong with the file from which a graph was made, or ""."""
    try:
        _of_file(model).run([_zeros(value) for value in model.graph.input], len(model.graph.output))
    except HostError as error:
        return str(error)
    return ""


def _of_file(model: onnx.ModelProto) -> _Interpreter:
    data = next(one for one in model.graph.initializer if one.name == FILE)
    values = _values(model)
    return _Interpreter(numpy_helper.to_array(data).tobytes(), _bytes_of(values, [*values]))


def _zeros(value: onnx.ValueInfoProto) -> NDArray:
    kind = value.type.tensor_type
    return np.zeros([dim.dim_value for dim in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type))
