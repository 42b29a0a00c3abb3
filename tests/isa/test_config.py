"""The configuration: presets, rules, files, hash."""

import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
from npukit.isa.config import PRESETS, ConfigError, NpuConfig, load_config, preset

OTHER_VALUES = {
    "array": 32,
    "array_rows": 8,
    "dtype": "bf16",
    "act_depth": 1024,
    "act_banks": 4,
    "wgt_depth": 4096,
    "acc_depth": 128,
    "acc_banks": 2,
    "par_depth": 128,
    "vector_lanes": 8,
    "fma_lanes": 8,
    "fma_fixed": 0,
    "transpose": 0,
    "softmax_cycles": 0,
    "normalize_cycles": 0,
    "vector_taps": 2,
    "max_window": 5,
    "bus_bytes": 16,
    "max_burst": 32,
    "queue_depth": 4,
}
"""For every field a legal value that is not the default's."""


def test_presets_are_named_for_what_they_are() -> None:
    for name, config in PRESETS.items():
        board, *_ = name.rpartition(f"{config.dtype}-{config.array}x{config.array}")
        assert board in ("", "ulx3s-", "icepi-zero-")
        assert preset(name) is config
    assert PRESETS["int8-16x16"] == NpuConfig()
    assert len({config.hash for config in PRESETS.values()}) == len(PRESETS)


def test_the_default_is_the_size_at_which_peers_are_measured() -> None:
    config = NpuConfig()
    assert config.act_banks * config.act_depth * config.word_bytes == 192 * 1024
    assert config.wgt_depth * config.word_bytes == 112 * 1024
    assert config.acc_banks * config.acc_depth * config.wide_word_bytes == 64 * 1024
    assert config.par_depth * config.wide_word_bytes == 16 * 1024
    assert config.on_chip_bytes == 384 * 1024


@pytest.mark.parametrize(("dtype", "word", "units"), [("int8", 8, 4), ("bf16", 16, 2)])
def test_word_sizes(dtype: str, word: int, units: int) -> None:
    config = replace(PRESETS["int8-8x8"], dtype=dtype)
    assert (config.word_bytes, config.wide_word_bytes, config.wide_word_units) == (word, 32, units)


@pytest.mark.parametrize(
    ("array", "rows", "size", "macs", "passes"),
    [(16, 0, "16x16", 256, 1), (16, 8, "8x16", 128, 2), (64, 16, "16x64", 1024, 4), (24, 8, "8x24", 192, 3),
     (40, 0, "40x40", 1600, 1)],
)  # fmt: skip
def test_sizes_of_arrays(array: int, rows: int, size: str, macs: int, passes: int) -> None:
    config = NpuConfig(array=array, array_rows=rows, vector_lanes=4, fma_lanes=8, softmax_cycles=8)
    assert (config.size, config.array_macs, config.row_passes) == (size, macs, passes)


