"""Boards: the hardware wrapped for FPGAs."""

__all__: list[str] = []
