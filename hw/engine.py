"""What the four engines have in common towards queues, tokens and ports."""

from amaranth.lib.wiring import In, Member, Out
from npukit.isa.instructions import INSTRUCTION_BITS

__all__ = ["engine_members"]


def engine_members() -> dict[str, Member]:
    """Members of every engine.

    head, head_valid: the oldest instruction of its queue; front_free: the engine could take it; issue_ok:
    its tokens are there; issue: it is taken in this cycle. start_request: an issued instruction is
    ready; start_grant: it has its ports from this cycle on. end, end_signal: an instruction's
    last write is done, and it gives these tokens. dram_wait: a cycle for the counter of that name.
    """
    return {
        "head": In(INSTRUCTION_BITS),
        "head_valid": In(1),
        "issue_ok": In(1),
        "front_free": Out(1),
        "issue": Out(1),
        "start_request": Out(1),
        "start_grant": In(1),
        "end": Out(1),
        "end_signal": Out(4),
        "dram_wait": Out(1),
    }
