"""Which programs to run: random ones, and as many that are directed at what the coverage lacks."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from random import Random

from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Operation
from npukit.sim.dram import DramModel
from npukit.verify.coverage import coverage_items, coverage_targets
from npukit.verify.generator import RandomProgram, Target, random_program

__all__ = ["Plan", "random_dram"]

_OFTEN = 20
"""Programs that hit an item that is no longer rare."""
_TARGETS = 20
"""Of a directed program, at most."""
_COSTLY = 2
"""Of those, long ones."""
_FLOODS = 0.1
"""Share of directed programs that fill token counters, which nothing else does beside."""
_PLAIN = 0.8
"""Share of directed programs in which, of what is rare, what meets something else comes last."""
_AT_ONCE = 3
"""Fields of an instruction's parameters that are at their ends at a time."""
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

    @property
    def rare(self) -> list[str]:
        """Items that few programs have hit."""
        return [item for item in coverage_items(self.config) if self.counts[item] < _OFTEN]

    def count(self, items: Iterable[str]) -> None:
        """Note what a program hit."""
        self.counts.update(items)

    def program(self, index: int) -> RandomProgram:
        """Program number `index`: every other one is directed, as long as there is something to be reached, at what no
        program has hit and at what few have."""
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
        rare = [known[item] for item in self.rare if item in known and self.counts[item]]
        for targets in (missing, rare):
            random.shuffle(targets)
        if random.random() < _PLAIN:
            rare.sort(key=_is_crossing)
        # of both kinds, one after the other
        wanted = [one for pair in zip_longest(missing, _together(rare)) for one in pair if one is not None]
        if not wanted:
            return []
        floods = [target for target in wanted if target.tokens is not None]
        if floods and (len(floods) == len(wanted) or random.random() < _FLOODS):
            return floods[:1]
        addresses = [target.point.value for target in wanted if target.point and target.point.field == "dram"]
        chosen: list[Target] = []
        costly = 0
        for target in wanted:
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


def _is_crossing(target: Target) -> bool:
    """Whether something is wanted of two things that meet: another engine's work, a ring's end."""
    return target.beside is not None or (target.point is not None and target.point.passes is not None)


def _together(targets: Iterable[Target]) -> list[Target]:
    """Targets, of which some that want other parameters of the same operation are one."""
    found: list[Target] = []
    places: dict[Operation, int] = {}
    for target in targets:
        if target.parameters is None:
            found.append(target)
            continue
        operation, pairs = target.parameters
        place = places.get(operation)
        before = () if place is None else found[place].parameters[1]  # type: ignore[index]
        if place is None or len(before) == _AT_ONCE or {name for name, _ in before} & {name for name, _ in pairs}:
            places[operation] = len(found)
            found.append(target)
        else:
            found[place] = replace(target, parameters=(operation, (*before, *pairs)))
    return found
