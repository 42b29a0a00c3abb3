"""Names of operators by what they have in common."""

__all__ = ["ADDED", "DYNAMIC", "MORE_INPUTS", "ONE_INPUT"]

ADDED = "npukit.zero_point_of"
"""Under which a node that `zero_points` has added has the name of the product that it belongs to, in its `meta`."""
DYNAMIC = frozenset(
    "ConvInteger DynamicQuantizeLSTM DynamicQuantizeLinear DynamicQuantizeMatMul MatMulInteger "
    "MatMulIntegerToFloat".split()
)
"""Operators of models that are quantised while they run."""

ONE_INPUT = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity "
    "LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan "
    "Tanh ThresholdedRelu".split()
)
MORE_INPUTS = frozenset("Add Clip Div Max Min Mul PRelu Pow Sub".split())
