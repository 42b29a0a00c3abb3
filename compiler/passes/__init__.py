"""The compiler's passes, one to a file."""

__all__: list[str] = []
