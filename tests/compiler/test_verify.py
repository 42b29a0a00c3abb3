"""The checks between passes find what is planted."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from npukit.compiler.frontends.onnx.importer import Imported
from npukit.compiler.frontends.onnx.verify import verify_partition
from npukit.compiler.ir.tensor import Quantization, Tensor
from npukit.compiler.ir.verify import InvalidGraph, verify_graph
from npukit.compiler.passes.validate import ValidatePass
from npukit.compiler.pipeline import Compilation, compile_model
from npukit.compiler.tasks import Allocation, Box, Buffer, DramUse, Operand, Plan, Task
from npukit.compiler.verify import (
    VerifyError,
    verify_allocation,
    verify_plan,
)
from npukit.isa.config import PRESETS
from npukit.isa.formats import INT8
from npukit.isa.instructions import Engine, Load, Memory, Vector
from npukit.sim.validator import ValidationError

CONFIG = PRESETS["int8-4x4"]


@pytest.fixture
def result(graphs) -> Compilation:
    """Two parts with a node between them that stays; everything verifies."""
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 9, 9)), 6)
    y = graph.quantize(graph.node("Softmax", [graph.dequantize(y)]), 0.004, -128)
    graph.output(graph.conv(graph.conv(y, 5), 4))
    made = compile_model(graph.model(), CONFIG)
    for lowered, plan, allocation in zip(
        *(made.stages[name] for name in ("lower", "schedule", "allocate")), strict=True
    ):
        verify_graph(lowered)
        verify_plan(CONFIG, plan)
        verify_allocation(CONFIG, allocation)
    return made


def test_partition(result) -> None:
    partition = result.partition
    verify_partition(partition)
    first, second = partition.subgraphs
    with pytest.raises(VerifyError, match="a node belongs to two matches"):
        verify_partition(replace(partition, subgraphs=(first, first)))
    with pytest.raises(VerifyError, match="a node is accelerated and stays"):
        verify_partition(replace(partition, host=(*partition.host, first[0].node)))
    for node in (second[0].node, second[1].node, partition.host[-1], partition.host[2]):
        for stage in range(partition.stages[node]):
            with pytest.raises(VerifyError, match=f"{node.name} runs before"):
                verify_partition(replace(partition, stages={**partition.stages, node: stage}))


def test_what_stays_is_the_models(result) -> None:
    """A pass that rewrites nodes must not change what ONNX Runtime computes."""
    partition = result.partition
    imported = partition.imported

    def verify(changed: Imported) -> None:
        verify_partition(replace(partition, imported=changed))

    (node,) = [node for node in partition.host if node.op_type == "Softmax"]
    forms = {other: form for other, form in imported.forms.items() if other is not node}
    with pytest.raises(VerifyError, match=f"{node.name} stays, and is no node of the model"):
        verify(replace(imported, forms=forms))
    form = imported.forms[node]
    for other in (
        replace(form, op_type="LogSoftmax"),
        replace(form, attributes={"axis": ir.AttrInt64("axis", 1)}),
        replace(form, domain="com.microsoft"),
        replace(form, overload="other"),
    ):
        with pytest.raises(VerifyError, match=f"{node.name} stays, and is another"):
            verify(replace(imported, forms={**imported.forms, node: other}))
    for inputs in (("elsewhere",), ()):
        with pytest.raises(VerifyError, match=f"{node.name} stays, and reads"):
            changed = {**imported.forms, node: replace(form, inputs=inputs)}
            verify(replace(imported, forms=changed))
    with pytest.raises(VerifyError, match="the outputs are"):
        verify(replace(imported, outputs=(*imported.outputs[:-1], "another")))
    name = next(iter(imported.initializers))
    other_value = ir.tensor(np.array([1.0], np.float32))
    with pytest.raises(VerifyError, match=f"initializer {name} has another value"):
        verify(replace(imported, initializers={**imported.initializers, name: other_value}))
    renamed = {"copy of a copy": "copy", "copy": form.inputs[0]}
    forms = {**imported.forms, node: replace(form, inputs=("copy of a copy",))}
    verify(replace(imported, forms=forms, renamed=renamed))


def test_graph(result) -> None:
    first, second = result.stages["lower"]
    with pytest.raises(InvalidGraph, match="reads .* before it is made"):
        verify_graph(replace(second, operations=second.operations[::-1]))
    with pytest.raises(InvalidGraph, match="before it is made"):
        verify_graph(replace(first, inputs=()))
    lost = Tensor("lost", (1, 4), INT8, Quantization((1.0,), (0,)))
    with pytest.raises(InvalidGraph, match="the output lost is never made"):
        verify_graph(replace(first, tensors={**first.tensors, "lost": lost}, outputs=("lost",)))


def test_plan(result) -> None:
    plan = result.stages["schedule"][0]
    index = next(i for i, task in enumerate(plan.tasks) if isinstance(task.instruction, Vector))
    task = plan.tasks[index]

    def planted(**changes) -> None:
        verify_plan(
            CONFIG, replace(plan, tasks=[*plan.tasks[:index], replace(task, **changes), *plan.tasks[index + 1 :]])
        )

    planted()
    out = next(operand for operand in task.operands if operand.field == "out")
    moved = tuple(replace(one, offset=1) if one is out else one for one in task.operands)
    with pytest.raises(VerifyError, match=f"task {index}: out spans words 1 to .* which has {out.buffer.words}"):
        planted(operands=moved)
    large = type(out.buffer)(out.buffer.memory, 99999, "large")
    with pytest.raises(VerifyError, match=f"task {index}: large exceeds a bank"):
        planted(operands=(Operand("out", large, write=True),))
    with pytest.raises(VerifyError, match="out spans words"):
        planted(instruction=replace(task.instruction, out_stride_x=2))


def test_constants_and_tensors_have_different_names(result) -> None:
    plan = result.stages["schedule"][0]
    load = next(
        task for task in plan.tasks if isinstance(task.instruction, Load) and task.dram and task.dram.box is None
    )
    name = load.dram.tensor
    box = Box((0, 1), (0, 1), (0, 1), 1)
    with pytest.raises(VerifyError, match="tensors and constants share the names"):
        verify_plan(CONFIG, replace(plan, tasks=[*plan.tasks, replace(load, dram=DramUse(name, 0, box))]))


def test_allocation(result) -> None:
    allocation = result.stages["allocate"][1]
    plan = allocation.plan
    buffers = list(allocation.place)
    leaving = {**allocation.place, buffers[0]: (0, 10**6)}
    with pytest.raises(VerifyError, match="leaves its bank"):
        verify_allocation(CONFIG, replace(allocation, place=leaving))
    one, other = Buffer(Memory.ACT, 8, "one"), Buffer(Memory.ACT, 8, "other")
    both = Plan(plan.graph, [Task(Engine.VECTOR, Vector(), (Operand("a", one), Operand("out", other, write=True)), 0)])
    verify_allocation(CONFIG, Allocation(both, {one: (1, 0), other: (1, 8)}))
    verify_allocation(CONFIG, Allocation(both, {one: (1, 0), other: (2, 0)}))
    for low in (0, 7, -7):
        with pytest.raises(VerifyError, match="other and one share words of ACT bank 1"):
            verify_allocation(CONFIG, Allocation(both, {one: (1, 10), other: (1, 10 + low)}))


def test_program(result) -> None:
    program = result.programs[1]
    ValidatePass().run(program)
    waiting = next(i for i, one in enumerate(program.instructions) if one.wait)
    for change in (dict(wait=0), dict(wait=15), dict(signal=15)):
        changed = list(program.instructions)
        changed[waiting] = replace(changed[waiting], **change)
        with pytest.raises(ValidationError):
            ValidatePass().run(replace(program, instructions=tuple(changed)))
    with pytest.raises(ValidationError, match="exactly one END"):
        ValidatePass().run(replace(program, instructions=program.instructions[:-1]))
    with pytest.raises(ValidationError, match="which nothing has written"):
        ValidatePass().run(replace(program, tensors=tuple(one for one in program.tensors if one.role != "input")))
    with pytest.raises(ValidationError, match="outside of the program's"):
        ValidatePass().run(replace(program, dram_bytes=program.dram_bytes // 2))
