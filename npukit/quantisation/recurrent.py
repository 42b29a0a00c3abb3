"""LSTM, GRU and RNN, step by step, as products, sums and functions of single elements, which quantise one by one.

ONNX Runtime has no recurrent layer on integers with static scales: between a DequantizeLinear and a QuantizeLinear it
computes one in float. Step by step, every gate is a product and a table. The equations are those of ONNX's operators.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npukit.driver.host import names_used

__all__ = ["MOST_STEPS", "with_steps"]

MOST_STEPS = 256
"""Steps of a layer, of both directions, that are written out: each becomes some twenty nodes."""
_GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PEEPHOLES = 7
"""The input of an LSTM that holds weights from its cells to its gates."""


def with_steps(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the steps of each recurrent layer that has constant weights, ONNX's own functions, and a fixed
    number of steps, no more than `MOST_STEPS`; others stay."""
    if not any(node.op_type in _GATES for node in model.graph.node):
        return model
    inferred = onnx.shape_inference.infer_shapes(model)
    known = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in known}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        layer = _Layer.of(node, shapes, constants) if node.op_type in _GATES else None
        nodes += [node] if layer is None else layer.nodes()
        if layer is not None:
            model.graph.initializer.extend(layer.initializers)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {name for node in nodes for name in names_used(node)}
    used |= {value.name for value in model.graph.output}
    for tensor in [one for one in model.graph.initializer if one.name in constants and one.name not in used]:
        model.graph.initializer.remove(tensor)
    # the oldest models have their weights as inputs, too
    for value in [one for one in model.graph.input if one.name in constants and one.name not in used]:
        model.graph.input.remove(value)
    return model


