"""A model of a single data rate SDRAM chip that answers its pins and raises on any violation of its data sheet."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from npukit.isa.sdram import REFRESHES_LATE, SdramChip
from numpy.typing import NDArray

__all__ = ["SdramModel", "SdramPins", "SdramViolation"]


class SdramViolation(Exception):
    """What the data sheet forbids; the message names the rule, the cycles and the command."""


@dataclass(frozen=True)
class SdramPins:
    """What the controller drives in a cycle; `dq` is None while it does not drive the data pins."""

    cke: int = 1
    cs_n: int = 1
    ras_n: int = 1
    cas_n: int = 1
    we_n: int = 1
    bank: int = 0
    address: int = 0
    dqm: int = 0
    dq: int | None = None


_NEVER = -(1 << 40)
_COMMANDS = {
    (0, 0, 0): "MODE", (0, 0, 1): "REFRESH", (0, 1, 0): "PRECHARGE", (0, 1, 1): "ACTIVATE", (1, 0, 0): "WRITE",
    (1, 0, 1): "READ", (1, 1, 0): "STOP", (1, 1, 1): "NOP",
}  # fmt: skip
_ALL_BANKS = 1 << 10
"""A10: precharge all banks, or, with READ and WRITE, precharge by itself afterwards (not modelled)."""


@dataclass
class _Bank:
    row: int | None = None
    activated: int = _NEVER
    precharged: int = _NEVER
    read_end: int = _NEVER
    written: int = _NEVER


@dataclass
class SdramModel:
    """The chip, one step a cycle of its clock.

    Its clock comes a quarter of a period after the controller's, so it takes what the controller drives in a cycle, and
    what it drives itself is there for the controller's registers `cas_latency` cycles after the READ was on the pins.

    Raises, in `step`:
        SdramViolation: on anything that the data sheet forbids, a refresh that comes too late among it.
    """

    chip: SdramChip
    megahertz: float
    memory: NDArray[np.uint16] = field(init=False)

    def __post_init__(self) -> None:
        self.times = self.chip.times(self.megahertz)
        self.memory = np.zeros(self.chip.bytes // 2, np.uint16)
        self.banks = [_Bank() for _ in range(1 << self.chip.bank_bits)]
        self.cycle = 0
        self.ready = self.times.power_up
        self.burst = 0
        """Words of a READ or WRITE; 0 before the mode register is set."""
        self.refreshes = 0
        """Refreshes since power-up."""
        self.started = self.refreshed = 0
        """The cycle in which the mode was set, and refreshes since."""
        self.precharged_all = False
        self._words: dict[int, int] = {}
        """Words to drive, by the cycle at whose start the controller's registers take them."""
        self._drives: set[int] = set()
        """Cycles in some of which the chip drives the data pins."""
        self._taking: deque[int] = deque()
        """Positions of the words that a WRITE still takes."""
        self.commands: dict[str, int] = {}
        """How often each command came."""

    def step(self, pins: SdramPins) -> int | None:
        """Take the pins of a cycle; the word that the controller's registers take at its end, or None."""
        name = _COMMANDS[pins.ras_n, pins.cas_n, pins.we_n] if pins.cke and not pins.cs_n else "NOP"
        if name != "NOP":
            self.commands[name] = self.commands.get(name, 0) + 1
            self._command(name, pins)
        self._data(pins)
        self._check_refresh()
        self._drives.discard(self.cycle)
        self.cycle += 1
        return self._words.pop(self.cycle, None)

    def _fail(self, rule: str, pins: SdramPins | None = None) -> None:
        what = f" (bank {pins.bank}, address {pins.address:#x})" if pins is not None else ""
        raise SdramViolation(f"cycle {self.cycle}: {rule}{what}")

    def _after(self, since: int, cycles: int, rule: str, pins: SdramPins) -> None:
        if self.cycle - since < cycles:
            self._fail(f"{rule}: {self.cycle - since} of {cycles} cycles", pins)

    def _command(self, name: str, pins: SdramPins) -> None:
        if self.cycle < self.ready:
            self._fail(f"{name} {self.ready - self.cycle} cycles before the chip is ready", pins)
        if self._taking:
            self._fail(f"{name} while a WRITE still takes words", pins)
        if name == "STOP":
            self._fail("STOP is not modelled", pins)
        getattr(self, f"_{name.lower()}")(pins)

    def _mode(self, pins: SdramPins) -> None:
        self._idle("MODE", pins)
        if self.refreshes < self.chip.initial_refreshes:
            self._fail(f"MODE after {self.refreshes} of {self.chip.initial_refreshes} refreshes", pins)
        latency = pins.address >> 4 & 7
        if latency != self.times.cas_latency or pins.address & ~0x77 or pins.address & 7 > 3:
            self._fail(
                f"the mode {pins.address:#x} has no CAS latency {self.times.cas_latency}, or a mode unknown", pins
            )
        self.burst = 1 << (pins.address & 7)
        self.ready = self.cycle + self.times.mode
        self.started, self.refreshed = self.cycle, 0

    def _refresh(self, pins: SdramPins) -> None:
        self._idle("REFRESH", pins)
        self.refreshes += 1
        self.refreshed += 1
        self.ready = self.cycle + self.times.refresh_cycle

    def _idle(self, name: str, pins: SdramPins) -> None:
        if not self.precharged_all:
            self._fail(f"{name} before all banks were precharged once", pins)
        for number, bank in enumerate(self.banks):
            if bank.row is not None:
                self._fail(f"{name} with row {bank.row} of bank {number} open", pins)
            self._after(bank.precharged, self.times.precharge, f"{name} after tRP of bank {number}", pins)
            self._after(bank.activated, self.times.row_cycle, f"{name} after tRC of bank {number}", pins)

    def _precharge(self, pins: SdramPins) -> None:
        every = bool(pins.address & _ALL_BANKS)
        self.precharged_all |= every
        for bank in self.banks if every else [self.banks[pins.bank]]:
            if bank.row is not None:
                self._after(bank.activated, self.times.row_active, "PRECHARGE after tRAS", pins)
                self._after(bank.written, self.times.write_recovery, "PRECHARGE after tWR", pins)
                if self.cycle < bank.read_end:
                    self._fail("PRECHARGE cuts a READ short", pins)
                bank.precharged = self.cycle
            bank.row = None

    def _activate(self, pins: SdramPins) -> None:
        bank = self.banks[pins.bank]
        if not self.burst:
            self._fail("ACTIVATE before the mode is set", pins)
        if bank.row is not None:
            self._fail(f"ACTIVATE with row {bank.row} open", pins)
        if pins.address >> self.chip.row_bits:
            self._fail("ACTIVATE of a row that the chip does not have", pins)
        self._after(bank.precharged, self.times.precharge, "ACTIVATE after tRP", pins)
        self._after(bank.activated, self.times.row_cycle, "ACTIVATE after tRC", pins)
        for other in self.banks:
            self._after(other.activated, self.times.bank_to_bank, "ACTIVATE after tRRD", pins)
        bank.row, bank.activated = pins.address, self.cycle

    def _column(self, name: str, pins: SdramPins) -> tuple[_Bank, list[int]]:
        """The open bank, and the positions of the words in memory: within the burst they wrap."""
        bank = self.banks[pins.bank]
        if bank.row is None:
            self._fail(f"{name} of a closed bank", pins)
        assert bank.row is not None
        self._after(bank.activated, self.times.activate_to_column, f"{name} after tRCD", pins)
        if pins.address >> self.chip.column_bits:
            self._fail(f"{name} with a column beyond the row, or with precharge", pins)
        row = (bank.row << self.chip.bank_bits | pins.bank) << self.chip.column_bits
        first = pins.address & -self.burst
        return bank, [row | first | (pins.address + index) % self.burst for index in range(self.burst)]

    def _read(self, pins: SdramPins) -> None:
        bank, places = self._column("READ", pins)
        first = self.cycle + self.times.cas_latency
        if first in self._words:
            self._fail("READ cuts another one short", pins)
        self._words.update({first + index: int(self.memory[place]) for index, place in enumerate(places)})
        self._drives.update(range(first - 1, first + self.burst + 1))
        bank.read_end = self.cycle + self.burst

    def _write(self, pins: SdramPins) -> None:
        _, places = self._column("WRITE", pins)
        self._taking.extend(places)

    def _data(self, pins: SdramPins) -> None:
        if pins.dq is not None and self.cycle in self._drives:
            self._fail("controller and chip both drive the data pins", pins)
        if not self._taking:
            return
        if pins.dq is None:
            self._fail("a WRITE without data", pins)
        assert pins.dq is not None
        place = self._taking.popleft()
        mask = (0 if pins.dqm & 1 else 0x00FF) | (0 if pins.dqm & 2 else 0xFF00)
        self.memory[place] = int(self.memory[place]) & ~mask & 0xFFFF | pins.dq & mask
        bank = place >> self.chip.column_bits & (1 << self.chip.bank_bits) - 1
        self.banks[bank].written = self.cycle

    def _check_refresh(self) -> None:
        for number, bank in enumerate(self.banks):
            if bank.row is not None and self.cycle - bank.activated > self.times.row_active_most:
                self._fail(f"row {bank.row} of bank {number} is open for more than tRAS max")
        if self.burst and self.cycle - self.ready > 0:
            due = (self.cycle - self.started) // self.times.refresh_interval
            if due - self.refreshed > REFRESHES_LATE:
                self._fail(f"{self.refreshed} refreshes where {due} are due")
