"""Functions in C that bring a tensor from the framework's layout and type to the machine's, and back."""

from dataclasses import dataclass, replace

import numpy as np

from npukit.firmware.boundary import Port
from npukit.firmware.c_layout import loops, needs_padding
from npukit.firmware.c_text import float_literal
from npukit.isa.formats import Datapath
from npukit.isa.layout import Layout

__all__ = ["C_TYPES", "HELPERS", "Function", "reader", "writer"]

C_TYPES = {"float32": "float", "int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t"}
"""What C calls the elements of a model's tensors."""

HELPERS = {
    "quantize": """\
/* The nearest step, ties to even, saturated, as ONNX Runtime has it, which makes the lowest of NaN. */
static uint8_t quantize(float value, float scale, int32_t zero_point)
{
    const float lowest = (float)(-128 - zero_point);
    const float highest = (float)(127 - zero_point);
    float steps = value / scale;
    if (!(steps > lowest)) steps = lowest;
    if (steps > highest) steps = highest;
    int32_t whole = (int32_t)steps;
    const float rest = steps - (float)whole;
    const int32_t odd = whole & 1;
    if (rest > 0.5f || (rest == 0.5f && odd)) ++whole;
    if (rest < -0.5f || (rest == -0.5f && odd)) --whole;
    return (uint8_t)(whole + zero_point);
}""",
    "integer": """\
/* The signed number that a byte of memory holds. */
static int32_t integer(uint8_t byte)
{
    return (int32_t)(byte ^ 0x80u) - 128;
}""",
    "sum": """\
/* The signed number of 32 bits whose bytes lie `stride` bytes apart, the lowest one first. */
static int32_t sum(const uint8_t *image, int32_t stride)
{
    const uint32_t bits = (uint32_t)image[0] | (uint32_t)image[stride] << 8 | (uint32_t)image[2 * stride] << 16 |
                          (uint32_t)image[3 * stride] << 24;
    return bits < 0x80000000u ? (int32_t)bits : -1 - (int32_t)~bits;
}""",
    "narrow": """\
/* Write a bfloat16: rounded to nearest even; a subnormal number becomes 0, and NaN the canonical one. */
static void narrow(uint8_t *image, float value)
{
    union {
        float value;
        uint32_t bits;
    } as;
    as.value = value;
    uint32_t bits = as.bits;
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        bits = 0x7FC0u;
    } else if ((bits & 0x7F800000u) == 0) {
        bits = 0;
    } else {
        bits = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    }
    image[0] = (uint8_t)(bits & 0xFFu);
    image[1] = (uint8_t)(bits >> 8);
}""",
    "widen": """\
/* Read a bfloat16; a subnormal number is 0. */
static float widen(const uint8_t *image)
{
    union {
        float value;
        uint32_t bits;
    } as;
    as.bits = ((uint32_t)image[0] | (uint32_t)image[1] << 8) << 16;
    if ((as.bits & 0x7F800000u) == 0) as.bits = 0;
    return as.value;
}""",
}
"""Functions that conversions call. A model has those that it needs."""


@dataclass(frozen=True)
class Function:
    """A static function in C, and the names of `HELPERS` that it calls."""

    name: str
    text: str
    helpers: frozenset[str]


def _machine_zero_point(port: Port) -> int:
    """Of uint8 the machine has the number less 128."""
    assert port.quantisation is not None
    return port.quantisation.zero_point - (128 if port.tensor.flip else 0)


def _nest(lines: list[str], body: str) -> list[str]:
    """Loops around a statement, with their closing braces."""
    text, depth = [], 1
    for line in lines:
        text.append("    " * depth + line)
        depth += line.endswith("{")
    text.append("    " * depth + body)
    while depth > 1:
        depth -= 1
        text.append("    " * depth + "}")
    return text


def _padding(layout: Layout, element_bytes: int) -> list[str]:
    """Statements that fill an image with what lies around the tensor."""
    start = f"for (int32_t i = 0; i < {layout.elements}; ++i)"
    if element_bytes == 1:
        return [f"    {start} image[i] = {layout.pad & 0xFF};"]
    bytes_ = [layout.pad >> 8 * number & 0xFF for number in range(element_bytes)]
    stores = [f"        image[{element_bytes} * i + {number}] = {byte};" for number, byte in enumerate(bytes_)]
    return [f"    {start} {{", *stores, "    }"]


def writer(port: Port, name: str, datapath: Datapath) -> Function:
    """`static void name(uint8_t *image, const T *tensor)`: write all of an input's image in memory."""
    layout = port.tensor.layout
    lines, element = loops(layout)
    value = f"tensor[{element.flat}]"
    helpers: set[str] = set()
    if datapath.activation.floating:
        helpers, body = {"narrow"}, f"narrow(&image[2 * ({element.place})], {value});"
    elif port.quantisation is not None:
        scale = float_literal(port.quantisation.scale)
        helpers, body = (
            {"quantize"},
            f"image[{element.place}] = quantize({value}, {scale}, {_machine_zero_point(port)});",
        )
    elif port.tensor.flip:
        body = f"image[{element.place}] = (uint8_t)({value} ^ 0x80u);"
    else:
        body = f"image[{element.place}] = (uint8_t){value};"
    padding = _padding(layout, np.dtype(datapath.activation.storage).itemsize) if needs_padding(layout) else []
    head = [f"static void {name}(uint8_t *image, const {C_TYPES[port.dtype]} *tensor)", "{"]
    return Function(name, "\n".join([*head, *padding, *_nest(lines, body), "}"]), frozenset(helpers))


def reader(port: Port, name: str, datapath: Datapath) -> Function:
    """`static void name(T *tensor, const uint8_t *image)`: read an output from its image in memory."""
    layout = port.tensor.layout
    parts = datapath.activation.parts_of(port.tensor.dtype)
    helpers: set[str] = set()
    if parts > 1:
        # a number's bytes, along the last axis, are read together
        axis = len(layout.shape) - 1
        (part,) = (dim for dim in layout.dims if dim.axis == axis)
        others = tuple(dim for dim in layout.dims if dim.axis != axis)
        lines, element = loops(replace(layout, shape=layout.shape[:axis], origin=layout.origin[:axis], dims=others))
        helpers, value = {"sum"}, f"sum(&image[{element.place}], {part.stride})"
    else:
        lines, element = loops(layout)
        value = f"image[{element.place}]"
        if datapath.activation.floating:
            helpers, value = {"widen"}, f"widen(&image[2 * ({element.place})])"
        elif port.quantisation is not None or port.dtype == "int8":
            helpers, value = {"integer"}, f"integer({value})"
        else:
            value = f"{value} ^ 0x80u"
    if port.quantisation is not None:
        zero_point = _machine_zero_point(port)
        shifted = value if zero_point == 0 else f"({value} {'-' if zero_point > 0 else '+'} {abs(zero_point)})"
        value = f"(float){shifted} * {float_literal(port.quantisation.scale)}"
    elif port.dtype in ("int8", "uint8"):
        value = f"({C_TYPES[port.dtype]})({value})"
    head = [f"static void {name}({C_TYPES[port.dtype]} *tensor, const uint8_t *image)", "{"]
    body = f"tensor[{element.flat}] = {value};"
    return Function(name, "\n".join([*head, *_nest(lines, body), "}"]), frozenset(helpers))
