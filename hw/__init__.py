"""The hardware, in Amaranth."""

__all__: list[str] = []
