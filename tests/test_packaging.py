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
