"""How one tells files that the kit has made from those that it must not replace."""

__all__ = ["MARK"]

MARK = "Made by npukit"
"""Stands in the first line of every file."""
