"""Names of operators by what they have in common; here those that compute each element of their result by itself."""

__all__ = ["DYNAMIC", "MORE_INPUTS", "ONE_INPUT"]

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
