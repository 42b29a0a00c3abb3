"""What the tests of PyTorch share."""

import logging

import pytest


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Each test begins with nothing that `torch.compile` has made before, and pytest does not keep its traces, which
    are longer than anything else."""
    logging.getLogger("torch.__trace").propagate = False
    yield
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
    torch._dynamo.reset()
