"""Assembly text: real programs with values and lines changed, lines of any kind, and bytes. What `npukit asm` takes
says what the text says, and runs."""

import re
from pathlib import Path
from random import Random

from npukit.driver.executor import programs_of
from npukit.isa.assembly import assemble, disassemble
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES, OPCODES, Instruction, fields_of
from npukit.isa.program import Program

from npukit.npufile import read_model, write_bytes
from npukit.verify.generator import random_program

from .case import Outcome, Result, WrongResult, answer_of, run_command
from .mutate import change_bytes, change_number, odd_number
from .samples import programs

__all__ = ["Assembly", "make"]

_KINDS = {kind.mnemonic: kind for kind in OPCODES.values()}
_WORDS = (
    "", "-", "x", "0x", "0x10", "0b11", "0o17", "017", "1_0", "1__0", "+3", "-0", "3.0", "1e3", "\u0663", "NONE", "ACT",
    "act", "LOAD", "LOAD+LOAD", "LOAD+", "+", "REQUANTIZE", "FILL", "9" * 5000, "=", "a=b", "true", "\u00e9", "'1'",
)  # fmt: skip
_LINES = (
    "", "#", "# note", "END", "END END", "LOAD", "MATRIX", "VECTOR", "STORE", "load", "NOP", "LOAD=1", "LOAD =", "END#",
    "END drain=1", "END wait=LOAD", "\t END\t", "LOAD\x0bwords=2", "END\x1cEND", "VECTOR operation=FILL", "\ufeffEND",
)  # fmt: skip
_BASES = 12


