"""A graph as text, which `parse_graph` reads."""

import base64
import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields
from typing import Any

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import Depth, TensorOperation, attributes_of, operands_of
from npukit.compiler.ir.tensor import Tensor

__all__ = ["print_graph"]


def print_graph(graph: Graph, *, data: bool = True) -> str:
    """A graph as text: a line for each input, constant, operation and output.

    Args:
        graph: what to print.
        data: with the elements of constants behind the graph, in base64; whoever reads it without has to know them.
    """
    return "\n".join([*_lines(graph), *(_data(graph) if data else ())]) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    yield f"graph {_text(graph.name)} {{"
    for name in graph.inputs:
        yield f"  input {_text(name)}: {_type(graph.tensors[name])}"
    for name, constant in graph.constants.items():
        yield f"  constant {_text(name)}: {_type(constant.tensor)}"
    made = set(graph.inputs)
    for operation in graph.operations:
        yield "  " + _operation(operation, graph.tensors[operation.output])
        made.add(operation.output)
    for name, tensor in graph.tensors.items():  # which lie in another's memory
        if name not in made:
            yield f"  alias {_text(name)}: {_type(tensor)}"
    for group in graph.groups:
        yield f"  group {', '.join(map(_text, group))}"
    for name in graph.outputs:
        yield f"  output {_text(name)}"
    yield "}"


def _operation(operation: TensorOperation, result: Tensor) -> str:
    kind = type(operation)
    given = [(name, getattr(operation, name)) for name in operands_of(kind)]
    operands = ", ".join(f"{name}={_text(value)}" for name, value in given if value is not None)
    defaults = {one.name: one.default for one in fields(kind) if one.default is not MISSING}
    values = {name: getattr(operation, name) for name in attributes_of(kind)}
    attributes = {
        name: asdict(value) if isinstance(value, Depth) else value
        for name, value in values.items()
        if name not in defaults or value != defaults[name]
    }
    sources = ", ".join(f"{_text(one.op)} {_text(one.name)}" for one in operation.sources)
    return (
        f"{_text(operation.output)} = {operation.mnemonic}({operands})"
        + (f" {_text(attributes)}" if attributes else "")
        + f": {_type(result)} from {sources}"
    )


def _type(tensor: Tensor) -> str:
    found = f"{tensor.format.name}{_text(tensor.shape)}"
    if tensor.quantization is not None:
        found += f" quantized {_text(_without_none(vars(tensor.quantization)))}"
    if tensor.channel_axis != 1:
        found += f" channels {_text(tensor.channel_axis)}"
    if tensor.layout is not None:
        found += f" layout {_text(_without_none(asdict(tensor.layout)))}"
    return found


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _data(graph: Graph) -> Iterator[str]:
    for name, constant in graph.constants.items():
        yield f"data {_text(name)} = {_text(base64.b64encode(constant.data.tobytes()).decode())}"


def _text(value: Any) -> str:
    """JSON, in which all names, numbers and attributes are written."""
    return json.dumps(value, ensure_ascii=False)
