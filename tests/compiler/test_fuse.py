"""fuse: which operations are computed together, and that the text of the IR says so."""

from npukit.compiler.ir.operations import Convolution, DepthwiseConvolution, Elementwise, MaxPool
from npukit.compiler.ir.parser import parse_graph
from npukit.compiler.ir.printer import print_graph
from npukit.compiler.passes.fuse import FusePass
from npukit.compiler.pipeline import compile_model
from npukit.isa.config import PRESETS

from npukit import zoo

CONFIG = PRESETS["int8-16x16"]


def test_blocks_of_mobilenet_are_groups() -> None:
    (graph,) = compile_model(zoo.load("mobilenetv2"), CONFIG, stop_after="fuse").graphs
    makers = graph.makers()
    kinds = [[type(graph.operations[makers[name]]) for name in group] for group in graph.groups]
    windows = [kind for kind in kinds if DepthwiseConvolution in kind or MaxPool in kind]
    additions = [kind for kind in kinds if issubclass(kind[-1], Elementwise)]
    assert len(windows) == 17 and len(additions) == 10
    assert sum(kind[1:3] == [DepthwiseConvolution, Convolution] for kind in windows) >= 12
    for group in graph.groups:
        for before, name in zip(group, group[1:], strict=False):
            assert before in graph.operations[makers[name]].operands


def test_groups_are_in_the_text() -> None:
    (graph,) = compile_model(zoo.load("resnet18"), CONFIG, stop_after="fuse").graphs
    found = parse_graph(print_graph(graph, data=False), graph.constants)
    assert graph.groups and found.groups == graph.groups


def test_units_are_each_operation_once() -> None:
    (graph,) = compile_model(zoo.load("mobilenetv2"), CONFIG, stop_after="fuse").graphs
    units = graph.units()
    assert sorted(one for unit in units for one in unit) == [*range(len(graph.operations))]
    assert [unit[0] for unit in units] == sorted(unit[0] for unit in units)
    (alone,) = (FusePass(CONFIG, enabled=False).run(graph),)
    assert alone.groups == () and all(len(unit) == 1 for unit in alone.units())


def test_shared_tensors_are_not_fused(graphs) -> None:
    """Between the layers of a chain nobody else reads, and nothing is an output."""
    graph = graphs.Graph(seed=6)
    x = graph.conv(graph.input((1, 16, 9, 9), integer=True), 32, 1)
    y = graph.conv(x, 32, 3, group=32, pads=[1] * 4)
    graph.output(graph.add(y, x), integer=True)
    graph.output(x, integer=True)
    model = graph.model()
    (found,) = compile_model(model, CONFIG, stop_after="fuse").graphs
    assert found.groups == ()
    graphs.agree(model, CONFIG)


def test_tables_follow_what_they_look_up(graphs) -> None:
    """Behind convolutions, depthwise convolutions and maxima; not behind what others read as well."""
    graph = graphs.Graph(seed=11)
    x = graph.unary("HardSwish", graph.conv(graph.input((1, 9, 8, 8)), 20, 3, pads=[1] * 4))
    y = graph.unary("Sigmoid", graph.conv(x, 20, 5, group=20, pads=[2] * 4), 0.004)
    z = graph.unary("Tanh", graph.maxpool(y, 3, strides=[2, 2]), 0.008)
    w = graph.conv(z, 6, 1)
    graph.output(graph.unary("Elu", w))
    graph.output(graph.unary("Abs", w))
    model = graph.model()
    (fused,) = compile_model(model, PRESETS["int8-4x4"], stop_after="fuse").graphs
    kinds = {one.output: one.mnemonic for one in fused.operations}
    assert [[kinds[name] for name in group] for group in fused.groups] == [
        ["convolution", "lookup"], ["depthwise_convolution", "lookup"], ["max_pool", "lookup"],
    ]  # fmt: skip
    for config in ("int8-4x4", "int8-16x16"):
        graphs.agree(model, config, runs=2)
