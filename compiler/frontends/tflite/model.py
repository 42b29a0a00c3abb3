"""A TFLite model as plain data, which `reader` reads from a file and `writer` writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["IDENTIFIER", "TYPES", "Option", "TfliteModel", "TfliteOperator", "TfliteQuantization", "TfliteTensor"]

IDENTIFIER = b"TFL3"
"""At byte 4 of a file."""

TYPES: Mapping[str, type[np.generic]] = {
    "FLOAT32": np.float32,
    "INT32": np.int32,
    "UINT8": np.uint8,
    "INT64": np.int64,
    "BOOL": np.bool_,
    "INT16": np.int16,
    "INT8": np.int8,
}
"""Element types by the schema's names."""

Option = int | float | bool | tuple[int, ...]


@dataclass(frozen=True)
class TfliteQuantization:
    """real = scale * (stored - zero point).

    Attributes:
        scale: one number, or one for each element along the dimension `axis`.
        zero_point: as many.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True, eq=False)
class TfliteTensor:
    """A tensor: name, shape, type by the schema's name, quantisation or None, and what it holds if it is constant."""

    name: str
    shape: tuple[int, ...]
    type: str
    quantization: TfliteQuantization | None = None
    data: NDArray | None = None


@dataclass(frozen=True, eq=False)
class TfliteOperator:
    """An operator of a graph.

    Attributes:
        op: the schema's name, such as CONV_2D.
        inputs: numbers of tensors; -1 for one that is left out.
        outputs: numbers of tensors.
        kind: the schema's name of the options' table, such as Conv2DOptions; "" where there are none.
        options: by the name of the schema's accessor, such as StrideW; what has its default value may be left out.
        version: of the operator.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kind: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    version: int = 1


@dataclass(frozen=True, eq=False)
class TfliteModel:
    """A graph: its tensors, its operators in the order in which they run, and the numbers of what comes in and out."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    description: str = ""
