"""VECTOR's bf16 datapath: products of taps, sums one after the other, and a lane that multiplies, adds and limits.

A pass of stream cycle c has its products in c + 6, and its sums 6 `vector_taps` cycles later. Operands and sums enter
the lanes then; they leave them 12 cycles later, are collected into the result word, rounded, and written in the
14th, whatever the operation.
"""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory as Ram
from amaranth.utils import ceil_log2
from npukit.hw.bf16 import (
    CANONICAL_NAN,
    Bf16Multiplier,
    Float32Adder,
    Float32Multiplier,
    limited,
    narrowed,
    stored,
)
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.function import FunctionLane
from npukit.hw.pipeline import Pipeline, Staged
from npukit.hw.vector_base import OPERANDS, WINDOW, VectorDatapath, is_one_of, lane_group_bits
from npukit.hw.vector_loader import WordKind, lane_of
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import WHOLE_WORD_OPERATIONS, Operation
from npukit.isa.timing import ADDER_LATENCY, Timing

__all__ = ["Bf16VectorDatapath"]

_PRODUCTS = WINDOW + Bf16Multiplier.latency
"""Cycles from a pass to its products."""
_LINES = OPERANDS + FunctionLane.latency
"""To the line of a function."""
ONE, MINUS_INFINITY = 0x3F800000, 0xFF800000
_RAW = (Operation.COPY, Operation.PART, Operation.TRANSPOSE)
"""Operations that take bits as they are."""
_TWO_SOURCES = (Operation.ADD, Operation.MULTIPLY)


def _adding(place_bits: int) -> data.StructLayout:
    """Which sum a pass adds to, and how."""
    return data.StructLayout({"place": place_bits, "operation": Operation, "first": 1})


def _collected(config: NpuConfig) -> data.StructLayout:
    """What says where a pass's lanes go in the result word."""
    return data.StructLayout({"operation": Operation, "lane_group": lane_group_bits(config)})


