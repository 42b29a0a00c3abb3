"""Drives one block cycle by cycle: streams with random gaps and stalls, whose contract is watched, and models."""

import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from amaranth import Elaboratable
from amaranth.hdl import Const, Value
from amaranth.lib import data
from amaranth.sim import Simulator

__all__ = ["Bench", "bits_of", "seeds"]

_PHASE = 40
"""Cycles for which a stream's chances stay as they are."""
_CHANCES = (1.0, 1.0, 0.7, 0.3, 0.05)


def seeds() -> list[str]:
    """One that is always the same, and a fresh one, or as many of these as BLOCK_SEEDS says."""
    return ["1", *(str(secrets.randbelow(10**6)) for _ in range(int(os.environ.get("BLOCK_SEEDS", "1"))))]


def bits_of(value: Any) -> int:
    """A value read from the simulator, as a number."""
    return value.as_bits() if isinstance(value, data.Const) else int(value)


class _Stream:
    """One stream: who offers or takes, and whether the contract is kept."""

    def __init__(self, name: str, one: Any, random_: random.Random) -> None:
        self.name, self.one, self._random = name, one, random_
        self.chance = 1.0
        self._offered: tuple[bool, int] = (False, 0)
        self.always_ready = isinstance(Value.cast(one.ready), Const)

    def choose(self, cycle: int) -> bool:
        """Whether there is no gap, or no stall, in this cycle."""
        if cycle % _PHASE == 0:
            self.chance = self._random.choice(_CHANCES)
        return self._random.random() < self.chance

    def look(self, ctx: Any, watched: bool) -> Any:
        """The payload if it moves in this cycle; raises when the block takes back what it offered."""
        valid = bool(ctx.get(self.one.valid))
        ready = self.always_ready or bool(ctx.get(self.one.ready))
        payload = ctx.get(self.one.payload)
        if watched:
            waited, before = self._offered
            assert valid or not waited, f"{self.name}: what was offered is taken back"
            assert not waited or bits_of(payload) == before, f"{self.name}: what was offered has changed"
            self._offered = valid and not ready, bits_of(payload)
        return payload if valid and ready else None


class Bench:
    """A block with sources, sinks and models.

    Attributes:
        random: from the seed, for the models as well.
        cycle: the present one.
    """

    def __init__(self, dut: Elaboratable, seed: int | str) -> None:
        self.dut, self.random, self.cycle = dut, random.Random(seed), 0
        self._sources: list[tuple[_Stream, deque[Any]]] = []
        self._sinks: list[tuple[_Stream, Callable[[Any], None]]] = []
        self._drives: list[Callable[[Any], None]] = []
        self._looks: list[Callable[[Any], None]] = []

    def source(self, name: str, one: Any, payloads: Iterable[Any] = ()) -> deque[Any]:
        """Offer payloads to a stream of the block; what is appended to the queue comes later."""
        queue = deque(payloads)
        self._sources.append((_Stream(name, one, self.random), queue))
        return queue

    def sink(self, name: str, one: Any, take: Callable[[Any], None]) -> None:
        """Take what a stream of the block offers."""
        self._sinks.append((_Stream(name, one, self.random), take))

    def drive(self, function: Callable[[Any], None]) -> None:
        """Call a function in each cycle before anything is looked at, to set other inputs."""
        self._drives.append(function)

    def look(self, function: Callable[[Any], None]) -> None:
        """Call a function in each cycle when all inputs are set."""
        self._looks.append(function)

    def run(self, done: Callable[[], bool], limit: int) -> None:
        """Run until all is done and every source is empty.

        Raises:
            AssertionError: after `limit` cycles, or when a model or a stream sees something wrong.
        """

        async def bench(ctx: Any) -> None:
            offering = [False] * len(self._sources)
            while not (done() and not any(queue for _, queue in self._sources)):
                assert self.cycle < limit, f"not done after {limit} cycles"
                for function in self._drives:
                    function(ctx)
                for k, (stream, queue) in enumerate(self._sources):
                    chosen = stream.choose(self.cycle)
                    offering[k] = bool(queue) and (offering[k] or chosen)
                    ctx.set(stream.one.valid, offering[k])
                    if offering[k]:
                        ctx.set(stream.one.payload, queue[0])
                for stream, _ in self._sinks:
                    chosen = stream.choose(self.cycle)
                    if not stream.always_ready:
                        ctx.set(stream.one.ready, chosen)
                for k, (stream, queue) in enumerate(self._sources):
                    if stream.look(ctx, watched=False) is not None:
                        queue.popleft()
                        offering[k] = False
                for stream, take in self._sinks:
                    payload = stream.look(ctx, watched=True)
                    if payload is not None:
                        take(payload)
                for function in self._looks:
                    function(ctx)
                await ctx.tick()
                self.cycle += 1

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
