"""Samples of a model's inputs, from files or made up."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npukit.errors import UsageError
from npukit.npzfile import read_arrays
from npukit.sample_inputs import random_inputs

__all__ = ["check_samples", "inputs_of", "random_samples", "read_samples"]

_RANDOM = 8
Sample = dict[str, NDArray]


def inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """A model's inputs, of which initializers are none."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def random_samples(model: onnx.ModelProto) -> list[Sample]:
    """Samples of random numbers."""
    return [random_inputs(model, inputs_of(model), seed) for seed in range(_RANDOM)]


def check_samples(model: onnx.ModelProto, samples: Sequence[Mapping[str, NDArray]]) -> list[Sample]:
    """Samples that a caller gives.

    Raises:
        UsageError: they are none, or of other names, shapes or types than the inputs.
    """
    kinds = _kinds(model)
    checked = []
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise UsageError(f"sample {number} is no mapping from names of inputs to arrays: {type(sample).__name__}")
        arrays = {name: np.asarray(value) for name, value in sample.items()}
        for name, array in arrays.items():
            _check(f"sample {number}", kinds, name, array.dtype)
            if array.shape != kinds[name][1]:
                raise UsageError(
                    f"sample {number}: {name} has the shape {list(array.shape)}, not {list(kinds[name][1])}"
                )
        _check_names(f"sample {number}", kinds, arrays)
        checked.append(arrays)
    if not checked:
        raise UsageError("there are no samples: ranges need one at least")
    return checked


def read_samples(model: onnx.ModelProto, path: str | Path, most: int | None = None) -> list[Sample]:
    """Samples from a `.npz` file, or from the `.npz` files of a folder in the order of their names.

    In a file, an array by each input's name is one sample of the input's shape, or several: one behind the other along
    the first dimension, or along one before it.

    Args:
        model: whose inputs they are.
        path: the file or folder.
        most: how many to take at most.

    Raises:
        UsageError: not readable, or of other names, shapes or types than the inputs.
    """
    files = sorted(Path(path).glob("*.npz")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise UsageError(f"{path} has no .npz file: each is one sample or several, an array by each input's name")
    samples: list[Sample] = []
    for file in files:
        samples += _read(model, file)
        if most is not None and len(samples) >= most:
            break
    return samples[:most]


_Kinds = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
"""Of each input: its type and shape."""


def _kinds(model: onnx.ModelProto) -> _Kinds:
    found = {}
    for value in inputs_of(model):
        kind = value.type.tensor_type
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        found[value.name] = dtype, tuple(dim.dim_value for dim in kind.shape.dim)
    if not found:
        raise UsageError("the model has no inputs, so that there is nothing to sample")
    return found


def _check(where: str, kinds: _Kinds, name: str, dtype: np.dtype) -> None:
    if name not in kinds:
        raise UsageError(f"{where}: {name!r} is no input of the model; it has {', '.join(kinds)}")
    if dtype != kinds[name][0]:
        raise UsageError(f"{where}: {name} is {dtype}, the model's input is {kinds[name][0]}")


def _check_names(where: str, kinds: _Kinds, arrays: Mapping[str, NDArray]) -> None:
    missing = [name for name in kinds if name not in arrays]
    if missing:
        raise UsageError(f"{where} has no array {', '.join(missing)}")


def _read(model: onnx.ModelProto, path: Path) -> list[Sample]:
    kinds = _kinds(model)

    def check(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        _check(f"{path}", kinds, name, dtype)
        _count(f"{path}: {name}", shape, kinds[name][1])

    arrays = read_arrays(path, check)
    _check_names(f"{path}", kinds, arrays)
    counts = {name: _count(name, array.shape, kinds[name][1]) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise UsageError(f"{path} has samples of different numbers: {given}")
    return _split(arrays, {name: shape for name, (_, shape) in kinds.items()}, next(iter(counts.values())))


def _count(where: str, shape: Sequence[int], wanted: Sequence[int]) -> int:
    """How many samples an array holds."""
    given, one = tuple(shape), tuple(wanted)
    if given == one:
        return 1
    if given[1:] == one and given[0]:
        return given[0]
    if len(given) == len(one) > 0 and given[1:] == one[1:] and given[0] and not given[0] % one[0]:
        return given[0] // one[0]
    raise UsageError(
        f"{where} has the shape {list(shape)}; one sample has {list(wanted)}, and several lie one behind the other "
        "along the first dimension, or along one before it"
    )


def _split(arrays: Mapping[str, NDArray], shapes: Mapping[str, tuple[int, ...]], count: int) -> list[Sample]:
    parts = {name: array.reshape(count, *shapes[name]) for name, array in arrays.items()}
    return [{name: part[number] for name, part in parts.items()} for number in range(count)]
