"""Images that follow each other, [batch, channels, depth, height, width], as what the machine computes on: images.

In memory, the images of a batch follow each other within a channel block, and so do those of a volume. So a volume is
seen as a batch of more images, or as one image whose rows are whole images: no word moves.
"""

from dataclasses import replace
from math import prod

import numpy as np
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.base import Produced, sources_of
from npukit.compiler.frontends.onnx.operators.windows import Window, WindowAxis, plane_of
from npukit.compiler.ir.operations import Depth, Rearrange, Reshape, TensorOperation
from npukit.compiler.ir.tensor import Constant, Tensor

__all__ = ["as_columns", "as_images", "as_volume", "flat_kernel"]

_IMAGES = (0, 2, 1, 3, 4)
"""The dimensions of a volume, in the order of a batch of images."""


def as_images(x: Tensor, result: Produced) -> tuple[Tensor, TensorOperation]:
    """A volume as [batch * depth, channels, height, width], and the operation that sees it so."""
    batch, channels, depth, *places = x.shape
    seen = replace(x, name=f"{x.name} as images of {result.tensor.name}", shape=(batch * depth, channels, *places))
    return seen, Rearrange(
        output=seen.name, sources=sources_of(result.nodes), input=x.name, sizes=x.shape, permutation=_IMAGES
    )


def as_columns(x: Tensor, result: Produced) -> tuple[Tensor, TensorOperation]:
    """A volume as [batch, channels, depth, height * width], and the operation that sees it so."""
    shape = (*x.shape[:3], prod(x.shape[3:]))
    seen = replace(x, name=f"{x.name} as columns of {result.tensor.name}", shape=shape)
    return seen, Reshape(output=seen.name, sources=sources_of(result.nodes), input=x.name)


def as_volume(seen: Tensor, y: Tensor, result: Produced) -> TensorOperation:
    """The operation that sees images, or columns, as the volume that they are."""
    sources = sources_of(result.nodes)
    if seen.shape[:3] == y.shape[:3]:
        return Reshape(output=y.name, sources=sources, input=seen.name)
    batch, channels, depth, *places = y.shape
    sizes = (batch, depth, channels, *places)
    return Rearrange(output=y.name, sources=sources, input=seen.name, sizes=sizes, permutation=_IMAGES)


def flat_kernel(
    weights: Constant, axes: list[WindowAxis], x: Tensor, y: Tensor, groups: int
) -> tuple[Constant, Window, Depth | None, bool]:
    """A kernel of three dimensions [out, in, depth, height, width] as one of two.

    Returns:
        The weights; the window; its third dimension, where it has one; and whether it moves over columns, and not over
        images.

    Raises:
        Refused: groups, where windows have all three dimensions.
    """
    depth, vertical, horizontal = axes
    outer, inner, images, height, width = weights.tensor.shape
    if depth.idle:
        return _shaped(weights, (outer, inner, height, width)), plane_of(vertical, horizontal), None, False
    if vertical.idle and horizontal.idle:
        return _shaped(weights, (outer, inner, images, 1)), plane_of(depth, horizontal), None, True
    if groups > 1:
        raise Refused(
            f"a kernel of {images}x{height}x{width} in {groups} groups; groups are supported where its depth, or its "
            "height and width, are 1"
        )
    third = Depth(
        images=x.shape[2], results=y.shape[2], kernel=images, stride=depth.stride, pad=depth.before,
        dilation=depth.dilation,
    )  # fmt: skip
    blind = [image for image in range(third.results) if not third.seen(image)]
    if blind:
        raise Refused(f"images {blind} of its result see nothing but padding")
    in_front = Constant(weights.tensor, np.ascontiguousarray(weights.data.swapaxes(1, 2)))
    shape = outer, images * inner, height, width
    return _shaped(in_front, shape), plane_of(vertical, horizontal), third, False


def _shaped(weights: Constant, shape: tuple[int, ...]) -> Constant:
    """Weights under another shape and name: others may read them as they are."""
    name = f"{weights.tensor.name} as {'x'.join(map(str, shape))}"
    return Constant(replace(weights.tensor, name=name, shape=shape), weights.data.reshape(shape))
