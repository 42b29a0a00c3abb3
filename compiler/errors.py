"""What the compiler says when it cannot go on."""

__all__ = ["CompileError", "ModelError", "Refused"]


class CompileError(ValueError):
    """A model that cannot be compiled; the message names node, constraint, value and way out."""


class ModelError(CompileError):
    """A file that is not a usable ONNX model."""


class Refused(Exception):
    """A node that stays in ONNX Runtime; the message is the constraint and the value that broke it."""
