"""No gradients: results that remember that they were asked for, and say so when they are wanted."""

from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

__all__ = ["GradientError", "refuse_gradients", "wants_gradients"]


class GradientError(RuntimeError):
    """A backward pass through what the machine computed."""


class _Refuse(torch.autograd.Function):
    """The identity, whose backward pass is an error."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The value; `anchor` requires gradients, so that the result does as well. It shares the value's memory, and is
        no view of it, because results may be changed in place."""
        return value.new_empty(0).set_(value)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> NoReturn:  # type: ignore[override]
        """Raises GradientError."""
        raise GradientError(
            "the accelerator computes no gradients: train the module itself, which torch.compile and npukit.compile "
            "leave as it is, and run the compiled one within torch.no_grad() or torch.inference_mode()"
        )


def wants_gradients(tensors: Any) -> torch.Tensor | None:
    """A tensor among these of which PyTorch would track gradients now, if there is one."""
    if not torch.is_grad_enabled():
        return None
    return next((one for one in tensors if isinstance(one, torch.Tensor) and one.requires_grad), None)


def refuse_gradients(results: Any, anchor: torch.Tensor, given: Iterable[Any]) -> Any:
    """The same results, the floating ones of which require gradients and raise GradientError when they are wanted.
    Those that are tensors that were `given` stay what they are."""
    same = {id(one) for one in given}

    def refused(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point() and not value.requires_grad
        return _Refuse.apply(anchor, value) if floating and id(value) not in same else value

    return pytree.tree_map(refused, results)
