"""Common architectures, after their papers, with channels and depths as published and images of any size."""

from collections.abc import Callable

import numpy as np
import onnx
from wild.network import Network

__all__ = ["ARCHITECTURES"]


def alexnet(size: int) -> onnx.ModelProto:
    """Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014."""
    n = Network("alexnet", {"image": (1, 3, size, size)})
    x = n.pool(n.conv("image", 64, 11, 4, pad=2, norm=False), 3, 2)
    x = n.pool(n.conv(x, 192, 5, norm=False), 3, 2)
    for channels in (384, 256, 256):
        x = n.conv(x, channels, 3, norm=False)
    x = n.op("Flatten", n.pool(x, 3, 2) if n.shape(x)[2] > 3 else x)
    return n.model(n.linear(n.linear(n.linear(x, 4096, "Relu"), 4096, "Relu"), 100))


def vgg11(size: int) -> onnx.ModelProto:
    """Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014, with batch normalisation."""
    n, x = Network("vgg11", {"image": (1, 3, size, size)}), "image"
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for channels in stage:
            x = n.conv(x, channels)
        x = n.pool(x, 2, 2)
    return n.model(n.linear(n.linear(n.op("Flatten", x), 4096, "Relu"), 100))


def squeezenet(size: int) -> onnx.ModelProto:
    """Iandola et al., "SqueezeNet", 2016, version 1.1."""
    n = Network("squeezenet", {"image": (1, 3, size, size)})
    x = n.pool(n.conv("image", 64, 3, 2, norm=False), 3, 2)
    for index, (squeeze, expand) in enumerate(((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (64, 256))):
        y = n.conv(x, squeeze, 1, norm=False)
        x = n.op("Concat", n.conv(y, expand, 1, norm=False), n.conv(y, expand, 3, norm=False), axis=1)
        if index in (1, 3):
            x = n.pool(x, 3, 2)
    return n.model(n.op("Flatten", n.op("GlobalAveragePool", n.conv(x, 100, 1, norm=False))))


def googlenet(size: int) -> onnx.ModelProto:
    """Szegedy et al., "Going Deeper with Convolutions", 2014: the first inception blocks."""
    n = Network("googlenet", {"image": (1, 3, size, size)})
    x = n.pool(n.conv("image", 64, 7, 2), 3, 2, 1)
    x = n.pool(n.conv(n.conv(x, 64, 1), 192), 3, 2, 1)
    for a, b, c, d, e, f in ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (192, 96, 208, 16, 48, 64)):
        x = n.op(
            "Concat", n.conv(x, a, 1), n.conv(n.conv(x, b, 1), c), n.conv(n.conv(x, d, 1), e),
            n.conv(n.pool(x, 3, 1, 1), f, 1), axis=1,
        )  # fmt: skip
    return n.model(n.classifier(x))


def resnext50(size: int) -> onnx.ModelProto:
    """Xie et al., "Aggregated Residual Transformations", 2016: 32 groups of 4."""
    n = Network("resnext50", {"image": (1, 3, size, size)})
    x = n.pool(n.conv("image", 64, 7, 2), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        channels = 128 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = n.conv(n.conv(x, channels, 1), channels, 3, stride, groups=32)
            y = n.conv(y, 2 * channels, 1, act=None)
            x = n.op("Relu", n.op("Add", y, x if block else n.conv(x, 2 * channels, 1, stride, act=None)))
    return n.model(n.classifier(x))


def densenet121(size: int) -> onnx.ModelProto:
    """Huang et al., "Densely Connected Convolutional Networks", 2016: normalisation before convolutions."""
    n = Network("densenet121", {"image": (1, 3, size, size)})
    x = n.pool(n.conv("image", 64, 7, 2), 3, 2, 1)
    for stage, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            y = n.conv(n.op("Relu", n.norm(x)), 128, 1)
            x = n.op("Concat", x, n.conv(y, 32, norm=False, act=None), axis=1)
        if stage < 3:
            y = n.conv(n.op("Relu", n.norm(x)), n.shape(x)[1] // 2, 1, norm=False, act=None)
            x = n.pool(y, 2, 2, kind="AveragePool")
    return n.model(n.classifier(n.op("Relu", n.norm(x))))


def mobilenetv1(size: int) -> onnx.ModelProto:
    """Howard et al., "MobileNets", 2017."""
    n = Network("mobilenetv1", {"image": (1, 3, size, size)})
    x = n.conv("image", 32, 3, 2)
    for channels, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2)):
        x = n.conv(n.conv(x, n.shape(x)[1], 3, stride, groups=n.shape(x)[1]), channels, 1)
    return n.model(n.classifier(x))


def _squeeze_excite(n: Network, x: str, inner: int) -> str:
    y = n.conv(n.op("GlobalAveragePool", x), inner, 1, norm=False)
    y = n.conv(y, n.shape(x)[1], 1, norm=False, act=None)
    return n.op("Mul", x, n.op("HardSigmoid", y, alpha=1 / 6))


