"""On-chip memory: banks of block RAM with one read and one write port each."""

from collections.abc import Collection
from dataclasses import dataclass

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

__all__ = [
    "BANK_BITS",
    "NO_COLLISION",
    "OFFSET_BITS",
    "BankedMemory",
    "ReadPort",
    "WritePort",
    "read_port",
    "write_port",
]

BANK_BITS = 4
OFFSET_BITS = 15
NO_COLLISION = "no_rw_check"
"""Yosys' attribute of a memory: what a read gives of a word that is being written does not matter."""


def read_port(width: int) -> wiring.Signature:
    """A reader's side: `data` holds the addressed word two cycles after `en`."""
    return wiring.Signature({"en": Out(1), "bank": Out(BANK_BITS), "offset": Out(OFFSET_BITS), "data": In(width)})


def write_port(width: int) -> wiring.Signature:
    """A writer's side: a word is in memory from the cycle after `en` on."""
    return wiring.Signature({"en": Out(1), "bank": Out(BANK_BITS), "offset": Out(OFFSET_BITS), "data": Out(width)})


@dataclass(frozen=True)
class ReadPort:
    """Type of a reader's interface, for annotations."""

    en: Signal
    bank: Signal
    offset: Signal
    data: Signal


@dataclass(frozen=True)
class WritePort:
    """Type of a writer's interface, for annotations."""

    en: Signal
    bank: Signal
    offset: Signal
    data: Signal


class BankedMemory(wiring.Component):
    """`banks` memories of `depth` words, shared by readers and writers that never meet in a bank.

    Latency: a read takes two cycles (memory, then the selected bank's register), a write one. Who may use
    which bank is decided by the ports' owners, so requests are merged with a plain OR.

    Parameters:
        zero_without: readers whose data are 0 two cycles after a cycle without `en`; others' stay as they were.

    Members:
        read_<k>, write_<k>: `In` of `read_port` and `write_port`.
        read_outside: a bit for each reader: in the cycle before, it asked for a word that is not there.
        write_outside: a bit for each writer: it writes in this cycle to a word that is not there.
    """

    def __init__(
        self, *, width: int, banks: int, depth: int, readers: int, writers: int, zero_without: Collection[int] = ()
    ) -> None:
        self._zero_without = zero_without
        self._width, self._banks, self._depth = width, banks, depth
        self._readers, self._writers = readers, writers
        members = {f"read_{k}": In(read_port(width)) for k in range(readers)}
        members |= {f"write_{k}": In(write_port(width)) for k in range(writers)}
        members |= {"read_outside": Out(readers), "write_outside": Out(writers)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        readers = [getattr(self, f"read_{k}") for k in range(self._readers)]
        writers = [getattr(self, f"write_{k}") for k in range(self._writers)]
        address_bits = bits_for(self._depth - 1)
        # readers' addresses come late in a cycle, writers' from registers
        for k, reader in enumerate(readers):
            m.d.sync += self.read_outside[k].eq(self._outside(reader))
        for k, writer in enumerate(writers):
            m.d.comb += self.write_outside[k].eq(self._outside(writer))
        outputs = []
        for bank in range(self._banks):
            m.submodules[f"bank_{bank}"] = memory = Memory(
                shape=self._width, depth=self._depth, init=[], attrs={NO_COLLISION: 1}
            )
            write, read = memory.write_port(), memory.read_port()
            for port, clients in ((read, readers), (write, writers)):
                enable, address, data = 0, 0, 0
                for client in clients:
                    chosen = client.en & (client.bank == bank)
                    enable = enable | chosen
                    address = address | (client.offset[:address_bits] & chosen.replicate(address_bits))
                    if port is write:  # with none, data do not matter
                        data = client.data if client is clients[0] else Mux(chosen, client.data, data)
                m.d.comb += [port.en.eq(enable), port.addr.eq(address)]
                if port is write:
                    m.d.comb += port.data.eq(data)
            outputs.append(read.data)
        for k, reader in enumerate(readers):
            chosen = Signal(range(max(2, self._banks)), name=f"chosen_{k}")
            valid = Signal(name=f"valid_{k}")
            m.d.sync += [chosen.eq(reader.bank), valid.eq(reader.en)]
            with m.If(valid):
                with m.Switch(chosen):
                    for bank, output in enumerate(outputs):
                        with m.Case(bank):
                            m.d.sync += reader.data.eq(output)
            if k in self._zero_without:
                with m.Else():
                    m.d.sync += reader.data.eq(0)
        return m

    def _outside(self, client: wiring.PureInterface):
        return client.en & ((client.bank >= self._banks) | (client.offset >= self._depth))
