"""From ONNX models to programs."""

__all__: list[str] = []
