"""What tells versions of the sources apart, so that a run which was cut off goes on with the same ones only."""

import ast
import hashlib
from functools import cache
from pathlib import Path

__all__ = ["KIT", "MACHINE", "sources_digest"]

_ROOT = Path(__file__).resolve().parent.parent
MACHINE = (
    "hw/*.py", "isa/*.py", "sim/*.py", "npukit/verify/*.py", "driver/device.py", "driver/rtl*.py", "driver/rtl/*",
    "driver/surroundings.py",
)  # fmt: skip
"""Files on which the outcome of a random program depends."""
KIT = tuple(f"{folder}/**/*.py" for folder in ("compiler", "driver", "fpga", "hw", "isa", "npukit", "sim"))
"""All of the kit's own."""


@cache
def sources_digest(patterns: tuple[str, ...]) -> str:
    """A digest of files as they are at first; comments and docstrings do not change it."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in _ROOT.glob(pattern) if path.is_file()}):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            text = ast.dump(_without_docstrings(ast.parse(text)))
        found.update(f"{path.relative_to(_ROOT)}\0{text}\0".encode())
    return found.hexdigest()[:16]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [
                one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ]
    return tree
