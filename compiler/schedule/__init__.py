"""How each kind of layer becomes tasks: one file a kind."""

from collections.abc import Callable

from npukit.compiler.layers import AddLayer, ConvLayer, GlobalAverageLayer, MaxPoolLayer
from npukit.compiler.schedule.add import schedule_add
from npukit.compiler.schedule.builder import Builder
from npukit.compiler.schedule.conv import schedule_conv
from npukit.compiler.schedule.pool import schedule_global_average, schedule_maxpool

__all__ = ["SCHEDULERS", "Builder"]

SCHEDULERS: dict[type, Callable] = {
    ConvLayer: schedule_conv,
    AddLayer: schedule_add,
    MaxPoolLayer: schedule_maxpool,
    GlobalAverageLayer: schedule_global_average,
}
