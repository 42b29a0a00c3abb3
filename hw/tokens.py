"""Token counters between every ordered pair of engines."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.isa.instructions import ENGINES
from npukit.isa.timing import TOKEN_LIMIT

__all__ = ["TokenCounters"]


class TokenCounters(wiring.Component):
    """Ends add tokens, issues take them; both are seen in the next cycle.

    Members, for each engine e: end_<e>, signal_<e>: it ends an instruction with that mask; issue_<e>,
    wait_<e>: it issues one with that mask; there_<e>: engines from which it has a token. clear: all
    to 0. overflow: counters that would have passed 255 in the cycle before, a bit for each engine that ended.
    """

    def __init__(self) -> None:
        count = len(ENGINES)
        members = {"overflow": Out(count), "clear": In(1)}
        for engine in range(count):
            members |= {
                f"end_{engine}": In(1),
                f"signal_{engine}": In(count),
                f"issue_{engine}": In(1),
                f"wait_{engine}": In(count),
                f"there_{engine}": Out(count),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for source in range(len(ENGINES)):
            overflows = []
            for target in range(len(ENGINES)):
                if source == target:
                    continue
                tokens = Signal(range(TOKEN_LIMIT + 1), name=f"tokens_{source}_{target}")
                more = getattr(self, f"end_{source}") & getattr(self, f"signal_{source}")[target]
                fewer = getattr(self, f"issue_{target}") & getattr(self, f"wait_{target}")[source]
                m.d.sync += tokens.eq(tokens + more - fewer)
                with m.If(self.clear):
                    m.d.sync += tokens.eq(0)
                m.d.comb += getattr(self, f"there_{target}")[source].eq(tokens != 0)
                overflows.append((tokens == TOKEN_LIMIT) & more & ~fewer)
            m.d.sync += self.overflow[source].eq(Cat(overflows).any())
        return m
