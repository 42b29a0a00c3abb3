"""Boards with an ECP5, SDRAM and a serial line: clock, pins, and the system behind them."""

import re
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from amaranth import ClockDomain, ClockSignal, Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import io, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.vendor import LatticeECP5Platform
from npukit.fpga.board import Board
from npukit.fpga.double_rate import FAST
from npukit.fpga.ecp5_cells import Ecp5Cells
from npukit.fpga.pll import PllSettings
from npukit.fpga.system import System, identity_of
from npukit.isa.config import NpuConfig

__all__ = ["ConstrainedDesign", "SdramBoardTop", "constrained"]


class SdramBoardTop(Elaboratable):
    """The system with its clocks. The SDRAM gets one a quarter of a period after its controller's; at twice the rate
    half a period, so that commands are as far from either of its edges, and its words are there before the
    controller's second edge after them."""

    def __init__(self, board: Board, system: wiring.Component) -> None:
        self._board = board
        self._system = system

    def elaborate(self, platform: LatticeECP5Platform) -> Module:
        m = Module()
        self._clocks(m, platform)
        m.submodules.system = system = self._system

        uart = platform.request("uart", dir={"rx": "-", "tx": "-", "rts": "-", "dtr": "-"})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.FFBuffer("o", uart.tx)
        m.d.comb += [system.rx.eq(rx.i), tx.o.eq(system.tx)]
        for number in range(self._board.leds):
            m.submodules[f"led_{number}"] = led = io.Buffer("o", platform.request("led", number, dir="-"))
            m.d.comb += led.o.eq(system.leds[number])
        self._sdram(m, platform)
        return m

    def _clocks(self, m: Module, platform: Any) -> None:
        board = self._board
        double = platform.double_rate or board.memory_rate > 1
        pll = PllSettings.of(board.oscillator, board.megahertz)
        m.domains.sync = ClockDomain("sync")
        m.domains.sdram = ClockDomain("sdram", reset_less=True)
        m.submodules.oscillator = oscillator = io.Buffer("i", platform.request(board.oscillator_pin, dir="-"))
        clock, shifted, locked = (Signal(name=name) for name in ("clock", "shifted", "locked"))
        m.d.comb += [ClockSignal("sync").eq(clock), ClockSignal("sdram").eq(shifted)]
        platform.add_clock_constraint(clock, board.megahertz * 1e6)
        outputs = {}
        if double:
            m.domains += (domain := ClockDomain(FAST))
            outputs = {"o_CLKOS2": (fast := Signal(name="clock_fast")), "i_ENCLKOS2": Const(0)}
            m.d.comb += domain.clk.eq(fast)
            platform.add_clock_constraint(fast, 2 * board.megahertz * 1e6)
        m.submodules.pll = Instance(
            "EHXPLLL",
            **pll.parameters(shifted_by=90 * board.memory_rate, shifted_rate=board.memory_rate, double=double),
            **outputs,
            i_CLKI=oscillator.i,
            i_CLKFB=clock,
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_PHASESEL0=Const(0),
            i_PHASESEL1=Const(0),
            i_PHASEDIR=Const(1),
            i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1),
            i_PLLWAKESYNC=Const(0),
            i_ENCLKOP=Const(0),
            i_ENCLKOS=Const(0),
            o_CLKOP=clock,
            o_CLKOS=shifted,
            o_LOCK=locked,
        )
        m.submodules.reset = ResetSynchronizer(~locked, domain="sync")
        if double:
            m.submodules.fast_reset = ResetSynchronizer(~locked, domain=FAST)

    def _sdram(self, m: Module, platform: LatticeECP5Platform) -> None:
        pins = self._system.sdram
        names = ("clk", "clk_en", "cs", "we", "ras", "cas", "ba", "a", "dq", "dqm")
        port = platform.request("sdram", dir=dict.fromkeys(names, "-"))
        domain = "sync" if self._board.memory_rate == 1 else FAST
        # the ports know which of them are inverted
        for name, value in {
            "clk_en": pins.cke,
            "cs": ~pins.cs_n,
            "we": ~pins.we_n,
            "ras": ~pins.ras_n,
            "cas": ~pins.cas_n,
            "ba": pins.bank,
            "a": pins.address,
            "dqm": pins.dqm,
        }.items():
            m.submodules[f"sdram_{name}"] = buffer = io.FFBuffer("o", getattr(port, name), o_domain=domain)
            m.d.comb += buffer.o.eq(value)
        m.submodules.sdram_dq = data = io.FFBuffer("io", port.dq, i_domain=domain, o_domain=domain)
        m.d.comb += [data.o.eq(pins.dq_out), data.oe.eq(pins.dq_drive), pins.dq_in.eq(data.i)]
        m.submodules.sdram_clk = clock = io.DDRBuffer("o", port.clk, o_domain="sdram")
        m.d.comb += [clock.o[0].eq(1), clock.o[1].eq(0)]


_FEW_PRODUCTS = 4
"""Up to so many products that a chip has no multipliers for are made of LUTs, some 130 each."""


@dataclass(frozen=True)
class ConstrainedDesign:
    """rtlil: with the top module `top`. constraints: pins and clocks (LPF).

    Where the chip has too few multipliers, shared_multipliers: those at twice the clock, for two products of the array
    each; lut_products: products made of LUTs, where few are missing, or there are too few even so.
    """

    rtlil: str
    constraints: str
    shared_multipliers: int
    lut_products: int


def constrained(board: Board, config: NpuConfig, system: wiring.Component | None = None) -> ConstrainedDesign:
    """A board with the accelerator, or with another system of the same members."""
    if system is None:
        identity = identity_of(config, board.sdram, board.megahertz, board.rate, board.name, board.memory_rate)
        system = System(config, board.sdram, identity, io_cycles=board.io_cycles)
    top, kind = SdramBoardTop(board, system), type("Platform", (Ecp5Cells, resolve_name(board.platform)), {})

    # how many products there are is known only when the design has been made
    platform = kind()
    files = _files(platform, top)
    others = platform.wide_multipliers + _inferred_products(files["il"])
    if others + platform.byte_multipliers > board.device.multipliers:
        most = max(0, board.device.multipliers - others)
        # a few products of LUTs cost less than a second clock, whose paths have half the time
        platform = kind(most, double_rate=platform.byte_multipliers - most > _FEW_PRODUCTS)
        files = _files(platform, top)
    return ConstrainedDesign(files["il"], files["lpf"], platform.pairs, platform.lut_products)


def _files(platform: LatticeECP5Platform, top: SdramBoardTop) -> dict[str, str]:
    plan = platform.build(top, name="top", do_build=False)
    assert plan is not None
    found = {}
    for ending in ("il", "lpf"):
        content = plan.files[f"top.{ending}"]
        found[ending] = content if isinstance(content, str) else content.decode()
    return found


def _inferred_products(rtlil: str) -> int:
    """Those that Yosys makes multipliers of by itself, as no factor is a constant."""
    factors = re.findall(r"cell \$mul .*?connect \\A ([^\n]+).*?connect \\B ([^\n]+)", rtlil, re.DOTALL)
    return sum(not any(re.fullmatch(r"\d+'[01]+", factor) for factor in pair) for pair in factors)
