"""A board without its accelerator: small enough to be placed and routed in a test."""

from amaranth import Module
from amaranth.lib import wiring
from npukit.fpga.boards import Board
from npukit.fpga.double_rate import attach_memory
from npukit.fpga.interconnect import HostPort
from npukit.fpga.link import HostLink
from npukit.fpga.sdram import SdramController
from npukit.fpga.system import system_members
from npukit.isa.host_link import Identity

__all__ = ["HostMemory"]


class HostMemory(wiring.Component):
    """Host link and memory controller."""

    def __init__(self, board: Board) -> None:
        self._board = board
        super().__init__(system_members(board.sdram))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board = self._board
        identity = Identity(board.name, 0, 0, round(board.megahertz * 1e6), board.sdram.bytes, 20, board.memory_rate)
        m.submodules.link = link = HostLink(identity)
        m.submodules.port = port = HostPort(4)
        clock, rate = board.megahertz, board.memory_rate
        sdram = SdramController(board.sdram, clock * rate, 4, io_cycles=board.io_cycles)
        wiring.connect(m, link.bus, port.host)
        attach_memory(m, sdram, port.memory, 4, rate)
        wiring.connect(m, sdram.pins, wiring.flipped(self.sdram))
        m.d.comb += [link.rx.eq(self.rx), self.tx.eq(link.tx), self.leds.eq(~self.rx)]
        return m
