"""Literals and arrays in C."""

import re
from collections.abc import Iterator

import numpy as np

__all__ = ["byte_array", "comment", "float_literal"]

_COLUMNS = 120


def float_literal(value: float) -> str:
    """A float32, exactly."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def byte_array(name: str, data: bytes, qualifiers: str, brief: bool = False) -> Iterator[str]:
    """A constant array of bytes, whose initialiser has as many numbers in a line as fit; `brief`: one number, for an
    array of the same size that compiles at once."""
    yield f"{qualifiers} const uint8_t {name}[{len(data)}] = {{"
    line = "   "
    for byte in b"\1" if brief else data:
        if len(line) + len(str(byte)) + 2 > _COLUMNS:
            yield line
            line = "   "
        line += f" {byte},"
    yield line
    yield "};"


def comment(text: str) -> str:
    """Text that stays within a comment and is ASCII on one line without trigraphs, as names of models may not be."""
    kept = text.encode("unicode_escape").decode()
    for pair in ("*/", "/*"):
        kept = kept.replace(pair, f"{pair[0]} {pair[1]}")
    return re.sub(r"\?(?=\?)", "? ", kept)
