"""The program of a package's testbench: digits, as the driver runs it, with what the simulator says comes of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npukit import zoo
from npukit.compiled import compile
from npukit.driver.executor import Executor
from npukit.driver.sim_device import SimDevice
from npukit.errors import UsageError
from npukit.isa.config import NpuConfig
from npukit.isa.registers import REGISTERS, address_of
from npukit.sim.dram import DramModel

__all__ = ["IMAGE", "MODEL", "Example", "Run", "make_example"]

MODEL = "digits"
"""Of the zoo."""
IMAGE = np.array(
    [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
        [0, 4, 12, 0, 0, 8, 8, 0],
        [0, 5, 8, 0, 0, 9, 8, 0],
        [0, 4, 11, 0, 1, 12, 7, 0],
        [0, 2, 14, 5, 10, 12, 0, 0],
        [0, 0, 6, 13, 10, 0, 0, 0],
    ],
    np.float32,
)
"""A handwritten 0, the first of scikit-learn's digits, with values up to 16."""
_NAMES = {register.offset: register.name for register in REGISTERS}


@dataclass
class Run:
    """One program: what the driver writes before it, and what it reads after it.

    Attributes:
        memory: (address, bytes) to write first.
        writes: (register, value), the last of which starts the program.
        outputs: (address, bytes) that memory holds afterwards.
        reads: (register, value) afterwards: ERROR, and the counters.
    """

    memory: list[tuple[int, bytes]] = field(default_factory=list)
    writes: list[tuple[str, int]] = field(default_factory=list)
    outputs: list[tuple[int, bytes]] = field(default_factory=list)
    reads: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Example:
    """The programs that the network takes, in order, in front of a memory; and the network's outputs by name."""

    dram: DramModel
    runs: list[Run]
    results: dict[str, NDArray]

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory up to the last that is written or read, as a power of two."""
        spans = [span for run in self.runs for span in (*run.memory, *run.outputs)]
        # FETCH reads whole beats, so leave some behind the last instruction
        return 1 << (max(address + len(data) for address, data in spans) + 64 - 1).bit_length()

    def files(self) -> dict[str, bytes]:
        """`run.json`, and the files of bytes that it names."""
        files: dict[str, bytes] = {}

        def named(what: str, index: int, spans: list[tuple[int, bytes]]) -> Iterator[dict[str, Any]]:
            for number, (address, data) in enumerate(spans):
                name = f"{what}_{index}_{number}.bin"
                files[name] = data
                yield {"address": address, "file": name}

        def registers(values: list[tuple[str, int]]) -> list[dict[str, Any]]:
            return [{"register": name, "offset": address_of(name), "value": value} for name, value in values]

        runs = [
            {
                "memory": list(named("memory", index, run.memory)),
                "writes": registers(run.writes),
                "outputs": list(named("output", index, run.outputs)),
                "reads": registers(run.reads),
            }
            for index, run in enumerate(self.runs)
        ]
        description = {
            "memory_bytes": self.memory_bytes,
            "latency": self.dram.latency,
            "read_bursts": self.dram.read_bursts,
            "write_bursts": self.dram.write_bursts,
            "runs": runs,
            "registers": {
                one.name: {
                    "offset": one.offset,
                    "access": one.access,
                    "bits": {} if one.bits is None else {bit.name: bit.value for bit in one.bits},
                }
                for one in REGISTERS
            },
        }
        return {"run.json": (json.dumps(description, indent=1) + "\n").encode(), **files}


def make_example(config: NpuConfig) -> Example:
    """Compile digits for a configuration, and run it on the simulator in front of the reference DRAM.

    Raises:
        UsageError: nothing of it runs on that configuration.
    """
    compiled = compile(zoo.load(MODEL, "fp32" if config.activation.floating else "int8"), config)
    if not compiled.programs:
        raise UsageError(
            f"no part of {MODEL} runs on this configuration, so a package would have no program for its testbench: "
            f"see npukit check {MODEL}"
        )
    dram = DramModel()
    device = _Recorder(config, dram)
    results = Executor(compiled.artifact, device).run({"image": (IMAGE / 16).reshape(1, 1, *IMAGE.shape)}).outputs
    return Example(dram, device.runs, results)


class _Recorder(SimDevice):
    """The simulated device, which notes what is done with it, from each reset on."""

    def __init__(self, config: NpuConfig, dram: DramModel) -> None:
        self.runs: list[Run] = []
        super().__init__(config, dram)

    def reset(self) -> None:
        super().reset()
        if not self.runs or self.runs[-1].writes:
            self.runs.append(Run())
        self.runs[-1].memory.clear()  # the driver writes everything again

    def write_memory(self, address: int, data: NDArray[np.uint8]) -> None:
        super().write_memory(address, data)
        if data.size:
            self.runs[-1].memory.append((address, data.tobytes()))

    def read_memory(self, address: int, size: int) -> NDArray[np.uint8]:
        found = super().read_memory(address, size)
        self.runs[-1].outputs.append((address, found.tobytes()))
        return found

    def write_register(self, offset: int, value: int) -> None:
        super().write_register(offset, value)
        self.runs[-1].writes.append((_NAMES[offset], value))

    def read_register(self, offset: int) -> int:
        value = super().read_register(offset)
        self.runs[-1].reads.append((_NAMES[offset], value))
        return value
