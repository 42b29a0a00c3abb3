"""SOFTMAX."""

from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Match
from npukit.compiler.frontends.tflite.operators.base import Node, Operand
from npukit.compiler.ir.operations import Softmax

__all__ = ["match_softmax"]


def match_softmax(node: Node) -> Match:
    """SOFTMAX along the last dimension, in bf16: TensorFlow Lite's of whole numbers is another function than the
    machine's."""
    if not node.floats:
        raise Refused("TensorFlow Lite's softmax of whole numbers is another function than the machine's")
    beta = node.operator.options.get("Beta", 0.0)
    if beta != 1.0:
        raise Refused(f"its beta is {beta}; 1 is supported")
    value, x = node.activation(0)
    result = node.result()
    operation = Softmax(output=result.tensor.name, sources=node.sources, input=x.name)
    return node.match(result, [Operand(x, value)], [operation])
