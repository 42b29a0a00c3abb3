"""The one configuration object that hardware, simulator, compiler and driver share."""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from npukit.isa.formats import DATAPATHS, Datapath, NumberFormat
from npukit.isa.instructions import ISA_VERSION

__all__ = ["PRESETS", "ConfigError", "NpuConfig", "load_config", "preset"]


class ConfigError(ValueError):
    """A configuration that breaks a rule; the message states field, rule and value."""


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class NpuConfig:
    """Size and shape of one accelerator. Depths are words per bank; defaults are `int8-16x16`.

    A word of ACT and WGT holds `array` elements, a word of ACC and PAR `array` values of 32 bits.

    Raises:
        ConfigError: when made with a value that breaks a rule.
    """

    array: int = 16
    """Columns of the systolic array, and elements of a word."""
    array_rows: int = 0
    """Rows of the systolic array; 0: as many as it has columns. An array of fewer rows, which divide the columns, takes
    a word in as many passes as its rows go into the word."""
    dtype: str = "int8"
    """The datapath: `int8` (int32 accumulators) or `bf16` (fp32 accumulators)."""
    act_depth: int = 1536
    """Words per bank of ACT, the activation memory."""
    act_banks: int = 8
    """Banks of ACT."""
    wgt_depth: int = 7168
    """Words of WGT, the weight memory (one bank: one writer, one reader); at least two tiles."""
    acc_depth: int = 256
    """Words per bank of ACC, the accumulator memory."""
    acc_banks: int = 4
    """Banks of ACC."""
    par_depth: int = 256
    """Words of PAR, the parameter memory (one bank: one writer, one reader)."""
    vector_lanes: int = 16
    """Elements that VECTOR requantises, looks up, compares or sums in a cycle."""
    fma_lanes: int = 16
    """Elements that VECTOR's two-source operations (ADD, MULTIPLY) handle in a cycle."""
    fma_fixed: int = 1
    """1: two-source operations also in TensorFlow Lite's fixed point, ADD_FIXED and MULTIPLY_FIXED; 0: not."""
    transpose: int = 1
    """1: VECTOR turns tiles of `array` words around, TRANSPOSE; 0: not."""
    softmax_cycles: int = 4
    """Cycles of a word in TABLE_SUM and TABLE_DIVIDE, with bf16 in FUNCTION: `array` / softmax_cycles lanes have them;
    0: not there."""
    normalize_cycles: int = 2
    """Cycles of a word in MOMENTS and NORMALIZE: `array` / normalize_cycles lanes have them; 0: not there, and no
    RECIPROCAL_ROOT. Without effect with bf16, which normalises by FUNCTION."""
    vector_taps: int = 3
    """Window columns that VECTOR combines per lane in a cycle."""
    max_window: int = 7
    """Largest window height and width of one VECTOR instruction."""
    bus_bytes: int = 8
    """Bytes per beat of the AXI4 data channels."""
    max_burst: int = 16
    """Longest burst in beats."""
    queue_depth: int = 8
    """Instructions that each engine's queue holds; also the LOADs and the STOREs in flight."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "dtype":
                value = getattr(self, field.name)
                if type(value) is not int:
                    raise ConfigError(f"{field.name} must be a whole number, not {value!r}")
        if not isinstance(self.dtype, str) or self.dtype not in DATAPATHS:
            raise ConfigError(f"dtype must be one of {', '.join(DATAPATHS)}, not {self.dtype!r}")
        self._within("array", 4, 64)
        if not (_power_of_two(self.bus_bytes) and 4 <= self.bus_bytes <= 64):
            raise ConfigError(f"bus_bytes must be a power of two from 4 to 64, not {self.bus_bytes}")
        if not _power_of_two(self.word_bytes) and self.word_bytes % self.bus_bytes:
            raise ConfigError(
                f"array must be a power of two, or have words of whole beats: {self.array} elements are "
                f"{self.word_bytes} bytes, bus_bytes is {self.bus_bytes}"
            )
        if self.array_rows and not (4 <= self.array_rows < self.array and self.array % self.array_rows == 0):
            raise ConfigError(
                "array_rows must be 0, for as many as columns, or from 4 on, below array "
                f"({self.array}) and divide it, not {self.array_rows}"
            )
        self._within("act_depth", 64, 32768)
        self._within("act_banks", 1, 16)
        self._within("wgt_depth", 2 * self.array, 32768)
        self._within("acc_depth", 16, 32768)
        self._within("acc_banks", 1, 16)
        self._within("par_depth", 32, 4096)
        self._within("fma_fixed", 0, 1)
        self._within("transpose", 0, 1)
        for name, least in (("softmax_cycles", 4), ("normalize_cycles", 1)):
            value = getattr(self, name)
            if value and not (least <= value <= self.array and self.array % value == 0):
                raise ConfigError(f"{name} must be 0, or at least {least} and divide array ({self.array}), not {value}")
        self._within("vector_taps", 1, 16)
        self._within("max_window", 2, 16)
        self._within("max_burst", 1, 256)
        self._within("queue_depth", 1, 64)
        for name in ("vector_lanes", "fma_lanes"):
            value = getattr(self, name)
            if not (1 <= value <= self.array and self.array % value == 0):
                raise ConfigError(f"{name} must divide array ({self.array}), not {value}")
        if self.max_burst * self.bus_bytes < 32:
            raise ConfigError(
                f"max_burst * bus_bytes must be at least 32, one instruction, not {self.max_burst} * {self.bus_bytes}"
            )

    def _within(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} must be from {low} to {high}, not {value}")

    @property
    def rows(self) -> int:
        """Rows of the systolic array."""
        return self.array_rows or self.array

    @property
    def row_passes(self) -> int:
        """Passes through the array in which MATRIX takes all elements of a word."""
        return self.array // self.rows

    @property
    def array_macs(self) -> int:
        """Processing elements of the systolic array: its most MACs a cycle."""
        return self.rows * self.array

    @property
    def size(self) -> str:
        """The array's rows and columns, as in `16x16`."""
        return f"{self.rows}x{self.array}"

    @property
    def datapath(self) -> Datapath:
        """What the machine computes with."""
        return DATAPATHS[self.dtype]

    @property
    def activation(self) -> NumberFormat:
        """Format of the elements of ACT."""
        return self.datapath.activation

    @property
    def accumulator(self) -> NumberFormat:
        """Format of the sums in ACC."""
        return self.datapath.accumulator

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation or weight."""
        return self.activation.bytes

    @property
    def word_bytes(self) -> int:
        """Bytes of an ACT or WGT word; the unit of DRAM addresses."""
        return self.array * self.element_bytes

    @property
    def wide_word_bytes(self) -> int:
        """Bytes of an ACC or PAR word."""
        return self.array * 4

    @property
    def wide_word_units(self) -> int:
        """DRAM words that one PAR word occupies: 4 for int8, 2 for bf16."""
        return self.wide_word_bytes // self.word_bytes

    @property
    def on_chip_bytes(self) -> int:
        """Bytes of all on-chip memories together."""
        return self.word_bytes * (self.act_depth * self.act_banks + self.wgt_depth) + self.wide_word_bytes * (
            self.acc_depth * self.acc_banks + self.par_depth
        )

    @property
    def hash(self) -> int:
        """64-bit hash of every field and of the instruction set's version; a register of the hardware and each program
        hold it. `array_rows` of 0 is left out: it came later, and a machine without it is the one that it was."""
        values = {name: value for name, value in asdict(self).items() if name != "array_rows" or value}
        text = json.dumps({**values, "isa": ISA_VERSION}, sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def to_dict(self) -> dict[str, Any]:
        """All fields, in order, as plain values."""
        return asdict(self)

    def to_toml(self) -> str:
        """The configuration as the text of a TOML file."""
        return "".join(
            f'{name} = "{value}"\n' if isinstance(value, str) else f"{name} = {value}\n"
            for name, value in asdict(self).items()
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, base: "NpuConfig | None" = None) -> "NpuConfig":
        """`base` (default: the default configuration) with the given fields replaced.

        Raises:
            ConfigError: for an unknown field or a value that breaks a rule.
        """
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(f"a configuration has the fields {', '.join(known)}, not {name!r}")
        return replace(base or cls(), **values)

    def difference(self, other: "NpuConfig") -> list[str]:
        """One `field: value here, value there` line per field that differs."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{name}: {mine[name]}, {theirs[name]}" for name in mine if mine[name] != theirs[name]]


