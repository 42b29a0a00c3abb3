"""Emitted C as this machine runs it, on the simulator: outputs equal to ONNX Runtime's, and every result code."""

from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from npukit.driver.host import open_session
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.registers import ErrorCause, address_of
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npukit import Session, zoo
from tests.firmware.emitted import OK, PAGE, Host, emit
from tests.graphs import Graph

INT8, BF16 = PRESETS["int8-4x4"], PRESETS["bf16-4x4"]
MEMORY = 1 << 22


def host_of(folder: Path, model: str | bytes | onnx.ModelProto, config: NpuConfig = INT8, **options) -> Host:
    """The model on a simulated device."""
    return Host(folder, emit(folder / "kit", model, config), SimDevice(config, memory_bytes=MEMORY), **options)


def images(count: int, seed: int = 3) -> NDArray[np.float32]:
    """Random images of digits' size, in steps of a sixteenth as those are, and some between them."""
    return np.random.default_rng(seed).random((count, 1, 1, 8, 8)).astype(np.float32)


def agree(host: Host, wanted: Mapping[str, NDArray], inputs: Mapping[str, NDArray]) -> None:
    """Run, and compare bit for bit."""
    result, outputs = host.run(inputs)
    assert result == OK
    assert outputs.keys() == wanted.keys()
    for name, value in wanted.items():
        assert outputs[name].dtype == value.dtype
        assert outputs[name].shape == value.shape
        assert outputs[name].tobytes() == value.tobytes(), name


def onnx_runtime(model: onnx.ModelProto) -> Callable[[Mapping[str, NDArray]], dict[str, NDArray]]:
    """What ONNX Runtime computes, without the accelerator, on any host without saturated sums."""
    session = open_session(model)
    names = [value.name for value in session.get_outputs()]

    def run(inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        return {name: np.asarray(value) for name, value in zip(names, session.run(names, dict(inputs)), strict=True)}

    return run


@pytest.mark.parametrize("interrupt", (False, True), ids=("polling", "interrupt"))
def test_digits(tmp_path: Path, interrupt: bool) -> None:
    model = onnx.load_model_from_string(zoo.load("digits"))
    host = host_of(tmp_path, model, interrupt=interrupt)
    run = onnx_runtime(model)
    assert host.init() == OK
    for image in images(4):
        agree(host, run({"image": image}), {"image": image})
    assert host.interrupts == (4 if interrupt else 0)
    assert not host.interrupt  # taken back


def test_attention(tmp_path: Path) -> None:
    """Against the kit's session: normalisations are the kit's own, and within a step of ONNX Runtime's."""
    model = zoo.load("digits-vit")
    host = host_of(tmp_path, model)
    session = Session(model, config=INT8)
    assert host.init() == OK
    for image in images(3):
        agree(host, session.run({"image": image}), {"image": image})


def test_digits_in_bf16(tmp_path: Path) -> None:
    model = zoo.load("digits", "fp32")
    host = host_of(tmp_path, model, BF16)
    session = Session(model, config=BF16)
    assert host.init() == OK
    strange = images(1)[0]
    strange.reshape(-1)[:6] = 1e-40, -0.0, 3.4e38, 1.00390625, 1.01171875, -1e-39  # subnormal, to infinity, ties
    for image in (*images(3), strange):
        agree(host, session.run({"image": image}), {"image": image})


def test_tflite(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="tflite is not installed: pip install npukit[tflite]")
    model = zoo.load("digits", "tflite")
    host = host_of(tmp_path, model)
    session = Session(model, config=INT8)
    assert host.init() == OK
    for seed in range(3):
        image = np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)
        agree(host, session.run({"image": image}), {"image": image})


