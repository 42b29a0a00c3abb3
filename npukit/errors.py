"""Errors that end a command with one clear line, gathered."""

from npukit.compiler.errors import CompileError
from npukit.driver.device import DeviceError
from npukit.driver.executor import ArtifactError, InputError
from npukit.driver.host import HostError
from npukit.files import OutputError
from npukit.hw.toolchain import ToolError
from npukit.isa.config import ConfigError
from npukit.isa.instructions import InstructionError
from npukit.isa.program import ProgramError
from npukit.sim.validator import ValidationError

__all__ = ["TOOL_ERRORS", "USER_ERRORS", "UsageError"]


class UsageError(ValueError):
    """Options that do not go together, files that cannot be read or written."""


USER_ERRORS = (
    ArtifactError,
    CompileError,
    ConfigError,
    InputError,
    InstructionError,
    ValidationError,
    ProgramError,
    UsageError,
)
"""Errors that the user's input causes: exit code 2."""

TOOL_ERRORS = (DeviceError, HostError, OutputError, ToolError)
"""A device, a tool, or ONNX Runtime on the host, that stops, or a disk that is full: exit code 3."""
