"""A component as files, one a module: what is shared, and what modules are called."""

import re

import pytest

pytest.importorskip("amaranth", reason="amaranth is not installed: pip install npukit[rtl]")

from amaranth import Elaboratable, Module, Signal  # noqa: E402
from amaranth.lib import wiring  # noqa: E402
from amaranth.lib.wiring import Out  # noqa: E402
from npukit.hw.hierarchy import module_files  # noqa: E402


class Counter(wiring.Component):
    """Counts from a value that it has after power-up alone."""

    def __init__(self, init: int) -> None:
        self._init = init
        super().__init__({"count": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(8, init=self._init, reset_less=True)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.count.eq(count)
        return m


class Counters(wiring.Component):
    """Several of them."""

    def __init__(self, *inits: int) -> None:
        self._inits = inits
        super().__init__({"total": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total = 0
        for number, init in enumerate(self._inits):
            counter = Counter(init)
            m.submodules[f"counter_{number}"] = counter
            total = total + counter.count
        m.d.comb += self.total.eq(total)
        return m


class Inner(Elaboratable):
    """A submodule of a name, around a counter."""

    def __init__(self, name: str, counter: Counter) -> None:
        self._name, self.counter = name, counter

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules[self._name] = self.counter
        return m


class Ambiguous(wiring.Component):
    """Submodules `a.b` and `a_b`, which would both be `top_a_b`."""

    def __init__(self) -> None:
        super().__init__({"total": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second = Counter(1), Counter(2)
        m.submodules.a = Inner("b", first)
        m.submodules.a_b = second
        m.d.comb += self.total.eq(first.count + second.count)
        return m


def test_equal_modules_are_one() -> None:
    files = module_files(Counters(3, 3, 3), "top")
    assert list(files) == ["top.v", "top_counter_0.v"]
    assert "Instances: top.counter_0, top.counter_1, top.counter_2" in files["top_counter_0.v"]


def test_values_after_power_up_are_kept_apart() -> None:
    files = module_files(Counters(3, 5), "top")
    assert list(files) == ["top.v", "top_counter_0.v", "top_counter_1.v"]
    assert "8'h03" in files["top_counter_0.v"] and "8'h05" in files["top_counter_1.v"]


def test_two_modules_never_have_one_name() -> None:
    files = module_files(Ambiguous(), "top")
    assert len(files) == 4
    for file, text in files.items():
        assert re.findall(r"^module (\w+) ", text, re.MULTILINE) == [file.removesuffix(".v")]
    inner = re.findall(r"^  (\w+) b \(", files["top_a.v"], re.MULTILINE)
    outer = re.findall(r"^  (\w+) a_b \(", files["top.v"], re.MULTILINE)
    assert sorted([*inner, *outer]) == ["top_a_b", "top_a_b_2"]
    assert "Instances: top.a.b\n" in files[f"{inner[0]}.v"] and "Instances: top.a_b\n" in files[f"{outer[0]}.v"]
    assert "8'h01" in files[f"{inner[0]}.v"] and "8'h02" in files[f"{outer[0]}.v"]
