"""What happens inside of the core: each queue at its ends, each handshake in each state.

A core is built with probes, which change nothing: a module of Verilog that appends to a file what it sees for the first
time. So it is another model than the one that is verified otherwise, and has a target of its own, `make internals`.
"""

# Amaranth has no types
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from amaranth import Cat, ClockSignal, Instance, Module, Value
from amaranth.hdl import ValueLike

from npukit.hw import bus, core, issue, load, machine, queue, store
from npukit.hw.verilog import MODULE, component_verilog
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES

__all__ = ["ProbedCore", "probed_core"]

_PROBE = """
module npukit_probe #(parameter FIRST = 0, parameter WIDTH = 1) (input clk, input [WIDTH-1:0] now);
  reg [WIDTH-1:0] seen = 0;
  integer k, file;
  always @(posedge clk)
    for (k = 0; k < WIDTH; k = k + 1)
      if (now[k] && !seen[k]) begin
        seen[k] <= 1;
        file = $fopen("{path}", "a");
        $fdisplay(file, "%0d", FIRST + k);
        $fclose(file);
      end
endmodule
"""


class ProbedCore:
    """Verilog of a core with probes, and what they stand for.

    Attributes:
        verilog: its module `npu`.
        points: what each probe sees, by number.
        unreachable: what cannot happen -> why.
    """

    def __init__(self, verilog: str, points: Sequence[str], unreachable: dict[str, str], path: Path) -> None:
        self.verilog, self.points, self.unreachable = verilog, tuple(points), unreachable
        self._path = path

    def seen(self) -> set[str]:
        """The points that the model has come to, in all of its runs."""
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        return {self.points[int(line)] for line in text.splitlines()}

    def missing(self) -> list[str]:
        """The points that it has not come to."""
        seen = self.seen()
        return [point for point in self.points if point not in seen]