class Assembly:
    """See the module. The first line of an input is a comment with the configuration and what `npukit asm` is given."""

    seconds = 60.0
    megabytes = 1024
    suffix = ".asm"

    def __init__(self, folder: Path) -> None:
        self.text, self.program = folder / "text.asm", folder / "program.npu"
        self.folder = folder
        self.bases: list[tuple[str, list[str]]] = []
        for name, program in programs().items():
            made = [random_program(PRESETS[name], f"assembly/{number}", 2 + number % 5) for number in range(_BASES)]
            like = [
                program,
                *(Program(one.config, one.instructions, one.memory.tobytes(), one.memory.size) for one in made),
            ]
            for number, one in enumerate(like):
                write_bytes(folder / f"{name}-{number}.npu", one.to_bytes())
                self.bases.append((f"# {name} like {number}", disassemble(one.instructions).splitlines()))

    def input(self, random: Random) -> bytes:
        """A text."""
        head, lines = random.choice(self.bases)
        lines = list(lines)
        for _ in range(random.choice([0, 1, 1, 1, 2, 4])):
            self._change(random, lines)
        if random.random() < 0.1:
            size = random.choice([0, -1, 1 << 20, 1 << 40, 10**20, 10**40, random.randrange(1 << 17)])
            head = f"{' '.join(head.split()[:2])} size {size}"
        body = random.choice(["\n", "\n", "\r\n"]).join(lines).encode(errors="surrogatepass")
        if random.random() < 0.15:
            body = change_bytes(random, body, 3)
        return f"{head}\n".encode() + body

    def _change(self, random: Random, lines: list[str]) -> None:
        at, other = random.randrange(len(lines)), random.randrange(len(lines))
        match random.randrange(12):
            case 0:
                del lines[at]
                lines.append("END")
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = random.choice(_LINES)
            case 4:
                lines.insert(at, self._any(random))
            case 5:
                lines[at] += f" {random.choice(_WORDS)}"
            case _:
                lines[at] = self._value(random, lines[at])

    @staticmethod
    def _value(random: Random, line: str) -> str:
        """The line with one value changed, or one more field."""
        mnemonic, *parts = line.split() or ["END"]
        specs = fields_of(_KINDS[mnemonic]) if mnemonic in _KINDS else ()
        if specs and random.random() < 0.3:
            spec = random.choice(specs)
            parts.append(f"{spec.name}={random.choice([spec.low, spec.high, 1, odd_number(random)])}")
        elif parts:
            at = random.randrange(len(parts))
            name, _, value = parts[at].partition("=")
            if re.fullmatch(r"-?\d{1,30}", value, re.ASCII) and random.random() < 0.9:
                parts[at] = f"{name}={change_number(random, int(value))}"
            elif name in ("wait", "signal") and random.random() < 0.8:
                chosen = random.sample([engine.name for engine in ENGINES], random.randint(1, 4))
                parts[at] = f"{name}={'+'.join(chosen)}"
            else:
                parts[at] = f"{name}={random.choice(_WORDS)}"
        return " ".join([mnemonic, *parts])

    @staticmethod
    def _any(random: Random) -> str:
        """An instruction with some fields at their ends, or anywhere between."""
        kind = random.choice(list(_KINDS.values()))
        specs = random.sample(fields_of(kind), random.randint(0, len(fields_of(kind))))
        parts = []
        for spec in specs:
            if spec.kind is not None:
                value = random.choice([member.name for member in spec.kind])
            elif spec.name in ("wait", "signal"):
                value = "+".join(random.sample([engine.name for engine in ENGINES], random.randint(1, 2)))
            else:
                value = str(random.choice([spec.low, spec.high, spec.high, random.randint(spec.low, spec.high)]))
            parts.append(f"{spec.name}={value}")
        return " ".join([kind.mnemonic, *parts])

    # ---- running

    def run(self, data: bytes) -> Result:
        """`npukit asm`; what it made says what the text says, is the same when it goes through text again, and runs."""
        head, _, body = data.partition(b"\n")
        _, config, option, value = head.decode().split()
        self.text.write_bytes(body)
        more = ["--like", self.folder / f"{config}-{value}.npu"]
        if option == "size":
            more = ["--config", config, f"--dram-bytes={value}"]
        result = answer_of(run_command("asm", self.text, "-o", self.program, *more, "--quiet"))
        if result.outcome is not Outcome.ACCEPTED:
            return result
        made = next(iter(programs_of(read_model(self.program)).values()))
        _check_values(body.decode(), made)
        if tuple(assemble(disassemble(made.instructions))) != made.instructions:
            raise WrongResult("the program is another one when it goes through text again")
        ran = answer_of(run_command("run", self.program, "--quiet"))
        if ran.outcome is Outcome.REFUSED:
            raise WrongResult(f"asm takes it, and run does not: {ran.message}")
        return ran


def _check_values(text: str, made: Program) -> None:
    """The program's fields against the text's, read by what the format says and not by the assembler."""
    lines = [code for line in text.splitlines() if (code := line.partition("#")[0].strip())]
    if len(lines) != len(made.instructions):
        raise WrongResult(f"{len(lines)} lines with code, {len(made.instructions)} instructions")
    for line, instruction in zip(lines, made.instructions, strict=True):
        mnemonic, *parts = line.split()
        if mnemonic != instruction.mnemonic:
            raise WrongResult(f"{line} became {instruction}")
        given = dict(part.split("=") for part in parts)
        for spec in fields_of(type(instruction)):
            if getattr(instruction, spec.name) != _meant(instruction, spec.name, given.get(spec.name)):
                raise WrongResult(f"{line} became {instruction}: {spec.name}")


def _meant(instruction: Instruction, name: str, text: str | None) -> int:
    spec = next(one for one in fields_of(type(instruction)) if one.name == name)
    if text is None:
        return spec.bias
    if name in ("wait", "signal"):
        return sum({1 << [engine.name for engine in ENGINES].index(part) for part in text.split("+")})
    if spec.kind is not None:
        return {member.name: int(member) for member in spec.kind}[text]
    return int(text, 0)


def make(folder: Path) -> Assembly:
    """The kind, with its files in `folder`."""
    return Assembly(folder)
