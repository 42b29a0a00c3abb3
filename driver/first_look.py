"""ONNX Runtime's first look at a model, in a process of its own: it crashes on some.

What is seen there serves as well: which operators the model comes to once ONNX Runtime has optimised it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from npukit.driver.apart import Crash, run_apart
from npukit.driver.host import HostError, open_session, output_values, session_options

__all__ = ["CrashError", "first_look", "layout_look", "optimise", "shapes_look"]

_LAYOUT = "com.microsoft.nchwc"
"""The domain of operators for which ONNX Runtime puts channels in blocks."""


class CrashError(HostError):
    """ONNX Runtime ends the process that it runs in."""


def first_look(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> operator that writes it, over ONNX Runtime's graph of a model with all fusions.

    Raises:
        HostError: when ONNX Runtime refuses the model.
        CrashError: when it crashes on it.
    """
    return _look(_first_look, model)


def layout_look(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> how it is computed, over the graph that ONNX Runtime runs.

    There convolutions and pools may have channels in blocks, and a convolution may take an addition behind it along:
    then sums are rounded in another order. A name that only a tensor in blocks had is missing.

    Raises:
        HostError, CrashError: as above.
    """
    return _look(_layout_look, model)


def shapes_look(model: onnx.ModelProto) -> dict[str, tuple[int, list[int | str | None]]]:
    """Tensor name -> element type and shape, as ONNX Runtime infers them: it knows operators that ONNX does not.

    Raises:
        HostError, CrashError: as above.
    """
    return _look(_shapes_look, model)


def _look(work: Any, model: onnx.ModelProto) -> dict[str, Any]:
    try:
        answer = run_apart(work, model)
    except Crash as crash:
        raise CrashError(f"ONNX Runtime crashes on the model ({crash})") from None
    if answer["error"] is not None:
        raise HostError(answer["error"])
    return answer["found"]


def _answer(find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the other process answers: what it finds, or why ONNX Runtime refuses the model."""
    try:
        return {"found": find(), "error": None}
    except HostError as error:
        return {"found": {}, "error": str(error)}


def _first_look(model: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    return _answer(lambda: optimise(model, folder)[0])


def _layout_look(model: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    return _answer(lambda: _computations(model, folder))


def _shapes_look(model: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    return _answer(lambda: _shapes(model))


def _shapes(model: onnx.ModelProto) -> dict[str, Any]:
    outputs = {value.name for value in model.graph.output}
    names = (name for node in model.graph.node for name in node.output if name and name not in outputs)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = open_session(model, options)
    kinds = output_values(session)
    shapes = {output.name: output.shape for output in session.get_outputs()}
    return {name: [value.type.tensor_type.elem_type, shapes[name]] for name, value in kinds.items()}


def _computations(model: onnx.ModelProto, folder: Path) -> dict[str, str]:
    graph, _ = _optimised(model, folder, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    producers = {name: node for node in graph.node for name in node.output if name}
    found = {}
    for name, node in producers.items():
        while node is not None and node.domain == _LAYOUT and node.op_type in ("ReorderInput", "ReorderOutput"):
            node = producers.get(node.input[0])
        if node is not None:
            found[name] = _computation(node)
    return found


def _computation(node: onnx.NodeProto) -> str:
    """What decides in which order a node rounds; elementwise operators round once, however channels lie."""
    activation = next((one.s.decode() for one in node.attribute if one.name == "activation"), "")
    text = node.op_type.removeprefix("Fused")
    if text == "Conv" or text.endswith("Pool"):
        blocks = " in blocks of channels" if node.domain == _LAYOUT else ""
        text += f" of {len(node.input)} inputs{blocks}"
    return f"{text} with {activation}" if activation else text


def optimise(model: onnx.ModelProto, folder: Path) -> tuple[dict[str, str], onnxruntime.InferenceSession]:
    """What `first_look` finds, in this process, and the session; `folder` takes the optimised model.

    Raises:
        HostError: when ONNX Runtime refuses the model.
    """
    # the extended level has all fusions of quantised operators; the one above it is for other layouts of tensors
    graph, session = _optimised(model, folder, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)
    return {name: node.op_type for node in graph.node for name in node.output if name}, session


def _optimised(
    model: onnx.ModelProto, folder: Path, level: onnxruntime.GraphOptimizationLevel
) -> tuple[onnx.GraphProto, onnxruntime.InferenceSession]:
    options = session_options()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    session = open_session(model, options)
    return onnx.load(folder / "optimised.onnx", load_external_data=False).graph, session
