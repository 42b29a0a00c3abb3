"""Attention: a product, its softmax, and the product with that, some rows of a matrix at a time.

What is between the two products never leaves the chip. The scores of the next rows are computed before the context of
these, so that the array has work while VECTOR computes their softmax.
"""

from collections.abc import Sequence

from npukit.compiler.ir.graph import Graph
from npukit.compiler.ir.operations import ByElement, Elementwise, MatrixProduct, Softmax
from npukit.compiler.limits import MAX_BLOCKS
from npukit.compiler.schedule.builder import Builder, Placed, Region
from npukit.compiler.schedule.fusion import follow
from npukit.compiler.schedule.product import Product
from npukit.compiler.schedule.softmax import softmax_of
from npukit.compiler.tasks import Buffer
from npukit.compiler.tiling import attention_rows, parts
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import Memory

__all__ = ["attention_around", "schedule_attention"]


def attention_around(config: NpuConfig, graph: Graph, softmax: int) -> tuple[int, ...] | None:
    """Numbers of the operations that are computed together with a softmax: a product, what is made of its result
    element by element, the softmax, and a product with that; or None."""
    made, readers, outside = graph.makers(), graph.readers(), graph.outside()

    def alone(name: str) -> bool:
        return len(readers.get(name, ())) == 1 and name not in outside

    layer = graph.operations[softmax]
    assert isinstance(layer, Softmax)
    following = readers.get(layer.output, [])
    last = graph.operations[following[0]] if following else None
    if not isinstance(last, MatrixProduct) or not alone(layer.output):
        return None
    numbers, name, others = [softmax, following[0]], layer.input, [graph.tensors[last.right].storage]
    while True:
        name = graph.tensors[name].storage
        number = made.get(name, -1)
        if number < 0 or not alone(name):
            return None
        numbers.insert(0, number)
        maker = graph.operations[number]
        if isinstance(maker, MatrixProduct):
            break
        if not isinstance(maker, Elementwise | ByElement):
            return None
        sources = [graph.tensors[one].storage for one in graph.activations(maker)]
        name = max(sources, key=lambda one: made.get(one, -1))
        others += [one for one in sources if one != name]
        if sources.count(name) > 1:
            return None
    # what else they read must be there before the first of them
    if any(made.get(one, -1) >= numbers[0] for one in others):
        return None
    return tuple(numbers) if _same_places(config, graph, numbers) else None


def _same_places(config: NpuConfig, graph: Graph, numbers: Sequence[int]) -> bool:
    """Whether all take the same rows of the same matrices, and some of them fit on chip."""
    scores, *between, context = (graph.operations[number] for number in numbers)
    assert isinstance(scores, MatrixProduct) and isinstance(context, MatrixProduct)
    y, left, result = (graph.tensors[name] for name in (scores.output, context.left, context.output))
    if left.shape != y.shape or left.shape[:-2] != result.shape[:-2] or y.view[3] != y.shape[-2]:
        return False
    for layer in between:
        if graph.tensors[layer.output].view != y.view:
            return False
    blocks = -(-y.view[1] // config.array)
    return attention_rows(config, blocks) > 0 and (len(between) == 1 or blocks <= MAX_BLOCKS)


def schedule_attention(builder: Builder, numbers: Sequence[int]) -> None:
    """Emit the tasks of operations that `attention_around` has found."""
    attention = _Attention(builder, numbers)
    before: tuple[int, tuple[int, int], Placed] | None = None
    for index in range(attention.matrices):
        for rows in attention.rows():
            scores = attention.scores(index, rows)
            if before is not None:
                attention.context(*before)
            before = index, rows, attention.softmax(index, rows, scores)
    if before is not None:
        attention.context(*before)


class _Attention:
    """Operations that are scheduled together.

    Attributes:
        matrices: how many the scores have.
    """

    def __init__(self, builder: Builder, numbers: Sequence[int]) -> None:
        self._builder = builder
        first, *self._followers, softmax, last = numbers
        layers = builder.graph.operations
        scores, middle, context = layers[first], layers[softmax], layers[last]
        assert isinstance(scores, MatrixProduct) and isinstance(middle, Softmax) and isinstance(context, MatrixProduct)
        self._scores = Product(builder.of(first), scores)
        self._softmax = softmax_of(builder.of(softmax), middle)
        self._context = Product(builder.of(last), context)
        self._first, self._name = builder.of(first), scores.output
        self.matrices = self._scores.matrices

    def rows(self) -> list[tuple[int, int]]:
        """Rows of a matrix that are computed together."""
        size, blocks = self._builder.config.array, self._scores.blocks
        most = min(attention_rows(self._builder.config, blocks), self._scores.most_rows, self._context.most_rows)
        most = min(max(1, most // size), self._softmax.at_once) * size
        groups = parts(-(-self._scores.rows // size), most // size)
        return [(low * size, min(self._scores.rows, high * size)) for low, high in groups]

    def scores(self, index: int, rows: tuple[int, int]) -> Buffer:
        """Emit the first product, and what is made of it. Returns words [block][row], with what the softmax wants."""
        count, blocks = rows[1] - rows[0], self._scores.blocks
        words = blocks * count
        spare = -count % self._builder.config.array
        product = Buffer(Memory.ACT, words + (0 if self._followers else spare), self._name)
        ready = Placed(product, 0, count, count)
        self._scores.some_rows(index, rows, out=ready)
        if not self._followers:
            return product
        y = self._builder.tensor(self._name)
        image, row = divmod(index, y.view[2])
        part = Region(y, self._builder.config.array, image, (0, blocks), (row, row + 1), rows)
        out = Buffer(Memory.ACT, words + spare, self._name)
        follow(self._first, self._followers, y.storage, part, ready, Placed(out, 0, count, count))
        return out

    def softmax(self, index: int, rows: tuple[int, int], scores: Buffer) -> Placed:
        """Emit the softmax of some rows; returns where it is."""
        count = rows[1] - rows[0]
        out = Buffer(Memory.ACT, self._scores.blocks * count, self._name)
        first = index * self._scores.rows
        self._softmax.take(scores, first + rows[0], first + rows[1], out)
        return Placed(out, 0, count, count)

    def context(self, index: int, rows: tuple[int, int], left: Placed) -> None:
        """Emit the second product of some rows."""
        self._context.some_rows(index, rows, left=left)
