"""Pipeline depths and other cycle constants of a configuration, read by `hw/` and `sim/` alike.

`docs/timing.md` says what happens in which cycle; this file holds the numbers.
"""

from dataclasses import dataclass

from npukit.isa.config import NpuConfig
from npukit.isa.formats import FLOATING, INTEGER
from npukit.isa.instructions import NORMALIZE_OPERATIONS, SOFTMAX_OPERATIONS, Operation

__all__ = [
    "ADDER_LATENCY",
    "INSTRUCTION_BYTES",
    "NUMBER_LOAD_CYCLES",
    "PAGE_BYTES",
    "READ_LATENCY",
    "READ_OUTSTANDING",
    "ROOT_CYCLES",
    "TABLE_LOAD_CYCLES",
    "TOKEN_LIMIT",
    "WRITE_OUTSTANDING",
    "Timing",
]

INSTRUCTION_BYTES = 32
PAGE_BYTES = 4096
"""No burst crosses a multiple of them (AXI)."""
READ_LATENCY = 2
"""Cycles from the address of a word on chip to the word."""
ADDER_LATENCY = 6
"""Cycles of a bf16 machine's fp32 addition."""
TOKEN_LIMIT = 255
"""Largest value of a token counter (8 bits)."""
READ_OUTSTANDING = 32
"""Read bursts that the master can track; the DRAM's own limit may be lower."""
WRITE_OUTSTANDING = 32
"""Write bursts that the master can track; the DRAM's own limit may be lower."""
TABLE_LOAD_CYCLES = 64
"""Cycles to fill VECTOR's 256-entry table, four entries a cycle."""
NUMBER_LOAD_CYCLES = 256
"""Cycles to fill VECTOR's table of 256 numbers in binary32, one a cycle, or of as many pairs of them."""
ROOT_CYCLES = 56
"""Cycles of a word in RECIPROCAL_ROOT, which finds a root digit by digit."""


@dataclass(frozen=True)
class _Latencies:
    """Cycles that follow from a datapath: from row to row of the array, of a product, of the addition to ACC, of
    VECTOR without and for each tap of a pass."""

    row: int
    product: int
    accumulate: int
    vector: int
    tap: int


_LATENCIES = {
    INTEGER: _Latencies(row=1, product=2, accumulate=4, vector=20, tap=0),
    FLOATING: _Latencies(row=ADDER_LATENCY, product=3, accumulate=9, vector=20, tap=ADDER_LATENCY),
}


