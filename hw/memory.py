"""On-chip memory: banks of block RAM with one read and one write port each."""

from collections.abc import Collection

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

__all__ = [
    "NO_COLLISION",
    "BankedMemory",
    "WordAddress",
    "read_port",
    "write_port",
]

BANK_BITS = 4
OFFSET_BITS = 15
NO_COLLISION = "no_rw_check"
"""Yosys' attribute of a memory: what a read gives of a word that is being written does not matter."""


class WordAddress(data.Struct):
    """Where a word lies in a memory of several banks."""

    offset: OFFSET_BITS
    bank: BANK_BITS


def read_port(width: int) -> wiring.Signature:
    """A reader's side: `data` holds the word `READ_LATENCY` cycles after its address went."""
    return wiring.Signature({"addresses": Out(stream.Signature(WordAddress, always_ready=True)), "data": In(width)})


def write_port(width: int) -> stream.Signature:
    """A writer's side: a word is in memory from the cycle after it went."""
    return stream.Signature(data.StructLayout({"address": WordAddress, "data": width}), always_ready=True)


class BankedMemory(wiring.Component):
    """`banks` memories of `depth` words, shared by readers and writers that never meet in a bank.

    Latency: a read takes two cycles (memory, then the selected bank's register), a write one. Who may use
    which bank is decided by the ports' owners, so requests are merged with a plain OR.

    Parameters:
        zero_without: readers whose data are 0 two cycles after a cycle without an address; others' stay as they were.

    Members:
        reads, writes: `In` of `read_port` and `write_port`, as many as there are readers and writers.
        read_outside: a bit for each reader: in the cycle before, it asked for a word that is not there.
        write_outside: a bit for each writer: it writes in this cycle to a word that is not there.
    """

    def __init__(
        self, *, width: int, banks: int, depth: int, readers: int, writers: int, zero_without: Collection[int] = ()
    ) -> None:
        self._zero_without = zero_without
        self._width, self._banks, self._depth = width, banks, depth
        super().__init__(
            {
                "reads": In(read_port(width)).array(readers),
                "writes": In(write_port(width)).array(writers),
                "read_outside": Out(readers),
                "write_outside": Out(writers),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        address_bits = bits_for(self._depth - 1)
        # readers' addresses come late in a cycle, writers' from registers
        for k, reader in enumerate(self.reads):
            m.d.sync += self.read_outside[k].eq(self._outside(reader.addresses.valid, reader.addresses.payload))
        for k, writer in enumerate(self.writes):
            m.d.comb += self.write_outside[k].eq(self._outside(writer.valid, writer.payload.address))
        outputs = []
        for bank in range(self._banks):
            m.submodules[f"bank_{bank}"] = memory = Memory(
                shape=self._width, depth=self._depth, init=[], attrs={NO_COLLISION: 1}
            )
            write, read = memory.write_port(), memory.read_port()
            read_requests = [(one.addresses.valid, one.addresses.payload) for one in self.reads]
            write_requests = [(one.valid, one.payload.address) for one in self.writes]
            for port, requests in ((read, read_requests), (write, write_requests)):
                enable, address, word = 0, 0, None
                for k, (valid, place) in enumerate(requests):
                    chosen = valid & (place.bank == bank)
                    enable = enable | chosen
                    address = address | (place.offset[:address_bits] & chosen.replicate(address_bits))
                    if port is write:  # with none, data do not matter
                        mine = self.writes[k].payload.data
                        word = mine if word is None else Mux(chosen, mine, word)
                m.d.comb += [port.en.eq(enable), port.addr.eq(address)]
                if port is write:
                    m.d.comb += port.data.eq(word)
            outputs.append(read.data)
        for k, reader in enumerate(self.reads):
            chosen = Signal(range(max(2, self._banks)), name=f"chosen_{k}")
            valid = Signal(name=f"valid_{k}")
            m.d.sync += [chosen.eq(reader.addresses.payload.bank), valid.eq(reader.addresses.valid)]
            with m.If(valid):
                with m.Switch(chosen):
                    for bank, output in enumerate(outputs):
                        with m.Case(bank):
                            m.d.sync += reader.data.eq(output)
            if k in self._zero_without:
                with m.Else():
                    m.d.sync += reader.data.eq(0)
        return m

    def _outside(self, valid: Value, address: data.View) -> Value:
        return valid & ((address.bank >= self._banks) | (address.offset >= self._depth))
