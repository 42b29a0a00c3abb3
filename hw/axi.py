"""AXI4 and AXI4-Lite as plain signals.

The members are the names of the AMBA specification in lower case, so that the ports of generated
Verilog are what other tools expect. Both signatures are the manager's side; a subordinate has `In(...)`.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

__all__ = ["INCREMENTING", "OKAY", "SLAVE_ERROR", "axi4_signature", "axi_lite_signature", "size_of"]

OKAY = 0
"""Response: the access was done."""
SLAVE_ERROR = 2
"""Response SLVERR: the subordinate refused the access."""
INCREMENTING = 1
"""Burst type INCR."""


def size_of(data_bytes: int) -> int:
    """The value of ARSIZE and AWSIZE for beats of that many bytes, a power of two."""
    return exact_log2(data_bytes)


def axi4_signature(data_bytes: int, *, address_bits: int = 64, id_bits: int = 1) -> wiring.Signature:
    """AXI4 without the optional signals (lock, cache, protection, quality of service, region, user)."""
    address = {"addr": address_bits, "len": 8, "size": 3, "burst": 2}
    return wiring.Signature(
        {
            "arid": Out(id_bits),
            **{f"ar{name}": Out(width) for name, width in address.items()},
            "arvalid": Out(1),
            "arready": In(1),
            "rid": In(id_bits),
            "rdata": In(8 * data_bytes),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
            "awid": Out(id_bits),
            **{f"aw{name}": Out(width) for name, width in address.items()},
            "awvalid": Out(1),
            "awready": In(1),
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
