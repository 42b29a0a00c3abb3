"""Every quantised tensor of a run against ONNX Runtime, the oracle."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from npukit.driver.host import cpu_features, oracle_problem, session_options
from npukit.errors import UsageError
from npukit.isa.program import Program
from npukit.session import Session, quantized_tensors

__all__ = ["Comparison", "Oracle", "compare"]


class Oracle:
    """ONNX Runtime on a model whose quantised tensors are all outputs.

    Raises:
        UsageError: when this host cannot be the oracle.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        problem = oracle_problem()
        if problem is not None:
            raise UsageError(f"--compare: {problem}")
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        self.outputs = [value.name for value in model.graph.output]
        self.tensors = quantized_tensors(model)
        for name in self.tensors:
            if name not in self.outputs:
                copy.graph.output.append(onnx.ValueInfoProto(name=name))
        self.last: dict[str, NDArray] = {}
        """What the last run returned."""
        self._session = onnxruntime.InferenceSession(
            copy.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Outputs and quantised tensors by name."""
        names = list(dict.fromkeys([*self.outputs, *self.tensors]))
        self.last = dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
        return self.last


@dataclass
class Comparison:
    """Elements that differ over all tensors seen, and the first that does, in graph order."""

    reference: str
    host: str
    tensors: int = 0
    tensors_total: int = 0
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: float = 0.0
    first_mismatch: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that `run --json` prints under `compare`."""
        return dict(vars(self))


def _where(programs: Mapping[str, Program], tensor: str, index: tuple[int, ...]) -> dict[str, Any]:
    """The node and the instruction that wrote an element."""
    for name, program in programs.items():
        source = program.aliases.get(tensor, (tensor,))[0]
        if source not in program.captured:
            continue
        view, shape, _ = program.captured[source]
        flat = int(np.ravel_multi_index(index, program.aliases.get(tensor, (None, shape))[1]))
        batch, channel, y, x = (int(part) for part in np.unravel_index(flat, view))
        block = channel // program.config.array
        for capture in program.captures:
            instruction: Any = program.instructions[capture.instruction]
            steps = y - capture.y, x - capture.x
            if (
                capture.tensor == source
                and capture.batch == batch
                and 0 <= block - capture.block < instruction.blocks
                and 0 <= steps[0] < instruction.height * capture.step_y
                and 0 <= steps[1] < instruction.width * capture.step_x
                and steps[1] % capture.step_x == 0
            ):
                node = next(node for node in program.nodes if node.first <= capture.instruction < node.last)
                return {
                    "subgraph": name,
                    "node": node.name,
                    "op": node.op,
                    "instructions": [node.first, node.last - 1],
                    "instruction": capture.instruction,
                }
    return {}


def compare(session: Session, oracle: Oracle, inputs: Mapping[str, NDArray], outputs: Mapping[str, NDArray],
            total: Comparison | None = None) -> Comparison:  # fmt: skip
    """Compare the session's last run, whose outputs are given, with the oracle; adds to `total`."""
    expected = oracle.run(inputs)
    result = total or Comparison(
        reference=f"ONNX Runtime {onnxruntime.__version__}, optimised graph",
        host=f"{', '.join(cpu_features()) or 'no AVX2'}",
    )
    actual = {**session.tensors, **outputs}
    names = [name for name in dict.fromkeys([*oracle.tensors, *oracle.outputs]) if name in actual]
    result.tensors = len([name for name in oracle.tensors if name in actual])
    result.tensors_total = len(oracle.tensors)
    for name in names:
        want, got = expected[name], actual[name]
        result.elements += want.size
        unequal = (want != got) & ~((want != want) & (got != got))
        count = int(unequal.sum())
        if not count:
            continue
        result.mismatches += count
        wide = want.astype(np.float64) - got.astype(np.float64)
        result.max_abs_diff = max(result.max_abs_diff, float(np.abs(wide[unequal]).max()))
        if result.first_mismatch is None:
            index = tuple(int(part) for part in np.argwhere(unequal)[0])
            result.first_mismatch = {
                "tensor": name,
                "index": list(index),
                "expected": want[index].item(),
                "actual": got[index].item(),
                "mismatches": count,
                **_where(session.programs, name, index),
            }
    return result
