"""judge: what the judge of programs says of one that is to run."""

from dataclasses import dataclass

from npukit.compiler.pass_base import Pass
from npukit.isa.program import Program
from npukit.sim.judge import judge_program, refuse

__all__ = ["JudgePass"]


@dataclass(frozen=True)
class JudgePass(Pass[Program, Program]):
    """The program as it is, if the judge has nothing to say."""

    name = "judge"

    def run(self, program: Program) -> Program:
        """The same program.

        Raises:
            JudgeError: with everything that the judge found.
        """
        refuse(judge_program(program))
        return program
