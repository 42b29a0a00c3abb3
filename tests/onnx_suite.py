"""ONNX's own backend tests, by `npukit.backend` and by ONNX Runtime alone: nothing that the one passes may fail in the
other.

    python tests/onnx_suite.py                          # every case, as it is and with constants
    python tests/onnx_suite.py --only test_conv         # those whose names have this in them
    python tests/onnx_suite.py --list                   # write the list of cases that do not pass

Each case runs in two forms. As it is, all operands are inputs, so that a convolution's weights are not known when it is
compiled, and hardly anything suits the accelerator. With constants, all inputs behind the first are initializers with
the values of the case, as they are in models that people have. Results are held to the case's own tolerance.

On a bfloat16 configuration the accelerator rounds to 8 bits: there, cases of which it runs a part are held to
`FLOAT_ERROR` of the largest value that is expected instead.
"""

import argparse
import os
import sys
import unittest
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from npukit.driver.host import open_session, run_session
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest

from npukit.backend import NpukitBackend, NpukitRep

EXPECTED = Path(__file__).with_name("onnx_suite.txt")
FORMS = ("as it is", "with constants")
FLOAT_ERROR = 2**-5
BEYOND_BFLOAT16 = {"test_softmax_large_number": "its numbers, 10 000 to 10 003, are one number in bfloat16"}
"""Cases that a bfloat16 machine must lose, with the reason; one that it passes is as wrong as another that it loses."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case in one form.

    Attributes:
        name: of the case. form: one of `FORMS`.
        error: why it does not pass; empty if it does. alone: the same of ONNX Runtime alone.
        nodes: that ran on the accelerator.
        refusal: why ONNX Runtime ran the whole model, or empty.
        rounded: the accelerator ran a part of it in bfloat16.
    """

    name: str
    form: str
    error: str
    alone: str
    nodes: int
    refusal: str
    rounded: bool = False

    @property
    def lost(self) -> bool:
        """ONNX Runtime alone passes, and the kit does not."""
        return bool(self.error) and not self.alone


class _HostRep(BackendRep):
    def __init__(self, model: onnx.ModelProto) -> None:
        self._session = open_session(model)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        names = [value.name for value in self._session.get_inputs()]
        outputs = [value.name for value in self._session.get_outputs()]
        arrays = [np.asarray(one) if isinstance(one, np.generic) else one for one in inputs]
        return tuple(run_session(self._session, outputs, dict(zip(names, arrays, strict=True))).values())


class HostBackend(Backend):
    """ONNX Runtime alone, with the options under which it is the oracle."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        return _HostRep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class _ConstantsRep(BackendRep):
    """Waits for the inputs, and prepares the model with all but the first as initializers."""

    def __init__(self, backend: type[Backend], model: onnx.ModelProto, options: Mapping[str, Any]) -> None:
        self._backend, self._model, self._options = backend, model, options
        self.rep: BackendRep | None = None

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        model, inputs = with_constants(self._model, inputs)
        self.rep = self._backend.prepare(model, **self._options)
        assert self.rep is not None
        return self.rep.run(inputs)


def with_constants(model: onnx.ModelProto, inputs: Sequence[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """The model with what can be an initializer as one, but for the first input; and what is left to give it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {tensor.name for tensor in copy.graph.initializer}
    free = [value for value in copy.graph.input if value.name not in constants]
    left = []
    for index, (value, array) in enumerate(zip(free, inputs, strict=True)):
        if index == 0 or not isinstance(array, np.ndarray | np.generic):
            left.append(array)
            continue
        copy.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        copy.graph.input.remove(value)
    copy.ir_version = max(copy.ir_version, 4)  # before, an initializer had to be an input as well
    return copy, left


class Watched(Backend):
    """The backend that ONNX's runner sees: prepares in the form that is asked for, and keeps what was prepared."""

    backend: type[Backend] = HostBackend
    options: Mapping[str, Any] = {}
    form = FORMS[0]
    made: BackendRep | None = None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        if cls.form == FORMS[0]:
            cls.made = cls.backend.prepare(model, device, **cls.options)
        else:
            cls.made = _ConstantsRep(cls.backend, model, cls.options)
        assert cls.made is not None
        return cls.made

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class _FirstError(unittest.TestResult):
    """Why a test does not pass, on one line."""

    reason = ""

    def addError(self, test: Any, err: Any) -> None:
        self.reason = f"{err[0].__name__}: {_line(err[1])}"

    def addFailure(self, test: Any, err: Any) -> None:
        self.reason = f"differs: {_line(err[1])}"

    def addSkip(self, test: Any, reason: str) -> None:
        self.reason = f"skipped: {reason}"


def _line(error: object) -> str:
    return " ".join(str(error).split())[:200]


class _Runner(BackendTest):
    """ONNX's runner, which knows that a bfloat16 machine rounds."""

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Sequence[Any], outputs: Sequence[Any], rtol: float, atol: float, model_dir: str | None = None
    ) -> None:
        if _rounds(_prepared()):
            largest = max((float(np.abs(one).max()) for one in ref_outputs if one.size), default=0.0)
            rtol, atol = 0.0, FLOAT_ERROR * largest
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)


