"""Networks built from configurations of `transformers`, with random weights under which signals stay alive."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

__all__ = ["NETWORKS", "error", "live"]


def live(module: torch.nn.Module, inputs: dict[str, Any]) -> torch.nn.Module:
    """Give a convolutional network weights and statistics with which each layer's results have a spread near 1: those
    that some configurations begin with let a signal die out within a few layers."""
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.reset_parameters()
            part.momentum = 0.3
        if isinstance(part, torch.nn.Conv2d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(part.weight)
    module.train()
    with torch.no_grad():
        for _ in range(12):
            module(**{name: torch.randn(8, *value.shape[1:]) for name, value in inputs.items()})
    return module.eval()


def _resnet() -> torch.nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    return transformers.ResNetForImageClassification(config)


def _mobilenet() -> torch.nn.Module:
    config = transformers.MobileNetV2Config(image_size=64, num_labels=10)
    return transformers.MobileNetV2ForImageClassification(config)


def _efficientnet() -> torch.nn.Module:
    config = transformers.EfficientNetConfig(
        image_size=64, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=10
    )
    return transformers.EfficientNetForImageClassification(config)


def _vit() -> torch.nn.Module:
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, image_size=64, patch_size=16,
        num_labels=10,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def _bert() -> torch.nn.Module:
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=100
    )
    return transformers.BertModel(config)


def _gpt2() -> torch.nn.Module:
    config = transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=2, vocab_size=100, n_positions=64, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config)


def _image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 3, 64, 64)}


def _words() -> dict[str, Any]:
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 11:] = 0
    return {"input_ids": torch.randint(1, 100, (2, 16)), "attention_mask": mask}


def _ids() -> dict[str, Any]:
    return {"input_ids": torch.randint(1, 100, (1, 16))}


NETWORKS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], dict[str, Any]], bool]] = {
    "resnet": (_resnet, _image, True),
    "mobilenet": (_mobilenet, _image, True),
    "efficientnet": (_efficientnet, _image, True),
    "vit": (_vit, _image, False),
    "bert": (_bert, _words, False),
    "gpt2": (_gpt2, _ids, False),
}
"""How each is made, its inputs, and whether it is made of convolutions."""


def error(got: Any, want: Any) -> float:
    """The largest difference of two results, as a share of the largest number, over all tensors in them."""
    worst = 0.0
    pairs = zip(*(torch.utils._pytree.tree_leaves(one) for one in (got, want)), strict=True)
    for one, other in pairs:
        if isinstance(other, torch.Tensor):
            assert one.shape == other.shape
            span = other.abs().max().clamp_min(1e-30)
            worst = max(worst, float((one.float() - other.float()).abs().max() / span))
        else:
            assert one == other
    return worst
