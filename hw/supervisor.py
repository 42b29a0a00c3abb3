"""Runs a command on behalf of another process, and ends it with all that it has started when that process ends.

What the command has started and left running is ended as well when it has come to its own end.

`python supervisor.py SCRATCH COMMAND ...`, by its path, with a pipe on descriptor 0 of which the other process holds
the other end: the system closes that when the process ends, however it ends. SCRATCH is a folder to remove then, or
empty. A byte in the pipe ends the command, too, and nothing is removed: the other process goes on. It imports nothing
of the kit, and little else, as it is started for each tool.
"""

import os
import select
import shutil
import signal
import sys
import time

__all__ = ["main"]

_PATIENCE = 1.0
"""Seconds in which to clean up for those that are asked to end, and then for the system to end them."""


def _end(group: int) -> None:
    """End a group of processes: kindly at first, so that make and compilers remove what is half done."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + _PATIENCE
        ask: int = number
        while time.monotonic() < end:
            try:
                os.killpg(group, ask)
                os.waitpid(-1, os.WNOHANG)
            except ProcessLookupError:  # nobody is left
                return
            except ChildProcessError:
                pass
            ask = 0  # from now on only whether anybody is left
            time.sleep(0.01)


def _remove(scratch: str) -> None:
    """Remove the folder, but where the other process goes on."""
    if scratch and not os.read(0, 1):
        shutil.rmtree(scratch, ignore_errors=True)


def main(scratch: str, command: list[str]) -> int:
    """Run it; its exit code, as a shell has it."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        child = os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nothing, 0)], setpgroup=0,
            setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
        )  # fmt: skip
    except OSError as error:
        print(f"{command[0]}: {error.strerror}")
        return 127
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 1)
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                _end(child)  # what it has started and left running
                if 0 in select.select([0], [], [], 0)[0]:  # the other process has ended meanwhile
                    _remove(scratch)
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif 0 in ready:
            _end(child)
            _remove(scratch)
            return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
