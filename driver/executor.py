"""A compiled ONNX file, run: programs on the device, everything else in ONNX Runtime."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from npukit.driver.device import Device, Observable
from npukit.driver.first_look import CrashError, first_look
from npukit.driver.graph_check import GraphError, check_flow, check_inputs, check_program_memory, check_program_node
from npukit.driver.host import (
    HostError,
    Transfers,
    host_part,
    names_used,
    open_session,
    output_values,
    overridable,
    run_session,
    run_session_on,
)
from npukit.driver.loader import LoadedProgram, RunRecord, from_machine
from npukit.driver.tflite_host import DOMAIN, TfliteNode, look_at_tflite
from npukit.isa.limits import DEFAULT_LIMITS, Limits
from npukit.isa.program import Program, ProgramError, TensorInfo
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = ["ArtifactError", "Execution", "Executor", "InputError", "programs_of"]


class ArtifactError(ValueError):
    """A file that is not a compiled model, or a damaged one."""


class InputError(ValueError):
    """An input of the wrong name, shape or dtype."""


@dataclass
class Execution:
    """A run.

    Attributes:
        outputs: by name. records: of each program by its name. tensors: every integer tensor seen, if captured.
        host_seconds: of ONNX Runtime. write_seconds: of writing programs to the device.
        boundary: what went to and from the accelerator, and for how long it was laid out for it, or back.
        transfers: what went to and from the GPU, where ONNX Runtime computes on one.
    """

    outputs: dict[str, NDArray]
    records: dict[str, RunRecord] = field(default_factory=dict)
    tensors: dict[str, NDArray] = field(default_factory=dict)
    host_seconds: float = 0.0
    write_seconds: float = 0.0
    boundary: Transfers = field(default_factory=Transfers)
    transfers: Transfers = field(default_factory=Transfers)


def _blob(node: onnx.NodeProto) -> bytes:
    for attribute in node.attribute:
        if attribute.name == "ep_cache_context":
            return attribute.s
    raise ArtifactError(f"EPContext node {node.name} holds no program")


def programs_of(model: onnx.ModelProto) -> dict[str, Program]:
    """The programs of a compiled model by node name; empty for an ordinary model.

    Raises:
        ArtifactError: when a node is another tool's, or its program is damaged.
    """
    programs = {}
    for node in model.graph.node:
        if node.op_type != "EPContext":
            continue
        source = next((a.s for a in node.attribute if a.name == "source"), b"")
        if source != b"npukit":
            maker = source.decode(errors="replace") or "another tool"
            raise ArtifactError(f"EPContext node {node.name} was made by {maker}")
        if node.name in programs:
            raise ArtifactError(f"the compiled model is damaged: two EPContext nodes are called {node.name!r}")
        try:
            programs[node.name] = Program.from_bytes(_blob(node))
        except ProgramError as error:
            raise ArtifactError(f"EPContext node {node.name}: {error}") from None
    return programs


def _constant(tensor: onnx.TensorProto) -> NDArray:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:  # of its own, and numpy's
        raise ArtifactError(f"initializer {tensor.name} is damaged: {error}") from None


class _HostSegment:
    """Consecutive ordinary nodes, as an ONNX Runtime session of their own."""

    def __init__(
        self,
        model: onnx.ModelProto,
        nodes: Sequence[onnx.NodeProto],
        wanted: set[str],
        values: dict[str, onnx.ValueInfoProto],
        providers: Sequence[str],
        look: bool,
    ) -> None:
        part = host_part(model, nodes, wanted, values)
        defaults = overridable(part)
        self.inputs = [value.name for value in part.graph.input if value.name not in defaults]
        self.outputs = [value.name for value in part.graph.output]
        try:
            if look:
                first_look(part)
            self.session = open_session(part, None, providers)
            # shape inference does not know every operator
            values.update({name: value for name, value in output_values(self.session).items() if name not in values})
        except CrashError as error:
            raise ArtifactError(f"the part of the model that stays: {error}") from None
        except HostError as error:
            raise ArtifactError(f"ONNX Runtime refuses the part of the model that stays: {error}") from None

    def run(self, values: dict[str, NDArray], transfers: Transfers) -> None:
        """Add this segment's outputs to `values`, and what goes to and from a GPU to `transfers`."""
        given = {name: values[name] for name in self.inputs}
        if "CUDAExecutionProvider" in self.session.get_providers():
            values.update(run_session_on("cuda", self.session, self.outputs, given, transfers))
        else:
            values.update(run_session(self.session, self.outputs, given))