def _values(value: onnx.ValueInfoProto, random: np.random.Generator) -> NDArray:
    kind = value.type.tensor_type
    shape = [dim.dim_value for dim in kind.shape.dim]
    if kind.elem_type == TensorProto.FLOAT:
        return random.normal(0, 3, shape).astype(np.float32)
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _two_of_each(dtype: type, integer: bool) -> onnx.ModelProto:
    """Two inputs and two outputs, of which one is an input's too, with channels that no array divides."""
    graph = Graph(seed=5, dtype=dtype)
    first = graph.input((1, 3, 7, 5), name="first image.0", integer=integer)
    second = graph.input((1, 6, 7, 5), name="second", integer=integer)
    left = graph.conv(first, 6, 3, pads=[1, 1, 1, 1])
    both = graph.add(left, second)
    graph.output(both, integer)
    graph.output(graph.conv(both, 9, 1), integer)
    return graph.model()


@pytest.mark.parametrize("dtype", (np.int8, np.uint8))
@pytest.mark.parametrize("integer", (False, True), ids=("float", "integer"))
@pytest.mark.parametrize("config", ("int8-4x4", "int8-16x16"))
def test_several_inputs_and_outputs(tmp_path: Path, dtype: type, integer: bool, config: str) -> None:
    model = _two_of_each(dtype, integer)
    host = host_of(tmp_path, model, PRESETS[config])
    run, random = onnx_runtime(model), np.random.default_rng(1)
    assert host.init() == OK
    for _ in range(3):
        inputs = {value.name: _values(value, random) for value in model.graph.input}
        agree(host, run(inputs), inputs)


def _stride_two(graph: Graph) -> None:
    x = graph.input((1, 3, 17, 13), name="x")
    graph.output(graph.conv(x, 5, 5, strides=[2, 2], pads=[2, 1, 2, 1]))


def _deep(graph: Graph) -> None:
    graph.output(graph.conv(graph.input((1, 130, 3, 2), name="x"), 33, 1))


def _batch(graph: Graph) -> None:
    graph.output(graph.conv(graph.input((3, 5, 6, 4), name="x"), 7, 3))


def _one_dimension(graph: Graph) -> None:
    graph.output(graph.conv(graph.input((1, 3, 19), name="x"), 6, (3,)))


def _rows(graph: Graph) -> None:
    graph.output(graph.matmul(graph.input((2, 7, 11), name="x"), 6))


def _one(graph: Graph) -> None:
    graph.output(graph.gemm(graph.input((1, 1), name="x"), 1))


@pytest.mark.parametrize("make", (_stride_two, _deep, _batch, _one_dimension, _rows, _one))
@pytest.mark.parametrize("dtype", (np.int8, np.uint8))
def test_shapes(tmp_path: Path, make: Callable[[Graph], None], dtype: type) -> None:
    graph = Graph(seed=2, dtype=dtype)
    make(graph)
    model = graph.model()
    host = host_of(tmp_path, model)
    run, random = onnx_runtime(model), np.random.default_rng(2)
    assert host.init() == OK
    for _ in range(2):
        inputs = {"x": _values(model.graph.input[0], random)}
        agree(host, run(inputs), inputs)


