"""Mutated program files whose digest is right again, so that what stands behind the digest is what is tested.

Plain functions of a seeded `random.Random` and the bytes of a program file: `mutate_code` changes instructions and
constants, `mutate_header` the JSON head and the lengths around it. `split_program` and `join_program` take a file apart
and put one together, whatever the parts hold.
"""

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from npukit.isa.instructions import INSTRUCTION_BITS, OPCODE_FIELD, OPCODES, WINDOW_OPERATIONS, FieldSpec, fields_of
from npukit.isa.program import MAGIC, VERSION

__all__ = ["join_program", "mutate_code", "mutate_header", "split_program"]

_BYTES = INSTRUCTION_BITS // 8
_HEAD = len(MAGIC) + 4 + 32
_NUMBERS = (
    0, 1, -1, 2, 3, 7, 8, 15, 16, 64, 127, 128, 255, 256, 4095, 4096, 32767, 65535, 65536, 1 << 20, 1 << 24,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, 1 << 64, 10**19, 10**40,
    -(1 << 31), -(1 << 63),
)  # fmt: skip
"""Whole numbers at which something changes."""
_TEXTS = (
    "", "a", "0", "int8", "uint8", "float32", "int64", "object", "input", "output", "internal", "\x00", "é", "\ud800",
    "\u202e", "x" * 5000, "../../etc/passwd", "tensor(float)", "%s%n", "line\nline", "image", "inf",
)  # fmt: skip


def split_program(data: bytes) -> tuple[bytes, bytes, bytes]:
    """(head, instructions, constants) of a program file that is sound."""
    length = int.from_bytes(data[_HEAD : _HEAD + 8], "little")
    head = data[_HEAD + 8 : _HEAD + 8 + length]
    rest = data[_HEAD + 8 + length :]
    end = json.loads(head)["instructions"] * _BYTES
    return head, rest[:end], rest[end:]


def join_program(head: bytes, code: bytes, constants: bytes, length: int | None = None) -> bytes:
    """A program file of any parts, with the digest of what it holds; `length` is the head's as stated."""
    stated = (len(head) if length is None else length) & ((1 << 64) - 1)
    body = stated.to_bytes(8, "little") + head + code + constants
    return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body


# ---- instructions


def _specs_of(word: int) -> list[FieldSpec]:
    """The fields that an instruction word has, its opcode among them."""
    found = [OPCODE_FIELD]
    kind = OPCODES.get(word & ((1 << OPCODE_FIELD.width) - 1))
    if kind is None:
        return found
    window = False
    for spec in fields_of(kind):
        if spec.name == "operation":
            window = word >> spec.lsb & ((1 << spec.width) - 1) in {int(one) for one in WINDOW_OPERATIONS}
        if spec.variant in (None, "window" if window else "source"):
            found.append(spec)
    return found


def _with_field(word: int, spec: FieldSpec, raw: int) -> int:
    mask = ((1 << spec.width) - 1) << spec.lsb
    return word & ~mask | (raw << spec.lsb & mask)


def _field(random: Random, word: int, others: list[int]) -> int:
    """One field at a boundary, beside what it was, random, or as in another instruction."""
    spec = random.choice(_specs_of(word))
    top = (1 << spec.width) - 1
    old = word >> spec.lsb & top
    raw = random.choice(
        [
            0, 1, top, top >> 1, (top >> 1) + 1, old + 1, old - 1, old * 2, old // 2,
            old ^ 1 << random.randrange(spec.width), random.randint(0, top), random.randint(0, min(top, 16)),
            random.choice(others) >> spec.lsb,
        ]
    )  # fmt: skip
    return _with_field(word, spec, raw)


def _loops(random: Random, word: int, _: list[int]) -> int:
    """Several counts and strides at once: long loops that stay near, or reach far."""
    for spec in _specs_of(word):
        if spec.bias and random.random() < 0.5:
            word = _with_field(word, spec, random.choice([0, 1, (1 << spec.width) - 1, random.getrandbits(spec.width)]))
        elif "stride" in spec.name and random.random() < 0.5:
            word = _with_field(word, spec, random.choice([0, 1, -1, random.getrandbits(spec.width)]))
    return word


def _bit(random: Random, word: int, _: list[int]) -> int:
    return word ^ 1 << random.randrange(INSTRUCTION_BITS)


_WORD_CHANGES: tuple[Callable[[Random, int, list[int]], int], ...] = (_field, _field, _field, _loops, _bit)


def mutate_code(random: Random, data: bytes) -> bytes:
    """The program file with one to four changes of its instructions (a field at its limits or at another instruction's
    value, loops and strides together, a bit; an instruction left out, doubled, swapped, moved or overwritten) and now
    and then of its constants. The head is right about their lengths, and the digest about everything.

    `data` is a sound program file; the same `random` gives the same file.
    """
    head, code, constants = split_program(data)
    words = [int.from_bytes(code[at : at + _BYTES], "little") for at in range(0, len(code), _BYTES)]
    for _ in range(random.choice([1, 1, 1, 2, 2, 4])):
        at, other = random.randrange(len(words)), random.randrange(len(words))
        change = random.random()
        if change < 0.8:
            words[at] = random.choice(_WORD_CHANGES)(random, words[at], words)
        elif change < 0.84 and len(words) > 1:
            del words[at]
        elif change < 0.88:
            words.insert(other, words[at])
        elif change < 0.92:
            words[at], words[other] = words[other], words[at]
        elif change < 0.95:
            words.insert(other, words.pop(at))
        elif change < 0.97:
            words[at] = words[other]
        elif constants:
            changed = bytearray(constants)
            for _ in range(random.choice([1, 4, 64])):
                changed[random.randrange(len(changed))] = random.choice([0, 0x7F, 0x80, 0xFF, random.randrange(256)])
            constants = bytes(changed)
    stated = json.loads(head)
    stated["instructions"] = len(words)
    text = json.dumps(stated, separators=(",", ":")).encode()
    return join_program(text, b"".join(word.to_bytes(_BYTES, "little") for word in words), constants)


