"""VECTOR's int8 datapath: integer sums and maxima, requantisers, two-source lanes, and the table.

A pass enters the two-source lanes with its operands, or the requantisers with its sums. Its lanes of the result word
are collected after as many cycles either way, and the word is written in the next one, whatever the operation.
"""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory as Ram
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.moments import Moments
from npukit.hw.multiplier import Multiplier
from npukit.hw.normalize import NormalizeLane
from npukit.hw.pipeline import Pipeline, Staged
from npukit.hw.reciprocal_root import ReciprocalRoot
from npukit.hw.requantize import RequantizeLane
from npukit.hw.softmax import SoftmaxLane
from npukit.hw.two_source import TwoSourceLane, TwoSourceOperation
from npukit.hw.vector_base import OPERANDS, WINDOW, WORDS, VectorDatapath, is_one_of, lane_group_bits
from npukit.hw.vector_loader import WordKind, lane_of
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import operations_of
from npukit.isa.instructions import SOFTMAX_OPERATIONS, TWO_SOURCE_OPERATIONS, WHOLE_WORD_OPERATIONS, Operation
from npukit.isa.timing import TABLE_LOAD_CYCLES, Timing

__all__ = ["Int8VectorDatapath"]

_TERMS = WINDOW + Multiplier.latency_of(8, 8)
"""Cycles from a pass to its products."""
_ADD = _TERMS + 1
"""To what they come to, which is added to what the lane has."""
_REQUANTIZE = _ADD + 1
"""To the sum, which enters the requantisers."""
_COLLECT = _REQUANTIZE + RequantizeLane.latency
"""To the lanes of the result word."""
assert _COLLECT == OPERANDS + TwoSourceLane.latency


def _collected(config: NpuConfig) -> data.StructLayout:
    """What says where a pass's lanes go in the result word."""
    return data.StructLayout({"operation": Operation, "lane_group": lane_group_bits(config), "to_acc": 1})


class _Normalized(NamedTuple):
    """Of a normalisation: the first elements of each operation's word, of which all others are 0; elements of lanes."""

    words: tuple[tuple[Operation, list[Value]], ...]
    lanes: list[Value]


