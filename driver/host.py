"""ONNX Runtime on the host: what the machine does not run, and the oracle of all integer arithmetic."""

import platform
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import onnx
import onnxruntime
from npukit.driver.weight_types import has_signed_activations, with_alike_weights
from numpy.typing import NDArray
from onnx import helper

__all__ = [
    "TFLITE",
    "HostError",
    "Transfers",
    "cpu_features",
    "host_part",
    "names_used",
    "open_session",
    "oracle_problem",
    "output_values",
    "overridable",
    "quantises",
    "quantized_tensors",
    "reference_model",
    "run_session",
    "run_session_on",
    "session_options",
]


TFLITE = "npukit.tflite"
"""The domain of nodes that are TFLite's operators."""
_SOURCE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |"
    r"/onnxruntime_src/\S+:\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])? "
)


class HostError(RuntimeError):
    """ONNX Runtime refuses a model, or fails while it runs; the message is its own, on one line."""


def session_options() -> onnxruntime.SessionOptions:
    """Options under which ONNX Runtime computes int8 QDQ graphs in integers, as the oracle does.

    Without `qdqisint8allowed` int8 convolutions run in float. Of two quantisations of one tensor,
    one behind the other, ONNX Runtime leaves out one, so that other values come out than the model says, and only where
    nobody looks at the tensor between them; `disable_double_qdq_remover` lets it compute both.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions, and need no second voice on stderr
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.add_session_config_entry("session.disable_double_qdq_remover", "1")
    return options


def open_session(
    model: onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    providers: Sequence[str] = ("CPUExecutionProvider",),
) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime, on the host's processor unless `providers` name others.

    Its sums of products are exact: on a processor without VNNI, weights have the type of their activations for it.

    Raises:
        HostError: when it refuses the model.
    """
    chosen = session_options() if options is None else options
    if "vnni" not in " ".join(cpu_features()):
        if not has_signed_activations(model):  # what is left, of operators that ONNX Runtime knows
            chosen.add_session_config_entry("session.x64quantprecision", "1")
        model = with_alike_weights(model)
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=list(providers))
    except Exception as error:  # ONNX Runtime raises many classes of its own
        raise HostError(_line(error)) from None


def run_session(
    session: onnxruntime.InferenceSession, names: Sequence[str], inputs: Mapping[str, NDArray]
) -> dict[str, NDArray]:
    """The values of those names.

    Raises:
        HostError: when ONNX Runtime stops with an error.
    """
    try:
        values: Sequence[Any] = session.run(list(names), dict(inputs))
    except Exception as error:  # as above
        raise HostError(f"ONNX Runtime stops: {_line(error)}") from None
    return dict(zip(names, values, strict=True))


@dataclass
class Transfers:
    """What is copied to and from another device's memory, in bytes, and for how long, in seconds."""

    moved: int = 0
    seconds: float = 0.0


def run_session_on(
    device: str, session: onnxruntime.InferenceSession, names: Sequence[str], inputs: Mapping[str, NDArray],
    transfers: Transfers,
) -> dict[str, NDArray]:  # fmt: skip
    """The values of those names, of a session that computes in a device's memory (`cuda`); what is copied there and
    back adds to `transfers`. What cannot be copied, as text, stays with ONNX Runtime, uncounted.

    Raises:
        HostError: when ONNX Runtime stops with an error.
    """
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs()) if value.name in {*inputs, *names}]
    if "tensor(string)" in kinds or any(array.dtype.kind not in "biuf" for array in inputs.values()):
        return run_session(session, names, inputs)
    try:
        start = perf_counter()
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
        for name in names:
            binding.bind_output(name, device, 0)
        binding.synchronize_inputs()
        there = perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        computed = perf_counter()
        values: Sequence[Any] = binding.copy_outputs_to_cpu()
        back = perf_counter()
    except Exception as error:  # as above
        raise HostError(f"ONNX Runtime stops: {_line(error)}") from None
    transfers.moved += sum(array.nbytes for array in (*inputs.values(), *values))
    transfers.seconds += (there - start) + (back - computed)
    return dict(zip(names, values, strict=True))


