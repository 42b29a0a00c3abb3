"""ONNX Runtime on the host: its options, its errors on one line, and hosts that cannot be the oracle."""

import builtins

import numpy as np
import pytest
from npukit.driver import host
from npukit.driver.weight_types import with_alike_weights
from onnx import ModelProto, TensorProto, helper, load_from_string, numpy_helper

from npukit import zoo
from npukit.compare import Oracle
from npukit.errors import UsageError

FEATURES = host.cpu_features()


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


def quantised_by(*kinds: str, size: int = 64) -> ModelProto:
    """Products with weights of int8, one behind the other, whose activations have these types, all at extremes."""
    generator, nodes, constants, name = np.random.default_rng(1), [], [], "x"
    for k, kind in enumerate(kinds):
        values = {"scale": np.float32(size * 2.0**k), "zero": np.array(0, kind), "weights": None, "fine": np.float32(1)}
        values["weights"] = generator.choice(np.array([-128, 127], np.int8), (size, size))
        constants += [numpy_helper.from_array(np.asarray(value), f"{key}_{k}") for key, value in values.items()]
        constants.append(numpy_helper.from_array(np.array(0, np.int8), f"weight_zero_{k}"))
        nodes += [
            helper.make_node("QuantizeLinear", [name, f"fine_{k}", f"zero_{k}"], [f"q_{k}"]),
            helper.make_node(
                "QLinearMatMul",
                [f"q_{k}", f"fine_{k}", f"zero_{k}", f"weights_{k}", f"fine_{k}", f"weight_zero_{k}", f"scale_{k}",
                 f"zero_{k}"],
                [f"y_{k}"],
            ),
            helper.make_node("DequantizeLinear", [f"y_{k}", f"fine_{k}", f"zero_{k}"], [f"float_{k}"]),
        ]  # fmt: skip
        name = f"float_{k}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])
    y = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "products", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_products_do_not_saturate(kind: str) -> None:
    """On a host without VNNI, too: sums of two products of extremes are more than 16 bits."""
    model, limits = quantised_by(kind), np.iinfo(kind)
    x = np.random.default_rng(2).choice(np.array([limits.min, limits.max], np.float32), (64, 64))
    weights = numpy_helper.to_array(model.graph.initializer[2]).astype(np.int64)
    (found,) = host.run_session(host.open_session(model), ["float_0"], {"x": x}).values()
    np.testing.assert_array_equal(found, np.clip(np.rint(x.astype(np.int64) @ weights / 64), limits.min, limits.max))


def test_weights_become_unsigned_without_vnni(monkeypatch) -> None:
    """Those of uint8 activations, those of int8 ones not."""
    mixed = quantised_by("uint8", "int8", "uint8")
    kinds = [one.data_type for one in with_alike_weights(mixed).graph.initializer if "weights_" in one.name]
    assert kinds.count(TensorProto.UINT8) == 2
    assert [node.input[3].endswith("alike") for node in with_alike_weights(mixed).graph.node[1::3]] == [1, 0, 1]
    x = {"x": np.random.default_rng(3).choice(np.array([-128, 0, 127, 255], np.float32), (64, 64))}
    found = []
    for features in (("avx2",), ("avx2", "avx512_vnni")):
        monkeypatch.setattr(host, "cpu_features", lambda features=features: features)
        found.append(host.open_session(mixed).run(None, x)[0])
    if "vnni" in " ".join(FEATURES):
        np.testing.assert_array_equal(*found)


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
