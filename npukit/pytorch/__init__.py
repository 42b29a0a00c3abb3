"""PyTorch: modules compiled for the machine, and the backend of `torch.compile`. Needs the extra `npukit[torch]`."""
