"""normalise: constants become initializers, identities vanish, so that patterns match."""

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import IdentityEliminationPass, LiftConstantsToInitializersPass

__all__ = ["NormalisePass"]


@dataclass(frozen=True)
class NormalisePass:
    """Lift Constant nodes to initializers and remove Identity nodes, with onnx-ir's own passes."""

    name = "normalise"

    def run(self, model: ir.Model) -> ir.Model:
        """The same graph, normalised in place."""
        for step in (LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0), IdentityEliminationPass()):
            model = step(model).model
        return model
