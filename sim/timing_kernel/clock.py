"""Which cycle is looked at next."""

from npukit.sim.compiled import njit_part

__all__ = ["sleep_until"]


@njit_part
def sleep_until(clock, cycle):
    """Nothing more happens here before that cycle, unless something else does."""
    if cycle < clock.wake:
        clock.wake = cycle
