"""The ports of the core's top module, from its signature, each with what it is for."""

from dataclasses import dataclass

from npukit.hw.core import Core
from npukit.hw.verilog import component_ports
from npukit.isa.instructions import ENGINES

__all__ = ["Port", "ports_of"]

_ENGINES = ", ".join(f"bit {index}: {engine.name}" for index, engine in enumerate(ENGINES))
_ADDRESS = {
    "addr": "byte address",
    "burst": "burst type, always INCR",
    "id": "transaction, always 0",
    "len": "beats of the burst, less one",
    "prot": "protection, ignored",
    "ready": "the address is taken",
    "size": "bytes of a beat as a power of two, always the whole bus",
    "valid": "there is an address",
}
_CHANNELS = {
    "ar": ("read address", _ADDRESS),
    "aw": ("write address", _ADDRESS),
    "r": (
        "read data",
        {
            "data": "the beat",
            "id": "transaction, ignored: beats come in the order of the addresses",
            "last": "the last beat of its burst",
            "ready": "the beat is taken",
            "resp": "0: OKAY, anything else is an error",
            "valid": "there is a beat",
        },
    ),
    "w": (
        "write data",
        {
            "data": "the beat",
            "last": "the last beat of its burst",
            "ready": "the beat is taken",
            "strb": "a bit for each byte to write",
            "valid": "there is a beat",
        },
    ),
    "b": (
        "write response",
        {
            "id": "transaction, ignored: responses come in the order of the addresses",
            "ready": "the response is taken",
            "resp": "0: OKAY, anything else is an error",
            "valid": "there is a response",
        },
    ),
}
_OTHERS = {
    "clk": "clock: everything is registered on its rising edge",
    "rst": "reset, synchronous and active high",
    "irq": "interrupt: a level, high as long as a bit of INTERRUPT_STATUS is set that is enabled",
    "trace_queue": f"an engine's queue takes an instruction in this cycle ({_ENGINES})",
    "trace_issue": "an engine takes an instruction out of its queue",
    "trace_start": "an engine starts an instruction",
    "trace_end": "an engine ends an instruction",
    "trace_running": "a program runs",
    "trace_done": "the program ends in this cycle",
}


@dataclass(frozen=True)
class Port:
    """One port: its name, `input` or `output`, its width in bits, what it is for."""

    name: str
    direction: str
    width: int
    meaning: str


def ports_of(core: Core) -> list[Port]:
    """All ports of the top module, clock and reset first."""
    found = [Port(name, "input", 1, _OTHERS[name]) for name in ("clk", "rst")]
    for name, (direction, width) in component_ports(core).items():
        found.append(Port(name, direction, width, _meaning(name)))
    return found


def _meaning(name: str) -> str:
    if name in _OTHERS:
        return _OTHERS[name]
    signal = name.rpartition("_")[2]
    channel = signal[:2] if signal[:2] in _CHANNELS else signal[:1]
    title, signals = _CHANNELS[channel]
    return f"{title}: {signals[signal.removeprefix(channel)]}"
