"""What a measurement writes into a document, and leaves alone."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["machine", "write_section"]


def write_section(path: Path, tool: str, title: str, text: str) -> None:
    """Replace what an earlier run of `tool` wrote into the document; what stands around it stays."""
    first, last = f"<!-- begin: written by {tool} -->\n", f"<!-- end: written by {tool} -->\n"
    document = path.read_text(encoding="utf-8") if path.exists() else title + first + last
    before, begin, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"{path} has no lines {first.strip()} and {last.strip()} to write between")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def machine(*packages: str) -> str:
    """Processor, cores and load, and the versions of Python and packages."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    load = f"load average {os.getloadavg()[0]:.1f} before"
    return f"{model}, {cores} cores, {load}; Python {platform.python_version()}, {versions}."
