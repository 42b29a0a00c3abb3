"""Which programs to run: random ones, and, as long as the coverage lacks something, as many directed at that."""

from collections import Counter
from collections.abc import Iterable
from random import Random

from npukit.isa.config import NpuConfig
from npukit.sim.dram import DramModel
from npukit.verify.coverage import coverage_items, coverage_targets
from npukit.verify.generator import RandomProgram, Target, random_program

__all__ = ["Plan", "random_dram"]

_TARGETS = 8
"""Of a directed program, at most."""
_COSTLY = 2
"""Of those, long ones."""
_FLOODS = 0.1
"""Share of directed programs that fill token counters, which nothing else does beside."""
_LONG = 3000
"""Words or turns of a loop from which on an instruction takes long."""


def random_dram(seed: str, *, quick: bool = False) -> DramModel:
    """A DRAM of that seed: short and long latencies, few and many bursts in flight; `quick`: no slow one."""
    random = Random(f"{seed}/dram")
    if quick:
        return DramModel(latency=random.choice([1, 5, 20]), read_bursts=32, write_bursts=random.choice([16, 32]))
    return DramModel(
        latency=random.choice([1, 20, 100, random.randint(2, 40)]),
        read_bursts=random.choice([1, 2, 4, 16, 32]),
        write_bursts=random.choice([1, 2, 4, 16, 32]),
    )


class Plan:
    """The programs of a seed, one after the other.

    Program n is the same on every machine if the coverage of those before it was counted, or none was.

    Attributes:
        counts: how many programs hit each item.
    """

    def __init__(self, config: NpuConfig, seed: int, counts: Counter[str] | None = None) -> None:
        self.config, self.seed = config, seed
        self.counts: Counter[str] = Counter() if counts is None else counts

    @property
    def missing(self) -> list[str]:
        """Items that no program has hit."""
        return [item for item in coverage_items(self.config) if not self.counts[item]]

    def count(self, items: Iterable[str]) -> None:
        """Note what a program hit."""
        self.counts.update(items)

    def program(self, index: int) -> RandomProgram:
        """Program number `index`: every other one is directed, as long as there is something to be reached."""
        seed = f"{self.seed}/{index}"
        targets = self._targets(Random(f"{seed}/targets")) if index % 2 else []
        return random_program(self.config, seed, targets=targets)

    def dram(self, index: int, made: RandomProgram) -> DramModel:
        """The memory behind it."""
        beats = sum(
            getattr(one, "planes", 0) * getattr(one, "rows", 0) * getattr(one, "words", 0) for one in made.instructions
        )
        return random_dram(f"{self.seed}/{index}", quick=beats > _LONG)

    def _targets(self, random: Random) -> list[Target]:
        known = coverage_targets(self.config)
        missing = [known[item] for item in self.missing if item in known]
        if not missing:
            return []
        random.shuffle(missing)
        floods = [target for target in missing if target.tokens is not None]
        if floods and (len(floods) == len(missing) or random.random() < _FLOODS):
            return floods[:1]
        addresses = [target.point.value for target in missing if target.point and target.point.field == "dram"]
        chosen: list[Target] = []
        costly = 0
        for target in missing:
            point = target.point
            if target.tokens is not None or (point and point.field == "dram" and point.value != addresses[0]):
                continue  # they want a program to themselves
            if point is not None and abs(point.value) > _LONG and point.field not in ("dram", "pad_value"):
                costly += 1
                if costly > _COSTLY:
                    continue
            chosen.append(target)
            if len(chosen) == _TARGETS:
                break
        return chosen