def product_of_integers() -> onnx.ModelProto:
    """A MatMulInteger."""
    weights = np.random.default_rng(3).integers(-128, 128, (13, 6)).astype(np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"], name="product")
    graph = helper.make_graph(
        [node], "graph", [helper.make_tensor_value_info("x", TensorProto.INT8, [5, 13])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [5, 6])], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_sums_of_32_bits(tmp_path: Path) -> None:
    """MatMulInteger's result leaves the accelerator as int32, in four bytes each."""
    model = product_of_integers()
    weights = numpy_helper.to_array(model.graph.initializer[0])
    host = host_of(tmp_path, model)
    assert host.init() == OK
    values = np.random.default_rng(4).integers(-128, 128, (5, 13)).astype(np.int8)
    assert host.kit.model.boundary.outputs[0].dtype == "int32"
    agree(host, {"y": values.astype(np.int32) @ weights.astype(np.int32)}, {"x": values})


@pytest.mark.parametrize("dtype", (np.int8, np.uint8))
@pytest.mark.parametrize("zero_point", (0, 5, 127))
def test_quantisation_of_every_kind_of_float(tmp_path: Path, dtype: type, zero_point: int) -> None:
    """Ties, numbers beside them, what saturates, infinities and NaN, through a MaxPool that changes nothing."""
    scale = np.float32(0.1)
    steps = np.arange(-140, 400) / 2
    exact = (steps * np.float64(scale)).astype(np.float32)
    near = np.concatenate([exact, np.nextafter(exact, np.float32(9e9)), np.nextafter(exact, np.float32(-9e9))])
    odd = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, -0.0, 2.0**31 * 0.1], np.float32)
    values = np.concatenate([near, odd])
    values = np.resize(values, (1, 1, 1, -(-values.size // 4) * 4))
    graph = Graph(seed=1, dtype=dtype)
    x = graph.input(values.shape, float(scale), zero_point, name="x")
    graph.output(graph.maxpool(x, (1, 1)), integer=True)
    graph.output(graph.maxpool(x, (1, 1)))
    model = graph.model()
    host = host_of(tmp_path, model)
    assert host.init() == OK
    agree(host, onnx_runtime(model)({"x": values}), {"x": values})


def test_narrow_and_widen_every_bfloat16(tmp_path: Path) -> None:
    """A float model that changes nothing but for its inputs' rounding, held to ml_dtypes."""
    random = np.random.default_rng(9)
    exact = np.arange(1 << 16) << 16
    ties = np.concatenate([random.choice(exact, 1 << 14) | low for low in (0x7FFF, 0x8000, 0x8001)])
    # subnormal numbers that would round to a normal one, and NaN that would lose what makes it one
    edges = [0x007FFFFF, 0x807FFFFF, 0x007F8000, 0x7F800001, 0xFF80FFFF, 0x7F7FFFFF, 0xFF7FFFFF]
    bits = np.concatenate([exact, ties, edges, random.integers(0, 1 << 32, 1 << 14)])
    values = bits.astype(np.uint32).view(np.float32)
    values = np.resize(values, (1, 1, 4, -(-values.size // 4)))
    node = helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[1, 1])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape) for name in "xy"]
    graph = helper.make_graph([node], "graph", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    host = host_of(tmp_path, model, BF16)
    assert host.init() == OK
    result, outputs = host.run({"x": values})
    assert result == OK
    normal = np.where(np.abs(values) < np.float32(2.0**-126), np.float32(0), values)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = normal.astype(ml_dtypes.bfloat16).astype(np.float32)
    wanted[np.isnan(values)] = np.uint32(0x7FC00000).view(np.float32)
    assert outputs["y"].tobytes() == wanted.tobytes()


# ---- results


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Host]:
    """Hosts of the digits network, emitted once."""
    folder = tmp_path_factory.mktemp("digits")
    kit = emit(folder / "kit", zoo.load("digits"), INT8)
    return lambda **options: Host(folder, kit, SimDevice(INT8, memory_bytes=MEMORY), **options)


IMAGE = {"image": images(1)[0]}


def _wanted() -> dict[str, NDArray]:
    return Session(zoo.load("digits"), config=INT8).run(IMAGE)


def test_another_device(digits) -> None:
    host = digits()
    host.changed[address_of("IDENTITY")] = 0
    assert host.init() == "NPU_BAD_IDENTITY"
    host.changed = {address_of("VERSION"): 1}
    assert host.init() == "NPU_BAD_VERSION"
    for half in ("LOW", "HIGH"):
        host.changed = {address_of(f"CONFIG_HASH_{half}"): 5}
        assert host.init() == "NPU_BAD_CONFIGURATION"
    host.changed = {}
    assert host.init() == OK


def test_addresses(digits) -> None:
    host = digits()
    assert host.init() == OK
    assert host.bind(host.start + 64) == "NPU_BAD_ADDRESS"
    assert host.bind() == OK


def test_reset_that_does_not_end(digits) -> None:
    host = digits(defines=["NPU_POLL_LIMIT=10u"])
    host.changed[address_of("STATUS")] = 1
    assert host.init() == "NPU_TIMED_OUT"
    assert host.polls == 10


def test_a_program_that_does_not_end(digits) -> None:
    host = digits(defines=["NPU_POLL_LIMIT=10u"])
    assert host.init() == OK
    assert host.begin(IMAGE) == OK
    host.changed[address_of("STATUS")] = 1
    before = host.memory.copy()
    other = {"image": images(1, seed=9)[0]}
    assert host.begin(other) == "NPU_STILL_BUSY"
    assert host.run(other)[0] == "NPU_STILL_BUSY"
    assert (host.memory == before).all()  # the inputs of the program that runs stay
    assert host.end()[0] == "NPU_STILL_BUSY"


def test_an_interrupt_that_does_not_come(digits) -> None:
    host = digits(interrupt=True)
    assert host.init() == OK
    host.npu.interrupt_enable = 0
    assert host.run(IMAGE)[0] == "NPU_TIMED_OUT"


def test_not_started(digits) -> None:
    host = digits()
    assert host.init() == OK
    result, outputs = host.end()
    assert result == "NPU_NOT_STARTED"
    assert (outputs["logits"] == 77).all()


def test_error_and_what_follows(digits) -> None:
    """A damaged instruction stops the program; the next start clears the error, and the result is right again."""
    for interrupt in (False, True):
        host = digits(interrupt=interrupt)
        assert host.init() == OK
        index = 20
        where = PAGE + host.kit.model.place.code_address + 32 * index
        good = host.device.read_memory(where, 32)
        host.device.write_memory(where, np.full(32, 0xFF, np.uint8))
        result, outputs = host.run(IMAGE)
        assert result == "NPU_STOPPED"
        assert (host.npu.causes, host.npu.error_index) == (1 << ErrorCause.ILLEGAL_INSTRUCTION, index)
        assert (outputs["logits"] == 77).all()
        host.device.write_memory(where, good)
        agree(host, _wanted(), IMAGE)


@pytest.mark.parametrize("interrupt", (False, True), ids=("polling", "interrupt"))
def test_barriers(digits, interrupt: bool) -> None:
    """STATUS is not read before a start, or a reset, has arrived; memory is read behind the end."""
    host = digits(interrupt=interrupt)
    assert host.init() == OK
    agree(host, _wanted(), IMAGE)
    writes = [index for index, access in enumerate(host.accesses) if access == "write CONTROL"]
    assert len(writes) == 2
    assert [host.accesses[index + 1] for index in writes] == ["barrier", "barrier"]
    assert host.accesses[writes[1] - 1] == "barrier"
    assert host.accesses[-2:] == ["read STATUS", "barrier"]


def test_start_and_finish_apart(digits) -> None:
    host = digits()
    assert host.init() == OK
    assert host.begin(IMAGE) == OK
    result, outputs = host.end()
    assert result == OK
    assert outputs["logits"].tobytes() == _wanted()["logits"].tobytes()
    assert host.counter(address_of("CYCLES_LOW")) > 10_000


def test_attach_copies_nothing(digits) -> None:
    host = digits()
    assert host.init() == OK
    host.memory[:] = host.device.read_memory(PAGE, host.memory.size)
    before = host.memory.copy()
    assert host.init(attach=True) == OK
    assert (host.memory == before).all()
    agree(host, _wanted(), IMAGE)


def test_attach_to_what_only_the_processor_sees(digits) -> None:
    """A boot loader that has copied constants and instructions may have left them in the processor's cache."""
    host = digits()
    assert host.init() == OK
    host.memory[:] = host.device.read_memory(PAGE, host.memory.size)
    host.device.write_memory(PAGE, np.random.default_rng(8).integers(0, 256, host.memory.size).astype(np.uint8))
    assert host.init(attach=True) == OK
    agree(host, _wanted(), IMAGE)


def test_program_in_place(digits) -> None:
    """Instructions where the linker has put them; the device sees them elsewhere, once the cache is clean."""
    host = digits(defines=["NPU_PROGRAM_IN_PLACE"])
    place = host.kit.model.place
    address = host.address
    code = host.kit.model.boundary.program.code
    elsewhere = 1 << 19

    def moved(pointer: int) -> int:
        inside = host.start <= pointer < host.start + place.end
        return address(pointer) if inside else elsewhere + pointer % PAGE

    host.map(moved)
    assert host.init() == OK
    assert host.device.read_memory(PAGE + place.code_address, len(code)).tobytes() != code
    agree(host, _wanted(), IMAGE)
