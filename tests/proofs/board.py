"""What is beside the accelerator on a board: who reaches memory, and the host's serial line."""

from amaranth import Cat, DomainRenamer, EnableInserter, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.fpga.double_rate import FAST, DoubleRateBridge
from npukit.fpga.interconnect import MemoryArbiter
from npukit.fpga.link import HostLink
from npukit.fpga.register_slice import RegisterSlice
from npukit.fpga.uart import UartReceiver, UartTransmitter
from npukit.isa.host_link import Identity
from proofs.harness import Fault, Model, Proof

__all__ = ["PROOFS"]

_DIVISOR = 4
_FRAME = 10 * _DIVISOR
"""Cycles of a byte on the line: a start bit, eight of data, a stop bit."""


def _address(bus, side: str) -> Value:
    return Cat(getattr(bus, f"{side}{name}") for name in ("addr", "len", "size", "burst"))


def arbiter(model: Model) -> None:
    """AXI4's contract towards memory, each answer to whom it is for, and nobody waits for more than one burst."""
    dut = model.block("arbiter", MemoryArbiter, 4)
    npu, host, memory = dut.npu, dut.host, dut.memory
    m = model.m
    for side in ("ar", "aw"):
        for bus in (npu, host):
            valid, ready = getattr(bus, f"{side}valid"), getattr(bus, f"{side}ready")
            waits = model.past(valid & ~ready)
            model.assume(~waits | valid)
            model.assume(~waits | (model.past(_address(bus, side)) == _address(bus, side)))
    busy: dict[str, Signal] = {}
    # the host has one access at a time: no further address before it is answered
    for side, answered in (("ar", host.rvalid & host.rready & host.rlast), ("aw", host.bvalid & host.bready)):
        taken = getattr(host, f"{side}valid") & getattr(host, f"{side}ready")
        busy[side] = Signal(name=f"host_busy_{side}")
        with m.If(answered):
            m.d.sync += busy[side].eq(0)
        with m.If(taken):
            m.d.sync += busy[side].eq(1)
        model.assume(~busy[side] | ~getattr(host, f"{side}valid"))
    # memory answers what it has taken, with its data
    model.assume(~(memory.rvalid & (memory.rid == 1)) | busy["ar"])
    model.assume(~(memory.bvalid & (memory.bid == 1)) | (busy["aw"] & ~(dut.writing & dut.whose)))
    for side in ("ar", "aw"):
        valid, ready = getattr(memory, f"{side}valid"), getattr(memory, f"{side}ready")
        identity = getattr(memory, f"{side}id")
        waits = model.past(valid & ~ready)
        present = Cat(_address(memory, side), identity)
        model.claim(f"{side} stays", ~waits | valid)
        model.claim(f"{side} stays the same", ~waits | (model.past(present) == present))
        taken = [getattr(bus, f"{side}valid") & getattr(bus, f"{side}ready") for bus in (npu, host)]
        model.claim(f"{side} of one manager", (valid & ready) == (taken[0] ^ taken[1]))
        model.claim(f"never both {side}", ~(taken[0] & taken[1]))
        for number, bus in enumerate((npu, host)):
            same = (identity == number) & (_address(memory, side) == _address(bus, side))
            model.claim(f"{side} is that of {number}", ~taken[number] | same)
        model.claim(f"{side} is held", dut.holds[side] == waits)
        model.claim(f"{side} is held for whom", ~dut.holds[side] | (dut.held[side] == model.past(identity)))
        # while the accelerator waits, memory takes one address of the host's at most
        passed = Signal(2, name=f"passed_{side}")
        with m.If(taken[0] | ~getattr(npu, f"{side}valid")):
            m.d.sync += passed.eq(0)
        with m.Elif(taken[1]):
            m.d.sync += passed.eq(passed + (passed != 3))
        model.claim(f"the accelerator waits for one {side} of the host's at most", passed < 2)
        mine = dut.holds[side] & ~dut.held[side]
        model.claim(f"then its {side} is next", (passed == 0) | mine | busy[side])
        if side == "aw":
            model.claim("what it waits for are the host's data", (passed == 0) | ~dut.writing | dut.whose)
        model.claim(
            f"the host waits for one {side} of the accelerator's at most", ~dut.holds[side] | dut.held[side] | ~taken[1]
        )
    model.claim("a beat is read by whose it is", ~memory.rvalid | (npu.rvalid ^ host.rvalid))
    model.claim("an answer is for one", ~memory.bvalid | (npu.bvalid ^ host.bvalid))
    model.claim(
        "a beat is taken by whose it is",
        (memory.rvalid & memory.rready) == ((npu.rvalid & npu.rready) | (host.rvalid & host.rready)),
    )
    # data of a burst come after its address, of its manager alone
    owed, whose = Signal(name="owed"), Signal(name="whose")
    with m.If(memory.wvalid & memory.wready & memory.wlast):
        m.d.sync += owed.eq(0)
    with m.If(memory.awvalid & memory.awready):
        m.d.sync += [owed.eq(1), whose.eq(memory.awid)]
    model.claim("what is owed", (dut.writing == owed) & (~owed | (dut.whose == whose)))
    model.claim("data follow an address", ~memory.wvalid | owed)
    model.claim("no address between an address and its data", ~owed | ~memory.awvalid)
    model.claim("data of the accelerator", ~(npu.wvalid & npu.wready) | (owed & ~whose & memory.wready))
    model.claim("data of the host", ~(host.wvalid & host.wready) | (owed & whose & memory.wready))


