"""Queues and streams: nothing is lost, nothing is made, and what is offered stays until it is taken."""

from dataclasses import replace

from amaranth import Cat, Mux, Signal
from npukit.hw.bus import ReadChannels, WriteChannels
from npukit.hw.fetch import FetchUnit
from npukit.hw.issue import IssueQueue
from npukit.hw.load import LoadEngine
from npukit.hw.queue import Queue
from npukit.hw.store import StoreEngine
from npukit.isa.config import PRESETS
from npukit.isa.instructions import ENGINES, Vector
from npukit.isa.timing import READ_OUTSTANDING
from proofs.harness import Fault, Model, Proof

__all__ = ["PROOFS"]

CONFIG = replace(PRESETS["int8-4x4"], queue_depth=2)


def queue(depth: int):
    """What goes in comes out, in order, and nothing else: followed for a payload that goes in at any time."""

    def build(model: Model) -> None:
        dut = model.block("queue", Queue, 4, depth)
        pushes, pops = dut.writes.valid & dut.writes.ready, dut.reads.valid & dut.reads.ready
        level = Signal(range(depth + 1), name="level")
        model.m.d.sync += level.eq(level + pushes - pops)
        # one payload is followed: how many are before it
        chosen = model.free("chosen", 1)
        followed, before, payload = Signal(), Signal(range(depth + 1), name="before"), Signal(4)
        m = model.m
        with m.If(pops):
            m.d.sync += before.eq(before - 1)
            with m.If(before == 0):
                m.d.sync += followed.eq(0)
        with m.If(pushes & chosen & ~followed):
            m.d.sync += [followed.eq(1), before.eq(level - pops), payload.eq(dut.writes.payload)]
        model.claim("room", dut.writes.ready == (level != depth))
        model.claim("something there", dut.reads.valid == (level != 0))
        model.claim("in order", ~(followed & (before == 0)) | (dut.reads.payload == payload))
        model.claim("it is there", ~followed | (before < level))
        model.claim("never too many", level <= depth)
        model.stream_out("reads", dut.reads)

    return build


def issue(model: Model) -> None:
    """An instruction goes on once its tokens are there, and with `drain` once nothing is in flight; none is lost."""
    dut = model.block("issue", IssueQueue, CONFIG, Vector)
    model.stream_in(dut.queued)
    in_flight, waiting = Signal(8, name="spec_in_flight"), Signal(range(CONFIG.queue_depth + 1), name="spec_waiting")
    queued, issued = dut.queued.valid & dut.queued.ready, dut.issued.valid & dut.issued.ready
    model.m.d.sync += [in_flight.eq(in_flight + issued - dut.ended), waiting.eq(waiting + queued - issued)]
    model.assume(~dut.ended | (in_flight != 0))
    model.assume((in_flight < 100) | ~dut.issued.ready)
    oldest = dut.issued.payload
    tokens = (oldest.wait & ~dut.there) == 0
    drained = ~oldest.drain | (in_flight == 0)
    model.claim("in flight", dut.in_flight == in_flight)
    model.claim("waiting", dut.queue.level == waiting)
    model.claim("tokens are there", ~dut.issued.valid | tokens)
    model.claim("drained", ~dut.issued.valid | drained)
    model.claim("goes on when it can", (waiting == 0) | dut.stop | dut.issued.valid | ~(tokens & drained))
    model.claim("nothing when stopped", ~dut.stop | ~(queued | issued))
    model.claim("idle", dut.idle == ((in_flight == 0) & (waiting == 0)))
    model.claim("room", dut.stop | (dut.queued.ready == (waiting != CONFIG.queue_depth)))


