"""A model's own header and source in C: its program and constants, and functions that run it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from npukit.firmware.boundary import Boundary, Port
from npukit.firmware.c_convert import C_TYPES, HELPERS, Function, reader, writer
from npukit.firmware.c_memory import image_bytes, placement
from npukit.firmware.c_text import byte_array, comment, float_literal
from npukit.firmware.errors import FirmwareError
from npukit.firmware.mark import MARK
from npukit.firmware.names import identifiers, model_identifier
from npukit.isa.formats import NumberFormat
from npukit.isa.place import Place

__all__ = ["CModel"]

_MOST_BYTES = 1 << 31
"""Of memory: the runtime counts with 32 bits."""
_MOST_BUS = 64
"""Bytes of the widest bus, of which the accelerator fetches whole beats."""
_CODE_ALIGNED = (
    "#ifdef NPU_PROGRAM_IN_PLACE",
    "#define CODE_ALIGNED NPU_ALIGNED(NPU_ALIGNMENT)",
    "#else",
    "#define CODE_ALIGNED",
    "#endif",
)
"""Instructions that are copied may lie anywhere."""


@dataclass(frozen=True)
class CModel:
    """A model in C.

    Attributes:
        name: what files, functions and macros begin with; see `of`.
        boundary: the program, and the model's inputs and outputs.
        config_label: what users call the configuration.
    """

    name: str
    boundary: Boundary
    config_label: str

    @classmethod
    def of(cls, boundary: Boundary, name: str, config_label: str) -> "CModel":
        """From any name, as that of a model's file.

        Raises:
            FirmwareError: a program that needs more memory than the runtime can count.
        """
        found = cls(model_identifier(name), boundary, config_label)
        if found.place.end >= _MOST_BYTES:
            raise FirmwareError(
                f"the program needs {found.place.end} bytes of memory; firmware has less than {_MOST_BYTES}: split the "
                "model"
            )
        return found

    @property
    def place(self) -> Place:
        """Where everything lies, relative to the model's memory."""
        return Place.of(self.boundary.program, 0)

    @property
    def constants(self) -> bytes:
        """What lies at the beginning of the memory."""
        program = self.boundary.program
        return program.constants.ljust(program.constant_bytes, b"\0")

    @property
    def code(self) -> bytes:
        """The instructions, in whole beats of any bus."""
        code = self.boundary.program.code
        return code.ljust(-(-len(code) // _MOST_BUS) * _MOST_BUS, b"\0")

    @cached_property
    def fields(self) -> dict[str, str]:
        """Names in C of inputs and outputs, by their names in the model with `input ` or `output ` before them."""
        found = {}
        for kind, ports in (("input", self.boundary.inputs), ("output", self.boundary.outputs)):
            names = identifiers(port.name for port in ports)
            found |= {f"{kind} {port}": name for port, name in names.items()}
        return found

    @property
    def _macro(self) -> str:
        return self.name.upper()

    @cached_property
    def _functions(self) -> tuple[list[Function], list[Function]]:
        """Writers of inputs and readers of outputs, as many as there are of these."""
        datapath = self.boundary.program.config.datapath
        writers = [writer(port, f"write_input_{n}", datapath) for n, port in enumerate(self.boundary.inputs)]
        readers = [reader(port, f"read_output_{n}", datapath) for n, port in enumerate(self.boundary.outputs)]
        return writers, readers

    def header(self) -> str:
        """Text of the header."""
        name, macro, place = self.name, self._macro, self.place
        lines = [
            f"/* {MARK}: the model {self.name}, compiled for {comment(self.config_label)}.",
            " *",
            " * npu.h says what the results mean.",
            " */",
            f"#ifndef {macro}_H",
            f"#define {macro}_H",
            "",
            '#include "npu.h"',
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/* Memory that the model needs, at a multiple of NPU_ALIGNMENT: constants, tensors, instructions. */",
            "#ifdef NPU_PROGRAM_IN_PLACE",
            f"#define {macro}_MEMORY_BYTES {place.limit}u",
            "#else",
            f"#define {macro}_MEMORY_BYTES {place.end}u",
            "#endif",
            f"#define {macro}_CODE_OFFSET {place.code_address}u",
            "",
            *self._struct("input", self.boundary.inputs),
            "",
            *self._struct("output", self.boundary.outputs),
            "",
            "/* Bind the model to an accelerator and to memory, and copy constants and instructions there.",
            " * NPU_BAD_CONFIGURATION, NPU_BAD_ADDRESS. */",
            f"enum npu_result {name}_init(struct npu_model *model, struct npu *npu, void *memory);",
            "",
            "/* The same where constants and instructions lie in that memory already: nothing is copied. */",
            f"enum npu_result {name}_attach(struct npu_model *model, struct npu *npu, void *memory);",
            "",
            "/* Write the inputs, start the accelerator, and return at once. NPU_STILL_BUSY, NPU_TIMED_OUT. */",
            f"enum npu_result {name}_start(const struct npu_model *model, const struct {name}_inputs *inputs);",
            "",
            "/* Read the outputs, once npu_busy says that the program has ended. NPU_STILL_BUSY, NPU_NOT_STARTED,",
            " * NPU_STOPPED: the outputs are then as they were. */",
            f"enum npu_result {name}_finish(const struct npu_model *model, const struct {name}_outputs *outputs);",
            "",
            "/* Start, wait and finish. NPU_STILL_BUSY, NPU_TIMED_OUT, NPU_STOPPED. */",
            f"enum npu_result {name}_run(const struct npu_model *model, const struct {name}_inputs *inputs,",
            f"{' ' * (len(name) + 21)}const struct {name}_outputs *outputs);",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
        return "\n".join(lines)

    def _struct(self, kind: str, ports: tuple[Port, ...]) -> Iterator[str]:
        seen = list({port.name: port for port in ports}.values())
        for port in seen:
            field = f"{self._macro}_{kind.upper()}_{self.fields[f'{kind} {port.name}'].upper()}"
            yield f"#define {field}_ELEMENTS {prod(port.shape)}u"
            forms = (one for one in ports if one.name == port.name)
            yield from placement(field, kind, forms, self._activation)
        qualifier = "const " if kind == "input" else ""
        yield f"struct {self.name}_{kind}s {{"
        for port in seen:
            yield f"    /* {comment(port.name)}: {_described(port)} */"
            yield f"    {qualifier}{C_TYPES[port.dtype]} *{self.fields[f'{kind} {port.name}']};"
        yield "};"

    def source(self, brief: bool = False) -> str:
        """Text of the source; `brief`: arrays have their sizes, and not what is in them."""
        name, program, place = self.name, self.boundary.program, self.place
        writers, readers = self._functions
        used = {helper for function in (*writers, *readers) for helper in function.helpers}
        lines = [
            f"/* {MARK}: the model {name}. */",
            f'#include "{name}.h"',
            "",
            "static const struct npu_program program = {",
            f"    {program.config.hash & 0xFFFFFFFF:#010x}u, /* configuration: {comment(self.config_label)} */",
            f"    {program.config.hash >> 32:#010x}u,",
            f"    {len(program.instructions)}u,",
            f"    {place.limit}u,",
            "};",
            "",
        ]
        if self.constants:
            lines += [*byte_array("constants", self.constants, "static", brief), ""]
        lines += [*_CODE_ALIGNED, *byte_array("code", self.code, "static CODE_ALIGNED", brief), ""]
        for key, text in HELPERS.items():
            lines += [text, ""] if key in used else []
        for function in (*writers, *readers):
            lines += [function.text, ""]
        copies = [f"    npu_copy(model->memory, constants, {len(self.constants)}u);"] if self.constants else []
        lines += [
            f"enum npu_result {name}_attach(struct npu_model *model, struct npu *npu, void *memory)",
            "{",
            "#ifdef NPU_PROGRAM_IN_PLACE",
            "    return npu_attach(model, npu, &program, memory, code);",
            "#else",
            f"    return npu_attach(model, npu, &program, memory, (uint8_t *)memory + {self._macro}_CODE_OFFSET);",
            "#endif",
            "}",
            "",
            f"enum npu_result {name}_init(struct npu_model *model, struct npu *npu, void *memory)",
            "{",
            f"    const enum npu_result result = {name}_attach(model, npu, memory);",
            "    if (result != NPU_OK) return result;",
            *copies,
            "#ifndef NPU_PROGRAM_IN_PLACE",
            f"    npu_copy(model->memory + {self._macro}_CODE_OFFSET, code, {len(self.code)}u);",
            "#endif",
            "    return NPU_OK;",
            "}",
            "",
            f"enum npu_result {name}_start(const struct npu_model *model, const struct {name}_inputs *inputs)",
            "{",
            "    if (npu_busy(model->npu)) return NPU_STILL_BUSY;",
        ]
        for function, port in zip(writers, self.boundary.inputs, strict=True):
            start = f"model->memory + {port.tensor.address}"
            lines.append(f"    {function.name}({start}, inputs->{self.fields[f'input {port.name}']});")
            lines.append(f"    NPU_CACHE_CLEAN({start}, {image_bytes(port, self._activation)}u);")
        lines += [
            "    return npu_start(model);",
            "}",
            "",
            f"enum npu_result {name}_finish(const struct npu_model *model, const struct {name}_outputs *outputs)",
            "{",
            "    const enum npu_result result = npu_finish(model->npu);",
            "    if (result != NPU_OK) return result;",
        ]
        for function, port in zip(readers, self.boundary.outputs, strict=True):
            start = f"model->memory + {port.tensor.address}"
            lines.append(f"    NPU_CACHE_INVALIDATE({start}, {image_bytes(port, self._activation)}u);")
            lines.append(f"    {function.name}(outputs->{self.fields[f'output {port.name}']}, {start});")
        lines += [
            "    return NPU_OK;",
            "}",
            "",
            f"enum npu_result {name}_run(const struct npu_model *model, const struct {name}_inputs *inputs,",
            f"{' ' * (len(name) + 21)}const struct {name}_outputs *outputs)",
            "{",
            f"    enum npu_result result = {name}_start(model, inputs);",
            "    if (result == NPU_OK) result = npu_wait(model->npu);",
            f"    return result == NPU_OK ? {name}_finish(model, outputs) : result;",
            "}",
            "",
        ]
        return "\n".join(lines)

    @property
    def _activation(self) -> NumberFormat:
        return self.boundary.program.config.activation


def _described(port: Port) -> str:
    shape = "".join(f"[{size}]" for size in port.shape)
    text = f"{port.dtype}{shape}, in row-major order"
    if port.quantisation is None:
        return text
    kept = port.quantisation
    return f"{text}; {port.tensor.dtype} with scale {float_literal(kept.scale)} and zero point {kept.zero_point} inside"