class Bf16VectorDatapath(VectorDatapath):
    """See `VectorDatapath`."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        sums_at = _PRODUCTS + ADDER_LATENCY * config.vector_taps
        added_at = sums_at + Float32Multiplier.latency
        limited_at = added_at + Float32Adder.latency
        collect_at = limited_at + 1
        assert Float32Adder.latency == ADDER_LATENCY and Timing(config).vector_latency == collect_at + 2

        control = Pipeline(m).value(0, self.control, "control")
        present = control.at(OPERANDS)
        operation, group, to_acc = present.operation, present.lane_group, present.to_acc
        biases = self._parameter(m, control, 0, OPERANDS)
        field = self._descriptor_reader(m, self._descriptors(m)[present.descriptor_index], operation)
        a, b = self._operands(m, control)

        # what does not apply changes nothing: * 1, + 0, no limits
        summed = (operation == Operation.SUM) & ~to_acc
        looked_up = operation == Operation.FUNCTION
        no_limit = (operation == Operation.MAX) | ((operation == Operation.SUM) & to_acc) | looked_up
        biased = is_one_of(operation, (Operation.REQUANTIZE, Operation.DEPTHWISE))
        windowed = is_one_of(operation, (Operation.MAX, Operation.SUM, Operation.DEPTHWISE))
        single, second, factors, addends = [], [], [], []
        two = is_one_of(operation, _TWO_SOURCES)
        function_lanes = Timing(config).softmax_lanes
        lanes = max(config.vector_lanes, config.fma_lanes, function_lanes)
        for k in range(lanes):
            own, other, bias = Signal(32, name=f"a_{k}"), Signal(32, name=f"b_{k}"), Signal(32, name=f"bias_{k}")
            if k < config.vector_lanes:
                m.d.comb += [
                    own.eq(self._operand_lane(m, control, a, k, config.vector_lanes, 32, "single")),
                    bias.eq(self._lane(m, biases, group, k, config.vector_lanes, 32)),
                ]
            if k < config.fma_lanes:
                element = self._operand_lane(m, control, b, k, config.fma_lanes, 16, "two_source_b")
                first = self._operand_lane(m, control, a, k, config.fma_lanes, 32, "two_source_a")
                m.d.comb += other.eq(Cat(Const(0, 16), element))
                with m.If(two):
                    m.d.comb += own.eq(first)
            single.append(own)
            second.append(other)
            factors.append(
                Mux(operation == Operation.MULTIPLY, other, Mux(summed, field("multiplier"), Const(ONE, 32)))
            )
            addends.append(Mux(operation == Operation.ADD, other, Mux(biased, bias, Const(0, 32))))
        low, high = (Mux(no_limit, CANONICAL_NAN, field(name)) for name in ("low", "high"))

        sums = self._accumulate(m, control, single)
        lines = self._lines(m, control, a, field)
        lines_late = delay_in_memory(m, Cat(line.factors for line in lines), sums_at - _LINES, "lines_late")
        intercepts_late = delay_in_memory(m, Cat(line.addend for line in lines), added_at - _LINES, "intercepts_late")
        late_single = delay_in_memory(m, Cat(*single), sums_at - OPERANDS, "single_late")
        late_factor = delay_in_memory(m, Cat(*factors), sums_at - OPERANDS, "factor_late")
        late_addend = delay_in_memory(m, Cat(*addends), added_at - OPERANDS, "addend_late")
        limits = delay_in_memory(m, Cat(low, high), limited_at - OPERANDS, "limits_late")
        from_window = delay(m, windowed, sums_at - OPERANDS, "from_window")
        from_line = delay(m, looked_up, sums_at - OPERANDS, "from_line")
        plus_line = delay(m, from_line, added_at - sums_at, "plus_line")
        results = []
        for k in range(lanes):
            m.submodules[f"multiply_{k}"] = multiply = Float32Multiplier()
            m.submodules[f"add_{k}"] = add = Float32Adder()
            value, factor = late_single.word_select(k, 32), late_factor.word_select(k, 32)
            addend = late_addend.word_select(k, 32)
            if k < config.vector_lanes:
                value = Mux(from_window, sums[k], value)
            if k < function_lanes:
                line = lines_late.word_select(k, 64)
                value, factor = Mux(from_line, line[:32], value), Mux(from_line, line[32:], factor)
                addend = Mux(plus_line, intercepts_late.word_select(k, 32), addend)
            result = Signal(32, name=f"limited_{k}", reset_less=True)
            m.d.comb += [
                multiply.a.eq(value),
                multiply.b.eq(factor),
                add.a.eq(multiply.product),
                add.b.eq(addend),
            ]
            m.d.sync += result.eq(limited(add.total, limits[:32], limits[32:]))
            results.append(result)

        whole = delay_in_memory(
            m,
            self._whole_word(m, a.at(OPERANDS), self._transposed(m, control), operation, field),
            collect_at - OPERANDS,
            "whole_late",
        )
        self._collect(m, results, whole, collect_at)
        return m

    def _lines(self, m: Module, control: Staged, a: Staged, field) -> list[FunctionLane]:
        """The lanes that look up FUNCTION's lines, which are there in `_LINES`."""
        lanes = Timing(self._config).softmax_lanes
        word, place = self.parameters.payload.data, self.parameters.payload.place
        pair = word.word_select(lane_of(self._config, place), 64)
        lines = []
        for k in range(lanes):
            m.submodules[f"function_{k}"] = lane = FunctionLane()
            m.d.comb += [
                lane.write.eq(self._brings(WordKind.NUMBERS)),
                lane.place.eq(place.index),
                Cat(lane.slope, lane.intercept).eq(pair),
                lane.number.eq(self._operand_lane(m, control, a, k, lanes, 32, "function_number")),
                lane.indexing.eq(field("indexing")),
                lane.step.eq(field("step").as_signed()),
                lane.offset.eq(field("offset").as_signed()),
            ]
            lines.append(lane)
        return lines

    def _whole_word(self, m: Module, a: Value, transposed: Value, operation: Value, field) -> Value:
        """Result of the operations on whole words, with 32 bits a lane; of elements of ACT in the upper half."""
        words = []
        for k in range(self._config.array):
            word = Signal(32, name=f"whole_{k}")
            m.d.comb += word.eq(a.word_select(k, 32))
            with m.If(operation == Operation.FILL):
                m.d.comb += word.eq(field("value"))
            with m.If(operation == Operation.PART):
                m.d.comb += word[16:].eq(a.word_select(k, 32).word_select(field("part"), 16))
            if self._config.transpose:
                with m.If(operation == Operation.TRANSPOSE):
                    m.d.comb += word[16:].eq(transposed.word_select(k, 16))
            words.append(word)
        return Cat(*words)

    def _extend(self, m: Module, value: Value, name: str) -> Value:
        return Cat(Const(0, 16), value)

    def _accumulate(self, m: Module, control: Staged, single: list[Signal]) -> list[Value]:
        """Each lane's sum, or maximum, with this pass's terms, when all of them are added."""
        config = self._config
        lanes, taps = config.vector_lanes, config.vector_taps
        selected, weights = self._window(m, control), self._taps(m, control)
        end = _PRODUCTS + ADDER_LATENCY * taps

        # the sums as they were: written when complete, read a cycle before the first product
        passes = config.array // lanes
        place = Cat(self.control.lane_group[: ceil_log2(passes)], self.control.window.sum_place)
        m.submodules.sums = ram = Ram(shape=32 * lanes, depth=1 << len(place), init=[])
        write, read = ram.write_port(), ram.read_port()
        begun = Signal(_adding(len(place)))
        m.d.comb += [
            begun.place.eq(place),
            begun.operation.eq(self.control.operation),
            begun.first.eq(self.control.window.first),
        ]
        reading = data.View(begun.shape(), delay_in_memory(m, begun.as_value(), _PRODUCTS - 1, "sums_control"))
        maximum = delay(m, reading.operation == Operation.MAX, 1, "maximum")
        summing = delay(m, reading.operation == Operation.SUM, 1, "summing")
        first = delay(m, reading.first, 1, "first")
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(reading.place),
            write.en.eq(delay(m, self.control.passing, end, "summed")),
            write.addr.eq(delay_in_memory(m, reading.place, end - (_PRODUCTS - 1), "place_late")),
        ]
        results = []
        for k in range(lanes):
            running: Value = Signal(32, name=f"running_{k}")
            m.d.comb += running.eq(Mux(first, Mux(maximum, MINUS_INFINITY, 0), read.data.word_select(k, 32)))
            for tap, (elements, inside) in enumerate(selected):
                element = Mux(inside, elements[k], 0)
                m.submodules[f"tap_{k}_{tap}"] = multiply = Bf16Multiplier()
                m.submodules[f"sum_{k}_{tap}"] = add = Float32Adder()
                # outside of the window, a product of 0, or the least of all numbers
                candidate = Mux(inside, element, MINUS_INFINITY >> 16)
                candidate = Cat(
                    Const(0, 16), delay_in_memory(m, candidate, Bf16Multiplier.latency, f"element_{k}_{tap}")
                )
                term = Mux(maximum, candidate, multiply.product)
                if tap == 0:
                    operand = delay(m, single[k], _PRODUCTS - OPERANDS, f"operand_{k}")
                    term = Mux(summing, operand, term)
                skew = ADDER_LATENCY * tap
                m.d.comb += [
                    multiply.a.eq(element),
                    multiply.b.eq(Mux(inside, weights[tap][k], 0)),
                    add.a.eq(running),
                    add.b.eq(delay_in_memory(m, term, skew, f"term_{k}_{tap}")),
                    add.maximum.eq(delay(m, maximum, skew, f"maximum_{k}_{tap}")),
                ]
                running = add.total
            results.append(running)
        m.d.comb += write.data.eq(Cat(*results))
        return results

    def _collect(self, m: Module, results: list[Value], whole: Value, cycle: int) -> None:
        """Put this pass's lanes into the result word, and round it."""
        config = self._config
        collected = Signal(_collected(config))
        m.d.comb += [
            collected.operation.eq(self.control.operation),
            collected.lane_group.eq(self.control.lane_group),
        ]
        late = data.View(collected.shape(), delay_in_memory(m, collected.as_value(), cycle, "collect"))
        operation, group = late.operation, late.lane_group
        word = Signal(8 * config.wide_word_bytes, reset_less=True)
        function_lanes = Timing(config).softmax_lanes
        two, is_whole = is_one_of(operation, _TWO_SOURCES), is_one_of(operation, WHOLE_WORD_OPERATIONS)
        with m.If(delay(m, self.control.passing, cycle, "collecting")):
            for element in range(config.array):
                target = word.word_select(element, 32)
                with m.If(is_whole):
                    m.d.sync += target.eq(whole.word_select(element, 32))
                with m.Elif(two):
                    with m.If(group == element // config.fma_lanes):
                        m.d.sync += target.eq(results[element % config.fma_lanes])
                if function_lanes:
                    with m.Elif(operation == Operation.FUNCTION):
                        with m.If(group == element // function_lanes):
                            m.d.sync += target.eq(results[element % function_lanes])
                with m.Elif(group == element // config.vector_lanes):
                    m.d.sync += target.eq(results[element % config.vector_lanes])
        raw = delay(m, is_one_of(operation, _RAW), 1, "raw")
        for element in range(config.array):
            value = word.word_select(element, 32)
            m.d.sync += [
                self.act_result.word_select(element, 16).eq(Mux(raw, value[16:], narrowed(value))),
                self.acc_result.word_select(element, 32).eq(Mux(raw, value, stored(value))),
            ]
