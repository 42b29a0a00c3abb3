"""The text beside emitted C: how it becomes part of a system, and an example that does it."""

from npukit.firmware.c_convert import C_TYPES
from npukit.firmware.c_model import CModel
from npukit.firmware.mark import MARK
from npukit.firmware.sizes import Sizes

__all__ = ["arguments", "example", "guide", "sizes_text"]


def arguments(model: CModel, kind: str) -> list[tuple[str, str, str]]:
    """Type, name and number of elements of the model's inputs or outputs."""
    ports = model.boundary.inputs if kind == "input" else model.boundary.outputs
    found = {}
    for port in ports:
        name = model.fields[f"{kind} {port.name}"]
        found[name] = (C_TYPES[port.dtype], name, f"{model.name.upper()}_{kind.upper()}_{name.upper()}_ELEMENTS")
    return list(found.values())


def example(model: CModel) -> str:
    """`main` of firmware that runs the model once."""
    name = model.name
    inputs, outputs = arguments(model, "input"), arguments(model, "output")
    lines = [
        f"/* {MARK}: runs {name} once, on inputs of zeros.",
        " *",
        " * Copy what you need to a file of another name: this one is written anew with the others. */",
        f'#include "{name}.h"',
        "",
        "/* where the processor finds the accelerator's registers */",
        "#ifndef NPU_REGISTERS_ADDRESS",
        "#define NPU_REGISTERS_ADDRESS 0x40000000u",
        "#endif",
        "",
        "/* in memory that the accelerator's bus reaches */",
        f"static NPU_ALIGNED(NPU_ALIGNMENT) uint8_t memory[{name.upper()}_MEMORY_BYTES];",
        "",
        *(f"static {kind} input_{field}[{size}];" for kind, field, size in inputs),
        *(f"static {kind} output_{field}[{size}];" for kind, field, size in outputs),
        "",
        "int main(void)",
        "{",
        f"    const struct {name}_inputs inputs = {{{', '.join(f'input_{field}' for _, field, _ in inputs)}}};",
        f"    const struct {name}_outputs outputs = {{{', '.join(f'output_{field}' for _, field, _ in outputs)}}};",
        "    struct npu npu;",
        "    struct npu_model model;",
        "    enum npu_result result = npu_init(&npu, (volatile void *)(uintptr_t)NPU_REGISTERS_ADDRESS);",
        f"    if (result == NPU_OK) result = {name}_init(&model, &npu, memory);",
        f"    if (result == NPU_OK) result = {name}_run(&model, &inputs, &outputs);",
        "    return (int)result;",
        "}",
        "",
    ]
    return "\n".join(lines)


def sizes_text(model: CModel, sizes: Sizes) -> list[str]:
    """What the model takes, a line each."""
    place = model.place
    lines = [
        f"memory for the accelerator: {place.end} bytes at a multiple of 4096, {place.limit} with NPU_PROGRAM_IN_PLACE",
        f"constants: {len(model.constants)} bytes; instructions: {len(model.code)} bytes",
    ]
    for source, one in sizes.objects.items():
        lines.append(f"{source}: text {one.text}, data {one.data}, bss {one.bss} bytes")
    if sizes.compiler is not None:
        lines.append(f"measured with {sizes.compiler}; text includes constant arrays")
    else:
        lines.append(f"text and data are not measured, those of the arrays are exact: {sizes.reason}")
    return lines


def guide(model: CModel, sizes: Sizes) -> str:
    """README.md of the folder."""
    name = model.name
    measured = "\n".join(f"- {line}" for line in sizes_text(model, sizes))
    return f"""<!-- {MARK} -->
# {name}

C sources that run one model on the accelerator with the configuration {model.config_label}
(hash {model.boundary.program.config.hash:016x}). Written by `npukit compile --emit c`, which replaces them.

| file | what |
|---|---|
| `{name}.h`, `{name}.c` | the model: constants, instructions, conversion of inputs and outputs |
| `npu.h`, `npu.c` | the runtime |
| `npu_port.h` | what the runtime takes from the system, with defaults |
| `npu_registers.h` | offsets and bits of the registers |
| `example.c` | a `main` that runs the model once |

Compile `npu.c` and `{name}.c` as C99 into the firmware. They call no library, but a compiler may make calls of
`memset` and `memcpy` out of their loops: compile with `-ffreestanding`, or have these two.

## Sizes

{measured}

## What the system has to say

Defaults in `npu_port.h` suit a processor without a data cache that sees registers and memory at the addresses at which
the accelerator's bus sees memory, and that polls. Otherwise define macros in a header of your own, and name it to the
compiler: `-DNPU_PORT_HEADER='"my_port.h"'`.

| macro | when |
|---|---|
| `NPU_READ`, `NPU_WRITE` | registers are not in the processor's address space |
| `NPU_BUS_ADDRESS` | the accelerator's bus has other addresses than the processor |
| `NPU_CACHE_CLEAN`, `NPU_CACHE_INVALIDATE` | there is a data cache, and the accelerator does not look into it |
| `NPU_BARRIER`, `NPU_ALIGNED` | the compiler is not GCC or Clang |
| `NPU_WAIT_FOR_INTERRUPT` | the accelerator's `irq` is connected; the handler calls `npu_handle_interrupt` |
| `NPU_POLL`, `NPU_POLL_LIMIT` | something is to be done while polling, or another limit is wanted |
| `NPU_PROGRAM_IN_PLACE` | the accelerator can read instructions from flash |

The memory belongs to the accelerator from `{name}_start` to `{name}_finish`; the processor writes inputs and reads
outputs there by these functions alone. Who wants to write inputs there by DMA, or in place, finds offsets and layouts
in `{name}.h`, and starts with `npu_start`. npukit's documentation has more: docs/firmware.md.
"""
