"""A bf16 run against the ordered sums that it must equal, and against fp32 ONNX Runtime, which it comes near."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from npukit.compare import Comparison
from npukit.compare_tflite import TfliteOracle
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.tensor import Tensor
from npukit.divergence import Divergence
from npukit.driver.host import HostError, cpu_features, open_session, run_session
from npukit.driver.tflite_host import is_tflite
from npukit.errors import UsageError
from npukit.ordered_sums import layer_output
from npukit.session import Session
from npukit.sim.bfloat16 import narrow, widen

__all__ = ["FloatComparison", "compare_floats"]


@dataclass
class FloatComparison(Comparison):
    """Besides the mismatches, `errors`: each tensor's largest difference from fp32, as a share of its range there."""

    errors: dict[str, float] = field(default_factory=dict)
    exact: str = "ONNX Runtime"
    """What computed in fp32."""

    @property
    def worst(self) -> tuple[str, float]:
        """The tensor with the largest error, and that."""
        return max(self.errors.items(), key=lambda item: item[1])


def compare_floats(session: Session, inputs: Mapping[str, NDArray], outputs: Mapping[str, NDArray]) -> FloatComparison:
    """Compare every layer's result that this thread's last run showed: with `capture` on the simulator, all.

    Raises:
        UsageError: a compiled model, whose layers are not known any more, or one that ONNX Runtime refuses.
    """
    if session.compilation is None:
        raise UsageError("--compare in bf16 needs the layers: give the model itself, not what it was compiled to")
    graphs = session.compilation.graphs
    known = {name for node in session.compilation.source.graph.node for name in node.output}
    made = [layer.output for one in graphs for layer in one.operations]
    exact = _fp32(session.compilation.source, [name for name in made if name in known], inputs)
    values = {**inputs, **session.tensors, **outputs}
    result = FloatComparison(
        reference=f"ordered sums in bf16 of a {session.config.size} array",
        host=f"{', '.join(cpu_features()) or 'no AVX2'}",
        exact="TensorFlow Lite Micro" if is_tflite(session.compilation.source) else "ONNX Runtime",
    )
    for graph in graphs:
        # what comes from the host is rounded on its way in
        known = {name: widen(narrow(values[name])) for name in graph.inputs}
        known |= {name: value for name, value in values.items() if name not in known}
        _compare_graph(session, graph, known, exact, result)
    return result


def _compare_graph(
    session: Session, graph: Graph, known: Mapping[str, NDArray], exact: Mapping[str, NDArray],
    result: FloatComparison,
) -> None:  # fmt: skip
    # a device that shows its outputs alone is compared in those: what is between is then the reference's
    inner: dict[str, NDArray] = {}
    for layer in graph.operations:
        used = {name: graph.tensors[name] for name in graph.activations(layer)}
        values = {**inner, **known}
        tensors = {name: _in_view(graph, values[tensor.storage], tensor) for name, tensor in used.items()}
        y = graph.tensors[layer.output]
        want = layer_output(session.config, graph, layer, tensors, y.view)
        result.tensors_total += 1
        if layer.output not in known:
            inner[layer.output] = y.from_memory(want.swapaxes(0, 1))
            continue
        got = y.in_view(y.in_memory(known[layer.output]))
        unequal = want.view(np.uint32) != got.view(np.uint32)
        count = int(unequal.sum())
        result.tensors += 1
        result.elements += want.size
        result.mismatches += count
        result.see(layer.output, unequal)
        if count and result.first_mismatch is None:
            index = tuple(int(part) for part in np.argwhere(unequal)[0])
            result.divergence = Divergence(layer.output, want, got, unequal, index)
            result.first_mismatch = {
                "tensor": layer.output, "index": list(index), "expected": str(want[index]), "actual": str(got[index]),
                "mismatches": count,
            }  # fmt: skip
        if layer.output not in exact:  # a step that the model does not show
            continue
        _take_error(result, layer.output, got, y.in_view(y.in_memory(exact[layer.output].astype(np.float64))))
    for name in graph.outputs:  # of which some are a layer's result under another name
        if name in exact and name in known and name not in result.errors:
            _take_error(result, name, known[name], exact[name].astype(np.float64))


def _take_error(result: FloatComparison, name: str, got: NDArray, fp32: NDArray[np.float64]) -> None:
    """Take note of how far a tensor is away from fp32."""
    finite = np.isfinite(fp32) & np.isfinite(got)
    span = float(np.ptp(fp32[finite])) if finite.any() else 0.0
    error = float(np.abs(got - fp32)[finite].max(initial=0.0))
    result.max_abs_diff = max(result.max_abs_diff, error)
    result.errors[name] = error / span if span else error


def _in_view(graph: Graph, values: NDArray, tensor: Tensor) -> NDArray:
    """A tensor as the machine sees it, NCHW; `values`: the tensor in whose memory it lies, in the model's shape."""
    layout = tensor.folded
    if layout is None:
        return tensor.in_view(graph.tensors[tensor.storage].in_memory(values))
    batch, channels, height, width = tensor.view
    image = layout.to_dram(np.ascontiguousarray(values).reshape(layout.shape))
    return image.reshape(batch, height, width, -1)[..., :channels].transpose(0, 3, 1, 2)


def _fp32(model: onnx.ModelProto, names: list[str], inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Those tensors and the model's outputs, computed in fp32."""
    if is_tflite(model):
        return TfliteOracle(model).run(inputs)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    present = [value.name for value in copy.graph.output]
    for name in names:
        if name not in present:
            copy.graph.output.append(onnx.ValueInfoProto(name=name))
    try:
        return run_session(open_session(copy), list(dict.fromkeys([*present, *names])), inputs)
    except HostError as error:
        raise UsageError(f"--compare: ONNX Runtime refuses the reference: {error}") from None