def _line(error: Exception) -> str:
    """An error on one line, without the places in C++ source that ONNX Runtime puts before its reason."""
    text = _SOURCE.sub("", " ".join(str(error).split()))
    return text if len(text) <= 300 else f"{text[:100]} ... {text[-200:]}"


def cpu_features() -> tuple[str, ...]:
    """The instruction set extensions that matter to quantised kernels, as Linux reports them."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        flags = []
    return tuple(flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni") if flag in flags)


def oracle_problem() -> str | None:
    """Why this host cannot be the oracle, or None."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"the reference arithmetic is ONNX Runtime's on x86-64; this host is {platform.machine()}"
    return None


def names_used(node: onnx.NodeProto) -> Iterator[str]:
    """A node's inputs, and what graphs inside of it take from the outside (and their own names)."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from names_used(inner)


def quantises(node: onnx.NodeProto) -> bool:
    """Whether a node writes numbers that it has quantised: a QuantizeLinear, or one of ONNX Runtime's operators on
    integers."""
    return node.op_type in ("QuantizeLinear", "QGemm") or node.op_type.startswith("QLinear")


_WHILE_RUNNING = ("ConvInteger", "DynamicQuantizeLinear", "MatMulInteger")
"""Operators of models that are quantised while they run, whose result is integers."""


def quantized_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of the activations that QuantizeLinear nodes and operators on integers write, in graph order, and that some
    output depends on; sums of integers among them. Of a TFLite model, of all activations."""
    needed = {value.name for value in model.graph.output}
    found = []
    for node in reversed(model.graph.node):
        if needed.isdisjoint(node.output):
            continue
        needed.update(names_used(node))
        if node.domain == TFLITE:
            found += reversed(node.output)
        elif quantises(node) or node.op_type in _WHILE_RUNNING:
            found.append(node.output[0])
    return found[::-1]


def reference_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """What the oracle runs: a copy of a model whose quantised tensors are all outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    outputs = {value.name for value in model.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in quantized_tensors(model) if name not in outputs)
    return copy


def output_values(session: onnxruntime.InferenceSession) -> dict[str, onnx.ValueInfoProto]:
    """The outputs of a session by name, with their element types and without shapes.

    Raises:
        HostError: for one that is no tensor.
    """
    found = {}
    for output in session.get_outputs():
        # ONNX Runtime calls it tensor(float)
        element = output.type.removeprefix("tensor(").removesuffix(")").upper()
        if element not in onnx.TensorProto.DataType.keys():
            raise HostError(f"{output.name} is a {output.type}; between parts of a model only tensors are supported")
        kind = onnx.TensorProto.DataType.Value(element)
        found[output.name] = helper.make_tensor_value_info(output.name, kind, None)
    return found


def overridable(model: onnx.ModelProto) -> set[str]:
    """Names of initializers that a caller may replace, so that ONNX Runtime does not take them for constants.

    They are listed as inputs as well; before version 4 of the IR all were, and meant nothing by it.
    """
    if model.ir_version < 4:
        return set()
    initializers = {tensor.name for tensor in model.graph.initializer}
    return {value.name for value in model.graph.input if value.name in initializers}


def host_part(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    wanted: Collection[str],
    values: Mapping[str, onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Some nodes of a model as a model of their own, whose outputs are those of `wanted` that they make.

    Its inputs are what the nodes use, do not make, and has an entry in `values`: a name inside of a nested graph alone
    has no value out here. An initializer that can be replaced stays one: as a constant it could be computed otherwise.
    """
    made = {name for node in nodes for name in node.output if name}
    used = {name for node in nodes for name in names_used(node)}
    initializers = [tensor for tensor in model.graph.initializer if tensor.name in used]
    constants = {tensor.name for tensor in initializers} - overridable(model)
    inputs = sorted(name for name in used - made - constants if name in values)
    outputs = sorted(made.intersection(wanted))
    graph = helper.make_graph(
        list(nodes),
        "host",
        [values[name] for name in inputs],
        [values.get(name, onnx.ValueInfoProto(name=name)) for name in outputs],
        initializers,
        value_info=[value for name, value in values.items() if name in made and name not in outputs],
    )
    return helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version, functions=list(model.functions)
    )
