"""Names of the operators that compute each element of their result by itself."""

__all__ = ["MORE_INPUTS", "ONE_INPUT"]

ONE_INPUT = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity "
    "LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan "
    "Tanh ThresholdedRelu".split()
)
MORE_INPUTS = frozenset("Add Clip Div Max Min Mul PRelu Pow Sub".split())
