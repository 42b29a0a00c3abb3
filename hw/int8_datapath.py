"""VECTOR's int8 datapath: integer sums and maxima, requantisers, two-source lanes, and the table.

A pass of stream cycle c enters the requantisers in c + 7 and the two-source lanes in c + 4, and its lanes of the
result word are collected in c + 19; the word is written in c + 20, whatever the operation.
"""

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.memory import Memory as Ram
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.multiplier import Multiplier
from npukit.hw.requantize import RequantizeLane
from npukit.hw.two_source import TwoSourceLane, TwoSourceOperation
from npukit.hw.vector_base import OPERANDS, VectorDatapath
from npukit.isa.descriptors import operations_of
from npukit.isa.instructions import Operation
from npukit.isa.timing import TABLE_LOAD_CYCLES, Timing

__all__ = ["Int8VectorDatapath"]

_REQUANTIZE = 7
_COLLECT = 19


class Int8VectorDatapath(VectorDatapath):
    """See `VectorDatapath`."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        timing = Timing(config)
        assert timing.vector_latency == _COLLECT + 1
        lanes, two_lanes = config.vector_lanes, config.fma_lanes
        operation = delay(m, self.operation, OPERANDS, "operation")
        group = delay(m, self.lane_group, OPERANDS, "group")
        descriptor_index = delay(m, self.descriptor_index, OPERANDS, "descriptor_index")
        from_acc = delay(m, self.from_acc, OPERANDS, "from_acc")
        to_acc = delay(m, self.to_acc, OPERANDS, "to_acc")

        descriptors = self._descriptors(m)
        taps, table = self._taps(m), self._table(m)
        a, b = self._operands(m, from_acc)

        # two sources
        two_source = []
        field = self._descriptor_reader(m, descriptors[descriptor_index], operation)
        a_lanes = [self._lane(m, a, group, k, two_lanes, 32) for k in range(two_lanes)]
        b_lanes = [self._lane(m, b, group, k, two_lanes, 8) for k in range(two_lanes)]
        for k in range(two_lanes):
            two_source.append(self._two_source_lane(m, k, a_lanes[k], b_lanes[k], operation, field))
        late_flag = delay(m, field("out_unsigned"), _COLLECT - OPERANDS, "out_unsigned")

        # windows and sums, to the requantisers
        sums = self._accumulate(m, a, group, taps)
        single = [self._lane(m, a, group, k, lanes, 32) for k in range(lanes)]
        requantized = []
        operation_7 = delay(m, operation, _REQUANTIZE - OPERANDS, "operation_7")
        group_7 = delay(m, group, _REQUANTIZE - OPERANDS, "group_7")
        parameters = [self._parameter(m, word, _REQUANTIZE) for word in range(3)]
        index_7 = delay(m, descriptor_index, _REQUANTIZE - OPERANDS, "index_7")
        field_7 = self._descriptor_reader(m, descriptors[index_7], operation_7)
        is_sum = operation_7 == Operation.SUM
        direct = (operation_7 == Operation.REQUANTIZE) | (operation_7 == Operation.REQUANTIZE_FIXED)
        fixed = (operation_7 == Operation.REQUANTIZE_FIXED) | (operation_7 == Operation.DEPTHWISE_FIXED)
        passed_on = []
        for k in range(lanes):
            m.submodules[f"requantize_{k}"] = lane = RequantizeLane()
            bias, multiplier, shift = (self._lane(m, parameter, group_7, k, lanes, 32) for parameter in parameters)
            word = delay(m, single[k], _REQUANTIZE - OPERANDS, f"single_{k}")
            m.d.comb += [
                lane.accumulator.eq(Mux(direct, word, sums[k]).as_signed()),
                lane.bias.eq(Mux(is_sum, field_7("bias"), bias).as_signed()),
                lane.multiplier.eq(Mux(is_sum, field_7("multiplier"), multiplier)),
                lane.shift.eq(shift[:8].as_signed()),
                lane.fixed.eq(fixed),
                lane.zero_point.eq(field_7("zero_point").as_signed()),
                lane.low.eq(field_7("low_8").as_signed()),
                lane.high.eq(field_7("high_8").as_signed()),
            ]
            requantized.append(delay(m, lane.result, _COLLECT - _REQUANTIZE - lane.latency, f"requantized_{k}"))
            looked_up = self._look_up(m, k, single[k], table)
            passed_on.append(Mux(operation_7 == Operation.TABLE, looked_up, sums[k])[:32])
        passed = delay_in_memory(m, Cat(*passed_on), _COLLECT - _REQUANTIZE, "passed")

        # whole words
        whole = self._whole_word(m, a, operation, from_acc, to_acc, field)
        self._collect(m, requantized, two_source, late_flag, passed, whole)
        return m

    # ---- table

    def _table(self, m: Module) -> tuple[Value, Value, Value]:
        """(write enable, index, four entries) of the table's word that comes in this cycle."""
        lane = self.write_table_index % self._config.array
        return self.write_table, self.write_table_index, self.write_data.word_select(lane, 32)

    def _look_up(self, m: Module, k: int, source: Value, table) -> Value:
        """The table's entry for an int8, three cycles after it came."""
        enable, index, entries = table
        m.submodules[f"table_{k}"] = ram = Ram(shape=32, depth=TABLE_LOAD_CYCLES, init=[])
        write, read = ram.write_port(), ram.read_port()
        unsigned = Value.cast(source)[:8] ^ 0x80
        low = Signal(2, name=f"table_part_{k}")
        entry = Signal(signed(8), name=f"table_entry_{k}")
        m.d.comb += [
            write.en.eq(enable),
            write.addr.eq(index),
            write.data.eq(entries),
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

    def _accumulate(self, m: Module, a: Value, group: Value, taps) -> list[Value]:
        """The running sum or maximum of each lane, seven cycles after its latest pass."""
        config = self._config
        lanes = config.vector_lanes
        selected = self._window(m)

        operation_5 = delay(m, self.operation, 5, "operation_5")
        operation_6 = delay(m, self.operation, 6, "operation_6")
        first_6 = delay(m, self.first, 6, "first_6")
        passing_6 = delay(m, self.passing, 6, "passing_6")
        group_6 = delay(m, self.lane_group, 6, "group_6")
        maximum = operation_6 == Operation.MAX
        from_word = operation_6 == Operation.SUM
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
                elements.append(delay(m, Mux(inside, element, 0x80), 2, f"element_{k}_{tap}"))
            best = elements[0].as_signed()
            for other in elements[1:]:
                best = Mux(other.as_signed() > best, other.as_signed(), best)
            total = products[0]
            for product in products[1:]:
                total = total + product
            term = Signal(signed(32), name=f"term_{k}")
            m.d.sync += term.eq(Mux(operation_5 == Operation.MAX, best, total))
            operand = delay(m, self._lane(m, a, group, k, lanes, 32), 2, f"sum_operand_{k}")
            value = Mux(from_word, operand.as_signed(), term)
            combined = Signal(signed(32), name=f"combined_{k}")
            old = self._running(m, k, group_6, passing_6, combined)
            m.d.comb += combined.eq(
                Mux(first_6, value, Mux(maximum, Mux(value > old, value, old), (value + old)[:32].as_signed()))
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

    def _whole_word(self, m: Module, a: Value, operation: Value, from_acc: Value, to_acc: Value, field) -> Value:
        """Result of COPY, CONVERT and FILL, with 32 bits a lane, when results are collected."""
        config = self._config
        parts = []
        for k in range(config.array):
            word = a.word_select(k, 32).as_signed()
            part = Signal(signed(32), name=f"whole_{k}")
            m.d.comb += part.eq(word)
            with m.If((operation == Operation.CONVERT) & ~to_acc):  # of which ACT takes eight bits
                m.d.comb += part[:8].eq(Mux(word > 127, 127, Mux(word < -128, -128, word)))
            with m.If(operation == Operation.FILL):
                m.d.comb += part.eq(field("value").as_signed())
            parts.append(part.as_unsigned())
        return delay_in_memory(m, Cat(*parts), _COLLECT - OPERANDS, "whole_late")

    def _collect(
        self, m: Module, requantized: list[Value], two_source: list[Value], out_unsigned: Value,
        passed: Value, whole: Value,
    ) -> None:  # fmt: skip
        """Put this pass's lanes into the result word."""
        config = self._config
        lanes, two_lanes = config.vector_lanes, config.fma_lanes
        control = delay_in_memory(m, Cat(self.operation, self.lane_group, self.to_acc), _COLLECT, "collect")
        passing = delay(m, self.passing, _COLLECT, "collecting")
        operation, group, to_acc = control[:4], control[4 : 4 + self._lane_bits], control[-1]
        word = Signal(8 * config.wide_word_bytes, reset_less=True)
        is_whole = (operation == Operation.COPY) | (operation == Operation.CONVERT) | (operation == Operation.FILL)
        is_two = (
            (operation == Operation.ADD)
            | (operation == Operation.ADD_FIXED)
            | (operation == Operation.MULTIPLY)
            | (operation == Operation.MULTIPLY_FIXED)
        )
        is_passed = (
            (operation == Operation.MAX) | (operation == Operation.TABLE) | ((operation == Operation.SUM) & to_acc)
        )
        with m.If(passing):
            for element in range(config.array):
                target = word.word_select(element, 32)
                with m.If(is_whole):
                    m.d.sync += target.eq(whole.word_select(element, 32))
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
