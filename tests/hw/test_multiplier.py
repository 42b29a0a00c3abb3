"""Products of every division into parts, and the cycles that `Pipeline` counts."""

import gc
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")

from amaranth import Module, Signal
from amaranth.hdl import Fragment
from npukit.hw.multiplier import Multiplier
from npukit.hw.pipeline import Pipeline


@pytest.mark.parametrize(
    ("width_a", "width_b", "latency"),
    [(1, 1, 2), (8, 8, 2), (18, 18, 2), (19, 18, 3), (12, 32, 3), (32, 12, 3), (32, 32, 3), (19, 35, 3)],
)
def test_product(width_a: int, width_b: int, latency: int, streaming: ModuleType) -> None:
    multiplier = Multiplier(width_a, width_b)
    assert multiplier.latency == latency
    rng = np.random.default_rng(1)
    low_a, low_b = -(1 << (width_a - 1)), -(1 << (width_b - 1))
    a, b = rng.integers(low_a, -low_a, 40), rng.integers(low_b, -low_b, 40)
    a[:4], b[:4] = [low_a, low_a, -low_a - 1, -low_a - 1], [low_b, -low_b - 1, low_b, -low_b - 1]
    result = streaming.simulate(multiplier, latency, a=a, b=b)["product"]
    assert result.tolist() == (a * b).tolist()


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("widths", [(0, 8), (36, 8), (8, 36)])
def test_widths_out_of_range(widths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"width_[ab] must be from 1 to 35, not (0|36)$"):
        Multiplier(*widths)
    gc.collect()  # what was not made goes here, while Amaranth's warning about it is ignored


def test_a_value_is_not_there_before_its_cycle() -> None:
    module = Module()
    pipeline = Pipeline(module)
    value = pipeline.register(2, Signal(4), "scaled")
    assert value.at(5) is value.at(5)
    with pytest.raises(ValueError, match="scaled is there from cycle 3 on, not in cycle 2"):
        value.at(2)
    Fragment.get(module, None)  # or Amaranth warns that it is not used
