"""Who reaches what: the accelerator the memory, in bursts; the host both the memory and the registers, word by word."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.axi import INCREMENTING, axi4_signature, axi_lite_signature, size_of

__all__ = ["HostPort", "MemoryArbiter"]

_NPU, _HOST = 0, 1
"""AXI IDs at the memory, by which answers find their way."""


class MemoryArbiter(wiring.Component):
    """Two managers, one memory. The host goes first, as it asks for a word at a time and seldom.

    Members: `npu`, `host`: AXI4, the subordinate's side; `memory`: AXI4, the manager's side, with an ID of one bit.

    Attributes:
        writing, whose: registers, data of a burst are to come, and of which manager.
        holds, held: registers, for each of "ar" and "aw": an address was presented and not taken; whose it was.
    """

    def __init__(self, bus_bytes: int) -> None:
        signature = axi4_signature(bus_bytes)
        super().__init__({"npu": In(signature), "host": In(signature), "memory": Out(signature)})
        self.writing, self.whose = Signal(), Signal()
        self.held = {side: Signal(name=f"{side}_held") for side in ("ar", "aw")}
        self.holds = {side: Signal(name=f"{side}_holds") for side in ("ar", "aw")}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        npu, host, memory = self.npu, self.host, self.memory
        for side in ("ar", "aw"):
            of = {bus: {name: getattr(bus, side + name) for name in ("addr", "len", "size", "burst", "valid", "ready")}
                  for bus in (npu, host, memory)}  # fmt: skip
            choice, held, holds = Signal(name=f"{side}_choice"), self.held[side], self.holds[side]
            # an address that was presented stays until it is taken
            m.d.comb += choice.eq(Mux(holds, held, host_valid := of[host]["valid"]))
            allowed = Signal(name=f"{side}_allowed")
            presented = of[memory]["valid"]
            m.d.sync += [held.eq(choice), holds.eq(presented & ~of[memory]["ready"])]
            m.d.comb += [
                presented.eq(Mux(choice, host_valid, of[npu]["valid"]) & allowed),
                of[npu]["ready"].eq(of[memory]["ready"] & ~choice & allowed),
                of[host]["ready"].eq(of[memory]["ready"] & choice & allowed),
                getattr(memory, f"{side}id").eq(choice),
            ]
            for name in ("addr", "len", "size", "burst"):
                m.d.comb += of[memory][name].eq(Mux(choice, of[host][name], of[npu][name]))
            if side == "ar":
                m.d.comb += allowed.eq(1)
            else:
                self._write_data(m, choice, allowed)

        for bus, number in ((npu, _NPU), (host, _HOST)):
            m.d.comb += [
                bus.rdata.eq(memory.rdata),
                bus.rresp.eq(memory.rresp),
                bus.rlast.eq(memory.rlast),
                bus.rvalid.eq(memory.rvalid & (memory.rid == number)),
                bus.bresp.eq(memory.bresp),
                bus.bvalid.eq(memory.bvalid & (memory.bid == number)),
            ]
        m.d.comb += [
            memory.rready.eq(Mux(memory.rid == _HOST, host.rready, npu.rready)),
            memory.bready.eq(Mux(memory.bid == _HOST, host.bready, npu.bready)),
        ]
        return m

    def _write_data(self, m: Module, choice: Signal, allowed: Signal) -> None:
        """Data of one burst at a time, of the manager whose address was taken; no address before it is over."""
        npu, host, memory = self.npu, self.host, self.memory
        writing, whose = self.writing, self.whose
        m.d.comb += allowed.eq(~writing)
        with m.If(memory.awvalid & memory.awready):
            m.d.sync += [writing.eq(1), whose.eq(choice)]
        with m.If(memory.wvalid & memory.wready & memory.wlast):
            m.d.sync += writing.eq(0)
        m.d.comb += [
            memory.wvalid.eq(writing & Mux(whose, host.wvalid, npu.wvalid)),
            npu.wready.eq(writing & ~whose & memory.wready),
            host.wready.eq(writing & whose & memory.wready),
        ]
        for name in ("wdata", "wstrb", "wlast"):
            m.d.comb += getattr(memory, name).eq(Mux(whose, getattr(host, name), getattr(npu, name)))


class HostPort(wiring.Component):
    """The host's words: below `npukit.isa.host_link.REGISTERS` to memory, in the lanes of a wider bus; from there on to
    the registers.

    Members: `host`: AXI4-Lite with 32 address bits, the subordinate's side, one access at a time; `registers`:
    AXI4-Lite, and `memory`: AXI4, the managers' sides.
    """

    def __init__(self, bus_bytes: int) -> None:
        self._bytes = bus_bytes
        super().__init__(
            {
                "host": In(axi_lite_signature(address_bits=32)),
                "registers": Out(axi_lite_signature()),
                "memory": Out(axi4_signature(bus_bytes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        host, registers, memory = self.host, self.registers, self.memory
        lanes = self._bytes // 4
        low = exact_log2(self._bytes)
        active, to_registers, is_writing = Signal(), Signal(), Signal()
        """An access has begun and has no answer yet; where it goes."""
        lane = Signal(range(max(2, lanes)))
        address = Mux(host.awvalid, host.awaddr, host.araddr)
        with m.If(~active):
            m.d.sync += [
                active.eq(host.awvalid | host.arvalid),
                to_registers.eq(address[31]),
                is_writing.eq(host.awvalid),
                lane.eq(address[2:low] if lanes > 1 else 0),
            ]
        with m.Elif((host.bvalid & host.bready) | (host.rvalid & host.rready)):
            m.d.sync += active.eq(0)
        for side in ("aw", "ar"):
            valid, address = getattr(host, f"{side}valid"), getattr(host, f"{side}addr")
            m.d.comb += [
                getattr(registers, f"{side}valid").eq(valid & active & to_registers),
                getattr(registers, f"{side}addr").eq(address),
                getattr(memory, f"{side}valid").eq(valid & active & ~to_registers),
                getattr(memory, f"{side}addr").eq(Cat(Signal(low), address[low:31])),
                getattr(memory, f"{side}size").eq(size_of(self._bytes)),
                getattr(memory, f"{side}burst").eq(INCREMENTING),
                getattr(host, f"{side}ready").eq(
                    active & Mux(to_registers, getattr(registers, f"{side}ready"), getattr(memory, f"{side}ready"))
                ),
            ]
        m.d.comb += [
            registers.wvalid.eq(host.wvalid & active & is_writing & to_registers),
            registers.wdata.eq(host.wdata),
            registers.wstrb.eq(host.wstrb),
            memory.wvalid.eq(host.wvalid & active & is_writing & ~to_registers),
            memory.wdata.eq(host.wdata.replicate(lanes)),
            memory.wstrb.eq(host.wstrb << (lane << 2)),
            memory.wlast.eq(1),
            host.wready.eq(active & is_writing & Mux(to_registers, registers.wready, memory.wready)),
            host.bvalid.eq(registers.bvalid | memory.bvalid),
            host.bresp.eq(Mux(to_registers, registers.bresp, memory.bresp)),
            registers.bready.eq(host.bready),
            memory.bready.eq(host.bready),
            host.rvalid.eq(registers.rvalid | memory.rvalid),
            host.rresp.eq(Mux(to_registers, registers.rresp, memory.rresp)),
            host.rdata.eq(Mux(to_registers, registers.rdata, memory.rdata.word_select(lane, 32))),
            registers.rready.eq(host.rready),
            memory.rready.eq(host.rready),
        ]
        return m
