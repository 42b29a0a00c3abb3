"""ONNX Runtime on the host: what the machine does not run, and the oracle of all integer arithmetic."""

import platform

import onnxruntime

__all__ = ["cpu_features", "oracle_problem", "session_options"]


def session_options() -> onnxruntime.SessionOptions:
    """Options under which ONNX Runtime computes int8 QDQ graphs in integers, as the oracle does.

    Without `qdqisint8allowed` int8 convolutions run in float. On x86-64 hosts without VNNI the
    kernels saturate intermediate sums unless `x64quantprecision` asks them not to.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if "vnni" not in " ".join(cpu_features()):
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def cpu_features() -> tuple[str, ...]:
    """The instruction set extensions that matter to quantised kernels, as Linux reports them."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        flags = []
    return tuple(flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni") if flag in flags)


def oracle_problem() -> str | None:
    """Why this host cannot be the oracle, or None."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"the reference arithmetic is ONNX Runtime's on x86-64; this host is {platform.machine()}"
    return None