@dataclass(frozen=True)
class Timing:
    """Cycle constants that follow from a configuration."""

    config: NpuConfig

    @property
    def _latencies(self) -> _Latencies:
        return _LATENCIES[self.config.datapath]

    @property
    def row_latency(self) -> int:
        """Cycles by which a partial sum in row r + 1 of the array trails row r."""
        return self._latencies.row

    @property
    def product_latency(self) -> int:
        """Cycles from an activation at a processing element to its product."""
        return self._latencies.product

    @property
    def matrix_latency(self) -> int:
        """Cycles from the ACT read address of a word to the ACC write of its result.

        ACC is read so that its words meet the sums of the array: both reads take as long.
        """
        return self.array_latency + self.accumulate_latency - 1

    @property
    def array_latency(self) -> int:
        """Cycles from an activation word to its word of sums: rows and columns, then one processing element."""
        skew = (self.config.rows - 1) * self.row_latency + self.config.array - 1
        return skew + self.product_latency + self.row_latency

    @property
    def accumulate_latency(self) -> int:
        """H: cycles from the ACC read address of a word to the cycle after its write."""
        return self._latencies.accumulate

    @property
    def vector_latency(self) -> int:
        """Cycles from the last pass of a word to its write, the same for every operation.

        bf16: six cycles up to the products, the additions of a pass one after the other, and 14 for multiplication,
        addition, limits, collection and rounding.
        """
        return self._latencies.vector + self._latencies.tap * self.config.vector_taps

    @property
    def sweeps(self) -> bool:
        """Whether a sum waits for its last addition, so that window operations add to many results in turn."""
        return self._latencies.tap > 0

    @property
    def sweep_cycles(self) -> int:
        """D: with sweeps: least cycles from a pass of a window operation to the next one that adds to the same sum."""
        return ADDER_LATENCY * self.config.vector_taps + 2

    @property
    def sweep_words(self) -> int:
        """K: with sweeps: most result words of a window operation whose sums grow together."""
        return 1 << (self.sweep_cycles - 1).bit_length()

    @property
    def vector_active(self) -> int:
        """Most VECTOR instructions that have started and not ended; starts are at least 2 cycles apart."""
        return self.vector_latency // 2 + 2

    @property
    def matrix_active(self) -> int:
        """Most MATRIX instructions that have started and not ended."""
        return (self.matrix_latency - 1) // max(self.config.rows, self.accumulate_latency) + 3

    @property
    def parameter_hold(self) -> int:
        """Cycles from a parameter set's last stream cycle until the set may be loaded anew."""
        return 5

    @property
    def store_read_latency(self) -> int:
        """Cycles from an ACT read address of STORE to the beat that can carry the word."""
        return READ_LATENCY

    @property
    def fetch_burst(self) -> int:
        """Instructions that FETCH asks for at once (fewer at a program's end)."""
        limit = max(1, min(4, self.config.max_burst * self.config.bus_bytes // INSTRUCTION_BYTES))
        # a power of two, so that no burst crosses 4 KiB
        return max(1, self.config.bus_bytes // INSTRUCTION_BYTES, 1 << (limit.bit_length() - 1))

    @property
    def fetch_buffer(self) -> int:
        """Instructions that FETCH can hold, asked for or arrived."""
        return 2 * self.fetch_burst

    @staticmethod
    def table_cycles(operation: Operation) -> int:
        """Cycles in which VECTOR loads an operation's table, and what else is in its descriptor; 0: it has no table."""
        cycles = {
            Operation.TABLE: TABLE_LOAD_CYCLES,
            Operation.TABLE_SUM: NUMBER_LOAD_CYCLES,
            Operation.TABLE_DIVIDE: NUMBER_LOAD_CYCLES + 1,
            Operation.FUNCTION: NUMBER_LOAD_CYCLES + 1,
        }
        return cycles.get(operation, 0)

    def word_cycles(self, operation: Operation) -> int:
        """Cycles of a word in an operation with lanes of its own: of a softmax, a normalisation, or a function; 0: it
        has none."""
        cycles = {
            Operation.FUNCTION: self.config.softmax_cycles,
            **dict.fromkeys(SOFTMAX_OPERATIONS, self.config.softmax_cycles),
            **dict.fromkeys(NORMALIZE_OPERATIONS, self.config.normalize_cycles),
            Operation.RECIPROCAL_ROOT: ROOT_CYCLES,
        }
        return cycles.get(operation, 0)

    @property
    def softmax_lanes(self) -> int:
        """Elements that VECTOR handles in a cycle of TABLE_SUM and TABLE_DIVIDE, or of FUNCTION; 0: they are not
        there."""
        return self.config.array // self.config.softmax_cycles if self.config.softmax_cycles else 0

    @property
    def normalize_lanes(self) -> int:
        """Elements that VECTOR handles in a cycle of MOMENTS and NORMALIZE; 0: it does not have them."""
        if not self.config.normalize_cycles or self.config.datapath is not INTEGER:
            return 0
        return self.config.array // self.config.normalize_cycles

    @property
    def requantise_passes(self) -> int:
        """Cycles in which VECTOR requantises, looks up or compares one word."""
        return self.config.array // self.config.vector_lanes

    @property
    def two_source_passes(self) -> int:
        """Cycles in which VECTOR adds or multiplies one word of two sources."""
        return self.config.array // self.config.fma_lanes