@cache
def _tests() -> Any:
    """ONNX's tests, one method each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Runner(Watched, __name__).tests


def names() -> list[str]:
    """Of all cases, in ONNX's order."""
    return [name.removesuffix("_cpu") for name in vars(_tests()) if name.startswith("test_") and name.endswith("_cpu")]


def _prepared() -> BackendRep | None:
    return Watched.made.rep if isinstance(Watched.made, _ConstantsRep) else Watched.made


def _rounds(rep: BackendRep | None) -> bool:
    """The accelerator runs a part of it in bfloat16."""
    return isinstance(rep, NpukitRep) and rep.offload is not None and rep.offload.nodes > 0 and rep.floating


def _run(name: str, form: str, backend: type[Backend], options: Mapping[str, Any]) -> str:
    Watched.backend, Watched.options, Watched.form, Watched.made = backend, options, form, None
    result = _FirstError()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _tests()(f"{name}_cpu").run(result)
    return result.reason


def run_case(name: str, form: str, config: str) -> Outcome:
    """A case by the kit and by ONNX Runtime alone."""
    alone = _run(name, form, HostBackend, {})
    error = _run(name, form, NpukitBackend, {"config": config})
    nodes, refusal, rep = 0, "", _prepared()
    rounded = _rounds(rep)
    if isinstance(rep, NpukitRep):
        nodes, refusal = rep.offload.nodes if rep.offload else 0, rep.refusal or ""
        rep.close()
    return Outcome(name, form, error, alone, nodes, refusal, rounded)


def run_cases(wanted: Sequence[tuple[str, str]], config: str, workers: int) -> Iterator[Outcome]:
    """Outcomes of (case, form), in order; in other processes, because ONNX Runtime crashes on some models."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield from pool.map(run_case, *zip(*wanted, strict=True), repeat(config), chunksize=16)


def read_expected() -> dict[str, str]:
    """The committed list: `case, form` -> why it does not pass."""
    lines = [line for line in EXPECTED.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def key_of(outcome: Outcome) -> str:
    """What a case and its form are called in the list."""
    return outcome.name if outcome.form == FORMS[0] else f"{outcome.name} {outcome.form}"


def problems(outcomes: Sequence[Outcome], expected: Mapping[str, str]) -> list[str]:
    """What contradicts the list, or is lost."""
    found = []
    for one in outcomes:
        beyond = one.rounded and one.name in BEYOND_BFLOAT16
        if one.lost and not beyond:
            found.append(f"{key_of(one)}: ONNX Runtime alone passes, and the kit: {one.error}")
        if beyond and not one.lost:
            found.append(f"{key_of(one)}: passes, although {BEYOND_BFLOAT16[one.name]}")
        if one.error and not one.lost and key_of(one) not in expected:
            found.append(f"{key_of(one)}: not on the list: {one.error}")
        if not one.error and key_of(one) in expected:
            found.append(f"{key_of(one)}: on the list, and it passes")
    return found


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each form."""
    for form in FORMS:
        of_form = [one for one in outcomes if one.form == form]
        passed = [one for one in of_form if not one.error]
        yield (
            f"{form}: {len(of_form)} cases, {len(passed)} pass (ONNX Runtime alone: "
            f"{sum(not one.alone for one in of_form)}), of which the accelerator runs nodes in "
            f"{sum(one.nodes > 0 for one in passed)} and ONNX Runtime the whole model in "
            f"{sum(bool(one.refusal) for one in passed)}; lost: {sum(one.lost for one in of_form)}"
        )


def main() -> int:
    """Run the suite. Exit code 1 where a case is lost, or the list is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="int8-16x16", help="what to compile for (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names have this text in them")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="write the list of cases that do not pass")
    parser.add_argument("--verbose", action="store_true", help="tell of every case that the accelerator runs")
    arguments = parser.parse_args()
    wanted = [(name, form) for form in FORMS for name in names() if arguments.only in name]
    outcomes: list[Outcome] = []
    with TemporaryDirectory() as folder:
        os.environ["ONNX_HOME"] = folder  # ONNX's runner writes there
        for one in run_cases(wanted, arguments.config, arguments.workers):
            outcomes.append(one)
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)} of {len(wanted)}", end="", file=sys.stderr)
            if arguments.verbose and (one.nodes or one.refusal):
                print(f"{key_of(one)}: {one.nodes} nodes {one.refusal}")
    if arguments.list:
        entries = [f"{key_of(one)}: {one.error}" for one in outcomes if one.error and not one.lost]
        EXPECTED.write_text("\n".join([_HEAD, *entries, ""]))
    found = problems(outcomes, read_expected())
    print("\n".join([*found, *summary(outcomes)]))
    return 1 if found else 0


_HEAD = """\
# Cases of ONNX's backend tests that neither npukit nor ONNX Runtime alone passes, with what either says.
# python tests/onnx_suite.py --list writes this."""

if __name__ == "__main__":
    raise SystemExit(main())
