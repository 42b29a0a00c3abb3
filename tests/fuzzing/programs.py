"""Program files with a right digest: instructions, constants, and the head that says what they are."""

from pathlib import Path
from random import Random

from fuzz_programs import mutate_code, mutate_header

from .case import GOOD, Outcome, Result, WrongResult, answer_of, run_command
from .mutate import change_bytes
from .samples import programs

__all__ = ["Programs", "make"]


class Programs:
    """See the module."""

    seconds = 120.0
    megabytes = 2048
    suffix = ".npu"

    def __init__(self, folder: Path) -> None:
        self.path, self.text = folder / "program.npu", folder / "program.asm"
        self.again = folder / "again.npu"
        self.files = [program.to_bytes() for program in programs().values()]

    def input(self, random: Random) -> bytes:
        """A program of the compiler's with its instructions or its head changed; of a few, bytes."""
        data = random.choice(self.files)
        kind = random.random()
        if kind < 0.95:
            return (mutate_code if kind < 0.5 else mutate_header)(random, data)
        return change_bytes(random, data, 3)

    def run(self, data: bytes) -> Result:
        """`npukit run`; what `npukit disasm` shows of what it takes is the same program to `npukit asm`."""
        self.path.write_bytes(data)
        ran = answer_of(run_command("run", self.path, "--quiet"))
        shown = answer_of(run_command("disasm", self.path, "-o", self.text, "--quiet"))
        if ran.outcome is not Outcome.ACCEPTED:
            return ran if ran.outcome not in GOOD or shown.outcome in GOOD else shown
        assembled = answer_of(run_command("asm", self.text, "--like", self.path, "-o", self.again, "--quiet"))
        if shown.outcome is not Outcome.ACCEPTED or assembled.outcome is not Outcome.ACCEPTED:
            raise WrongResult(f"it runs, and disasm and asm say: {shown.message} {assembled.message}")
        return ran


def make(folder: Path) -> Programs:
    """The kind, with its files in `folder`."""
    return Programs(folder)
