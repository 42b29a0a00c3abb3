"""What the datapaths of VECTOR have in common: parameters, operands, row-windows, lanes of words."""

from dataclasses import replace

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory as Ram
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2, exact_log2
from npukit.hw.delay import delay, payload_attributes
from npukit.hw.pipeline import Pipeline, Staged
from npukit.hw.transpose import Transposer
from npukit.hw.vector_loader import WordKind, parameter_word
from npukit.hw.vector_windows import window_pass, window_slot_bits
from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import LaneField, descriptor_lanes, table_lanes
from npukit.isa.instructions import InstructionError, Operation
from npukit.isa.timing import READ_LATENCY, Timing

__all__ = ["OPERANDS", "WINDOW", "WORDS", "VectorDatapath", "is_one_of", "lane_group_bits", "stream_cycle"]

WINDOW = READ_LATENCY + 1
"""Cycles from a pass to the words of its window, and to their taps."""
OPERANDS = READ_LATENCY + 2
"""Cycles from a pass to its operands, where they are single words."""
WORDS = OPERANDS - 1
"""To the words that they are lanes of."""
_DESCRIPTOR_LANES = 8


def is_one_of(operation: Value, kinds) -> Value:
    """Whether `operation` is among `kinds`."""
    result: Value = Value.cast(0)
    for kind in kinds:
        result = result | (operation == kind)
    return result


def lane_group_bits(config: NpuConfig) -> int:
    """Bits that name a group of lanes of a word."""
    return max(1, bits_for(config.array - 1))