class Int8VectorDatapath(VectorDatapath):
    """See `VectorDatapath`."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        timing = Timing(config)
        assert timing.vector_latency == _COLLECT + 1
        lanes, two_lanes = config.vector_lanes, config.fma_lanes
        control = Pipeline(m).value(0, self.control, "control")
        present = control.at(OPERANDS)
        operation = present.operation

        descriptors = self._descriptors(m)
        a, b = self._operands(m, control)

        # two sources
        two_source = []
        field = self._descriptor_reader(m, descriptors[present.descriptor_index], operation)
        for k in range(two_lanes):
            a_lane = self._operand_lane(m, control, a, k, two_lanes, 32, "two_source_a")
            b_lane = self._operand_lane(m, control, b, k, two_lanes, 8, "two_source_b")
            two_source.append(self._two_source_lane(m, k, a_lane, b_lane, operation, field))
        late_flag = delay(m, field("out_unsigned"), _COLLECT - OPERANDS, "out_unsigned")

        # windows and sums, to the requantisers
        single = [self._operand_lane(m, control, a, k, lanes, 32, "single") for k in range(lanes)]
        sums = self._accumulate(m, control, single)
        requantized = []
        late = control.at(_REQUANTIZE)
        parameters = [self._parameter(m, control, word, _REQUANTIZE) for word in range(3)]
        late_field = self._descriptor_reader(m, descriptors[late.descriptor_index], late.operation)
        is_sum = late.operation == Operation.SUM
        direct = is_one_of(late.operation, (Operation.REQUANTIZE, Operation.REQUANTIZE_FIXED))
        fixed = is_one_of(late.operation, (Operation.REQUANTIZE_FIXED, Operation.DEPTHWISE_FIXED))
        passed_on = []
        for k in range(lanes):
            m.submodules[f"requantize_{k}"] = lane = RequantizeLane()
            bias, multiplier, shift = (
                self._lane(m, parameter, late.lane_group, k, lanes, 32) for parameter in parameters
            )
            word = delay(m, single[k], _REQUANTIZE - OPERANDS, f"single_late_{k}")
            m.d.comb += [
                lane.accumulator.eq(Mux(direct, word, sums[k]).as_signed()),
                lane.bias.eq(Mux(is_sum, late_field("bias"), bias).as_signed()),
                lane.multiplier.eq(Mux(is_sum, late_field("multiplier"), multiplier)),
                lane.shift.eq(shift[:8].as_signed()),
                lane.fixed.eq(fixed),
                lane.zero_point.eq(late_field("zero_point").as_signed()),
                lane.low.eq(late_field("low_8").as_signed()),
                lane.high.eq(late_field("high_8").as_signed()),
            ]
            requantized.append(delay(m, lane.result, _COLLECT - _REQUANTIZE - lane.latency, f"requantized_{k}"))
            looked_up = self._look_up(m, k, single[k])
            passed_on.append(Mux(late.operation == Operation.TABLE, looked_up, sums[k])[:32])
        passed = delay_in_memory(m, Cat(*passed_on), _COLLECT - _REQUANTIZE, "passed")

        softmax = self._softmax(m, control, a, b, field)

        normalized = self._normalization(m, control, a, b, field)

        # whole words
        early = control.at(WORDS)
        early_field = self._descriptor_reader(m, descriptors[early.descriptor_index], early.operation)
        whole = self._whole_word(m, a.at(WORDS), early, early_field, self._transposed(m, control), operation)
        self._collect(m, control, requantized, two_source, late_flag, passed, whole, softmax, normalized)
        return m

    # ---- softmax

    def _softmax(self, m: Module, control: Staged, a: Staged, b: Staged, field) -> list[Value]:
        """What TABLE_SUM and TABLE_DIVIDE give, when results are collected: an element of each lane."""
        config, lanes = self._config, Timing(self._config).softmax_lanes
        if not lanes:
            return []
        present, early = control.at(OPERANDS), control.at(WORDS)
        sums = present.operation == Operation.TABLE_SUM
        place = self.parameters.payload.place
        entry = self.parameters.payload.data.word_select(lane_of(config, place), 32)
        elements = Cat(a.at(WORDS).word_select(k, 32)[:8] for k in range(config.array))
        places = Pipeline(m).value(
            WORDS, Mux(early.operation == Operation.TABLE_SUM, elements, b.at(WORDS)), "softmax_places"
        )
        is_sum = delay(m, sums, SoftmaxLane.latency, "table_sum")
        results = []
        for k in range(lanes):
            m.submodules[f"softmax_{k}"] = lane = SoftmaxLane(config.softmax_cycles)
            m.d.comb += [
                lane.write.eq(self._brings(WordKind.NUMBERS)),
                lane.place.eq(place.index),
                lane.entry.eq(entry),
                lane.source.eq(self._operand_lane(m, control, places, k, lanes, 8, "softmax_source") ^ 0x80),
                lane.first.eq(present.first),
                lane.group.eq(present.lane_group),
                lane.divisor.eq(self._operand_lane(m, control, a, k, lanes, 32, "softmax_divisor")),
                lane.factor.eq(field("factor")),
                lane.zero_point.eq(field("zero_point").as_signed()),
                lane.low.eq(field("low_8").as_signed()),
                lane.high.eq(field("high_8").as_signed()),
            ]
            total = delay_in_memory(m, lane.sum, SoftmaxLane.latency - SoftmaxLane.sum_latency, f"table_sum_{k}")
            quotient = Signal(signed(32), name=f"quotient_{k}")
            m.d.comb += quotient.eq(lane.quotient)
            result = Mux(is_sum, total, quotient.as_unsigned())
            results.append(delay(m, result, _COLLECT - OPERANDS - SoftmaxLane.latency, f"softmax_{k}_late"))
        return results

    # ---- normalisation

    def _normalization(self, m: Module, control: Staged, a: Staged, b: Staged, field) -> _Normalized | None:
        """What MOMENTS, RECIPROCAL_ROOT and NORMALIZE give, when results are collected."""
        config, lanes = self._config, Timing(self._config).normalize_lanes
        if not lanes:
            return None
        present = control.at(OPERANDS)
        operation, group = present.operation, present.lane_group
        latency = _COLLECT - OPERANDS

        def late(value: Value, cycles: int, name: str) -> Value:
            return delay_in_memory(m, value, latency - cycles, name)

        m.submodules.moments = moments = Moments(lanes)
        elements = Pipeline(m).value(
            WORDS, Cat(a.at(WORDS).word_select(k, 32)[:8] for k in range(config.array)), "moments_elements"
        )
        word = a.at(OPERANDS)
        left = Signal(config.array, name="lanes_left")
        there = Const((1 << config.array) - 1, config.array) << field("missing")
        m.d.comb += left.eq(Mux(present.last, there[: config.array][::-1], -1))
        m.d.comb += [
            moments.elements.eq(
                Cat(self._operand_lane(m, control, elements, k, lanes, 8, "moments_element") for k in range(lanes))
            ),
            moments.counted.eq(Cat(self._lane(m, left, group, k, lanes, 1) for k in range(lanes))),
            moments.zero_point.eq(field("zero_point").as_signed()),
            moments.first.eq(present.first & (group == 0)),
        ]
        sums = late(Cat(moments.sum, moments.squares), Moments.latency, "moments_late")

        m.submodules.root = root = ReciprocalRoot()
        m.d.comb += [
            root.start.eq(present.read & (operation == Operation.RECIPROCAL_ROOT)),
            root.sum.eq(word[:32]),
            root.squares.eq(word[32:64]),
            root.count.eq(field("count")),
            root.centred.eq(field("centred")),
            root.epsilon.eq(Cat(field("epsilon_low"), field("epsilon_high"))),
        ]
        results = []
        for k in range(lanes):
            m.submodules[f"normalize_{k}"] = lane = NormalizeLane()
            m.d.comb += [
                lane.number.eq(self._operand_lane(m, control, b, k, lanes, 8, "normalized_number").as_signed()),
                lane.zero_point.eq(field("zero_point").as_signed()),
                lane.count.eq(field("count")),
                lane.centred.eq(field("centred")),
                lane.sum.eq(word[:24].as_signed()),
                lane.root.eq(word[32:56]),
                lane.shift.eq(word[56:61]),
            ]
            results.append(late(lane.result, NormalizeLane.latency, f"normalized_{k}_late"))
        return _Normalized(
            words=(
                (Operation.MOMENTS, [sums[:32], sums[32:]]),
                (Operation.RECIPROCAL_ROOT, [root.same_sum, root.root]),
            ),
            lanes=results,
        )

    # ---- table

    def _look_up(self, m: Module, k: int, source: Value) -> Value:
        """The table's entry for an int8, three cycles after it came."""
        place = self.parameters.payload.place
        lane = lane_of(self._config, place)
        m.submodules[f"table_{k}"] = ram = Ram(shape=32, depth=TABLE_LOAD_CYCLES, init=[])
        write, read = ram.write_port(), ram.read_port()
        unsigned = Value.cast(source)[:8] ^ 0x80
        low = Signal(2, name=f"table_part_{k}")
        entry = Signal(signed(8), name=f"table_entry_{k}")
        m.d.comb += [
            write.en.eq(self._brings(WordKind.TABLE)),
            write.addr.eq(place.index),
            write.data.eq(self.parameters.payload.data.word_select(lane, 32)),
            read.en.eq(1),
            read.addr.eq(unsigned[2:]),
        ]
        m.d.sync += [low.eq(unsigned[:2]), entry.eq(read.data.word_select(low, 8).as_signed())]
        wide = Signal(signed(32), name=f"table_wide_{k}")
        m.d.comb += wide.eq(entry)
        return delay(m, wide.as_unsigned(), _REQUANTIZE - OPERANDS - 2, f"table_{k}_late")

    def _extend(self, m: Module, value: Value, name: str) -> Value:
        wide = Signal(signed(32), name=f"extended_{name}")
        m.d.comb += wide.eq(value.as_signed())
        return wide.as_unsigned()

    # ---- two sources

    def _two_source_lane(self, m: Module, k: int, a: Value, b: Value, operation: Value, field) -> Value:
        m.submodules[f"two_source_{k}"] = lane = TwoSourceLane(fixed=bool(self._config.fma_fixed))
        kinds = {
            Operation.ADD: TwoSourceOperation.ADD,
            Operation.ADD_FIXED: TwoSourceOperation.ADD_FIXED,
            Operation.MULTIPLY: TwoSourceOperation.MULTIPLY,
            Operation.MULTIPLY_FIXED: TwoSourceOperation.MULTIPLY_FIXED,
        }
        there = operations_of(self._config)
        with m.Switch(operation):
            for kind, mine in kinds.items():
                if kind in there:
                    with m.Case(kind):
                        m.d.comb += lane.operation.eq(mine)
        for name, source in (("a", a), ("b", b)):
            value = Signal(signed(10), name=f"source_{name}_{k}")
            element = source[:8].as_signed()
            m.d.comb += [
                value.eq(element + Mux(field(f"{name}_unsigned"), 128, 0)),
                getattr(lane, name).eq(value),
            ]
        names = (
            "ra", "rb", "offset", "multiplier", "a_multiplier", "b_multiplier", "out_multiplier", "a_shift",
            "b_shift", "out_shift", "shift", "left_shift", "a_offset", "b_offset", "out_offset",
            "a_zero_point", "b_zero_point", "out_zero_point", "low", "high",
        )  # fmt: skip
        for name in names:
            m.d.comb += getattr(lane, name).eq(field(name))
        return delay(m, lane.result, _COLLECT - OPERANDS - lane.latency, f"two_source_{k}_late")

    # ---- windows

    def _accumulate(self, m: Module, control: Staged, single: list[Value]) -> list[Value]:
        """The running sum or maximum of each lane, in the cycle after `_ADD`."""
        lanes = self._config.vector_lanes
        selected, taps = self._window(m, control), self._taps(m, control)
        adding = control.at(_ADD)
        maximum = adding.operation == Operation.MAX
        from_word = adding.operation == Operation.SUM
        results = []
        for k in range(lanes):
            products, elements = [], []
            for tap, (of_lanes, inside) in enumerate(selected):
                element, weight = of_lanes[k], taps[tap][k]
                m.submodules[f"tap_{k}_{tap}"] = multiply = Multiplier(8, 8)
                m.d.comb += [
                    multiply.a.eq(element.as_signed()),
                    multiply.b.eq(Mux(inside, weight, 0).as_signed()),
                ]
                products.append(multiply.product)
                elements.append(delay(m, Mux(inside, element, 0x80), multiply.latency, f"element_{k}_{tap}"))
            best = elements[0].as_signed()
            for other in elements[1:]:
                best = Mux(other.as_signed() > best, other.as_signed(), best)
            total = products[0]
            for product in products[1:]:
                total = total + product
            term = Signal(signed(32), name=f"term_{k}")
            m.d.sync += term.eq(Mux(control.at(_TERMS).operation == Operation.MAX, best, total))
            word = delay(m, single[k], _ADD - OPERANDS, f"sum_operand_{k}")
            value = Mux(from_word, word.as_signed(), term)
            combined = Signal(signed(32), name=f"combined_{k}")
            old = self._running(m, k, adding.lane_group, adding.passing, combined)
            m.d.comb += combined.eq(
                Mux(
                    adding.window.first,
                    value,
                    Mux(maximum, Mux(value > old, value, old), (value + old)[:32].as_signed()),
                )
            )
            result = Signal(signed(32), name=f"accumulated_{k}", reset_less=True)
            m.d.sync += result.eq(combined)
            results.append(result.as_unsigned())
        return results

    def _running(self, m: Module, k: int, group: Value, passing: Value, combined: Value) -> Value:
        """What the lane has of its present group's element, and takes anew with a pass."""
        groups = self._config.array // self._config.vector_lanes
        if groups == 1:
            register = Signal(signed(32), name=f"running_{k}", reset_less=True)
            with m.If(passing):
                m.d.sync += register.eq(combined)
            return register
        m.submodules[f"running_{k}"] = memory = Ram(shape=signed(32), depth=groups, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(passing),
            write.addr.eq(group),
            write.data.eq(combined),
            read.addr.eq(group),
        ]
        return read.data

    # ---- whole words, and the end

    def _whole_word(
        self, m: Module, a: Value, early, early_field, transposed: Value, operation: Value
    ) -> Value:  # fmt: skip
        """Result of the operations on whole words, with 32 bits a lane, when results are collected.

        `early` of an operation and its fields is as `a` is, in `WORDS`; the word of a tile comes a cycle later.
        """
        config = self._config
        parts = []
        for k in range(config.array):
            word = a.word_select(k, 32).as_signed()
            part = Signal(signed(32), name=f"whole_{k}")
            m.d.comb += part.eq(word)
            with m.If((early.operation == Operation.CONVERT) & ~early.to_acc):  # of which ACT takes eight bits
                m.d.comb += part[:8].eq(Mux(word > 127, 127, Mux(word < -128, -128, word)))
            with m.If(early.operation == Operation.FILL):
                m.d.comb += part.eq(early_field("value").as_signed())
            with m.If(early.operation == Operation.PART):
                m.d.comb += part[:8].eq(a.word_select(k, 32).word_select(early_field("part"), 8))
            late = delay(m, part.as_unsigned(), 1, f"whole_{k}")
            if config.transpose:
                of_tile = Mux(operation == Operation.TRANSPOSE, transposed.word_select(k, 8), late[:8])
                late = Cat(of_tile, late[8:])
            parts.append(late)
        return delay_in_memory(m, Cat(*parts), _COLLECT - OPERANDS, "whole_late")

    def _collect(
        self, m: Module, control: Staged, requantized: list[Value], two_source: list[Value], out_unsigned: Value,
        passed: Value, whole: Value, softmax: list[Value], normalized: _Normalized | None,
    ) -> None:  # fmt: skip
        """Put this pass's lanes into the result word."""
        config = self._config
        lanes, two_lanes = config.vector_lanes, config.fma_lanes
        collected = Signal(_collected(config))
        m.d.comb += [
            collected.operation.eq(self.control.operation),
            collected.lane_group.eq(self.control.lane_group),
            collected.to_acc.eq(self.control.to_acc),
        ]
        late = data.View(collected.shape(), delay_in_memory(m, collected.as_value(), _COLLECT, "collect"))
        passing = delay(m, self.control.passing, _COLLECT, "collecting")
        operation, group = late.operation, late.lane_group
        word = Signal(8 * config.wide_word_bytes, reset_less=True)
        is_whole = is_one_of(operation, WHOLE_WORD_OPERATIONS)
        is_two = is_one_of(operation, TWO_SOURCE_OPERATIONS)
        is_passed = is_one_of(operation, (Operation.MAX, Operation.TABLE)) | (
            (operation == Operation.SUM) & late.to_acc
        )
        with m.If(passing):
            for element in range(config.array):
                target = word.word_select(element, 32)
                with m.If(is_whole):
                    m.d.sync += target.eq(whole.word_select(element, 32))
                if softmax:
                    with m.Elif(is_one_of(operation, SOFTMAX_OPERATIONS)):
                        with m.If(group == element // len(softmax)):
                            m.d.sync += target.eq(softmax[element % len(softmax)])
                if normalized:
                    for operation_of_word, of_word in normalized.words:
                        with m.Elif(operation == operation_of_word):
                            m.d.sync += target.eq(of_word[element] if element < len(of_word) else 0)
                    with m.Elif(operation == Operation.NORMALIZE):
                        with m.If(group == element // len(normalized.lanes)):
                            m.d.sync += target.eq(normalized.lanes[element % len(normalized.lanes)])
                with m.Elif(is_two):
                    with m.If(group == element // two_lanes):
                        result = two_source[element % two_lanes]
                        m.d.sync += target.eq(result.as_signed() - Mux(out_unsigned, 128, 0))
                with m.Elif(group == element // lanes):
                    lane = element % lanes
                    m.d.sync += target.eq(Mux(is_passed, passed.word_select(lane, 32), requantized[lane].as_unsigned()))
        m.d.comb += [
            self.acc_result.eq(word),
            self.act_result.eq(Cat(*(word.word_select(k, 32)[:8] for k in range(config.array)))),
        ]
