"""Where a model's inputs and outputs lie in its memory, and how, for those who read and write them there."""

from collections.abc import Iterable, Iterator

from npukit.firmware.boundary import Port
from npukit.firmware.c_layout import needs_padding
from npukit.firmware.c_text import float_literal
from npukit.isa.formats import NumberFormat

__all__ = ["image_bytes", "placement"]


def image_bytes(port: Port, activation: NumberFormat) -> int:
    """Bytes of memory that a tensor takes, what lies around it included."""
    return port.tensor.layout.elements * activation.bytes


def placement(field: str, kind: str, ports: Iterable[Port], activation: NumberFormat) -> Iterator[str]:
    """Macros of one input or output, `<field>_OFFSET` and `<field>_BYTES`, below a comment that says how it lies there.

    An input that the program has in several forms has as many of them; the second one's are `<field>_OFFSET_2`.
    """
    for number, port in enumerate(ports, 1):
        suffix = "" if number == 1 else f"_{number}"
        first, *others = _described(kind, port, activation)
        yield f"/* {first}"
        yield from (f" * {line}" for line in others)
        yield " */"
        yield f"#define {field}_OFFSET{suffix} {port.tensor.address}u"
        yield f"#define {field}_BYTES{suffix} {image_bytes(port, activation)}u"


def _described(kind: str, port: Port, activation: NumberFormat) -> Iterator[str]:
    """Lines of the comment."""
    layout = port.tensor.layout
    unit = activation.bytes
    parts = activation.parts_of(port.tensor.dtype)
    shape = "".join(f"[{size}]" for size in layout.shape)
    start = "".join(f"[{first}]" for first in layout.origin)
    yield f"In memory: {shape} of {_element(port, activation)}, from {start} on, in loops from the outermost inwards:"
    for dim in layout.dims:
        if dim.size > 1:
            yield f"  {dim.size} steps of {dim.stride * unit} byte(s) and {dim.step} on axis {dim.axis}"
    if parts > 1:
        yield f"The last axis is that of the bytes of an {port.tensor.dtype}, the lowest one first."
    if needs_padding(layout):
        if kind == "output":
            yield "What belongs to no element means nothing."
        else:
            mask = (1 << 8 * unit) - 1
            yield f"What belongs to no element is {layout.pad & mask:#0{2 + 2 * unit}x}."
    if port.quantisation is not None:
        scale, zero_point = float_literal(port.quantisation.scale), port.quantisation.zero_point
        if kind == "input":
            yield f"{port.tensor.dtype} = value / {scale} + ({zero_point}), rounded, ties to even, and saturated."
        else:
            yield f"value = ({port.tensor.dtype} - ({zero_point})) * {scale}."


def _element(port: Port, activation: NumberFormat) -> str:
    if activation.floating:
        return "bfloat16 (low byte first)"
    if port.tensor.flip:
        return "uint8 (highest bit inverted)"
    return port.tensor.dtype