def test_unknown_preset_lists_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"no configuration is called 'int4-4x4'; there are int8-4x4, "):
        preset("int4-4x4")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"array": 2}, "array must be from 4 to 64, not 2"),
        ({"array": 128}, "array must be from 4 to 64, not 128"),
        (
            {"array": 12, "vector_lanes": 4, "fma_lanes": 4},
            "array must be a power of two, or have words of whole beats: 12 elements are 12 bytes, bus_bytes is 8",
        ),
        (
            {"array_rows": 16},
            "array_rows must be 0, for as many as columns, or from 4 on, below array (16) and divide it, not 16",
        ),
        (
            {"array_rows": 32},
            "array_rows must be 0, for as many as columns, or from 4 on, below array (16) and divide it, not 32",
        ),
        (
            {"array_rows": 2},
            "array_rows must be 0, for as many as columns, or from 4 on, below array (16) and divide it, not 2",
        ),
        (
            {"array_rows": 6},
            "array_rows must be 0, for as many as columns, or from 4 on, below array (16) and divide it, not 6",
        ),
        ({"array": 16.0}, "array must be a whole number, not 16.0"),
        ({"queue_depth": True}, "queue_depth must be a whole number, not True"),
        ({"act_banks": "8"}, "act_banks must be a whole number, not '8'"),
        ({"dtype": "int4"}, "dtype must be one of int8, bf16, not 'int4'"),
        ({"dtype": ["int8"]}, "dtype must be one of int8, bf16, not ['int8']"),
        ({"act_depth": 63}, "act_depth must be from 64 to 32768, not 63"),
        ({"act_depth": 32769}, "act_depth must be from 64 to 32768, not 32769"),
        ({"act_banks": 0}, "act_banks must be from 1 to 16, not 0"),
        ({"act_banks": 17}, "act_banks must be from 1 to 16, not 17"),
        ({"wgt_depth": 31}, "wgt_depth must be from 32 to 32768, not 31"),
        ({"array": 64, "wgt_depth": 127}, "wgt_depth must be from 128 to 32768, not 127"),
        ({"acc_depth": 15}, "acc_depth must be from 16 to 32768, not 15"),
        ({"acc_banks": 17}, "acc_banks must be from 1 to 16, not 17"),
        ({"par_depth": 4097}, "par_depth must be from 32 to 4096, not 4097"),
        ({"vector_taps": 0}, "vector_taps must be from 1 to 16, not 0"),
        ({"max_window": 17}, "max_window must be from 2 to 16, not 17"),
        ({"max_burst": 257}, "max_burst must be from 1 to 256, not 257"),
        ({"queue_depth": 65}, "queue_depth must be from 1 to 64, not 65"),
        ({"vector_lanes": 3}, "vector_lanes must divide array (16), not 3"),
        ({"vector_lanes": 32}, "vector_lanes must divide array (16), not 32"),
        ({"fma_lanes": 0}, "fma_lanes must divide array (16), not 0"),
        ({"fma_fixed": 2}, "fma_fixed must be from 0 to 1, not 2"),
        ({"transpose": -1}, "transpose must be from 0 to 1, not -1"),
        ({"softmax_cycles": 2}, "softmax_cycles must be 0, or at least 4 and divide array (16), not 2"),
        ({"softmax_cycles": 12}, "softmax_cycles must be 0, or at least 4 and divide array (16), not 12"),
        ({"softmax_cycles": 32}, "softmax_cycles must be 0, or at least 4 and divide array (16), not 32"),
        ({"normalize_cycles": 3}, "normalize_cycles must be 0, or at least 1 and divide array (16), not 3"),
        ({"normalize_cycles": 32}, "normalize_cycles must be 0, or at least 1 and divide array (16), not 32"),
        ({"normalize_cycles": -1}, "normalize_cycles must be 0, or at least 1 and divide array (16), not -1"),
        ({"bus_bytes": 2}, "bus_bytes must be a power of two from 4 to 64, not 2"),
        ({"bus_bytes": 24}, "bus_bytes must be a power of two from 4 to 64, not 24"),
        (
            {"bus_bytes": 4, "max_burst": 7},
            "max_burst * bus_bytes must be at least 32, one instruction, not 7 * 4",
        ),
    ],
)
def test_rules(values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        NpuConfig(**values)


def test_bounds_are_legal() -> None:
    NpuConfig(array=4, wgt_depth=8, vector_lanes=1, fma_lanes=1, act_depth=64, par_depth=32, acc_depth=16)
    NpuConfig(act_depth=32768, wgt_depth=32768, acc_depth=32768, par_depth=4096, act_banks=16, acc_banks=16)
    NpuConfig(bus_bytes=4, max_burst=8)


def test_configurations_are_immutable_and_keyword_only() -> None:
    with pytest.raises(FrozenInstanceError):
        NpuConfig().array = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        NpuConfig(16)  # type: ignore[misc]


@pytest.mark.parametrize("name", [field.name for field in fields(NpuConfig)])
def test_hash_and_difference_see_every_field(name: str) -> None:
    base = replace(NpuConfig(), vector_lanes=16, fma_lanes=16)
    other = replace(base, **{name: OTHER_VALUES[name]})
    assert other.hash != base.hash
    assert 0 <= other.hash < 1 << 64
    assert base.difference(other) == [f"{name}: {getattr(base, name)}, {OTHER_VALUES[name]}"]
    assert base.difference(base) == []


def test_hash_is_stable() -> None:
    # a changed hash makes every compiled program and every bitstream unusable: change it knowingly
    assert NpuConfig().hash == 0x213FDADE3E82D713


@pytest.mark.parametrize("name", PRESETS)
def test_toml_round_trip(name: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(PRESETS[name].to_toml())
    assert load_config(str(path)) == PRESETS[name]
    assert NpuConfig.from_dict(PRESETS[name].to_dict()) == PRESETS[name]
    assert load_config(name) == PRESETS[name]


def test_toml_with_a_base(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_text('base = "int8-8x8"\nfma_lanes = 2\n')
    assert load_config(str(path)) == replace(PRESETS["int8-8x8"], fma_lanes=2)
    path.write_text("queue_depth = 3\n")
    assert load_config(str(path)) == replace(NpuConfig(), queue_depth=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows = 4\n", r"board.toml: a configuration has the fields array, .*, not 'rows'"),
        ('base = "nothing"\n', r"board.toml: no configuration is called 'nothing'"),
        ("base = 3\n", r"board.toml: base must be the name of a preset, not 3"),
        ("array = 5\n", r"board.toml: array must be a power of two, or have words of whole beats: 5 "),
        ("array = \n", r"board.toml is not a TOML file: "),
        ("array = 8\rdtype = 'bf16'\n", r"board.toml is not a TOML file: "),
        ("array = 8.5\n", r"board.toml: array must be a whole number, not 8.5"),
        pytest.param(f"array = {'9' * 5000}\n", r"board.toml is not a TOML file: Exceeds the limit", id="digits"),
        pytest.param(f"array = {'[' * 2000}", "its values are nested too deeply", id="nested"),
    ],
)
def test_toml_errors_name_the_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_bytes(text.encode())
    with pytest.raises(ConfigError, match=message):
        load_config(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration file .*none.toml: No such file"):
        load_config(str(tmp_path / "none.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary.toml is not a TOML file"):
        load_config(str(tmp_path / "binary.toml"))
