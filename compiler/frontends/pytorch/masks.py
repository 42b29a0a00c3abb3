"""Masks of attention as the machine takes them."""

import torch

__all__ = ["LOWEST", "HiddenRowError", "attention_mask"]

LOWEST = float(torch.finfo(torch.bfloat16).min)
"""What is added to a score that counts for nothing. It is finite, so that no difference of two is undefined."""


class HiddenRowError(Exception):
    """A row of an attention sees nothing at all. PyTorch's result is 0 then, and the machine has no such softmax."""


def attention_mask(mask: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """A mask as numbers that are added to the scores.

    Args:
        mask: bool, true where something may be seen, or numbers to be added.
        kind: dtype of the result.

    Raises:
        HiddenRowError: a row sees nothing.
    """
    seen = mask if mask.dtype == torch.bool else mask != float("-inf")
    if seen.device.type != "meta" and not bool(seen.any(-1).all()):
        raise HiddenRowError
    if mask.dtype == torch.bool:
        return torch.where(mask, 0.0, LOWEST).to(kind)
    return mask.clamp_min(LOWEST).to(kind)