def reads(model: Model) -> None:
    """AR as AXI4 wants it; every burst has a place in the order, and each beat goes to whose burst it is of."""
    dut = model.block("reads", ReadChannels, CONFIG)
    axi = dut.axi
    model.stream_in(dut.instructions)
    model.stream_in(dut.operands)
    model.assume(model.first | (model.past(dut.program) == dut.program))
    model.assume(model.first | (model.past(dut.base) == dut.base))
    waits = model.past(axi.arvalid & ~axi.arready)
    address = Cat(axi.araddr, axi.arlen, axi.arsize, axi.arburst, axi.arid)
    model.claim("held", dut.held == waits)
    holds = Mux(dut.holder.operand, dut.operands.valid & ~dut.operands.payload.outside, dut.instructions.valid)
    model.claim("who holds the bus still asks", ~dut.held | holds)
    model.claim("ARVALID stays", ~waits | axi.arvalid)
    model.claim("the address stays", ~waits | (model.past(address) == address))
    accepted = axi.arvalid & axi.arready
    fetches, loads = (one.valid & one.ready for one in (dut.instructions, dut.operands))
    model.claim("one burst of one owner", accepted == (fetches ^ loads))
    model.claim("never both", ~(fetches & loads))
    model.claim("FETCH's address", ~fetches | (axi.araddr == (dut.program + dut.instructions.payload.offset)[:64]))
    model.claim("LOAD's address", ~loads | (axi.araddr == (dut.base + dut.operands.payload.address)[:64]))
    model.claim("not outside", ~loads | ~dut.operands.payload.outside)
    model.claim("nothing new when stopped", ~dut.stop | ~axi.arvalid | waits)
    # memory answers bursts that were accepted, in their order
    outstanding = Signal(range(READ_OUTSTANDING + 2), name="outstanding")
    last = axi.rvalid & axi.rready & axi.rlast
    model.m.d.sync += outstanding.eq(outstanding + accepted - last)
    model.claim("the order has them all", dut.order.level == outstanding)
    model.claim("a place is kept for who holds the bus", ~dut.held | (outstanding <= READ_OUTSTANDING))
    model.claim("not more than there are places", outstanding <= READ_OUTSTANDING + 1)
    model.claim("none is accepted that has no place", ~accepted | (outstanding <= READ_OUTSTANDING))
    model.assume(~axi.rvalid | (outstanding != 0))
    model.claim("a beat has an owner", ~axi.rvalid | (dut.instruction_beats.valid ^ dut.operand_beats.valid))
    model.claim("FETCH's beats are taken", ~dut.instruction_beats.valid | axi.rready)
    model.claim(
        "LOAD's beats are taken with LOAD",
        ~dut.operand_beats.valid | (axi.rready == (dut.operand_beats.ready | dut.stop)),
    )
    model.claim("outstanding", dut.outstanding == ((outstanding != 0) | waits))


def writes(model: Model) -> None:
    """AW and W as AXI4 wants them."""
    dut = model.block("writes", WriteChannels, CONFIG)
    axi = dut.axi
    model.stream_in(dut.requests)
    model.stream_in(dut.beats)
    model.assume(model.first | (model.past(dut.base) == dut.base))
    for name, valid, ready, signals in (
        ("AW", axi.awvalid, axi.awready, (axi.awaddr, axi.awlen, axi.awsize, axi.awburst)),
        ("W", axi.wvalid, axi.wready, (axi.wdata, axi.wstrb, axi.wlast)),
    ):
        waits = model.past(valid & ~ready)
        model.claim(f"{name}VALID stays", ~waits | valid)
        model.claim(f"{name} stays the same", ~waits | (model.past(Cat(*signals)) == Cat(*signals)))
    accepted = axi.awvalid & axi.awready
    model.claim("a request is one burst", accepted == (dut.requests.valid & dut.requests.ready))
    model.claim("address", ~accepted | (axi.awaddr == (dut.base + dut.requests.payload.address)[:64]))
    model.claim("not outside", ~axi.awvalid | ~dut.requests.payload.outside)
    model.claim("nothing new when stopped", ~dut.stop | ~axi.awvalid | model.past(axi.awvalid & ~axi.awready))


def fetch(model: Model) -> None:
    """FETCH's streams."""
    dut = model.block("fetch", FetchUnit, CONFIG)
    model.assume(~dut.start | ~dut.running)
    model.assume(~dut.stop)
    model.assume(~model.past(dut.start | dut.running) | (model.past(dut.length) == dut.length))
    # memory answers what was asked for
    asked = Signal(16)
    burst = Mux(dut.requests.valid & dut.requests.ready, dut.requests.payload.beats + 1, 0)
    model.m.d.sync += asked.eq(asked + burst - dut.beats.valid)
    model.assume(~dut.beats.valid | (asked != 0))
    model.stream_out("requests", dut.requests)
    for engine in ENGINES:
        model.stream_out(f"queue of {engine.name}", dut.queues[engine])
    there = Cat(queue.valid for queue in dut.queues)
    model.claim("one engine", (there & (there - 1)[: len(there)]) == 0)


def load(model: Model) -> None:
    """LOAD's streams."""
    dut = model.block("load", LoadEngine, CONFIG)
    model.stream_in(dut.instructions)
    model.stream_out("requests", dut.requests)
    model.stream_out("ports", dut.ports)


def store(model: Model) -> None:
    """STORE's streams."""
    dut = model.block("store", StoreEngine, CONFIG)
    model.stream_in(dut.instructions)
    model.stream_out("requests", dut.requests)
    model.stream_out("ports", dut.ports)


