"""validate: what the validator of programs says of one that is to run."""

from dataclasses import dataclass

from npukit.compiler.pass_base import Pass
from npukit.isa.program import Program
from npukit.sim.validator import refuse, validate_program

__all__ = ["ValidatePass"]


@dataclass(frozen=True)
class ValidatePass(Pass[Program, Program]):
    """The program as it is, if the validator has nothing to say."""

    name = "validate"

    def run(self, program: Program) -> Program:
        """The same program.

        Raises:
            ValidationError: with everything that the validator found.
        """
        refuse(validate_program(program))
        return program
