"""The operators that the machine runs: one matcher each, which takes a node or says why not."""

from collections.abc import Callable

import onnx_ir as ir
from npukit.compiler.operators.base import Context, Match, Refused, used_values
from npukit.compiler.operators.conv import conv_macs, gemm_macs, match_conv, match_gemm
from npukit.compiler.operators.elementwise import (
    match_add,
    match_global_average,
    match_maxpool,
    match_reshape,
)

__all__ = ["MATCHERS", "Context", "Match", "Refused", "macs_of", "used_values"]

MATCHERS: dict[str, Callable[[Context, ir.Node], Match]] = {
    "Conv": match_conv,
    "Gemm": match_gemm,
    "Add": match_add,
    "MaxPool": match_maxpool,
    "GlobalAveragePool": match_global_average,
    "Flatten": match_reshape,
    "Reshape": match_reshape,
    "Squeeze": match_reshape,
}


def macs_of(node: ir.Node) -> int:
    """Multiply-accumulates of a node of any kind (0 for other operators than convolutions and products)."""
    if node.op_type == "Conv":
        return conv_macs(node)
    if node.op_type in ("Gemm", "MatMul"):
        return gemm_macs(node)
    return 0
