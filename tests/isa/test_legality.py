"""Modes that an instruction may have by itself, stated a second time, by hand."""

import itertools
from dataclasses import replace

import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import End, Instruction, Load, Matrix, Memory, Operation, Store, Vector
from npukit.isa.legality import illegal_mode

INT8, BF16 = PRESETS["int8-8x8"], PRESETS["bf16-8x8"]
ACT, ACC, WGT, PAR = Memory.ACT, Memory.ACC, Memory.WGT, Memory.PAR
BOTH = {(ACT, ACT), (ACT, ACC), (ACC, ACT), (ACC, ACC)}
PAIRS = {
    Operation.REQUANTIZE: {(ACC, ACT)},
    Operation.REQUANTIZE_FIXED: {(ACC, ACT)},
    Operation.CONVERT: {(ACT, ACC), (ACC, ACT)},
    Operation.COPY: {(ACT, ACT), (ACC, ACC), (ACT, WGT)},
    Operation.SUM: BOTH,
    Operation.FILL: BOTH | {(ACT, WGT)},
    Operation.PART: {(ACC, ACT)},
    Operation.TRANSPOSE: {(ACT, ACT), (ACT, WGT)},
    Operation.TABLE_SUM: {(ACT, ACC)},
    Operation.TABLE_DIVIDE: {(ACC, ACT)},
    Operation.MOMENTS: {(ACT, ACC)},
    Operation.RECIPROCAL_ROOT: {(ACC, ACC)},
    Operation.NORMALIZE: {(ACC, ACC)},
    Operation.FUNCTION: BOTH,
}
BF16_PAIRS = {**PAIRS, Operation.ADD: BOTH, Operation.MULTIPLY: BOTH}
INT8_ALONE = {
    Operation.REQUANTIZE_FIXED, Operation.ADD_FIXED, Operation.MULTIPLY_FIXED, Operation.DEPTHWISE_FIXED,
    Operation.TABLE, Operation.TABLE_SUM, Operation.TABLE_DIVIDE, Operation.MOMENTS, Operation.RECIPROCAL_ROOT,
    Operation.NORMALIZE,
}  # fmt: skip


PLAIN = replace(INT8, fma_fixed=0, transpose=0, softmax_cycles=0, normalize_cycles=0)
LEFT_OUT = {
    Operation.ADD_FIXED, Operation.MULTIPLY_FIXED, Operation.TRANSPOSE, Operation.TABLE_SUM, Operation.TABLE_DIVIDE,
    Operation.MOMENTS, Operation.RECIPROCAL_ROOT, Operation.NORMALIZE,
}  # fmt: skip


@pytest.mark.parametrize("config", [INT8, BF16, PLAIN], ids=["int8", "bf16", "plain"])
@pytest.mark.parametrize("operation", Operation)
def test_memories_of_an_operation(operation: Operation, config: NpuConfig) -> None:
    there = operation not in (INT8_ALONE if config is BF16 else {Operation.FUNCTION})
    pairs = BF16_PAIRS if config is BF16 else PAIRS
    if config is PLAIN and operation in LEFT_OUT:
        there = False
    for one, other in itertools.product(Memory, Memory):
        reason = illegal_mode(config, Vector(operation=operation, a_memory=one, out_memory=other, width=config.array))
        legal = there and (one, other) in pairs.get(operation, {(ACT, ACT)})
        assert (reason is None) == legal, reason
        assert not there or legal or reason is not None and f"not from {one.name} to {other.name}" in reason


def test_second_sources() -> None:
    for operation, memory in itertools.product(Operation, Memory):
        one, other = min(PAIRS.get(operation, {(ACT, ACT)}))
        vector = Vector(operation=operation, a_memory=one, out_memory=other, width=INT8.array)
        if not vector.is_window and operation is not Operation.FUNCTION:
            reason = illegal_mode(INT8, replace(vector, b_memory=memory))
            assert (reason is None) == (memory is ACT or not vector.has_two_sources)


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        (Load(memory=ACC), "LOAD writes ACT, WGT or PAR, not ACC"),
        (Load(memory=PAR, pad_bottom=1), "a LOAD to PAR has no border"),
        (Load(memory=PAR, dram_row_stride=-4), None),
        (Load(memory=PAR, dram_row_stride=-2), "multiples of a PAR word, 4 ACT words, not 0, 0, -2"),
        (Load(memory=WGT, dram=3, pad_left=3, pad_value=0xFFFF), None),
        (Load(signal=1), "an engine has no tokens with itself"),
        (Matrix(wait=2), "an engine has no tokens with itself"),
        (Store(wait=8), "an engine has no tokens with itself"),
        (Store(wait=7, signal=7, drain=1), None),
        (Vector(operation=Operation.MAX, a_stride_x=-1), "a window operation has a_stride_x 0, not -1"),
        (Vector(operation=Operation.MAX, window_height=7, window_width=7), None),
        (Vector(operation=Operation.MAX, window_height=8), "window 8x1 exceeds max_window 7"),
        (Vector(operation=Operation.COPY, a_stride_x=-1), None),
        (Vector(operation=Operation.TRANSPOSE, width=4), "its width is 8, the array's, not 4"),
        (Vector(operation=Operation.TRANSPOSE, width=8, height=3), None),
        (Vector(operation=Operation.TABLE_SUM, out_memory=ACC, out_stride_block=3, height=3), None),
        (Vector(operation=Operation.TABLE_SUM, out_memory=ACC, out_stride_y=1), "are 0, not 1 and 0"),
        (Vector(operation=Operation.TABLE_SUM, out_memory=ACC, out_stride_x=-1), "are 0, not 0 and -1"),
        (Vector(operation=Operation.MOMENTS, out_memory=ACC, out_stride_y=2), "MOMENTS has one result in a block"),
        (End(signal=1), "END takes and gives no tokens, and does not drain"),
        (End(wait=1), "END takes and gives no tokens, and does not drain"),
        (End(drain=1), "END takes and gives no tokens, and does not drain"),
        (End(), None),
    ],
)  # fmt: skip
def test_other_modes(instruction: Instruction, reason: str | None) -> None:
    found = illegal_mode(INT8, instruction)
    assert found is None if reason is None else found is not None and reason in found


def test_a_par_word_of_bf16() -> None:
    assert illegal_mode(BF16, Load(memory=PAR, dram=2)) is None
    assert illegal_mode(BF16, Load(memory=PAR, dram=1)) is not None
