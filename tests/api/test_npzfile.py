"""Files of arrays: what is no fault of the file, and arrays that are large."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from npukit import npzfile
from npukit.errors import UsageError
from npukit.npzfile import read_arrays, write_arrays


def test_memory_that_ends_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {"x": np.arange(10)})

    def full(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(npzfile, "_read_array", full)
    with pytest.raises(MemoryError):
        read_arrays(path, lambda *_: None)


def test_large_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit of 2 GiB lowered, as the array would take that memory several times."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    path = tmp_path / "a.npz"
    array = np.arange(5000, dtype=np.int32).reshape(50, 100)
    write_arrays(path, {"x": array, "y": array[:1]})
    monkeypatch.undo()
    found = read_arrays(path, lambda *_: None)
    with np.load(path) as loaded:
        for arrays in (found, loaded):
            assert (arrays["x"] == array).all() and (arrays["y"] == array[:1]).all()


def test_a_head_that_is_nested_too_deeply(tmp_path: Path) -> None:
    """Python's parser calls that a lack of memory."""
    path = tmp_path / "a.npz"
    text = b"-" * 9000
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(UsageError, match="is not a .npz file of arrays, or it is damaged"):
        read_arrays(path, lambda *_: None)
