"""Windows of convolutions and pools: how they move, and over what."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from npukit.compiler.errors import Refused
from npukit.compiler.frontends.onnx.operators.integer import operator_of
from npukit.compiler.ir.tensor import Tensor

__all__ = [
    "Window",
    "WindowAxis",
    "check_channels",
    "check_image",
    "plane_of",
    "window_attribute",
    "window_axes",
    "window_pads",
]


@dataclass(frozen=True)
class Window:
    """How a window moves over an image: (vertical, horizontal), and padding (top, left, bottom, right).

    Bottom and right are what the output's size needs; a negative need is 0.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]


@dataclass(frozen=True)
class WindowAxis:
    """A window along one dimension; `before` and `after`: padding."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def idle(self) -> bool:
        """Whether it is one element, which moves in single steps within the image."""
        return (self.kernel, self.stride, self.before, self.after) == (1, 1, 0, 0)


def plane_of(vertical: WindowAxis, horizontal: WindowAxis) -> Window:
    """A window of two dimensions."""
    return Window(
        (vertical.kernel, horizontal.kernel), (vertical.stride, horizontal.stride),
        (vertical.dilation, horizontal.dilation),
        (vertical.before, horizontal.before, vertical.after, horizontal.after),
    )  # fmt: skip


def window_axes(node: ir.Node, x: Tensor, y: Tensor, kernel: Sequence[int]) -> list[WindowAxis]:
    """The window of a Conv or pool, of its attributes `strides`, `dilations`, `pads`, `auto_pad` and `ceil_mode`.

    Two dimensions, of which the first is idle over an image of width alone, or three.

    Raises:
        Refused: for attributes out of range, or where ONNX's shape inference sees another result than they give.
    """
    check_channels(y, operator_of(node))
    axes = len(x.shape) - 2
    if len(y.shape) != len(x.shape):
        raise Refused(f"kernel {'x'.join(map(str, kernel))} does not make {list(y.shape)} of {list(x.shape)}")
    size, out = ((1, *one.shape[2:]) if axes == 1 else one.shape[2:] for one in (x, y))
    kernel = window_attribute("kernel_shape", kernel, axes, 1)
    strides = window_attribute("strides", node.attributes.get_ints("strides"), axes, 1)
    dilations = window_attribute("dilations", node.attributes.get_ints("dilations"), axes, 1)
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    count = len(kernel)
    given: Sequence[int] = (0,) * (2 * count)
    if mode == "NOTSET":
        given = window_pads(node.attributes.get_ints("pads"), axes)
    elif mode not in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        raise Refused(f"auto_pad is {mode}; NOTSET, VALID, SAME_UPPER and SAME_LOWER are supported")
    found = []
    for axis in range(count):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        need = (out[axis] - 1) * strides[axis] + reach - size[axis]
        before, after = given[axis], given[count + axis]
        if mode.startswith("SAME"):
            total = max(0, need)
            before = total // 2 if mode == "SAME_UPPER" else -(-total // 2)
            fits = out[axis] == -(-size[axis] // strides[axis])
        else:
            room = size[axis] + before + after - reach
            last = -(-room // strides[axis]) if node.attributes.get_int("ceil_mode", 0) else room // strides[axis]
            # with ceil_mode, a window that begins behind the image counts or not, by the operator set
            fits = room >= 0 and room // strides[axis] <= out[axis] - 1 <= last
        if not fits:
            raise Refused(
                f"kernel {'x'.join(map(str, kernel))} with strides {list(strides)}, dilations {list(dilations)} and "
                f"pads {list(given)} does not make {list(y.shape)} of {list(x.shape)}"
            )
        found.append(WindowAxis(kernel[axis], strides[axis], dilations[axis], before, max(0, need - before)))
    return found


def check_image(x: Tensor, op: str, any_channels: bool = False, most: int = 2) -> None:
    """Refuse an operator whose input is no image of height and width, or of width alone, or no volume.

    any_channels: its channels may lie along any dimension. most: 3 where it may have a depth as well.
    """
    kinds = ("4 (NCHW)", "3 (NCW)") if most == 2 else ("5 (NCDHW)", "4 (NCHW)", "3 (NCW)")
    if not 3 <= len(x.shape) <= 2 + most:
        wanted = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise Refused(f"input {x.name} has {len(x.shape)} dimensions; {op} needs {wanted}")
    if not any_channels:
        check_channels(x, op)


def check_channels(tensor: Tensor, op: str) -> None:
    """Refuse an operator on images whose input or result has its channels elsewhere than along the second dimension."""
    if tensor.channel_axis != 1:
        raise Refused(
            f"words of {tensor.name} hold what lies along its axis {tensor.channel_axis}; {op} needs channels along 1"
        )


def window_attribute(name: str, values: Sequence[int] | None, axes: int, least: int, default: int = 1) -> Sequence[int]:
    """An attribute of a window with a number for each of its axes, none below `least`: vertical, horizontal.

    A window of one axis is horizontal, and has the default for the other; so has one without the attribute.
    """
    found = values or (default,) * axes
    if len(found) != axes or min(found) < least:
        raise Refused(f"its attribute {name} is {list(found)}; {axes} numbers from {least} on are supported")
    return (default, found[0]) if axes == 1 else found


def window_pads(values: Sequence[int] | None, axes: int) -> Sequence[int]:
    """The attribute `pads` of a window: top, left, bottom, right; with a third axis, that before both. Raises Refused
    where it is none."""
    found = values or (0,) * (2 * axes)
    if len(found) != 2 * axes or min(found) < 0:
        raise Refused(f"its attribute pads is {list(found)}; {2 * axes} numbers from 0 on are supported")
    return (0, found[0], 0, found[1]) if axes == 1 else found
