"""The table of small faults that `mutants.py` puts in: a text that stands once in a file, and what it becomes."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONFIG", "FLOATS", "MACHINES", "MUTANTS", "TOGETHER", "Mutant", "TableError", "patched"]

CONFIG, FLOATS, RECTANGLE, FLOAT_RECTANGLE = "int8-4x4", "bf16-4x4", "int8-4x8", "bf16-4x8"
MACHINES = {
    CONFIG: (CONFIG, {}),
    FLOATS: (FLOATS, {}),
    RECTANGLE: (CONFIG, {"array": 8, "array_rows": 4}),
    FLOAT_RECTANGLE: (FLOATS, {"array": 8, "array_rows": 4}),
}
"""Name -> (preset, fields that differ) of what faults are looked for on."""


class TableError(ValueError):
    """A mutant whose old text is not in its file exactly once."""


TOGETHER = {
    "hw/bursts.py": ("bursts", "BurstGenerator"),
    "hw/load.py": ("load", "LoadEngine"),
    "hw/fetch.py": ("fetch", "FetchUnit"),
    "hw/tokens.py": ("tokens", "TokenCounters"),
    "hw/ports.py": ("ports", "PortOwners"),
    "hw/matrix.py": ("matrix", "MatrixEngine"),
    "hw/array.py": ("array", "SystolicArray"),
    "hw/vector_loader.py": ("vector_loader", "VectorLoader"),
    "hw/requantize.py": ("requantize", "RequantizeLane"),
    "hw/fixed_point.py": ("requantize", "RequantizeLane"),
    "hw/softmax.py": ("softmax", "SoftmaxLane"),
    "hw/normalize.py": ("normalize", "NormalizeLane"),
    "hw/store.py": ("store", "StoreEngine"),
}
"""File -> (module, class) of the block that is there several times; of the other blocks, copies are too large."""


@dataclass(frozen=True)
class Mutant:
    """A fault: `old` stands exactly once in `file`, and becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    config: str = CONFIG

    @property
    def check(self) -> str:
        """What has to find it: `rtl` or `sim`."""
        return "sim" if self.config == CONFIG and not self.file.startswith("hw/") else "rtl"


def _in(file: str, *faults: tuple[str, str, str], config: str = CONFIG) -> list[Mutant]:
    stem = Path(file).stem
    return [Mutant(f"{stem}_{name}", file, old, new, config) for name, old, new in faults]


