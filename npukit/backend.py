"""ONNX's backend interface: `npukit.backend.prepare(model).run(inputs)`, as other runtimes have it.

What ONNX calls the device, `CPU` or `CUDA`, is where the nodes run that the accelerator cannot: the kit's fallback. The
accelerator itself is an option (`accelerator="sim"`), like everything else that `Session` takes.

ONNX's models may hold more than the kit's front end takes: sequences as inputs, tensors without elements. ONNX Runtime
then runs the whole model, and `BackendRep.refusal` says why.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep, namedtupledict

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.importer import load_model
from npukit.compiler.frontends.onnx.offload import Offload
from npukit.driver.executor import ArtifactError
from npukit.driver.first_look import first_look
from npukit.driver.host import HostError, open_session, run_session
from npukit.errors import UsageError
from npukit.loaded import CUDA, providers_of
from npukit.session import Session

__all__ = ["NpukitBackend", "NpukitRep", "is_compatible", "prepare", "run", "run_node", "supports_device"]

KEPT = 8
"""Sets of open shapes for which is kept what was compiled, or that nothing was; the oldest goes first."""
_OPTIONS = ("config", "accelerator", "dram", "min_macs", "optimize", "limits")


class NpukitRep(BackendRep):
    """A model that is ready to run. Of one whose inputs have open shapes, each set of shapes is compiled when it is
    first seen.

    Attributes:
        offload: what runs on the accelerator, and why the rest does not; None before shapes are known, and of a model
            that ONNX Runtime runs alone.
        floating: whether the accelerator rounds to bfloat16.
        refusal: why ONNX Runtime runs the whole model, or None.
    """

    def __init__(self, model: onnx.ModelProto, fallback: str, options: Mapping[str, Any]) -> None:
        self._model, self._fallback = model, fallback
        self._options = dict(options)
        self._device = self._options.pop("accelerator", "sim")
        constants = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [value for value in model.graph.input if value.name not in constants]
        self._outputs = [value.name for value in model.graph.output]
        self._sessions: OrderedDict[tuple[tuple[int, ...], ...], Session | None] = OrderedDict()
        """By shapes; None where ONNX Runtime runs the whole model."""
        self._whole: onnxruntime.InferenceSession | None = None
        self.floating = False
        self.offload: Offload | None = None
        self.refusal: str | None = None
        if not any(map(_is_open, self._inputs)):
            self._open({})

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run once.

        Args:
            inputs: arrays in the order of the model's inputs, or by their names; of a model with one input, the array.
            **kwargs: there are none; ONNX's interface has them.

        Returns:
            The outputs, in the model's order, and by their names.

        Raises:
            UsageError: not as many as the model has inputs, or an option.
            CompileError, ConfigError: of a model with open shapes, which is compiled now.
            InputError, DeviceError, HostError: as `Session.run`.
        """
        if kwargs:
            raise UsageError(f"run takes inputs alone, not {', '.join(kwargs)}")
        given = self._named(inputs)
        shapes = {value.name: _shape(value, given[value.name]) for value in self._inputs if _is_open(value)}
        key = tuple(shapes.values())
        session = self._sessions[key] if key in self._sessions else self._open(shapes)
        if session is None:
            assert self._whole is not None
            self.offload = None
            values = run_session(self._whole, self._outputs, given)
        else:
            self.offload, self.refusal = session.offload, None
            values = session.run(given)
        return namedtupledict("Outputs", self._outputs)(*(values[name] for name in self._outputs))

    def close(self) -> None:
        """Free what the model holds."""
        while self._sessions:
            self._forget()

    def _forget(self) -> None:
        """Give up what was made for the oldest shapes."""
        _, session = self._sessions.popitem(last=False)
        if session is not None:
            session.close()

    def _named(self, inputs: Any) -> dict[str, Any]:
        names = [value.name for value in self._inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise UsageError(f"the model has the inputs {', '.join(names)}, not {', '.join(map(str, inputs))}")
            return dict(inputs)
        values: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(names):
            raise UsageError(f"the model has {len(names)} inputs ({', '.join(names)}), not {len(values)}")
        return dict(zip(names, values, strict=True))

    def _open(self, shapes: Mapping[str, tuple[int, ...]]) -> Session | None:
        """A session for these shapes, or None, with ONNX Runtime's for the whole model in its place."""
        try:
            session = Session(
                self._model, device=self._device, fallback=self._fallback,
                shapes=dict(shapes) or None, **self._options,
            )  # fmt: skip
        except (ModelError, ArtifactError) as error:
            self.refusal, self.offload = str(error), None
            try:
                if self._whole is None:
                    first_look(self._model)
                    self._whole = open_session(self._model, None, providers_of(self._fallback))
            except HostError as host:
                raise ModelError(f"{error}; ONNX Runtime refuses it as well: {host}") from None
            session = None
        while len(self._sessions) >= KEPT:
            self._forget()
        self._sessions[tuple(shapes.values())] = session
        if session is not None:
            self.offload, self.floating = session.offload, session.config.activation.floating
        return session


def _is_open(value: onnx.ValueInfoProto) -> bool:
    if not value.type.HasField("tensor_type"):
        return False
    tensor = value.type.tensor_type
    return not tensor.HasField("shape") or any(
        not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim
    )


def _shape(value: onnx.ValueInfoProto, array: Any) -> tuple[int, ...]:
    """The shape of what is given for an input.

    Raises:
        UsageError: it is no array, or has not as many dimensions as the model says.
    """
    tensor = value.type.tensor_type
    try:
        shape = np.shape(array)
    except ValueError:
        raise UsageError(f"input {value.name} is no array: its rows have different lengths") from None
    if array is None or (tensor.HasField("shape") and len(shape) != len(tensor.shape.dim)):
        given = "nothing" if array is None else list(shape)
        raise UsageError(f"input {value.name} has {len(tensor.shape.dim)} dimensions; given is {given}")
    return shape


class NpukitBackend(Backend):
    """npukit by ONNX's interface, an optional part of ONNX (`onnx.backend.base`)."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the fallback can run there: `CPU`, or `CUDA` with ONNX Runtime's build for it."""
        kind = device.partition(":")[0]
        return kind == "CPU" or (kind == "CUDA" and CUDA in onnxruntime.get_available_providers())

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` would take the model. It is compiled to find out."""
        try:
            cls.prepare(model, device, **kwargs)
        except (ValueError, RuntimeError):  # of which all of the kit's own errors are
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto | bytes | str | Path, device: str = "CPU", **kwargs: Any) -> NpukitRep:
        """Compile a model.

        Args:
            model: a proto, its bytes, or a path; its nodes run on the accelerator where it can run them.
            device: where the others run: `CPU` or `CUDA`.
            **kwargs: `accelerator`, which is `sim`, `rtl`, or an object with the device protocol; and of `Session`:
                `config`, `dram`, `min_macs`, `optimize`, `limits`.

        Raises:
            UsageError: another option or device.
            ConfigError, CompileError, HostError: as `Session`.
        """
        unknown = [name for name in kwargs if name not in _OPTIONS]
        if unknown:
            raise UsageError(f"the options are {', '.join(_OPTIONS)}, not {', '.join(unknown)}")
        kind = device.partition(":")[0]
        if kind not in ("CPU", "CUDA"):
            raise UsageError(f"the devices are CPU and CUDA, on which the fallback runs, not {device}")
        if not isinstance(model, onnx.ModelProto | bytes | str | Path):
            raise UsageError(f"a model is a ModelProto, its bytes, or a path, not {type(model).__name__}")
        fallback = kind.lower()
        providers_of(fallback)
        return NpukitRep(load_model(model), fallback, kwargs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None, **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Run a node as a model of its own.

        Args:
            node: whose inputs are all given.
            inputs: arrays in the order of the node's inputs, or by their names.
            device: where it runs if the accelerator cannot run it.
            outputs_info: dtype and shape of each output, where ONNX cannot infer them.
            **kwargs: `opset_version`, by default the newest that ONNX has released, and the options of `prepare`.
        """
        given = _by_name([name for name in node.input if name], inputs)
        results = [name for name in node.output if name]
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        if outputs_info is not None:
            if len(outputs_info) != len(results):
                raise UsageError(f"the node has {len(results)} outputs, and outputs_info {len(outputs_info)}")
            outputs = [_value(name, *info) for name, info in zip(results, outputs_info, strict=True)]
        graph = onnx.helper.make_graph(
            [node], "node", [_value(name, one.dtype, one.shape) for name, one in given.items()], outputs
        )
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        domains = [onnx.helper.make_opsetid("", opset)]
        if node.domain:
            domains.append(onnx.helper.make_opsetid(node.domain, 1))
        model = onnx.helper.make_model(graph, opset_imports=domains)
        with suppress(onnx.shape_inference.InferenceError):  # then ONNX Runtime says what is wrong with it
            model = onnx.shape_inference.infer_shapes(model)
        return cls.prepare(model, device, **kwargs).run(given)


def _by_name(names: Sequence[str], inputs: Any) -> dict[str, NDArray]:
    """What is given for the inputs of a node, of which one may come twice."""
    if isinstance(inputs, Mapping):
        missing = [name for name in names if name not in inputs]
        if missing:
            raise UsageError(f"the node has the input {missing[0]}, which is not given")
        return {name: np.asarray(inputs[name]) for name in names}
    values: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
    if len(values) != len(names):
        raise UsageError(f"the node has {len(names)} inputs ({', '.join(names)}), not {len(values)}")
    return {name: np.asarray(one) for name, one in zip(names, values, strict=True)}


def _value(name: str, dtype: np.dtype, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


is_compatible = NpukitBackend.is_compatible
prepare = NpukitBackend.prepare
run = NpukitBackend.run_model
run_node = NpukitBackend.run_node
supports_device = NpukitBackend.supports_device
