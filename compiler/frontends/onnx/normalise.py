"""normalise: constants become initializers, identities vanish, so that patterns match."""

from dataclasses import dataclass, replace

import onnx_ir as ir
from npukit.compiler.frontends.onnx.importer import Imported
from npukit.compiler.pass_base import Pass
from onnx_ir.passes.common import LiftConstantsToInitializersPass

__all__ = ["NormalisePass"]


@dataclass(frozen=True)
class NormalisePass(Pass[Imported, Imported]):
    """Lift Constant nodes to initializers and remove Identity nodes.

    An Identity stays where removing it would rename a tensor: at a graph output, and inside of the
    graphs that control flow holds (onnx-ir's own pass removes those as well, and ONNX Runtime then
    refuses a branch that returns an outer tensor).
    """

    name = "normalise"

    def run(self, imported: Imported) -> Imported:
        """The same graph, normalised in place."""
        model = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(imported.model).model
        renamed: dict[str | None, str | None] = {}
        for node in list(model.graph):
            if node.op_type != "Identity" or node.domain not in ("", "ai.onnx"):
                continue
            source, result = node.inputs[0], node.outputs[0]
            if source is None or result.is_graph_output():
                continue
            source.shape = source.shape or result.shape
            source.type = source.type or result.type
            renamed[result.name] = source.name
            ir.convenience.replace_all_uses_with(result, source)
            model.graph.remove(node, safe=True)
        return replace(imported, model=model, renamed={**imported.renamed, **renamed})
