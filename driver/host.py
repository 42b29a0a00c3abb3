"""ONNX Runtime on the host: what the machine does not run, and the oracle of all integer arithmetic."""

import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray

__all__ = ["HostError", "cpu_features", "open_session", "oracle_problem", "run_session", "session_options"]


_SOURCE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |"
    r"/onnxruntime_src/\S+:\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])? "
)


class HostError(RuntimeError):
    """ONNX Runtime refuses a model, or fails while it runs; the message is its own, on one line."""


def session_options() -> onnxruntime.SessionOptions:
    """Options under which ONNX Runtime computes int8 QDQ graphs in integers, as the oracle does.

    Without `qdqisint8allowed` int8 convolutions run in float. On x86-64 hosts without VNNI the
    kernels saturate intermediate sums unless `x64quantprecision` asks them not to.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions, and need no second voice on stderr
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if "vnni" not in " ".join(cpu_features()):
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def open_session(
    model: onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    providers: Sequence[str] = ("CPUExecutionProvider",),
) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime, on the host's processor unless `providers` name others.

    Raises:
        HostError: when it refuses the model.
    """
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options or session_options(), providers=list(providers)
        )
    except Exception as error:  # ONNX Runtime raises many classes of its own
        raise HostError(_line(error)) from None


def run_session(
    session: onnxruntime.InferenceSession, names: Sequence[str], inputs: Mapping[str, NDArray]
) -> dict[str, NDArray]:
    """The values of those names.

    Raises:
        HostError: when ONNX Runtime stops with an error.
    """
    try:
        values: Sequence[Any] = session.run(list(names), dict(inputs))
    except Exception as error:  # as above
        raise HostError(f"ONNX Runtime stops: {_line(error)}") from None
    return dict(zip(names, values, strict=True))


def _line(error: Exception) -> str:
    """An error on one line, without the places in C++ source that ONNX Runtime puts before its reason."""
    text = _SOURCE.sub("", " ".join(str(error).split()))
    return text if len(text) <= 300 else f"{text[:100]} ... {text[-200:]}"


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
