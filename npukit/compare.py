"""Every quantised tensor of a run against ONNX Runtime, the oracle.

Where ONNX Runtime computes in float, in an order of its own, a tensor is held to a definition instead, and to be near
ONNX Runtime's: at most a step from it, in few elements. What comes after such a tensor is held to what ONNX Runtime
makes of it.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from npukit.compare_tflite import TfliteOracle
from npukit.defined import definitions, given_name, with_given
from npukit.divergence import Divergence
from npukit.driver.host import (
    TFLITE,
    HostError,
    cpu_features,
    names_used,
    open_session,
    oracle_problem,
    quantized_tensors,
    reference_model,
    run_session,
)
from npukit.driver.tflite_host import is_tflite
from npukit.errors import UsageError
from npukit.isa.program import Program
from npukit.session import Session

__all__ = ["Comparison", "Oracle", "compare", "oracle_of"]


class Oracle:
    """ONNX Runtime on a model whose quantised tensors are all outputs.

    Raises:
        UsageError: when this host cannot be the oracle, or ONNX Runtime refuses the model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        problem = oracle_problem()
        if problem is not None:
            raise UsageError(f"--compare: {problem}")
        self.outputs = [value.name for value in model.graph.output]
        self.tensors = quantized_tensors(model)
        self.last: dict[str, NDArray] = {}
        """What the last run returned."""
        self.definitions = definitions(model)
        """Of tensors by name."""
        self._model = reference_model(model)
        self._session = self._open(self._model)
        self._given: tuple[dict[str, tuple[int, ...]], onnxruntime.InferenceSession] = {}, self._session
        self.inputs = {value.name: value.shape for value in self._session.get_inputs()}
        """Shapes by name; a dimension that the model leaves open is its name."""

    @staticmethod
    def _open(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        try:
            return open_session(model)
        except HostError as error:
            raise UsageError(f"--compare: ONNX Runtime refuses the reference: {error}") from None

    @property
    def name(self) -> str:
        """What it is, for reports."""
        return f"ONNX Runtime {onnxruntime.__version__}, optimised graph"

    def run(self, inputs: Mapping[str, NDArray], given: Mapping[str, NDArray] | None = None) -> dict[str, NDArray]:
        """Outputs and quantised tensors by name.

        given: tensors that stand in the place of ONNX Runtime's own, for whatever reads them.
        """
        names = list(dict.fromkeys([*self.outputs, *self.tensors]))
        given = given or {}
        shapes = {name: array.shape for name, array in given.items()}
        if self._given[0] != shapes:
            self._given = shapes, self._open(with_given(self._model, given)) if given else self._session
        values = {given_name(name): array for name, array in given.items()}
        self.last = run_session(self._given[1], names, {**inputs, **values})
        return self.last


@dataclass
class Comparison:
    """Elements that differ over all tensors seen, and the first that does, in graph order.

    Attributes:
        defined: tensors that are held to a definition, and how many elements of each are a step from ONNX Runtime's.
        seen: (elements, how many of them differ) of each tensor that was compared, in that order.
        divergence: the first tensor that differs, whole.
        by_itself: tensors that TensorFlow Lite Micro, the reference, made for the host, which shows nothing.
    """

    reference: str
    host: str
    tensors: int = 0
    tensors_total: int = 0
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: float = 0.0
    first_mismatch: dict[str, Any] | None = None
    defined: dict[str, int] = field(default_factory=dict)
    by_itself: int = 0
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    divergence: Divergence | None = field(default=None, compare=False, repr=False)

    def see(self, tensor: str, unequal: NDArray[np.bool_]) -> None:
        """Take note of a tensor that was compared, perhaps once more."""
        size, count = self.seen.get(tensor, (0, 0))
        self.seen[tensor] = size + unequal.size, count + int(unequal.sum())

    def to_json(self) -> dict[str, Any]:
        """The object that `run --json` prints under `compare`."""
        return {name: value for name, value in vars(self).items() if name not in ("seen", "divergence")}


_FEW = 0.005
"""Of a tensor's elements, how many may be a step from ONNX Runtime's where a definition decides."""


def _where(programs: Mapping[str, Program], tensor: str, index: tuple[int, ...], apart: int) -> dict[str, Any]:
    """The node and the instruction that wrote an element, which is `apart` from what it should be."""
    for name, program in programs.items():
        if tensor not in program.captured:
            continue
        captured = program.captured[tensor]
        outer, channel, inner = np.unravel_index(np.ravel_multi_index(index, captured.shape), captured.order)
        block = int(channel) // program.config.array
        parts = program.config.activation.parts_of(captured.dtype)
        # a number of several parts: the lowest that is wrong
        part = next((part for part in range(parts) if parts > 1 and apart >> 8 * part & 0xFF), 0)
        word = ((block * parts + part) * captured.order[0] + int(outer)) * captured.order[2] + int(inner)
        for capture in program.captures:
            instruction: Any = program.instructions[capture.instruction]
            if capture.tensor == captured.source and word in capture.words(instruction):
                node = next(node for node in program.nodes if capture.instruction in node.indices())
                return {
                    "subgraph": name,
                    "node": node.name,
                    "op": node.op,
                    "instructions": [node.first, node.last],
                    "instruction": capture.instruction,
                }
    return {}


def _where_on_the_host(
    model: onnx.ModelProto, programs: Mapping[str, Program], tensor: str, index: tuple[int, ...], apart: int,
    compared: Collection[str], equal: Collection[str],
) -> dict[str, Any]:  # fmt: skip
    """The nodes in ONNX Runtime that made a tensor, back to what is equal: inputs, constants, and what programs made.

    Of sums whose zero point ONNX Runtime adds, which nothing is compared with, the program that made them.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    found: set[str] = set()
    pending = [tensor]
    while pending:
        name = pending.pop()
        node = makers.get(name)
        known = name in equal and name != tensor
        if node is None or known or node.output[0] in found:
            continue
        if node.op_type == "EPContext":
            if name not in compared:
                return _where(programs, name, index, apart)
            continue
        found.add(node.output[0])
        pending.extend(names_used(node))
    order = [node for node in model.graph.node if node.output[0] in found]
    return {"host": [f"{node.op_type} {node.name}" for node in order]} if order else {}


def _same_names(what: str, reference: list[str], model: list[str]) -> None:
    if sorted(reference) != sorted(model):
        raise UsageError(
            f"the reference has the {what} {', '.join(reference)} and the model that runs "
            f"{', '.join(model)}: they are different models"
        )


def _same_shape(name: str, reference: tuple[int | str | None, ...], model: tuple[int, ...]) -> None:
    fits = len(reference) == len(model) and all(
        mine == theirs for mine, theirs in zip(model, reference, strict=True) if isinstance(theirs, int)
    )
    if not fits:
        raise UsageError(
            f"{name} has the shape {list(reference)} in the reference and {list(model)} in the model that runs: "
            "they are different models"
        )


def _largest(want: NDArray, got: NDArray) -> float:
    """The largest finite difference of two arrays; 0 for what is not a number."""
    if want.dtype.kind not in "iufb":
        return 0.0
    with np.errstate(invalid="ignore"):
        wide = np.abs(want.astype(np.float64) - got.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _plain(value: Any) -> int | float | str:
    """An element as JSON can hold it."""
    plain = value.item() if hasattr(value, "item") else value
    return plain if isinstance(plain, int) or (isinstance(plain, float) and math.isfinite(plain)) else str(plain)


def oracle_of(model: onnx.ModelProto) -> Oracle | TfliteOracle:
    """What a model is compared with: ONNX Runtime, or, of one that came as a TFLite file, TensorFlow Lite Micro.

    Raises:
        UsageError: it cannot be the oracle here, or refuses the model.
    """
    return TfliteOracle(model) if is_tflite(model) else Oracle(model)


def compare(
    session: Session, oracle: Oracle | TfliteOracle, inputs: Mapping[str, NDArray], outputs: Mapping[str, NDArray],
    total: Comparison | None = None,
) -> Comparison:  # fmt: skip
    """Compare this thread's last run of the session, whose outputs are given, with the oracle; adds to `total`.

    Raises:
        UsageError: when the oracle is another model than the session's.
        HostError: when ONNX Runtime stops.
    """
    _same_names("inputs", list(oracle.inputs), list(inputs))
    _same_names("outputs", oracle.outputs, list(outputs))
    for name, shape in oracle.inputs.items():
        _same_shape(name, tuple(shape), inputs[name].shape)
    actual = {**session.tensors, **outputs}
    made = {name for program in session.programs.values() for name in program.captured}
    defined = {name: one for name, one in oracle.definitions.items() if name in made and name in actual}
    given = {name: actual[name] for name in defined}
    for name, one in oracle.definitions.items():
        # of a device that shows its outputs alone: what is defined is computed, from the front to the back
        if name in made and name not in actual:
            values = {**inputs, **oracle.run(inputs, given), **given}
            given[name] = one.result(values[one.source], values[name].dtype)
    expected = oracle.run(inputs, given)
    result = total or Comparison(
        reference=oracle.name,
        host=f"{', '.join(cpu_features()) or 'no AVX2'}",
    )
    own = {name for node in session.artifact.graph.node if node.domain == TFLITE for name in node.output}
    names = [name for name in dict.fromkeys([*oracle.tensors, *oracle.outputs]) if name in actual and name not in own]
    equal: set[str] = set()
    result.by_itself = len(own)
    result.tensors = len([name for name in oracle.tensors if name in actual and name not in own])
    result.tensors_total = len(oracle.tensors)
    for name in names:
        want, got = expected[name], actual[name]
        _same_shape(name, want.shape, got.shape)
        result.elements += want.size
        apart_from_float = None
        if name in defined:
            source = {**inputs, **expected, **actual}[defined[name].source]
            apart_from_float = np.abs(want.astype(np.int64) - got)
            # of equal numbers, ONNX Runtime divides what rounding left of the mean by epsilon's root
            apart_from_float[(source == source[..., :1]).all(axis=-1)] = 0
            want = defined[name].result(source, got.dtype)
        unequal = (want != got) & ~((want != want) & (got != got))
        if apart_from_float is not None:
            near = int((apart_from_float == 1).sum())
            result.defined[name] = result.defined.get(name, 0) + near
            unequal |= apart_from_float > (1 if near <= max(1, _FEW * want.size) else 0)
        count = int(unequal.sum())
        result.see(name, unequal)
        if not count:
            equal.add(name)
            continue
        result.mismatches += count
        result.max_abs_diff = max(result.max_abs_diff, _largest(want[unequal], got[unequal]))
        if result.first_mismatch is None:
            index = tuple(int(part) for part in np.argwhere(unequal)[0])
            result.divergence = Divergence(name, want, got, unequal, index)
            apart = int(got[index]) - int(want[index]) & 0xFFFFFFFF if want.dtype.kind == "i" else 0
            host = _where_on_the_host(session.artifact, session.programs, name, index, apart, names, equal)
            result.first_mismatch = {
                "tensor": name,
                "index": list(index),
                "expected": _plain(want[index]),
                "actual": _plain(got[index]),
                "mismatches": count,
                **(_where(session.programs, name, index, apart) or host),
            }
    return result
