"""Number formats, and the datapaths that compute with them."""

from dataclasses import dataclass

import numpy as np

__all__ = [
    "BFLOAT16",
    "DATAPATHS",
    "FLOAT32",
    "FLOATING",
    "FORMATS",
    "INT8",
    "INT32",
    "INTEGER",
    "UINT8",
    "Datapath",
    "NumberFormat",
]


@dataclass(frozen=True)
class NumberFormat:
    """How a number is held.

    Attributes:
        name: as numpy and ml_dtypes call it.
        bits: of a number.
        floating: whether it has an exponent.
        storage: the numpy type whose arrays hold such numbers; of one that numpy does not have, the type of its bits.
    """

    name: str
    bits: int
    floating: bool
    storage: type[np.generic]

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return self.bits // 8

    def parts_of(self, dtype: str) -> int:
        """Elements of this format in DRAM that make a number of a type, as frameworks call it."""
        return INT32.bits // self.bits if dtype == INT32.name else 1

    @property
    def stored(self) -> range:
        """The whole numbers that stand in the storage of an element."""
        info = np.iinfo(np.dtype(self.storage).name)
        return range(int(info.min), int(info.max) + 1)


INT8 = NumberFormat("int8", 8, False, np.int8)
UINT8 = NumberFormat("uint8", 8, False, np.uint8)
INT32 = NumberFormat("int32", 32, False, np.int32)
BFLOAT16 = NumberFormat("bfloat16", 16, True, np.uint16)
FLOAT32 = NumberFormat("float32", 32, True, np.float32)

FORMATS: dict[str, NumberFormat] = {one.name: one for one in (INT8, UINT8, INT32, BFLOAT16, FLOAT32)}
"""All of them, by name. The machine computes with int8; the host flips the top bit of uint8 on the way in and out."""


@dataclass(frozen=True)
class Datapath:
    """What a machine computes with.

    Attributes:
        name: the value of `NpuConfig.dtype` that chooses it.
        activation: format of the elements of ACT.
        weight: format of the elements of WGT.
        accumulator: format of the sums in ACC.
        tensor_types: what a framework calls the tensors that it takes and gives.
        sum_types: and those that it gives alone, sums as ACC has them.
    """

    name: str
    activation: NumberFormat
    weight: NumberFormat
    accumulator: NumberFormat
    tensor_types: tuple[str, ...]
    sum_types: tuple[str, ...] = ()


INTEGER = Datapath(
    "int8", activation=INT8, weight=INT8, accumulator=INT32, tensor_types=("int8", "uint8"), sum_types=("int32",)
)
"""Quantised tensors. Sums wrap; scaling to elements is rounded as docs/numerics.md says, and saturates."""
FLOATING = Datapath("bf16", activation=BFLOAT16, weight=BFLOAT16, accumulator=FLOAT32, tensor_types=("float32",))
"""Float tensors. Every operation is rounded to nearest, ties to even; subnormal numbers are 0."""

DATAPATHS: dict[str, Datapath] = {one.name: one for one in (INTEGER, FLOATING)}
"""All of them, by name."""
