"""Options of operators, read and written by the schema package's own accessors.

Each options table has a class in the package `tflite` with a method for each field, and functions that build it.
All tables alike consist of numbers and of vectors of numbers, so that no list of operators is needed.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.tflite.model import Option
from npukit.compiler.frontends.tflite.schema import Budget, schema

__all__ = ["read_options", "write_options"]


@cache
def _module(kind: str) -> ModuleType:
    schema()
    return import_module(f"tflite.{kind}")


def _fields(kind: str) -> Iterator[tuple[str, bool]]:
    """Names of a table's fields, and whether each is a vector."""
    module = _module(kind)
    table = getattr(module, kind)
    prefix = f"{kind}Add"
    for name in vars(module):
        if name.startswith(prefix) and len(name) > len(prefix):
            field = name.removeprefix(prefix)
            yield field, hasattr(table, f"{field}Length")


def read_options(kind: str, table: Any, budget: Budget) -> dict[str, Option]:
    """The options of an operator; `table`: where they are, without a type."""
    options = getattr(_module(kind), kind)()
    options.Init(table.Bytes, table.Pos)
    found: dict[str, Option] = {}
    for field, several in _fields(kind):
        read = getattr(options, field)
        if several:
            values = [read(index) for index in budget.numbers(getattr(options, f"{field}Length")())]
            if not all(isinstance(one, int) for one in values):
                raise ModelError(f"{kind} hold something else than whole numbers in {field}, which is not supported")
            found[field] = tuple(values)
            continue
        value = read()
        if not isinstance(value, int | float):
            raise ModelError(f"{kind} hold something else than a number in {field}, which is not supported")
        found[field] = value
    return found


def write_options(builder: Any, kind: str, options: Mapping[str, Option]) -> int:
    """Write a table; returns where it is.

    Raises:
        ValueError: for an option that the table does not have.
    """
    module = _module(kind)
    fields = dict(_fields(kind))
    wrong = sorted(options.keys() - fields.keys())
    if wrong:
        raise ValueError(f"{kind} has the options {', '.join(fields)}, not {', '.join(wrong)}")
    vectors: dict[str, int] = {}
    for field, several in fields.items():
        if several and field in options:
            values = options[field]
            assert isinstance(values, tuple)
            getattr(module, f"{kind}Start{field}Vector")(builder, len(values))
            for value in reversed(values):
                builder.PrependInt32(value)
            vectors[field] = builder.EndVector()
    getattr(module, f"{kind}Start")(builder)
    for field in fields:
        if field in options:
            getattr(module, f"{kind}Add{field}")(builder, vectors.get(field, options[field]))
    return getattr(module, f"{kind}End")(builder)
