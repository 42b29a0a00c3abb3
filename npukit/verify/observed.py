"""Coverage of values: sums at and over their width, roundings and limits, and the parameters behind them.

`Observer` looks on while the functional simulator executes a program. What it computes again, it computes in wider
numbers, so that what is lost shows.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import (
    LaneField,
    block_parameters,
    descriptor_lanes,
    descriptor_words,
    operations_of,
    parameter_words,
    unpack_taps,
)
from npukit.isa.instructions import TWO_SOURCE_OPERATIONS, Instruction, Matrix, Operation, Vector
from npukit.sim.addressing import operands
from npukit.sim.functional import FunctionalSimulator
from npukit.verify.parameters import table_name

__all__ = ["Observer", "many_results", "parameter_points", "total_points", "value_items", "value_unreachable"]

_GREATEST, _LEAST = (1 << 31) - 1, -(1 << 31)
_FIXED = (Operation.REQUANTIZE_FIXED, Operation.DEPTHWISE_FIXED)
_DEPTHWISE = (Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED)
_ROUNDED = (Operation.REQUANTIZE, Operation.DEPTHWISE, Operation.SUM)
_COMPUTING = (*_FIXED, *_ROUNDED, *TWO_SOURCE_OPERATIONS)
_MANY = 16
"""Different results of an instruction: what is at one limit everywhere says little about how it came there."""
_SHIFTS = (-128, -33, -32, -31, -1, 0, 1, 30, 31, 32, 127)
_FLOATS = {
    "0": 0x00000000, "-0": 0x80000000, "subnormal": 0x00000001, "-subnormal": 0x807FFFFF, "least": 0x00800000,
    "-least": 0x80800000, "greatest": 0x7F7FFFFF, "-greatest": 0xFF7FFFFF, "infinity": 0x7F800000,
    "-infinity": 0xFF800000, "nan": 0x7FC00000,
}  # fmt: skip
"""Kinds of binary32 numbers, each with one of them; `least` and `greatest` are of the least and greatest exponent."""


# ---- parameters


@cache
def parameter_points(config: NpuConfig) -> dict[str, tuple[Operation, str, int]]:
    """Name -> (operation, field or table of its descriptor or parameter of a block, bits) at the field's ends."""
    found = {}
    for operation in operations_of(config):
        for field in descriptor_lanes(config, operation):
            name = table_name(field.name)
            for text, bits in _ends(field).items():
                found[f"{operation.name}.{name}={text}"] = (operation, name, bits)
        for name in block_parameters(config, operation):
            for text, bits in _block_ends(config, operation, name).items():
                found[f"{operation.name}.{name}={text}"] = (operation, name, bits)
    return found


def _ends(field: LaneField) -> dict[str, int]:
    if field.is_float:
        return _FLOATS
    low = -(1 << (field.width - 1)) if field.signed else 0
    return {str(value): value for value in (low, low + (1 << field.width) - 1)}


def _block_ends(config: NpuConfig, operation: Operation, name: str) -> dict[str, int]:
    if config.activation.floating or (name == "multiplier" and operation not in _FIXED):
        return _FLOATS
    if name == "shift":
        return {str(value): value for value in _SHIFTS}
    return {str(value): value for value in (_LEAST, 0, _GREATEST)}


def _float_kinds(bits: NDArray[np.uint32]) -> set[str]:
    """Which kinds of `_FLOATS` are among binary32 numbers."""
    exponent, mantissa, negative = bits >> 23 & 0xFF, bits & 0x7FFFFF, bits >> 31 == 1
    kinds = {
        "0": (exponent == 0) & (mantissa == 0),
        "subnormal": (exponent == 0) & (mantissa != 0),
        "least": exponent == 1,
        "greatest": exponent == 0xFE,
        "infinity": (exponent == 0xFF) & (mantissa == 0),
    }
    found = {
        f"{'-' * sign}{name}" for name, there in kinds.items() for sign in (0, 1) if (there & (negative == sign)).any()
    }
    return found | ({"nan"} if ((exponent == 0xFF) & (mantissa != 0)).any() else set())


# ---- items


_ENDS = ("at 2147483647", "at -2147483648", "past 2147483647", "past -2147483648")
_TOTALS = ("MATRIX", "SUM", "bias")
"""Sums of int32 numbers: of products and accumulators, of a window, and of an accumulator and its bias."""
_JUST_PAST = (128, -129)
"""The first numbers that CONVERT to int8 changes."""
_SCALED = ("shift loses bits", "product saturates", "half up", "half down", "past 127", "past -128")


def value_items(config: NpuConfig) -> list[str]:
    """Names of all that an `Observer` can find on a configuration."""
    found = list(parameter_points(config))
    there = operations_of(config)
    found += [
        f"{one.name} low above high" for one in there if "low" in {lane.name for lane in descriptor_lanes(config, one)}
    ]
    found += [*many_results(config)]
    if config.activation.floating:
        return found
    found += [f"sum_{name} {end}" for name in _TOTALS for end in _ENDS]
    found.append("column of the array at its greatest sum")
    for one in there:
        if one in _FIXED:
            found += [f"{one.name} {text}" for text in _SCALED]
        elif one in _ROUNDED:
            found += [f"{one.name} {text}" for text in ("half up", "half down", "past 127", "past -128")]
    if Operation.CONVERT in there:
        found += ["CONVERT past 127", "CONVERT past -128", *(f"CONVERT of {number}" for number in _JUST_PAST)]
    return found


