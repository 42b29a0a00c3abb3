"""Names of a model as names in C."""

import re
from collections.abc import Iterable

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
_FILES = frozenset(
    """
    npu example
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
    """.split()
)
"""Names of the runtime's files, and of C's headers, which a file of a model must not hide."""


def identifier(text: str) -> str:
    """A name in C for any text."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "model"
    if name[0].isdigit():
        name = f"model_{name}"
    return f"{name}_" if name in _RESERVED else name


def model_identifier(text: str) -> str:
    """A name for a model's files and functions, in lower case, that is none of the runtime's."""
    name = identifier(text).lower()
    return f"model_{name}" if name in _FILES or name.startswith("npu_") else name


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
