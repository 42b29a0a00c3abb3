"""The device protocol, the devices, and the running of compiled models."""

__all__: list[str] = []