# ---- the head


def _place(random: Random, value: Any) -> tuple:
    """The path of some value inside of a JSON value that has one, each level as likely as the next."""
    path: tuple = ()
    while isinstance(value, dict | list) and value and (not path or random.random() < 0.7):
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        path, value = (*path, key), value[key]
    return path


def _at(value: Any, path: tuple) -> Any:
    for key in path:
        value = value[key]
    return value


def _deep(random: Random) -> Any:
    value: Any = 0
    for _ in range(random.choice([3, 50, 400])):
        value = [value] if random.random() < 0.7 else {"a": value}
    return value


def _other_value(random: Random, old: Any) -> Any:
    """What may stand in a value's place: mostly of its own kind, sometimes of another."""
    if random.random() < 0.25:
        return random.choice(
            [None, True, False, 0.5, 1e308, -1.5, [], {}, [0], [[]], {"a": 1}, "text", 3, _deep(random), [0] * 3000]
        )
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        near = [old + 1, old - 1, old * 2, -old, old // 2, old + 4096, old * 1000, float(old), str(old), bool(old)]
        return random.choice([*_NUMBERS, *near[:7], *near])
    if isinstance(old, str):
        near = [old + "x", old[:-1], old.upper(), old * 2, old + "\x00"]
        return random.choice([*_TEXTS, *near])
    if isinstance(old, list):
        copy = list(old)
        change = random.randrange(7)
        if change == 0 and copy:
            del copy[random.randrange(len(copy))]
        elif change == 1 and copy:
            copy.insert(random.randrange(len(copy) + 1), random.choice(copy))
        elif change == 2:
            random.shuffle(copy)
        elif change == 3:
            copy = copy * random.choice([2, 3, 40])
        elif change == 4:
            copy = copy[: len(copy) // 2]
        elif change == 5:
            copy.append(random.choice(_NUMBERS))
        else:
            copy = copy[::-1]
        return copy
    if isinstance(old, dict):
        changed = dict(old)
        if changed and random.random() < 0.6:
            del changed[random.choice(list(changed))]
        else:
            changed[random.choice(_TEXTS)] = random.choice(_NUMBERS)
        return changed
    return random.choice(_NUMBERS)


def _change_head(random: Random, head: dict[str, Any]) -> None:
    path = _place(random, head)
    parent = _at(head, path[:-1])
    old = _at(head, path)
    change = random.random()
    if change < 0.75:
        parent[path[-1]] = _other_value(random, old)
    elif change < 0.85:
        parent[path[-1]] = deepcopy(_at(head, _place(random, head)))  # a value may not hold itself
    elif change < 0.95:
        if isinstance(parent, dict):
            del parent[path[-1]]
        else:
            parent.pop(path[-1])
    elif isinstance(parent, dict):
        parent[random.choice(_TEXTS)] = old
    else:
        parent.append(old)


def _change_text(random: Random, text: bytes) -> bytes:
    """JSON changed as text: keys twice, numbers of any length, numbers that JSON does not have, cut short."""
    change = random.randrange(6)
    if change == 0:
        return b'{"dram_bytes":3,' + text[1:]
    if change == 1:
        digits = random.choice([b"9" * 5000, b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" + b"0" * 20])
        place = text.find(b'"dram_bytes":') + len(b'"dram_bytes":')
        end = min(at for at in (text.find(b",", place), text.find(b"}", place)) if at >= 0)
        return text[:place] + digits + text[end:]
    if change == 2:
        return text[: random.randrange(len(text))]
    if change == 3:
        at = random.randrange(len(text))
        return text[:at] + bytes([random.randrange(256)]) + text[at + 1 :]
    if change == 4:
        return random.choice([b"[" * 100_000, b"", b"{}", b"null", b"[]", b'"text"', b" " * 1000 + text, text + b"{}"])
    return text + b" " * random.choice([1, 100_000])


def mutate_header(random: Random, data: bytes) -> bytes:
    """The program file with one to three changes of its JSON head (a value of another size, kind or place, a key less,
    more or twice, deep nesting, text that is no JSON) or of the length that is stated for it; code and constants stay.
    The digest is right about everything.

    `data` is a sound program file; the same `random` gives the same file.
    """
    text, code, constants = split_program(data)
    change = random.random()
    if change < 0.05:
        length = random.choice([0, 1, len(text) - 1, len(text) + 1, *_NUMBERS])
        return join_program(text, code, constants, length)
    if change < 0.15:
        return join_program(_change_text(random, text), code, constants)
    head = json.loads(text)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        if head:
            _change_head(random, head)
    return join_program(json.dumps(head, separators=(",", ":")).encode(), code, constants)
