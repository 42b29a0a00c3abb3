"""The timing half's state machines, one to a file; `docs/timing.md` states them cycle by cycle.

Every unit is evaluated on registered state: what happens in cycle t is seen by others in t + 1. `simulate` visits only
cycles in which something can change. A unit that has to wait says until when (`clock.sleep_until`); one that did
something says so (`clock.changed`), and the next cycle is looked at.
"""

__all__: list[str] = []
