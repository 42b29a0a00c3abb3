"""The int8 weight-stationary systolic array with double-buffered weights."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2
from npukit.hw.delay import delay
from npukit.hw.product import RegisteredProduct

__all__ = ["ProcessingElement", "SystolicArray"]


class ProcessingElement(wiring.Component):
    """One multiplier with its two weights.

    An activation of cycle t is multiplied with the active weight, or with the shadow weight, which then
    becomes active, if `swap` comes with it. The sum leaves in t + `latency`, the activation in t + 1.
    """

    latency = 1 + RegisteredProduct.latency_of(False) + 1
    """Registers of the activation, of the product, of the sum."""

    activation: Signal
    swap: Signal
    sum_in: Signal
    weight: Signal
    weight_en: Signal
    activation_out: Signal
    swap_out: Signal
    sum_out: Signal

    def __init__(self, sum_bits: int) -> None:
        super().__init__(
            {
                "activation": In(signed(8)),
                "swap": In(1),
                "weight": In(signed(8)),
                "weight_en": In(1),
                "sum_in": In(signed(sum_bits)),
                "activation_out": Out(signed(8)),
                "swap_out": Out(1),
                "sum_out": Out(signed(sum_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shadow, active = Signal(signed(8)), Signal(signed(8))
        m.submodules.multiply = multiply = RegisteredProduct(8, 8, registered_factors=False)
        with m.If(self.weight_en):
            m.d.sync += shadow.eq(self.weight)
        with m.If(self.swap):
            m.d.sync += active.eq(shadow)
        m.d.comb += [multiply.a.eq(self.activation_out), multiply.b.eq(active)]
        m.d.sync += [
            self.activation_out.eq(self.activation),
            self.swap_out.eq(self.swap),
            self.sum_out.eq(self.sum_in + multiply.product),
        ]
        return m


class SystolicArray(wiring.Component):
    """`rows` x `columns` processing elements with the skews at their edges.

    An activation word that enters in cycle t leaves as a word of sums in t + `latency`. A weight word for
    row r that enters in cycle t is in the shadows of row r before the activation of cycle t + 1 - r reaches
    them: the whole tile enters in `rows` cycles, row 0 first, and its first row at the earliest in the
    cycle in which the previous tile's first activation (with `swap`) enters.
    """

    activations: Signal
    swap: Signal
    weights: Signal
    weights_row: Signal
    weights_en: Signal
    sums: Signal

    def __init__(self, rows: int, columns: int) -> None:
        self._rows, self._columns = rows, columns
        self._sum_bits = 16 + ceil_log2(rows)
        self.latency = (rows - 1) + (columns - 1) + ProcessingElement.latency
        super().__init__(
            {
                "activations": In(8 * rows),
                "swap": In(1),
                "weights": In(8 * columns),
                "weights_row": In(bits_for(rows - 1)),
                "weights_en": In(1),
                "sums": Out(32 * columns),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        columns = self._columns
        rows = []
        for row in range(self._rows):
            rows.append(
                (
                    delay(m, self.activations.word_select(row, 8).as_signed(), row, f"activation_{row}"),
                    delay(m, self.swap, row, f"swap_{row}"),
                )
            )
        control = Cat(self.weights_row, self.weights_en)
        sums: list = [0] * columns
        for column in range(columns):
            weight = delay(m, self.weights.word_select(column, 8).as_signed(), column, f"weight_{column}")
            m_control = delay(m, control, column, f"weight_control_{column}") if column else control
            row_index, enable = m_control[:-1], m_control[-1]
            for row in range(self._rows):
                m.submodules[f"element_{row}_{column}"] = element = ProcessingElement(self._sum_bits)
                activation, swap = rows[row]
                m.d.comb += [
                    element.activation.eq(activation),
                    element.swap.eq(swap),
                    element.sum_in.eq(sums[column]),
                    element.weight.eq(weight),
                    element.weight_en.eq(enable & (row_index == row)),
                ]
                rows[row] = element.activation_out, element.swap_out
                sums[column] = element.sum_out
        aligned = [delay(m, total, columns - 1 - column, f"sum_{column}") for column, total in enumerate(sums)]
        for column, total in enumerate(aligned):
            wide = Signal(signed(32), name=f"wide_{column}")
            m.d.comb += [wide.eq(total.as_signed()), self.sums.word_select(column, 32).eq(wide)]
        return m
