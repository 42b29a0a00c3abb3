"""The C++ harness around the core's model, with addresses and undefined behaviour checked: anything that its callers
can do with it, around the copy engine of the tests, which drives its buses as it is told."""

import importlib.util
import json
import os
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
from npukit.driver.device import DeviceError
from npukit.driver.rtl_build import build_library
from npukit.driver.rtl_device import RtlDevice
from npukit.driver.surroundings import Surroundings
from npukit.hw.verilog import component_verilog
from npukit.isa.config import PRESETS
from npukit.isa.registers import REGISTERS, address_of
from npukit.sim.dram import DramModel

from npukit.cache import cache_folder

from .case import Outcome, Result

__all__ = ["Harness", "environment", "make"]

_CONFIG = replace(PRESETS["int8-4x4"], bus_bytes=64)
"""With a bus whose data and strobes fill whole words and more."""
_VERILOG = "NPUKIT_FUZZ_VERILOG"
_MEMORIES = (4096, 8192, 1 << 16)


def _stub() -> ModuleType:
    path = Path(__file__).parents[1] / "driver" / "rtl_stub.py"
    spec = importlib.util.spec_from_file_location("npukit_tests_rtl_stub", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def environment() -> dict[str, str]:
    """The sanitizers' libraries, which have to be there before Python is; and the model, built without them."""
    verilog = cache_folder("fuzz-harness") / "npu.v"
    text = component_verilog(_stub().CopyEngine(_CONFIG), "npu")
    verilog.write_text(text, encoding="utf-8")
    build_library(_CONFIG, text, trace=True, optimise=False, sanitize=True)
    compiler = os.environ.get("CXX", "g++")
    names = ("libasan.so", "libubsan.so")
    found = [subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip() for name in names]
    return {
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        _VERILOG: str(verilog),
    }


class Harness:
    """See the module. An input is a list of calls of the device, in JSON."""

    seconds = 120.0
    megabytes = None
    suffix = ".json"

    def __init__(self, folder: Path) -> None:
        self.verilog = Path(os.environ[_VERILOG]).read_text(encoding="utf-8")
        self.waveform = folder / "waves.vcd"

    # ---- making

    def input(self, random: Random) -> bytes:
        """A device, and what happens to it."""
        device = {
            "memory_bytes": random.choice(_MEMORIES),
            "vcd_cycles": random.choice([None, [0, 0], [0, 10**9], [random.randrange(200)] * 2, [5, 60]]),
        }
        makers = (self._start, self._start, self._run, self._run, self._register, self._dram, self._around, self._other)
        calls = [random.choice(makers)(random, device) for _ in range(random.randint(1, 14))]
        return json.dumps([device, *calls]).encode()

    @staticmethod
    def _address(random: Random, device: dict[str, Any]) -> int:
        end = device["memory_bytes"]
        near = random.choice([0, end // 2, end, end - 4096, 1 << 32, 1 << 63, 1 << 64])
        return (near + random.choice([0, 0, 1, -1, 64, -64, 3, -128, random.randrange(5000)])) % (1 << 64)

    def _start(self, random: Random, device: dict[str, Any]) -> list:
        bursts, beats = random.choice([1, 2, 16, 33, 255]), random.choice([1, 2, 16, 17, 64, 255])
        length = bursts | beats << 8 | random.choice([0, 0, 50, 2000]) << 16
        values = {
            "PROGRAM": self._address(random, device), "BASE": self._address(random, device), "PROGRAM_LENGTH": length,
            "LIMIT_LOW": random.choice([0xFFFFFFFF, 0, 1, random.getrandbits(32)]), "LIMIT_HIGH": random.randrange(10),
        }  # fmt: skip
        return ["start", values]

    @staticmethod
    def _run(random: Random, device: dict[str, Any]) -> list:
        return ["run", random.choice([0, 1, 7, 100, 3000, 20000])]

    @staticmethod
    def _register(random: Random, device: dict[str, Any]) -> list:
        offset = random.choice([random.choice(REGISTERS).offset, random.randrange(0, 4096, 4)])
        return ["register", offset, random.choice([0, 1, 2, 3, random.getrandbits(32)]), random.random() < 0.5]

    @staticmethod
    def _dram(random: Random, device: dict[str, Any]) -> list:
        return ["dram", random.choice([1, 2, 100]), random.choice([1, 2, 32]), random.choice([1, 2, 32])]

    @staticmethod
    def _around(random: Random, device: dict[str, Any]) -> list:
        return [
            "surround", random.getrandbits(64), random.choice([0, 10, 60, 99]), random.choice([0, 5, 300]),
            random.choice([None, 1, 33, 4096]), random.choice([0, 0, 100, 1000]),
        ]  # fmt: skip

    @staticmethod
    def _other(random: Random, device: dict[str, Any]) -> list:
        return [random.choice(["reset", "traces", "violation", "wait", "close"])]

    # ---- running

    def run(self, data: bytes) -> Result:
        """All calls; an error of the device is as good as none. The sanitizers end the process."""
        options, *calls = json.loads(data)
        self.waveform.unlink(missing_ok=True)
        cycles = options["vcd_cycles"]
        refused = 0
        device = RtlDevice(
            _CONFIG, memory_bytes=options["memory_bytes"],
            verilog=self.verilog, optimise=False, sanitize=True, vcd=self.waveform,
            vcd_cycles=None if cycles is None else (cycles[0], cycles[1]), max_cycles=30_000,
        )  # fmt: skip
        with device:
            device.memory[:] = np.arange(device.memory.size, dtype=np.uint64).astype(np.uint8)
            for name, *operands in calls:
                try:
                    self._call(device, name, operands)
                except DeviceError:
                    refused += 1
        return Result(Outcome.REFUSED if refused == len(calls) else Outcome.ACCEPTED)

    @staticmethod
    def _call(device: RtlDevice, name: str, operands: list) -> None:
        if name == "start":
            for register, value in operands[0].items():
                if register in ("PROGRAM", "BASE"):
                    device.write_register(address_of(f"{register}_LOW"), value & 0xFFFFFFFF)
                    device.write_register(address_of(f"{register}_HIGH"), value >> 32)
                else:
                    device.write_register(address_of(register), value)
            device.write_register(address_of("CONTROL"), 1)
        elif name == "run":
            device.step(operands[0])
        elif name == "register":
            offset, value, write = operands
            device.write_register(offset, value) if write else device.read_register(offset)
        elif name == "dram":
            latency, reads, writes = operands
            device.set_dram(DramModel(latency=latency, read_bursts=reads, write_bursts=writes))
        elif name == "surround":
            seed, stalls, spread, bursts, errors = operands
            device.surround(
                Surroundings(
                    seed=seed, stall_percent=stalls, spread=spread, bursts=bursts, errors_per_mille=errors
                )
            )  # fmt: skip
        elif name == "wait":
            device.wait(5.0)
        elif name in ("reset", "close", "traces"):
            getattr(device, name)()
        else:
            _ = device.violation


def make(folder: Path) -> Harness:
    """The kind, with its waveforms in `folder`."""
    return Harness(folder)
