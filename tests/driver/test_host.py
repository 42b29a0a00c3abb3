"""ONNX Runtime on the host: its options, its errors on one line, and hosts that cannot be the oracle."""

import builtins

import numpy as np
import pytest
from npukit.driver import host
from onnx import ModelProto, TensorProto, helper, load_from_string

from npukit import zoo
from npukit.compare import Oracle
from npukit.errors import UsageError


def gather() -> ModelProto:
    index = helper.make_tensor_value_info("index", TensorProto.INT64, [1])
    out = helper.make_tensor_value_info("out", TensorProto.INT64, [1])
    graph = helper.make_graph([helper.make_node("Gather", ["index", "index"], ["out"])], "g", [index], [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_in_a_devices_memory() -> None:
    """Inputs are copied there and results back, which is counted; here the processor's memory stands for a device's."""
    session, transfers = host.open_session(gather()), host.Transfers()
    for count in (1, 2):
        found = host.run_session_on("cpu", session, ["out"], {"index": np.zeros(1, np.int64)}, transfers)
        assert np.array_equal(found["out"], [0]) and transfers.moved == 16 * count and transfers.seconds > 0
    with pytest.raises(host.HostError, match="ONNX Runtime stops: .*indices element out of data bounds"):
        host.run_session_on("cpu", session, ["out"], {"index": np.full(1, 9, np.int64)}, transfers)


def test_text_stays_outside_of_a_devices_memory() -> None:
    words = [helper.make_tensor_value_info(name, TensorProto.STRING, [1]) for name in ("a", "b")]
    graph = helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "g", words[:1], words[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session, transfers = host.open_session(model), host.Transfers()
    found = host.run_session_on("cpu", session, ["b"], {"a": np.array(["x"], object)}, transfers)
    assert found["b"].tolist() == ["x"] and transfers.moved == 0


def test_sessions(capfd) -> None:
    session = host.open_session(gather())
    assert np.array_equal(host.run_session(session, ["out"], {"index": np.zeros(1, np.int64)})["out"], [0])
    with pytest.raises(host.HostError, match="ONNX Runtime stops: .*indices element out of data bounds") as caught:
        host.run_session(session, ["out"], {"index": np.full(1, 9, np.int64)})
    assert "\n" not in str(caught.value) and "/onnxruntime_src" not in str(caught.value)
    model = gather()
    model.graph.node[0].op_type = "Gathers"
    with pytest.raises(host.HostError, match="Gathers"):
        host.open_session(model)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 7, 7])
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=[2, 2, 2, 2])
    model = gather()
    model.graph.CopyFrom(helper.make_graph([pool], "g", [value], [out]))
    message = "^Exception during initialization: pads.* was false. Pad should be smaller than kernel"
    with pytest.raises(host.HostError, match=message):
        host.open_session(model)
    assert capfd.readouterr() == ("", "")


def test_options(monkeypatch) -> None:
    def entry(name: str) -> str | None:
        try:
            return host.session_options().get_session_config_entry(name)
        except RuntimeError:  # not set
            return None

    assert entry("session.qdqisint8allowed") == "1"
    for features, expected in ((("avx2",), "1"), (("avx2", "avx512_vnni"), None), (("avx_vnni",), None)):
        monkeypatch.setattr(host, "cpu_features", lambda features=features: features)
        assert entry("session.x64quantprecision") == expected


def test_hosts_that_are_no_oracle(monkeypatch) -> None:
    assert host.oracle_problem() is None or host.platform.machine() not in ("x86_64", "AMD64")
    monkeypatch.setattr(host.platform, "machine", lambda: "aarch64")
    assert host.oracle_problem() == "the reference arithmetic is ONNX Runtime's on x86-64; this host is aarch64"
    with pytest.raises(UsageError, match="--compare: the reference arithmetic is .* this host is aarch64"):
        Oracle(load_from_string(zoo.load("digits")))


def test_processor_features(monkeypatch, tmp_path) -> None:
    (tmp_path / "cpuinfo").write_text("model name: x\nflags\t\t: fpu avx2 avx512_vnni sse\n")
    real = builtins.open
    monkeypatch.setattr(builtins, "open", lambda _, *args, **kwargs: real(tmp_path / "cpuinfo", *args, **kwargs))
    assert host.cpu_features() == ("avx2", "avx512_vnni")
    (tmp_path / "cpuinfo").write_text("Features: neon\n")
    assert host.cpu_features() == ()
    (tmp_path / "cpuinfo").unlink()
    assert host.cpu_features() == ()
