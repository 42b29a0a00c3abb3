"""What each pass made, as text."""

import onnx_ir as ir
from npukit.compiler.frontends.onnx.importer import Imported
from npukit.compiler.frontends.onnx.partitioned import Partition
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.printer import print_graph
from npukit.compiler.tasks import Allocation, Plan
from npukit.isa.assembly import disassemble, format_instruction
from npukit.isa.program import Program

__all__ = ["describe"]


def describe(stage: object) -> str:
    """The text form of what a pass made; a tuple is one per subgraph."""
    if isinstance(stage, tuple):
        return "\n".join(describe(part) for part in stage)
    for kind, form in _FORMS.items():
        if isinstance(stage, kind):
            return form(stage)
    raise TypeError(f"nothing describes a {type(stage).__name__}")


def _node(node: ir.Node) -> str:
    inputs = ", ".join(value.name or "" for value in node.inputs if value is not None)
    outputs = ", ".join(f"{value.name} {value.shape}" for value in node.outputs)
    return f"{node.op_type} {node.name}: ({inputs}) -> {outputs}"


def _partition(partition: Partition) -> str:
    lines = []
    for index, group in enumerate(partition.subgraphs):
        lines.append(f"subgraph {index}:")
        for match in group:
            made = ", ".join(value.name or "" for value in match.outputs)
            lines.append(f"  {match.node.op_type} {match.node.name} -> {made}")
    lines.append("stays:")
    lines += [f"  {reason.op} {reason.node}: {reason.reason}" for reason in partition.reasons]
    return "\n".join(lines)


def _plan(plan: Plan) -> str:
    lines = []
    for task in plan.tasks:
        uses = ", ".join(
            f"{operand.field or 'data'}={operand.buffer.memory.name}:{operand.buffer.label}+{operand.offset}"
            for operand in task.operands
        )
        dram = f" dram={task.dram.tensor}+{task.dram.offset}" if task.dram is not None else ""
        lines.append(f"{format_instruction(task.instruction)}  # {uses}{dram}")
    return "\n".join(lines)


def _allocation(allocation: Allocation) -> str:
    lines = [
        f"{buffer.memory.name} bank {bank} words {low} to {low + buffer.words - 1}: {buffer.label}"
        for buffer, (bank, low) in allocation.place.items()
    ]
    lines += [f"DRAM byte {address}: {name}" for name, address in allocation.dram.items()]
    return "\n".join(lines)


def _program(program: Program) -> str:
    notes = [""] * len(program.instructions)
    for node in program.nodes:
        for first, _ in node.runs:
            notes[first] = f"{node.op} {node.name}"
    return disassemble(program.instructions, notes)


_FORMS = {
    Imported: lambda imported: "\n".join(_node(node) for node in imported.model.graph),
    Partition: _partition,
    Graph: lambda graph: print_graph(graph, data=False).rstrip("\n"),
    Plan: _plan,
    Allocation: _allocation,
    Program: _program,
}
