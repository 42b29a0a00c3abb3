"""Why a layer costs what it costs, in sentences, and what would change it."""

from collections import Counter
from math import prod

from npukit.isa.instructions import Load, Matrix, Memory, Store, Vector
from npukit.isa.program import NodeInfo, Program
from npukit.isa.timing import Timing
from npukit.profiling.layers import LayerProfile, peak_macs, transfer
from npukit.profiling.roofline import ceiling
from npukit.sim.dram import AnyDram
from npukit.sim.timing import Schedule

__all__ = ["explain"]


def explain(
    program: Program, schedule: Schedule, node: NodeInfo, layer: LayerProfile, dram: AnyDram | None = None
) -> list[str]:
    """Lines about one node of a program that has run with this schedule, and with that DRAM."""
    config = program.config
    indices = node.indices()
    mine = [program.instructions[index] for index in indices]
    kinds = Counter(one.mnemonic for one in mine)
    engines = f"the array streams for {layer.array}, VECTOR for {layer.vector}, the bus for {layer.dram}"
    lines = [
        f"{node.op} {node.name}: {_shapes(node)}, {node.macs} MACs",
        f"cycles: {layer.cycles} in the foreground, of {schedule.cycles} in all; {engines}",
        f"at work, beside other layers or not, for {layer.elapsed} cycles",
        f"bound by: {layer.bound}" + _BOUND.get(layer.bound, ""),
        "instructions: " + ", ".join(f"{count} {name}" for name, count in sorted(kinds.items())),
    ]
    if layer.macs and layer.cycles:
        on_array = layer.array > 0
        most = ceiling(config, layer.macs, layer.read_bytes, layer.write_bytes, dram, on_array)
        peak = peak_macs(config, on_array=on_array)
        lines.insert(
            3,
            f"utilisation: {100 * layer.utilization:.1f} % of {peak} MACs a cycle; with its DRAM traffic "
            f"at most {100 * most / peak:.1f} %",
        )
    lines += _traffic(program, node, mine, layer)
    lines += _array(program, node, mine, layer)
    lines += _vector(program, node, mine, layer)
    waits = Counter[str]()
    for index in indices:
        for cause in ("token", "port", "dram"):
            name = program.instructions[index].mnemonic
            waits[f"{name} for {_CAUSE[cause]}"] += int(getattr(schedule, f"{cause}_wait")[index])
    largest = [f"{name} {cycles}" for name, cycles in waits.most_common(4) if cycles]
    if largest:
        lines.append(f"waits, in cycles: {', '.join(largest)}")
    return lines


_BOUND = {
    "hidden": ": it runs beside other layers, which own the cycles",
    "fill": ": nothing covers half of its cycles; it waits for what comes before, or is too small to fill the engines",
}
_CAUSE = {"token": "other engines", "port": "a port of a bank", "dram": "DRAM"}


def _shapes(node: NodeInfo) -> str:
    inputs = " and ".join("x".join(map(str, shape)) for shape in node.inputs)
    return f"{inputs} to {'x'.join(map(str, node.output))}"


def _padded(size: int, array: int) -> int:
    return -(-size // array) * array


def _traffic(program: Program, node: NodeInfo, mine: list, layer: LayerProfile) -> list[str]:
    config = program.config
    lines = []
    loads = Counter[Memory]()
    for one in mine:
        if isinstance(one, Load):
            loads[one.memory] += transfer(config, one)[1]
    stored = sum(transfer(config, one)[1] for one in mine if isinstance(one, Store))
    parts = [f"{_WHAT[memory]} {count}" for memory, count in sorted(loads.items())]
    parts.append(f"results {stored}" if stored else "results stay on chip, or another layer stores them")
    lines.append(f"DRAM traffic, in bytes: {', '.join(parts)}")
    if node.inputs and len(node.inputs[0]) > 1:
        channels = node.inputs[0][1]
        image = prod(node.inputs[0]) // channels * _padded(channels, config.array) * config.element_bytes
        if loads[Memory.ACT] > 1.3 * image * len(node.inputs):
            lines.append(
                f"  activations are read {loads[Memory.ACT] / image / len(node.inputs):.1f} times over: tiles share "
                "rows, or come again for other output channels; a larger act_depth or wgt_depth would help"
            )
    if layer.bound == "dram" and loads[Memory.WGT] > 2 * (loads[Memory.ACT] + stored):
        lines.append("  weights dominate and each is used for few outputs: a larger batch or bus_bytes would help")
    elif layer.bound == "dram":
        lines.append("  more bytes a cycle (bus_bytes) would help, or layers chained on chip")
    return lines


_WHAT = {Memory.ACT: "activations", Memory.WGT: "weights", Memory.PAR: "parameters", Memory.ACC: "accumulators"}


def _array(program: Program, node: NodeInfo, mine: list, layer: LayerProfile) -> list[str]:
    config, timing = program.config, Timing(program.config)
    steps = [one for one in mine if isinstance(one, Matrix)]
    if not steps:
        return []
    words = Counter[int]()
    for one in steps:
        words[one.height * one.width] += (
            one.blocks * one.channels * one.kernel_height * one.kernel_width * config.row_passes
        )
    count = sum(words.values())
    mean = sum(size * number for size, number in words.items()) / count
    least = max(config.rows, timing.accumulate_latency)
    lines = [f"array: {count} steps of {mean:.0f} words on average, {min(words)} to {max(words)}"]
    short = sum((least - size) * number for size, number in words.items() if size < least)
    if short:
        lines.append(
            f"  steps of fewer than {least} words wait for the next weights: {short} cycles; a larger image or batch "
            "would help"
        )
    outer = node.output[1] if len(node.output) > 1 else 1
    inner = node.inputs[0][1] if node.inputs and len(node.inputs[0]) > 1 else 1
    for what, channels in (("input", inner), ("output", outer)):
        padded = _padded(channels, config.array)
        if padded > channels:
            lines.append(
                f"  {channels} {what} channels pad to {padded}: {100 * (1 - channels / padded):.0f} % of the array's "
                f"{'rows' if what == 'input' else 'columns'} idle in the last block"
                + (", unless the kernel is folded into channels" if what == "input" and channels < config.array else "")
            )
    if layer.macs:
        ideal = layer.macs / config.array_macs
        lines.append(f"  {layer.array / ideal:.2f} array cycles for each that the MACs alone would take")
    return lines


def _vector(program: Program, node: NodeInfo, mine: list, layer: LayerProfile) -> list[str]:
    config = program.config
    operations = Counter(one.operation.name for one in mine if isinstance(one, Vector))
    if not operations:
        return []
    lines = ["VECTOR: " + ", ".join(f"{count} {name}" for name, count in operations.most_common())]
    if layer.bound == "vector":
        lines.append(
            f"  {config.vector_lanes} lanes of {config.vector_taps} taps: more would help"
            if config.vector_lanes < config.array
            else f"  {config.vector_taps} taps a cycle: a window row takes ceil(width / taps) cycles and reads its new "
            "words one a cycle"
        )
    return lines