class _TfliteSegment:
    """A node that is one of TFLite's operators, in TensorFlow Lite Micro."""

    def __init__(self, node: onnx.NodeProto, values: Mapping[str, onnx.ValueInfoProto]) -> None:
        self.inputs, self.outputs = list(node.input), list(node.output)
        try:
            self._node = TfliteNode(node, values)
        except HostError as error:
            raise ArtifactError(f"the part of the model that stays: {error}") from None

    def run(self, values: dict[str, NDArray], transfers: Transfers) -> None:
        """Add its outputs to `values`; nothing goes to a GPU."""
        values.update(self._node.run(values))


class Executor:
    """A compiled model on a device, which it may share with others; threads may share the executor.

    `expose` names tensors of the host's part to show in captures; `providers` are ONNX Runtime's for that part; the
    validator holds the programs to `limits`, and does not look at them if these are None (see `LoadedProgram`); `look`:
    let ONNX Runtime see each host part in another process first, which a part of a model that it has seen does not
    need.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        device: Device,
        expose: frozenset[str] = frozenset(),
        providers: Sequence[str] = ("CPUExecutionProvider",),
        limits: Limits | None = DEFAULT_LIMITS,
        look: bool = True,
    ) -> None:
        self.device = device
        self._model = model
        initializers = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value for value in model.graph.input if value.name not in initializers]
        self.outputs = [value.name for value in model.graph.output]
        try:
            check_inputs(self.inputs)
        except GraphError as error:
            raise ArtifactError(str(error)) from None
        self._constants = {
            tensor.name: _constant(tensor) for tensor in model.graph.initializer if tensor.name in self.outputs
        }
        programs = programs_of(model)
        if limits is not None:
            try:
                check_program_memory(programs.values(), limits)
            except GraphError as error:
                raise ArtifactError(str(error)) from None
        graph = model.graph
        values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        wanted = {*self.outputs, *expose}
        wanted.update(name for node in graph.node if node.op_type == "EPContext" for name in node.input)
        self._expose = expose
        self._steps: list[_HostSegment | _TfliteSegment | tuple[onnx.NodeProto, LoadedProgram]] = []
        self._look_at_tflite(model)
        address = 0
        pending: list[onnx.NodeProto] = []

        def flush(rest: Sequence[onnx.NodeProto]) -> None:
            if pending:
                later = {name for node in rest for name in names_used(node)}
                self._steps.append(_HostSegment(model, tuple(pending), wanted | later, values, providers, look))
                pending.clear()

        for position, node in enumerate(graph.node):
            if node.domain == DOMAIN:
                flush(graph.node[position:])
                self._steps.append(_TfliteSegment(node, values))
                continue
            if node.op_type != "EPContext":
                pending.append(node)
                continue
            flush(graph.node[position:])
            try:
                check_program_node(node, programs[node.name], {value.name: value for value in graph.output})
            except GraphError as error:
                raise ArtifactError(f"the compiled model is damaged: {error}") from None
            loaded = LoadedProgram(device, programs[node.name], address, limits)
            address = loaded.end
            self._steps.append((node, loaded))
        flush(())
        self._check_flow()

    @staticmethod
    def _look_at_tflite(model: onnx.ModelProto) -> None:
        nodes = [node for node in model.graph.node if node.domain == DOMAIN]
        try:
            if nodes:
                look_at_tflite(model, nodes)
        except HostError as error:
            raise ArtifactError(f"the part of the model that stays: {error}") from None

    def _check_flow(self) -> None:
        parts = [
            ("a part that stays", step.inputs, step.outputs)
            if not isinstance(step, tuple)
            else (f"EPContext node {step[0].name}", step[0].input, step[0].output)
            for step in self._steps
        ]
        try:
            check_flow([*self._constants, *(value.name for value in self.inputs)], parts, self.outputs)
        except GraphError as error:
            raise ArtifactError(f"the compiled model is damaged: {error}") from None

    @property
    def programs(self) -> dict[str, Program]:
        """The programs by node name, in order of execution."""
        return {name: loaded.program for name, loaded in self.loaded.items()}

    @property
    def loaded(self) -> dict[str, LoadedProgram]:
        """The same as they lie in the device's memory."""
        return {step[0].name: step[1] for step in self._steps if isinstance(step, tuple)}

    def check_input(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Refuse an input by what is known before its values are.

        Raises:
            InputError: of the wrong name, dtype or shape.
        """
        value = next((one for one in self.inputs if one.name == name), None)
        if value is None:
            raise InputError(f"the model has the inputs {', '.join(one.name for one in self.inputs)}, not {name!r}")
        tensor = value.type.tensor_type
        wanted = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype != wanted and not (wanted == np.float32 and dtype == ml_dtypes.bfloat16):
            raise InputError(f"input {name} must be {wanted}, not {dtype}")
        sizes = tuple(dim.dim_value for dim in tensor.shape.dim)
        if shape != sizes:
            raise InputError(f"input {name} must have the shape {list(sizes)}, not {list(shape)}")

    def _checked(self, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        for name, array in arrays.items():
            self.check_input(name, array.dtype, array.shape)
        for value in self.inputs:
            if value.name not in arrays:
                raise InputError(f"input {value.name} is missing")
        floats = {value.name for value in self.inputs if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
        # bfloat16: of a model whose tensors were widened alike
        return {
            name: array.astype(np.float32, copy=False) if name in floats else array for name, array in arrays.items()
        }

    def run(self, inputs: Mapping[str, NDArray], capture: bool = False) -> Execution:
        """Run once.

        Raises:
            InputError: an input of the wrong name, shape or dtype.
            DeviceError: what the device reports.
            HostError: what ONNX Runtime reports.
        """
        # each run gives away arrays of its own
        values = {**{name: array.copy() for name, array in self._constants.items()}, **self._checked(inputs)}
        result = Execution({})
        for step in self._steps:
            if not isinstance(step, tuple):
                start = perf_counter()
                step.run(values, result.transfers)
                result.host_seconds += perf_counter() - start
                continue
            node, loaded = step
            for tensor in loaded.program.tensors:
                if tensor.role == "input":
                    _check_value(node, tensor, values[tensor.name])
            given = {name: values[name] for name in node.input}
            with self.device.exclusive():
                # whatever was done with the device before: another program, half of this one, or an error
                start = perf_counter()
                self.device.reset()
                loaded.load()
                result.write_seconds += perf_counter() - start
                outputs, result.records[node.name], tensors = self._run_program(loaded, given, capture)
            values.update(outputs)
            result.tensors.update(tensors)
            result.boundary.moved += sum(values[name].nbytes for name in (*node.input, *node.output))
            result.boundary.seconds += result.records[node.name].seconds_host
        result.outputs = {name: values[name] for name in self.outputs}
        if capture:
            result.tensors.update({name: values[name] for name in self._expose if name in values})
        return result

    def _run_program(
        self, loaded: LoadedProgram, inputs: Mapping[str, NDArray], capture: bool
    ) -> tuple[dict[str, NDArray], RunRecord, dict[str, NDArray]]:
        """Outputs, record, and the captured tensors; a device that shows nothing of its insides has none."""
        if not capture or not isinstance(self.device, Observable):
            return (*loaded.run(inputs), {})
        watch = _Capture(loaded.program, self.device)
        try:
            outputs, record = loaded.run(inputs)
        finally:
            self.device.observer = None
        return outputs, record, watch.finish()


def _check_value(node: onnx.NodeProto, tensor: TensorInfo, value: NDArray) -> None:
    if value.shape != tensor.shape:
        raise InputError(
            f"{tensor.name} has the shape {list(value.shape)} when it runs, and {list(tensor.shape)} by ONNX's shape "
            f"inference, for which {node.name} is compiled"
        )
    if value.dtype != np.dtype(tensor.dtype):
        raise InputError(f"{tensor.name} is {value.dtype} when it runs, and {node.name} is compiled for {tensor.dtype}")


class _Capture:
    """Collects every quantised tensor where VECTOR writes it."""

    def __init__(self, program: Program, device: Observable) -> None:
        self.program = program
        lanes, element = program.config.array, program.config.activation.storage
        self.images: dict[str, NDArray] = {}
        self.layouts = {name: tensor.layout(program.config) for name, tensor in program.captured.items()}
        for name, tensor in program.captured.items():
            if tensor.source == name:
                self.images[name] = np.zeros((self.layouts[name].elements // lanes, lanes), element)
        self.captures = {capture.instruction: capture for capture in program.captures}
        device.observer = self._observe

    def _observe(self, index: int, instruction: Any, read: Callable[[], NDArray]) -> None:
        capture = self.captures.get(index)
        if capture is None:
            return
        self.images[capture.tensor][capture.words(instruction)] = read()

    def finish(self) -> dict[str, NDArray]:
        """The tensors by name, in the framework's shape and dtype."""
        found = {}
        for name, tensor in self.program.captured.items():
            values = self.layouts[name].from_dram(self.images[tensor.source].reshape(-1))
            found[name] = from_machine(values, tensor.dtype, tensor.shape)
        return found
