"""Fuzzing: kinds of input, and what watches over their cases. `make fuzz N=20000 SEED=1`; `fuzz.py` is the command."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

__all__ = ["KINDS", "module_of"]

KINDS: dict[str, tuple[str, int]] = {
    "toml": ("configurations", 15),
    "assembly": ("assembly", 20),
    "npz": ("arrays", 12),
    "programs": ("programs", 20),
    "compiled": ("compiled", 12),
    "models": ("models", 12),
    "tflite": ("tflite", 12),
    "link": ("link", 1),
    "kernels": ("kernels", 4),
    "harness": ("harness", 4),
    "torch": ("programs_of_torch", 12 if find_spec("torch") else 0),
    "mutated": ("mutated", 0),
}
"""Name -> module of this folder, and its share of the cases, in parts of the sum; 0: it runs only when it is named."""


def module_of(name: str) -> ModuleType:
    """The module of a kind: `make(folder)` makes its `Kind`; its processes have the variables of `environment()`."""
    return import_module(f".{KINDS[name][0] if name in KINDS else name}", __name__)
