"""allocate: who lives together shares no word, and every earlier tenant of a word is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npukit.compiler import strategy
from npukit.compiler.errors import CompileError
from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.tensor import Quantization, Tensor
from npukit.compiler.passes.allocate import AllocatePass, DoesNotFit, _place, _Segment
from npukit.compiler.passes.schedule import SchedulePass
from npukit.compiler.pipeline import compile_model
from npukit.compiler.strategy import LEVELS
from npukit.compiler.tasks import Allocation, Box, Buffer, DramUse, Operand, Plan, Task
from npukit.compiler.verify import verify_allocation
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.formats import INT8
from npukit.isa.instructions import Engine, Load, Memory, Store, Vector
from npukit.sim.addressing import bank_depth

CONFIG = NpuConfig(
    array=4, act_depth=64, act_banks=2, wgt_depth=16, acc_depth=16, acc_banks=2, par_depth=32,
    vector_lanes=4, fma_lanes=4,
)  # fmt: skip
EMPTY = Graph("none", (), {}, {}, (), ())


def task(buffers: list[Buffer], dram: DramUse | None = None) -> Task:
    operands = tuple(Operand("a", buffer) for buffer in buffers)
    return Task(Engine.VECTOR, Vector(), operands, 0, dram)


@st.composite
def plans(draw) -> Plan:
    """Tasks that use random buffers of all memories, each for a random stretch of time."""
    sizes = {memory: bank_depth(CONFIG, memory)[1] for memory in Memory}
    count = draw(st.integers(1, 25))
    uses: list[list[Buffer]] = [[] for _ in range(30)]
    for index in range(count):
        memory = draw(st.sampled_from(list(Memory)))
        buffer = Buffer(memory, draw(st.integers(1, sizes[memory])), f"buffer {index}")
        first = draw(st.integers(0, 29))
        for at in sorted({first, min(29, first + draw(st.integers(0, 3)))}):
            uses[at].append(buffer)
    return Plan(EMPTY, [task(buffers) for buffers in uses if buffers])


@settings(max_examples=300)
@given(plan=plans(), compact=st.booleans())
def test_on_chip(plan, compact) -> None:
    """Word by word: what a buffer takes over is exactly what `replaces` says, and nobody is there any more."""
    try:
        allocation = AllocatePass(CONFIG, compact).run(plan)
    except DoesNotFit as error:
        assert "words for buffer" in str(error) and "do not fit in" in str(error)
        return
    verify_allocation(CONFIG, allocation)
    last = {operand.buffer: index for index, one in enumerate(plan.tasks) for operand in one.operands}
    owner: dict[tuple[Memory, int, int], Buffer] = {}
    seen: set[Buffer] = set()
    for index, one in enumerate(plan.tasks):
        for buffer in (operand.buffer for operand in one.operands):
            if buffer in seen:
                continue
            seen.add(buffer)
            bank, low = allocation.place[buffer]
            banks, depth = bank_depth(CONFIG, buffer.memory)
            assert 0 <= bank < banks and 0 <= low and low + buffer.words <= depth
            places = [(buffer.memory, bank, word) for word in range(low, low + buffer.words)]
            older = {owner[place] for place in places if place in owner}
            assert all(last[other] < index for other in older)
            assert set(allocation.replaces[buffer]) == older
            owner.update(dict.fromkeys(places, buffer))


def test_the_longest_unused_words_go_first() -> None:
    """Reuse that waits for the latest user would stall; the oldest is done by then."""
    buffers = [Buffer(Memory.WGT, 8, str(index)) for index in range(3)]
    plan = Plan(EMPTY, [task([buffer]) for buffer in buffers])
    allocation = AllocatePass(CONFIG).run(plan)
    assert [allocation.place[buffer] for buffer in buffers] == [(0, 0), (0, 8), (0, 0)]
    assert allocation.replaces[buffers[2]] == [buffers[0]]


def test_the_lowest_words_leave_the_longest_free_stretches() -> None:
    """Words that rested longest lie behind what is over by now, and leave too few before and behind them."""
    first, second, third = (
        Buffer(Memory.ACC, words, name) for words, name in ((3, "first"), (12, "second"), (4, "third"))
    )
    config = replace(CONFIG, acc_depth=16, acc_banks=1)
    plan = Plan(EMPTY, [task([first]), task([second]), task([second, third])])
    with pytest.raises(DoesNotFit, match="4 words for third do not fit in 1 ACC banks of 16 words"):
        AllocatePass(config).run(plan)
    allocation = AllocatePass(config, compact=True).run(plan)
    verify_allocation(config, allocation)
    assert [allocation.place[buffer] for buffer in (first, second, third)] == [(0, 0), (0, 0), (0, 12)]
    assert allocation.replaces == {first: [], second: [first], third: []}


def test_a_program_whose_sums_fill_their_memory(graphs) -> None:
    """A mean has 12 partial sums and 4 sums of those, which is all of ACC; a convolution before it took other words."""
    config = NpuConfig(
        array=4, act_depth=64, act_banks=1, wgt_depth=256, acc_depth=16, acc_banks=1, par_depth=32, vector_lanes=1,
        fma_lanes=1, vector_taps=1, max_window=3, bus_bytes=4, max_burst=8, queue_depth=1,
    )  # fmt: skip
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 1, 6, 7)), 10, (6, 7)))
    graph.output(graph.global_average(graph.input((1, 1, 5, 7))))
    graphs.agree(graph.model(), config)


def test_what_does_not_fit() -> None:
    buffers = [Buffer(Memory.WGT, 9, "first"), Buffer(Memory.WGT, 9, "second")]
    with pytest.raises(DoesNotFit, match="9 words for second do not fit in 1 WGT banks of 16 words beside"):
        AllocatePass(CONFIG).run(Plan(EMPTY, [task(buffers)]))
    with pytest.raises(DoesNotFit, match="65 words for large do not fit in 2 ACT banks of 64 words"):
        AllocatePass(CONFIG).run(Plan(EMPTY, [task([Buffer(Memory.ACT, 65, "large")])]))


def tensor(name: str, words: int) -> Tensor:
    return Tensor(name, (1, 4, 1, words), INT8, Quantization((1.0,), (0,)))


def dram_task(name: str, write: bool) -> Task:
    box = Box((0, 1), (0, 1), (0, 1), 1)
    kind, engine = (Store(), Engine.STORE) if write else (Load(), Engine.LOAD)
    return Task(engine, kind, (), 0, DramUse(name, 0, box, write))


@st.composite
def chains(draw) -> Plan:
    """Tensors that are stored, then loaded, at random times; some are inputs, some outputs."""
    names = [f"t{index}" for index in range(draw(st.integers(1, 12)))]
    tensors = {name: tensor(name, draw(st.integers(1, 100))) for name in names}
    events: list[tuple[int, int, Task]] = []
    inputs, outputs = [], []
    for order, name in enumerate(names):
        born = draw(st.integers(0, 40))
        kind = draw(st.sampled_from(["input", "output", "internal", "internal"]))
        if kind == "input":
            inputs.append(name)
        else:
            events.append((born, order, dram_task(name, True)))
        if kind == "output":
            outputs.append(name)
        if kind != "output" or draw(st.booleans()):
            events.append((born + draw(st.integers(1, 20)), order, dram_task(name, False)))
    constants = {f"c{index}": np.zeros(draw(st.integers(1, 700)), np.uint8) for index in range(draw(st.integers(0, 3)))}
    graph = Graph("s", (), tensors, {}, tuple(inputs), tuple(outputs))
    return Plan(graph, [one for _, _, one in sorted(events, key=lambda event: event[:2])], constants)


@settings(max_examples=300)
@given(plan=chains())
def test_in_dram(plan) -> None:
    subgraph = plan.graph
    allocation = AllocatePass(CONFIG).run(plan)
    lives: dict[str, tuple[int, int]] = {}
    for index, one in enumerate(plan.tasks):
        assert one.dram is not None
        lives[one.dram.tensor] = (lives.get(one.dram.tensor, (index, 0))[0], index)
    for name in subgraph.inputs:
        lives[name] = (-1, lives[name][1])
    for name in subgraph.outputs:
        lives[name] = (lives[name][0], len(plan.tasks))
    spans = {
        name: (at, at + 4 * subgraph.tensors[name].view[3]) for name, at in allocation.dram.items() if name in lives
    }
    assert set(spans) == set(lives)
    low = 0
    for name, image in plan.constants.items():
        assert allocation.dram[name] >= low
        low = allocation.dram[name] + image.size
    assert low <= allocation.constant_bytes
    assert all(start >= allocation.constant_bytes and end <= allocation.dram_bytes for start, end in spans.values())
    assert all(at % 256 == 0 for at in allocation.dram.values())
    for one, (start, end) in spans.items():
        for other, (low, high) in spans.items():
            if one == other or start >= high or low >= end:
                continue
            assert lives[one][1] < lives[other][0] or lives[other][1] < lives[one][0], (one, other)
            if lives[other][0] < lives[one][0]:
                assert other in allocation.dram_replaces[one]


def test_dram_is_used_again(graphs) -> None:
    """A chain of ten layers needs the bytes of few: the two ends, and two between them."""
    graph = graphs.Graph()
    x = graph.input((1, 4, 32, 32))
    for _ in range(10):
        x = graph.conv(x, 4, pads=[1] * 4)
    graph.output(x)
    model = graph.model()
    result = compile_model(model, PRESETS["int8-4x4"])
    (program,) = result.programs
    assert len(program.captured) == 10
    one = 32 * 32 * 4
    assert program.dram_bytes - len(program.constants) <= 4 * one
    graphs.agree(model, "int8-4x4")


def test_outputs_are_not_overwritten(graphs) -> None:
    """An output of the first layer outlives nine more layers."""
    graph = graphs.Graph()
    x = first = graph.conv(graph.input((1, 4, 12, 12)), 4, pads=[1] * 4)
    for _ in range(9):
        x = graph.conv(x, 4, pads=[1] * 4)
    graph.output(x, integer=True)
    graph.output(first, integer=True)
    graphs.agree(graph.model(), "int8-4x4", runs=2)


@pytest.mark.parametrize("failures", range(len(LEVELS[1]) + 1))
def test_share_of_kept_buffers_falls_until_all_fits(graphs, monkeypatch, failures) -> None:
    """The pipeline tries again with fewer mixed layers and kept buffers, and says what does not fit in the end."""
    tried: list[float] = []

    class Recorder(SchedulePass):
        def run(self, graph: Graph) -> Plan:
            tried.append(self.keep)
            return super().run(graph)

    class Picky(AllocatePass):
        def run(self, plan: Plan) -> Allocation:
            if len(tried) <= failures:
                raise DoesNotFit("9 words for y do not fit in 2 ACT banks of 128 words beside what is in use")
            return super().run(plan)

    monkeypatch.setattr(strategy, "SchedulePass", Recorder)
    monkeypatch.setattr(strategy, "AllocatePass", Picky)
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 4, 9, 9)), 4, pads=[1] * 4)
    graph.output(graph.add(y, y))
    model = graph.model()
    if failures < len(LEVELS[1]):
        graphs.agree(model, "int8-4x4")
    else:
        with pytest.raises(CompileError, match="^npukit_0 does not fit on chip: 9 words for y .*; use a larger"):
            compile_model(model, PRESETS["int8-4x4"])
    assert tried == [one.keep for one in LEVELS[1]][: failures + 1]


def test_without_kept_buffers(graphs, monkeypatch) -> None:
    """Everything is loaded again for each tile, into memories that hold one tile."""
    monkeypatch.setitem(LEVELS, 1, LEVELS[1][-1:])
    graph = graphs.Graph()
    y = graph.conv(graph.input((1, 24, 9, 9)), 24, pads=[1] * 4)
    graph.output(graph.add(graph.conv(y, 24, pads=[1] * 4), y))
    config = replace(
        PRESETS["int8-4x4"], act_depth=128, act_banks=2, wgt_depth=64, acc_depth=16, acc_banks=1, par_depth=32
    )
    graphs.agree(graph.model(), config)


@settings(max_examples=300)
@given(data=st.data())
def test_best_place_of_a_bank(data) -> None:
    """Against every place there is: least recently used, then first, and none that was used after the limit."""
    depth = data.draw(st.integers(1, 40))
    cuts = sorted(data.draw(st.sets(st.integers(0, depth), max_size=12)))
    gaps = data.draw(st.lists(st.booleans(), min_size=len(cuts), max_size=len(cuts)))
    owner = Buffer(Memory.ACT, 1, "owner")
    segments = [
        _Segment(low, high, owner, data.draw(st.integers(0, 6)))
        for low, high, gap in zip(cuts, cuts[1:], gaps, strict=False)
        if not gap
    ]
    words, limit = data.draw(st.integers(1, depth)), data.draw(st.integers(-1, 7))
    used = np.full(depth, -1)
    for one in segments:
        used[one.low : one.high] = one.last
    places = [(int(used[start : start + words].max()), start) for start in range(depth - words + 1)]
    expected = min((place for place in places if place[0] <= limit), default=None)
    assert _place(segments, words, depth, limit) == expected
