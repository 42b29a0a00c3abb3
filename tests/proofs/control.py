"""Tokens and ports: what keeps the engines apart."""

from dataclasses import replace

from amaranth import Cat, Mux, Signal, Value
from npukit.hw.ports import PortOwners, port_masks
from npukit.hw.tokens import TokenCounters
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES
from npukit.isa.timing import TOKEN_LIMIT, Timing
from proofs.harness import Fault, Model, Proof

__all__ = ["PROOFS"]

COUNT = len(ENGINES)
CONFIG = replace(PRESETS["int8-4x4"], act_banks=2, acc_banks=1)


def tokens(model: Model) -> None:
    """Every counter is ends less issues since the last clear, for any engines and masks."""
    dut = model.block("tokens", TokenCounters)
    overflowing = []
    for (source, target), count in dut.counts.items():
        end, issue = dut.ends[source], dut.issues[target]
        more, fewer = end.valid & end.payload[target], issue.valid & issue.payload[source]
        model.assume(~fewer | dut.there[target][source])  # what an issue queue promises
        wanted = Signal(range(2 * TOKEN_LIMIT), name=f"wanted_{source}_{target}")
        model.m.d.sync += wanted.eq(Mux(dut.clear, 0, wanted + more - fewer))
        overflows = (wanted == TOKEN_LIMIT) & more & ~fewer & ~dut.clear
        overflowing.append((source, overflows))
        model.assume(~overflows | dut.clear)
        model.claim(f"tokens of {source} for {target} are counted", count == wanted)
        model.claim(f"{target} sees tokens of {source}", dut.there[target][source] == (wanted != 0))


def overflow(model: Model) -> None:
    """The bit of an engine is high in the cycle after one in which a counter of its tokens could not go on."""
    dut = model.block("tokens", TokenCounters)
    for source in range(COUNT):
        full: Value = Cat(
            (count == TOKEN_LIMIT)
            & dut.ends[source].valid
            & dut.ends[source].payload[target]
            & ~(dut.issues[target].valid & dut.issues[target].payload[source])
            for (one, target), count in dut.counts.items()
            if one == source
        ).any()
        model.claim(f"overflow of {source}", dut.overflow[source] == model.past(full))


def ports(model: Model) -> None:
    """One engine holds a port, and as many of its instructions as were granted it and did not release it."""
    dut = model.block("ports", PortOwners, CONFIG)
    timing = Timing(CONFIG)
    most = max(timing.matrix_active, timing.vector_active)
    total = port_masks(CONFIG).size
    wants = [request.payload.as_value() for request in dut.requests]
    grants = [request.valid & request.ready for request in dut.requests]
    held = [[Signal(range(most + 2), name=f"held_{engine}_{k}") for k in range(total)] for engine in range(COUNT)]
    for engine in range(COUNT):
        model.claim(f"{engine} is granted what it asked for", ~dut.requests[engine].ready | dut.requests[engine].valid)
        for k in range(total):
            got, lets_go = grants[engine] & wants[engine][k], dut.released[engine].as_value()[k]
            model.m.d.sync += held[engine][k].eq(held[engine][k] + got - lets_go)
            # an engine lets go what it has, and starts no more than so many at once
            model.assume(~lets_go | (held[engine][k] != 0))
            model.assume(~got | (held[engine][k] < most) | lets_go)
    for k in range(total):
        holding = Cat(held[engine][k] != 0 for engine in range(COUNT))
        model.claim(f"port {k} has one holder", (holding & (holding - 1)[:COUNT]) == 0)
        mine = Cat((dut.holders[k] == held[engine][k]) & (dut.owners[k] == engine) for engine in range(COUNT))
        model.claim(f"port {k} is counted", Mux(holding.any(), (mine & holding).any(), dut.holders[k] == 0))
        both = Cat(grants[engine] & wants[engine][k] for engine in range(COUNT))
        model.claim(f"port {k} is granted once", (both & (both - 1)[:COUNT]) == 0)
    # no engine waits for nothing: the first in order that could have its ports has them
    for engine in range(COUNT):
        taken = Cat(
            Cat(held[other][k] != 0 for other in range(COUNT) if other != engine).any() & wants[engine][k]
            for k in range(total)
        ).any()
        before = Cat(grants[other] & (wants[other] & wants[engine]).any() for other in range(engine)).any()
        model.claim(
            f"{engine} has its ports when they are free", ~dut.requests[engine].valid | grants[engine] | taken | before
        )


PROOFS = (
    Proof(
        "tokens",
        "Each token counter is what its engine gave less what the other used up; none is lost or made, for "
        "all 255 values.",
        tokens,
        4,
        1,
        (
            Fault(
                "a token is lost where both meet",
                "hw.tokens",
                "tokens + more - fewer",
                "tokens + (more & ~fewer) - fewer",
            ),
            Fault("seven bits", "hw.tokens", "Signal(range(TOKEN_LIMIT + 1), ", "Signal(range(TOKEN_LIMIT // 2 + 1), "),
            Fault("a clear forgets", "hw.tokens", "m.d.sync += tokens.eq(0)", "m.d.sync += tokens.eq(1)"),
        ),
    ),
    Proof(
        "token overflow",
        "The cycle after a counter would have passed 255, and no other, says so.",
        overflow,
        4,
        1,
        (
            Fault("early", "hw.tokens", "(tokens == TOKEN_LIMIT)", "(tokens == TOKEN_LIMIT - 1)"),
            Fault("though one is taken", "hw.tokens", "& more & ~fewer", "& more"),
            Fault("one counter alone", "hw.tokens", "Cat(overflows).any()", "overflows[0]"),
        ),
    ),
    Proof(
        "ports",
        "A port has one engine; it is counted as often as it was granted and not released; who could start does.",
        ports,
        6,
        1,
        (
            Fault("no precedence", "hw.ports", "allowed & ~Cat(*before).any()", "allowed"),
            Fault("the owner stays", "hw.ports", "m.d.sync += owners[k].eq(engine)", "m.d.sync += owners[k].eq(0)"),
            Fault("a release is lost", "hw.ports", "with m.If(freed & ~got):", "with m.If(freed & ~got & (k != 1)):"),
        ),
    ),
)
