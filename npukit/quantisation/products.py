"""Which activations are quantised around 0: those that products of two activations read.

A zero point of one side adds the sums of the other side to a product, which the machine has to make beside it: with two
zero points, three products take the place of one.
"""

from collections.abc import Iterator

import onnx

__all__ = ["around_zero"]

_PRODUCTS = ("MatMul", "Gemm")
_MOVING = frozenset("Flatten Identity Reshape Split Squeeze Transpose Unsqueeze".split())
"""Operators whose results have the scale and zero point of what they move."""
_OF_ONE_SIGN = frozenset("Abs HardSigmoid ReduceL1 ReduceL2 Relu Sigmoid Softmax Softplus".split())
"""Operators whose results are never negative: around 0, half of an int8's numbers would be lost on them."""


def around_zero(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Names of the tensors that are to have a zero point of 0, or of 128 in uint8, in the order of the graph.

    Both sides of a product of two activations, and what these are moved from; but not what is never negative.
    """
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
    found: dict[str, None] = {}
    for node in graph.node:
        if node.op_type in _PRODUCTS and constants.isdisjoint(node.input[:2]):
            for name in node.input[:2]:
                moved = [*_moved(name, makers)]
                maker = makers.get(moved[-1])
                if maker is None or maker.op_type not in _OF_ONE_SIGN:
                    found |= dict.fromkeys(moved)
    return tuple(found)


def _moved(name: str, makers: dict[str, onnx.NodeProto]) -> Iterator[str]:
    """A tensor, what it was moved from, and so on."""
    yield name
    while (node := makers.get(name)) is not None and node.op_type in _MOVING:
        name = node.input[0]
        yield name
