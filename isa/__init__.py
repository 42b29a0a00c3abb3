"""Configuration, instruction formats, registers, program container: stated once; imports nothing else."""

from npukit.isa.config import PRESETS, ConfigError, NpuConfig, load_config, preset
from npukit.isa.instructions import (
    End,
    Engine,
    Instruction,
    InstructionError,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
    decode,
    encode,
)
from npukit.isa.program import Program, ProgramError

__all__ = [
    "PRESETS",
    "ConfigError",
    "End",
    "Engine",
    "Instruction",
    "InstructionError",
    "Load",
    "Matrix",
    "Memory",
    "NpuConfig",
    "Operation",
    "Program",
    "ProgramError",
    "Store",
    "Vector",
    "decode",
    "encode",
    "load_config",
    "preset",
]
