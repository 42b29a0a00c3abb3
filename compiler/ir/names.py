"""Names that nothing else in a graph has."""

from collections.abc import Collection

__all__ = ["free_name"]


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or one like it that is not taken."""
    while name in taken:
        name += "_"
    return name