def register_slice(model: Model) -> None:
    """On each channel: what comes in goes out, in order and once, and there is room but for two that wait."""
    dut = model.block("border", RegisterSlice, 4)
    m = model.m
    for channel, held in dut.held.items():
        forward = channel in ("ar", "aw", "w")
        source, sink = (dut.manager, dut.subordinate)[:: 1 if forward else -1]
        pushes, pops = (getattr(end, f"{channel}valid") & getattr(end, f"{channel}ready") for end in (source, sink))
        arriving, leaving = (Cat(getattr(end, name) for name in dut.payload(channel)) for end in (source, sink))
        level = Signal(range(3), name=f"{channel}_level")
        m.d.sync += level.eq(level + pushes - pops)
        # one that is followed: what it was, and how many are before it
        chosen = model.free(f"{channel}_chosen", 1)
        followed, before = Signal(name=f"{channel}_followed"), Signal(name=f"{channel}_before")
        payload = Signal(len(arriving), name=f"{channel}_payload")
        with m.If(pops):
            m.d.sync += before.eq(0)
            with m.If(before == 0):
                m.d.sync += followed.eq(0)
        with m.If(pushes & chosen & ~followed):
            m.d.sync += [followed.eq(1), before.eq(level - pops), payload.eq(arriving)]
        model.claim(f"{channel}: places in use", Cat(*held) == Mux(level == 2, 0b11, level))
        model.claim(f"{channel}: room", getattr(source, f"{channel}ready") == (level != 2))
        model.claim(f"{channel}: something there", getattr(sink, f"{channel}valid") == (level != 0))
        model.claim(f"{channel}: it is there", ~followed | (before < level))
        first, second = dut.kept[channel]
        model.claim(f"{channel}: it is as it was", ~followed | (Mux(before, second, first) == payload))
        model.claim(f"{channel}: the first goes", leaving == first)