class _Probes:
    """The points of a core that is being elaborated."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.unreachable: dict[str, str] = {}

    def add(self, m: Module, events: dict[str, ValueLike]) -> None:
        """Watch signals by the names of what they tell."""
        first = len(self.points)
        self.points += events
        m.submodules[f"probe_{first}"] = Instance(
            "npukit_probe", p_FIRST=first, p_WIDTH=len(events), i_clk=ClockSignal(),
            i_now=Cat(Value.cast(event).bool() for event in events.values()),
        )  # fmt: skip

    def handshake(self, m: Module, name: str, valid: ValueLike, ready: ValueLike, *, always: str = "") -> None:
        """Watch a handshake; `always`: why it is never stalled."""
        valid, ready = Value.cast(valid), Value.cast(ready)
        events: dict[str, ValueLike] = {f"{name} stalls": valid & ~ready, f"{name} moves": valid & ready}
        if always:
            self.unreachable[f"{name} stalls"] = always
            del events[f"{name} stalls"]
        self.add(m, events)


@contextmanager
def _patched(probes: _Probes) -> Iterator[None]:
    """Classes of the hardware with probes in them."""

    class Queue(queue.Queue):
        label = ""

        def elaborate(self, platform: object) -> Module:
            m = super().elaborate(platform)
            fifo, depth = m.submodules.fifo, self.depth
            level, push, pop = fifo.level, fifo.w_en & fifo.w_rdy, fifo.r_en & fifo.r_rdy
            name = self.label
            events: dict[str, ValueLike] = {
                f"{name}: in when empty": push & (level == 0), f"{name}: full": level == depth,
                f"{name}: out when full": pop & (level == depth),
            }  # fmt: skip
            for near in sorted({1, depth - 1} - {0, depth}):
                events[f"{name}: in and out at {near} of {depth}"] = push & pop & (level == near)
            probes.unreachable[f"{name}: in and out when empty"] = "an empty queue gives nothing"
            probes.unreachable[f"{name}: in and out when full"] = "a full queue takes nothing"
            probes.add(m, events)
            return m

    def labelled(base: type, names: Mapping[str, str]) -> type:
        """A component that tells its queues what they are called; "{}" stands for what it is called itself."""

        def elaborate(self, platform: object) -> Module:
            m = base.elaborate(self, platform)
            for name, label in names.items():
                getattr(m.submodules, name).label = label.format(getattr(self, "label", ""))
            return m

        return type(base.__name__, (base,), {"elaborate": elaborate})

    engines = [engine.name.lower() for engine in ENGINES]

    class Machine(machine.Machine):
        def elaborate(self, platform: object) -> Module:
            m = super().elaborate(platform)
            for engine in engines:
                getattr(m.submodules, f"queue_{engine}").label = f"queue_{engine}"
            _watch_machine(m, self, probes, engines)
            return m

    with ExitStack() as stack:
        for module in (issue, load, store, bus):
            stack.enter_context(mock.patch.object(module, "Queue", Queue))
        for name, base, names in (
            ("IssueQueue", issue.IssueQueue, {"queue": "{}"}),
            ("LoadEngine", load.LoadEngine, {"issued": "load.issued"}),
            ("StoreEngine", store.StoreEngine, {"accepted": "store.accepted", "responses": "store.responses"}),
            ("ReadChannels", bus.ReadChannels, {"order": "order"}),
        ):
            stack.enter_context(mock.patch.object(machine, name, labelled(base, names)))
        # how the machine makes its engines
        for engine, (made, kind) in machine.ENGINE_OF.items():
            stack.enter_context(mock.patch.dict(machine.ENGINE_OF, {engine: (getattr(machine, made.__name__), kind)}))
        stack.enter_context(mock.patch.object(core, "Machine", Machine))
        yield


def _watch_machine(m: Module, watched, probes: _Probes, engines: Sequence[str]) -> None:
    axi = watched.m_axi
    for channel in ("ar", "r", "aw", "w"):
        probes.handshake(m, f"m_axi.{channel}", getattr(axi, f"{channel}valid"), getattr(axi, f"{channel}ready"))
    probes.handshake(m, "m_axi.b", axi.bvalid, axi.bready, always="BREADY is always high")
    parts = {name: getattr(m.submodules, name) for name in (*engines, "fetch")}
    load_engine, store_engine, fetch = parts["load"], parts["store"], parts["fetch"]
    for name, one in (
        ("load.requests", load_engine.requests),
        ("load.beats", load_engine.beats),
        ("store.requests", store_engine.requests),
        ("store.beats", store_engine.beats),
        ("fetch.requests", fetch.requests),
    ):
        probes.handshake(m, name, one.valid, one.ready)
    probes.add(m, {"load waits for a beat": load_engine.beats.ready & ~load_engine.beats.valid})
    for number, name in enumerate(engines):
        engine, waiting = parts[name], getattr(m.submodules, f"queue_{name}")
        probes.handshake(m, f"{name} issues", engine.instructions.valid, engine.instructions.ready)
        probes.add(m, {f"{name} waits for tokens": waiting.token_wait})
        probes.handshake(m, f"{name} starts", engine.ports.valid, engine.ports.ready)
        for other in engines[number + 1 :]:
            late = parts[other]
            both = engine.ports.valid & late.ports.valid
            probes.add(
                m,
                {
                    f"{name} and {other} start at once": both & engine.ports.ready & late.ports.ready,
                    f"{name} starts, {other} has to wait": both & engine.ports.ready & ~late.ports.ready,
                    f"{other} starts, {name} has to wait": both & ~engine.ports.ready & late.ports.ready,
                },
            )


def _watch_registers(m: Module, bus, probes: _Probes) -> None:
    for channel in ("aw", "w", "b", "ar", "r"):
        probes.handshake(m, f"s_axil.{channel}", getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready"))


def probed_core(config: NpuConfig, path: Path) -> ProbedCore:
    """A core with probes that note in the file `path` what they see.

    Raises:
        ToolError: when Yosys is missing or fails.
    """
    probes = _Probes()

    class Core(core.Core):
        def elaborate(self, platform: object) -> Module:
            m = super().elaborate(platform)
            _watch_registers(m, self.s_axil, probes)
            return m

    with _patched(probes):
        verilog = component_verilog(Core(config), MODULE)
    module = _PROBE.replace("{path}", str(path.resolve()))
    return ProbedCore(verilog + module, probes.points, probes.unreachable, path)
