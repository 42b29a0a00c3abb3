"""AXI4 and AXI4-Lite as plain signals.

The members are the names of the AMBA specification in lower case, so that the ports of generated
Verilog are what other tools expect. Both signatures are the manager's side; a subordinate has `In(...)`.
"""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

__all__ = [
    "INCREMENTING",
    "OKAY",
    "SLAVE_ERROR",
    "axi4_signature",
    "axi_lite_signature",
    "connect_channels",
    "read_channels",
    "size_of",
    "write_channels",
]

OKAY = 0
"""Response: the access was done."""
SLAVE_ERROR = 2
"""Response SLVERR: the subordinate refused the access."""
INCREMENTING = 1
"""Burst type INCR."""


def size_of(data_bytes: int) -> int:
    """The value of ARSIZE and AWSIZE for beats of that many bytes, a power of two."""
    return exact_log2(data_bytes)


def read_channels(data_bytes: int, *, address_bits: int = 64, id_bits: int = 1) -> wiring.Signature:
    """AR and R of AXI4 without the optional signals (lock, cache, protection, quality of service, region, user)."""
    return wiring.Signature(
        {
            **_address_channel("ar", address_bits, id_bits),
            "rid": In(id_bits),
            "rdata": In(8 * data_bytes),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )


def write_channels(data_bytes: int, *, address_bits: int = 64, id_bits: int = 1) -> wiring.Signature:
    """AW, W and B, alike."""
    return wiring.Signature(
        {
            **_address_channel("aw", address_bits, id_bits),
            "wdata": Out(8 * data_bytes),
            "wstrb": Out(data_bytes),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(id_bits),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
        }
    )


def axi4_signature(data_bytes: int, *, address_bits: int = 64, id_bits: int = 1) -> wiring.Signature:
    """All five channels."""
    both = (read_channels, write_channels)
    channels = (one(data_bytes, address_bits=address_bits, id_bits=id_bits) for one in both)
    return wiring.Signature({name: member for one in channels for name, member in one.members.items()})


def connect_channels(m: Module, channels: wiring.PureInterface, axi: wiring.PureInterface) -> None:
    """Connect some of the channels of an AXI4, of a submodule, to the module's own."""
    for name, member in channels.signature.members.items():
        inner, outer = getattr(channels, name), getattr(axi, name)
        m.d.comb += outer.eq(inner) if member.flow is Out else inner.eq(outer)


def _address_channel(prefix: str, address_bits: int, id_bits: int) -> dict[str, wiring.Member]:
    widths = {"id": id_bits, "addr": address_bits, "len": 8, "size": 3, "burst": 2, "valid": 1}
    return {**{f"{prefix}{name}": Out(width) for name, width in widths.items()}, f"{prefix}ready": In(1)}


def axi_lite_signature(*, address_bits: int = 12) -> wiring.Signature:
    """AXI4-Lite with 32 data bits."""
    return wiring.Signature(
        {
            "awaddr": Out(address_bits),
            "awprot": Out(3),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(32),
            "wstrb": Out(4),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
            "araddr": Out(address_bits),
            "arprot": Out(3),
            "arvalid": Out(1),
            "arready": In(1),
            "rdata": In(32),
            "rresp": In(2),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )
