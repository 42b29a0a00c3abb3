"""emit: tokens that are enough, in any order that they allow, and tables that describe the program."""

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from npukit.compiler.passes import emit
from npukit.compiler.passes.emit import EmitPass
from npukit.compiler.passes.validate import ValidatePass
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import ENGINES, Engine, Vector
from npukit.isa.program import Program
from npukit.isa.timing import TOKEN_LIMIT
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.validator import ValidationError, validate

TIGHT = NpuConfig(
    array=4, act_depth=96, act_banks=3, wgt_depth=48, acc_depth=20, acc_banks=2, par_depth=33, vector_lanes=2,
    fma_lanes=1, vector_taps=2, max_window=3, bus_bytes=4, max_burst=8, queue_depth=2,
)  # fmt: skip


def network(graphs, size=9, dtype=np.int8):
    """Every operator, with a residual and a graph output in the middle."""
    graph = graphs.Graph(seed=3, dtype=dtype)
    x = graph.input((2, 6, size, size), integer=True)
    y = graph.conv(x, 6, pads=[1] * 4, relu=True)
    graph.output(y, integer=True)
    y = graph.maxpool(graph.add(y, x), 2, strides=[2, 2], pads=[1, 1, 0, 0])
    y = graph.global_average(graph.conv(y, 9, 2))
    graph.output(graph.gemm(graph.flatten(y), 5), integer=True)
    return graph.model()


def program_of(model, config) -> Program:
    (program,) = compile_model(model, config).programs
    return program


def dram_image(program: Program, seed: int = 0) -> np.ndarray:
    """Constants in place, and random bytes everywhere else."""
    image = np.random.default_rng(seed).integers(0, 256, program.dram_bytes + 4096, np.uint8)
    image[: len(program.constants)] = np.frombuffer(program.constants, np.uint8)
    return image


def outputs(program: Program, image: np.ndarray) -> list[bytes]:
    return [
        image[tensor.address : tensor.address + tensor.layout.elements].tobytes()
        for tensor in program.tensors
        if tensor.role == "output"
    ]


@pytest.mark.parametrize("config", [TIGHT, PRESETS["int8-8x8"]], ids=["tight", "int8-8x8"])
def test_tokens_in_program_order(graphs, config) -> None:
    """Every wait is satisfied by an earlier signal, no counter overflows, and none is left over to mislead."""
    program = program_of(network(graphs), config)
    tokens: dict[tuple[Engine, Engine], int] = defaultdict(int)
    waits = 0
    for index, one in enumerate(program.instructions):
        for other in ENGINES:
            if one.engine is None:
                continue
            if one.wait >> other & 1:
                assert tokens[other, one.engine] > 0, index
                tokens[other, one.engine] -= 1
                waits += 1
            if one.signal >> other & 1:
                tokens[one.engine, other] += 1
                assert tokens[one.engine, other] <= TOKEN_LIMIT
    assert waits > 10 and not any(tokens.values())


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("config", [TIGHT, PRESETS["int8-4x4"]], ids=["tight", "int8-4x4"])
def test_every_legal_order_computes_the_same(graphs, config, dtype) -> None:
    """Engines at random speeds: whatever the tokens let happen, the outputs stay."""
    program = program_of(network(graphs, dtype=dtype), config)
    image = dram_image(program)
    machine = FunctionalSimulator(config, image)
    for one in program.instructions:
        machine.execute(one)
    expected = outputs(program, image)
    queues = {engine: [one for one in program.instructions if one.engine is engine] for engine in ENGINES}
    for seed in range(12):
        generator = random.Random(seed)
        image = dram_image(program)
        machine = FunctionalSimulator(config, image)
        at = dict.fromkeys(ENGINES, 0)
        tokens: dict[tuple[Engine, Engine], int] = defaultdict(int)
        # a slow engine each time, and one that runs as far ahead as it may
        weights = {engine: generator.choice([0.01, 1, 100]) for engine in ENGINES}
        while True:
            ready = [
                engine
                for engine in ENGINES
                if at[engine] < len(queues[engine])
                and all(tokens[e, engine] for e in ENGINES if queues[engine][at[engine]].wait >> e & 1)
            ]
            if not ready:
                break
            engine = generator.choices(ready, [weights[one] for one in ready])[0]
            one = queues[engine][at[engine]]
            at[engine] += 1
            machine.execute(one)
            for other in ENGINES:
                tokens[other, engine] -= one.wait >> other & 1
                tokens[engine, other] += one.signal >> other & 1
        assert all(at[engine] == len(queues[engine]) for engine in ENGINES), "no order of the engines may block"
        assert outputs(program, image) == expected, f"seed {seed}"


