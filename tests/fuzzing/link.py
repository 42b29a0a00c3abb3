"""Frames of a board's host link: what the board writes and answers, against a model that reads byte by byte."""

import json
from pathlib import Path
from random import Random

from tests.fpga.link_bench import IDENTITY, REFUSED, LinkBench, check
from tests.fpga.link_model import LinkModel, framed, request

from .case import Outcome, Result, WrongResult
from .mutate import change_bytes

__all__ = ["Link", "make"]

_WORDS = 6
_SESSION = 0x7D7E7F80


class Link:
    """See the module."""

    seconds = 120.0
    megabytes = 1024
    suffix = ".json"

    def input(self, random: Random) -> bytes:
        """Groups of bytes, of two frames or fewer as they were meant, in a session and outside of it."""
        groups = [self._group(random) for _ in range(random.choice([2, 3, 5]))]
        if random.random() < 0.8:
            groups.insert(0, [(one, True, 0) for one in request(1, 1, _SESSION)])
        return json.dumps({"bus": random.getrandbits(32), "groups": groups}).encode()

    def _group(self, random: Random) -> list[tuple[int, bool, int]]:
        data = b"".join(self._frame(random) for _ in range(random.choice([1, 1, 2])))
        match random.randrange(6):
            case 0:
                data = change_bytes(random, data, 3)[:120]
            case 1:
                data = random.randbytes(random.randrange(40))
            case 2:
                data = data[: random.randrange(len(data) + 1)] + b"\x7e"
        wrong = random.randrange(len(data) + 1) if random.random() < 0.2 else -1
        gaps = random.choice([0, 0, 3, 40])
        return [(one, at != wrong, random.randint(0, gaps)) for at, one in enumerate(data)]

    @staticmethod
    def _frame(random: Random) -> bytes:
        words = random.choice([0, 1, 1, 2, _WORDS])
        places = [0x100, 0x104, REFUSED - 4, REFUSED, 0x102, 0x1FFFFF8, 0x2000000, 0x7FFFFFFC, 0x80000000, 0x80000FF8]
        address = random.choice([*places, 0xFFFFFFFC, random.getrandbits(32)])
        session = random.choice([_SESSION, _SESSION, _SESSION, 0, random.getrandbits(32)])
        kind = random.choice([0, 1, 2, 2, 3, 3, 3, 4, random.randrange(256)])
        sequence = random.choice([7, 8, random.randrange(256)])
        if random.random() < 0.1:
            return framed(random.randbytes(random.randrange(24)))
        if kind == 3:
            return request(kind, sequence, session, address, data=random.randbytes(4 * words))
        return request(kind, sequence, session, address, words)

    def run(self, data: bytes) -> Result:
        """All groups, then a write and a read that have to work."""
        case = json.loads(data)
        groups = [[(value, bool(right), silence) for value, right, silence in one] for one in case["groups"]]
        for frame in (
            b"\x7e" + request(1, 9, 5),
            request(3, 10, 5, 0x40, data=b"\x7d\x7e\x00\xff"),
            request(2, 11, 5, 0x40, 1),
        ):
            groups.append([(one, True, 0) for one in frame])
        try:
            heard = LinkBench(Random(case["bus"])).run(groups)
            model = LinkModel(IDENTITY.to_words(), refused=REFUSED)
            for group, one in zip(groups, heard, strict=True):
                check(model, group, one)
        except AssertionError as error:
            raise WrongResult(str(error)) from error
        return Result(Outcome.ACCEPTED)


def make(folder: Path) -> Link:
    """The kind."""
    return Link()
