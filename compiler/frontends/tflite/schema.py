"""The schema package, imported when it is needed, and what bounds the reading of a file."""

from functools import cache
from types import ModuleType
from typing import Any

from npukit.compiler.errors import ModelError

__all__ = ["Budget", "names_of", "schema"]


@cache
def schema() -> ModuleType:
    """The package `tflite`, generated from TensorFlow Lite's schema.

    Raises:
        ModelError: it is not there.
    """
    try:
        import tflite
    except ImportError as error:
        raise ModelError(
            f"reading TFLite models needs the package {error.name}: pip install 'npukit[tflite]'"
        ) from None
    return tflite


@cache
def names_of(kind: str) -> dict[int, str]:
    """Names of an enumeration of the schema by value."""
    values = vars(getattr(schema(), kind))
    return {value: name for name, value in values.items() if isinstance(value, int) and not name.startswith("_")}


class Budget:
    """How many elements of vectors may be read: a damaged file's vectors may lie over each other."""

    def __init__(self, most: int) -> None:
        self._left = most

    def numbers(self, count: Any) -> range:
        """The indices of a vector of so many elements. Raises ValueError when there are too many."""
        self._left -= int(count)
        if self._left < 0:
            raise ValueError("its vectors are longer than the file")
        return range(int(count))
