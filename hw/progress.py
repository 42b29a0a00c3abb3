"""What Yosys is at, from the log that it writes."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["yosys_phase", "yosys_progress"]

_PHASE = re.compile(r"^(\d+(?:\.\d+)*)\. Executing (.+?)(?: pass)?(?: \(.*\))?\.$", re.MULTILINE)
_SECONDS = 0.5
_TAIL = 1 << 16


def yosys_phase(log: str) -> str | None:
    """The last pass that a log says is executed, as `2.14 SYNTH_XILINX`, or None."""
    found = _PHASE.findall(log)
    return " ".join(found[-1]) if found else None


@contextmanager
def yosys_progress(log: Path, show: Callable[[str], None]) -> Iterator[None]:
    """Call `show` with the pass that Yosys is at, whenever it is another one, while the block runs.

    Args:
        log: the file that Yosys writes, which need not be there yet.
        show: called from another thread.
    """
    ended = threading.Event()

    def watch() -> None:
        shown = None
        while not ended.wait(_SECONDS):
            with suppress(OSError):
                with log.open("rb") as file:
                    file.seek(max(0, log.stat().st_size - _TAIL))
                    phase = yosys_phase(file.read().decode("utf-8", "replace"))
                if phase is not None and phase != shown:
                    shown = phase
                    show(phase)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
