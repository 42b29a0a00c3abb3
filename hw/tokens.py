"""Token counters between every ordered pair of engines."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from npukit.isa.instructions import ENGINES
from npukit.isa.timing import TOKEN_LIMIT

__all__ = ["TokenCounters"]


class TokenCounters(wiring.Component):
    """Ends add tokens, issues take them; both are seen in the next cycle.

    Members, each with one for every engine:
        ends: streams in, the engines that get a token as it ends an instruction.
        issues: streams in, the engines of which it uses up a token as it issues one.
        there: engines of which it has a token.
        overflow: a token counter of those that it adds to would have passed 255 in the cycle before.
        clear: all to 0.

    Attributes:
        counts: registers, the tokens that an engine has of another: by who gave them and who has them.
    """

    def __init__(self) -> None:
        count = len(ENGINES)
        engines = stream.Signature(count, always_ready=True)
        super().__init__(
            {
                "ends": In(engines).array(count),
                "issues": In(engines).array(count),
                "there": Out(count).array(count),
                "overflow": Out(count),
                "clear": In(1),
            }
        )
        self.counts = {
            (source, target): Signal(range(TOKEN_LIMIT + 1), name=f"tokens_{source}_{target}")
            for source in range(count)
            for target in range(count)
            if source != target
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for source, end in enumerate(self.ends):
            overflows = []
            for target, issue in enumerate(self.issues):
                if source == target:
                    continue
                tokens = self.counts[source, target]
                more = end.valid & end.payload[target]
                fewer = issue.valid & issue.payload[source]
                m.d.sync += tokens.eq(tokens + more - fewer)
                with m.If(self.clear):
                    m.d.sync += tokens.eq(0)
                m.d.comb += self.there[target][source].eq(tokens != 0)
                overflows.append((tokens == TOKEN_LIMIT) & more & ~fewer)
            m.d.sync += self.overflow[source].eq(Cat(overflows).any())
        return m
