"""Errors that the user's input causes, gathered: everything here is one clear line and exit code 2."""

from npukit.compiler.errors import CompileError
from npukit.driver.executor import ArtifactError, InputError
from npukit.isa.config import ConfigError
from npukit.isa.instructions import InstructionError
from npukit.isa.program import ProgramError
from npukit.sim.judge import JudgeError

__all__ = ["USER_ERRORS", "UsageError"]


class UsageError(ValueError):
    """Options that do not go together, files that cannot be read or written."""


USER_ERRORS = (
    ArtifactError,
    CompileError,
    ConfigError,
    InputError,
    InstructionError,
    JudgeError,
    ProgramError,
    UsageError,
)