class _Line(wiring.Component):
    """A transmitter and a receiver on one line."""

    def __init__(self, transmitter: wiring.Component, receiver: wiring.Component) -> None:
        self._transmitter, self._receiver = transmitter, receiver
        super().__init__(
            {
                "data": In(8), "valid": In(1), "ready": Out(1),
                "received": Out(8), "arrived": Out(1), "error": Out(1), "line": Out(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.transmitter, m.submodules.receiver = sender, receiver = self._transmitter, self._receiver
        m.d.comb += [
            sender.data.eq(self.data),
            sender.valid.eq(self.valid),
            self.ready.eq(sender.ready),
            self.line.eq(sender.tx),
            receiver.rx.eq(sender.tx),
            self.received.eq(receiver.data),
            self.arrived.eq(receiver.valid),
            self.error.eq(receiver.error),
        ]
        return m


def line(model: Model) -> None:
    """Each byte that is sent arrives once, as it was, in order, and before the next one."""
    dut = model.block("line", _Line, model.of(UartTransmitter)(_DIVISOR), model.of(UartReceiver)(_DIVISOR))
    # the receiver is a few cycles behind, so the next byte may have begun
    sent, count, age = [Signal(8), Signal(8)], Signal(2), [Signal(range(2 * _FRAME)), Signal(range(2 * _FRAME))]
    m = model.m
    begins = dut.valid & dut.ready
    newest = Signal()
    m.d.comb += newest.eq((count == 2) | ((count == 1) & ~dut.arrived))
    m.d.sync += [count.eq(count + begins - dut.arrived), *(one.eq(one + 1) for one in age)]
    with m.If(dut.arrived):
        m.d.sync += [sent[0].eq(sent[1]), age[0].eq(age[1] + 1)]
    with m.If(begins):
        for k in range(2):
            with m.If(newest == k):
                m.d.sync += [sent[k].eq(dut.data), age[k].eq(0)]
    model.claim("what arrives was sent", ~dut.arrived | ((count != 0) & (dut.received == sent[0])))
    model.claim("with its stop bit", ~dut.arrived | ~dut.error)
    model.claim("one behind at most", count <= 2)
    model.claim("in time", (count == 0) | (age[0] <= _FRAME + 2))


def link(model: Model) -> None:
    """AXI4-Lite's contract, whatever comes on the line: what is asked for stays, and one access at a time."""
    dut = model.block("link", HostLink, Identity("a board", 0, 0, 0, 1 << 25, _DIVISOR))
    bus = dut.bus
    m = model.m
    writes = Signal(2, name="halves")
    address, data = bus.awvalid & bus.awready, bus.wvalid & bus.wready
    reads = Signal(name="read_out")
    with m.If(bus.rvalid & bus.rready):
        m.d.sync += reads.eq(0)
    with m.If(bus.arvalid & bus.arready):
        m.d.sync += reads.eq(1)
    with m.If(address & data):
        m.d.sync += writes.eq(2)
    with m.Elif(address | data):
        m.d.sync += writes.eq(writes + 1)
    with m.If(bus.bvalid & bus.bready):
        m.d.sync += writes.eq(0)
    # a subordinate answers what it has taken
    model.assume(~bus.bvalid | (writes == 2))
    model.assume(~bus.rvalid | reads)
    for name, valid, ready, signals in (
        ("AW", bus.awvalid, bus.awready, (bus.awaddr,)),
        ("W", bus.wvalid, bus.wready, (bus.wdata, bus.wstrb)),
        ("AR", bus.arvalid, bus.arready, (bus.araddr,)),
    ):
        waits = model.past(valid & ~ready)
        model.claim(f"{name} stays", ~waits | valid)
        model.claim(f"{name} stays the same", ~waits | (model.past(Cat(*signals)) == Cat(*signals)))
    halves = writes + bus.awvalid + bus.wvalid
    model.claim("a write is one", Mux(dut.writing, halves == 2, halves == 0))
    model.claim("a read is one", Mux(dut.reading, bus.arvalid ^ reads, ~reads & ~bus.arvalid))
    model.claim("a write or a read", ~(bus.awvalid | bus.wvalid | (writes != 0)) | ~(bus.arvalid | reads))
    model.claim("no second address", ~bus.arvalid | ~reads)


def bridge(model: Model) -> None:
    """The model's clock is the faster one; `sync` has every second of its edges."""
    half = model.register(lambda value: ~value, 1, "half")
    dut = model.block(
        "bridge",
        DoubleRateBridge,
        4,
        clocked=lambda one: DomainRenamer({FAST: "sync"})(EnableInserter({"sync": half})(one)),
    )
    slow, fast = dut.slow, dut.fast
    started = model.register(lambda value: value + (value != 7), 3, "started")
    there = (started >= 4) & half
    for channel in ("ar", "aw", "w", "r", "b"):
        valid, ready = f"{channel}valid", f"{channel}ready"
        here = getattr(slow, valid) & getattr(slow, ready)
        beyond = getattr(fast, valid) & getattr(fast, ready)
        model.claim(f"{channel}: the same handshakes", ~there | (here == beyond))
        model.claim(f"{channel}: none in the first half", half | ~beyond)
    second = dut.fast.arvalid
    model.assume(slow.arvalid)
    model.claim("in every cycle", (started < 4) | (second == half))
    model.cover("a beat is read", there & slow.rvalid & slow.rready)


_ARBITER, _LINK, _UART, _RATE = "fpga.interconnect", "fpga.link", "fpga.uart", "fpga.double_rate"
_SLICE = "fpga.register_slice"
PROOFS = (
    Proof(
        "memory arbiter",
        "Each address, beat and answer belongs to one manager; addresses keep AXI4's contract; data follow "
        "their address; nobody "
        "waits for more than one burst of the other.",
        arbiter,
        8,
        2,
        (
            Fault(
                "an address that waits may change",
                _ARBITER,
                'choice.eq(Mux(holds, held, host_valid := of[host]["valid"]))',
                'choice.eq(host_valid := of[host]["valid"])',
            ),
            Fault("an address before the data", _ARBITER, "allowed.eq(~writing)", "allowed.eq(1)"),
            Fault(
                "answers to both",
                _ARBITER,
                "bus.bvalid.eq(memory.bvalid & (memory.bid == number))",
                "bus.bvalid.eq(memory.bvalid)",
            ),
        ),
    ),
    Proof(
        "two rates",
        "A handshake of the bus is one with a memory controller at twice the clock, in the second half of each cycle.",
        bridge,
        12,
        6,
        (
            Fault("both halves", _RATE, "other.eq(mine & second if name in gated else mine)", "other.eq(mine)"),
            Fault("the first half", _RATE, "second.eq(turn != seen)", "second.eq(turn == seen)"),
            Fault(
                "answers in both",
                _RATE,
                'f"{channel}ready" for channel in _ANSWERED',
                'f"{channel}ready" for channel in ()',
            ),
        ),
    ),
    Proof(
        "register slice",
        "What comes into a register slice goes out, in order and once; it has room but for a third beat.",
        register_slice,
        4,
        1,
        (
            Fault("one place less", _SLICE, 'ready").eq(~spare_held)', 'ready").eq(~shown_held)'),
            Fault("overtakes", _SLICE, "Mux(spare_held, spare, arriving)", "arriving"),
            Fault("overwrites", _SLICE, "with m.If(~stays):", "with m.If(comes):"),
            Fault("loses the spare one", _SLICE, "stays | spare_held | comes", "stays | comes"),
        ),
    ),
    Proof(
        "serial line",
        "A byte that is sent arrives, once, as it was, and within its ten bits.",
        line,
        _FRAME + 20,
        None,
        (
            Fault("samples too early", _UART, "self._divisor + self._divisor // 2 - 1", "self._divisor // 2 - 1"),
            Fault("nine bits", _UART, "bits.eq(10)", "bits.eq(9)"),
            Fault("the high bit first", _UART, "Cat(self.data[1:], rx)", "Cat(rx, self.data[:7])"),
        ),
    ),
    Proof(
        "host link",
        "Whatever bytes come, the board's end of the link keeps AXI4-Lite's contract, one access at a time.",
        link,
        8,
        1,
        (
            Fault("goes on before the answer", _LINK, "with m.If(bus.bvalid):", "with m.If(~bus.awvalid):"),
            Fault("asks until it is answered", _LINK, "with m.If(bus.arready):", "with m.If(bus.rvalid):"),
            Fault(
                "the next word in the middle",
                _LINK,
                "with m.If(bus.awready):\n                    m.d.sync += bus.awvalid.eq(0)",
                "with m.If(bus.awready):\n                    m.d.sync += [bus.awvalid.eq(0), word.eq(0)]",
            ),
        ),
    ),
)
