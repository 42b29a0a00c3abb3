"""uint8 weights whose zero point leaves some of them 9 bits: what exceeds int8 is added where it is, nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Matrix, Operation, Vector

from npukit import Session

SMALL = PRESETS["int8-4x4"]


def _outliers(graph, channels: tuple[int, ...], kernel: tuple[int, int]) -> None:
    """Of the last weights, all are near the zero point of 120 but one in each of those channels."""
    tensor = next(one for one in reversed(graph.initializers) if len(one.dims) == 4)
    values = graph.random.integers(60, 180, tuple(tensor.dims)).astype(np.uint8)
    for channel in channels:
        values[channel, 0, kernel[0] - 1, 0] = 255
    tensor.raw_data = values.tobytes()


def _instructions(session: Session) -> list:
    (program,) = session.programs.values()
    return list(program.instructions)


def _operations(session: Session) -> list[Operation]:
    return [one.operation for one in _instructions(session) if isinstance(one, Vector)]


@pytest.mark.sample(20)
@pytest.mark.parametrize("kernel", [(3, 3), (5, 2)])
@pytest.mark.parametrize(("strides", "dilations"), [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 2), (2, 1))])
@pytest.mark.parametrize("channels", [(5,), (0, 13), ()])
def test_only_the_blocks_that_need_it_leave_the_vector_unit(graphs, kernel, strides, dilations, channels) -> None:
    """14 channels are four blocks of a machine of 4x4, of which those with an outlier are the array's."""
    graph = graphs.Graph(dtype=np.uint8)
    x = graph.input((2, 14, 11, 9))
    pads = [size // 2 for size in kernel] * 2
    y = graph.conv(
        x, 14, kernel, group=14, weight_zero=120, per_channel=False, pads=pads, strides=list(strides),
        dilations=list(dilations),
    )  # fmt: skip
    _outliers(graph, channels, kernel)
    graph.output(y)
    session, _ = graphs.agree(graph.model(), SMALL)
    found = _operations(session)
    assert Operation.DEPTHWISE in found
    assert (Operation.REQUANTIZE in found) == bool(channels)


def test_a_whole_plane_may_exceed_the_sums_memory(graphs) -> None:
    """Rows and columns of a tile are more than ACC has words for, so that a block is several parts."""
    config = replace(SMALL, acc_depth=16, acc_banks=1)
    graph = graphs.Graph(dtype=np.uint8)
    y = graph.conv(graph.input((1, 6, 9, 40)), 6, group=6, weight_zero=120, per_channel=False, pads=[1, 1, 1, 1])
    _outliers(graph, (2,), (3, 3))
    graph.output(y)
    session, _ = graphs.agree(graph.model(), config)
    assert all(one.height * one.width <= 16 for one in _instructions(session) if isinstance(one, Matrix))


@pytest.mark.parametrize("config", [SMALL, PRESETS["int8-8x8"]])
def test_blocks_of_mobilenets_stay_together(graphs, config: NpuConfig) -> None:
    """1x1, depthwise, 1x1 and an addition, each with outliers: still one group, and products have them, too."""
    graph = graphs.Graph(dtype=np.uint8)
    x = graph.input((1, 12, 14, 14))
    options = {"weight_zero": 120, "per_channel": False}
    wide = graph.conv(x, 24, 1, **options)
    _outliers(graph, (3, 17), (1, 1))
    deep = graph.conv(wide, 24, group=24, pads=[1, 1, 1, 1], **options)
    _outliers(graph, (9,), (3, 3))
    narrow = graph.conv(deep, 12, 1, **options)
    _outliers(graph, (0, 11), (1, 1))
    graph.output(graph.add(narrow, x))
    session, _ = graphs.agree(graph.model(), config)
    assert session.compilation is not None
    (one,) = session.compilation.graphs
    assert [len(group) for group in one.groups] == [4]


def test_a_dense_convolution_adds_single_tiles(graphs) -> None:
    """One outlier among 16 tiles of a 3x3 kernel: one pass more over one of them, not over all."""
    counts = []
    for channels in ((), (6,)):
        graph = graphs.Graph(dtype=np.uint8)
        y = graph.conv(graph.input((1, 8, 10, 10)), 16, weight_zero=120, per_channel=False)
        _outliers(graph, channels, (3, 3))
        graph.output(y)
        session, _ = graphs.agree(graph.model(), SMALL)
        matrix = [one for one in _instructions(session) if isinstance(one, Matrix)]
        counts.append(
            sum(
                one.blocks * one.channels * one.kernel_height * one.kernel_width * one.height * one.width
                for one in matrix
            )
        )
    assert counts[1] == counts[0] + 8 * 8
