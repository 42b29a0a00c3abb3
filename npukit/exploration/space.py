"""What is varied: fields of the configuration, the memory's latency, and how much the compiler tries."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from npukit.errors import UsageError
from npukit.isa import schema
from npukit.isa.config import PRESETS, ConfigError, NpuConfig, load_config

__all__ = ["Limits", "Space", "read_space"]

_FIELDS = tuple(one.name for one in fields(NpuConfig) if one.name != "dtype")
_PER_ARRAY = ("array_rows", "vector_lanes", "fma_lanes", "softmax_cycles", "normalize_cycles")
"""Fields whose values divide the array's columns, or are 0."""
_LEAST = {"array_rows": 4, "softmax_cycles": 4}
DEFAULT: Mapping[str, tuple[int, ...]] = {
    "array": (4, 8, 12, 16, 24, 32),
    "array_rows": (0, 4, 8, 16),
    "act_depth": (256, 512, 1024, 1536, 2048, 4096),
    "act_banks": (2, 4, 8),
    "wgt_depth": (512, 1024, 2048, 4096, 7168),
    "acc_depth": (64, 128, 256, 512),
    "acc_banks": (2, 4),
    "vector_lanes": (1, 2, 4, 8, 16, 32),
    "fma_lanes": (1, 2, 4, 8, 16),
    "vector_taps": (1, 3, 5),
    "bus_bytes": (4, 8, 16),
}
"""What is varied where no file says otherwise; other fields stay as the base has them."""


@dataclass(frozen=True)
class Limits:
    """What a machine may have at most; None: anything."""

    on_chip_kib: float | None = None
    lut4: float | None = None


@dataclass(frozen=True)
class Space:
    """A design space.

    Attributes:
        base: whose other fields stay.
        choices: values of each field that is varied.
        latencies: of the reference DRAM, in cycles.
        levels: of optimisation.
    """

    base: NpuConfig
    choices: Mapping[str, Sequence[int]] = field(default_factory=lambda: dict(DEFAULT))
    latencies: Sequence[int] = (100,)
    levels: Sequence[int] = (1,)
    limits: Limits = Limits()

    def config(self, chosen: Mapping[str, int]) -> NpuConfig:
        """The configuration with these values. Rows, lanes and cycles of a word are the largest numbers up to those
        that divide the array's columns, or the next ones above where those are too few, so that each array size meets
        machines that are possible.

        Raises:
            ConfigError: they do not go together for another reason.
        """
        values = {name: chosen[name] for name in self.choices}
        array = values.get("array", self.base.array)
        for name in _PER_ARRAY:
            wanted: int = values[name] if name in values else getattr(self.base, name)
            values[name] = _divisor(array, wanted, _LEAST.get(name, 1))
        if values["array_rows"] == array:
            values["array_rows"] = 0
        return replace(self.base, **values)

    def chosen(self, config: NpuConfig) -> dict[str, int] | None:
        """The values of a configuration; None where it is not within the space."""
        chosen = {name: getattr(config, name) for name in self.choices}
        if any(value not in self.choices[name] for name, value in chosen.items()):
            return None
        try:
            return chosen if self.config(chosen) == config else None
        except ConfigError:
            return None

    def presets(self) -> dict[str, dict[str, int]]:
        """The presets within the space, by name, as values."""
        found = {name: self.chosen(config) for name, config in PRESETS.items()}
        return {name: chosen for name, chosen in found.items() if chosen is not None}


def read_space(path: str | Path | None, base: NpuConfig, *, chosen: bool = False) -> Space:
    """A space from a TOML file, or the default one. `chosen`: somebody has chosen the base, so that the file may not.

    The file has, all optional: `base`, a preset or a file; a table `fields` with a list of values for each field that
    is varied; `dram_latency` and `optimize`, lists; a table `limits` with `on_chip_kib` and `lut4`.

    Raises:
        UsageError: it cannot be read, or says something else.
        ConfigError: of its base.
    """
    if path is None:
        return Space(base)
    try:
        value = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        schema.record(value, ("base", "fields", "dram_latency", "optimize", "limits"), "space",
                      optional=("base", "fields", "dram_latency", "optimize", "limits"))  # fmt: skip
        if "base" in value:
            if chosen:
                raise schema.SchemaError("it has a base of its own: leave out --config and --set, or that line")
            base = load_config(schema.text(value["base"], "base"))
        found = schema.mapping(value.get("fields", {name: [*some] for name, some in DEFAULT.items()}), "fields")
        choices: dict[str, Sequence[int]] = {}
        for name, values in found.items():
            schema.one_of(name, _FIELDS, "fields")
            choices[name] = _values(values, f"fields.{name}")
        limits = schema.record(value.get("limits", {}), ("on_chip_kib", "lut4"), "limits",
                               optional=("on_chip_kib", "lut4"))  # fmt: skip
        for name, limit in limits.items():
            if type(limit) not in (int, float) or not 0 < limit < 1e12:
                raise schema.SchemaError(f"limits.{name} must be a number above 0, not {limit!r}")
        return Space(
            base, choices, _values(value.get("dram_latency", [100]), "dram_latency", 100_000, 1),
            _values(value.get("optimize", [1]), "optimize", 2), Limits(**limits),
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"--space: cannot read {path}: {error.strerror}") from None
    except ConfigError:
        raise
    except ValueError as error:  # of TOML, of UTF-8, and of the schema
        raise UsageError(f"--space: {path}: {error}") from None


def _divisor(array: int, most: int, least: int) -> int:
    """The largest number from `least` up to `most` that divides the array, or the next one above; 0 stays."""
    sizes = [size for size in range(least, array + 1) if array % size == 0]
    if not most or not sizes:
        return most
    return max((size for size in sizes if size <= most), default=sizes[0])


def _values(value: Any, place: str, most: int = 1 << 20, least: int = 0) -> tuple[int, ...]:
    found = tuple(schema.whole(one, least, most, place) for one in schema.items(value, place))
    if not found or len(set(found)) != len(found):
        raise schema.SchemaError(f"{place} must be a list of one value or more, each once, not {list(found)}")
    return found
