"""Real architectures under `torch.compile(backend="npukit")`."""

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
pytest.importorskip("transformers", reason="transformers is not installed: make torch")

import npukit  # noqa: E402

from .networks import NETWORKS, error, live  # noqa: E402

SEED = random.randrange(10**6)
_CONVOLUTIONS = 0.95
"""Share of the MACs that must run on the machine."""
_PRODUCTS = ("aten.linear", "aten.addmm", "aten.matmul", "aten.bmm", "aten.mm", "aten.scaled_dot_product_attention")


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    print(f"seed {SEED}")
    torch.manual_seed(SEED)
    make, inputs, convolutional = NETWORKS[name]
    module, feeds = make().eval(), inputs()
    if convolutional:
        live(module, feeds)
    compiled = torch.compile(module, backend="npukit")
    with torch.no_grad():
        want, got = module(**feeds), compiled(**feeds)
    report = npukit.report(compiled)
    print(report)
    offload = report.offload
    assert offload.macs >= _CONVOLUTIONS * offload.macs_total > 0
    if not convolutional:
        assert offload.macs == offload.macs_total
        assert not [one for one in offload.reasons if one.op.startswith(_PRODUCTS)]
    # what PyTorch itself loses in bfloat16, on the host, is what the number format costs
    rounded = {key: value.bfloat16() if value.is_floating_point() else value for key, value in feeds.items()}
    with torch.no_grad():
        lost = error(module.bfloat16()(**rounded), want)
    found = error(got, want)
    print(f"error {found:.4f}, PyTorch's in bfloat16 {lost:.4f}")
    assert found <= max(2 * lost, 0.01)


def test_torchvision():
    """Its networks, where a build beside this PyTorch is installed."""
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as problem:  # of a build for another PyTorch: an operator does not exist
        pytest.skip(f"torchvision is not usable: {problem}")
    torch.manual_seed(SEED)
    module, image = models.resnet18(num_classes=10), torch.randn(1, 3, 64, 64)
    live(module, {"x": image})
    compiled = torch.compile(module, backend="npukit")
    with torch.no_grad():
        assert error(compiled(image), module(image)) < 0.1
    assert npukit.report(compiled).offload.macs == npukit.report(compiled).offload.macs_total


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU: the part in PyTorch was not tried on one")
def test_the_rest_on_a_gpu():
    """What stays runs where the module is, and results lie there."""
    torch.manual_seed(SEED)
    make, inputs, _ = NETWORKS["bert"]
    module = make().eval().cuda()
    feeds = {name: value.cuda() for name, value in inputs().items()}
    compiled = torch.compile(module, backend="npukit")
    with torch.no_grad():
        want, got = module(**feeds), compiled(**feeds)
    assert all(one.device.type == "cuda" for one in torch.utils._pytree.tree_leaves(got))
    assert error(got, want) < 0.05
