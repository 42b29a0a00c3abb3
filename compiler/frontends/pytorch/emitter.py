"""An ONNX graph in the making, out of the nodes of a graph of ATen operators."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import fx

__all__ = ["IR_VERSION", "ONNX_TYPES", "OPSET", "Emitter", "Untranslated", "to_numpy", "value_of"]

OPSET, IR_VERSION = 24, 11
"""Of the graphs that are made: the first with RMSNormalization and a usable Attention, and what ONNX Runtime reads."""

ONNX_TYPES: Mapping[torch.dtype, int] = {
    torch.float32: onnx.TensorProto.FLOAT,
    torch.bfloat16: onnx.TensorProto.FLOAT,
    torch.int8: onnx.TensorProto.INT8,
    torch.uint8: onnx.TensorProto.UINT8,
    torch.int32: onnx.TensorProto.INT32,
    torch.int64: onnx.TensorProto.INT64,
    torch.bool: onnx.TensorProto.BOOL,
}
"""Element types. bfloat16 is float32 there, as in every model of bfloat16 that the compiler takes: its numbers are
among those of float32, and the machine rounds to bfloat16."""


class Untranslated(Exception):
    """A node that has no ONNX form here; the message is the constraint and the value that broke it."""


def value_of(node: fx.Node) -> torch.Tensor:
    """What is known of a node's result before it is computed: its shape and dtype, as a tensor without numbers.

    Raises:
        Untranslated: it is no tensor.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise Untranslated(f"its argument {node.name} is no tensor")
    return value


def to_numpy(tensor: torch.Tensor) -> NDArray:
    """A tensor's numbers, on the host, bfloat16 as numpy's extension has it; no copy where none is needed."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


class Emitter:
    """Collects ONNX nodes; those of one ATen node have its name, the later ones with a number behind it.

    Attributes:
        nodes: as they were made.
        initializers: constants by name.
        values: the names of each ATen node's results; None of one that is not there, as statistics of an inference.
        owners: the ATen node that each ONNX node was made for, by the ONNX node's name.
        constants: the numbers of ATen nodes that are constant.
    """

    def __init__(self, constants: Mapping[fx.Node, torch.Tensor]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.values: dict[fx.Node, str | tuple[str | None, ...]] = {}
        self.owners: dict[str, fx.Node] = {}
        self.constants = constants
        self._of: fx.Node | None = None
        self._made = 0

    def begin(self, node: fx.Node) -> None:
        """The ONNX nodes that follow belong to this node."""
        self._of, self._made = node, 0

    @property
    def current(self) -> fx.Node:
        """The node whose ONNX nodes are made."""
        assert self._of is not None
        return self._of

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of a node's result.

        Raises:
            Untranslated: it depends on what is computed.
        """
        shape = value_of(node).shape
        if not all(isinstance(size, int) for size in shape):
            raise Untranslated(f"the shape of {node.name}, {list(shape)}, is not static")
        return tuple(shape)

    def dtype(self, node: fx.Node) -> torch.dtype:
        """The dtype of a node's result."""
        return value_of(node).dtype

    def __call__(self, node: fx.Node) -> str:
        """The name of a node's result."""
        value = self.values.get(node)
        if value is None and node in self.constants:
            self.values[node] = value = self._initializer(node.name, self._array(self.constants[node]))
        if not isinstance(value, str):
            raise Untranslated(f"its argument {node.name} has no result of its own")
        return value

    def array(self, node: Any) -> NDArray | None:
        """The numbers of a constant node, None of any other; bfloat16 as float32."""
        return self._array(self.constants[node]) if isinstance(node, fx.Node) and node in self.constants else None

    def constant(self, array: NDArray | Sequence[int] | float, dtype: Any = None) -> str:
        """A constant as an initializer."""
        return self._initializer(f"{self.current.name}.constant", np.asarray(array, dtype))

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """An ONNX node; the name of its result, or a tuple of names of several."""
        name = self.current.name if not self._made else f"{self.current.name}.{self._made}"
        self._made += 1
        results = tuple(f"{name}.{index}" if outputs > 1 else f"{name}.y" for index in range(outputs))
        self.nodes.append(helper.make_node(op, list(inputs), list(results), name=name, **attributes))
        self.owners[name] = self.current
        return results if outputs > 1 else results[0]

    def reshaped(self, value: str, shape: Sequence[int]) -> str:
        """A value in another shape, all of which is known."""
        return self.node("Reshape", [value, self.constant(shape, np.int64)])

    def _array(self, tensor: torch.Tensor) -> NDArray:
        array = to_numpy(tensor)
        return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array

    def _initializer(self, name: str, array: NDArray) -> str:
        while name in self.initializers:
            name += "_"
        self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name
