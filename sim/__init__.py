"""The functional and the timing simulator, and the validator of programs."""

__all__: list[str] = []
