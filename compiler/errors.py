"""What the compiler says when it cannot go on."""

__all__ = ["CompileError", "ModelError"]


class CompileError(ValueError):
    """A model that cannot be compiled; the message names node, constraint, value and way out."""


class ModelError(CompileError):
    """A file that is not a usable ONNX model."""
