"""A graph from the text that `print_graph` makes."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import OPERATIONS, Depth, Rounding, SourceNode, TensorOperation
from npukit.compiler.ir.tensor import Constant, MemoryLayout, Quantization, Tensor
from npukit.isa.formats import FORMATS
from npukit.isa.layout import Layout, LayoutDim

__all__ = ["GraphSyntaxError", "parse_graph"]

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_JSON = json.JSONDecoder()


class GraphSyntaxError(ValueError):
    """Text that is no graph; the message names the line, the column and what was expected there."""


def parse_graph(text: str, constants: Mapping[str, Constant] | None = None) -> Graph:
    """A graph; verify it with `verify_graph`.

    Args:
        text: as `print_graph` writes it.
        constants: those whose elements the text leaves out, by name.

    Raises:
        GraphSyntaxError: the text is not in that form, or a constant's elements are known to nobody.
    """
    return _Parser(text, constants or {}).graph()


class _Parser:
    def __init__(self, text: str, constants: Mapping[str, Constant]) -> None:
        self._text, self._given = text, constants
        self._at = 0
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[str, Tensor] = {}
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._operations: list[TensorOperation] = []
        self._groups: list[tuple[str, ...]] = []

    def graph(self) -> Graph:
        self._word("graph")
        name = self._name()
        self._sign("{")
        lines: dict[str, Callable[[], None]] = {
            "input": self._input, "constant": self._constant, "output": self._output, "alias": self._alias,
            "group": self._group,
        }  # fmt: skip
        while not self._is("}"):
            if self._is('"'):
                self._operation()
            else:
                self._one_of("a line of a graph", lines)()
        self._sign("}")
        data: dict[str, bytes] = {}
        while not self._ends():
            self._word("data")
            key = self._name()
            self._sign("=")
            data[key] = self._bytes()
        constants = {one: self._whole(tensor, data) for one, tensor in self._constants.items()}
        return Graph(
            name, tuple(self._operations), self._tensors, constants, tuple(self._inputs), tuple(self._outputs),
            tuple(self._groups),
        )  # fmt: skip

    # ---- lines

    def _input(self) -> None:
        self._inputs.append(self._declare(self._tensors))

    def _alias(self) -> None:
        self._declare(self._tensors)

    def _constant(self) -> None:
        self._declare(self._constants)

    def _output(self) -> None:
        self._outputs.append(self._name())

    def _group(self) -> None:
        names = [self._name()]
        while self._is(","):
            self._sign(",")
            names.append(self._name())
        self._groups.append(tuple(names))

    def _declare(self, known: dict[str, Tensor]) -> str:
        name = self._name()
        self._sign(":")
        self._known(known, self._tensor(name))
        return name

    def _known(self, known: dict[str, Tensor], tensor: Tensor) -> None:
        if tensor.name in self._tensors or tensor.name in self._constants:
            raise self._error(f"{tensor.name!r} once; it is declared above")
        known[tensor.name] = tensor

    def _operation(self) -> None:
        output = self._name()
        self._sign("=")
        kind = self._one_of("an operation", OPERATIONS)
        hints = get_type_hints(kind)
        values: dict[str, Any] = {}
        self._sign("(")
        while not self._is(")"):
            name = self._any_word("an operand's name")
            self._sign("=")
            values[name] = self._json(f"{name} of {kind.mnemonic}")
            if not self._is(")"):
                self._sign(",")
        self._sign(")")
        if self._is("{"):
            values |= self._json("attributes")
        self._sign(":")
        self._known(self._tensors, self._tensor(output))
        self._word("from")
        sources = [self._source()]
        while self._is(","):
            self._sign(",")
            sources.append(self._source())
        own = {one.name for one in fields(kind)} - {"output", "sources"}
        needed = {one.name for one in fields(kind) if one.name in own and one.default is MISSING}
        if not needed <= values.keys() <= own:
            wrong = ", ".join(sorted((values.keys() - own) | (needed - values.keys())))
            raise self._error(f"the operands and attributes of {kind.mnemonic}; {wrong} is missing or too much")
        converted = {name: self._converted(hints[name], value, name) for name, value in values.items()}
        self._operations.append(kind(output=output, sources=tuple(sources), **converted))

    def _source(self) -> SourceNode:
        op = self._name()
        return SourceNode(self._name(), op)

    def _tensor(self, name: str) -> Tensor:
        number_format = self._one_of("a number format", FORMATS)
        shape = self._converted(tuple[int, ...], self._json("a shape"), "a shape")
        quantization = layout = None
        channel_axis = 1
        if self._is("quantized"):
            self._word("quantized")
            quantization = cast(Quantization, self._record(Quantization, self._json("a quantization"), "quantized"))
        if self._is("channels"):
            self._word("channels")
            channel_axis = cast(int, self._converted(int, self._json("an axis"), "an axis"))
        if self._is("layout"):
            self._word("layout")
            layout = cast(MemoryLayout, self._record(MemoryLayout, self._json("a layout"), "layout"))
        return Tensor(name, shape, number_format, quantization, layout, channel_axis)

    def _whole(self, tensor: Tensor, data: Mapping[str, bytes]) -> Constant:
        if tensor.name not in data:
            if tensor.name not in self._given:
                raise self._error(f"the data of constant {tensor.name!r}")
            return Constant(tensor, self._given[tensor.name].data)
        try:
            values = np.frombuffer(data[tensor.name], tensor.format.storage).reshape(tensor.shape)
        except ValueError:
            raise self._error(
                f"elements for {tensor.name!r} of shape {list(tensor.shape)}, of {len(data[tensor.name])} bytes"
            ) from None
        return Constant(tensor, values)

    def _bytes(self) -> bytes:
        try:
            return base64.b64decode(self._name().encode(), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise self._error("base64") from None

    # ---- values

    def _record(self, kind: type, value: Any, what: str) -> Any:
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or not value.keys() <= hints.keys():
            raise self._error(f"{what} with {', '.join(hints)}")
        try:
            return kind(**{name: self._converted(hints[name], one, f"{what}.{name}") for name, one in value.items()})
        except TypeError:
            raise self._error(f"{what} with {', '.join(hints)}") from None

    def _converted(self, hint: Any, value: Any, what: str) -> Any:
        """A JSON value as what a field's type says."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            if value is None:
                return None
            (hint,) = (one for one in inner if one is not type(None))
            return self._converted(hint, value, what)
        if origin is tuple and isinstance(value, list):
            kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
            if len(kinds) == len(value):
                return tuple(self._converted(one, part, what) for one, part in zip(kinds, value, strict=True))
        elif hint is Rounding and value in [*Rounding]:
            return Rounding(value)
        elif hint in (Depth, Layout, LayoutDim):
            return self._record(hint, value, what)
        elif hint is float and type(value) in (int, float):
            return value
        elif type(value) is hint:
            return value
        raise self._error(f"{what} as {getattr(hint, '__name__', hint)}, not {json.dumps(value)[:60]}")

    # ---- text

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _ends(self) -> bool:
        self._skip()
        return self._at == len(self._text)

    def _is(self, text: str) -> bool:
        self._skip()
        return self._text.startswith(text, self._at)

    def _sign(self, text: str) -> None:
        if not self._is(text):
            raise self._error(f"{text!r}")
        self._at += len(text)

    def _word(self, text: str) -> None:
        if self._any_word(repr(text)) != text:
            raise self._error(f"{text!r}")

    def _any_word(self, what: str) -> str:
        self._skip()
        found = _WORD.match(self._text, self._at)
        if found is None:
            raise self._error(what)
        self._at = found.end()
        return found.group()

    def _one_of(self, what: str, known: Mapping[str, Any]) -> Any:
        word = self._any_word(what)
        if word not in known:
            raise self._error(f"{what}: {', '.join(known)}; not {word!r}")
        return known[word]

    def _name(self) -> str:
        value = self._json("a name in quotes")
        if not isinstance(value, str):
            raise self._error("a name in quotes")
        return value

    def _json(self, what: str) -> Any:
        self._skip()
        try:
            value, self._at = _JSON.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            raise self._error(what) from None
        return value

    def _error(self, expected: str) -> GraphSyntaxError:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        return GraphSyntaxError(f"line {line}, column {column}: expected {expected}")
