"""VECTOR's datapath: row-windows, accumulators, lanes, and the collection of result words.

A pass of stream cycle c reads parameters and operands in c + 3 (windows) and c + 4 (single words), enters the
requantisers in c + 7 and the two-source lanes in c + 4, and its lanes of the result word are collected in
c + 19; the word is written in c + 20, whatever the operation.
"""

from amaranth import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory as Ram
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2, exact_log2
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.multiplier import Multiplier
from npukit.hw.requantize import RequantizeLane
from npukit.hw.two_source import TwoSourceLane, TwoSourceOperation
from npukit.hw.vector_loader import WordKind
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import LaneField, descriptor_lanes
from npukit.isa.instructions import Operation
from npukit.isa.timing import TABLE_LOAD_CYCLES, Timing

__all__ = ["VectorDatapath", "window_slot_bits"]

_OPERANDS = 4
_REQUANTIZE = 7
_COLLECT = 19
_DESCRIPTOR_LANES = 8


def window_slot_bits(config: NpuConfig) -> int:
    """Bits that name a word of a row-window: it has a power of two of them, at least one for each tap of a pass."""
    return ceil_log2(max(config.max_window, config.vector_taps))


class VectorDatapath(wiring.Component):
    """Members: the control of the present stream cycle, the read ports' data, and what PAR returns.

    window_slot: where the word read in this cycle goes in its row-window; window_newest: where the last one
        of the window's row is.
    act_result, acc_result: the result word, in the cycle of its write.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        self._lane_bits = max(1, bits_for(config.array - 1))
        super().__init__(
            {
                "a_data": In(word),
                "b_data": In(word),
                "acc_data": In(wide),
                "operation": In(4),
                "from_acc": In(1),
                "to_acc": In(1),
                "same_bank": In(1),
                "read": In(1),
                "read_b": In(1),
                "read_window": In(1),
                "window_row": In(4),
                "window_slot": In(window_slot_bits(config)),
                "window_newest": In(window_slot_bits(config)),
                "window_width": In(4),
                "lane_group": In(self._lane_bits),
                "tap_column": In(5),
                "tap_place": In(bits_for(config.max_window**2 + 16)),
                "first": In(1),
                "passing": In(1),
                "word_done": In(1),
                "set_index": In(1),
                "descriptor_index": In(1),
                "write_set": In(1),
                "write_kind": In(WordKind),
                "write_index": In(8),
                "write_descriptor": In(1),
                "write_data": In(wide),
                "write_table": In(1),
                "write_table_index": In(6),
                "act_result": Out(word),
                "acc_result": Out(wide),
            }
        )

    def late(self, m: Module, value: Value, cycles: int, name: str) -> Value:
        """A payload `cycles` later, for the engine around this datapath."""
        return delay_in_memory(m, value, cycles, name)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        timing = Timing(config)
        assert timing.vector_latency == _COLLECT + 1
        lanes, two_lanes = config.vector_lanes, config.fma_lanes
        operation = delay(m, self.operation, _OPERANDS, "operation")
        group = delay(m, self.lane_group, _OPERANDS, "group")
        set_index = delay(m, self.set_index, _OPERANDS, "set_index")
        descriptor_index = delay(m, self.descriptor_index, _OPERANDS, "descriptor_index")
        from_acc = delay(m, self.from_acc, _OPERANDS, "from_acc")
        to_acc = delay(m, self.to_acc, _OPERANDS, "to_acc")

        descriptors, parameters, taps, table = self._storage(m)
        a, b = self._operands(m, from_acc)

        # two sources
        two_source = []
        field = self._descriptor_reader(m, descriptors[descriptor_index], operation)
        a_lanes = [self._lane(m, a, group, k, two_lanes, 32) for k in range(two_lanes)]
        b_lanes = [self._lane(m, b, group, k, two_lanes, 8) for k in range(two_lanes)]
        for k in range(two_lanes):
            two_source.append(self._two_source_lane(m, k, a_lanes[k], b_lanes[k], operation, field))
        late_flag = delay(m, field("out_unsigned"), _COLLECT - _OPERANDS, "out_unsigned")

        # windows and sums, to the requantisers
        sums = self._accumulate(m, a, group, taps)
        single = [self._lane(m, a, group, k, lanes, 32) for k in range(lanes)]
        requantized = []
        operation_7 = delay(m, operation, _REQUANTIZE - _OPERANDS, "operation_7")
        group_7 = delay(m, group, _REQUANTIZE - _OPERANDS, "group_7")
        set_7 = delay(m, set_index, _REQUANTIZE - _OPERANDS, "set_7")
        index_7 = delay(m, descriptor_index, _REQUANTIZE - _OPERANDS, "index_7")
        field_7 = self._descriptor_reader(m, descriptors[index_7], operation_7)
        is_sum = operation_7 == Operation.SUM
        direct = (operation_7 == Operation.REQUANTIZE) | (operation_7 == Operation.REQUANTIZE_FIXED)
        fixed = (operation_7 == Operation.REQUANTIZE_FIXED) | (operation_7 == Operation.DEPTHWISE_FIXED)
        passed_on = []
        for k in range(lanes):
            m.submodules[f"requantize_{k}"] = lane = RequantizeLane()
            bias, multiplier, shift = (
                self._lane(m, parameters[set_7][word], group_7, k, lanes, 32) for word in range(3)
            )
            word = delay(m, single[k], _REQUANTIZE - _OPERANDS, f"single_{k}")
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

    # ---- parameters

    def _storage(self, m: Module):
        """Registers and memories for what PAR returns."""
        config = self._config
        wide = 8 * config.wide_word_bytes
        descriptors = Array(Signal(32 * _DESCRIPTOR_LANES, name=f"descriptor_{k}", reset_less=True) for k in range(2))
        per_word = min(config.array, _DESCRIPTOR_LANES)
        with m.If(self.write_kind == WordKind.DESCRIPTOR):
            for word in range(-(-_DESCRIPTOR_LANES // config.array)):
                with m.If(self.write_index == word):
                    m.d.sync += (
                        descriptors[self.write_descriptor]
                        .word_select(word, 32 * per_word)
                        .eq(self.write_data[: 32 * per_word])
                    )
        parameters = Array(
            Array(Signal(wide, name=f"parameter_{k}_{word}", reset_less=True) for word in range(3)) for k in range(2)
        )
        for k in range(2):
            for word in range(3):
                chosen = (self.write_set == k) & (self.write_index == word)
                with m.If((self.write_kind == WordKind.PARAMETER) & chosen):
                    m.d.sync += parameters[k][word].eq(self.write_data)
        return descriptors, parameters, self._taps(m), self._table(m)

    def _taps(self, m: Module) -> list[list[Value]]:
        """The taps of the pass that is 3 cycles old: [tap][lane] of 8 bits, of its lane group.

        Words of four taps a lane lie in as many memories as one pass may reach into, in turn.
        """
        config = self._config
        reach = (config.vector_taps + 2) // 4 + 1
        banks = 1 << ceil_log2(reach)
        words = -(-(config.max_window**2) // 4)
        depth = -(-words // banks)
        rows = 1 << ceil_log2(depth)
        place = delay(m, self.tap_place, 3, "tap_place")
        chosen = delay(m, self.set_index, 3, "tap_set")
        first = place >> 2
        outputs = []
        for bank in range(banks):
            m.submodules[f"taps_{bank}"] = ram = Ram(shape=8 * config.wide_word_bytes, depth=2 * rows, init=[])
            write, read = ram.write_port(), ram.read_port(domain="comb")
            m.d.comb += [
                write.en.eq((self.write_kind == WordKind.TAPS) & (self.write_index % banks == bank)),
                write.addr.eq(Cat((self.write_index // banks)[: max(1, ceil_log2(rows))], self.write_set)
                              if rows > 1 else self.write_set),
                write.data.eq(self.write_data),
                read.addr.eq(
                    Cat(((first + (banks - 1 - bank)) // banks)[: ceil_log2(rows)], chosen) if rows > 1 else chosen
                ),
            ]  # fmt: skip
            outputs.append(read.data)
        rotated = []
        for k in range(banks):
            word = Signal(8 * config.wide_word_bytes, name=f"tap_word_{k}")
            m.d.comb += word.eq(Array(outputs)[(first + k) % banks])
            rotated.append(word)
        group = delay(m, self.lane_group, 3, "tap_lane_group")
        runs = []
        for k in range(config.vector_lanes):
            runs.append(Cat(*(self._lane(m, word, group, k, config.vector_lanes, 32) for word in rotated)))
        found = []
        for tap in range(config.vector_taps):
            found.append([Array(run.word_select(tap + k, 8) for k in range(4))[place[:2]] for run in runs])
        return found

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
        return delay(m, wide.as_unsigned(), _REQUANTIZE - _OPERANDS - 2, f"table_{k}_late")

    def _descriptor_reader(self, m: Module, descriptor: Value, operation: Value):
        """A function from a field's name to its bits for the present operation.

        `low` and `high` stand at two places: 10 bits wide for two sources, 8 bits (`low_8`) for one.
        """
        config = self._config
        held = Signal(32 * _DESCRIPTOR_LANES, name="held_descriptor")
        m.d.comb += held.eq(descriptor)
        cache: dict[str, Value] = {}

        def bits(field: LaneField) -> Value:
            return held[32 * field.lane + field.lsb : 32 * field.lane + field.lsb + field.width]

        def read(name: str) -> Value:
            if name in cache:
                return cache[name]
            narrow = name.endswith("_8")
            plain = name.removesuffix("_8")
            width, places = 0, []
            for kind in Operation:
                if kind is Operation.TABLE:
                    continue
                for field in descriptor_lanes(config, kind):
                    is_narrow = field.width == 8 and plain in ("low", "high")
                    if field.name == plain and (plain not in ("low", "high") or is_narrow == narrow):
                        width = max(width, field.width)
                        places.append((kind, bits(field)))
            value = Signal(width, name=f"field_{name}")
            with m.Switch(operation):
                for kind, found in places:
                    with m.Case(kind):
                        m.d.comb += value.eq(found)
            cache[name] = value
            return value

        return read

    # ---- operands

    def _operands(self, m: Module, from_acc: Value) -> tuple[Value, Value]:
        """(a, b) as they stand four cycles after the first read of their word; a has 32 bits a lane."""
        config = self._config
        read = delay(m, self.read, 2, "read")
        acc_2 = delay(m, self.from_acc, 2, "from_acc_early")
        wide = Cat(*(self._extend(m, self.a_data.word_select(k, 8), f"a_{k}") for k in range(config.array)))
        a_first = Signal(8 * config.wide_word_bytes, reset_less=True)
        with m.If(read):
            m.d.sync += a_first.eq(Mux(acc_2, self.acc_data, wide))
        a = delay(m, a_first, 1, "a")
        # with both sources in one bank, b is read a cycle later and must stay while the next word's comes
        b_apart = Signal(8 * config.word_bytes, reset_less=True)
        b_after = Signal(8 * config.word_bytes, reset_less=True)
        m.d.sync += b_apart.eq(self.b_data)
        with m.If(delay(m, self.read_b & self.same_bank, 2, "read_b")):
            m.d.sync += b_after.eq(self.b_data)
        same_bank = delay(m, self.same_bank, _OPERANDS, "same_bank")
        b = Mux(same_bank, b_after, delay(m, b_apart, 1, "b"))
        return a, b

    def _extend(self, m: Module, value: Value, name: str) -> Value:
        wide = Signal(signed(32), name=f"extended_{name}")
        m.d.comb += wide.eq(value.as_signed())
        return wide.as_unsigned()

    def _lane(self, m: Module, word: Value, group: Value, k: int, lanes: int, width: int) -> Value:
        """Element `group * lanes + k` of a word."""
        groups = self._config.array // lanes
        if groups == 1:
            return word.word_select(k, width)
        found = Signal(width, name=f"lane_{k}")
        choices = Array(word.word_select(index * lanes + k, width) for index in range(groups))
        m.d.comb += found.eq(choices[group[: bits_for(groups - 1)]])
        return found

    # ---- two sources

    def _two_source_lane(self, m: Module, k: int, a: Value, b: Value, operation: Value, field) -> Value:
        m.submodules[f"two_source_{k}"] = lane = TwoSourceLane()
        kinds = {
            Operation.ADD: TwoSourceOperation.ADD,
            Operation.ADD_FIXED: TwoSourceOperation.ADD_FIXED,
            Operation.MULTIPLY: TwoSourceOperation.MULTIPLY,
            Operation.MULTIPLY_FIXED: TwoSourceOperation.MULTIPLY_FIXED,
        }
        with m.Switch(operation):
            for kind, mine in kinds.items():
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
        return delay(m, lane.result, _COLLECT - _OPERANDS - lane.latency, f"two_source_{k}_late")

    # ---- windows

    def _window(self, m: Module) -> list[tuple[Value, Value]]:
        """The pass that is 3 cycles old: for each tap, the word of its column, and whether the window has that column.

        A row-window is a ring of words. Its columns lie in as many memories as a pass reads columns, in turn.
        """
        config = self._config
        word, tap_count = 8 * config.word_bytes, config.vector_taps
        slot_bits = window_slot_bits(config)
        banks = 1 << ceil_log2(tap_count)
        bank_bits, row_bits = exact_log2(banks), bits_for(config.max_window - 1)
        read = delay(m, self.read_window, 2, "read_window")
        row_in = delay(m, self.window_row, 2, "window_row_in")[:row_bits]
        slot_in = delay(m, self.window_slot, 2, "window_slot_in")
        row = delay(m, self.window_row, 3, "window_row")[:row_bits]
        column = delay(m, self.tap_column, 2, "tap_column")
        width = delay(m, self.window_width, 2, "window_width")
        newest = delay(m, self.window_newest, 2, "window_newest")
        first = Signal(slot_bits, name="tap_slot")
        inside = Signal(tap_count, name="taps_inside")
        m.d.sync += [
            first.eq(newest - width + column),
            inside.eq(Cat(column + tap <= width for tap in range(tap_count))),
        ]
        outputs = []
        for bank in range(banks):
            turns = slot_bits - bank_bits
            m.submodules[f"window_{bank}"] = ram = Ram(shape=word, depth=1 << (row_bits + turns), init=[])
            write_port, read_port = ram.write_port(), ram.read_port(domain="comb")
            turn = Signal(turns, name=f"window_turn_{bank}")
            m.d.comb += [
                write_port.en.eq(read & (slot_in[:bank_bits] == bank)),
                write_port.addr.eq(Cat(slot_in[bank_bits:], row_in)),
                write_port.data.eq(self.a_data),
                # the turn in which a slot from `first` on lies in this memory
                turn.eq((first + (banks - 1 - bank)) >> bank_bits),
                read_port.addr.eq(Cat(turn, row)),
            ]
            outputs.append(read_port.data)
        selected = []
        for tap in range(tap_count):
            chosen = Signal(word, name=f"tap_word_{tap}")
            m.d.comb += chosen.eq(Array(outputs)[(first + tap)[:bank_bits]] if banks > 1 else outputs[0])
            selected.append((chosen, inside[tap]))
        return selected

    def _accumulate(self, m: Module, a: Value, group: Value, taps) -> list[Value]:
        """The running sum or maximum of each lane, seven cycles after its latest pass."""
        config = self._config
        lanes = config.vector_lanes
        group_3 = delay(m, self.lane_group, 3, "group_3")
        selected = self._window(m)

        operation_5 = delay(m, self.operation, 5, "operation_5")
        operation_6 = delay(m, self.operation, 6, "operation_6")
        first_6 = delay(m, self.first, 6, "first_6")
        passing_6 = delay(m, self.passing, 6, "passing_6")
        group_6 = delay(m, self.lane_group, 6, "group_6")
        maximum = operation_6 == Operation.MAX
        from_word = operation_6 == Operation.SUM
        results = []
        groups = config.array // lanes
        for k in range(lanes):
            products, elements = [], []
            for tap, (chosen, inside) in enumerate(selected):
                element = self._lane(m, chosen, group_3, k, lanes, 8)
                weight = taps[tap][k]
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
            running = Array(Signal(signed(32), name=f"running_{k}_{g}", reset_less=True) for g in range(groups))
            old = running[group_6[: bits_for(groups - 1)]] if groups > 1 else running[0]
            combined = Signal(signed(32), name=f"combined_{k}")
            m.d.comb += combined.eq(
                Mux(first_6, value, Mux(maximum, Mux(value > old, value, old), (value + old)[:32].as_signed()))
            )
            with m.If(passing_6):
                if groups > 1:
                    m.d.sync += running[group_6[: bits_for(groups - 1)]].eq(combined)
                else:
                    m.d.sync += running[0].eq(combined)
            result = Signal(signed(32), name=f"accumulated_{k}", reset_less=True)
            m.d.sync += result.eq(combined)
            results.append(result.as_unsigned())
        return results

    # ---- whole words, and the end

    def _whole_word(self, m: Module, a: Value, operation: Value, from_acc: Value, to_acc: Value, field) -> Value:
        """Result of COPY, CONVERT and FILL, with 32 bits a lane, when results are collected."""
        config = self._config
        parts = []
        for k in range(config.array):
            word = a.word_select(k, 32).as_signed()
            part = Signal(signed(32), name=f"whole_{k}")
            m.d.comb += part.eq(word)
            with m.If((operation == Operation.CONVERT) & ~to_acc):
                m.d.comb += part.eq(Mux(word > 127, 127, Mux(word < -128, -128, word)))
            with m.If(operation == Operation.FILL):
                m.d.comb += part.eq(field("value").as_signed())
            parts.append(part.as_unsigned())
        return delay_in_memory(m, Cat(*parts), _COLLECT - _OPERANDS, "whole_late")

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
