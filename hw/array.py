"""The int8 weight-stationary systolic array with double-buffered weights."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2
from npukit.hw.delay import delay
from npukit.hw.product import ProductPair, RegisteredProduct

__all__ = ["ProcessingElement", "SystolicArray"]


class ProcessingElement(wiring.Component):
    """What one multiplier has around it: its two weights, and the sum. The multiplier is the array's, which has one
    for each two elements on some platforms.

    An activation of cycle t is multiplied with the active weight, or with the shadow weight, which then
    becomes active, if `swap` comes with it. The sum leaves in t + `latency`, the activation in t + 1, with the weight
    that is its factor; their product comes in t + 2.
    """

    latency = 1 + RegisteredProduct.latency_of(False) + 1
    """Registers of the activation, of the product, of the sum."""

    activation: Signal
    swap: Signal
    sum_in: Signal
    weight: Signal
    weight_en: Signal
    product: Signal
    factor: Signal
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
                "product": In(signed(16)),
                "factor": Out(signed(8)),
                "activation_out": Out(signed(8)),
                "swap_out": Out(1),
                "sum_out": Out(signed(sum_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shadow = Signal(signed(8))
        with m.If(self.weight_en):
            m.d.sync += shadow.eq(self.weight)
        with m.If(self.swap):
            m.d.sync += self.factor.eq(shadow)
        m.d.sync += [
            self.activation_out.eq(self.activation),
            self.swap_out.eq(self.swap),
            self.sum_out.eq(self.sum_in + self.product),
        ]
        return m


class SystolicArray(wiring.Component):
    """`rows` x `columns` processing elements with the skews at their edges; columns are of an even number, as they are
    in all configurations.

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
        elements: dict[tuple[int, int], ProcessingElement] = {}
        sums: list = [0] * columns
        for column in range(columns):
            weight = delay(m, self.weights.word_select(column, 8).as_signed(), column, f"weight_{column}")
            m_control = delay(m, control, column, f"weight_control_{column}") if column else control
            row_index, enable = m_control[:-1], m_control[-1]
            for row in range(self._rows):
                element = elements[row, column] = ProcessingElement(self._sum_bits)
                m.submodules[f"element_{row}_{column}"] = element
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
        self._multiply(m, elements)
        aligned = [delay(m, total, columns - 1 - column, f"sum_{column}") for column, total in enumerate(sums)]
        for column, total in enumerate(aligned):
            wide = Signal(signed(32), name=f"wide_{column}")
            m.d.comb += [wide.eq(total.as_signed()), self.sums.word_select(column, 32).eq(wide)]
        return m

    def _multiply(self, m: Module, elements: dict[tuple[int, int], ProcessingElement]) -> None:
        """Products, two by two: of a row's neighbours."""
        for (row, column), element in elements.items():
            if column % 2 == 0:
                beside = elements[row, column + 1]
                m.submodules[f"product_{row}_{column // 2}"] = pair = ProductPair(8)
                for one, (a, b), product in zip((element, beside), pair.factors, pair.products, strict=True):
                    m.d.comb += [a.eq(one.activation_out), b.eq(one.factor), one.product.eq(product)]
