"""What runs in a tree with a fault, or with several: programs or models, until a difference shows.

Outcomes say by what it showed, and after how many programs or cases.
"""

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mutant_table import CONFIG, MACHINES, MUTANTS, TOGETHER, Mutant, patched

__all__ = ["UNCHANGED", "run_on_rtl", "run_on_simulator", "run_together", "selector"]

UNCHANGED = "unchanged"
"""The run without a fault, which must find nothing."""


def run_on_rtl(name: str, seed: int, programs: int, verilog: str | None = None, *, optimise: bool = False) -> dict:
    """Programs on a mutant, or on one of those in the Verilog of several. optimise: the model runs for long."""
    from dataclasses import replace

    from npukit.driver.rtl_device import RtlDevice
    from npukit.isa.config import PRESETS

    from npukit.verify.compare import compare_program
    from npukit.verify.hostile import hostile_share

    preset, fields = MACHINES.get(name, (name, {}))
    config = replace(PRESETS[preset], **fields)
    with RtlDevice(config, verilog=verilog, optimise=optimise, progress=lambda _: None) as device:
        for index, (made, dram) in enumerate(_programs(config, seed, programs)):
            outcome = compare_program(device, made.instructions, made.memory, dram, placement=made.placement)
            if outcome.first is None and (share := hostile_share(device, seed, index)) and share.first is not None:
                return {"by": "a hostile run", "after": index + 1, "first": share.first}
            if outcome.first is not None:
                error = outcome.first["what"] == "error"
                found = ["bits"] * bool(outcome.bits) + ["cycles"] * bool(outcome.cycles)
                return {"by": "error" if error else " and ".join(found), "after": index + 1, "first": outcome.first}
    return {"by": None, "after": programs}


_known: dict[tuple[Any, int], list[tuple[Any, Any]]] = {}
"""Of a configuration and a seed, the programs that have been made: the same for each mutant of a process."""


def _programs(config: Any, seed: int, programs: int) -> Iterator[tuple[Any, Any]]:
    """The programs of `npukit verify`, each with its DRAM. What they are directed at follows from the simulator."""
    from npukit.verify.compare import simulate_program
    from npukit.verify.coverage import cover
    from npukit.verify.plan import Plan

    known = _known.setdefault((config, seed), [])
    yield from known[:programs]
    if len(known) >= programs:
        return
    plan = Plan(config, seed)
    for index in range(programs):
        made = plan.program(index)
        dram = plan.dram(index, made)
        simulated = simulate_program(config, made.instructions, made.memory, dram, made.placement)
        plan.count(cover(made, simulated.schedule, simulated.observed, simulated.machine.dram))
        if index == len(known):
            known.append((made, dram))
            yield made, dram


def run_together(seed: int, programs: int, names: list[str]) -> None:
    """Print an outcome for the model without a fault, and for each of the mutants, which share one model."""
    choice = Path("choice.hex").resolve()
    verilog = _selectable([mutant for mutant in MUTANTS if mutant.name in names], choice)
    for number, name in enumerate([UNCHANGED, *names]):
        choice.write_text(f"{number:02x}")
        begun = time.perf_counter()
        found = run_on_rtl(CONFIG, seed, programs, verilog, optimise=True)
        print(json.dumps({"name": name, "seconds": time.perf_counter() - begun, **found}), flush=True)


def _faulty(mutant: Mutant) -> type:
    """The class of the mutant's block, with the fault."""
    module_name, class_name = TOGETHER[mutant.file]

    def load(file: str, text: str) -> ModuleType:
        module = ModuleType(f"{file.removesuffix('.py').replace('/', '.')}_{mutant.name}")
        sys.modules[module.__name__] = module
        exec(compile(text, f"{mutant.name}/{file}", "exec"), vars(module))
        return module

    package = Path(sys.modules["npukit"].__path__[0])
    faulty = load(mutant.file, patched(mutant, (package / mutant.file).read_text(encoding="utf-8")))
    if Path(mutant.file).stem == module_name:
        return getattr(faulty, class_name)
    # a file of functions: the block gets those with the fault
    block_file = f"hw/{module_name}.py"
    block = load(block_file, (package / block_file).read_text(encoding="utf-8"))
    vars(block).update({name: getattr(faulty, name) for name in faulty.__all__ if name in vars(block)})
    return getattr(block, class_name)