MUTANTS: tuple[Mutant, ...] = (
    *_in(
        "hw/bursts.py",
        ("page_limit", "in_page & (next_left", "(next_left"),
        ("longest_ignores_alignment", "to_longest = longest - following[:bus_bits]", "to_longest = longest"),
        ("beats_ignore_alignment", "(burst.address[:bus_bits] + size) >> bus_bits", "size >> bus_bits"),
        ("plane_start_stays", "Mux(last_row, moved, plane_start)", "plane_start"),
        ("last_row_of_each_plane", "return start, last_row & (planes == 0)", "return start, planes == 0"),
    ),
    *_in(
        "hw/load.py",
        ("border_right", "(column > last_word)", "(column >= last_word)"),
        ("border_top", "(row < run.pad_top)", "(row <= run.pad_top)"),
        ("border_rows_in_dram", "Mux(place.index[1] < run.pad_top, 0", "Mux(place.index[1] <= run.pad_top, 0"),
        ("lane", "Mux(first_word, row_start[:bits], lane[:bits])", "Mux(first_word, 0, lane[:bits])"),
        ("beat_order", "[*reversed(history[: beats - 1]), self.beats.payload]",
         "[self.beats.payload, *reversed(history[: beats - 1])]"),
        ("pad_value", "Mux(border, pad, word)", "Mux(border, 0, word)"),
        ("frees_other_bank", "Mux(frees_act, 1 << address.bank, 0)", "Mux(frees_act, 1 << waiting.bank, 0)"),
    ),
    *_in(
        "hw/loops.py",
        ("ring_mask", "(C(full, RING_BITS) << wrap)", "(C(full, RING_BITS) << wrap + 1)"),
        ("inner_loops_go_on", "for one in base[level:]]", "for one in base[level : level + 1]]"),
        ("inner_start", "self.at_start[inner].eq(1)", "self.at_start[inner].eq(0)"),
        ("inner_end", "self.at_end[inner].eq(self.single[inner])", "self.at_end[inner].eq(0)"),
    ),
    *_in(
        "hw/counters.py",
        ("event", "event.eq(self.count & self.events[name])", "event.eq(self.events[name])"),
    ),
    *_in(
        "hw/fetch.py",
        ("credit", "there + wanted <= capacity)", "there + wanted < capacity)"),
        ("final", "final.eq(rest == 1)", "final.eq(rest == 2)"),
        ("arrival", "(there != 0)", "(held != 0)"),
    ),
    *_in(
        "hw/tokens.py",
        ("not_taken", "tokens + more - fewer", "tokens + more"),
        ("lost_when_both_meet", "tokens + more - fewer", "tokens + (more & ~fewer) - fewer"),
    ),
    *_in(
        "hw/ports.py",
        ("no_priority", "allowed & ~Cat(*before).any()", "allowed"),
        ("one_holder", "Signal(range(most + 1), ", "Signal(1, "),
    ),
    *_in(
        "hw/matrix.py",
        ("swap_early", 'step_first, READ_LATENCY, "swap")', 'step_first, 1, "swap")'),
        ("hazard_gap", "hazard_end.eq(hazard_left <= 2)", "hazard_end.eq(hazard_left <= 3)"),
        ("late_ports", "run_many_steps.eq(many_steps)", "run_many_steps.eq(run_many_steps)"),
        ("accumulate_from_zero", "reduction_first & ~run.accumulate", "reduction_first"),
        ("tile_early", "rows_end.eq(rows_left <= 2)", "rows_end.eq(rows_left <= 3)"),
        ("first_word_of_step", "step_first.eq(Cat(words.at_start[_STEP_LOOPS:]).all())",
         "step_first.eq(words.at_start[-1])"),
    ),
    *_in(
        "hw/matrix.py",
        ("first_pass_alone", "nest.once[level].eq(passes == 1)", "nest.once[level].eq(1)"),
        ("elements_of_the_next_pass", 'READ_LATENCY, "pass")', '1, "pass")'),
        ("passes_start_anew", "reduction_first = Cat(words.at_start[1:_STEP_LOOPS]).all()",
         "reduction_first = Cat(words.at_start[1:_PASS]).all()"),
        config=RECTANGLE,
    ),
    *_in(
        "hw/array.py",
        ("weight_skew", '.as_signed(), column, f"weight_{column}")', '.as_signed(), 0, f"weight_{column}")'),
        ("weight_row", "(row_index == row)", "(row_index[:-1] == row)"),
        ("sum_one_bit_short", "16 + ceil_log2(rows)", "15 + ceil_log2(rows)"),
    ),
    *_in(
        "hw/memory.py",
        ("bank_compare", "(place.bank == bank)", "(place.bank[1:] == bank >> 1)"),
    ),
    *_in(
        "hw/vector_stream.py",
        ("same_bank_sources_at_once", "second = late if", "second = 1 if"),
        ("block_done", "word_done & place.at_end[1] & place.at_end[2]", "word_done & place.at_end[2]"),
        ("tile_leaves_early", "m.d.sync += left.eq(size)", "m.d.sync += left.eq(size - 1)"),
        ("turned_result", "result=Mux(turns, late_result, result)", "result=result"),
        ("first_of_each_row", "control.first.eq(place.at_start[1] & ", "control.first.eq("),
    ),
    *_in(
        "hw/transpose.py",
        ("one_tile", "Cat(less(k, taken), taken[place_bits])", "Cat(less(k, taken), 0)"),
        ("turn", "m.d.sync += turn.eq(taken)", "m.d.sync += turn.eq(taken + 1)"),
    ),
    *_in(
        "hw/int8_datapath.py",
        ("sums_of_the_second_source", "Mux(early.operation == Operation.TABLE_SUM, elements, b.at(WORDS))",
         "b.at(WORDS)"),
        ("all_lanes_of_the_last_word", "left.eq(Mux(present.last, there[: config.array][::-1], -1))", "left.eq(-1)"),
        ("moments_begin_with_each_pass", "present.first & (group == 0)", "present.first"),
        ("root_of_each_pass", "present.read & (operation == Operation.RECIPROCAL_ROOT)",
         "operation == Operation.RECIPROCAL_ROOT"),
        ("part", 'word_select(early_field("part"), 8)', 'word_select(early_field("part")[:1], 8)'),
    ),
    *_in(
        "hw/bf16_datapath.py",
        ("part_is_rounded", "_RAW = (Operation.COPY, Operation.PART,", "_RAW = (Operation.COPY,"),
        config=FLOATS,
    ),
    *_in(
        "hw/vector.py",
        ("writes_weights_with_load", "wants.wgt_write.eq(head.out_memory == Memory.WGT)", "wants.wgt_write.eq(0)"),
    ),
    *_in(
        "hw/vector_windows.py",
        ("window_reads", "Mux(more, front.window_width, front.window_step) + 1", "front.window_step + 1"),
        ("reads_end", "state.reads_done + 2 >= state.fresh", "state.reads_done + 1 >= state.fresh"),
        ("tap_last", "state.tap_column + 2 * taps > self.run", "state.tap_column + taps > self.run"),
        ("window_skip", "Mux(state.step_more, state.skip, 0)", "0"),
        ("window_slot", "newest.eq(state.first_slot + state.fresh - 1)", "newest.eq(state.first_slot + state.fresh)"),
        ("tap_row", "m.d.sync += state.tap_row.eq(state.tap_row + self.run.window_width + 1)",
         "m.d.sync += state.tap_row.eq(state.tap_row + self.run.window_width)"),
        ("sum_step", "(front.window_step + 1) * front.window_stride_x),\n            state.skip",
         "front.window_step * front.window_stride_x),\n            state.skip"),
    ),
    *_in(
        "hw/vector_windows.py",
        ("sweep_gap", "last_sweep | (state.gap <= 1)", "last_sweep | (state.gap <= 2)"),
        ("chunk_column", "Mux(state.fresh_chunk, state.column, state.kept_column)", "state.kept_column"),
        ("next_row", "ends | self.row_last | far", "ends | far"),
        ("first_of_sweep", "self.row_first | (state.count == 0) | far", "self.row_first | far"),
        ("sweep_tap_row", "state.tap_row.eq(state.tap_row + self.run.window_width + 1),\n",
         "state.tap_row.eq(state.tap_row + self.run.window_width),\n"),
        config=FLOATS,
    ),
    *_in(
        "hw/vector_loader.py",
        ("set_let_go_early", "parameter_hold - 1", "parameter_hold - 2"),
        ("next_set", "self.stream_set ^ self.streaming", "self.stream_set"),
        ("one_descriptor", "front.descriptor_index.eq(~front.descriptor_index)",
         "front.descriptor_index.eq(front.descriptor_index)"),
    ),
    *_in(
        "hw/vector_base.py",
        ("window_width", "Cat(window.tap_column + tap <= window.width", "Cat(window.tap_column + tap < window.width"),
        ("window_turn", "turn.eq((first + (banks - 1 - bank)) >> bank_bits)", "turn.eq(first >> bank_bits)"),
    ),
    *_in(
        "hw/int8_datapath.py",
        ("maximum_beside_window", "Mux(inside, element, 0x80)", "Mux(inside, element, 0)"),
        ("table_sign", "Value.cast(source)[:8] ^ 0x80", "Value.cast(source)[:8]"),
        ("convert_limit", "Mux(word > 127, 127", "Mux(word > 128, 127"),
    ),
    *_in(
        "hw/bf16.py",
        ("sum_tie", "rounded.eq(kept + (half & (rest | kept[0])))", "rounded.eq(kept + half)"),
        ("sum_below", "lost = lost | (bit & value[: min(step, 27)].any())", "lost = lost"),
        ("infinities_cancel", '(exponent_field(small.at(1)) == INFINITE)', "Const(0, 1)"),
        ("nothing_times_infinity", "invalid | (zero & infinite)", "invalid"),
        ("underflow", "exponent <= 127", "exponent <= 128"),
        ("product_exponent", "factors.exponent.at(3) + upper", "factors.exponent.at(3)"),
        ("nan_loses", "one[31] & ~_is_nan(one, 23) for one", "one[31] for one"),
        ("limits_cross", "Mux(crossed, high, low)", "low"),
        ("weight_of_nothing", "infinite & ~absorbed", "infinite"),
        ("half_tie", "value[:15].any() | value[16]", "1"),
        config=FLOATS,
    ),
    *_in(
        "hw/function.py",
        ("far_segment", "distance >= _PLACES, distance < 0", "distance > _PLACES, distance < 0"),
        ("segment_rounds_up", "Mux(value[-1], -(whole + lost), whole)", "Mux(value[-1], -whole, whole)"),
        ("first_segment", "Mux(place < 0, 0, Mux(place", "Mux(place < -1, 0, Mux(place"),
        ("even_root", "~value[_MANTISSA])", "value[_MANTISSA])"),
        ("root_of_odd_power", "Mux(odd, _BIAS + 1, _BIAS)", "Const(_BIAS)"),
        ("root_of_negative", "invalid | (root & sign)", "invalid"),
        ("reciprocal_of_negative", "intercept[31] ^ sign.at(3)", "intercept[31]"),
        ("flat_at_infinity", "Mux(flat, 0, place)", "place"),
        ("nothing_is_left", "Mux(infinite & (reciprocal | root), _NOTHING_LEFT, power)", "power"),
        ("scaled_below_normal", "Mux(field < 0, 0,", "Mux(field < -255, 0,"),
        ("scaled_nothing", "Mux(exponent == 0, 0, Mux(exponent == INFINITE, number, result))",
         "Mux(exponent == INFINITE, number, result)"),
        config=FLOATS,
    ),
    *_in(
        "hw/bf16_array.py",
        ("weights_early", 'delay_in_memory(m, weight, slope - 1,', 'delay_in_memory(m, weight, slope - 2,'),
        ("swap_late", 'delay(m, self.swap, row * slope,', 'delay(m, self.swap, row * slope + (row == 3),'),
        config=FLOATS,
    ),
    *_in(
        "hw/bf16_datapath.py",
        ("maximum_beside_window", "Mux(inside, element, MINUS_INFINITY >> 16)", "element"),
        ("weight_beside_window", "Mux(inside, weights[tap][k], 0)", "weights[tap][k]"),
        ("copy_rounds", "Mux(raw, value[16:], narrowed(value))", "narrowed(value)"),
        ("sum_scaled_into_acc", "summed = (operation == Operation.SUM) & ~to_acc",
         "summed = operation == Operation.SUM"),
        ("bias_of_depthwise", "(Operation.REQUANTIZE, Operation.DEPTHWISE))", "(Operation.REQUANTIZE,))"),
        ("sums_of_others", "Cat(self.control.lane_group[: ceil_log2(passes)], self.control.window.sum_place)",
         "Cat(self.control.lane_group[: ceil_log2(passes)], self.control.window.sum_place[:-1])"),
        config=FLOATS,
    ),
    *_in(
        "hw/loops.py",
        ("kept_late", "with m.If(self.keep):", "with m.If(self.keep & ~self.step):"),
        config=FLOATS,
    ),
    *_in(
        "sim/bf16_datapath.py",
        ("sums_across_passes", "tall = self.config.rows", "tall = self.config.array"),
        config=FLOAT_RECTANGLE,
    ),
    *_in(
        "sim/bfloat16.py",
        ("product_underflow", "2.0**-126 * (1 - 2.0**-25)", "2.0**-125"),
        ("half_tie", "+ (bits >> np.uint32(16) & np.uint32(1))", "+ np.uint32(1)"),
        ("maximum_of_nan", "(value > best) | np.isnan(value)", "value > best"),
        ("limit_order", "return np.where(raised > most, most, raised)",
         "return np.where(values < least, least, np.where(values > most, most, values))"),
        ("sum_by_columns", "add(total, values[:, :, :, row, column])",
         "add(total, values.swapaxes(3, 4).reshape(values.shape)[:, :, :, row, column])"),
        ("from_the_last_row", "for row in range(tall):\n                    value",
         "for row in range(tall - 1, -1, -1):\n                    value"),
        config=FLOATS,
    ),
    *_in(
        "hw/requantize.py",
        ("tie", "even = half & (lost | whole[0])", "even = half"),
        ("saturation", "Mux(overflow, limit, whole)", "whole"),
        ("upper_half", 'register(4, right(1), "right_if_lower")', 'register(4, right(0), "right_if_lower")'),
    ),
    *_in(
        "hw/fixed_point.py",
        ("half_of_negative", "half & (lost | ~negative)", "half"),
        ("high_rounding_bit", "product[33]).as_signed(), product[0]", "product[33]).as_signed(), product[1]"),
    ),
    *_in(
        "hw/softmax.py",
        ("sum_never_begins", "Mux(first, 0, sums[group.at(cycle)])", "sums[group.at(cycle)]"),
        ("sum_rounds_down", "rounded = Cat(kept[:-1], field) + up", "rounded = Cat(kept[:-1], field)"),
        ("sum_without_sticky", "Cat(kept[0] | lost, kept[1:])", "kept"),
        ("far_numbers_come_near", "Mux(far, 0, Cat(kept[0] | lost, kept[1:]))", "Cat(kept[0] | lost, kept[1:])"),
        ("infinite", "Mux(rounded[23:] >= 255, 255 << 23, ", "Mux(rounded[23:] > 255, 255 << 23, "),
        ("quotient_ties", "up = quotient[0] & (lost | quotient[1])", "up = quotient[0]"),
        ("quotient_without_rest", "lost = left.any() | moved[:_FAR].any()", "lost = moved[:_FAR].any()"),
        ("larger_than_the_sum", "register(cycle, distance < 0,", "register(cycle, distance < -255,"),
    ),
    *_in(
        "hw/moments.py",
        ("never_begin", "Mux(first.at(_SQUARES + 1), 0, total) + term", "total + term"),
        ("without_zero_point", "element - self.zero_point, 0)", "element, 0)"),
        ("all_count", "Mux(self.counted[k], element - self.zero_point, 0)", "element - self.zero_point"),
    ),
    *_in(
        "hw/reciprocal_root.py",
        ("negative_variance", "Mux(total[-1], 0, total)", "total"),
        ("without_epsilon", "<< _FRACTION_BITS) + epsilon)", "<< _FRACTION_BITS))"),
        ("always_centred", "digits.eq(Mux(self.centred, size, 0))", "digits.eq(size)"),
        ("negative_sum", "size.eq(Mux(low < 0, -low, low))", "size.eq(low)"),
        ("digit_of_nothing", "(product << 1) + Mux(fits, value, 0)", "(product << 1) + value"),
        ("one_pair_a_shift", "shift.eq(shift - pairs)", "shift.eq(shift - 1)"),
    ),
    *_in(
        "hw/normalize.py",
        ("without_mean", "weigh.product - mean", "weigh.product"),
        ("rounds_down", "(moved[1:] + moved[0])[:32]", "moved[1:]"),
        ("without_zero_point", "self.number - self.zero_point", "self.number + 0"),
        ("short_shift", "(doubled >> shift)", "(doubled >> shift[:4])"),
    ),
    *_in("hw/float32.py", ("tie", "return whole, Mux(tie, whole[0], half)", "return whole, half")),
    *_in(
        "hw/two_source.py",
        ("product_half", "product.at(2)[:11])", "product.at(2)[:10])"),
        ("source_rounding", "rounds_away(value[0], lost, value[-1])", "value[0] & lost"),
    ),
    *_in(
        "hw/store.py",
        ("strobe_stays", "kept_strobe.eq(0)", "kept_strobe.eq(kept_strobe)"),
        ("buffer_place", "stored_at.eq(count - pop)", "stored_at.eq(count)"),
        ("ends_at_first_response", "self.response & responses.reads.payload.last", "self.response"),
        ("frees_other_bank", "Mux(done, 1 << run.bank, 0)", "Mux(done, 1 << waiting.bank, 0)"),
    ),
    *_in(
        "hw/issue.py",
        ("drain_ignored", " & (~oldest.drain | (in_flight == 0))", ""),
        ("any_token_will_do", "((oldest.wait & ~self.there) == 0)",
         "((oldest.wait == 0) | ((oldest.wait & self.there) != 0))"),
    ),
    *_in(
        "hw/machine.py",
        ("busy_counter", 'busy"].eq(start | granted', 'busy"].eq(granted'),
        ("reset_before_writes_end", "~(reads.outstanding | store.outstanding | writes.held)", "~reads.outstanding"),
        ("reset_while_address_held", "reads.outstanding | store.outstanding | writes.held",
         "reads.outstanding | store.outstanding"),
    ),
    *_in("hw/bus.py", ("load_before_fetch", "Mux(held, holder.operand, ~fetches)", "Mux(held, holder.operand, loads)")),
    *_in(
        "hw/core.py",
        ("reset_abandons_bursts", "resetting & ~reset & ~inner.running & inner.quiet", "resetting & ~reset"),
    ),
    # what small programs never reach: long loops, large rings, full counters, high addresses, a bus that stalls
    *_in(
        "hw/matrix.py",
        ("wgt_ring", "ring(front.wgt_offset, wgt_offset, front.wgt_wrap)", "wgt_offset"),
        ("wgt_ring_of_activations", "front.wgt_wrap)", "front.act_wrap)"),
        ("wgt_ring_bits", "front.wgt_wrap)", "front.wgt_wrap[:3])"),
        ("act_ring_bits", "words.address[0], run.act_wrap)", "words.address[0], run.act_wrap[:3])"),
        ("loops_of_256", "LoopNest(bits, 2)", "LoopNest([min(8, one) for one in bits], 2)"),
        ("steps_of_512", "LoopNest(bits[:_STEP_LOOPS], 0)", "LoopNest([min(9, one) for one in bits[:_STEP_LOOPS]], 0)"),
        ("accumulator_saturates", "m.d.sync += total.eq(new + old)",
         "m.d.sync += total.eq(Mux((new[31] == old[31]) & ((new + old)[31] != new[31]), old, new + old))"),
    ),
    *_in(
        "hw/load.py",
        ("ring_bits", "place.address[0], run.wrap)", "place.address[0], run.wrap[:3])"),
        ("words_of_4096", "len(run.words) + 1], 2)", "12], 2)"),
        ("last_place", "issued = Queue(head.shape(), config.queue_depth)",
         "issued = Queue(head.shape(), config.queue_depth - 1)"),
    ),
    *_in(
        "hw/store.py",
        ("ring_bits", "place.address[0], run.wrap)", "place.address[0], run.wrap[:3])"),
        ("words_of_4096", "place = LoopNest(count_bits, 1)", "place = LoopNest([12, 12, 12], 1)"),
        ("leaves_before_taken", "present & (~last | sent)", "present & (~last | self.beats.valid)"),
        ("burst_ends_before_taken", "ready.eq(sent & self.beats.payload.last)",
         "ready.eq(self.beats.valid & self.beats.payload.last)"),
        ("counts_beats_before_taken", "with m.If(sent):\n            m.d.sync += beats_sent",
         "with m.If(self.beats.valid):\n            m.d.sync += beats_sent"),
        ("no_room_for_responses", " & responses.writes.ready\n", "\n"),
    ),
    *_in(
        "hw/tokens.py",
        ("seven_bits", "Signal(range(TOKEN_LIMIT + 1), ", "Signal(range(TOKEN_LIMIT // 2 + 1), "),
        ("overflow_early", "(tokens == TOKEN_LIMIT)", "(tokens == TOKEN_LIMIT - 1)"),
    ),
    *_in(
        "hw/bursts.py",
        ("row_of_64_kib", "self.left, self.size = Signal(_ROW_BITS), ", "self.left, self.size = Signal(16), "),
        ("rows_of_256", "self.planes_left = Signal.like(self.rows.rows), ", "self.planes_left = Signal(8), "),
        ("planes_of_256", "Signal.like(self.rows.rows), Signal.like(self.rows.planes)",
         "Signal.like(self.rows.rows), Signal(8)"),
        ("limit_exact", "self.rows.bytes >= self.limit", "self.rows.bytes + 1 >= self.limit"),
        ("limit_of_32_bits", "self.rows.bytes >= self.limit", "self.rows.bytes >= self.limit[:32]"),
        ("address_bits", "_WORD_BITS = 37", "_WORD_BITS = 31"),
    ),
    *_in(
        "hw/fetch.py",
        ("asked_of_1024", "asked, dispatched, arrived = Signal(32), ", "asked, dispatched, arrived = Signal(10), "),
    ),
    *_in(
        "hw/requantize.py",
        ("bias_saturates", "(self.accumulator + self.bias)[:32]",
         "clamp(self.accumulator + self.bias, -(1 << 31), (1 << 31) - 1)[:32]"),
    ),
    *_in(
        "hw/fixed_point.py",
        ("product_saturation", "product[1:32] | saturated.replicate(31)", "product[1:32]"),
        ("left_shift_bits", "Mux(shift[7], 0, shift[:5])", "Mux(shift[7], 0, shift[:4])"),
        ("right_shift_bits", "(-shift)[:5]", "(-shift)[:4]"),
    ),
    *_in(
        "hw/bus.py",
        ("base_of_load", "self.base + operands.payload.address", "self.base | operands.payload.address"),
        ("base_of_store", "self.base + requests.payload.address", "(self.base + requests.payload.address)[:32]"),
        ("program_place", "self.program + instructions.payload.offset", "self.program | instructions.payload.offset"),
        ("beat_taken_early", "beats.ready.eq(axi.wready)", "beats.ready.eq(1)"),
        ("reads_of_16", "Queue(_Owner, READ_OUTSTANDING + 1)", "Queue(_Owner, READ_OUTSTANDING // 2)"),
    ),
    *_in(
        "hw/issue.py",
        ("queue_last_place", "Queue(layout, config.queue_depth)", "Queue(layout, config.queue_depth - 1)"),
    ),
    *_in(
        "hw/registers.py",
        ("high_byte", "range(-(-register.width // 8))", "range(min(3, -(-register.width // 8)))"),
        ("high_half", 'self.value(f"{name}_HIGH"))', 'self.value(f"{name}_HIGH")[:31])'),
    ),
    *_in(
        "hw/int8_datapath.py",
        ("sum_saturates", "(value + old)[:32].as_signed()",
         "Mux((value + old) > (1 << 31) - 1, (1 << 31) - 1, (value + old)[:32].as_signed())"),
    ),
    *_in(
        "hw/vector.py",
        ("blocks_of_128", "blocks_left = Signal(9)", "blocks_left = Signal(7)"),
    ),
    *_in(
        "hw/vector_stream.py",
        ("loops_of_512", "len(self.front[name]) for name", "min(9, len(self.front[name])) for name"),
        ("second_ring_bits", "Mux(run.b_wrap, run.wrap, 0)", "Mux(run.b_wrap, run.wrap[:3], 0)"),
    ),
    *_in("hw/two_source.py", ("saturation", "return Mux(overflow, limit, value)", "return value")),
    *_in(
        "hw/vector_loader.py",
        ("loads_of_256", "loads_left=Signal(9,", "loads_left=Signal(8,"),
        config=FLOATS,
    ),
    *_in(
        "sim/numerics.py",
        ("rounds_down", "np.rint(total.astype(np.float32) * ", "np.floor(total.astype(np.float32) * "),
        ("upper_limit", "np.clip(values, low, high).astype(np.int8)", "np.clip(values, low, high - 1).astype(np.int8)"),
        ("zero_point_sign", "scaled.astype(np.float64) + zero_point", "scaled.astype(np.float64) - zero_point"),
        ("add_rounds_down", "np.rint(_to_24_bits(_odd_sum(a * left", "np.floor(_to_24_bits(_odd_sum(a * left"),
        ("add_without_offset", "_odd_sum(b * right, addend)", "_odd_sum(b * right, np.float64(0))"),
    ),
    *_in(
        "sim/functional.py",
        ("border_top_and_bottom", "(load.pad_top, load.pad_bottom),", "(load.pad_bottom, load.pad_top),"),
        ("accumulate_ignored", "if matrix.accumulate else None", "if False else None"),
    ),
    *_in(
        "sim/int8_datapath.py",
        ("pad_value", "return np.uint8(value & 0xFF).astype(np.int8)", "return np.uint8(0).astype(np.int8)"),
        ("maximum_of_rows_only", "a.max(axis=(3, 4))", "a[:, :, :, :, 0].max(axis=3)"),
        ("sum_without_bias", 'np.int32(descriptor["bias"])', "np.int32(0)"),
        ("per_channel_multiplier", "multiplier = blocks[:, 1].view(np.float32)[:, None, None]",
         "multiplier = blocks[:, 1, :1].view(np.float32)[:, None, None]"),
    ),
    *_in(
        "sim/addressing.py",
        ("kernel_column", "(matrix.kernel_width, matrix.act_stride_kernel_x)",
         "(matrix.kernel_width, matrix.act_stride_x)"),
        ("row_stride", "(matrix.height, matrix.act_stride_y)", "(matrix.height, matrix.act_stride_x)"),
        ("weights_of_block", "(matrix.blocks, steps * config.array)", "(matrix.blocks, config.array)"),
        # nothing on rings here: the compiler makes none, so ONNX Runtime cannot tell; `loops_ring_mask` is for them
        ("channel_stride", "(matrix.channels, matrix.act_stride_channel)", "(matrix.channels, matrix.act_stride_y)"),
        ("window_step", "vector.window_step * vector.window_stride_x", "vector.window_stride_x"),
    ),
)  # fmt: skip
"""Every fault, in the order in which they run."""


def patched(mutant: Mutant, text: str) -> str:
    """The text of the mutant's file, with the fault.

    Raises:
        TableError: when the old text is not there exactly once.
    """
    count = text.count(mutant.old)
    if count != 1:
        raise TableError(f"{mutant.name}: {mutant.old!r} must stand once in {mutant.file}, not {count} times")
    return text.replace(mutant.old, mutant.new)
