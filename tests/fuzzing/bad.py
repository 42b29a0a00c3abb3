"""A kind of which cases go wrong in every way that there is: it tests what watches over the others."""

import os
import signal
import time
from pathlib import Path
from random import Random

from .case import Outcome, Result, WrongResult

__all__ = ["Bad", "make"]


class Bad:
    """See the module. An input is the name of what is to happen."""

    seconds = 4.0
    megabytes = 60
    suffix = ".bad"

    def input(self, random: Random) -> bytes:
        """Mostly good."""
        bad = [one for one in Outcome if one is not Outcome.ACCEPTED]
        chosen = random.choice(bad) if random.random() < 0.1 else Outcome.ACCEPTED
        return chosen.encode()

    def run(self, data: bytes) -> Result:
        """What the input says."""
        wanted = Outcome(data.decode())
        if wanted is Outcome.TRACEBACK:
            raise KeyError("nothing")
        if wanted is Outcome.WRONG:
            raise WrongResult("3 is not 4")
        if wanted is Outcome.HANG:
            time.sleep(1000)
        if wanted is Outcome.CRASH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if wanted is Outcome.MEMORY:
            taken = b"\x01" * (100 << 20)  # more than it may, and much less than the address space
            return Result(Outcome.REFUSED, f"an error that hides it: {len(taken)}")
        time.sleep(0.01)
        return Result(wanted)


def make(folder: Path) -> Bad:
    """The kind."""
    return Bad()
