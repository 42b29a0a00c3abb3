"""Random legal programs: any mode, loops, strides, borders, rings, banks and token graphs.

A program works in arenas of each memory, which a prologue fills, so that nothing unwritten is read. Order is added
where two instructions touch the same words, and here and there where it is not needed. The validator has the last word:
what it refuses is never returned.

Programs are random, or directed: at points of the coverage, which their instructions reach if a try finds a way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np
from numpy.typing import NDArray

from npukit.isa.config import NpuConfig
from npukit.isa.descriptors import TABLE_ENTRIES
from npukit.isa.instructions import (
    ENGINES,
    End,
    Engine,
    Instruction,
    Load,
    Matrix,
    Memory,
    Operation,
    Store,
    Vector,
)
from npukit.isa.timing import TOKEN_LIMIT
from npukit.sim.addressing import bank_depth, operands
from npukit.sim.validator import validate
from npukit.verify.limits import ring_operand
from npukit.verify.makers import FOLLOWS, DramLayout, InstructionMaker, Wish
from npukit.verify.order import Order
from npukit.verify.placement import Placement, random_placement
from npukit.verify.places import Arena, Places
from npukit.verify.points import Point
from npukit.verify.values import random_halves

__all__ = ["RandomProgram", "Target", "random_program"]

_ARENA = 128
_MOST_TRIES = 40
_DRAM_WORDS = 4096
_PAGE = 4096
_STRETCH = 512
"""Elements of floating-point data of one kind."""
_QUOTIENTS = {"zero_point": -128, "low": -128, "high": 127, "factor": 255}
"""Of a TABLE_DIVIDE whose results have room."""
_KINDS: dict[Engine, type[Instruction]] = {
    Engine.LOAD: Load, Engine.MATRIX: Matrix, Engine.VECTOR: Vector, Engine.STORE: Store,
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """What a directed program is to reach.

    Attributes:
        point: a field's value, or None.
        beside: an engine that is to work meanwhile.
        tokens: an engine all of whose token counters are to come to their limit.
        queue: an engine whose queue is to be full.
        waiting: an engine that is to issue as many instructions as it can before one starts; LOAD.
        total: which sum (MATRIX, SUM or bias) is to come to which int32.
        parameters: an operation, and pairs (name, bits) of fields of its descriptor or of its blocks' parameters.
        many: an operation of VECTOR that is to have many different results.
    """

    point: Point | None = None
    beside: Engine | None = None
    tokens: Engine | None = None
    queue: Engine | None = None
    waiting: Engine | None = None
    total: tuple[str, int] | None = None
    parameters: tuple[Operation, tuple[tuple[str, int], ...]] | None = None
    many: Operation | None = None


@dataclass(frozen=True)
class RandomProgram:
    """A program, END included, the DRAM image that it starts with, and where both lie."""

    seed: str
    config: NpuConfig
    instructions: tuple[Instruction, ...]
    memory: NDArray[np.uint8]
    placement: Placement


def random_program(
    config: NpuConfig, seed: str, length: int | None = None, targets: Sequence[Target] = ()
) -> RandomProgram:
    """The program of a seed and of what it is to reach; the same on every machine.

    Args:
        length: instructions besides prologue and END, by default 1 to 60, and fewer where there are targets.
    """
    for attempt in range(_MOST_TRIES):
        made = _Generator(config, f"{seed}/{attempt}", tuple(targets)).run(length)
        if made is not None:
            return replace(made, seed=seed)
    raise AssertionError(f"no legal program in {_MOST_TRIES} tries for seed {seed}")


def _wish(target: Target) -> Wish | None:
    """What an instruction must be to reach a target."""
    if target.parameters is not None:
        operation, pairs = target.parameters
        return Wish(Vector, {"operation": operation}, parameters=dict(pairs))
    if target.total is not None:
        return _wish_of_total(*target.total)
    if target.many is not None:
        parameters = _QUOTIENTS if target.many is Operation.TABLE_DIVIDE else {}
        counts = {"operation": target.many, "blocks": 2, "height": 4, "width": 8}
        return Wish(Vector, counts, parameters=parameters, follows=True)
    point = target.point
    if point is None:
        return None
    fields, properties = {}, {}
    for name, value in point.context:
        (properties if name in ("is_window", "has_two_sources", "reads_a") else fields)[name] = value
    fields[point.field] = point.value
    strided = point.spec.signed and "stride" in point.field
    turning = frozenset([point.field]) if strided or point.field == "window_step" else frozenset()
    ring = ring_operand(point.kind, point.field, point.context) if point.passes is not None else ""
    return Wish(point.kind, fields, properties, turning, ring, point.passes)


def _exponentials() -> dict[str, int]:
    """A table of which quotients of entries and sums are of any size."""
    numbers = np.exp((np.arange(TABLE_ENTRIES) - (TABLE_ENTRIES - 1)) * 0.02).astype(np.float32)
    return {f"entry_{index}": int(bits) for index, bits in enumerate(numbers.view(np.uint32))}


def _wish_of_total(name: str, total: int) -> Wish:
    """What an instruction must be so that a sum comes to `total` where accumulators begin as `_beginning` says."""
    if name == "MATRIX":  # of data that are mostly 0
        return Wish(Matrix, {"accumulate": 1, "channels": 1, "kernel_height": 1, "kernel_width": 1})
    if name == "SUM":
        window = {"window_height": 1, "window_width": 1}
        return Wish(Vector, {"operation": Operation.SUM, "a_memory": Memory.ACC, **window})
    if name == "CONVERT":
        return Wish(Vector, {"operation": Operation.CONVERT, "a_memory": Memory.ACC})
    return Wish(Vector, {"operation": Operation.REQUANTIZE}, parameters={"bias": total - _beginning(name, total)})


def _beginning(name: str, total: int) -> int:
    """Where accumulators begin so that a sum comes to `total`: there, or, where a bias is added, half way."""
    return total // 2 if name == "bias" else total


class _Generator:
    def __init__(self, config: NpuConfig, seed: str, targets: tuple[Target, ...]) -> None:
        self.config = config
        self.random = random = Random(seed)
        self.seed = seed
        self.targets = targets
        self.wishes = [_wish(target) for target in targets]
        self.instructions: list[Instruction] = []
        self.layout = self._layout()
        self.order = Order(config, self.layout.words)
        self.memory = self._data(np.random.default_rng(random.getrandbits(64)))
        self.extremes = random.random() < 0.35
        """Accumulators begin near the ends of int32."""
        arenas = {memory: self._arenas(memory) for memory in (Memory.ACT, Memory.ACC, Memory.WGT)}
        if random.random() < 0.3:
            arenas[Memory.PAR] = [Arena(Memory.PAR, 0, 0, random.choice([32, config.par_depth]))]
        self.maker = InstructionMaker(config, random, Places(config, random, arenas), self.layout, self.memory)

    # ---- memories

    def _layout(self) -> DramLayout:
        """Parts of DRAM that are as large as what is wanted needs."""
        config = self.config
        data = parameters = store = _DRAM_WORDS
        far = 0
        for wish in self.wishes:
            given = wish.fields if wish else {}
            words = given.get("planes", 1) * given.get("rows", 1) * given.get("words", 1)
            if wish and wish.kind is Load:
                units = config.wide_word_units if given.get("memory") == Memory.PAR else 1
                data = max(data, words * units + 1024)
            elif wish and wish.kind is Store:
                store = max(store, 2 * words + 1024)
            if given.get("blocks", 1) > 9:
                parameters = max(parameters, config.par_depth * config.wide_word_units * 2 + 1024)
            far = max(far, *(abs(given.get(name, 0)) for name in ("dram_plane_stride", "dram_row_stride")))
        if any(target.tokens is not None for target in self.targets):
            parameters *= 4
        end = data + parameters + store
        page = _PAGE // config.word_bytes
        words = end + far + (1024 if far > 1 else 0)
        return DramLayout(parameters=data, store=data + parameters, store_end=end, words=-(-words // page) * page)

    def _data(self, generator: np.random.Generator) -> NDArray[np.uint8]:
        """The image; of a large one, only its two ends hold data, and pages between cost nothing."""
        unit, layout = self.config.word_bytes, self.layout
        memory = np.zeros(layout.words * unit, np.uint8)
        near = min(layout.words, layout.store_end + 2048)
        memory[: near * unit] = self._kinds(generator, near * unit)
        behind = min(layout.words - near, 2 * _DRAM_WORDS)
        if behind:
            memory[-behind * unit :] = self._kinds(generator, behind * unit)
        return memory

    def _kinds(self, generator: np.random.Generator, size: int) -> NDArray[np.uint8]:
        random = self.random
        if self.config.activation.floating:
            # each stretch of one kind
            parts = [random_halves(generator, _STRETCH) for _ in range(-(-size // (2 * _STRETCH)))]
            return np.concatenate(parts).view(np.uint8)[:size].copy()
        kind = random.choices(["any", "extremes", "small"], [0.7, 0.2, 0.1])[0]
        if any(target.total is not None and target.total[0] == "MATRIX" for target in self.targets):
            kind = "small"
        if kind == "extremes":  # only such data bring sums near their limits
            return generator.choice(np.array([-128, -128, -128, 127], np.int8), size).view(np.uint8)
        if kind == "small":  # sums that come to a limit exactly
            return generator.choice(np.array([0, 0, 0, 1, -1], np.int8), size).view(np.uint8)
        return generator.integers(0, 256, size, np.uint8)

    def _arenas(self, memory: Memory) -> list[Arena]:
        random = self.random
        banks, depth = bank_depth(self.config, memory)
        # room for more results than a sweep goes over, and for LOADs of as many bursts as may be in flight
        sizes = {Memory.WGT: 4 * self.config.array, Memory.ACT: _ARENA, Memory.ACC: _ARENA // 2}
        size = min(depth, sizes[memory] * random.choice([1, 1, 1, 1, 1, 1, 4, 16]))
        chosen = random.sample(range(banks), min(banks, random.choice([1, 2, 3])))
        found = []
        for bank in chosen:
            last = (depth - size) // 32 * 32
            low = random.choice([0, last, random.randrange(last // 32 + 1) * 32])
            if random.random() < 0.3:
                low = depth - size
            found.append(Arena(memory, bank, low, size))
        for wish in self.wishes:
            wanted = self._wanted_arena(memory, wish) if wish else None
            if wanted is not None:
                bank, least = wanted
                whole = least > size
                if bank is None:
                    bank = random.choice(found).bank
                arena = Arena(memory, bank, 0, depth) if whole else Arena(memory, bank, depth - size, size)
                # one a bank is enough
                if whole or all(one.bank != bank for one in found):
                    found = [*(one for one in found if one.bank != bank), arena]
        return found

    def _wanted_arena(self, memory: Memory, wish: Wish) -> tuple[int | None, int] | None:
        """(bank or None for any, least size) of an arena in which something is to be read, if a wish says so."""
        given = wish.fields
        for prefix, ring, where in _read_operands(wish):
            if where is not None and where is not memory:
                continue
            bank = given.get(f"{prefix}bank")
            depth = bank_depth(self.config, memory)[1]
            least = 2 << given.get(ring, 0) if wish.passes else 0
            alone = wish.kind is Vector and bank_depth(self.config, memory)[0] == 1
            # a result that takes the only bank replaces its sources
            if f"{prefix}offset" in given or (alone and max(given.values(), default=0) > depth // 2):
                least = depth
            for name, value in given.items():
                if "stride" in name and name.startswith((prefix, "window")) and abs(value) < depth:
                    least = max(least, 2 * abs(value))
            if bank is not None or least:
                return bank, least
        return None

    # ---- the program

    def run(self, length: int | None) -> RandomProgram | None:
        """The program, or None if the validator refuses it."""
        self._prologue()
        random = self.random
        if length is None:
            most = [random.randint(1, 19), random.randint(20, 60)]
            length = random.choice([random.randint(1, 9), random.randint(1, 25)] if self.targets else most)
        kinds = list(_KINDS.values())
        weights = [random.choice([1, 1, 2, 4]) for _ in kinds]
        steps: list[Target | None] = [*self.targets, *[None] * length]
        random.shuffle(steps)
        for target in self.targets:
            if target.tokens is not None:
                self._flood(target.tokens)
        for target in steps:
            if target is not None:
                self._reach(target)
                continue
            for _ in range(_MOST_TRIES):
                if self._try(Wish(random.choices(kinds, weights)[0])):
                    break
            else:
                return None
        instructions = (*self.order.finish(self.instructions), End())
        if validate(self.config, instructions, self.memory.size, [(0, self.memory.size)]):
            return None
        dram = [target.point.value for target in self.targets if target.point and target.point.field == "dram"]
        placement = random_placement(
            self.config, random, instructions, self.memory.size, far=any(dram) if dram else None
        )
        return RandomProgram(self.seed, self.config, instructions, self.memory, placement)

    def _try(self, wish: Wish, fits: Callable[[Instruction], bool] = lambda _: True, *, plain: bool = False) -> bool:
        """Add an instruction as wanted (see `_add`), if this try finds one that fits."""
        made = self.maker.make(wish)
        if made is None or not self._sound(made) or not fits(made):
            return False
        for load in self.maker.loads:
            self._add(load)
        self._add(made, plain=plain)
        return True

    def _sound(self, made: Instruction) -> bool:
        """Whether the validator takes the instruction by itself (what it reads counts as written)."""
        if not isinstance(made, Vector):
            return True
        return all(one.rule == "unwritten" for one in validate(self.config, (made, End()), 0))

    def _add(self, instruction: Instruction, *, plain: bool = False) -> int:
        """Add an instruction, `plain`: with no more order than it needs; its index."""
        self.order.add(instruction, None if plain else self.random)
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def _prologue(self) -> None:
        arenas = self.maker.places.arenas
        units = self.config.wide_word_units
        for memory in (Memory.ACT, Memory.WGT, Memory.PAR):
            for arena in arenas.get(memory, ()):
                wide = units if memory is Memory.PAR else 1
                self._fill(arena, wide)
        for arena in arenas[Memory.ACC]:
            values = {} if self.config.accumulator.floating else {"value": self._accumulator()}
            wish = Wish(
                Vector,
                {
                    "operation": Operation.FILL, "blocks": 1, "height": 1, "width": 1, "out_memory": Memory.ACC,
                    "a_memory": Memory.ACT, "out_bank": arena.bank, "out_offset": arena.low,
                },
                parameters=values,
            )  # fmt: skip
            made = self.maker.make(wish)
            while not isinstance(made, Vector):
                made = self.maker.make(wish)
            for load in self.maker.loads:
                self._add(load)
            plain = {"out_stride_block": 0, "out_stride_y": 0, "out_stride_x": 1, "wrap": 0, "out_wrap": 0}
            rows = -(-arena.size // 1024)
            for row in range(rows):
                low = arena.size * row // rows
                width = arena.size * (row + 1) // rows - low
                self._add(replace(made, width=width, **{**plain, "out_offset": arena.low + low}))
            # a target may need the value that the arena has everywhere
            if not self.config.activation.floating and all(target.total is None for target in self.targets):
                self._scatter(arena)

    def _scatter(self, arena: Arena) -> None:
        """Sums of random data in part of an arena of ACC, which has one value everywhere."""
        width = min(arena.size, self.random.choice([16, 32, 64]))
        fields = {
            "operation": Operation.SUM, "a_memory": Memory.ACT, "out_memory": Memory.ACC, "out_bank": arena.bank,
            "out_offset": arena.low + self.random.randrange(arena.size - width + 1), "blocks": 1, "height": 1,
            "width": width, "out_stride_x": 1, "window_stride_x": 1,
        }  # fmt: skip
        for _ in range(4):
            if self._try(Wish(Vector, fields)):
                break

    def _fill(self, arena: Arena, units: int) -> None:
        """Load an arena from anywhere in the data."""
        first = self.random.randrange(max(1, self.layout.parameters - arena.size * units)) // units * units
        # what is larger than the data comes in equal parts
        parts = -(-arena.size * units // self.layout.parameters)
        for part in range(parts):
            low = arena.size * part // parts
            words = arena.size * (part + 1) // parts - low
            self._add(
                Load(
                    memory=arena.memory, bank=arena.bank, offset=arena.low + low, dram=first if parts == 1 else 0,
                    words=words, word_stride=1,
                )
            )  # fmt: skip

    def _accumulator(self) -> int:
        """int32 bits: any, or such that sums pass the ends."""
        random = self.random
        totals = [target.total for target in self.targets if target.total is not None]
        if totals:
            return _beginning(*random.choice(totals))
        if not self.extremes:
            return random.choice([random.randint(-300, 300), random.getrandbits(32)])
        end = random.choice([(1 << 31) - 1, -(1 << 31)])
        return end - random.choice([0, 1, 2, 3, random.randrange(1 << 16)]) * (1 if end > 0 else -1)

    # ---- directed

    def _reach(self, target: Target) -> bool:
        """Add what reaches a target, if some tries find it."""
        if target.queue is not None:
            return self._fill_queue(target.queue)
        if target.waiting is not None:
            return self._hold_port()
        wish = _wish(target)
        if wish is None:
            return False
        if target.many is not None and target.many in FOLLOWS:  # which takes little else than what that one makes
            places = {"operation": FOLLOWS[target.many], "blocks": 2, "height": 1, "width": 4}
            self._try(Wish(Vector, places, parameters=_exponentials()))
        working = self._work_meanwhile(target.beside) if target.beside is not None else None
        masks = {name: wish.fields[name] for name in ("wait", "signal", "drain") if name in wish.fields}
        engine = wish.kind.engine
        assert engine is not None
        fresh = {other: self._cheap(other) for other in ENGINES if masks.get("wait", 0) >> other & 1}
        tries = range(3 * _MOST_TRIES)
        found = working is not None and any(self._try(wish, partial(_at_once, self.config, working)) for _ in tries)
        if not found and not any(self._try(wish) for _ in tries):
            return False
        index = len(self.instructions) - 1
        if target.beside is not None and self.maker.loads:  # it waited for its parameters
            self._work_meanwhile(target.beside, self.instructions[-1:])
        if masks.get("drain"):
            self.order.drain(index)
        for earlier in fresh.values():
            if earlier is not None:
                self.order.after(index, earlier)
        for other in ENGINES:
            if masks.get("signal", 0) >> other & 1:
                later = self._cheap(other)
                if later is not None:
                    self.order.after(later, index)
        return True

    def _cheap(self, engine: Engine, others: Sequence[Instruction] = ()) -> int | None:
        """Add a short instruction that does not depend on others; its index."""
        wish = Wish(_KINDS[engine], _SHORT[engine])
        for _ in range(_MOST_TRIES):
            if self._try(wish, partial(_independent_of, self.config, others)):
                return len(self.instructions) - 1
        return None

    def _work_meanwhile(self, engine: Engine, others: Sequence[Instruction] = ()) -> Instruction | None:
        """Add a long instruction of an engine, that does not depend on others."""
        for _ in range(_MOST_TRIES):
            wish = Wish(_KINDS[engine], self._long(engine))
            if self._try(wish, partial(_independent_of, self.config, others)):
                return self.instructions[-1]
        return None

    def _long(self, engine: Engine) -> dict[str, int]:
        random, config = self.random, self.config
        if engine is Engine.LOAD:
            memory = random.choice([Memory.ACT, Memory.WGT])
            return {"memory": memory, "words": min(bank_depth(config, memory)[1], random.randint(300, 1500))}
        if engine is Engine.MATRIX:
            # of few words, so that there is room beside what another engine writes
            little = {"act_stride_channel": 0, "kernel_height": 1, "kernel_width": 1, "height": 1, "width": 1}
            return {"channels": random.randint(100, 1000), **(little if random.random() < 0.5 else {})}
        if engine is Engine.STORE:
            return {"words": random.randint(300, 1500)}
        operation = random.choice([Operation.SUM, Operation.COPY, Operation.MAX])
        if operation is Operation.COPY:
            return {"operation": operation, "width": min(config.acc_depth, random.randint(300, 1000))}
        size = config.max_window
        return {
            "operation": operation, "window_height": size, "window_width": size, "width": min(config.acc_depth, 60),
        }  # fmt: skip

    def _fill_queue(self, engine: Engine) -> bool:
        """Add more instructions of an engine in a row than its queue has places, short and long ones."""
        random = self.random
        for _ in range(self.config.queue_depth + random.randint(2, 12)):
            long = self._long(engine) if random.random() < 0.05 else _SHORT[engine]
            if not any(self._try(Wish(_KINDS[engine], long)) for _ in range(_MOST_TRIES)):
                return False
        return True

    def _hold_port(self) -> bool:
        """Let VECTOR hold a port for long, and LOADs wait for it."""
        window = {"window_height": self.config.max_window, "window_width": self.config.max_window, "width": 40}
        wish = Wish(Vector, {"operation": Operation.MAX, "blocks": 1, "height": 1, **window})
        before = self._cheap(Engine.VECTOR)
        if before is None or not any(self._try(wish, plain=True) for _ in range(_MOST_TRIES)):
            return False
        holder = self.instructions[-1]
        assert isinstance(holder, Vector)
        load = Wish(Load, {**_SHORT[Engine.LOAD], "bank": holder.out_bank})
        independent = partial(_independent, self.config, holder)
        held = len(self.instructions) - 1
        # one that comes when the port does, to the last place
        late = self.config.queue_depth if self.random.random() < 0.5 else 0
        for number in range(1, self.config.queue_depth + 5):
            if not any(self._try(load, independent, plain=True) for _ in range(_MOST_TRIES)):
                return False
            if number == 1:  # not before the holder has begun, about when the instruction before it ends
                self.order.after(len(self.instructions) - 1, before)
            elif number == late:
                self.order.after(len(self.instructions) - 1, held)
        return True

    def _flood(self, source: Engine) -> None:
        """Let an engine give as many tokens as the counters hold, before any is taken; then all are taken."""
        others = [other for other in ENGINES if other is not source]
        # what each has to wait for anyway comes first, and the source waits for it
        first: dict[Engine, int] = {}
        copies: dict[Engine, Instruction] = {}
        for engine in ENGINES:
            index = self._cheap(engine, list(copies.values()))
            if index is None:
                return
            first[engine], copies[engine] = index, self.instructions[index]
        givers = [self._add(copies[source])]
        for other in others:
            self.order.after(givers[0], first[other])
        givers += [self._add(copies[source], plain=True) for _ in range(TOKEN_LIMIT - 1)]
        working: list[Instruction] = []
        for other in others:
            # as long as the last tokens take to come
            long = self._work_meanwhile(other, [*working, *(copies[one] for one in ENGINES if one is not other)])
            if long is not None:
                working.append(long)
            for number, giver in enumerate(givers):
                taker = self._add(copies[other], plain=True)
                if number == 0:
                    self.order.drain(taker)
                self.order.after(taker, giver)


_SHORT: dict[Engine, dict[str, int]] = {
    Engine.LOAD: {"memory": Memory.ACT, "planes": 1, "rows": 1, "words": 1, "pad_top": 0, "pad_bottom": 0,
                  "pad_left": 0, "pad_right": 0},
    Engine.MATRIX: {"blocks": 1, "channels": 1, "kernel_height": 1, "kernel_width": 1, "height": 1, "width": 1},
    Engine.VECTOR: {"operation": Operation.COPY, "blocks": 1, "height": 1, "width": 1},
    Engine.STORE: {"planes": 1, "rows": 1, "words": 1},
}  # fmt: skip


def _read_operands(wish: Wish) -> list[tuple[str, str, Memory | None]]:
    """(prefix of its fields, its ring's field, memory) of each operand that a kind of instruction reads."""
    if wish.kind is Store:
        return [("", "wrap", Memory.ACT)]
    if wish.kind is Matrix:
        return [("act_", "act_wrap", Memory.ACT), ("wgt_", "wgt_wrap", Memory.WGT)]
    if wish.kind is Vector:
        found: list[tuple[str, str, Memory | None]] = []
        if wish.ring in ("", "a"):
            memory = wish.fields.get("a_memory")
            found.append(("a_", "wrap", None if memory is None else Memory(memory)))
        if wish.ring in ("", "b"):
            found.append(("b_", "wrap", Memory.ACT))
        return found
    return []


def _independent(config: NpuConfig, one: Instruction, other: Instruction) -> bool:
    """Whether neither writes a word that the other touches."""
    return not any(
        (mine.write or theirs.write)
        and (mine.memory, mine.bank) == (theirs.memory, theirs.bank)
        and mine.extent[0] <= theirs.extent[1]
        and theirs.extent[0] <= mine.extent[1]
        for mine in operands(config, one)
        for theirs in operands(config, other)
    )


def _independent_of(config: NpuConfig, others: Sequence[Instruction], made: Instruction) -> bool:
    return all(_independent(config, made, one) for one in others)


def _at_once(config: NpuConfig, one: Instruction, other: Instruction) -> bool:
    """Whether two instructions can run at the same time: besides, no port is wanted by both."""
    return _independent(config, one, other) and not any(
        mine.write == theirs.write
        and (mine.memory, mine.bank) == (theirs.memory, theirs.bank)
        and mine.memory is not Memory.PAR
        for mine in operands(config, one)
        for theirs in operands(config, other)
    )
