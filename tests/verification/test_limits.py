"""What the table of coverage calls the greatest legal value is legal, and what lies beyond is refused."""

from dataclasses import replace

import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.descriptors import descriptor_lanes
from npukit.isa.instructions import OPCODES, End, InstructionError, Load, Matrix, Memory, Operation, fields_of
from npukit.sim.addressing import operands
from npukit.sim.validator import validate

from npukit.verify import limits
from npukit.verify.coverage import coverage_items, coverage_targets, coverage_unreachable
from npukit.verify.generator import Target, random_program
from npukit.verify.limits import spans
from npukit.verify.parameters import table_name
from npukit.verify.points import Point, field_points, points

CONFIGS = {
    "int8-4x4": PRESETS["int8-4x4"],
    "one bank, odd depths": replace(
        PRESETS["int8-4x4"], vector_lanes=1, fma_lanes=2, act_banks=1, acc_banks=1, act_depth=997, acc_depth=61,
        vector_taps=1,
    ),
    "bf16-8x8": PRESETS["bf16-8x8"],
}  # fmt: skip


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> NpuConfig:
    return CONFIGS[request.param]


def _witness(config: NpuConfig, point: Point):
    """An instruction of a legal program that reaches a point, and the program's DRAM bytes; None if none is found."""
    for attempt in range(8):
        made = random_program(config, f"limits/{attempt}/{point.name}", 0, [Target(point)])
        shift = made.placement.shift
        for one in made.instructions:
            if point in field_points(config, one, operands(config, one), shift):
                return one, made.memory.size
    return None


def test_every_declared_field_is_in_the_table(config: NpuConfig) -> None:
    there = {(span.kind, span.field) for span in spans(config)}
    declared = {(kind, spec.name) for kind in OPCODES.values() for spec in fields_of(kind)}
    assert there == declared
    # and a point for each of its values, but none twice
    names = [point.name for point in points(config)]
    assert len(set(names)) == len(names) == len(points(config))
    assert set(names) <= set(coverage_items(config)) and set(coverage_targets(config)) <= set(coverage_items(config))
    assert not set(coverage_items(config)) & set(coverage_unreachable(config))


def test_a_field_of_no_known_class_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(limits._CLASSES, "count")
    with pytest.raises(AssertionError, match=r"LOAD\.planes is of no class that is known here"):
        spans.__wrapped__(CONFIGS["int8-4x4"])


def test_every_end_is_legal(config: NpuConfig) -> None:
    """Each point has a witness in a program that the validator takes; what plain programs always have is left out."""
    plain = {"drain", "wait", "signal"}
    chosen = [point for point in points(config) if point.kind is not End and point.field not in plain]
    assert len(chosen) > 850
    lacking = [point.name for point in chosen if _witness(config, point) is None]
    assert not lacking


def test_what_lies_beyond_is_refused(config: NpuConfig) -> None:
    """The witness with its field one step further: no instruction, or one that the validator refuses by itself."""
    looked_at = 0
    for span in spans(config):
        spec = next(one for one in fields_of(span.kind) if one.name == span.field)
        for values, reason in span.beyond:
            if span.kind is End or not (values.startswith(">") and values[1:].isdigit()):
                continue
            greatest = int(values[1:])
            if any(other.startswith("=") for other, _ in span.beyond) and greatest != max(span.values):
                continue  # the greatest one has a meaning, and the configuration does not have it
            assert greatest == max(span.values), (span, values)
            found = _witness(config, Point(span.kind, span.field, greatest, span.context, None, True))
            found = found or _witness(config, next(p for p in points(config) if _is(p, span, greatest)))
            assert found is not None, span
            one, size = found
            further = replace(one, **{span.field: spec.kind(greatest) if spec.kind else greatest})
            assert _legal(config, further, size), span
            try:
                further = replace(one, **{span.field: greatest + 1})
                assert not _legal(config, further, size), (span, reason)
            except InstructionError:
                pass
            looked_at += 1
    assert looked_at > 40


def _is(point: Point, span, value: int) -> bool:
    return (point.kind, point.field, point.context, point.value) == (span.kind, span.field, span.context, value)


def _legal(config: NpuConfig, one, dram_bytes: int) -> bool:
    findings = validate(config, (replace(one, wait=0, signal=0), End()), dram_bytes, [(0, dram_bytes)])
    return all(finding.rule == "unwritten" for finding in findings)


def test_what_is_equal_and_refused() -> None:
    """The other kinds of proofs, each on an instruction of its own."""
    config = CONFIGS["int8-4x4"]
    cases = [
        Load(memory=Memory.ACT, words=2, word_stride=0),
        Load(memory=Memory.ACT, words=2, word_stride=-32768, wrap=11),
        Load(memory=Memory.ACC),
        Load(memory=Memory.PAR, pad_top=1),
        Load(memory=Memory.PAR, dram=2),
        Load(memory=Memory.WGT, words=4097, word_stride=1, wrap=13, offset=4096, rows=2, row_stride=1),
        Matrix(wgt_offset=8189),
        Matrix(wgt_offset=8189, wgt_wrap=15),
        Matrix(width=2, acc_stride_x=0),
        Matrix(width=2, acc_stride_x=512),
    ]
    for one in cases:
        assert not _legal(config, one, 1 << 20), one
    assert _legal(config, Load(memory=Memory.ACT, words=2, word_stride=-32767, wrap=11), 1 << 20)
    assert _legal(config, Matrix(wgt_offset=8191, wgt_wrap=13, act_wrap=1), 1 << 20)


def test_the_largest_ring_is_passed_and_a_larger_one_is_not(config: NpuConfig) -> None:
    for span in spans(config):
        if span.passes is None:
            continue
        largest = max(span.passes[0])
        point = next(one for one in points(config) if _is(one, span, largest) and one.passes)
        found = _witness(config, point)
        assert found is not None, point.name
        one, size = found
        assert _legal(config, one, size)
        assert not _legal(config, replace(one, **{span.field: largest + 1}), size) or not any(
            access.wraps and access.wrap == largest + 1
            for access in operands(config, replace(one, **{span.field: largest + 1}))
        ), point.name


def test_descriptors_are_in_the_table(config: NpuConfig) -> None:
    items = set(coverage_items(config))
    for operation in Operation:
        try:
            lanes = descriptor_lanes(config, operation)
        except InstructionError:
            continue
        for lane in lanes:
            name = table_name(lane.name)
            assert any(item.startswith(f"{operation.name}.{name}=") for item in items), (operation, lane.name)