_BASE = NpuConfig()
_8X8 = replace(
    _BASE, array=8, act_depth=2048, wgt_depth=8192, acc_depth=512, par_depth=512, vector_lanes=8, fma_lanes=8
)
_4X4 = replace(
    _BASE, array=4, act_depth=2048, wgt_depth=8192, acc_depth=512, par_depth=512, vector_lanes=4, fma_lanes=4
)
_SMALL = {
    "bus_bytes": 4, "max_burst": 32, "act_depth": 2048, "act_banks": 4, "wgt_depth": 4096, "acc_depth": 512,
    "acc_banks": 2, "par_depth": 256, "vector_lanes": 1, "fma_lanes": 1, "fma_fixed": 0, "transpose": 0,
    "softmax_cycles": 0, "normalize_cycles": 0,
}  # fmt: skip
"""On a board of 84 000 LUTs whose memory gives two or four bytes a cycle; `docs/silicon.md` says what each choice
costs."""

PRESETS: dict[str, NpuConfig] = {
    "int8-4x4": _4X4,
    "int8-8x8": _8X8,
    "int8-16x16": _BASE,
    "int8-32x32": replace(_BASE, array=32, act_depth=1536, wgt_depth=7168, bus_bytes=16, vector_lanes=32, fma_lanes=32),
    "bf16-4x4": replace(_4X4, dtype="bf16"),
    "bf16-8x8": replace(_8X8, dtype="bf16"),
    "bf16-16x16": replace(_BASE, dtype="bf16"),
    "ulx3s-int8-8x8": replace(_8X8, **_SMALL),
    "ulx3s-int8-4x4": replace(_4X4, **_SMALL),
    "ulx3s-bf16-4x4": replace(_4X4, **_SMALL, dtype="bf16", vector_taps=1),
    "ulx3s-int8-16x16": replace(_BASE, **(_SMALL | {"act_depth": 1024, "wgt_depth": 2048, "vector_lanes": 4})),
    "icepi-zero-int8-4x4": replace(_4X4, **(_SMALL | {"act_depth": 1024})),
}
"""The named configurations; `int8-16x16` is the default. Those of boards begin with the board's name."""


def preset(name: str) -> NpuConfig:
    """The preset of that name.

    Raises:
        ConfigError: when there is none; the message lists them.
    """
    if name not in PRESETS:
        raise ConfigError(f"no configuration is called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def load_config(source: str) -> NpuConfig:
    """The configuration of that preset name, or of that TOML file (`base = PRESET` and fields).

    Raises:
        ConfigError: unknown name, unreadable file, or a value that breaks a rule.
    """
    if not source.endswith(".toml"):
        return preset(source)
    try:
        values = tomllib.loads(Path(source).read_bytes().decode())  # not as text: a lone CR is no end of a line in TOML
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {source}: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{source} is not a TOML file of a configuration: its values are nested too deeply") from None
    except ValueError as error:  # of the parser, of the text's encoding, and of numbers with too many digits
        raise ConfigError(f"{source} is not a TOML file: {error}") from None
    base = values.pop("base", "int8-16x16")
    if not isinstance(base, str):
        raise ConfigError(f"{source}: base must be the name of a preset, not {base!r}")
    try:
        return NpuConfig.from_dict(values, base=preset(base))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
