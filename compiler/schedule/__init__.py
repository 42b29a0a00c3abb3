"""How each operation becomes tasks: one file a kind."""

from collections.abc import Callable, Mapping
from typing import Any

from npukit.compiler.ir.operations import (
    Add,
    AveragePool,
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Dilate,
    GlobalAveragePool,
    Lookup,
    MatrixProduct,
    MaxPool,
    Multiply,
    Normalization,
    Pad,
    PiecewiseLinear,
    Rearrange,
    Repeat,
    Slice,
    Softmax,
    TensorOperation,
)
from npukit.compiler.schedule.average import schedule_average, schedule_global_average
from npukit.compiler.schedule.builder import Builder
from npukit.compiler.schedule.conv import schedule_convolution
from npukit.compiler.schedule.elementwise import schedule_by_element, schedule_elementwise
from npukit.compiler.schedule.movement import (
    schedule_concatenation,
    schedule_dilate,
    schedule_pad,
    schedule_repeat,
    schedule_slice,
)
from npukit.compiler.schedule.normalization import schedule_normalization
from npukit.compiler.schedule.product import schedule_product
from npukit.compiler.schedule.rearrange import schedule_rearrange
from npukit.compiler.schedule.softmax import schedule_softmax
from npukit.compiler.schedule.window import schedule_depthwise, schedule_maxpool

__all__ = ["SCHEDULERS", "Builder"]

SCHEDULERS: Mapping[type[TensorOperation], Callable[[Builder, Any], None]] = {
    Convolution: schedule_convolution,
    DepthwiseConvolution: schedule_depthwise,
    Add: schedule_elementwise,
    Multiply: schedule_elementwise,
    Lookup: schedule_by_element,
    PiecewiseLinear: schedule_by_element,
    MatrixProduct: schedule_product,
    Softmax: schedule_softmax,
    Normalization: schedule_normalization,
    MaxPool: schedule_maxpool,
    AveragePool: schedule_average,
    GlobalAveragePool: schedule_global_average,
    Concatenation: schedule_concatenation,
    Pad: schedule_pad,
    Slice: schedule_slice,
    Repeat: schedule_repeat,
    Dilate: schedule_dilate,
    Rearrange: schedule_rearrange,
}
"""Emits the tasks of an operation."""