def mobilenetv3(size: int) -> onnx.ModelProto:
    """Howard et al., "Searching for MobileNetV3", 2019: small."""
    n = Network("mobilenetv3", {"image": (1, 3, size, size)})
    x = n.conv("image", 16, 3, 2, act="HardSwish")
    rows = (
        (3, 16, 16, True, "Relu", 2), (3, 72, 24, False, "Relu", 2), (3, 88, 24, False, "Relu", 1),
        (5, 96, 40, True, "HardSwish", 2), (5, 240, 40, True, "HardSwish", 1), (5, 240, 40, True, "HardSwish", 1),
        (5, 120, 48, True, "HardSwish", 1), (5, 144, 48, True, "HardSwish", 1), (5, 288, 96, True, "HardSwish", 2),
        (5, 576, 96, True, "HardSwish", 1), (5, 576, 96, True, "HardSwish", 1),
    )  # fmt: skip
    for kernel, expanded, channels, excite, act, stride in rows:
        y = n.conv(x, expanded, 1, act=act) if expanded != n.shape(x)[1] else x
        y = n.conv(y, expanded, kernel, stride, groups=expanded, act=act)
        y = _squeeze_excite(n, y, max(8, expanded // 4)) if excite else y
        y = n.conv(y, channels, 1, act=None)
        x = n.op("Add", x, y) if stride == 1 and n.shape(x)[1] == channels else y
    x = n.op("GlobalAveragePool", n.conv(x, 576, 1, act="HardSwish"))
    return n.model(n.linear(n.linear(n.op("Flatten", x), 1024, "HardSwish"), 100))


def efficientnet(size: int) -> onnx.ModelProto:
    """Tan and Le, "EfficientNet", 2019: B0."""
    n = Network("efficientnet", {"image": (1, 3, size, size)})
    x = n.conv("image", 32, 3, 2, act="SiLU")
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    for expansion, channels, blocks, first, kernel in rows:
        for block in range(blocks):
            stride, source = first if not block else 1, n.shape(x)[1]
            y = n.conv(x, source * expansion, 1, act="SiLU") if expansion > 1 else x
            y = n.conv(y, source * expansion, kernel, stride, groups=source * expansion, act="SiLU")
            y = n.conv(_excite(n, y, source), channels, 1, act=None)
            x = n.op("Add", x, y) if stride == 1 and source == channels else y
    return n.model(n.classifier(n.conv(x, 1280, 1, act="SiLU")))


def _excite(n: Network, x: str, source: int) -> str:
    y = n.conv(n.op("GlobalAveragePool", x), max(1, source // 4), 1, norm=False, act="SiLU")
    return n.op("Mul", x, n.op("Sigmoid", n.conv(y, n.shape(x)[1], 1, norm=False, act=None)))


def mnasnet(size: int) -> onnx.ModelProto:
    """Tan et al., "MnasNet", 2018, as torchvision has it."""
    n = Network("mnasnet", {"image": (1, 3, size, size)})
    x = n.conv("image", 32, 3, 2)
    x = n.conv(n.conv(x, 32, groups=32), 16, 1, act=None)
    rows = (
        (3, 24, 3, 3, 2),
        (3, 40, 3, 5, 2),
        (6, 80, 3, 5, 2),
        (6, 96, 2, 3, 1),
        (6, 192, 4, 5, 2),
        (6, 320, 1, 3, 1),
    )
    for expansion, channels, blocks, kernel, first in rows:
        for block in range(blocks):
            stride, inner = first if not block else 1, n.shape(x)[1] * expansion
            y = n.conv(n.conv(x, inner, 1), inner, kernel, stride, groups=inner)
            y = n.conv(y, channels, 1, act=None)
            x = n.op("Add", x, y) if stride == 1 and n.shape(x)[1] == channels else y
    return n.model(n.classifier(n.conv(x, 1280, 1)))


def shufflenetv2(size: int) -> onnx.ModelProto:
    """Ma et al., "ShuffleNet V2", 2018: channels split, and shuffled by Reshape and Transpose."""
    n = Network("shufflenetv2", {"image": (1, 3, size, size)})
    x = n.pool(n.conv("image", 24, 3, 2), 3, 2, 1)

    def shuffle(x: str) -> str:
        batch, channels, height, width = n.shape(x)
        y = n.transpose(n.reshape(x, batch, 2, channels // 2, height, width), 0, 2, 1, 3, 4)
        return n.reshape(y, batch, channels, height, width)

    def branch(x: str, channels: int, stride: int) -> str:
        y = n.conv(x, channels, 1)
        return n.conv(n.conv(y, channels, 3, stride, groups=channels, act=None), channels, 1)

    for channels, blocks in ((116, 4), (232, 8), (464, 4)):
        half = channels // 2
        inner = n.shape(x)[1]
        short = n.conv(n.conv(x, inner, 3, 2, groups=inner, act=None), half, 1)
        x = shuffle(n.op("Concat", short, branch(x, half, 2), axis=1))
        for _ in range(blocks - 1):
            left, right = n.op("Split", x, n.constant([half, half], np.int64), outputs=2, axis=1)
            x = shuffle(n.op("Concat", left, branch(right, half, 1), axis=1))
    return n.model(n.classifier(n.conv(x, 1024, 1)))


def regnet(size: int) -> onnx.ModelProto:
    """Radosavovic et al., "Designing Network Design Spaces", 2020: X of 400 MF."""
    n = Network("regnet", {"image": (1, 3, size, size)})
    x = n.conv("image", 32, 3, 2)
    for channels, blocks in ((32, 1), (64, 2), (160, 7), (400, 12)):
        for block in range(blocks):
            stride = 1 if block else 2
            y = n.conv(
                n.conv(n.conv(x, channels, 1), channels, 3, stride, groups=channels // 16), channels, 1, act=None
            )
            x = n.op("Relu", n.op("Add", y, x if block else n.conv(x, channels, 1, stride, act=None)))
    return n.model(n.classifier(x))


def unet(size: int) -> onnx.ModelProto:
    """Ronneberger et al., "U-Net", 2015, with channels from 32 on and nearest upsampling."""
    n, x, kept = Network("unet", {"image": (1, 3, size, size)}), "image", []
    for channels in (32, 64, 128, 256):
        x = n.conv(n.conv(x, channels), channels)
        kept.append(x)
        x = n.pool(x, 2, 2)
    x = n.conv(x, 512)
    for channels in (256, 128, 64, 32):
        x = n.op("Concat", n.conv(n.resize(x, 2), channels), kept.pop(), axis=1)
        x = n.conv(n.conv(x, channels), channels)
    return n.model(n.op("Sigmoid", n.conv(x, 1, 1, norm=False, act=None)))


def deeplab(size: int) -> onnx.ModelProto:
    """Chen et al., "Rethinking Atrous Convolution", 2017: the pyramid, at an eighth of the image."""
    n, x = Network("deeplab", {"image": (1, 3, size, size)}), "image"
    for channels, stride in ((32, 2), (64, 2), (128, 2), (128, 1)):
        x = n.conv(x, channels, 3, stride)
    parts = [n.conv(x, 64, 1), *(n.conv(x, 64, 3, dilation=rate, pad=rate) for rate in (12, 24, 36))]
    x = n.conv(n.op("Concat", *parts, axis=1), 64, 1)
    return n.model(n.resize(n.conv(x, 21, 1, norm=False, act=None), 8, "linear"))


def yolov8n(size: int) -> onnx.ModelProto:
    """The shape of Ultralytics' YOLOv8n: SiLU, split bottlenecks, a pyramid down and up, heads at three scales."""
    n = Network("yolov8n", {"image": (1, 3, size, size)})

    def split(x: str, channels: int, blocks: int, add: bool) -> str:
        x = n.conv(x, channels, 1, act="SiLU")
        parts = n.op("Split", x, n.constant([channels // 2] * 2, np.int64), outputs=2, axis=1)
        for _ in range(blocks):
            y = n.conv(n.conv(parts[-1], channels // 2, act="SiLU"), channels // 2, act="SiLU")
            parts.append(n.op("Add", parts[-1], y) if add else y)
        return n.conv(n.op("Concat", *parts, axis=1), channels, 1, act="SiLU")

    x = n.conv(n.conv("image", 16, 3, 2, act="SiLU"), 32, 3, 2, act="SiLU")
    x = split(x, 32, 1, True)
    p3 = split(n.conv(x, 64, 3, 2, act="SiLU"), 64, 2, True)
    p4 = split(n.conv(p3, 128, 3, 2, act="SiLU"), 128, 2, True)
    x = split(n.conv(p4, 256, 3, 2, act="SiLU"), 256, 1, True)
    y = n.conv(x, 128, 1, act="SiLU")
    pools = [y]
    for _ in range(3):
        pools.append(n.pool(pools[-1], 5, 1, 2))
    p5 = n.conv(n.op("Concat", *pools, axis=1), 256, 1, act="SiLU")
    u4 = split(n.op("Concat", n.resize(p5, 2), p4, axis=1), 128, 1, False)
    o3 = split(n.op("Concat", n.resize(u4, 2), p3, axis=1), 64, 1, False)
    o4 = split(n.op("Concat", n.conv(o3, 64, 3, 2, act="SiLU"), u4, axis=1), 128, 1, False)
    o5 = split(n.op("Concat", n.conv(o4, 128, 3, 2, act="SiLU"), p5, axis=1), 256, 1, False)
    found = []
    for x in (o3, o4, o5):
        box = n.conv(n.conv(n.conv(x, 64, act="SiLU"), 64, act="SiLU"), 64, 1, norm=False, act=None)
        kind = n.conv(n.conv(n.conv(x, 80, act="SiLU"), 80, act="SiLU"), 80, 1, norm=False, act=None)
        y = n.op("Concat", box, kind, axis=1)
        found.append(n.reshape(y, 1, 144, -1))
    return n.model(n.op("Concat", *found, axis=2))


def dcgan(size: int) -> onnx.ModelProto:
    """Radford et al., "Unsupervised Representation Learning", 2015: the generator, of transposed convolutions."""
    n = Network("dcgan", {"noise": (1, 100, 1, 1)})
    x = "noise"
    for number, channels in enumerate((256, 128, 64, 3)):
        inner = n.shape(x)[1]
        weights = n.weights(inner, channels, 4, 4, fan=inner * 4)
        x = n.op("ConvTranspose", x, weights, kernel_shape=[4, 4], strides=[2 if number else 1] * 2,
                 pads=[1 if number else 0] * 4)  # fmt: skip
        x = n.op("Tanh", x) if number == 3 else n.op("Relu", n.norm(x))
    return n.model(x)


def espcn(size: int) -> onnx.ModelProto:
    """Shi et al., "Real-Time Single Image and Video Super-Resolution", 2016: channels become places."""
    n = Network("espcn", {"image": (1, 1, size, size)})
    x = n.conv(n.conv("image", 64, 5, norm=False, act="Tanh"), 32, norm=False, act="Tanh")
    x = n.conv(x, 9, norm=False, act=None)
    return n.model(n.op("DepthToSpace", x, blocksize=3, mode="CRD"))


def m5(size: int) -> onnx.ModelProto:
    """Dai et al., "Very Deep Convolutional Neural Networks for Raw Waveforms", 2016."""
    n = Network("m5", {"wave": (1, 1, 50 * size)})
    x = n.pool(n.conv("wave", 32, 80, 16, pad=0), 4, 4)
    for channels in (32, 64, 64):
        x = n.pool(n.conv(x, channels, 3), 4, 4) if n.shape(x)[2] >= 4 else n.conv(x, channels, 3)
    return n.model(n.linear(n.op("Flatten", n.op("GlobalAveragePool", x)), 35))


def tcn(size: int) -> onnx.ModelProto:
    """Bai et al., "An Empirical Evaluation of Generic Convolutional and Recurrent Networks", 2018."""
    n, x = Network("tcn", {"series": (1, 8, 2 * size)}), "series"
    for level in range(5):
        dilation = 1 << level
        y = n.conv(n.conv(x, 32, 3, dilation=dilation, norm=False), 32, 3, dilation=dilation, norm=False)
        x = n.op("Relu", n.op("Add", y, x if n.shape(x)[1] == 32 else n.conv(x, 32, 1, norm=False, act=None)))
    return n.model(n.conv(x, 10, 1, norm=False, act=None))


def dscnn(size: int) -> onnx.ModelProto:
    """Zhang et al., "Hello Edge", 2017: words of 49 times 10 coefficients."""
    n = Network("dscnn", {"sound": (1, 1, 49, 10)})
    x = n.conv("sound", 64, (10, 4), 2, pad=(4, 1))
    for _ in range(4):
        x = n.conv(n.conv(x, 64, groups=64), 64, 1)
    return n.model(n.classifier(x, 12))


def lstm(size: int) -> onnx.ModelProto:
    """Two layers of an LSTM over a series, and a product."""
    n, x = Network("lstm", {"series": (20, 1, 16)}), "series"
    for hidden in (32, 32):
        inner = n.shape(x)[2]
        weights = n.weights(1, 4 * hidden, inner, fan=inner), n.weights(1, 4 * hidden, hidden, fan=hidden)
        y = n.op("LSTM", x, *weights, hidden_size=hidden, outputs=3)[0]
        x = n.op("Squeeze", y, n.constant([1], np.int64))
    return n.model(n.linear(x, 10))


def crnn(size: int) -> onnx.ModelProto:
    """Shi et al., "An End-to-End Trainable Neural Network for Image-Based Sequence Recognition", 2015."""
    n = Network("crnn", {"text": (1, 1, 32, 100)})
    x = n.pool(n.conv(n.pool(n.conv("text", 32), 2, 2), 64), 2, 2)
    x = n.conv(n.conv(x, 128), 128, (8, 1), pad=(0, 0))
    x = n.transpose(n.op("Squeeze", x, n.constant([2], np.int64)), 2, 0, 1)
    weights = n.weights(2, 3 * 64, 128, fan=128), n.weights(2, 3 * 64, 64, fan=64)
    y = n.op("GRU", x, *weights, hidden_size=64, direction="bidirectional", outputs=2)[0]
    x = n.reshape(n.transpose(y, 0, 2, 1, 3), n.shape(y)[0], 1, 128)
    return n.model(n.op("Softmax", n.linear(x, 37), axis=2))


def _layer_norm(n: Network, x: str) -> str:
    size = n.shape(x)[-1]
    scale, shift = n.constant(np.ones(size), np.float32), n.constant(np.zeros(size), np.float32)
    return n.op("LayerNormalization", x, scale, shift, axis=-1)


def _encoder(n: Network, x: str, heads: int, act: str = "Gelu", mask: str | None = None) -> str:
    batch, steps, width = n.shape(x)
    y = _layer_norm(n, x)

    def head(order: tuple[int, ...]) -> str:
        return n.transpose(n.reshape(n.linear(y, width), batch, steps, heads, width // heads), *order)

    query, key, value = head((0, 2, 1, 3)), head((0, 2, 3, 1)), head((0, 2, 1, 3))
    scores = n.op("Mul", n.op("MatMul", query, key), n.constant((width // heads) ** -0.5, np.float32))
    if mask is not None:
        scores = n.op("Add", scores, mask)
    mixed = n.transpose(n.op("MatMul", n.op("Softmax", scores, axis=-1), value), 0, 2, 1, 3)
    x = n.op("Add", x, n.linear(n.reshape(mixed, batch, steps, width), width))
    return n.op("Add", x, n.linear(n.linear(_layer_norm(n, x), 4 * width, act), width))


def vit(size: int) -> onnx.ModelProto:
    """Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020: tiny, two layers."""
    n = Network("vit", {"image": (1, 3, size, size)}, opset=20)
    x = n.conv("image", 192, 16, 16, pad=0, norm=False, act=None)
    _, width, height, columns = n.shape(x)
    x = n.transpose(n.reshape(x, 1, width, height * columns), 0, 2, 1)
    x = n.op("Add", x, n.constant(n.random.normal(0, 0.1, (1, height * columns, width)), np.float32))
    for _ in range(2):
        x = _encoder(n, x, 3)
    x = n.op("ReduceMean", _layer_norm(n, x), n.constant([1], np.int64), keepdims=0)
    return n.model(n.linear(x, 100))


def bert(size: int) -> onnx.ModelProto:
    """Devlin et al., "BERT", 2018: tiny, with its mask as an input."""
    ids = np.random.default_rng(1).integers(0, 500, (1, 32))
    n = Network("bert", {"ids": ids, "mask": np.ones((1, 32), np.int64)}, opset=20)
    x = n.op("Gather", n.constant(n.random.normal(0, 1, (500, 128)), np.float32), "ids")
    x = n.op("Mul", x, n.op("Unsqueeze", n.op("Cast", "mask", to=1), n.constant([2], np.int64)))
    for _ in range(2):
        x = _encoder(n, x, 2)
    return n.model(n.linear(_layer_norm(n, x), 2))


def mixer(size: int) -> onnx.ModelProto:
    """Tolstikhin et al., "MLP-Mixer", 2021, two layers."""
    n = Network("mixer", {"image": (1, 3, size, size)}, opset=20)
    x = n.conv("image", 128, 16, 16, pad=0, norm=False, act=None)
    x = n.transpose(n.reshape(x, 1, 128, -1), 0, 2, 1)
    for _ in range(2):
        y = n.transpose(_layer_norm(n, x), 0, 2, 1)
        y = n.linear(n.linear(y, 64, "Gelu"), n.shape(x)[1])
        x = n.op("Add", x, n.transpose(y, 0, 2, 1))
        x = n.op("Add", x, n.linear(n.linear(_layer_norm(n, x), 256, "Gelu"), 128))
    return n.model(n.linear(n.op("ReduceMean", x, n.constant([1], np.int64), keepdims=0), 100))


def convnext(size: int) -> onnx.ModelProto:
    """Liu et al., "A ConvNet for the 2020s", 2022: layer normalisation over channels, products of places."""
    n = Network("convnext", {"image": (1, 3, size, size)}, opset=20)
    x = n.conv("image", 96, 4, 4, pad=0, norm=False, act=None)
    for channels in (96, 192):
        if n.shape(x)[1] != channels:
            x = n.conv(x, channels, 2, 2, pad=0, norm=False, act=None)
        for _ in range(2):
            y = n.conv(x, channels, 7, groups=channels, norm=False, act=None)
            y = _layer_norm(n, n.transpose(y, 0, 2, 3, 1))
            y = n.transpose(n.linear(n.linear(y, 4 * channels, "Gelu"), channels), 0, 3, 1, 2)
            x = n.op("Add", x, y)
    return n.model(n.classifier(x))


def ssdlite(size: int) -> onnx.ModelProto:
    """Liu et al., "SSD", 2015, over MobileNetV2's blocks as Sandler et al., 2018, have it: six heads, one list."""
    n = Network("ssdlite", {"image": (1, 3, size, size)})

    def block(x: str, channels: int, stride: int, expansion: int = 6) -> str:
        inner = n.shape(x)[1] * expansion
        y = n.conv(x, inner, 1, act="Relu6")
        y = n.conv(n.conv(y, inner, 3, stride, groups=inner, act="Relu6"), channels, 1, act=None)
        return n.op("Add", x, y) if stride == 1 and n.shape(x)[1] == channels else y

    def head(x: str, channels: int) -> str:
        y = n.conv(x, n.shape(x)[1], groups=n.shape(x)[1], act="Relu6")
        y = n.conv(y, channels * 6, 1, norm=False, act=None)
        return n.reshape(n.transpose(y, 0, 2, 3, 1), 1, -1, channels)

    x = n.conv("image", 32, 3, 2, act="Relu6")
    for channels, stride in ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1), (96, 1)):
        x = block(x, channels, stride)
    maps = [x]
    for channels in (160, 256, 128):
        maps.append(block(maps[-1], channels, 2, 2))
    boxes = n.op("Concat", *(head(one, 4) for one in maps), axis=1)
    kinds = n.op("Concat", *(head(one, 21) for one in maps), axis=1)
    return n.model(boxes, n.op("Sigmoid", kinds))


def inceptionv3(size: int) -> onnx.ModelProto:
    """Szegedy et al., "Rethinking the Inception Architecture", 2015: kernels of 1x7 and 7x1, parts joined."""
    n = Network("inceptionv3", {"image": (1, 3, size, size)})
    x = n.conv(n.conv(n.conv("image", 32, 3, 2), 32), 64)
    x = n.conv(n.conv(n.pool(x, 3, 2, 1), 80, 1), 192)
    x = n.pool(x, 3, 2, 1)
    for pooled in (32, 64):
        parts = [n.conv(x, 64, 1), n.conv(n.conv(x, 48, 1), 64, 5), n.conv(n.conv(n.conv(x, 64, 1), 96), 96)]
        mean = n.pool(x, 3, 1, 1, kind="AveragePool")
        x = n.op("Concat", *parts, n.conv(mean, pooled, 1), axis=1)
    x = n.op("Concat", n.conv(x, 384, 3, 2), n.pool(x, 3, 2, 1), axis=1)
    for inner in (128, 160):
        y = n.conv(n.conv(n.conv(x, inner, 1), inner, (1, 7)), 192, (7, 1))
        z = x
        for kernel in (1, (7, 1), (1, 7), (7, 1)):
            z = n.conv(z, inner, kernel)
        z = n.conv(z, 192, (1, 7))
        x = n.op("Concat", n.conv(x, 192, 1), y, z, axis=1)
    return n.model(n.classifier(x))


def xception(size: int) -> onnx.ModelProto:
    """Chollet, "Xception", 2016: depthwise, then 1x1, with an activation before them, and short cuts."""
    n = Network("xception", {"image": (1, 3, size, size)})
    x = n.conv(n.conv("image", 32, 3, 2), 64)

    def separable(x: str, channels: int) -> str:
        y = n.conv(x, n.shape(x)[1], groups=n.shape(x)[1], norm=False, act=None)
        return n.conv(y, channels, 1, act=None)

    for channels in (128, 256, 728):
        y = separable(n.op("Relu", separable(n.op("Relu", x), channels)), channels)
        x = n.op("Add", n.pool(y, 3, 2, 1), n.conv(x, channels, 1, 2, act=None))
    for _ in range(2):
        y = x
        for _ in range(3):
            y = separable(n.op("Relu", y), 728)
        x = n.op("Add", x, y)
    return n.model(n.classifier(n.op("Relu", separable(x, 1024))))


def ghostnet(size: int) -> onnx.ModelProto:
    """Han et al., "GhostNet", 2019: half of the channels made by a depthwise convolution of the others."""
    n = Network("ghostnet", {"image": (1, 3, size, size)})

    def ghost(x: str, channels: int, act: str | None) -> str:
        y = n.conv(x, channels // 2, 1, act=act)
        return n.op("Concat", y, n.conv(y, channels // 2, groups=channels // 2, act=act), axis=1)

    x = n.conv("image", 16, 3, 2)
    for inner, channels, stride in ((16, 16, 1), (48, 24, 2), (72, 24, 1), (72, 40, 2), (120, 40, 1), (240, 80, 2)):
        y = ghost(x, inner, "Relu")
        if stride == 2:
            y = n.conv(y, inner, 3, 2, groups=inner, act=None)
        y = ghost(y, channels, None)
        if stride == 2 or n.shape(x)[1] != channels:
            x = n.conv(x, n.shape(x)[1], 3, stride, groups=n.shape(x)[1], act=None)
            x = n.conv(x, channels, 1, act=None)
        x = n.op("Add", x, y)
    return n.model(n.classifier(x))


def convmixer(size: int) -> onnx.ModelProto:
    """Trockman and Kolter, "Patches Are All You Need?", 2022: depthwise kernels of 9x9, and GELU."""
    n = Network("convmixer", {"image": (1, 3, size, size)}, opset=20)
    x = n.conv("image", 128, 4, 4, pad=0, act="Gelu")
    for _ in range(3):
        y = n.op("Add", x, n.conv(x, 128, 9, groups=128, act="Gelu"))
        x = n.conv(y, 128, 1, act="Gelu")
    return n.model(n.classifier(x))


def hrnet(size: int) -> onnx.ModelProto:
    """Sun et al., "Deep High-Resolution Representation Learning", 2019: two resolutions that exchange sums."""
    n = Network("hrnet", {"image": (1, 3, size, size)})
    x = n.conv(n.conv("image", 64, 3, 2), 64, 3, 2)
    high, low = n.conv(x, 32), n.conv(x, 64, 3, 2)
    for _ in range(2):
        high = n.op("Relu", n.op("Add", high, n.conv(n.conv(high, 32), 32, act=None)))
        low = n.op("Relu", n.op("Add", low, n.conv(n.conv(low, 64), 64, act=None)))
        up = n.resize(n.conv(low, 32, 1, act=None), 2)
        down = n.conv(high, 64, 3, 2, act=None)
        high, low = n.op("Relu", n.op("Add", high, up)), n.op("Relu", n.op("Add", low, down))
    return n.model(n.conv(n.op("Concat", high, n.resize(low, 2), axis=1), 17, 1, norm=False, act=None))


def efficientnetv2(size: int) -> onnx.ModelProto:
    """Tan and Le, "EfficientNetV2", 2021: blocks whose first convolution is dense."""
    n = Network("efficientnetv2", {"image": (1, 3, size, size)})
    x = n.conv("image", 24, 3, 2, act="SiLU")
    for expansion, channels, blocks, first in ((1, 24, 2, 1), (4, 48, 2, 2), (4, 64, 2, 2)):
        for block in range(blocks):
            stride, source = first if not block else 1, n.shape(x)[1]
            y = n.conv(x, source * expansion, 3, stride, act="SiLU")
            y = n.conv(y, channels, 1, act=None) if expansion > 1 else y
            x = n.op("Add", x, y) if stride == 1 and source == channels else y
    for channels, stride in ((128, 2), (128, 1), (160, 1)):
        source = n.shape(x)[1]
        y = n.conv(n.conv(x, 4 * source, 1, act="SiLU"), 4 * source, 3, stride, groups=4 * source, act="SiLU")
        y = n.conv(_excite(n, y, source), channels, 1, act=None)
        x = n.op("Add", x, y) if stride == 1 and source == channels else y
    return n.model(n.classifier(n.conv(x, 512, 1, act="SiLU")))


def wavenet(size: int) -> onnx.ModelProto:
    """Van den Oord et al., "WaveNet", 2016: gates of tanh and sigmoid over dilated convolutions, skips summed."""
    n = Network("wavenet", {"wave": (1, 1, 8 * size)})
    x, skips = n.conv("wave", 32, 1, norm=False, act=None), ""
    for level in range(6):
        y = n.conv(x, 64, 2, dilation=1 << level, pad=0, norm=False, act=None)
        parts = n.op("Split", y, n.constant([32, 32], np.int64), outputs=2, axis=1)
        y = n.op("Mul", n.op("Tanh", parts[0]), n.op("Sigmoid", parts[1]))
        ends = n.shape(x)[2]
        x = n.op("Slice", x, *(n.constant([one], np.int64) for one in (ends - n.shape(y)[2], ends, 2)))
        skip = n.conv(y, 32, 1, norm=False, act=None)
        if skips:
            before = n.shape(skips)[2]
            cut = (n.constant([one], np.int64) for one in (before - n.shape(y)[2], before, 2))
            skip = n.op("Add", skip, n.op("Slice", skips, *cut))
        x, skips = n.op("Add", x, n.conv(y, 32, 1, norm=False, act=None)), skip
    return n.model(n.conv(n.op("Relu", skips), 256, 1, norm=False, act=None))


def yolov3tiny(size: int) -> onnx.ModelProto:
    """Redmon and Farhadi, "YOLOv3", 2018: tiny, with leaky activations and two heads."""
    n, x = Network("yolov3tiny", {"image": (1, 3, size, size)}), "image"
    for channels in (16, 32, 64, 128):
        x = n.pool(n.act(n.conv(x, channels, act=None), "LeakyRelu"), 2, 2)
    route = n.act(n.conv(x, 256, act=None), "LeakyRelu")
    x = n.act(n.conv(n.pool(route, 2, 2), 512, act=None), "LeakyRelu")
    x = n.act(n.conv(x, 256, 1, act=None), "LeakyRelu")
    large = n.conv(n.act(n.conv(x, 512, act=None), "LeakyRelu"), 255, 1, norm=False, act=None)
    y = n.op("Concat", n.resize(n.act(n.conv(x, 128, 1, act=None), "LeakyRelu"), 2), route, axis=1)
    return n.model(large, n.conv(n.act(n.conv(y, 256, act=None), "LeakyRelu"), 255, 1, norm=False, act=None))


def swin(size: int) -> onnx.ModelProto:
    """Liu et al., "Swin Transformer", 2021: attention within windows of 4x4, which images are cut into."""
    n = Network("swin", {"image": (1, 3, size, size)}, opset=20)
    x = n.conv("image", 96, 4, 4, pad=0, norm=False, act=None)
    _, width, height, columns = n.shape(x)
    x = n.transpose(x, 0, 2, 3, 1)
    y = n.reshape(x, 1, height // 4, 4, columns // 4, 4, width)
    y = n.reshape(n.transpose(y, 0, 1, 3, 2, 4, 5), -1, 16, width)
    y = _encoder(n, y, 3)
    y = n.transpose(n.reshape(y, 1, height // 4, columns // 4, 4, 4, width), 0, 1, 3, 2, 4, 5)
    x = n.op("Add", x, n.reshape(y, 1, height, columns, width))
    return n.model(n.linear(n.op("ReduceMean", x, n.constant([1, 2], np.int64), keepdims=0), 100))


def gpt(size: int) -> onnx.ModelProto:
    """Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: two layers, with a causal mask."""
    ids = np.random.default_rng(2).integers(0, 500, (1, 24))
    n = Network("gpt", {"ids": ids}, opset=20)
    x = n.op("Gather", n.constant(n.random.normal(0, 1, (500, 96)), np.float32), "ids")
    x = n.op("Add", x, n.constant(n.random.normal(0, 0.1, (1, 24, 96)), np.float32))
    mask = np.triu(np.full((24, 24), -10.0, np.float32), 1)
    for _ in range(2):
        x = _encoder(n, x, 2, mask=n.constant(mask, np.float32))
    return n.model(n.linear(_layer_norm(n, x), 500))


def c3d(size: int) -> onnx.ModelProto:
    """Tran et al., "Learning Spatiotemporal Features", 2014: 16 frames, convolutions over time as well."""
    n, x = Network("c3d", {"clip": (1, 3, 16, size // 2, size // 2)}), "clip"
    for stage, (channels, count) in enumerate(((64, 1), (128, 1), (256, 2), (512, 2), (512, 2))):
        for _ in range(count):
            x = n.conv(x, channels, norm=False)
        depth, around = 2 if stage else 1, int(stage == 4)
        pads = [0, around, around] * 2
        x = n.op("MaxPool", x, kernel_shape=[depth, 2, 2], strides=[depth, 2, 2], pads=pads)
    x = n.linear(n.linear(n.op("Flatten", x), 4096, "Relu"), 4096, "Relu")
    return n.model(n.linear(x, 487))


def autoencoder(size: int) -> onnx.ModelProto:
    """Koizumi et al., "ToyADMOS", 2019, as MLPerf Tiny has it: products alone."""
    n, x = Network("autoencoder", {"sound": (1, 640)}), "sound"
    for features in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = n.linear(x, features, "Relu")
    return n.model(n.linear(x, 640))


def pointnet(size: int) -> onnx.ModelProto:
    """Qi et al., "PointNet", 2016: products over points, and their maximum."""
    n, x = Network("pointnet", {"points": (1, 3, 256)}), "points"
    for channels in (64, 64, 128, 512):
        x = n.conv(x, channels, 1)
    return n.model(n.linear(n.op("ReduceMax", x, axes=[2], keepdims=0), 40))


ARCHITECTURES: dict[str, Callable[[int], onnx.ModelProto]] = {
    one.__name__: one
    for one in (
        alexnet, vgg11, squeezenet, googlenet, resnext50, densenet121, mobilenetv1, mobilenetv3, efficientnet, mnasnet,
        shufflenetv2, regnet, unet, deeplab, yolov8n, dcgan, espcn, m5, tcn, dscnn, lstm, crnn, vit, bert, mixer,
        convnext, c3d, autoencoder, pointnet, ssdlite, inceptionv3, xception, ghostnet, convmixer, hrnet,
        efficientnetv2, wavenet, yolov3tiny, swin, gpt,
    )
}  # fmt: skip
"""From the size of an image to a float model; what reads no image has a size of its own."""
