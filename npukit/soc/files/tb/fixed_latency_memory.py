"""An AXI4 memory of fixed latency, as the simulator that the expected cycles come from has it.

Read and write channels are separate. A read's first beat comes `latency` cycles after its address, a write's response
`latency` cycles after its last beat, and a beat a cycle after that; bursts are answered in their order. As many bursts
are in flight as the limits say: then no further address is taken.
"""

from collections import deque
from dataclasses import dataclass

import cocotb
from cocotb.triggers import RisingEdge


@dataclass
class _Burst:
    """address: of the next beat, a multiple of the bus's bytes. left: beats. due: cycle of its answer."""

    address: int
    left: int
    due: int = 0


class FixedLatencyMemory:
    """A memory behind the `m_axi` port of a module.

    Attributes:
        data: its bytes. bursts: how many it has answered.
    """

    def __init__(self, dut, size: int, origin: int, latency: int, read_bursts: int, write_bursts: int) -> None:
        """Serve the port from now on.

        Args:
            dut: the module. size: bytes. origin: the first byte's address.
            latency: cycles. read_bursts, write_bursts: in flight.

        """
        self.data = bytearray(size)
        self.bursts = 0
        self._dut, self._origin, self._latency = dut, origin, latency
        self._read_limit, self._write_limit = read_bursts, write_bursts
        self._bytes = len(dut.m_axi_wstrb)
        self._reads: deque[_Burst] = deque()
        self._writes: deque[_Burst] = deque()  # from address to response
        self._complete = 0  # of these, how many have all their data: the oldest
        self._drive(0)
        cocotb.start_soon(self._serve())

    async def _serve(self) -> None:
        cycle = 0
        while True:
            await RisingEdge(self._dut.clk)
            if int(self._dut.rst.value):
                self._reads.clear()
                self._writes.clear()
                self._complete = 0
            else:
                self._take(cycle)
            cycle += 1
            self._drive(cycle)

    def _take(self, cycle: int) -> None:
        """What is transferred at the edge that ends this cycle; a beat belongs to an address of an earlier one."""
        dut = self._dut
        if self._answering and int(dut.m_axi_bready.value):
            self._writes.popleft()
            self._complete -= 1
            self.bursts += 1
        if self._taking_data and int(dut.m_axi_wvalid.value):
            self._write(self._writes[self._complete], cycle)
        if self._taking_writes and int(dut.m_axi_awvalid.value):
            self._writes.append(self._burst("aw"))
        if self._reading and int(dut.m_axi_rready.value):
            burst = self._reads[0]
            burst.address += self._bytes
            burst.left -= 1
            if not burst.left:
                self._reads.popleft()
                self.bursts += 1
        if self._taking_reads and int(dut.m_axi_arvalid.value):
            burst = self._burst("ar")
            burst.due = cycle + self._latency
            self._reads.append(burst)

    def _burst(self, channel: str) -> _Burst:
        address, length, size, kind = (
            int(getattr(self._dut, f"m_axi_{channel}{field}").value) for field in ("addr", "len", "size", "burst")
        )
        first = address - address % self._bytes
        last = first + (length + 1) * self._bytes - 1
        assert (1 << size, kind) == (self._bytes, 1), f"beats of {1 << size} bytes, burst type {kind}"
        assert first // 4096 == last // 4096, f"the burst from {first:#x} to {last:#x} crosses 4 KiB"
        assert self._origin <= first and last < self._origin + len(self.data), f"no memory at {first:#x} to {last:#x}"
        return _Burst(first, length + 1)

    def _write(self, burst: _Burst, cycle: int) -> None:
        value, strobe = int(self._dut.m_axi_wdata.value), int(self._dut.m_axi_wstrb.value)
        for lane, byte in enumerate(value.to_bytes(self._bytes, "little")):
            if strobe >> lane & 1:
                self.data[burst.address - self._origin + lane] = byte
        burst.address += self._bytes
        burst.left -= 1
        assert int(self._dut.m_axi_wlast.value) == (not burst.left), "WLAST is not in the burst's last beat"
        if not burst.left:
            burst.due = cycle + self._latency
            self._complete += 1

    def _drive(self, cycle: int) -> None:
        """All of the port's inputs are functions of what was transferred before."""
        dut = self._dut
        self._taking_reads = len(self._reads) < self._read_limit
        self._taking_writes = len(self._writes) < self._write_limit
        self._taking_data = self._complete < len(self._writes)
        self._reading = bool(self._reads) and cycle >= self._reads[0].due
        self._answering = self._complete > 0 and cycle >= self._writes[0].due
        dut.m_axi_arready.value = self._taking_reads
        dut.m_axi_awready.value = self._taking_writes
        dut.m_axi_wready.value = self._taking_data
        dut.m_axi_rvalid.value = self._reading
        if self._reading:
            burst, at = self._reads[0], self._reads[0].address - self._origin
            dut.m_axi_rdata.value = int.from_bytes(self.data[at : at + self._bytes], "little")
            dut.m_axi_rlast.value = burst.left == 1
        dut.m_axi_bvalid.value = self._answering
        for name in ("rid", "rresp", "bid", "bresp"):
            getattr(dut, f"m_axi_{name}").value = 0