def without_wait(program: Program, index: int, source: Engine) -> Program:
    """The program without one wait and the signal that it takes."""
    instructions = list(program.instructions)
    engine = instructions[index].engine
    assert engine is not None
    pending: list[int] = []
    for position, one in enumerate(instructions[: index + 1]):
        if one.engine is engine and one.wait >> source & 1:
            signaller = pending.pop(0)
            if position == index:
                instructions[signaller] = replace(
                    instructions[signaller], signal=instructions[signaller].signal & ~(1 << engine)
                )
        if one.engine is source and one.signal >> engine & 1:
            pending.append(position)
    instructions[index] = replace(instructions[index], wait=instructions[index].wait & ~(1 << source))
    return replace(program, instructions=tuple(instructions))


def test_no_token_is_there_in_vain(graphs) -> None:
    """Without any single wait, the validator finds a race."""
    program = program_of(network(graphs, size=6), TIGHT)
    pairs = [
        (index, source)
        for index, one in enumerate(program.instructions)
        for source in ENGINES
        if one.engine is not None and one.wait >> source & 1
    ]
    assert len(pairs) > 20
    generator = random.Random(1)
    for index, source in generator.sample(pairs, 20):
        with pytest.raises(ValidationError, match="race in|waits for|which nothing has written"):
            ValidatePass().run(without_wait(program, index, source))


def test_no_drain_is_there_in_vain(graphs) -> None:
    graph = graphs.Graph()
    graph.output(graph.global_average(graph.input((1, 4, 20, 20))))
    program = program_of(graph.model(), PRESETS["int8-4x4"])
    drains = [index for index, one in enumerate(program.instructions) if one.drain]
    assert drains
    for index in drains:
        instructions = list(program.instructions)
        instructions[index] = replace(instructions[index], drain=0)
        with pytest.raises(ValidationError, match="race in ACC bank"):
            ValidatePass().run(replace(program, instructions=tuple(instructions)))


def test_long_runs_of_one_engine(graphs) -> None:
    """LOAD could run hundreds of instructions ahead of others; the counters' 255 must hold for any timing."""
    config = replace(PRESETS["int8-4x4"], act_depth=64, act_banks=8, acc_depth=16, wgt_depth=16, queue_depth=64)
    graph = graphs.Graph()
    x = graph.input((1, 40, 24, 40))
    graph.output(graph.conv(x, 8, 1))
    program = program_of(graph.model(), config)
    assert len(program.instructions) > 1500
    assert validate(config, program.instructions, program.dram_bytes, [(0, program.dram_bytes)]) == []


def test_more_tiles_than_a_counter_holds(graphs) -> None:
    """300 small images that all fit on chip: LOAD must not run 256 of them ahead."""
    graph = graphs.Graph()
    x = graph.input((300, 3, 4, 4))
    graph.output(graph.add(x, x))
    session, _ = graphs.agree(graph.model(), "int8-4x4")
    (program,) = session.programs.values()
    engines = [one.engine for one in program.instructions]
    assert engines.count(Engine.LOAD) > 300 and engines.count(Engine.VECTOR) == 300


@pytest.mark.parametrize("most", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("config", [TIGHT, PRESETS["int8-8x8"]], ids=["tight", "int8-8x8"])
def test_bound_and_need_at_once(graphs, config, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that depends on an engine, and is as far ahead of it as it may be, takes one token, not two."""
    monkeypatch.setattr(emit, "_SYNCHRONISE", most)
    assert len(program_of(network(graphs), config).instructions) > 40  # compiling asks the validator


def test_tables(graphs) -> None:
    """Nodes follow each other and hold their instructions; captures cover every element once."""
    model = network(graphs)
    program = program_of(model, PRESETS["int8-4x4"])
    assert [node.op for node in program.nodes] == ["Conv", "Add", "MaxPool", "Conv", "GlobalAveragePool", "Gemm"]
    indices = sorted(index for node in program.nodes for index in node.indices())
    assert indices == list(range(len(program.instructions) - 1))
    assert all(node.first <= node.last for node in program.nodes)
    assert sum(node.macs for node in program.nodes) == compile_model(model, program.config).partition.macs
    assert [tensor.role for tensor in program.tensors] == ["input", "output", "output"]
    lanes = program.config.array
    counts = {}
    for name, tensor in program.captured.items():
        if tensor.source == name:
            outer, channels, inner = tensor.order
            counts[name] = np.zeros(outer * -(-channels // lanes) * inner, int)
    for capture in program.captures:
        one = program.instructions[capture.instruction]
        assert isinstance(one, Vector)
        np.add.at(counts[capture.tensor], capture.words(one), 1)
    assert len(counts) == 6 and all((count == 1).all() for count in counts.values())
    assert len(program.captured) == 7 and {tensor.source for tensor in program.captured.values()} == set(counts)


def test_programs_are_reproducible(graphs) -> None:
    model = network(graphs)
    first, second = (program_of(model, TIGHT).to_bytes() for _ in range(2))
    assert first == second
    assert Program.from_bytes(first) == program_of(model, TIGHT)


def test_emit_is_a_function_of_its_inputs(graphs) -> None:
    result = compile_model(network(graphs), TIGHT)
    (allocation,) = result.allocations
    assert EmitPass(TIGHT).run(allocation) == result.programs[0]
