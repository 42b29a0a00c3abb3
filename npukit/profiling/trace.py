"""A run as a Perfetto trace: tracks for layers and engines, tokens as flows, memory, bus and MACs as counters.

A cycle is a nanosecond.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from npukit.hw.toolchain import needs
from npukit.isa.assembly import format_instruction
from npukit.isa.instructions import ENGINES, Memory
from npukit.isa.program import Program
from npukit.profiling.activity import activity
from npukit.profiling.layers import foreground, slice_ends
from npukit.profiling.occupancy import occupancy
from npukit.sim.timing import Schedule

__all__ = ["perfetto_trace", "token_pairs"]

_PROCESS = 1
_SEQUENCE = 1
_LAYERS, _BUS, _MACS = 5, 30, 31
_WINDOWS = 2000
"""For which bandwidth and utilisation are told: more than a screen has points."""


def token_pairs(program: Program) -> list[tuple[int, int]]:
    """(instruction that gives, instruction that takes) for each token; tokens between two engines come in order."""
    waiting: dict[tuple[int, int], deque[int]] = {(a, b): deque() for a in ENGINES for b in ENGINES}
    pairs = []
    for index, one in enumerate(program.instructions):
        if one.engine is None:
            continue
        for source in ENGINES:
            if one.wait >> source & 1:
                pairs.append((waiting[source, one.engine].popleft(), index))
        for target in ENGINES:
            if one.signal >> target & 1:
                waiting[one.engine, target].append(index)
    return pairs


def perfetto_trace(programs: Sequence[tuple[Program, Schedule]]) -> bytes:
    """The trace of programs that run one after the other, for https://ui.perfetto.dev.

    An engine's instructions overlap: each slice ends where the next one begins, so that an engine's slices add up to
    its busy counter. Arguments tell the cycles of all events.

    Raises:
        ToolError: the package `perfetto` is not installed.
    """
    with needs("profile", "a Perfetto trace"):
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor, TrackEvent
    trace = Trace()

    def track(number: int, name: str, unit: str | None = None) -> None:
        packet = trace.packet.add()
        packet.track_descriptor.uuid = number
        packet.track_descriptor.name = name
        if number != _PROCESS:
            packet.track_descriptor.parent_uuid = _PROCESS
        if unit is not None:
            packet.track_descriptor.counter.unit_name = unit
        else:
            packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
            packet.track_descriptor.sibling_order_rank = number

    def event(time: int, number: int, kind: TrackEvent.Type):
        packet = trace.packet.add()
        packet.timestamp = time
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = number
        return packet.track_event

    track(_PROCESS, "npukit")
    engines = {engine: 10 + int(engine) for engine in ENGINES}
    memories = {memory: 20 + int(memory) for memory in Memory}
    for engine, number in engines.items():
        track(number, engine.name)
    for memory, number in memories.items():
        track(number, f"{memory.name} words in use", "words")
    track(_LAYERS, "layers")
    track(_BUS, "DRAM bytes a cycle", "bytes a cycle")
    track(_MACS, "array utilisation", "%")
    begin, flow = 0, 1
    for program, schedule in programs:
        node_of = [""] * len(program.instructions)
        for node in program.nodes:
            for index in node.indices():
                node_of[index] = node.name
        flows: dict[int, list[int]] = {}
        for pair in token_pairs(program):
            for index in pair:
                flows.setdefault(index, []).append(flow)
            flow += 1
        ends = slice_ends(program, schedule)
        for engine in ENGINES:
            for index, instruction in enumerate(program.instructions):
                if instruction.engine is not engine:
                    continue
                start, end = int(schedule.start[index]), int(ends[index])
                one = event(begin + start, engines[engine], TrackEvent.TYPE_SLICE_BEGIN)
                one.name = node_of[index] or instruction.mnemonic
                one.flow_ids.extend(flows.get(index, ()))
                details = {"instruction": index, "text": format_instruction(instruction)}
                for name in ("queue", "issue", "start", "end", "token_wait", "port_wait", "dram_wait"):
                    details[name] = int(getattr(schedule, name)[index])
                for name, value in details.items():
                    note = one.debug_annotations.add()
                    note.name = name
                    if isinstance(value, int):
                        note.int_value = value
                    else:
                        note.string_value = value
                event(begin + end, engines[engine], TrackEvent.TYPE_SLICE_END)
        for memory, found in occupancy(program, schedule).items():
            for time, count in zip(np.append(found.times, schedule.cycles), np.append(found.used, 0), strict=True):
                event(begin + int(time), memories[memory], TrackEvent.TYPE_COUNTER).counter_value = int(count)
        if program.nodes:
            edges, owner = foreground(program, schedule.start, schedule.end, schedule.cycles)
            firsts = np.flatnonzero(np.diff(owner, prepend=-1))
            for first, after in zip(firsts, np.append(edges[firsts[1:]], schedule.cycles), strict=True):
                one = event(begin + int(edges[first]), _LAYERS, TrackEvent.TYPE_SLICE_BEGIN)
                one.name = program.nodes[owner[first]].name
                event(begin + int(after), _LAYERS, TrackEvent.TYPE_SLICE_END)
        done = activity(program, schedule, _WINDOWS)
        length = np.diff(done.edges)
        shares = 100 * done.macs / (program.config.array_macs * length)
        for number, values in ((_BUS, (done.read + done.written) / length), (_MACS, shares)):
            for time, value in zip(done.edges, np.append(values, 0.0), strict=True):
                event(begin + int(time), number, TrackEvent.TYPE_COUNTER).double_counter_value = float(value)
        begin += schedule.cycles
    return trace.SerializeToString()
