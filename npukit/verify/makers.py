"""Random instructions, each legal by itself: any mode, loops, strides, borders, rings and banks.

What a `Wish` names is as it says; everything else is drawn so that it fits. A try may find nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from random import Random

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import descriptor_lanes, descriptor_words, operations_of, parameter_words
from npukit.isa.instructions import (
    REDUCTION_OPERATIONS,
    TWO_SOURCE_OPERATIONS,
    WHOLE_WORD_OPERATIONS,
    WINDOW_OPERATIONS,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
    fields_of,
)
from npukit.isa.legality import vector_memories
from npukit.isa.timing import Timing
from npukit.verify.parameters import parameter_image
from npukit.verify.places import Place, Places, all_different, reach

__all__ = ["FOLLOWS", "DramLayout", "InstructionMaker", "Wish"]

_PASSED_ON = frozenset({*WHOLE_WORD_OPERATIONS, Operation.TABLE, Operation.MAX})
"""Operations that pass values on, or choose between them."""
FOLLOWS = {
    Operation.TABLE_DIVIDE: Operation.TABLE_SUM,
    Operation.RECIPROCAL_ROOT: Operation.MOMENTS,
    Operation.NORMALIZE: Operation.RECIPROCAL_ROOT,
}
"""Operations that take what another one makes."""
_LARGE = 40
"""A loop that is longer is alone in its instruction."""
_FARTHEST = 1 << 23
"""Words that a stride in DRAM cannot go."""
_MOST_CYCLES = 30_000
"""Of an instruction, about, if nothing longer is wanted."""


@dataclass(frozen=True)
class Wish:
    """What an instruction must be.

    Attributes:
        fields: values of its fields.
        properties: values of `is_window`, `has_two_sources` and `reads_a` (VECTOR).
        turning: strides whose loops must have more than one turn.
        passes: whether the ring of `ring`, an operand's name, must be passed.
        parameters: bits of fields of its descriptor, or of its blocks' parameters.
        follows: whether it must read what an operation as in `FOLLOWS` made.
    """

    kind: type[Instruction]
    fields: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)
    turning: frozenset[str] = frozenset()
    ring: str = ""
    passes: bool | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    follows: bool = False


@dataclass(frozen=True)
class DramLayout:
    """ACT words of the DRAM image: data from 0 on, parameters, room to store, and, in a large one, more data behind.

    Attributes:
        data, parameters, store: first words of the three parts.
        words: of all, a whole number of pages.
    """

    parameters: int
    store: int
    store_end: int
    words: int
    data: int = 0


class InstructionMaker:
    """Makes instructions that fit a program's arenas and DRAM.

    Attributes:
        memory: the DRAM image, into which parameters are written.
        loads: what has to come before the instruction just made: the LOAD of its parameters.
    """

    def __init__(
        self, config: NpuConfig, random: Random, places: Places, layout: DramLayout, memory: NDArray[np.uint8]
    ) -> None:
        self.config, self.random, self.places = config, random, places
        self.layout, self.memory = layout, memory
        self.loads: list[Load] = []
        self._next_parameters = layout.parameters
        self._previous: Matrix | None = None
        self._made: dict[Operation, Vector] = {}
        self._added: dict[str, int] = {}
        """Bits of the descriptor of the last TABLE_SUM."""

    def make(self, wish: Wish) -> Instruction | None:
        """An instruction of that kind, or None: then another try may find one."""
        self.loads = []
        makers = {Load: self._load, Matrix: self._matrix, Vector: self._vector, Store: self._store}
        return makers[wish.kind](wish)  # type: ignore[index]

    # ---- pieces

    def _counts(self, wish: Wish, most: Mapping[str, int], turning: Mapping[str, str]) -> dict[str, int]:
        """Counts of loops: as wanted, more than one where a stride must have an effect, small beside a long one.

        Args:
            most: count -> the greatest to be drawn.
            turning: stride -> its loop's count.
        """
        random = self.random
        specs = {spec.name: spec for spec in fields_of(wish.kind)}
        given = {name: wish.fields[name] for name in most if name in wish.fields}
        large = any(count > _LARGE for count in given.values())
        found = {}
        for name, limit in most.items():
            least = 2 if any(count == name for stride, count in turning.items() if stride in wish.turning) else 1
            if name in given:
                found[name] = given[name]
            elif large:
                found[name] = least
            elif limit <= least:
                found[name] = least
            else:
                far = random.randint(least, limit) if random.random() < 0.97 else random.randint(limit, 8 * limit)
                found[name] = min(max(least, random.choice([1, 1, 2, 3, far])), specs[name].high)
        return found

    def _place(
        self, wish: Wish, memory: Memory, counts: Iterable[int], strides: tuple[str, ...], *, prefix: str = "",
        operand: str, wrap: str, **options: bool,
    ) -> Place | None:  # fmt: skip
        """A place for an operand of the wish; `strides` are the names of its fields, `wrap` that of its ring."""
        given = wish.fields
        widths = {spec.name: spec.width for spec in fields_of(wish.kind)}
        mine = wish.ring == operand
        ring = given.get(wrap) if mine or wish.kind is not Vector or given.get(wrap) == 0 else None
        return self.places.choose(
            memory, tuple(counts), [widths[name] for name in strides],
            bank=given.get(f"{prefix}bank"), offset=given.get(f"{prefix}offset"), wrap=ring,
            passes=wish.passes if mine else None, strides=[given.get(name) for name in strides], **options,
        )  # fmt: skip

    def _dram(self, wish: Wish, counts: tuple[int, int, int], unit: int, low: int, high: int) -> tuple | None:
        """(address, plane stride, row stride) of rows of `counts[2]` words, about the words from `low` to `high`."""
        random, given = self.random, wish.fields
        planes, rows, words = counts
        store = wish.kind is Store
        row, plane = given.get("dram_row_stride"), given.get("dram_plane_stride")
        if row is None:
            choices = [words, words, words + random.randint(0, 50)] if store else [words, words, 0, self._near(words)]
            row = random.choice(choices) // unit * unit
        if plane is None:
            span = abs(row) * (rows - 1) + words
            choices = [span, span, span + random.randint(0, 90)] if store else [span, random.randint(-300, 600)]
            plane = random.choice(choices) // unit * unit
            if abs(plane) >= _FARTHEST:
                plane = words // unit * unit
        # without effect, whatever they are
        if rows == 1 and "dram_row_stride" not in given and random.random() < 0.2:
            row = random.randrange(-_FARTHEST, _FARTHEST) // unit * unit
        if planes == 1 and "dram_plane_stride" not in given and random.random() < 0.2:
            plane = random.randrange(-_FARTHEST, _FARTHEST) // unit * unit
        loops = (planes, rows, words), (plane, row, 1)
        if store and not all_different(*loops):
            return None
        below, above = reach(*loops)
        size = self.layout.words
        if "dram" in given:
            dram = 0 if given["dram"] == 0 else size - unit
        else:
            page = 4096 // self.config.word_bytes
            near = low + random.choice([random.randrange(high - low), page - random.randint(0, 20), high - low - words])
            dram = max(near, low) // unit * unit
            dram = min(max(dram, -below), (size - 1 - above) // unit * unit)
            if store:
                dram = max(dram, min(low - below, (size - 1 - above) // unit * unit))
        if dram + below < 0 or dram + above >= size:
            return None
        return dram, plane, row

    def _near(self, words: int) -> int:
        return self.random.choice([self.random.randint(-40, 200), words + self.random.randint(0, 9)])

    # ---- LOAD and STORE

    def _load(self, wish: Wish) -> Load | None:
        random, given = self.random, wish.fields
        memory = Memory(given.get("memory", random.choice([Memory.ACT] * 6 + [Memory.WGT] * 3 + [Memory.PAR])))
        wide = memory is Memory.PAR
        sides = ("pad_top", "pad_bottom", "pad_left", "pad_right")
        pads = {name: given.get(name, 0 if wide else random.choice([0, 0, 0, 1, 2])) for name in sides}
        if not wide and random.random() < 0.03:
            pads |= {name: random.randint(0, 31) for name in sides if name not in given}
        if "pad_value" in given and not any(pads.values()):
            pads["pad_left"] = 1
        most = {"planes": 3, "rows": 5, "words": 20}
        loops = {"plane_stride": "planes", "dram_plane_stride": "planes", "dram_row_stride": "rows"}
        loops |= {"row_stride": "rows", "word_stride": "words"}
        counts = self._counts(wish, most, loops)
        if max(counts.values()) > _LARGE:
            pads |= {name: 0 for name in sides if name not in given}
        places = (
            counts["planes"],
            pads["pad_top"] + counts["rows"] + pads["pad_bottom"],
            pads["pad_left"] + counts["words"] + pads["pad_right"],
        )
        place = self._place(
            wish, memory, places, ("plane_stride", "row_stride", "word_stride"), operand="destination", wrap="wrap",
            different=True, filled=False,
        )  # fmt: skip
        if place is None:
            return None
        unit = self.config.wide_word_units if wide else 1
        layout = self.layout
        stored = random.random() < 0.3
        low, high = (layout.store, layout.store_end) if stored else (layout.data, layout.parameters)
        dram = self._dram(wish, (counts["planes"], counts["rows"], counts["words"] * unit), unit, low, high)
        if dram is None:
            return None
        return Load(
            memory=memory, bank=place.bank, offset=place.offset, wrap=place.wrap, dram=dram[0], **counts,
            plane_stride=place.strides[0], row_stride=place.strides[1], word_stride=place.strides[2],
            dram_plane_stride=dram[1], dram_row_stride=dram[2], **pads,
            pad_value=given.get("pad_value", random.randrange(1 << 8 * self.config.element_bytes)),
        )  # fmt: skip

    def _store(self, wish: Wish) -> Store | None:
        loops = {"plane_stride": "planes", "dram_plane_stride": "planes", "dram_row_stride": "rows"}
        loops |= {"row_stride": "rows", "word_stride": "words"}
        counts = self._counts(wish, {"planes": 3, "rows": 5, "words": 24}, loops)
        if any(abs(wish.fields.get(name, 9)) == 1 for name in ("dram_row_stride", "dram_plane_stride")):
            counts["words"] = wish.fields.get("words", 1)  # or rows would overlap
            if "dram_plane_stride" in wish.fields:
                counts["rows"] = wish.fields.get("rows", 1)
        strides = ("plane_stride", "row_stride", "word_stride")
        place = self._place(wish, Memory.ACT, counts.values(), strides, operand="source", wrap="wrap")
        layout = self.layout
        dram = self._dram(wish, tuple(counts.values()), 1, layout.store, layout.store_end)  # type: ignore[arg-type]
        if place is None or dram is None:
            return None
        return Store(
            bank=place.bank, offset=place.offset, wrap=place.wrap, dram=dram[0], **counts,
            plane_stride=place.strides[0], row_stride=place.strides[1], word_stride=place.strides[2],
            dram_plane_stride=dram[1], dram_row_stride=dram[2],
        )  # fmt: skip

    # ---- MATRIX

    def _matrix(self, wish: Wish) -> Matrix | None:
        random, given, config = self.random, wish.fields, self.config
        most = {"channels": 2, "kernel_height": 2, "kernel_width": 3, "height": 5, "width": 8, "blocks": 3}
        act_strides = ("act_stride_channel", "act_stride_kernel_y", "act_stride_kernel_x", "act_stride_y")
        act_strides = (*act_strides, "act_stride_x")
        acc_strides = ("acc_stride_block", "acc_stride_y", "acc_stride_x")
        loops: dict[str, str] = dict(zip(act_strides, most, strict=False))
        loops |= dict(zip(acc_strides, ("blocks", "height", "width"), strict=True))
        counts = self._counts(wish, most, loops)
        steps = counts["channels"] * counts["kernel_height"] * counts["kernel_width"]
        words = counts["height"] * counts["width"]
        if (
            steps * config.row_passes * counts["blocks"] * max(words, config.rows, 4) > _MOST_CYCLES
            and max(given.values(), default=0) < 9
        ):
            return None
        accumulate = given.get("accumulate", random.randint(0, 1))
        acc_counts = (counts["blocks"], counts["height"], counts["width"])
        previous = self._previous
        walked = previous is not None and random.random() < 0.3 and not any("acc" in name for name in given)
        if walked and previous is not None and acc_counts == (previous.blocks, previous.height, previous.width):
            # walk the accumulators as the last one did: no drain is needed
            accumulate = 1
            acc = Place(
                previous.acc_bank, previous.acc_offset, 0,
                (previous.acc_stride_block, previous.acc_stride_y, previous.acc_stride_x),
            )  # fmt: skip
        else:
            acc = self._place(
                wish, Memory.ACC, acc_counts, acc_strides, prefix="acc_", operand="acc", wrap="", different=True,
                filled=bool(accumulate), rings=False,
            )  # fmt: skip
        act = self._place(
            wish, Memory.ACT, list(counts.values())[:5], act_strides, prefix="act_", operand="act", wrap="act_wrap"
        )
        wgt = self.places.choose(
            Memory.WGT, (counts["blocks"] * steps * config.array,), (16,), strides=(1,),
            offset=given.get("wgt_offset"), wrap=given.get("wgt_wrap"),
            passes=wish.passes if wish.ring == "wgt" else None,
        )  # fmt: skip
        if act is None or acc is None or wgt is None:
            return None
        made = Matrix(
            accumulate=accumulate, act_bank=act.bank, act_offset=act.offset, act_wrap=act.wrap,
            wgt_offset=wgt.offset, wgt_wrap=wgt.wrap, acc_bank=acc.bank, acc_offset=acc.offset, **counts,
            **dict(zip(act_strides, act.strides, strict=True)), **dict(zip(acc_strides, acc.strides, strict=True)),
        )  # fmt: skip
        self._previous = made
        return made

    # ---- VECTOR

    def _swept(self) -> tuple[int, int]:
        """Rows and columns of about as many results as a sweep goes over, or as it needs not to wait."""
        timing = Timing(self.config)
        near = self.random.choice([timing.sweep_cycles // timing.requantise_passes, timing.sweep_words])
        results = max(1, near + self.random.choice([-2, -1, 0, 1, 1, 1, 2, 9]))
        rows = [rows for rows in range(1, 9) if results % rows == 0]
        height = self.random.choice(rows)
        return height, results // height

    def _operation(self, wish: Wish) -> tuple[Operation, Memory, Memory] | None:
        """An operation and the memories of its first source and of its result, as wanted."""
        given, wants = wish.fields, wish.properties
        ways = []
        for one in operations_of(self.config):
            properties = {
                "is_window": one in WINDOW_OPERATIONS, "has_two_sources": one in TWO_SOURCE_OPERATIONS,
                "reads_a": one is not Operation.FILL,
            }  # fmt: skip
            if wish.ring == "b" and not properties["has_two_sources"]:
                continue
            if wish.ring == "a" and not properties["reads_a"]:
                continue
            if any(properties[name] != bool(value) for name, value in wants.items()):
                continue
            if one in REDUCTION_OPERATIONS and {"out_stride_y", "out_stride_x"} & {*given, *wish.turning}:
                continue  # they are 0
            if given.get("operation", one) != one:
                continue
            pairs = [
                pair for pair in sorted(vector_memories(self.config, one))
                if given.get("a_memory", pair[0]) == pair[0] and given.get("out_memory", pair[1]) == pair[1]
            ]  # fmt: skip
            if pairs:
                ways.append((one, pairs))
        if not ways:
            return None
        # the more arithmetic there is in it, the more programs it takes to see all of it
        weights = [1 + (one not in _PASSED_ON) + (one in TWO_SOURCE_OPERATIONS) for one, _ in ways]
        operation, pairs = self.random.choices(ways, weights)[0]
        return operation, *self.random.choice(pairs)

    def _window(self, wish: Wish, large: bool) -> dict[str, int]:
        """Height, width and step of a window."""
        random, most = self.random, self.config.max_window
        if large and random.random() < 0.5:
            drawn = {"window_height": 1, "window_width": 1}
        elif random.random() < 0.1:
            drawn = {"window_height": random.choice([1, most]), "window_width": most}
        else:
            drawn = {
                "window_height": random.randint(1, min(3, most)),
                "window_width": random.randint(1, min(4, most)),
            }
        drawn["window_step"] = 1 if large else random.choice([1, 1, 2, random.randint(1, 5)])
        if "window_stride_y" in wish.turning:
            drawn["window_height"] = max(2, drawn["window_height"])
        if "window_stride_x" in wish.turning:
            drawn["window_width"] = max(2, drawn["window_width"])
        return {name: wish.fields.get(name, value) for name, value in drawn.items()}

    def _vector(self, wish: Wish) -> Vector | None:
        random, given = self.random, wish.fields
        found = self._operation(wish)
        if found is None:
            return None
        operation, a_memory, out_memory = found
        free = not any(name.startswith("a_") for name in (*given, *wish.turning)) and not wish.ring
        if not given and operation not in _PASSED_ON and random.random() < 0.5:
            # words one after the other: at random strides, few of the numbers differ
            given = {"blocks": 1, "height": 1, "width": random.choice([8, 16, 40]), "out_stride_x": 1}
            given["window_stride_x" if operation in WINDOW_OPERATIONS else "a_stride_x"] = 1
            if operation in TWO_SOURCE_OPERATIONS:
                given["b_stride_x"] = 1
            wish = replace(wish, fields=given)
        if operation is Operation.TRANSPOSE:
            if given.get("width", self.config.array) != self.config.array:
                return None
            given = {**given, "width": self.config.array}
            wish = replace(wish, fields=given)
        windowed, two = operation in WINDOW_OPERATIONS, operation in TWO_SOURCE_OPERATIONS
        grid = ("blocks", "height", "width")
        loops = {f"{side}_stride_{name}": count for side in ("a", "b", "out") for name, count in
                 zip(("block", "y", "x"), grid, strict=True)}  # fmt: skip
        if "window_step" in given:
            loops["window_step"] = "width"
        counts = self._counts(wish, {"blocks": 3, "height": 4, "width": 9}, loops)
        window = self._window(wish, max(counts.values()) > _LARGE) if windowed else {}
        if windowed and Timing(self.config).sweeps and random.random() < 0.5 and not given.keys() & set(grid):
            counts["height"], counts["width"] = self._swept()
        if windowed and window["window_width"] > 4 and not given.keys() & set(grid):
            counts |= {"height": 1, "width": 2}
        cycles = prod(counts.values()) * prod(list(window.values())[:2])
        cycles *= max(1, Timing(self.config).word_cycles(operation) // self.config.array)
        if cycles > _MOST_CYCLES and max(given.values(), default=0) < 9:
            return None
        fields: dict[str, int] = {"operation": operation, "a_memory": a_memory, "out_memory": out_memory}
        fields |= counts | window
        wraps: dict[str, int] = {}
        reduces = operation in REDUCTION_OPERATIONS
        results = counts | {"height": 1, "width": 1} if reduces else counts
        place = self._result(wish, out_memory, results, fields, wraps)
        if place is None:
            return None
        if reduces:
            fields |= {"out_stride_y": 0, "out_stride_x": 0}
        before = self._made.get(FOLLOWS.get(operation, operation)) if operation in FOLLOWS and free else None
        if operation is Operation.FILL:
            wraps["a"] = 0
        elif before is not None and (wish.follows or random.random() < 0.7):
            # few other accumulators are numbers that come near
            fields |= {"a_bank": before.out_bank, "a_offset": before.out_offset}
            fields |= {"a_stride_block": before.out_stride_block * (counts["blocks"] <= before.blocks)}
            wraps["a"] = 0
        elif not self._in_place(wish, "a", a_memory, counts, window, fields, wraps, place) and not self._first_source(
            wish, a_memory, counts, window, fields, wraps
        ):
            return None
        if two and not self._in_place(wish, "b", Memory.ACT, counts, window, fields, wraps, place):
            if not self._source(wish, "b", Memory.ACT, tuple(counts.values()), fields, wraps):
                return None
        sizes = {size for size in wraps.values() if size}
        if len(sizes) > 1:
            return None
        # a ring of 2**0 words is none
        fields["wrap"] = max(sizes, default=0)
        fields |= {f"{side}_wrap": int(size > 0) for side, size in wraps.items()}
        if not sizes and random.random() < 0.3:
            fields |= {f"{side}_wrap": random.getrandbits(1) for side in wraps}
        if given.get("wrap") == 0:
            fields |= {name: given[name] for name in ("a_wrap", "b_wrap", "out_wrap") if name in given}
        if any(fields.get(name, 0) != given[name] for name in ("a_wrap", "b_wrap", "out_wrap") if name in given):
            return None
        taps = prod(list(window.values())[:2]) if windowed else 1
        if before is not None and operation is Operation.TABLE_DIVIDE:
            # quotients of other numbers than those that were added up are mostly at one limit
            wish = replace(wish, parameters={**self._added, **wish.parameters})
        parameters = self._parameters(wish, Vector(**fields), taps)  # type: ignore[arg-type]
        if parameters is None:
            return None
        made = Vector(**fields, parameters=parameters)  # type: ignore[arg-type]
        if operation in FOLLOWS.values() and not made.out_wrap:
            self._made[operation] = made
        return made

    def _result(
        self, wish: Wish, memory: Memory, counts: Mapping[str, int], fields: dict[str, int], wraps: dict[str, int]
    ) -> Place | None:
        names = ("out_stride_block", "out_stride_y", "out_stride_x")
        place = self._place(
            wish, memory, counts.values(), names, prefix="out_", operand="out", wrap="wrap", different=True,
            filled=False,
        )  # fmt: skip
        if place is not None:
            fields |= {
                "out_bank": place.bank,
                "out_offset": place.offset,
                **dict(zip(names, place.strides, strict=True)),
            }
            wraps["out"] = place.wrap
        return place

    def _in_place(
        self, wish: Wish, side: str, memory: Memory, counts: Mapping[str, int], window: Mapping[str, int],
        fields: dict[str, int], wraps: dict[str, int], out: Place,
    ) -> bool:  # fmt: skip
        """Now and then let a source be what the result replaces; whether it is."""
        if memory != fields["out_memory"] or wish.ring == side:
            return False
        if any(name.startswith((f"{side}_", "window_stride")) for name in wish.fields if name != f"{side}_memory"):
            return False
        if window and not window["window_height"] == window["window_width"] == window["window_step"] == 1:
            return False
        often = 0.5 if max(counts.values()) > _LARGE else 0.15
        if self.random.random() >= often or not self._holds(memory, out, counts):
            return False
        block, row, column = out.strides
        fields |= {f"{side}_memory": memory, f"{side}_bank": out.bank, f"{side}_offset": out.offset}
        fields |= {f"{side}_stride_block": block, f"{side}_stride_y": row}
        fields["window_stride_x" if window else f"{side}_stride_x"] = column
        wraps[side] = out.wrap
        return True

    def _first_source(
        self, wish: Wish, memory: Memory, counts: Mapping[str, int], window: Mapping[str, int],
        fields: dict[str, int], wraps: dict[str, int],
    ) -> bool:  # fmt: skip
        """Fill in the first source; whether there is one."""
        if not window:
            return self._source(wish, "a", memory, tuple(counts.values()), fields, wraps)
        names = ("a_stride_block", "a_stride_y", "window_stride_y", "window_stride_x")
        columns = (counts["width"] - 1) * window["window_step"] + window["window_width"]
        loops = (counts["blocks"], counts["height"], window["window_height"], columns)
        place = self._place(wish, memory, loops, names, prefix="a_", operand="a", wrap="wrap")
        if place is None:
            return False
        fields |= {"a_bank": place.bank, "a_offset": place.offset, **dict(zip(names, place.strides, strict=True))}
        wraps["a"] = place.wrap
        return True

    def _holds(self, memory: Memory, place: Place, counts: Mapping[str, int]) -> bool:
        """Whether all words of the place are in an arena."""
        low, high = reach(tuple(counts.values()), place.strides)
        if place.wrap:
            ring = place.offset >> place.wrap << place.wrap
            first, last = ring, ring + (1 << place.wrap) - 1
        else:
            first, last = place.offset + low, place.offset + high
        return any(
            one.bank == place.bank and one.low <= first and last < one.low + one.size
            for one in self.places.arenas.get(memory, ())
        )

    def _source(
        self, wish: Wish, side: str, memory: Memory, counts: tuple[int, ...], fields: dict[str, int],
        wraps: dict[str, int],
    ) -> bool:  # fmt: skip
        names = (f"{side}_stride_block", f"{side}_stride_y", f"{side}_stride_x")
        place = self._place(wish, memory, counts, names, prefix=f"{side}_", operand=side, wrap="wrap")
        if place is None:
            return False
        fields |= {f"{side}_memory": memory, f"{side}_bank": place.bank, f"{side}_offset": place.offset}
        fields |= dict(zip(names, place.strides, strict=True))
        wraps[side] = place.wrap
        return True

    def _parameters(self, wish: Wish, vector: Vector, taps: int) -> int | None:
        """The PAR word of an instruction's parameters, with a LOAD that brings them, or of any words that are there."""
        config, random = self.config, self.random
        size = descriptor_words(config, vector) + vector.blocks * parameter_words(config, vector)
        if not size:
            return wish.fields.get("parameters", random.choice([0, 0, random.randrange(4096)]))
        if size > config.par_depth:
            return None
        at = wish.fields.get("parameters")
        if at is None:
            at = random.choice([0, config.par_depth - size, random.randrange(config.par_depth - size + 1)])
        elif at + size > config.par_depth:
            return None
        there = self.places.arenas.get(Memory.PAR, ())
        if not wish.parameters and any(one.low <= at and at + size <= one.low + one.size for one in there):
            if random.random() < 0.3:
                return at  # whatever bits they are
        image = parameter_image(config, random, vector.operation, vector.blocks, taps, wish.parameters)
        if vector.operation is Operation.TABLE_SUM:
            lanes = image.reshape(-1)
            self._added = {one.name: int(lanes[one.lane]) for one in descriptor_lanes(config, vector.operation)}
        units = config.wide_word_units
        place = self._next_parameters
        if place + len(image) * units > self.layout.store:
            return None
        self._next_parameters += len(image) * units
        start = place * config.word_bytes
        self.memory[start : start + image.nbytes] = image.view(np.uint8).reshape(-1)
        self.loads = [Load(memory=Memory.PAR, offset=at, dram=place, words=len(image), word_stride=1)]
        return at