def stream_cycle(config: NpuConfig) -> data.StructLayout:
    """What VECTOR does in a cycle in which an instruction streams.

    operation, from_acc, to_acc: the instruction's. same_bank: both sources lie in one.
    read, read_b: a word of the first, of the second source is read.
    passing: there is a pass, of lanes `lane_group`; with TRANSPOSE, of the word that a tile gives, `array` cycles after
        one of its own was read.
    first, last: it is of a block's first, of its last word.
    window: of a window operation; of others, no word goes to a row-window.
    set_index, descriptor_index: the instruction's parameters.
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "from_acc": 1,
            "to_acc": 1,
            "same_bank": 1,
            "read": 1,
            "read_b": 1,
            "passing": 1,
            "first": 1,
            "last": 1,
            "lane_group": lane_group_bits(config),
            "window": window_pass(config),
            "set_index": 1,
            "descriptor_index": 1,
        }
    )


class VectorDatapath(wiring.Component):
    """A pass of stream cycle c reads parameters and operands in c + 3 (windows) and c + 4 (single words).

    Members:
        control: what is done in the present stream cycle.
        parameters: stream in, the words that PAR returns.
        a, b, acc: what the read ports return.
        act_result, acc_result: the result word, in the cycle of its write.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        super().__init__(
            {
                "control": In(stream_cycle(config)),
                "parameters": In(stream.Signature(parameter_word(config), always_ready=True)),
                "a": In(word),
                "b": In(word),
                "acc": In(wide),
                "act_result": Out(word),
                "acc_result": Out(wide),
            }
        )

    # ---- parameters

    def _descriptors(self, m: Module) -> Array:
        """Registers for both descriptors."""
        config = self._config
        place, word_data = self.parameters.payload.place, self.parameters.payload.data
        descriptors = Array(Signal(32 * _DESCRIPTOR_LANES, name=f"descriptor_{k}", reset_less=True) for k in range(2))
        per_word = min(config.array, _DESCRIPTOR_LANES)
        with m.If(self._brings(WordKind.DESCRIPTOR)):
            for word in range(-(-_DESCRIPTOR_LANES // config.array)):
                first, end = word * per_word, min(_DESCRIPTOR_LANES, (word + 1) * per_word)
                with m.If(place.index == word):
                    part = descriptors[place.descriptor][32 * first : 32 * end]
                    m.d.sync += part.eq(word_data[: 32 * (end - first)])
        return descriptors

    def _brings(self, kind: WordKind) -> Value:
        """Whether a word of a kind comes from PAR."""
        return self.parameters.valid & (self.parameters.payload.place.kind == kind)

    def _parameter(self, m: Module, control: Staged, word: int, cycle: int) -> Value:
        """A block's word of parameters, of the pass that is `cycle` cycles old."""
        wide, place = 8 * self._config.wide_word_bytes, self.parameters.payload.place
        m.submodules[f"parameter_{word}"] = ram = Ram(shape=wide, depth=2, init=[], attrs=payload_attributes(wide))
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            write.en.eq(self._brings(WordKind.PARAMETER) & (place.index == word)),
            write.addr.eq(place.set),
            write.data.eq(self.parameters.payload.data),
            read.en.eq(1),
            read.addr.eq(control.at(cycle - 1).set_index),
        ]
        return read.data

    def _taps(self, m: Module, control: Staged) -> list[list[Value]]:
        """The taps of the pass that is 3 cycles old: [tap][lane] of an element, of its lane group.

        Words of four int8 or two bf16 taps a lane lie in as many memories as one pass may reach into, in turn.
        """
        config = self._config
        per_word = 4 // config.element_bytes
        reach = (config.vector_taps + 2 * per_word - 2) // per_word
        banks = 1 << ceil_log2(reach)
        words = -(-(config.max_window**2) // per_word)
        depth = -(-words // banks)
        row_bits = ceil_log2(depth)
        early, place = control.at(1).window.tap_place, control.at(WINDOW).window.tap_place
        first_early, first = early >> exact_log2(per_word), place >> exact_log2(per_word)
        going = self.parameters.payload.place
        outputs = []
        for bank in range(banks):
            wide = 8 * config.wide_word_bytes
            m.submodules[f"taps_{bank}"] = ram = Ram(
                shape=wide, depth=2 << row_bits, init=[], attrs=payload_attributes(wide)
            )
            write, read = ram.write_port(), ram.read_port()
            m.d.comb += [
                write.en.eq(self._brings(WordKind.TAPS) & (going.index % banks == bank)),
                write.addr.eq(Cat((going.index // banks)[:row_bits], going.set)),
                write.data.eq(self.parameters.payload.data),
                read.en.eq(1),
                read.addr.eq(Cat(((first_early + (banks - 1 - bank)) // banks)[:row_bits], control.at(1).set_index)),
            ]
            outputs.append(read.data)
        # lanes first: they are fewer than the words' elements
        group = control.at(2).lane_group
        runs = []
        for k in range(config.vector_lanes):
            mine = Array(Signal(32, name=f"tap_lane_{k}_{bank}", reset_less=True) for bank in range(banks))
            # a cycle of its own: a block RAM's word comes late in the cycle, and the multipliers may be far away
            m.d.sync += Cat(*mine).eq(Cat(self._lane(m, word, group, k, config.vector_lanes, 32) for word in outputs))
            run = Signal(32 * banks, name=f"tap_run_{k}")
            m.d.comb += run.eq(Cat(mine[(first + bank) % banks] for bank in range(banks)))
            runs.append(run)
        found = []
        for tap in range(config.vector_taps):
            chosen = place[: exact_log2(per_word)]
            found.append([Array(self._element(run, tap + k) for k in range(per_word))[chosen] for run in runs])
        return found

    def _descriptor_reader(self, m: Module, descriptor: Value, operation: Value):
        """A function from a field's name to its bits for the present operation.

        `low` and `high` stand at two places: 10 bits wide for two sources, 8 bits (`low_8`) for one.
        """
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
                for field in self._fields(kind):
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

    def _fields(self, operation: Operation) -> tuple[LaneField, ...]:
        """What the descriptor registers hold for an operation: not a table, which has a memory, but what follows it."""
        try:
            lanes = descriptor_lanes(self._config, operation)
        except InstructionError:  # of the other data type, or left out
            return ()
        first = table_lanes(self._config, operation)
        return tuple(replace(one, lane=one.lane - first) for one in lanes if one.lane >= first)

    # ---- operands

    def _operands(self, m: Module, control: Staged) -> tuple[Staged, Staged]:
        """Words of both sources, from `WORDS` on; the first has 32 bits a lane."""
        config = self._config
        returned = control.at(READ_LATENCY)
        wide = Cat(*(self._extend(m, self._element(self.a, k), f"a_{k}") for k in range(config.array)))
        a = Signal(8 * config.wide_word_bytes, reset_less=True)
        with m.If(returned.read):
            m.d.sync += a.eq(Mux(returned.from_acc, self.acc, wide))
        # with both sources in one bank, b is read a cycle later, and may come just when it is wanted
        b = Signal(8 * config.word_bytes, reset_less=True)
        with m.If(returned.read_b):
            m.d.sync += b.eq(self.b)
        b_now = Mux(returned.read_b & returned.same_bank, self.b, b)
        pipeline = Pipeline(m)
        return pipeline.value(WORDS, a, "a"), pipeline.value(WORDS, b_now, "b")

    def _operand_lane(
        self, m: Module, control: Staged, word: Staged, k: int, lanes: int, width: int, name: str
    ) -> Value:
        """Element `group * lanes + k` of an operand's word, in `OPERANDS`: chosen before its register, so that the word
        needs none."""
        return delay(m, self._lane(m, word.at(WORDS), control.at(WORDS).lane_group, k, lanes, width), 1, f"{name}_{k}")

    def _transposed(self, m: Module, control: Staged) -> Value:
        """The words of tiles turned around, as they stand `OPERANDS` cycles after the pass that makes them."""
        config = self._config
        if not config.transpose:
            return Const(0, 8 * config.word_bytes)
        m.submodules.transposer = transposer = Transposer(config.array, 8 * config.element_bytes)
        assert READ_LATENCY + Transposer.latency == OPERANDS
        returned = control.at(READ_LATENCY)
        turns = returned.operation == Operation.TRANSPOSE
        m.d.comb += [
            transposer.put.eq(turns & returned.read),
            transposer.word.eq(self.a),
            transposer.take.eq(turns & returned.passing),
        ]
        return transposer.result

    def _extend(self, m: Module, value: Value, name: str) -> Value:
        """An element of ACT as one of ACC."""
        raise NotImplementedError

    def _element(self, word: Value, index: int) -> Value:
        return word.word_select(index, 8 * self._config.element_bytes)

    def _lane(self, m: Module, word: Value, group: Value, k: int, lanes: int, width: int) -> Value:
        """Element `group * lanes + k` of a word."""
        groups = self._config.array // lanes
        if groups == 1:
            return word.word_select(k, width)
        found = Signal(width, name=f"lane_{k}")
        choices = Array(word.word_select(index * lanes + k, width) for index in range(groups))
        m.d.comb += found.eq(choices[group[: bits_for(groups - 1)]])
        return found

    # ---- windows

    def _window(self, m: Module, control: Staged) -> list[tuple[list[Value], Value]]:
        """The pass that is 3 cycles old: for each tap, its column's elements of the lanes, and whether the window has
        that column.

        A row-window is a ring of words. Its columns lie in as many memories as a pass reads columns, in turn.
        """
        config = self._config
        word, tap_count = 8 * config.word_bytes, config.vector_taps
        slot_bits = window_slot_bits(config)
        banks = 1 << ceil_log2(tap_count)
        # a sweep goes through one window row at a time
        bank_bits, row_bits = exact_log2(banks), 0 if Timing(config).sweeps else ceil_log2(config.max_window)
        returned, late = control.at(READ_LATENCY), control.at(WINDOW)
        window = returned.window
        row_in, row = window.row[:row_bits], late.window.row[:row_bits]
        first = Signal(slot_bits, name="tap_slot")
        inside = Signal(tap_count, name="taps_inside")
        m.d.sync += [
            first.eq(window.newest - window.width + window.tap_column),
            inside.eq(Cat(window.tap_column + tap <= window.width for tap in range(tap_count))),
        ]
        outputs = []
        for bank in range(banks):
            turns = slot_bits - bank_bits
            m.submodules[f"window_{bank}"] = ram = Ram(shape=word, depth=1 << (row_bits + turns), init=[])
            write_port, read_port = ram.write_port(), ram.read_port(domain="comb")
            turn = Signal(turns, name=f"window_turn_{bank}")
            m.d.comb += [
                write_port.en.eq(window.read_window & (window.slot[:bank_bits] == bank)),
                write_port.addr.eq(Cat(window.slot[bank_bits:], row_in)),
                write_port.data.eq(self.a),
                # the turn in which a slot from `first` on lies in this memory
                turn.eq((first + (banks - 1 - bank)) >> bank_bits),
                read_port.addr.eq(Cat(turn, row)),
            ]
            outputs.append(read_port.data)
        # lanes first, as with taps
        lanes, bits = config.vector_lanes, 8 * config.element_bytes
        group = late.lane_group
        found = [[self._lane(m, output, group, k, lanes, bits) for output in outputs] for k in range(lanes)]
        selected = []
        for tap in range(tap_count):
            elements: list[Value] = []
            for k, of_banks in enumerate(found):
                element = Signal(bits, name=f"window_element_{k}_{tap}")
                m.d.comb += element.eq(Array(of_banks)[(first + tap)[:bank_bits]] if banks > 1 else of_banks[0])
                elements.append(element)
            selected.append((elements, inside[tap]))
        return selected
