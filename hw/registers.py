"""The register file: `npukit.isa.registers` behind AXI4-Lite."""

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import OKAY, SLAVE_ERROR, axi_lite_signature
from npukit.isa.registers import COUNTERS, REGISTERS, ControlBit, InterruptBit, Register, RegisterBit, address_of

__all__ = ["RegisterFile", "bits_layout"]

_FIRST_COUNTER = address_of(f"{COUNTERS[0][0].upper()}_LOW")
"""Counters lie behind all other registers, each with its low half first."""


def bits_layout(of: type[RegisterBit]) -> data.StructLayout:
    """A register's bits by their names in lower case, from the lowest on, as far as they have a meaning."""
    assert [bit.value for bit in of] == list(range(len(of)))
    return data.StructLayout({bit.name.lower(): 1 for bit in of})


class _Write(data.Struct):
    """A write that is in progress: what of it has come."""

    has_address: 1
    has_data: 1
    word: 10
    data: 32
    strobe: 4


class RegisterFile(wiring.Component):
    """All registers, on one AXI4-Lite port.

    A write takes two cycles and a response: the first takes address and data, in either order or together,
    the second writes. `start` and `reset_core` are high in the second, so what they cause is seen
    in the cycle after it, cycle 0, in which the response is valid too. A read takes three cycles from address
    to data. One write and one read are in progress at a time. A register that does not exist
    answers SLVERR; one that may only be read ignores writes, one that may only be written reads as 0.

    While `busy`, any write but one that sets CONTROL's reset bit, or to a register of interrupts, answers SLVERR and
    changes nothing: addresses of bursts on the bus hang on these registers. A write that sets both bits of CONTROL only
    resets.

    An event sets its bit of INTERRUPT_STATUS, and one in the cycle in which that bit is cleared is not lost.

    Args:
        config_hash: value of CONFIG_HASH, the hash of the core's configuration.

    Members:
        bus: AXI4-Lite.
        start, reset_core: strobes of one cycle. busy: a program runs, or a reset waits. clear: gives `rw` registers
            their reset value.
        interrupt_events: strobes, a bit for each of INTERRUPT_STATUS. irq: the line, high as long as a bit of
            INTERRUPT_STATUS is set that is set in INTERRUPT_ENABLE too.
        <register>: for each register but the counters' its name in lower case. Out for `rw` and `w1c`; In for `ro`:
            what a read returns. An input that nothing drives has its reset value, so IDENTITY, VERSION and
            CONFIG_HASH need no driver.
        counter_reading, counter_index, counter: a counter is asked for, which of COUNTERS, its value a cycle later.

    Attributes:
        write: registers, the write that is in progress.
    """

    bus: wiring.PureInterface
    start: Signal
    reset_core: Signal
    busy: Signal
    clear: Signal
    irq: Signal
    interrupt_events: data.View

    def __init__(self, config_hash: int = 0) -> None:
        self._plain = [one for one in REGISTERS if one.offset < _FIRST_COUNTER]
        members: dict[str, wiring.Member] = {
            "bus": In(axi_lite_signature()),
            "start": Out(1),
            "reset_core": Out(1),
            "busy": In(1),
            "clear": In(1),
            "interrupt_events": In(bits_layout(InterruptBit)),
            "irq": Out(1),
            "counter_reading": Out(1),
            "counter_index": Out(range(len(COUNTERS))),
            "counter": In(64),
        }
        halves = {"CONFIG_HASH_LOW": config_hash & 0xFFFFFFFF, "CONFIG_HASH_HIGH": config_hash >> 32}
        for one in self._plain:
            flow = {"rw": Out, "w1c": Out, "ro": In}.get(one.access)
            if flow is not None:
                width = one.width if one.access in ("rw", "w1c") else 32
                members[one.name.lower()] = flow(width, init=halves.get(one.name, one.reset))
        super().__init__(members)
        self.write = Signal(_Write)

    def value(self, name: str) -> Signal:
        """The member of the register of that name, of as many bits as it holds."""
        return getattr(self, name.lower())

    def wide(self, name: str) -> Value:
        """Both halves of a 64-bit quantity (`PROGRAM`, `BASE`), low half first; it can be assigned to."""
        return Value.cast(Cat(self.value(f"{name}_LOW"), self.value(f"{name}_HIGH")))

    def elaborate(self, platform: object) -> Module:
        """The circuit."""
        m = Module()
        self._write(m)
        self._read(m)
        m.d.comb += self.irq.eq((self.value("INTERRUPT_STATUS") & self.value("INTERRUPT_ENABLE")).any())
        return m

    def _write(self, m: Module) -> None:
        bus = self.bus
        write = self.write
        # No new one before the response is taken: then a held address and held data belong together.
        m.d.comb += [
            bus.awready.eq(~write.has_address & ~bus.bvalid),
            bus.wready.eq(~write.has_data & ~bus.bvalid),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [write.word.eq(bus.awaddr[2:]), write.has_address.eq(1)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [write.data.eq(bus.wdata), write.strobe.eq(bus.wstrb), write.has_data.eq(1)]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        control, now = Signal(bits_layout(ControlBit)), write.has_address & write.has_data
        with m.If(now & (write.word == address_of("CONTROL") // 4) & write.strobe[0]):
            m.d.comb += control.eq(write.data[: len(control.as_value())])
        with m.If(now):
            m.d.sync += [write.has_address.eq(0), write.has_data.eq(0), bus.bvalid.eq(1), bus.bresp.eq(SLAVE_ERROR)]
            for conditions, registers in (
                (~self.busy | control.reset, [one for one in REGISTERS if not one.while_busy]),
                (1, [one for one in REGISTERS if one.while_busy]),
            ):
                with m.If(conditions), m.Switch(write.word):
                    for register in registers:
                        with m.Case(register.offset // 4):
                            m.d.sync += bus.bresp.eq(OKAY)
                            if register.access in ("rw", "w1c"):
                                self._assign(m, register)
        m.d.comb += [self.reset_core.eq(control.reset), self.start.eq(control.start & ~control.reset & ~self.busy)]
        # behind the write that clears it, so that no event is lost
        for place, event in enumerate(self.interrupt_events.as_value()):
            with m.If(event):
                m.d.sync += self.value("INTERRUPT_STATUS")[place].eq(1)
        with m.If(self.clear):
            m.d.sync += [self.value(one.name).eq(one.reset) for one in REGISTERS if one.access in ("rw", "w1c")]

    def _assign(self, m: Module, register: Register) -> None:
        value = self.value(register.name)
        for byte in range(-(-register.width // 8)):
            mine, written = value[8 * byte : 8 * byte + 8], self.write.data[8 * byte : 8 * byte + 8]
            with m.If(self.write.strobe[byte]):
                m.d.sync += mine.eq(mine & ~written if register.access == "w1c" else written)

    def _read(self, m: Module) -> None:
        bus = self.bus
        has_address, has_word, word = Signal(), Signal(), Signal(10)
        m.d.comb += bus.arready.eq(~has_address & ~has_word & ~bus.rvalid)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [word.eq(bus.araddr[2:]), has_address.eq(1)]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)

        counter = Signal(range(2 * len(COUNTERS)))
        """Half a counter."""
        has_counter, high = Signal(), Signal()
        m.d.comb += [counter.eq(word - _FIRST_COUNTER // 4), self.counter_index.eq(counter >> 1)]
        m.d.sync += [has_counter.eq(self.counter_reading), high.eq(counter[0])]
        with m.If(has_address):
            m.d.sync += [has_address.eq(0), has_word.eq(1), bus.rdata.eq(0), bus.rresp.eq(SLAVE_ERROR)]
            with m.If((word >= _FIRST_COUNTER // 4) & (word < _FIRST_COUNTER // 4 + 2 * len(COUNTERS))):
                m.d.comb += self.counter_reading.eq(1)
                m.d.sync += bus.rresp.eq(OKAY)
            with m.Switch(word):
                for register in self._plain:
                    with m.Case(register.offset // 4):
                        m.d.sync += bus.rresp.eq(OKAY)
                        if register.access != "wo":
                            m.d.sync += bus.rdata.eq(self.value(register.name))
        with m.If(has_word):
            m.d.sync += [has_word.eq(0), bus.rvalid.eq(1)]
            with m.If(has_counter):
                m.d.sync += bus.rdata.eq(self.counter.word_select(high, 32))
