"""What firmware sources cannot be made of."""

from npukit.errors import UsageError

__all__ = ["FirmwareError"]


class FirmwareError(UsageError):
    """A model that does not run on the accelerator alone; the message names what stays, and the way out."""
