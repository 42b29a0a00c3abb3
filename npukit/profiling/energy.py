"""What a program's work costs in energy, as an ASIC would do it: a model, no measurement.

Operations and accesses are counted from the instructions, and each is multiplied with what M. Horowitz gives for a
45 nm process at 0.9 V ("Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9). Control,
registers, clocks and leakage are left out, so that sums are good for comparing machines and layers, and too small as
absolute numbers.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from math import exp, log

from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.isa.program import Program
from npukit.profiling.layers import transfer
from npukit.sim.addressing import bank_depth

__all__ = ["MAC_PICOJOULES", "Energy", "energy_of", "sram_picojoules"]

# Horowitz, ISSCC 2014, in picojoules.
_ADD8, _ADD32, _MULTIPLY8, _MULTIPLY32 = 0.03, 0.1, 0.2, 3.1
_ADD_FP32, _MULTIPLY_FP16, _MULTIPLY_FP32 = 0.9, 1.1, 3.7
_SRAM64 = ((8 << 10, 10.0), (32 << 10, 20.0), (1 << 20, 100.0))
"""(bytes of a memory, of reading 64 bits of it); what lies between is interpolated between logarithms."""
_DRAM64 = (1300.0 + 2600.0) / 2
"""Of 64 bits: the middle of the range that the source gives."""

_FMA_FP32 = _MULTIPLY_FP32 + _ADD_FP32
MAC_PICOJOULES = {"int8": _MULTIPLY8 + _ADD32, "bf16": _MULTIPLY_FP16 + _ADD_FP32}
"""Of a multiply-accumulate; bf16's multiplier is taken for fp16's, which has three bits more."""
_ROUNDING = {"int8": _MULTIPLY32 + _ADD32, "bf16": _FMA_FP32}
"""A sum on its way to an element."""
_RESULT: dict[Operation, float] = {
    # two multiply-adds one behind the other
    Operation.ADD: 2 * _FMA_FP32,
    Operation.MULTIPLY: 2 * _FMA_FP32,
    Operation.ADD_FIXED: 3 * _MULTIPLY32,
    Operation.MULTIPLY_FIXED: 2 * _MULTIPLY32,
    Operation.TABLE_SUM: _ADD_FP32,
    Operation.TABLE_DIVIDE: _FMA_FP32,
    Operation.MOMENTS: _MULTIPLY8 + 2 * _ADD32,
    Operation.RECIPROCAL_ROOT: 4 * _FMA_FP32,
    Operation.NORMALIZE: _FMA_FP32,
    Operation.FUNCTION: 4 * _FMA_FP32,
}
"""Of an element that is handled, beside a rounding; what is not here moves elements, or rounds them alone."""
_ROUNDS = frozenset(
    {Operation.REQUANTIZE, Operation.REQUANTIZE_FIXED, Operation.SUM, Operation.DEPTHWISE, Operation.DEPTHWISE_FIXED,
     Operation.CONVERT}
)  # fmt: skip


@dataclass(frozen=True)
class Energy:
    """Picojoules of the array's and VECTOR's arithmetic, of on-chip memories, and of DRAM."""

    array: float = 0.0
    vector: float = 0.0
    memory: float = 0.0
    dram: float = 0.0

    @property
    def total(self) -> float:
        """Their sum."""
        return self.array + self.vector + self.memory + self.dram

    def __add__(self, other: "Energy") -> "Energy":
        return Energy(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def to_json(self) -> dict[str, float]:
        """In picojoules."""
        return {"array": self.array, "vector": self.vector, "memory": self.memory, "dram": self.dram,
                "total": self.total}  # fmt: skip


def sram_picojoules(size: float, bits: float) -> float:
    """Of an access of so many bits to a memory of so many bytes."""
    below = [one for one in _SRAM64[:-1] if one[0] <= size] or [_SRAM64[0]]
    (left, low), (right, high) = below[-1], _SRAM64[_SRAM64.index(below[-1]) + 1]
    slope = log(high / low) / log(right / left)
    return exp(log(low) + slope * log(size / left)) * bits / 64


def energy_of(program: Program, indices: Iterable[int]) -> Energy:
    """Of some of a program's instructions."""
    total = Energy()
    for index in indices:
        total += _instruction(program.config, program.instructions[index])
    return total


def _instruction(config: NpuConfig, one: Instruction) -> Energy:
    if isinstance(one, Matrix):
        return _matrix(config, one)
    if isinstance(one, Vector):
        return _vector(config, one)
    if isinstance(one, Load):
        _, size = transfer(config, one)
        columns = one.pad_left + one.words + one.pad_right
        written = one.planes * (one.pad_top + one.rows + one.pad_bottom) * columns
        return Energy(memory=_access(config, one.memory, written), dram=size * 8 / 64 * _DRAM64)
    if isinstance(one, Store):
        words, size = transfer(config, one)
        return Energy(memory=_access(config, Memory.ACT, words), dram=size * 8 / 64 * _DRAM64)
    return Energy()


def _access(config: NpuConfig, memory: Memory, words: float) -> float:
    """Of reading or writing words of a memory, one bank of which is at work."""
    _, depth = bank_depth(config, memory)
    size = config.word_bytes if memory in (Memory.ACT, Memory.WGT) else config.wide_word_bytes
    return words * sram_picojoules(depth * size, 8 * size)


def _matrix(config: NpuConfig, one: Matrix) -> Energy:
    """In each pass, a word of activations is read and meets as many rows of weights as the array has, zeros that fill
    them up included; sums are read again but for the first pass that makes them."""
    places, reduction = one.height * one.width, one.channels * one.kernel_height * one.kernel_width
    words = one.blocks * reduction * places * config.row_passes
    again = words - (0 if one.accumulate else one.blocks * places)
    memory = _access(config, Memory.ACT, words) + _access(config, Memory.ACC, words + again)
    memory += _access(config, Memory.WGT, one.blocks * reduction * config.array)
    return Energy(array=words * config.array_macs * MAC_PICOJOULES[config.dtype], memory=memory)


def _vector(config: NpuConfig, one: Vector) -> Energy:
    """A window's words are read once for each row of results; MAX, SUM and DEPTHWISE compute for each of its places."""
    results = one.blocks * one.height * one.width
    read, arithmetic = results, _RESULT.get(one.operation, 0.0)
    if one.operation in _ROUNDS:
        arithmetic += _ROUNDING[config.dtype]
    if one.is_window:
        columns = one.width * one.window_step + max(0, one.window_width - one.window_step)
        read = one.blocks * one.height * one.window_height * columns
        place = _ADD32 if one.operation is Operation.SUM else MAC_PICOJOULES[config.dtype]
        if one.operation is Operation.MAX:
            place = _ADD8
        arithmetic += one.window_height * one.window_width * place
    if one.operation is Operation.FILL:
        read = 0
    memory = _access(config, one.a_memory, read) + _access(config, one.out_memory, results)
    if one.has_two_sources:
        memory += _access(config, one.b_memory, results)
    return Energy(vector=results * config.array * arithmetic, memory=memory)
