"""Networks and layers that others are measured by, with synthetic weights."""

from collections.abc import Callable

import onnx

from npukit.zoo.build import NetworkBuilder
from npukit.zoo.layers import VTA_LAYERS

__all__ = ["ARCHITECTURES"]

_IMAGE = (3, 224, 224)
_CLASSES = 1000


def _resnet18(seed: int) -> tuple[NetworkBuilder, onnx.ModelProto]:
    """He et al., "Deep Residual Learning for Image Recognition", 2015, with basic blocks."""
    net = NetworkBuilder("resnet18", _IMAGE, seed)
    x = net.max_pool(net.conv("image", 64, 7, 2, activation="relu"), 3, 2)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and block == 0 else 1
            shortcut = net.conv(x, channels, 1, stride) if stride != 1 else x
            inner = net.conv(x, channels, 3, stride, activation="relu")
            x = net.add(net.conv(inner, channels, 3, beside=shortcut, gain=0.5), shortcut, "relu")
    return net, net.model(net.classifier(x, _CLASSES))


def _resnet50(seed: int) -> tuple[NetworkBuilder, onnx.ModelProto]:
    """The same with bottleneck blocks; the stride is that of the 3x3 convolution."""
    net = NetworkBuilder("resnet50", _IMAGE, seed)
    x = net.max_pool(net.conv("image", 64, 7, 2, activation="relu"), 3, 2)
    for stage, (channels, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            shortcut = net.conv(x, 4 * channels, 1, stride) if block == 0 else x
            inner = net.conv(x, channels, 1, activation="relu")
            inner = net.conv(inner, channels, 3, stride, activation="relu")
            x = net.add(net.conv(inner, 4 * channels, 1, beside=shortcut, gain=0.5), shortcut, "relu")
    return net, net.model(net.classifier(x, _CLASSES))


def _mobilenetv2(seed: int) -> tuple[NetworkBuilder, onnx.ModelProto]:
    """Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018, width 1."""
    net = NetworkBuilder("mobilenetv2", _IMAGE, seed)
    x = net.conv("image", 32, 3, 2, activation="relu6")
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, channels, blocks, first_stride in settings:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            inner_channels = net.values[x].shape[1] * expansion
            inner = net.conv(x, inner_channels, 1, activation="relu6") if expansion != 1 else x
            inner = net.conv(inner, inner_channels, 3, stride, groups=inner_channels, activation="relu6")
            joined = stride == 1 and net.values[x].shape[1] == channels
            inner = net.conv(inner, channels, 1, gain=0.5 if joined else 1.0)
            x = net.add(x, inner) if joined else inner
    x = net.conv(x, 1280, 1, activation="relu6", spread=1.0)
    return net, net.model(net.classifier(x, _CLASSES))


def _vta(name: str) -> Callable[[int], tuple[NetworkBuilder, onnx.ModelProto]]:
    size, inner, outer, kernel, pad, stride = VTA_LAYERS[name]
    assert pad == kernel // 2

    def make(seed: int) -> tuple[NetworkBuilder, onnx.ModelProto]:
        net = NetworkBuilder(name, (inner, size, size), seed, calibration=2)
        return net, net.model(net.conv("image", outer, kernel, stride, activation="relu"))

    return make


ARCHITECTURES: dict[str, Callable[[int], tuple[NetworkBuilder, onnx.ModelProto]]] = {
    "resnet18": _resnet18,
    "resnet50": _resnet50,
    "mobilenetv2": _mobilenetv2,
    **{name: _vta(name) for name in VTA_LAYERS},
}
"""From a seed to the builder, which has the calibration images, and the float model."""
