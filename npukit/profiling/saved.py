"""Profiles from files: what `npukit profile` and `npukit run --json` wrote, in this release or an earlier one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npukit.errors import UsageError
from npukit.isa import schema

__all__ = ["SavedLayer", "SavedProfile", "profile_file", "read_profile"]

_SUMMARY = "summary.json"
_LARGEST = 64 << 20
"""Bytes of a file; BERT's have some hundred thousand."""


@dataclass(frozen=True)
class SavedLayer:
    """A layer's figures, as `LayerProfile` has them."""

    node: str
    op: str
    bound: str
    macs: int
    cycles: int
    read_bytes: int
    write_bytes: int

    @property
    def moved(self) -> int:
        """Bytes to and from DRAM."""
        return self.read_bytes + self.write_bytes


@dataclass(frozen=True)
class SavedProfile:
    """A profile.

    Attributes:
        source: the file, for messages.
        model: as it was named then.
        version: npukit's; empty where it was not written.
        config: fields of the configuration.
        memory: kind and parameters of the DRAM.
        milliseconds: at the clock that was assumed; None where it was not written.
        clock: that clock in MHz, and where it comes from, as far as they were written.
        optimize: how much the compiler tried; None where that is not known.
    """

    source: str
    model: str
    version: str
    config: Mapping[str, Any]
    memory: Mapping[str, Any]
    cycles: int
    macs: int
    milliseconds: float | None
    layers: Sequence[SavedLayer]
    clock: Mapping[str, Any]
    optimize: int | None

    @property
    def moved(self) -> int:
        """Bytes to and from DRAM."""
        return sum(layer.moved for layer in self.layers)


def profile_file(path: str | Path) -> Path:
    """The file in which a profile is, of a folder or of that file."""
    path = Path(path)
    return path / _SUMMARY if path.is_dir() else path


def read_profile(path: str | Path) -> SavedProfile:
    """A profile from the folder that `npukit profile` wrote, or from a JSON file of it or of `npukit run --json`.

    Raises:
        UsageError: there is none, or it is something else.
    """
    file = profile_file(path)
    try:
        if file.stat().st_size > _LARGEST:
            raise UsageError(f"{file} has {file.stat().st_size} bytes; a profile has at most {_LARGEST}")
        text = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; give a folder that npukit profile wrote, or a JSON file of it or "
            "of npukit run --json"
        ) from None
    try:
        return _profile(str(path), json.loads(text))
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, and of the schema
        raise UsageError(f"{file} is no profile of npukit profile or npukit run --json: {error}") from None


def _profile(source: str, value: Any) -> SavedProfile:
    found = schema.mapping(value, "profile")
    clock = schema.mapping(found.get("clock", {}), "clock")
    milliseconds = clock.get("milliseconds")
    if not (milliseconds is None or (type(milliseconds) in (int, float) and 0 <= milliseconds < 1e18)):
        raise schema.SchemaError(f"clock.milliseconds must be a number from 0, not {milliseconds!r}")
    return SavedProfile(
        source,
        schema.text(found.get("model", "model"), "model"),
        schema.text(found.get("version", ""), "version"),
        schema.mapping(found.get("config"), "config"),
        schema.mapping(found.get("memory", {}), "memory"),
        _count(found, "cycles", "profile"),
        _count(found, "macs", "profile"),
        milliseconds,
        [_layer(one, f"layers[{number}]") for number, one in enumerate(schema.items(found.get("layers"), "layers"))],
        {name: clock[name] for name in ("megahertz", "source") if name in clock},
        None if found.get("optimize") is None else schema.whole(found["optimize"], 0, 2, "profile", "optimize"),
    )


def _layer(value: Any, place: str) -> SavedLayer:
    found = schema.mapping(value, place)
    node, op, bound = (schema.text(found.get(name), place, name) for name in ("node", "op", "bound"))
    macs, cycles = (_count(found, name, place) for name in ("macs", "cycles"))
    return SavedLayer(
        node, op, bound, macs, cycles, _count(found, "read_bytes", place), _count(found, "write_bytes", place)
    )


def _count(found: dict[str, Any], name: str, place: str) -> int:
    return schema.whole(found.get(name), 0, schema.MOST, place, name)
