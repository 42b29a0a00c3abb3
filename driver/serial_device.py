"""A board on a serial line as a device."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from npukit.driver.device import DeviceError, SharedDevice, exclusively, reset_core
from npukit.driver.digest import digest
from npukit.driver.serial_link import Port, SerialLink, SilentError
from npukit.hw.toolchain import needs
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.host_link import BAUD_RATES, REGISTERS, Identity
from npukit.isa.registers import REGISTERS as REGISTER_MAP
from npukit.isa.registers import StatusBit, address_of
from npukit.sim.dram import SdramDram
from numpy.typing import NDArray

__all__ = ["SerialDevice", "identify", "open_port"]

_BLOCK = 1 << 16
"""Bytes of memory that are sent or left out together."""
_WORTH = 256
"""Bytes from which on the board is asked first whether it has them."""
_OFFSETS = {register.offset for register in REGISTER_MAP}
_LONGEST_POLL = 0.05
_WRITE_SECONDS = 60.0
"""Seconds for which a line may take no bytes."""
_SILENCE = 6.0
"""Seconds that a board has to say who it is."""

Progress = Callable[[str, int, int], None]
"""What is moved, bytes that are there, and all of them."""


def open_port(name: str, baud: int = BAUD_RATES[0]) -> Port:
    """A serial line, which nobody else can open meanwhile.

    Args:
        name: of the system's, /dev/ttyUSB0 or COM3, or a URL that pyserial knows.
        baud: bits a second.

    Raises:
        ToolError: pyserial is missing.
        DeviceError: the line is not there, or somebody has it.
    """
    with needs("serial", "a board on a serial line"):
        import serial
    line = None
    try:
        line = serial.serial_for_url(name, baud, timeout=0.005, write_timeout=_WRITE_SECONDS, do_not_open=True)
        if hasattr(line, "exclusive"):
            line.exclusive = True
        line.open()
        line.reset_input_buffer()
    except Exception as error:  # of pyserial, of the system's terminals, or a rate that no port can have
        if line is not None:
            line.close()
        raise DeviceError(f"the serial line {name} cannot be opened: {error}{_advice(error)}") from None
    try:
        line.set_low_latency_mode(True)  # or an FTDI chip keeps answers for 16 ms
    except (AttributeError, NotImplementedError, OSError, ValueError):  # only some systems and lines can
        pass
    return line


def _advice(error: BaseException) -> str:
    text = str(error)
    if "Permission" in text:
        return (
            "; the group of the device, often dialout, may open it: sudo usermod -a -G dialout $USER, and log in again"
        )
    if "lock" in text:
        return "; another process, or another Session of this one, is using the board: they can share a SerialDevice"
    return ""


def identify(name: str, baud: int | None = None) -> tuple[SerialLink, Identity]:
    """The link to the board on a line, at a rate or at the first of those that bitstreams use at which it answers.

    Raises:
        ToolError: pyserial is missing.
        DeviceError: nobody answers, or no board.
    """
    rates = BAUD_RATES if baud is None else (baud,)
    for rate in rates:
        link = SerialLink(open_port(name, rate), name)
        try:
            return link, link.open(_SILENCE if rate == rates[-1] else _SILENCE / 4)
        except SilentError:
            link.close()
            if rate == rates[-1]:
                raise
        except BaseException:
            link.close()
            raise
    raise AssertionError("no rates")


def _name_of(config_hash: int) -> str:
    names = [name for name, preset in PRESETS.items() if preset.hash == config_hash]
    return names[0] if names else f"a configuration with the hash {config_hash:016x}"


class SerialDevice(SharedDevice):
    """A board that was flashed with a configuration. Memory that it holds already is not sent again: the board is asked
    for the digest of each block first.

    Attributes:
        identity: what the board says of itself.
        sent, kept: bytes of memory that were written to the board, and that it held already.
    """

    def __init__(
        self, config: NpuConfig, name: str, baud: int | None = None, progress: Progress = lambda *_: None
    ) -> None:
        """Open the line and look who is there.

        Args:
            config: the accelerator's configuration, which must be the board's.
            name, baud: see `identify`.
            progress: called while much is moved.

        Raises:
            ToolError: pyserial is missing.
            DeviceError: nobody answers, or a board with another configuration.
        """
        super().__init__()
        self._config, self._name, self._progress = config, name, progress
        self._link, self.identity = identify(name, baud)
        self.sent = self.kept = 0
        try:
            self._check_configuration()
        except DeviceError:
            self._link.close()
            raise

    def _check_configuration(self) -> None:
        if self.identity.config_hash != self._config.hash:
            raise DeviceError(
                f"the board {self.identity.board} on {self._name} has {_name_of(self.identity.config_hash)}, and not "
                f"{_name_of(self._config.hash)}: use --config with the board's, or flash it anew (npukit flash)"
            )

    @property
    def config(self) -> NpuConfig:
        """The accelerator's configuration."""
        return self._config

    @property
    def memory_bytes(self) -> int:
        """Bytes of the board's memory."""
        return self.identity.memory_bytes

    @property
    def dram(self) -> SdramDram:
        """What lies behind the accelerator: the kit's boards have an SDRAM, with its clock or twice that."""
        return SdramDram(megahertz=self.identity.hertz / 1e6, rate=self.identity.memory_rate)

    def close(self) -> None:
        """Give the line back."""
        self._link.close()

    @exclusively
    def reset(self) -> None:
        """End whatever runs, and clear registers and errors; memory keeps what it holds. A board that was reset or
        flashed since is opened anew."""
        if self._link.was_reset:
            self.identity = self._link.open()
            self._check_configuration()
        reset_core(self)

    def _check(self, address: int, size: int) -> None:
        if address < 0 or address + size > self.memory_bytes:
            raise DeviceError(
                f"bytes {address} to {address + size} are outside of the board's {self.memory_bytes} bytes"
            )

    @exclusively
    def read_memory(self, address: int, size: int) -> NDArray[np.uint8]:
        """A copy of `size` bytes."""
        self._check(address, size)
        begin, end = address & -4, -(-(address + size) // 4) * 4
        with self._moving("read", end - begin) as moved:
            data = self._link.read(begin, (end - begin) // 4, moved)
        return np.frombuffer(data, np.uint8)[address - begin :][:size].copy()

    @exclusively
    def write_memory(self, address: int, data: NDArray[np.uint8]) -> None:
        """Write bytes, those that the board does not hold already."""
        self._check(address, data.size)
        if data.size == 0:
            return
        begin, end = address & -4, -(-(address + data.size) // 4) * 4
        whole = np.zeros(end - begin, np.uint8)
        if begin != address:
            whole[:4] = self.read_memory(begin, 4)
        if end != address + data.size:
            whole[-4:] = self.read_memory(end - 4, 4)
        whole[address - begin : address - begin + data.size] = data
        wanted = self._missing(begin, whole)
        total, done = sum(block.size for _, block in wanted), 0
        self.sent += total
        self.kept += whole.size - total
        with self._moving("send", total) as moved:
            for place, block in wanted:
                self._link.write(place, block.tobytes(), lambda part, done=done: moved(done + part))
                done += block.size

    @contextmanager
    def _moving(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """To be called with the bytes that are there; whatever happens, progress says at the end that it is over."""
        try:
            yield lambda done: self._progress(what, done, total)
        finally:
            self._progress(what, total, total)

    def _missing(self, begin: int, data: NDArray[np.uint8]) -> list[tuple[int, NDArray[np.uint8]]]:
        """The blocks that the board does not hold."""
        blocks = [(begin + at, data[at : at + _BLOCK]) for at in range(0, data.size, _BLOCK)]
        if data.size < _WORTH:
            return blocks
        missing = []
        with self._moving("check", data.size) as moved:
            for place, block in blocks:
                if self._link.digest(place, block.size // 4) != digest(block):
                    missing.append((place, block))
                moved(place - begin + block.size)
        return missing

    @exclusively
    def read_register(self, offset: int) -> int:
        """A 32-bit register.

        Raises:
            DeviceError: when there is none.
        """
        return self.read_registers(offset, 1)[0]

    @exclusively
    def read_registers(self, offset: int, count: int) -> list[int]:
        """Registers that follow each other, in one request.

        Raises:
            DeviceError: when one is not there.
        """
        data = self._link.read_registers(REGISTERS + offset, count) if offset in _OFFSETS else None
        if data is None:
            raise DeviceError(f"there is no register at offset {offset:#x}")
        return np.frombuffer(data, "<u4").tolist()

    @exclusively
    def write_register(self, offset: int, value: int) -> None:
        """Write a register, once, whatever happens on the line.

        Raises:
            DeviceError: when there is none, the core is busy, or the value has more than 32 bits.
        """
        if not 0 <= value < 1 << 32:
            raise DeviceError(f"a register holds 32 bits, not {value}")
        if offset not in _OFFSETS or not self._link.write_register(REGISTERS + offset, value):
            raise DeviceError(
                f"there is no register at offset {offset:#x}, or the core is busy and takes none but a reset"
            )

    @exclusively
    def wait(self, deadline: float) -> None:
        """Ask until the accelerator is no longer busy.

        Raises:
            DeviceError: after `deadline` seconds.
        """
        end, pause = time.monotonic() + deadline, 0.001
        while self.read_register(address_of("STATUS")) >> StatusBit.BUSY & 1:
            if time.monotonic() > end:
                raise DeviceError(f"the accelerator on {self._name} is still busy after {deadline:g} s")
            time.sleep(pause)
            pause = min(_LONGEST_POLL, 1.5 * pause)
