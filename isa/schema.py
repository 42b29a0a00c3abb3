"""JSON of a fixed form: each function returns a value that is what it must be, or says where it is not.

`place` names a value as in `tensors[3].layout`, `field` a member of it.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

__all__ = ["MOST", "SchemaError", "flag", "items", "mapping", "one_of", "parse", "record", "shape", "text", "whole"]

MOST = (1 << 63) - 1
"""The largest whole number that may stand anywhere."""


class SchemaError(ValueError):
    """A value that is not what it must be; the message names its place, the rule and the value."""


def _shown(value: Any) -> str:
    found = repr(value)
    return found if len(found) <= 80 else f"{found[:60]}... ({len(found)} characters)"


def _refuse(rule: str, value: Any, place: str, field: str) -> NoReturn:
    name = f"{place}.{field}" if field and place else place or field
    raise SchemaError(f"{name} must be {rule}, not {_shown(value)}")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise SchemaError(f"the name {_shown(twice)} stands twice")
    return found


def _no_number(written: str) -> NoReturn:
    raise SchemaError(f"a number must be whole, not {_shown(written)}")


def parse(data: bytes) -> Any:
    """A JSON value whose numbers are all whole and whose objects hold each name once.

    Raises:
        SchemaError: not JSON, not text, nested too deeply, or one of those.
    """
    try:
        return json.loads(
            data.decode(), object_pairs_hook=_members, parse_float=_no_number, parse_constant=_no_number
        )  # fmt: skip
    except SchemaError:
        raise
    except RecursionError:
        raise SchemaError("values are nested too deeply") from None
    except UnicodeDecodeError:
        raise SchemaError("it is not text (UTF-8)") from None
    except ValueError as error:  # no JSON, or a number of thousands of digits
        raise SchemaError(str(error)) from None


def whole(value: Any, low: int, high: int, place: str, field: str = "") -> int:
    """A whole number in a range."""
    if type(value) is not int or not low <= value <= high:
        _refuse(f"a whole number from {low} to {high}", value, place, field)
    return value


def text(value: Any, place: str, field: str = "") -> str:
    """Text that can be encoded."""
    if type(value) is not str:
        _refuse("text", value, place, field)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse("text without halves of surrogate pairs", value, place, field)
    return value


def flag(value: Any, place: str, field: str = "") -> bool:
    """True or false."""
    if type(value) is not bool:
        _refuse("true or false", value, place, field)
    return value


def one_of(value: Any, choices: Collection[str], place: str, field: str = "") -> str:
    """One of some words."""
    if type(value) is not str or value not in choices:
        some = ", ".join([*choices][:8]) + (", ..." if len(choices) > 8 else "")
        _refuse(f"one of {some}", value, place, field)
    return value


def items(value: Any, place: str, field: str = "", length: int | None = None) -> list[Any]:
    """A list, of a given length if there is one."""
    if type(value) is not list or length not in (None, len(value)):
        _refuse("a list" if length is None else f"a list of {length} values", value, place, field)
    return value


def shape(value: Any, place: str, field: str = "") -> tuple[int, ...]:
    """A list of sizes, each at least 1, whose product is at most `MOST`."""
    found = items(value, place, field)
    elements = 1
    for size in found:
        elements *= whole(size, 1, MOST, place, field)
        if elements > MOST:
            _refuse(f"a shape of at most {MOST} elements", value, place, field)
    return tuple(found)


def mapping(value: Any, place: str) -> dict[str, Any]:
    """An object of any members whose names can be encoded."""
    if type(value) is not dict:
        _refuse("an object", value, place, "")
    for name in value:
        text(name, place)
    return value


def record(value: Any, names: Sequence[str], place: str, field: str = "", optional: Collection[str] = ()) -> dict:
    """An object with these members and no others, but for `optional` ones, which need not be there."""
    if type(value) is not dict:
        _refuse("an object", value, place, field)
    name = f"{place}.{field}" if field and place else place or field
    for one in value:
        if one not in names:
            raise SchemaError(f"{name} has the members {', '.join(names)}, not {_shown(one)}")
    for one in names:
        if one not in value and one not in optional:
            raise SchemaError(f"{name} has no member {one}")
    return value
