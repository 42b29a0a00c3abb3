"""Windows over images, with TFLite's two kinds of padding."""

from dataclasses import dataclass

from npukit.compiler.errors import Refused
from npukit.compiler.frontends.tflite.operators.base import Node
from npukit.compiler.ir.tensor import Tensor

__all__ = ["Windows", "check_image", "windows_of"]

_SAME, _VALID = 0, 1


@dataclass(frozen=True)
class Windows:
    """Vertical and horizontal strides and dilations; padding at the top, the left, the bottom and the right."""

    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]


def check_image(x: Tensor, what: str) -> None:
    """Refuse what is no image [batch, height, width, channels]."""
    if len(x.shape) != 4:
        raise Refused(f"{what} of {len(x.shape)} dimensions, {list(x.shape)}; 4 are supported")


def windows_of(node: Node, x: Tensor, y: Tensor, kernel: tuple[int, int], dilated: bool = True) -> Windows:
    """The windows of an operator.

    Raises:
        Refused: where they do not make the result's shape of the input's.
    """
    check_image(x, "input")
    check_image(y, "result")
    strides = node.option("StrideH", 1), node.option("StrideW", 1)
    dilations = (node.option("DilationHFactor", 1), node.option("DilationWFactor", 1)) if dilated else (1, 1)
    if min(*strides, *dilations, *kernel) < 1:
        raise Refused(f"kernel {list(kernel)}, strides {list(strides)} and dilations {list(dilations)} are 1 and more")
    padding = node.option("Padding")
    pads = []
    for axis in (0, 1):
        size, reach = x.shape[1 + axis], (kernel[axis] - 1) * dilations[axis] + 1
        count = -(-size // strides[axis]) if padding == _SAME else (size - reach) // strides[axis] + 1
        if count != y.shape[1 + axis]:
            raise Refused(
                f"a kernel of {kernel[0]}x{kernel[1]} with strides {list(strides)} and dilations {list(dilations)} "
                f"does not make {list(y.shape)} of {list(x.shape)}"
            )
        whole = max((count - 1) * strides[axis] + reach - size, 0) if padding == _SAME else 0
        pads.append((whole // 2, whole - whole // 2))
    return Windows(strides, (pads[0][0], pads[1][0], pads[0][1], pads[1][1]), dilations)
