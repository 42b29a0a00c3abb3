"""Tables of functions of one element. ONNX Runtime computes those of all chains of a model in one session."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from npukit.compiler.errors import Refused
from npukit.compiler.ir.names import free_name
from npukit.compiler.ir.tensor import Constant, Tensor
from npukit.driver.host import HostError, open_session, run_session
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = ["Chain", "Table", "entries_of", "requantising_table", "table_constant", "tables_of"]

_POSITIONS = 67
"""Elements of a tensor that fills vectors of every width and leaves some over."""


@dataclass(frozen=True)
class Chain:
    """Operators between two quantised tensors that are a function of one element.

    Attributes:
        nodes: in an order in which they can be computed.
        constants: that they read, by name; each of one element.
        source, target: names of what they read, and of what they make.
        x, y: the descriptions of those two.
    """

    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, NDArray]
    source: str
    target: str
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Table:
    """What ONNX Runtime makes of each value that a chain's source can have.

    Attributes:
        entries: the results, uint8 or int8 [256], in the order of `x.format.stored`; None if there are none.
        problem: ONNX Runtime's words, where it refuses the chain.
        unsteady: a value whose result depends on its place in the tensor, if there is one: ONNX Runtime's vector
            kernels and what is left over behind them may differ in the last place.
    """

    entries: NDArray | None
    problem: str = ""
    unsteady: int | None = None


def entries_of(table: Table) -> NDArray:
    """A table's entries.

    Raises:
        Refused: when ONNX Runtime makes none, or none that holds everywhere.
    """
    if table.entries is None:
        raise Refused(f"ONNX Runtime cannot make its table: {table.problem}")
    if table.unsteady is not None:
        value = table.unsteady
        raise Refused(f"for {value}, ONNX Runtime's result depends on the element's place in its tensor")
    return table.entries


def tables_of(chains: Sequence[Chain], opsets: Mapping[str, int]) -> list[Table]:
    """The table of each chain. `opsets`: versions of the operator sets that they are written in, by domain."""
    if not chains:
        return []
    try:
        return _tables(chains, opsets)
    except HostError as error:
        if len(chains) == 1:
            return [Table(None, str(error))]
    return [table for chain in chains for table in tables_of([chain], opsets)]  # so that the others have theirs


def table_constant(x: Tensor, y: Tensor, entries: NDArray, taken: Collection[str] = ()) -> Constant:
    """Entries as a constant whose name says between which tensors it leads. `taken`: names that it must not have."""
    name = free_name(f"{x.name} to {y.name}", {x.name, y.name, *taken})
    return Constant(Tensor(name, entries.shape, y.format, y.quantization), entries)


def requantising_table(x: Tensor, y: Tensor, taken: Collection[str] = ()) -> Constant | None:
    """From x's quantisation to y's, by ONNX's DequantizeLinear and QuantizeLinear; None where they are the same."""
    if (x.quantization, x.format) == (y.quantization, y.format):
        return None
    with np.errstate(over="ignore"):  # beyond fp32 is beyond the result's range as well
        real = (np.array(x.format.stored) - x.zero_point).astype(np.float32) * np.float32(x.scale)
        whole = np.rint(real / np.float32(y.scale)) + y.zero_point
    entries = np.clip(whole, y.format.stored.start, y.format.stored.stop - 1).astype(y.format.storage)
    return table_constant(x, y, entries, taken)


def _tables(chains: Sequence[Chain], opsets: Mapping[str, int]) -> list[Table]:
    graph = onnx.GraphProto(name="tables")
    for number, chain in enumerate(chains):
        _add(graph, chain, f"{number}:")
    versions = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    session = open_session(helper.make_model(graph, opset_imports=versions, ir_version=10))
    names = [value.name for value in graph.output]
    inputs = [value.name for value in graph.input]
    shapes = [(*([1] * (len(chain.x.shape) - 1)), -1) for chain in chains]
    values = [np.array(chain.x.format.stored, chain.x.format.storage) for chain in chains]

    def run(fed: Sequence[NDArray]) -> list[NDArray]:
        given = {name: one.reshape(shape) for name, one, shape in zip(inputs, fed, shapes, strict=True)}
        found = run_session(session, names, given)
        return [found[name].reshape(-1) for name in names]

    entries = run(values)
    unsteady: list[int | None] = [None] * len(chains)
    for index in range(len(values[0])):
        alone = run([np.full(_POSITIONS, one[index]) for one in values])
        for number, results in enumerate(alone):
            if unsteady[number] is None and (results != entries[number][index]).any():
                unsteady[number] = int(values[number][index])
    return [Table(found, unsteady=one) for found, one in zip(entries, unsteady, strict=True)]


def _add(graph: onnx.GraphProto, chain: Chain, prefix: str) -> None:
    """Put a chain into a graph, all its names behind a prefix."""
    for node in chain.nodes:
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = node.name and prefix + node.name
        for names in (copy.input, copy.output):
            names[:] = [name and prefix + name for name in names]
    for name, value in chain.constants.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), prefix + name))
    types = [helper.np_dtype_to_tensor_dtype(np.dtype(tensor.format.storage)) for tensor in (chain.x, chain.y)]
    shape = [1] * (len(chain.x.shape) - 1)
    graph.input.append(helper.make_tensor_value_info(prefix + chain.source, types[0], [*shape, None]))
    graph.output.append(helper.make_tensor_value_info(prefix + chain.target, types[1], None))
