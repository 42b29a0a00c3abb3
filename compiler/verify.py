"""Checks between passes: each looks at what a pass made, and says what is wrong with it."""

from npukit.compiler.tasks import Allocation, Plan
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory
from npukit.sim.addressing import bank_depth, operands

__all__ = [
    "VerifyError",
    "check",
    "verify_allocation",
    "verify_plan",
]


class VerifyError(AssertionError):
    """A pass made something inconsistent: a fault of the compiler, never of the model."""


def check(condition: bool, message: str) -> None:
    """Raise a VerifyError unless the condition holds."""
    if not condition:
        raise VerifyError(message)


def verify_plan(config: NpuConfig, plan: Plan) -> None:
    """Every operand stays within its buffer, every buffer within a bank."""
    tensors = {task.dram.tensor for task in plan.tasks if task.dram is not None and task.dram.box is not None}
    check(
        not tensors & set(plan.constants),
        f"tensors and constants share the names {tensors & set(plan.constants)}",
    )
    depths = {memory: bank_depth(config, memory)[1] for memory in Memory}
    for index, task in enumerate(plan.tasks):
        spans = {operand.name: operand for operand in operands(config, task.instruction)}
        for operand in task.operands:
            buffer = operand.buffer
            # messages are made where there is something to say alone: there are many tasks
            if buffer.words > depths[buffer.memory]:
                raise VerifyError(f"task {index}: {buffer.label} exceeds a bank")
            name = operand.field or ("destination" if operand.write else "source")
            low, high = spans[name].extent
            if low < 0 or operand.offset + high >= buffer.words:
                raise VerifyError(
                    f"task {index}: {name} spans words {low + operand.offset} to {high + operand.offset} of "
                    f"{buffer.label}, which has {buffer.words}"
                )


def verify_allocation(config: NpuConfig, allocation: Allocation) -> None:
    """Buffers that live at the same time do not share words."""
    last: dict = {}
    first: dict = {}
    for index, task in enumerate(allocation.plan.tasks):
        for operand in task.operands:
            first.setdefault(operand.buffer, index)
            last[operand.buffer] = index
    owner: dict[tuple[Memory, int], list] = {}
    depths = {memory: bank_depth(config, memory)[1] for memory in Memory}
    for buffer in first:
        bank, low = allocation.place[buffer]
        if low + buffer.words > depths[buffer.memory]:
            raise VerifyError(f"{buffer.label} leaves its bank")
        live = owner.setdefault((buffer.memory, bank), [])
        live[:] = [other for other in live if last[other] >= first[buffer]]
        for other in live:
            start = allocation.place[other][1]
            if start < low + buffer.words and start + other.words > low:
                raise VerifyError(f"{buffer.label} and {other.label} share words of {buffer.memory.name} bank {bank}")
        live.append(buffer)
