"""How each kind of layer becomes tasks: one file a kind."""

from collections.abc import Callable

from npukit.compiler.layers import (
    AverageLayer,
    BinaryLayer,
    ConcatLayer,
    ConvLayer,
    CopyLayer,
    DepthwiseLayer,
    GlobalAverageLayer,
    MaxPoolLayer,
    ResizeLayer,
    TableLayer,
)
from npukit.compiler.schedule.average import schedule_average, schedule_global_average
from npukit.compiler.schedule.builder import Builder
from npukit.compiler.schedule.conv import schedule_conv
from npukit.compiler.schedule.elementwise import schedule_binary, schedule_table
from npukit.compiler.schedule.movement import schedule_concat, schedule_copy, schedule_resize
from npukit.compiler.schedule.window import schedule_depthwise, schedule_maxpool

__all__ = ["SCHEDULERS", "Builder"]

SCHEDULERS: dict[type, Callable] = {
    ConvLayer: schedule_conv,
    DepthwiseLayer: schedule_depthwise,
    BinaryLayer: schedule_binary,
    TableLayer: schedule_table,
    MaxPoolLayer: schedule_maxpool,
    AverageLayer: schedule_average,
    GlobalAverageLayer: schedule_global_average,
    ConcatLayer: schedule_concat,
    CopyLayer: schedule_copy,
    ResizeLayer: schedule_resize,
}
