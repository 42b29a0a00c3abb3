"""Reading and writing `.npz` files: arrays by name. What a file states is checked before memory is taken for it."""

import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from npukit.errors import UsageError
from npukit.npufile import write_bytes

__all__ = ["read_arrays", "write_arrays"]

_LONGEST_HEAD = 1 << 16
"""Bytes; that of an array of numbers has 128."""

Check = Callable[[str, np.dtype, tuple[int, ...]], None]


def read_arrays(path: str | Path, check: Check) -> dict[str, NDArray]:
    """The arrays of a file by name.

    Args:
        check: called with each array's name, dtype and shape before its data are read; what it raises goes on.

    Raises:
        UsageError: not readable, not a file of arrays, or damaged.
        MemoryError: when its arrays do not fit.
    """
    arrays: dict[str, NDArray] = {}
    refused: Exception | None = None

    def checked(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        nonlocal refused
        try:
            check(name, dtype, shape)
        except Exception as error:
            refused = error
            raise

    try:
        with open(path, "rb") as raw, zipfile.ZipFile(raw) as file:
            for info in file.infolist():
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    raise ValueError(name)
                with file.open(info) as member:
                    arrays[name] = _read_array(name, member, checked)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except MemoryError:  # says nothing about the file
        raise
    except Exception:  # numpy, zipfile and what it unpacks with raise many classes for a bad file
        if refused is not None:
            raise refused from None
        raise UsageError(f"{path} is not a .npz file of arrays, or it is damaged") from None
    return arrays


def _read_array(name: str, member: IO[bytes], check: Check) -> NDArray:
    """One array, and nothing behind it, which also has the zip's checksum checked."""
    head = BytesIO(member.read(_LONGEST_HEAD))
    version = npy.read_magic(head)
    read_head = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    try:
        shape, fortran, dtype = read_head(head)
    except MemoryError:  # Python's parser says so where a head is nested too deeply
        raise ValueError(name) from None
    check(name, dtype, shape)
    if dtype.hasobject:
        raise ValueError(dtype)
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    data = head.read()
    data += member.read(max(0, size - len(data)))
    if len(data) != size or member.read(1):
        raise ValueError(size)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray]) -> None:
    """Write a file, by hand: `numpy.savez` takes names as keywords, and has some of its own.

    Raises:
        UsageError: when it cannot be written.
    """
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, array in arrays.items():
            # the size is not known to it beforehand, and without the flag it may not be 2 GiB
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(array), allow_pickle=False)
    write_bytes(path, buffer.getvalue())
