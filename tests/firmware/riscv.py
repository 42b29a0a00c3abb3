"""Emitted C on a 32-bit RISC-V processor: compiled by Clang as `ziglang` packages it, run in the emulator Unicorn.

Registers of a device of the kit lie in the processor's address space. A program of a few lines around the emitted C
takes its inputs from memory, and leaves outputs and result there.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from npukit.driver.device import Device
from npukit.driver.rtl_device import RtlDevice
from npukit.isa.registers import ControlBit, StatusBit, address_of
from numpy.typing import NDArray

from npukit.firmware.guide import arguments
from npukit.firmware.kit import Kit

__all__ = ["FLAGS", "Processor", "compile_object", "zig"]

FLAGS = (
    "-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m", "-std=c99", "-pedantic", "-Wall", "-Wextra",
    "-Werror", "-Os", "-ffunction-sections", "-fdata-sections",
)  # fmt: skip
ROM, SHARED, STACK, REGISTERS, BOARD, MEMORY = 0x10000, 0x3000_0000, 0x3800_0000, 0x4000_0000, 0x5000_0000, 0x8000_0000
ROM_BYTES, SHARED_BYTES, STACK_BYTES = 1 << 20, 1 << 20, 1 << 16
LINKER = f"""
ENTRY(_start)
SECTIONS {{
  . = {ROM:#x};
  .text : {{ KEEP(*(.start)) *(.text*) *(.rodata*) *(.srodata*) }}
  .data : {{ *(.data*) *(.sdata*) *(.bss*) *(.sbss*) }}
  . = {MEMORY:#x};
  .npu (NOLOAD) : {{ *(.npu) }}
  /DISCARD/ : {{ *(.eh_frame*) }}
}}
"""
PORT = f"""
#include <stdint.h>
struct npu;
int board_wait(struct npu *npu);
#define BOARD ((volatile uint32_t *){BOARD:#x}u)
#ifdef BOARD_INTERRUPT
#define NPU_WAIT_FOR_INTERRUPT(npu) board_wait(npu)
#endif
#define NPU_BUS_ADDRESS(npu, pointer) ((void)(npu), NPU_ORIGIN + ((uintptr_t)(pointer) - {MEMORY:#x}u))
"""
_RESULT, _WAIT = 0, 4
"""Offsets of BOARD's words: where the result goes, and one whose reading takes until the interrupt."""


def zig() -> list[str]:
    """The compiler's command; the test is skipped without it."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: pip install npukit[test]")
    return [sys.executable, "-m", "ziglang", "cc"]


def compile_object(folder: Path, kit: Kit, source: str) -> Path:
    """One source of the kit as an object."""
    target = folder / f"{source}.o"
    path = kit.files[0].parent / source
    subprocess.run([*zig(), *FLAGS, "-c", str(path), "-o", str(target)], check=True)
    return target


def _main(kit: Kit) -> tuple[str, dict[str, int]]:
    """The program, and where it has the model's inputs and outputs."""
    name, at = kit.model.name, SHARED
    places, lists = {}, []
    for kind in ("input", "output"):
        found = []
        for c_type, field, _ in arguments(kit.model, kind):
            places[f"{kind} {field}"] = at
            found.append(f"({c_type} *){at:#x}u")
            at += 0x10000
        lists.append(", ".join(found))
    text = f"""
#include "{name}.h"
static NPU_ALIGNED(NPU_ALIGNMENT) uint8_t memory[{name.upper()}_MEMORY_BYTES] __attribute__((section(".npu")));
void run(void);
void run(void)
{{
    const struct {name}_inputs inputs = {{{lists[0]}}};
    const struct {name}_outputs outputs = {{{lists[1]}}};
    struct npu npu;
    struct npu_model model;
    enum npu_result result = npu_init(&npu, (volatile void *){REGISTERS:#x}u);
    if (result == NPU_OK) result = BOARD_BIND(&model, &npu, memory);
    if (result == NPU_OK) result = {name}_run(&model, &inputs, &outputs);
    BOARD[{_RESULT}] = (uint32_t)result;
    for (;;) {{
    }}
}}
int board_wait(struct npu *npu)
{{
    (void)BOARD[{_WAIT // 4}];
    npu_handle_interrupt(npu);
    return 0;
}}
__attribute__((naked, section(".start"))) void _start(void);
__attribute__((naked, section(".start"))) void _start(void)
{{
    __asm__ volatile("lui sp, {STACK + STACK_BYTES >> 12:#x}\\n j run");
}}
"""
    return text, places


class Processor:
    """A linked program for a model.

    Attributes:
        elf: the executable's path.
        reads: registers that the latest run has read.
    """

    def __init__(
        self, folder: Path, kit: Kit, *, interrupt: bool = False, origin: int = 0, attach: bool = False
    ) -> None:
        self.kit, self.origin, self.reads = kit, origin, 0
        text, self._places = _main(kit)
        source = kit.files[0].parent
        (folder / "main.c").write_text(text)
        (folder / "board.h").write_text(PORT)
        (folder / "link.ld").write_text(LINKER)
        self.elf = folder / "firmware.elf"
        bind = f"BOARD_BIND={kit.model.name}_{'attach' if attach else 'init'}"
        defined = [bind, f"NPU_ORIGIN=UINT64_C({origin:#x})", *(["BOARD_INTERRUPT"] if interrupt else [])]
        subprocess.run(
            [*zig(), *FLAGS, "-Wl,--gc-sections", f"-I{folder}", f"-I{source}", '-DNPU_PORT_HEADER="board.h"',
             *(f"-D{one}" for one in defined), str(source / "npu.c"), str(source / f"{kit.model.name}.c"),
             str(folder / "main.c"), "-T", str(folder / "link.ld"), "-o", str(self.elf)],
            check=True,
        )  # fmt: skip

    @property
    def loaded_bytes(self) -> int:
        """Bytes of code, constants and variables with a value."""
        return sum(len(data) for _, data in _segments(self.elf))

    def run(self, device: Device, inputs: Mapping[str, NDArray], instructions: int = 100_000_000) -> dict[str, NDArray]:
        """Run from reset to the result, which must be NPU_OK; the outputs by name.

        The device's memory is copied to and from the processor's where the program starts and ends.
        """
        unicorn = pytest.importorskip("unicorn", reason="unicorn is not installed: pip install npukit[test]")
        from unicorn.riscv_const import UC_RISCV_REG_PC

        machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
        size = self.kit.model.place.end
        machine.mem_map(ROM, ROM_BYTES)
        for start, length in ((SHARED, SHARED_BYTES), (STACK, STACK_BYTES), (MEMORY, size)):
            machine.mem_map(start, length)
        for start, data in _segments(self.elf):
            machine.mem_write(start, data)
        machine.mem_write(MEMORY, np.random.default_rng(1).integers(0, 256, size).astype(np.uint8).tobytes())
        model = self.kit.model
        for port in model.boundary.inputs:
            place = self._places[f"input {model.fields[f'input {port.name}']}"]
            machine.mem_write(place, np.ascontiguousarray(inputs[port.name]).tobytes())
        results: list[int] = []
        started: list[bool] = []
        errors: list[BaseException] = []
        self.reads = 0

        def guarded(function):
            def call(*arguments):
                try:
                    return function(*arguments)
                except BaseException as error:  # one that left a callback would be lost
                    errors.append(error)
                    machine.emu_stop()
                    return 0

            return call

        def read(_machine, offset: int, _size: int, _data) -> int:
            self.reads += 1
            if isinstance(device, RtlDevice) and device.running:
                device.step(200)
            value = device.read_register(offset)
            if offset == address_of("STATUS") and started and not value & 1 << StatusBit.BUSY:
                started.clear()
                machine.mem_write(MEMORY, device.read_memory(0, size).tobytes())
            return value

        def write(_machine, offset: int, _size: int, value: int, _data) -> None:
            if offset == address_of("CONTROL") and value >> ControlBit.START & 1:
                device.write_memory(0, np.frombuffer(machine.mem_read(MEMORY, size), np.uint8))
                started.append(True)
            device.write_register(offset, value & 0xFFFFFFFF)

        def board_read(_machine, offset: int, _size: int, _data) -> int:
            assert offset == _WAIT
            while isinstance(device, RtlDevice) and device.running and not device.interrupt:
                device.step(100)
            assert device.interrupt, "the program waits for an interrupt that does not come"  # type: ignore[attr-defined]
            return 0

        def board_write(_machine, offset: int, _size: int, value: int, _data) -> None:
            assert offset == _RESULT
            results.append(value)
            machine.emu_stop()

        machine.mmio_map(REGISTERS, 4096, guarded(read), None, guarded(write), None)
        machine.mmio_map(BOARD, 4096, guarded(board_read), None, guarded(board_write), None)
        machine.reg_write(UC_RISCV_REG_PC, ROM)
        machine.emu_start(ROM, 0xFFFFFFFF, count=instructions)
        if errors:
            raise errors[0]
        assert results == [0], f"result {results} at {machine.reg_read(UC_RISCV_REG_PC):#x}"
        outputs = {}
        for port in model.boundary.outputs:
            place = self._places[f"output {model.fields[f'output {port.name}']}"]
            dtype = np.dtype(port.dtype)
            raw = machine.mem_read(place, int(np.prod(port.shape)) * dtype.itemsize)
            outputs[port.name] = np.frombuffer(bytes(raw), dtype).reshape(port.shape)
        return outputs


def _segments(elf: Path) -> list[tuple[int, bytes]]:
    """Addresses and contents of what an ELF file of 32 bits loads."""
    data = elf.read_bytes()
    assert data[:6] == b"\x7fELF\x01\x01" and int.from_bytes(data[18:20], "little") == 243  # RISC-V
    offset, count = int.from_bytes(data[28:32], "little"), int.from_bytes(data[44:46], "little")
    found = []
    for place in range(offset, offset + 32 * count, 32):
        kind, start, address, _, size = (
            int.from_bytes(data[place + 4 * n : place + 4 * n + 4], "little") for n in range(5)
        )
        if kind == 1 and size:
            found.append((address, data[start : start + size]))
    return found