PROOFS = (
    *(
        Proof(
            f"queue of {depth}",
            "What goes into a queue comes out, in order and once; it has room but when full, and something but "
            "when empty.",
            queue(depth),
            3 * depth + 2,
            None,
            (
                Fault("one place less", "hw.queue", "depth=self.depth)", "depth=max(1, self.depth - 1))"),
                Fault("writes though full", "hw.queue", "self.writes.ready.eq(fifo.w_rdy)", "self.writes.ready.eq(1)"),
                Fault("reads though empty", "hw.queue", "self.reads.valid.eq(fifo.r_rdy)", "self.reads.valid.eq(1)"),
            )[depth == 1 :],
        )
        for depth in (1, 2, 5)
    ),
    Proof(
        "issue",
        "An instruction is issued when, and only when, its tokens are there and what it waits for has drained.",
        issue,
        8,
        1,
        (
            Fault("drain ignored", "hw.issue", " & (~oldest.drain | (in_flight == 0))", ""),
            Fault(
                "any token will do",
                "hw.issue",
                "((oldest.wait & ~self.there) == 0)",
                "((oldest.wait & self.there) != 0)",
            ),
            Fault(
                "goes on when stopped",
                "hw.issue",
                "present.eq(queue.reads.valid & ~self.stop)",
                "present.eq(queue.reads.valid)",
            ),
        ),
    ),
    Proof(
        "read channels",
        "AR keeps AXI4's contract; no burst without a place in the order; a beat goes to its burst's owner.",
        reads,
        6,
        2,
        (
            Fault("an address that waits may change", "hw.bus", "Mux(held, holder.operand, ~fetches)", "~fetches"),
            Fault(
                "a stop takes an address back",
                "hw.bus",
                "axi.arvalid.eq(held | (",
                "axi.arvalid.eq(((held & ~self.stop) | ",
            ),
            Fault(
                "a burst outside is read",
                "hw.bus",
                "operands.valid & ~operands.payload.outside & ",
                "operands.valid & ",
            ),
        ),
    ),
    Proof(
        "write channels",
        "AW and W keep AXI4's contract.",
        writes,
        4,
        1,
        (
            Fault("a stop takes an address back", "hw.bus", "(~self.stop | self.held)", "~self.stop"),
            Fault(
                "a burst outside is written",
                "hw.bus",
                "requests.valid & ~requests.payload.outside & ",
                "requests.valid & ",
            ),
            Fault(
                "taken before the bus does",
                "hw.bus",
                "requests.ready.eq(axi.awvalid & axi.awready)",
                "requests.ready.eq(axi.awready)",
            ),
        ),
    ),
    Proof(
        "FETCH's streams",
        "What FETCH offers stays until it is taken, and goes to one engine.",
        fetch,
        12,
        None,
        (
            Fault(
                "wants what it asked for", "hw.fetch", "m.d.sync += [want.eq(same), ", "m.d.sync += [want.eq(after), "
            ),
            Fault("the oldest moves on", "hw.fetch", "with m.If(gone):", "with m.If(gone | asks):"),
            Fault(
                "to all engines",
                "hw.fetch",
                "queue.valid.eq(present & known & ~final & mine)",
                "queue.valid.eq(present & known & ~final)",
            ),
        ),
    ),
    Proof(
        "LOAD's streams",
        "What LOAD offers stays until it is taken.",
        load,
        10,
        None,
        (
            Fault(
                "asks for none while a beat comes",
                "hw.load",
                "eq(issued.valid & ~running)",
                "eq(issued.valid & ~running & ~self.beats.valid)",
            ),
            Fault("the oldest goes on by itself", "hw.load", "issued.ready.eq(start)", "issued.ready.eq(~running)"),
            Fault("the next one's bank", "hw.load", "1 << waiting.bank, 0)", "1 << self.instructions.payload.bank, 0)"),
        ),
    ),
    Proof(
        "STORE's streams",
        "What STORE offers stays until it is taken.",
        store,
        10,
        None,
        (
            Fault(
                "no room for the answer",
                "hw.store",
                "room = accepted.writes.ready & responses.writes.ready",
                "room = accepted.writes.ready & ~self.response",
            ),
            Fault(
                "asks when nothing waits",
                "hw.store",
                "self.ports.valid.eq(is_waiting & ~running)",
                "self.ports.valid.eq(is_waiting & ~issue & ~self.response)",
            ),
            Fault(
                "the next one's bank",
                "hw.store",
                "act_read.eq(1 << waiting.bank)",
                "act_read.eq(1 << self.instructions.payload.bank)",
            ),
        ),
    ),
)