def _selectable(mutants: list[Mutant], choice: Path) -> str:
    """Verilog of a core in which the file `choice` says, by a number from 1 on, which mutant there is; 0 is none."""
    from amaranth import Const, Instance, Module, Signal, Value
    from amaranth.lib.wiring import In
    from npukit.hw import core
    from npukit.hw.machine import ENGINE_OF
    from npukit.hw.verilog import MODULE, component_verilog
    from npukit.isa.config import PRESETS

    chosen = Signal(8)
    there = set()
    """Classes of which such an instance is in the core."""

    def several(base: type, others: list[tuple[int, type]]) -> type:
        def remember(self, *arguments, **named) -> None:
            self._arguments = arguments, named
            base.__init__(self, *arguments, **named)

        def elaborate(self, platform: object) -> Module:
            there.add(base.__name__)
            m = Module()
            arguments, named = self._arguments
            instances = [(number, kind(*arguments, **named)) for number, kind in ((0, base), *others)]
            mine = list(self.signature.flatten(self))
            outputs = []
            for number, instance in instances:
                m.submodules[f"mutant_{number}"] = instance
                theirs = list(instance.signature.flatten(instance))
                pairs = [
                    (Value.cast(a), Value.cast(b), member)
                    for (_, member, a), (_, _, b) in zip(mine, theirs, strict=True)
                    if not isinstance(a, Const)  # `ready` of a stream that is always so
                ]
                m.d.comb += [inner.eq(outer) for outer, inner, member in pairs if member.flow == In]
                outputs.append((number, [outer.eq(inner) for outer, inner, member in pairs if member.flow != In]))
            with m.Switch(chosen):
                for number, statements in outputs[1:]:
                    with m.Case(number):
                        m.d.comb += statements
                with m.Default():
                    m.d.comb += outputs[0][1]
            return m

        return type(base.__name__, (base,), {"__init__": remember, "elaborate": elaborate})

    faulty: dict[tuple[str, str], list[tuple[int, type]]] = {}
    for number, mutant in enumerate(mutants, 1):
        faulty.setdefault(TOGETHER[mutant.file], []).append((number, _faulty(mutant)))
    modules = [module for name, module in sys.modules.items() if name.startswith("npukit.hw.")]
    for (module_name, class_name), others in faulty.items():
        base = getattr(importlib.import_module(f"npukit.hw.{module_name}"), class_name)
        replacement = several(base, others)
        for module in modules:
            if getattr(module, class_name, None) is base:
                setattr(module, class_name, replacement)
        for engine, (kind, instruction) in ENGINE_OF.items():
            if kind is base:
                ENGINE_OF[engine] = replacement, instruction

    class Core(core.Core):
        def elaborate(self, platform: object) -> Module:
            m = super().elaborate(platform)
            m.submodules.choice = Instance("mutant_choice", o_number=chosen)
            return m

    verilog = component_verilog(Core(PRESETS[CONFIG]), MODULE)
    assert there == {class_name for _, class_name in faulty}, "blocks whose faults are not in the core"
    return verilog + selector(choice, len(chosen))


def selector(choice: Path, bits: int) -> str:
    """Verilog of a module whose output is the number in a file, as it is when a model is made."""
    return f"""
module mutant_choice(output [{bits - 1}:0] number);
  reg [{bits - 1}:0] file [0:0];
  initial $readmemh("{choice}", file);
  assign number = file[0];
endmodule
"""


def run_on_simulator(name: str, seed: int, cases: int) -> dict:
    """The digits network and random convolutions against ONNX Runtime: it adds and pools, which they do not."""
    import onnx
    import properties

    from npukit import Session, zoo
    from npukit.compare import Oracle, compare

    try:
        model = onnx.load_from_string(zoo.load("digits"))
        session = Session(model, config=name, capture=True)
        inputs = {"image": zoo.digits_heldout()[0][0]}
        found = compare(session, Oracle(model), inputs, session.run(inputs))
    except Exception as error:
        return {"by": "error", "after": 0, "first": f"digits: {type(error).__name__}: {error}"}
    if found.mismatches:
        return {"by": "bits", "after": 0, "first": f"digits: {found.first_mismatch}"}
    for index in range(cases):
        report = properties.run(seed + index, 1)
        if report.failures:
            return {"by": "bits" if report.mismatches else "error", "after": index + 1, "first": report.failures[0]}
    return {"by": None, "after": cases}
