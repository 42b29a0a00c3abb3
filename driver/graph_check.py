"""What the graph of a compiled model has to be, so that its parts fit: each reads only what there is by then.

ONNX Runtime checks the parts that stay by themselves, and `npukit.isa.program` each program; between them nobody does.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
import onnx
from npukit.isa.limits import Limits
from npukit.isa.program import Program, TensorInfo
from onnx import helper

__all__ = [
    "GraphError", "check_flow", "check_input_memory", "check_inputs", "check_program_memory", "check_program_node",
]  # fmt: skip


class GraphError(ValueError):
    """A compiled model whose parts do not fit; the message says which."""


_KNOWN = frozenset(helper.get_all_tensor_dtypes())


def _element(value: onnx.ValueInfoProto) -> int | None:
    """The element type, if it is a tensor's and one that this ONNX knows."""
    tensor = value.type.tensor_type
    return tensor.elem_type if value.type.HasField("tensor_type") and tensor.elem_type in _KNOWN else None


def check_inputs(inputs: Sequence[onnx.ValueInfoProto]) -> None:
    """
    Raises:
        GraphError: an input that is no tensor of known type and fixed shape, or is there twice.
    """
    names: set[str] = set()
    for value in inputs:
        if _element(value) is None:
            raise GraphError(f"input {value.name} is no tensor of a type that is known")
        if value.name in names or not value.name:
            raise GraphError(f"the input {value.name!r} is there twice, or has no name")
        names.add(value.name)
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if any(dim < 1 for dim in dims):
            raise GraphError(f"input {value.name} has the shape {dims}; every dimension must be a fixed number above 0")


def check_input_memory(inputs: Sequence[onnx.ValueInfoProto], limits: Limits) -> None:
    """Hold inputs, which `check_inputs` has seen, to a limit before anything is made for them.

    Raises:
        GraphError: when they take more host memory all together.
    """
    size = 0
    for value in inputs:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        size += prod(dims) * np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)).itemsize
    if size > limits.memory:
        raise GraphError(
            f"the model's inputs take {-(-size >> 20)} MiB of host memory, above the limit of {limits.memory >> 20} "
            "MiB: raise it with --max-memory, or Limits(memory=...)"
        )


def check_program_memory(programs: Iterable[Program], limits: Limits) -> None:
    """Hold the programs of a model, which are on the device together, to a limit. The validator looks at each by
    itself.

    Raises:
        GraphError: when they take more host memory all together.
    """
    sizes = [program.host_bytes for program in programs]
    if len(sizes) > 1 and sum(sizes) > limits.memory:
        raise GraphError(
            f"the model's {len(sizes)} programs take {-(-sum(sizes) >> 20)} MiB of host memory together, above the "
            f"limit of {limits.memory >> 20} MiB: raise it with --max-memory, or Limits(memory=...)"
        )


def check_program_node(node: onnx.NodeProto, program: Program, outputs: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Compare an EPContext node with its program; `outputs` are the graph's.

    Raises:
        GraphError: other inputs or outputs than the program's, or an output that is declared as something else.
    """
    for what, names, role in (("inputs", node.input, "input"), ("outputs", node.output, "output")):
        wanted = [tensor.name for tensor in program.tensors if tensor.role == role]
        if sorted(names) != sorted(wanted):
            raise GraphError(
                f"EPContext node {node.name} has the {what} {', '.join(names)}, its program {', '.join(wanted)}"
            )
    for tensor in program.tensors:
        if tensor.role == "output" and tensor.name in outputs:
            _check_output(node, tensor, outputs[tensor.name])


def _check_output(node: onnx.NodeProto, tensor: TensorInfo, value: onnx.ValueInfoProto) -> None:
    element = _element(value)
    if element is None or helper.tensor_dtype_to_np_dtype(element) != np.dtype(tensor.dtype):
        raise GraphError(
            f"output {tensor.name} is {tensor.dtype} by the program of {node.name}, and declared otherwise"
        )
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if value.type.tensor_type.HasField("shape") and 0 not in dims and dims != list(tensor.shape):
        raise GraphError(
            f"output {tensor.name} has the shape {list(tensor.shape)} by the program of {node.name}, not {dims}"
        )


Part = tuple[str, Iterable[str], Iterable[str]]


def check_flow(known: Iterable[str], parts: Iterable[Part], outputs: Iterable[str]) -> None:
    """Follow the values through a model; each part has a name, what it reads, and what it makes.

    Raises:
        GraphError: a value that is read before it is there, made twice, or an output that nothing makes, or is there
            twice.
    """
    there = set(known)
    for part, reads, makes in parts:
        for name in reads:
            if name not in there:
                raise GraphError(f"{part} reads {name}, which nothing before it makes")
        for name in makes:
            if name in there:
                raise GraphError(f"{part} makes {name}, which is there already")
            there.add(name)
    seen: set[str] = set()
    for name in outputs:
        if name not in there:
            raise GraphError(f"nothing makes the output {name}")
        if name in seen:
            raise GraphError(f"the output {name!r} is there twice")
        seen.add(name)
