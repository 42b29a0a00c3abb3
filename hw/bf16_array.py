"""The bf16 weight-stationary systolic array: as the int8 one, but that rows trail each other by an adder's latency."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from npukit.hw.bf16 import Bf16Multiplier, Float32Adder
from npukit.hw.delay import delay, delay_in_memory

__all__ = ["Bf16Array", "Bf16ProcessingElement"]


class Bf16ProcessingElement(wiring.Component):
    """One multiplier and one adder with two weights.

    An activation of cycle t is multiplied with the active weight, or with the shadow weight, which then becomes
    active, if `swap` comes with it. `sum_in` comes in t + `product_latency`, the sum leaves in t + `latency`, the
    activation in t + 1.
    """

    product_latency = Bf16Multiplier.latency
    latency = Bf16Multiplier.latency + Float32Adder.latency

    def __init__(self) -> None:
        super().__init__(
            {
                "activation": In(16),
                "swap": In(1),
                "weight": In(16),
                "weight_en": In(1),
                "sum_in": In(32),
                "activation_out": Out(16),
                "swap_out": Out(1),
                "sum_out": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply = multiply = Bf16Multiplier()
        m.submodules.add = add = Float32Adder()
        shadow, active = Signal(16), Signal(16)
        with m.If(self.weight_en):
            m.d.sync += shadow.eq(self.weight)
        with m.If(self.swap):
            m.d.sync += active.eq(shadow)
        m.d.sync += [self.activation_out.eq(self.activation), self.swap_out.eq(self.swap)]
        m.d.comb += [
            multiply.a.eq(self.activation),
            multiply.b.eq(Mux(self.swap, shadow, active)),
            add.a.eq(self.sum_in),
            add.b.eq(multiply.product),
            self.sum_out.eq(add.total),
        ]
        return m


class Bf16Array(wiring.Component):
    """`rows` x `columns` processing elements with the skews at their edges.

    An activation word that enters in cycle t leaves as a word of sums in t + `latency`. Weights enter as in the int8
    array, a word a cycle with its row's number; between rows they wait as long as activations do, so that both go
    down the array with one slope.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self._rows, self._columns = rows, columns
        self.latency = (rows - 1) * Float32Adder.latency + (columns - 1) + Bf16ProcessingElement.latency
        super().__init__(
            {
                "activations": In(16 * rows),
                "swap": In(1),
                "weights": In(16 * columns),
                "weights_row": In(bits_for(rows - 1)),
                "weights_en": In(1),
                "sums": Out(32 * columns),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        columns, slope = self._columns, Float32Adder.latency
        # what enters column 0 of each row: an activation and whether it swaps
        rows = []
        for row in range(self._rows):
            activation = self.activations.word_select(row, 16)
            rows.append(
                (
                    delay_in_memory(m, activation, row * slope, f"activation_{row}"),
                    delay(m, self.swap, row * slope, f"swap_{row}"),
                )
            )
        control = Cat(self.weights_row, self.weights_en)
        for column in range(columns):
            weight = delay(m, self.weights.word_select(column, 16), column, f"weight_{column}")
            command = delay(m, control, column, f"weight_control_{column}")
            total = None
            for row in range(self._rows):
                if row:
                    weight = delay_in_memory(m, weight, slope - 1, f"weight_{row}_{column}")
                    command = delay(m, command, slope - 1, f"weight_control_{row}_{column}")
                m.submodules[f"element_{row}_{column}"] = element = Bf16ProcessingElement()
                activation, swap = rows[row]
                m.d.comb += [
                    element.activation.eq(activation),
                    element.swap.eq(swap),
                    element.sum_in.eq(0 if total is None else total),
                    element.weight.eq(weight),
                    element.weight_en.eq(command[-1] & (command[:-1] == row)),
                ]
                rows[row] = element.activation_out, element.swap_out
                total = element.sum_out
            assert total is not None
            m.d.comb += self.sums.word_select(column, 32).eq(delay(m, total, columns - 1 - column, f"sum_{column}"))
        return m