def many_results(config: NpuConfig) -> dict[str, Operation]:
    """Name -> operation of VECTOR that is to have many different results."""
    return {f"{one.name} of many results": one for one in operations_of(config) if one in _COMPUTING}


def total_points(config: NpuConfig) -> dict[str, tuple[str, int]]:
    """Name -> (sum, what it comes to exactly), where chance seldom brings it there."""
    if config.activation.floating:
        return {}
    return {
        f"sum_{name} {end}": (name, total)
        for name in _TOTALS
        for end, total in zip(_ENDS, (_GREATEST, _LEAST), strict=False)
    } | {f"CONVERT of {number}": ("CONVERT", number) for number in _JUST_PAST}


def value_unreachable(config: NpuConfig) -> dict[str, str]:
    """Sums that cannot leave their width -> why."""
    if config.activation.floating:
        return {}
    most = config.max_window**2 << 14
    return {
        "sum_DEPTHWISE past 2147483647": f"a window of {config.max_window}x{config.max_window} sums to {most} at most",
        "column of the array past its width": f"{config.rows} products of 2**14 are the greatest number that it holds",
    }


class Observer:
    """What the values of a program come to.

    Attributes:
        found: names of the points.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.found: set[str] = set()

    def execute(self, machine: FunctionalSimulator, instruction: Instruction) -> None:
        """Let the machine execute an instruction, and look on."""
        if isinstance(instruction, Matrix) and not self.config.accumulator.floating:
            self._matrix(machine, instruction)
            return
        if isinstance(instruction, Vector):
            self._vector(machine, instruction)
        machine.execute(instruction)
        if isinstance(instruction, Vector) and instruction.operation in _COMPUTING:
            (result,) = (one for one in operands(self.config, instruction) if one.write)
            if np.unique(machine.read(result)).size >= _MANY:
                self.found.add(f"{instruction.operation.name} of many results")

    # ---- MATRIX

    def _matrix(self, machine: FunctionalSimulator, matrix: Matrix) -> None:
        act, wgt, *rest = operands(self.config, matrix)
        acc = rest[-1]
        steps = matrix.channels * matrix.kernel_height * matrix.kernel_width
        size = self.config.array
        rows = (machine.read(act) == -128).all(axis=-1).any(axis=(0, 1)).reshape(steps)
        if rows.any():
            tiles = (machine.read(wgt).reshape(matrix.blocks, steps, size, size) == -128).all(axis=2).any(axis=(0, 2))
            if (rows & tiles).any():
                self.found.add("column of the array at its greatest sum")
        before = machine.read(acc).astype(np.int64) if matrix.accumulate else np.int64(0)
        machine.execute(matrix)
        after = machine.read(acc).astype(np.int64)
        if steps * size < 1 << 17:  # less than 2**31: the difference is the product
            product = (after - before + (1 << 31)) % (1 << 32) - (1 << 31)
            self._sum("MATRIX", before + product)

    def _sum(self, name: str, exact: NDArray[np.int64]) -> None:
        """Where an int32 sum comes to, before it wraps."""
        for there, end in zip(
            (exact == _GREATEST, exact == _LEAST, exact > _GREATEST, exact < _LEAST), _ENDS, strict=True
        ):
            if there.any():
                self.found.add(f"sum_{name} {end}")

    # ---- VECTOR

    def _vector(self, machine: FunctionalSimulator, vector: Vector) -> None:
        config, operation = self.config, vector.operation
        found = {one.name: one for one in operands(config, vector)}
        head = descriptor_words(config, vector)
        words = machine.read(found["parameters"]) if "parameters" in found else np.zeros((0, config.array), np.uint32)
        lanes = np.asarray(words[:head], np.uint32).reshape(-1)
        fields = self._descriptor(operation, lanes) if head else {}
        names = block_parameters(config, operation)
        blocks = words[head:].reshape(vector.blocks, parameter_words(config, vector), config.array)
        for place, name in enumerate(names):
            self._block_word(operation, name, blocks[:, place])
        if config.activation.floating:
            return
        if operation is Operation.CONVERT and vector.a_memory.name == "ACC":
            values = machine.read(found["a"]).astype(np.int64)
            self._past("CONVERT", values)
            self.found |= {f"CONVERT of {number}" for number in _JUST_PAST if (values == number).any()}
        if operation in (*_FIXED, *_ROUNDED):
            sums = self._sums(machine.read(found["a"]), vector, blocks, len(names))
            if operation is Operation.SUM:
                self._sum("SUM", sums)
            if fields:
                self._scaled(operation, sums, fields, blocks)

    def _descriptor(self, operation: Operation, lanes: NDArray[np.uint32]) -> dict[str, int]:
        """Bits of the descriptor's fields, signed ones with their sign, each noted at its ends."""
        values = {}
        for field in descriptor_lanes(self.config, operation):
            bits = int(lanes[field.lane]) >> field.lsb & ((1 << field.width) - 1)
            if field.is_float:
                values[field.name] = bits
                texts: Iterable[str] = _float_kinds(np.array([bits], np.uint32))
            else:
                if field.signed and bits >> (field.width - 1):
                    bits -= 1 << field.width
                values[field.name] = bits
                texts = [str(bits)]
            for text in texts:
                if text in _ends(field):
                    self.found.add(f"{operation.name}.{table_name(field.name)}={text}")
        if "low" in values:
            low, high = (self._number(operation, name, values[name]) for name in ("low", "high"))
            if low > high:
                self.found.add(f"{operation.name} low above high")
        return values

    def _number(self, operation: Operation, name: str, bits: int) -> Any:
        field = next(one for one in descriptor_lanes(self.config, operation) if one.name == name)
        return np.uint32(bits).view(np.float32) if field.is_float else bits

    def _block_word(self, operation: Operation, name: str, words: NDArray[np.uint32]) -> None:
        ends = _block_ends(self.config, operation, name)
        if ends is _FLOATS:
            texts = _float_kinds(np.ascontiguousarray(words))
        else:
            values = np.ascontiguousarray(words).view(np.int32)
            if name == "shift":
                values = values.astype(np.int8)
            texts = {str(value) for value in np.unique(values).tolist()}
        self.found.update(f"{operation.name}.{name}={text}" for text in texts & ends.keys())

    def _sums(self, a: NDArray, vector: Vector, blocks: NDArray[np.uint32], names: int) -> NDArray[np.int64]:
        """What is scaled, without a bias, int64[blocks, height, width, array]."""
        if vector.operation is Operation.SUM:
            return a.sum(axis=(3, 4), dtype=np.int64)
        if vector.operation not in _DEPTHWISE:
            return a.astype(np.int64)
        positions = vector.window_height * vector.window_width
        taps = np.stack([unpack_taps(self.config, block[names:], positions) for block in blocks])
        kernel = taps.reshape(vector.blocks, 1, 1, vector.window_height, vector.window_width, -1)
        return (a.astype(np.int64) * kernel).sum(axis=(3, 4))

    def _scaled(
        self, operation: Operation, sums: NDArray[np.int64], fields: Mapping[str, int], blocks: NDArray[np.uint32]
    ) -> None:
        """Bias and scaling of the wrapped sums."""
        total = _wrapped(sums)
        if operation is Operation.SUM:
            bias: Any = np.int64(fields["bias"])
            multiplier: Any = np.uint32(fields["multiplier"]).view(np.float32)
        else:
            bias = blocks[:, 0].view(np.int32)[:, None, None].astype(np.int64)
            multiplier = blocks[:, 1].view(np.int32 if operation in _FIXED else np.float32)[:, None, None]
        self._sum("bias", total + bias)
        total = _wrapped(total + bias)
        if operation in _FIXED:
            shift = blocks[:, 2].view(np.int32).astype(np.int8).astype(np.int64)[:, None, None]
            self._scaled_fixed(operation, total, multiplier.astype(np.int64), shift, fields["zero_point"])
            return
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.nan_to_num(total.astype(np.float32) * multiplier)
        whole = np.floor(scaled)
        self._halves(operation, (scaled - whole == 0.5) & (np.abs(scaled) < 1000), scaled > 0)
        self._past(operation.name, np.rint(scaled.astype(np.float64)) + fields["zero_point"])

    def _scaled_fixed(
        self, operation: Operation, total: NDArray[np.int64], multiplier: NDArray[np.int64], shift: NDArray[np.int64],
        zero_point: int,
    ) -> None:  # fmt: skip
        left, right = np.where(shift < 0, 0, shift & 31), np.where(shift < 0, -shift & 31, 0)
        moved = _wrapped(total << left)
        if (moved != total << left).any():
            self.found.add(f"{operation.name} shift loses bits")
        if ((moved == _LEAST) & (multiplier == _LEAST)).any():
            self.found.add(f"{operation.name} product saturates")
        high = np.minimum((moved * multiplier + (1 << 30)) >> 31, _GREATEST)
        half = (right > 0) & ((high & ((1 << right) - 1)) == (1 << np.maximum(right - 1, 0)))
        self._halves(operation, half, high > 0)
        self._past(operation.name, (high >> right) + zero_point)

    def _halves(self, operation: Operation, half: NDArray[np.bool_], positive: NDArray[np.bool_]) -> None:
        for there, text in ((half & positive, "half up"), (half & ~positive, "half down")):
            if there.any():
                self.found.add(f"{operation.name} {text}")

    def _past(self, name: str, values: NDArray) -> None:
        for there, text in ((values > 127, "past 127"), (values < -128, "past -128")):
            if there.any():
                self.found.add(f"{name} {text}")


def _wrapped(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return (values + (1 << 31)) % (1 << 32) - (1 << 31)
