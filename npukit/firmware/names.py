"""Names of a model as names in C."""

import re
from collections.abc import Iterable

from npukit.firmware.errors import FirmwareError
from npukit.firmware.system_headers import SYSTEM_HEADERS

__all__ = ["identifier", "identifiers", "model_identifier"]

_RESERVED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool asm
    alignas alignof and and_eq bitand bitor catch class compl concept consteval constexpr constinit const_cast decltype
    delete dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or
    or_eq private protected public reinterpret_cast requires static_assert static_cast template this thread_local throw
    true try typeid typename typeof using virtual wchar_t xor xor_eq
    errno linux main unix NULL
    """.split()
)
"""Keywords of C and C++, and what compilers and headers define as macros."""
_FILES = frozenset({"npu", "example"})
"""Names of the runtime's files."""
_LONGEST = 100
"""Characters of a model's name, which begins the names of its files and functions."""
_SHOWN = 20
"""Of them in a message."""


def identifier(text: str) -> str:
    """A name in C for any text."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "model"
    if name[0].isdigit():
        name = f"model_{name}"
    return f"{name}_" if name in _RESERVED else name


def model_identifier(text: str) -> str:
    """A name for a model's files and functions, in lower case, that is none of the runtime's or of a system's headers.

    Raises:
        FirmwareError: one that is too long for a file.
    """
    name = identifier(text).lower()
    if len(name) > _LONGEST:
        raise FirmwareError(
            f"the name {name[:_SHOWN]}... has {len(name)} characters; files and functions in C are called after it, "
            f"which takes at most {_LONGEST}: give a shorter one with --name"
        )
    return f"model_{name}" if name in _FILES | SYSTEM_HEADERS or name.startswith("npu_") else name


def identifiers(texts: Iterable[str]) -> dict[str, str]:
    """A name in C for each of them, no two alike, as macros in upper case neither."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for text in texts:
        if text in found:
            continue
        base = name = identifier(text)
        number = 2
        while name.upper() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.upper())
        found[text] = name
    return found
