"""The compiler's estimates of convolutions against the timing simulator, over the networks of the zoo: `make cost`.

Each convolution's best tilings are compiled alone, and measured with the reference DRAM, one with a long latency and
few bursts, and a board's SDRAM. Printed are percentiles of estimate / measurement for the tilings that the compiler
chooses, and for how many convolutions that one is within 5 % of the best that was measured. Exit code 1 when these are
fewer than nine in ten, or when an estimate is far off for more than one in ten.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from npukit.compiler.cost import CostModel
from npukit.compiler.pass_base import PassRunner
from npukit.compiler.pipeline import compile_model
from npukit.compiler.search import convolutions, measure_alone
from npukit.compiler.tiling import best_tilings
from npukit.isa.config import PRESETS
from npukit.sim.dram import AnyDram, DramModel, SdramDram

from npukit import zoo

__all__ = ["MEMORIES", "NETWORKS", "Layer", "problems", "tried"]

NETWORKS = (
    ("digits", "int8", "int8-4x4"), ("digits", "int8", "ulx3s-int8-8x8"), ("vta-c10", "int8", "int8-8x8"),
    ("resnet18", "int8", "int8-16x16"), ("resnet18", "int8", "ulx3s-int8-8x8"), ("resnet50", "int8", "int8-16x16"),
    ("mobilenetv2", "int8", "int8-16x16"), ("mobilenetv2", "int8", "ulx3s-int8-8x8"),
    ("mobilenetv2", "fp32", "bf16-16x16"),
)  # fmt: skip
MEMORIES: dict[str, AnyDram] = {
    "reference": DramModel(),
    "latency 400, 2 bursts": DramModel(latency=400, read_bursts=2),
    "SDRAM, 60 MHz": SdramDram(megahertz=60.0),
}
_TILINGS = 8
_NEAR = 1.05
_OFF = 0.8, 1.25
_SHARE = 0.9


@dataclass(frozen=True)
class Layer:
    """A convolution: the estimate for the tiling that is chosen, its cycles, and the least of all that were tried."""

    name: str
    memory: str
    estimate: float
    cycles: int
    best: int

    @property
    def near(self) -> bool:
        """Whether the choice is as good as the best, or nearly."""
        return self.cycles <= _NEAR * self.best

    @property
    def ratio(self) -> float:
        """Estimate by measurement."""
        return self.estimate / self.cycles


def tried(network: str, precision: str, preset: str) -> Iterator[Layer]:
    """Each shape of convolution in a network, with each memory."""
    config = PRESETS[preset]
    run = PassRunner(lambda _: None)
    for graph in compile_model(zoo.load(network, precision), config, stop_after="fold").graphs:
        for shape, operation in dict(convolutions(config, graph)).items():
            for memory, dram in MEMORIES.items():
                cost = CostModel(config, dram)
                estimates = cost.convolution(shape)
                chosen, *others = best_tilings(shape, estimates.in_program, _TILINGS)
                candidates = dict.fromkeys((chosen, *others, *best_tilings(shape, estimates.alone, _TILINGS)))
                cycles = {one: measure_alone(cost, graph, operation, shape, one, run) for one in candidates}
                measured = [one for one in cycles.values() if one is not None]
                mine = cycles[chosen]
                name = f"{network} {precision} {preset} {operation.node}"
                assert mine is not None, f"{name} does not fit alone"
                yield Layer(name, memory, estimates.alone(chosen), mine, min(measured))


def problems(layers: Sequence[Layer], memory: str) -> list[str]:
    """What is not as it should be with a memory."""
    mine = [one for one in layers if one.memory == memory]
    near = sum(one.near for one in mine) / len(mine)
    right = sum(_OFF[0] <= one.ratio <= _OFF[1] for one in mine) / len(mine)
    found = []
    if near < _SHARE:
        found.append(f"{memory}: the chosen tiling is within 5 % of the best for {100 * near:.0f} % of the layers")
    if right < _SHARE:
        found.append(f"{memory}: {100 * right:.0f} % of the estimates are from {_OFF[0]} to {_OFF[1]} of the cycles")
    return found


def report(layers: Sequence[Layer], memory: str) -> str:
    """A line about a memory."""
    mine = [one for one in layers if one.memory == memory]
    places = (5, 25, 50, 75, 95)
    percentiles = np.percentile([one.ratio for one in mine], places)
    words = ", ".join(f"{place} %: {value:.2f}" for place, value in zip(places, percentiles, strict=True))
    worst = max(mine, key=lambda one: one.cycles / one.best)
    return (
        f"{memory}: {len(mine)} layers; estimate / measurement, percentiles: {words}; within 5 % of the best: "
        f"{100 * sum(one.near for one in mine) / len(mine):.0f} %; the worst is {worst.cycles / worst.best:.2f} times "
        f"the best ({worst.name})"
    )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="The compiler's estimates against the timing simulator.")
    parser.add_argument("--verbose", action="store_true", help="each layer that is off")
    options = parser.parse_args()
    layers: list[Layer] = []
    for network in NETWORKS:
        found = list(tried(*network))
        layers += found
        print(f"{' '.join(network)}: {len(found) // len(MEMORIES)} shapes of convolutions", flush=True)
        for one in found if options.verbose else ():
            if not one.near or not _OFF[0] <= one.ratio <= _OFF[1]:
                print(f"  {one.name}, {one.memory}: {one.cycles}, best {one.best}, estimate {one.estimate:.0f}")
    wrong = []
    for memory in MEMORIES:
        print(report(layers, memory))
        wrong += problems(layers, memory)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
