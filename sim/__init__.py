"""The functional and the timing simulator, and the judge of programs."""

__all__: list[str] = []
