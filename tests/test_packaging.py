"""Every package of the tree is in the wheel."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("isa", "sim", "driver", "compiler", "hw", "fpga")


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        "npukit." * (top != "npukit") + ".".join(init.parent.relative_to(ROOT).parts)
        for top in (*FOLDERS, "npukit")
        for init in (ROOT / top).rglob("__init__.py")
    }
    assert listed == found


def test_every_file_beside_modules_is_listed() -> None:
    """Files of other kinds within packages, as C sources, which setuptools takes by these patterns alone."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package, folder in (
        ("npukit.driver", ROOT / "driver"), ("npukit.fpga", ROOT / "fpga"),
        ("npukit.firmware", ROOT / "npukit" / "firmware"), ("npukit.reports", ROOT / "npukit" / "reports"),
    ):  # fmt: skip
        taken = {path for pattern in data[package] for path in folder.glob(pattern)}
        found = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".md")}
        assert found == taken