class _Layer:
    """A recurrent layer, whose steps are being written out."""

    def __init__(
        self, node: onnx.NodeProto, attributes: Mapping[str, Any], shape: Sequence[int],
        constants: Mapping[str, NDArray],
    ) -> None:  # fmt: skip
        self._node, self._attributes, self._constants = node, attributes, constants
        self._batch_first = bool(attributes.get("layout", 0))
        self._batch, self._steps = shape[:2] if self._batch_first else (shape[1], shape[0])
        self._hidden = constants["R"].shape[2]
        self._made: list[onnx.NodeProto] = []
        self._count = 0
        self.initializers: list[onnx.TensorProto] = []

    @classmethod
    def of(
        cls, node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, onnx.TensorProto]
    ) -> "_Layer | None":
        """The layer, or None where it stays as it is."""
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        shape = shapes.get(node.input[0], ())
        given = {name: node.input[at] for at, name in enumerate("XWRB") if at < len(node.input) and node.input[at]}
        weights = {name: constants[given[name]] for name in "WRB" if given.get(name) in constants}
        directions = 2 if attributes.get("direction", b"forward") == b"bidirectional" else 1
        functions = [one.decode() for one in attributes.get("activations", ())]
        if (
            len(shape) != 3
            or min(shape) < 1
            or set(weights) != given.keys() - {"X"}
            or "clip" in attributes
            or attributes.get("input_forget", 0)
            or functions not in ([], _ACTIVATIONS[node.op_type] * directions)
            or any(node.input[4:5])  # lengths of each series
            or any(node.input[_PEEPHOLES:])
        ):
            return None
        gates, hidden = len(_GATES[node.op_type]), attributes.get("hidden_size", 0) or list(weights["R"].dims)[-1]
        wanted = {
            "W": [directions, gates * hidden, shape[2]], "R": [directions, gates * hidden, hidden],
            "B": [directions, 2 * gates * hidden],
        }  # fmt: skip
        if any(list(one.dims) != wanted[name] for name, one in weights.items()):
            return None  # ONNX Runtime says what is wrong with it
        layer = cls(node, attributes, shape, {name: numpy_helper.to_array(one) for name, one in weights.items()})
        fits = layer._steps * directions <= MOST_STEPS and all(one.data_type == 1 for one in weights.values())
        return layer if fits else None

    def nodes(self) -> list[onnx.NodeProto]:
        """What stands in its place."""
        node = self._node
        direction = self._attributes.get("direction", b"forward").decode()
        backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
        x = self._node.input[0]
        if not self._batch_first:
            x = self._op("Transpose", x, perm=[1, 0, 2])
        rows = self._op("Reshape", x, self._shape(self._batch * self._steps, -1))
        ends = [self._direction(rows, index, reverse) for index, reverse in enumerate(backwards)]
        series = [self._op("Concat", *self._in_series(states), axis=1) for states, _ in ends]  # [batch, steps, hidden]
        lasts = [end[0][0 if reverse else -1] for end, reverse in zip(ends, backwards, strict=True)]
        finals = [lasts, [cell for _, cell in ends if cell]]
        outputs = [*node.output, "", "", ""][:3]
        if outputs[0]:
            self._output("Y", series, outputs[0])
        for name, values in zip(outputs[1:], finals, strict=True):
            if name:
                self._output("last", values, name)
        return self._made

    def _output(self, kind: str, values: list[str], name: str) -> None:
        """One result of the layer, of those of its directions."""
        if kind == "Y" and not self._batch_first:
            values = [self._op("Transpose", value, perm=[1, 0, 2]) for value in values]  # [steps, batch, hidden]
        axis = (2 if self._batch_first else 1) if kind == "Y" else (1 if self._batch_first else 0)
        parts = [self._op("Unsqueeze", value, self._integers(axis)) for value in values]
        if len(parts) > 1:
            self._op("Concat", *parts, axis=axis)
        self._made[-1].output[0] = name

    def _direction(self, rows: str, index: int, reverse: bool) -> tuple[list[str], str]:
        """The state after each step, in the order of time, and the last cells of an LSTM."""
        gates = _GATES[self._node.op_type]
        w, r = (self._by_gate(self._constants[name][index]) for name in "WR")
        bias = self._constants["B"][index] if "B" in self._constants else np.zeros(2 * len(gates) * self._hidden)
        wb, rb = (self._by_gate(one.astype(np.float32)) for one in np.split(bias, 2))
        self._reset_last = self._node.op_type == "GRU" and not self._attributes.get("linear_before_reset", 0)
        inner = not self._reset_last and self._node.op_type == "GRU"
        products = {}
        for gate in gates:
            own = wb[gate] if inner and gate == "h" else wb[gate] + rb[gate]
            product = self._op("Gemm", rows, self._constant(w[gate]), self._constant(own), transB=1)
            products[gate] = self._op("Reshape", product, self._shape(self._batch, self._steps, self._hidden))
        self._r = {gate: self._constant(r[gate]) for gate in gates}
        self._rb = self._constant(rb["h"]) if inner else ""
        state, cell = self._initial(5, index), self._initial(6, index) if self._node.op_type == "LSTM" else ""
        states: dict[int, str] = {}
        for step in reversed(range(self._steps)) if reverse else range(self._steps):
            own = {gate: self._at(products[gate], step) for gate in gates}
            if self._node.op_type == "LSTM":
                state, cell = self._lstm(own, state, cell)
            else:
                state = self._gru(own, state) if self._node.op_type == "GRU" else self._rnn(own, state)
            states[step] = state
        return [states[step] for step in range(self._steps)], cell

    def _lstm(self, own: Mapping[str, str], state: str, cell: str) -> tuple[str, str]:
        i, o, f = (self._op("Sigmoid", self._gate(own, gate, state)) for gate in "iof")
        c = self._op("Mul", i, self._op("Tanh", self._gate(own, "c", state)))
        if cell:
            c = self._op("Add", self._op("Mul", f, cell), c)
        return self._op("Mul", o, self._op("Tanh", c)), c

    def _gru(self, own: Mapping[str, str], state: str) -> str:
        update = self._gate(own, "z", state)
        h = own["h"]
        if self._reset_last:
            if state:
                r = self._op("Sigmoid", self._gate(own, "r", state))
                h = self._gate(own, "h", self._op("Mul", r, state))
        else:
            r = self._op("Sigmoid", self._gate(own, "r", state))
            inner = self._op("Gemm", state, self._r["h"], self._rb, transB=1) if state else self._rb
            h = self._op("Add", h, self._op("Mul", r, inner))
        h = self._op("Tanh", h)
        # (1 - z) h + z H, where 1 - sigmoid(u) is sigmoid(-u), a function of one tensor
        new = self._op("Mul", self._op("Sigmoid", self._op("Neg", update)), h)
        return self._op("Add", new, self._op("Mul", self._op("Sigmoid", update), state)) if state else new

    def _rnn(self, own: Mapping[str, str], state: str) -> str:
        return self._op("Tanh", self._gate(own, "h", state))

    def _gate(self, own: Mapping[str, str], gate: str, state: str) -> str:
        """What a gate is a function of: the input's product, and the state's. The state before the first is 0."""
        return self._op("Add", own[gate], self._op("Gemm", state, self._r[gate], transB=1)) if state else own[gate]

    def _initial(self, position: int, index: int) -> str:
        """What the state is before the first step: an input of the layer, or nothing where it is 0."""
        name = self._node.input[position] if position < len(self._node.input) else ""
        if not name:
            return ""
        axis = 1 if self._batch_first else 0
        bounds = (self._integers(index), self._integers(index + 1), self._integers(axis))
        return self._op("Squeeze", self._op("Slice", name, *bounds), self._integers(axis))

    def _at(self, product: str, step: int) -> str:
        """What a step takes of a product [batch, steps, hidden]."""
        part = self._op("Slice", product, self._integers(step), self._integers(step + 1), self._integers(1))
        return self._op("Reshape", part, self._shape(self._batch, self._hidden))

    def _in_series(self, states: Sequence[str]) -> list[str]:
        return [self._op("Reshape", state, self._shape(self._batch, 1, self._hidden)) for state in states]

    def _by_gate(self, values: NDArray) -> dict[str, NDArray]:
        gates = _GATES[self._node.op_type]
        return dict(zip(gates, np.split(values, len(gates)), strict=True))

    def _op(self, op: str, *inputs: str, **attributes: Any) -> str:
        self._count += 1
        name = f"{self._node.name or self._node.output[0]} {op} {self._count}"
        self._made.append(helper.make_node(op, list(inputs), [f"{name} result"], name, **attributes))
        return self._made[-1].output[0]

    def _constant(self, value: NDArray) -> str:
        self._count += 1
        name = f"{self._node.name or self._node.output[0]} constant {self._count}"
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _integers(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _shape(self, *sizes: int) -> str:
        return self._integers(*sizes)
