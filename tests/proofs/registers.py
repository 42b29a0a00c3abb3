"""The register file equals its declaration."""

from amaranth import Cat, Mux, Signal, Value
from npukit.hw.axi import OKAY, SLAVE_ERROR
from npukit.hw.registers import RegisterFile
from npukit.isa.registers import COUNTERS, REGISTERS, ControlBit, address_of
from proofs.harness import Fault, Model, Proof

__all__ = ["PROOFS"]

_FIRST_COUNTER = address_of(f"{COUNTERS[0][0].upper()}_LOW")
_WRITABLE = [one for one in REGISTERS if one.access in ("rw", "w1c")]


def _channel(model: Model, name: str, valid: Value, ready: Value, *signals: Value) -> None:
    """Assume that a manager keeps AXI's contract."""
    waits = model.past(valid & ~ready)
    model.assume(~waits | valid)
    model.assume(~waits | (model.past(Cat(*signals)) == Cat(*signals)))


def writes(model: Model) -> None:
    """A register that may be written holds what was written, byte by byte, and nothing else changes one, but events,
    which set their bits of INTERRUPT_STATUS."""
    dut = model.block("registers", RegisterFile, 0)
    bus = dut.bus
    _channel(model, "AW", bus.awvalid, bus.awready, bus.awaddr)
    _channel(model, "W", bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
    # an access happens in the cycle behind the one in which its later half is taken
    address, data, strobe = Signal(10), Signal(32), Signal(4)
    has_address, has_data = Signal(), Signal()
    m = model.m
    takes_address, takes_data = bus.awvalid & bus.awready, bus.wvalid & bus.wready
    with m.If(takes_address):
        m.d.sync += [address.eq(bus.awaddr[2:]), has_address.eq(1)]
    with m.If(takes_data):
        m.d.sync += [data.eq(bus.wdata), strobe.eq(bus.wstrb), has_data.eq(1)]
    access = Signal()
    m.d.comb += access.eq(has_address & has_data)
    with m.If(access):
        m.d.sync += [has_address.eq(0), has_data.eq(0)]
    is_control = (address == address_of("CONTROL") // 4) & strobe[0]
    resets = access & is_control & data[ControlBit.RESET]
    allowed = ~dut.busy | resets
    model.claim("reset", dut.reset_core == resets)
    model.claim("start", dut.start == (access & is_control & data[ControlBit.START] & ~resets & ~dut.busy))
    anytime = Cat(address == one.offset // 4 for one in REGISTERS if one.while_busy).any()
    held: dict[str, Signal] = {}
    for one in _WRITABLE:
        value = held[one.name] = Signal(32, name=f"spec_{one.name.lower()}", init=one.reset)
        mask = (1 << one.width) - 1
        with m.If(access & (allowed | one.while_busy) & (address == one.offset // 4)):
            for byte in range(4):
                before, written = value.word_select(byte, 8), data.word_select(byte, 8) & (mask >> 8 * byte & 0xFF)
                with m.If(strobe[byte]):
                    m.d.sync += before.eq(before & ~written if one.access == "w1c" else written)
        if one.name == "INTERRUPT_STATUS":
            for place, event in enumerate(dut.interrupt_events.as_value()):
                with m.If(event):
                    m.d.sync += value[place].eq(1)
        with m.If(dut.clear):
            m.d.sync += value.eq(one.reset)
        model.claim(f"{one.name} holds what was written", dut.value(one.name) == value)
    model.claim("irq", dut.irq == (held["INTERRUPT_STATUS"] & held["INTERRUPT_ENABLE"]).any())
    model.claim("what has come", Cat(dut.write.has_address, dut.write.has_data) == Cat(has_address, has_data))
    model.claim("its address", ~has_address | (dut.write.word == address))
    model.claim("its data", ~has_data | (Cat(dut.write.data, dut.write.strobe) == Cat(data, strobe)))
    known = Cat(address == one.offset // 4 for one in REGISTERS).any()
    answer = Signal(2)
    with m.If(access):
        m.d.sync += answer.eq(Mux((allowed & known) | anytime, OKAY, SLAVE_ERROR))
    responding = Signal()
    with m.If(bus.bvalid & bus.bready):
        m.d.sync += responding.eq(0)
    with m.If(access):
        m.d.sync += responding.eq(1)
    model.claim("an answer to each write", bus.bvalid == responding)
    model.claim("what it says", ~bus.bvalid | (bus.bresp == answer))
    model.claim("one write at a time", ~responding | ~(has_address | has_data))
    model.claim("takes an address when it has none", bus.awready == ~(has_address | responding))
    model.claim("takes data when it has none", bus.wready == ~(has_data | responding))


def reads(model: Model) -> None:
    """A read returns what the register holds in the second cycle after its address was taken."""
    dut = model.block("registers", RegisterFile, 0)
    bus = dut.bus
    _channel(model, "AR", bus.arvalid, bus.arready, bus.araddr)
    m = model.m
    address, asked, fetched = Signal(10), Signal(), Signal()
    with m.If(bus.arvalid & bus.arready):
        m.d.sync += address.eq(bus.araddr[2:])
    m.d.sync += [asked.eq(bus.arvalid & bus.arready), fetched.eq(asked)]
    expected, answer = Signal(32), Signal(2)
    at_counter = (address >= _FIRST_COUNTER // 4) & (address < _FIRST_COUNTER // 4 + 2 * len(COUNTERS))
    half = address - _FIRST_COUNTER // 4
    with m.If(asked):
        m.d.sync += [expected.eq(0), answer.eq(SLAVE_ERROR)]
        for one in REGISTERS:
            with m.If(address == one.offset // 4):
                m.d.sync += answer.eq(OKAY)
                if one.access != "wo" and one.offset < _FIRST_COUNTER:
                    m.d.sync += expected.eq(dut.value(one.name))
    with m.If(fetched & at_counter):
        m.d.sync += expected.eq(dut.counter.word_select(half[0], 32))
    model.claim("counters are asked for", dut.counter_reading == (asked & at_counter))
    model.claim("which counter", ~dut.counter_reading | (dut.counter_index == half >> 1))
    responding = Signal()
    with m.If(bus.rvalid & bus.rready):
        m.d.sync += responding.eq(0)
    with m.If(fetched):
        m.d.sync += responding.eq(1)
    model.claim("an answer to each read", bus.rvalid == responding)
    model.claim("what it returns", ~bus.rvalid | (bus.rdata == expected))
    model.claim("what it says", ~bus.rvalid | (bus.rresp == answer))
    model.claim("one read at a time", bus.arready == ~(asked | fetched | responding))


_FILE = "hw.registers"
PROOFS = (
    Proof(
        "register writes",
        "A write changes the bytes of its register that it names, and nothing else; while a program runs, "
        "none but a reset does, and those to registers of interrupts, of which no event is lost.",
        writes,
        8,
        1,
        (
            Fault("three bytes", _FILE, "range(-(-register.width // 8))", "range(min(3, -(-register.width // 8)))"),
            Fault("written while busy", _FILE, "(~self.busy | control.reset, [one", "(1, [one"),
            Fault("no interrupts while busy", _FILE, "(1, [one", "(~self.busy, [one"),
            Fault(
                "an event that is lost",
                _FILE,
                "            with m.If(event):\n",
                "            with m.If(event & ~now):\n",
            ),
            Fault("ones that are kept", _FILE, "mine & ~written if", "mine & written if"),
            Fault(
                "starts though it resets",
                _FILE,
                "control.start & ~control.reset & ~self.busy",
                "control.start & ~self.busy",
            ),
            Fault(
                "a clear that sets", _FILE, "self.value(one.name).eq(one.reset) for", "self.value(one.name).eq(1) for"
            ),
        ),
    ),
    Proof(
        "register reads",
        "A read returns what its register holds, a counter's halves among them; what does not exist answers SLVERR.",
        reads,
        8,
        3,
        (
            Fault("the other half", _FILE, "high.eq(counter[0])", "high.eq(~counter[0])"),
            Fault(
                "another answer for what is not 0",
                _FILE,
                "bus.rresp.eq(OKAY)\n                        if register.access",
                "bus.rresp.eq(OKAY if register.reset == 0 else 3)\n                        if register.access",
            ),
            Fault(
                "a counter too many",
                _FILE,
                "(word < _FIRST_COUNTER // 4 + 2 * len(COUNTERS))",
                "(word <= _FIRST_COUNTER // 4 + 2 * len(COUNTERS))",
            ),
        ),
    ),
)
