"""Programs in a device's memory: where they lie, that they do not disturb each other, and what they return."""

from dataclasses import replace

import numpy as np
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.driver.device import DeviceError
from npukit.driver.loader import LoadedProgram, from_machine
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.place import ALIGNMENT
from npukit.isa.program import Program
from numpy.typing import NDArray

CONFIG = PRESETS["int8-4x4"]


def made(graphs, seed: int, dtype: type = np.int8) -> tuple[Program, dict[str, NDArray]]:
    """A program and inputs for it."""
    graph = graphs.Graph(seed=seed, dtype=dtype)
    x = graph.input((2, 5, 7, 6), integer=True, name="image")
    graph.output(graph.maxpool(graph.conv(x, 9, pads=[1] * 4), 2), integer=True)
    model = graph.model()
    (program,) = compile_model(model, CONFIG).programs
    return program, graphs.inputs_of(model, seed)


def test_layout_in_memory(graphs) -> None:
    program, inputs = made(graphs, 1)
    device = SimDevice(CONFIG)
    loaded = LoadedProgram(device, program, 3 * ALIGNMENT)
    assert loaded.base == 3 * ALIGNMENT and loaded.limit >= program.dram_bytes
    for value in (loaded.limit, loaded.code_address, loaded.end):
        assert value % ALIGNMENT == 0
    assert loaded.base + loaded.limit <= loaded.code_address < loaded.end
    constants = device.read_memory(loaded.base, len(program.constants))
    assert constants.tobytes() == program.constants
    assert device.read_memory(loaded.code_address, len(program.code)).tobytes() == program.code
    assert not device.read_memory(0, loaded.base).any()
    loaded.run(inputs)
    assert not device.read_memory(0, loaded.base).any(), "nothing is written before the base"


def test_constants_survive_runs(graphs) -> None:
    program, inputs = made(graphs, 2)
    loaded = LoadedProgram(SimDevice(CONFIG), program, 0)
    first, _ = loaded.run(inputs)
    other, _ = loaded.run({name: ~array for name, array in inputs.items()})
    again, _ = loaded.run(inputs)
    for name in first:
        assert np.array_equal(first[name], again[name]) and not np.array_equal(first[name], other[name])


def test_address(graphs) -> None:
    program, _ = made(graphs, 1)
    for address in (1, 64, ALIGNMENT - 1, ALIGNMENT + 256):
        with pytest.raises(ValueError, match=f"address must be a multiple of 4096, not {address}"):
            LoadedProgram(SimDevice(CONFIG), program, address)


def test_configuration(graphs) -> None:
    program, _ = made(graphs, 1)
    other = replace(CONFIG, act_banks=3, queue_depth=2)
    message = (
        "compiled for another configuration .program, device: act_banks: 8, 3; queue_depth: 8, 2.; compile it again"
    )
    with pytest.raises(DeviceError, match=message):
        LoadedProgram(SimDevice(other), program, 0)


def test_memory_that_is_too_small(graphs) -> None:
    program, _ = made(graphs, 1)
    need = LoadedProgram(SimDevice(CONFIG), program, 0).end
    LoadedProgram(SimDevice(CONFIG, memory_bytes=need), program, 0)
    with pytest.raises(DeviceError, match=f"needs {need} bytes of device memory from 0; the device has {need - 1}"):
        LoadedProgram(SimDevice(CONFIG, memory_bytes=need - 1), program, 0)
    with pytest.raises(DeviceError, match=f"needs {need} bytes of device memory from 4096; the device has {need}"):
        LoadedProgram(SimDevice(CONFIG, memory_bytes=need), program, 4096)


@pytest.mark.parametrize("base", [0, 4096, 7 * 4096, 1 << 24])
def test_relocation_changes_neither_values_nor_cycles(graphs, base) -> None:
    program, inputs = made(graphs, 3)
    at_zero, record = LoadedProgram(SimDevice(CONFIG), program, 0).run(inputs)
    moved, moved_record = LoadedProgram(SimDevice(CONFIG), program, base).run(inputs)
    assert record.counters == moved_record.counters
    assert all(np.array_equal(value, moved[name]) for name, value in at_zero.items())


def test_two_programs_in_one_device(graphs) -> None:
    """One behind the other, run in turns: each as if it were alone."""
    programs = [made(graphs, seed, dtype) for seed, dtype in ((4, np.int8), (5, np.uint8))]
    alone = [LoadedProgram(SimDevice(CONFIG), program, 0).run(inputs) for program, inputs in programs]
    device = SimDevice(CONFIG)
    first = LoadedProgram(device, programs[0][0], 0)
    second = LoadedProgram(device, programs[1][0], first.end)
    for which in (0, 1, 1, 0, 1, 0):
        outputs, record = (first, second)[which].run(programs[which][1])
        expected, expected_record = alone[which]
        assert record.counters == expected_record.counters
        assert all(np.array_equal(outputs[name], value) for name, value in expected.items())


def test_uint8_is_flipped_on_the_way(graphs) -> None:
    """The device's memory holds int8; the framework's tensors are uint8 at both ends."""
    program, inputs = made(graphs, 6, np.uint8)
    for tensor in program.tensors:
        # an input's memory is used again, so look before anything is computed
        device = SimDevice(CONFIG, compute=tensor.role == "output")
        outputs, _ = LoadedProgram(device, program, 0).run(inputs)
        values = tensor.layout.from_dram(device.read_memory(tensor.address, tensor.layout.elements))
        given = inputs[tensor.name] if tensor.role == "input" else outputs[tensor.name]
        assert tensor.flip and given.dtype == np.uint8
        assert np.array_equal(values, given.reshape(values.shape) ^ 0x80)


def test_flip_of_every_value() -> None:
    every = np.arange(-128, 128, dtype=np.int8)
    assert np.array_equal(from_machine(every, "uint8", (2, 128)), np.arange(256).reshape(2, 128))
    assert np.array_equal(from_machine(every, "int8", (256,)), every)


def test_bytes_of_sums() -> None:
    sums = np.array([[0, 1, -1], [-(2**31), 2**31 - 1, 0x12345678]], np.int32)
    parts = sums.view(np.int8).reshape(2, 3, 4)
    assert np.array_equal(from_machine(np.moveaxis(np.moveaxis(parts, 2, 0).copy(), 0, 2), "int32", (2, 3)), sums)


def test_padding_lanes_hold_zeros(graphs) -> None:
    """Five channels lie in two words of four lanes; the lanes without a channel are 0."""
    graph = graphs.Graph(seed=7)
    x = graph.input((2, 5, 7, 6), integer=True)
    graph.output(graph.add(x, graph.conv(x, 5, pads=[1] * 4)), integer=True)
    model = graph.model()
    (program,) = compile_model(model, CONFIG).programs
    device = SimDevice(CONFIG, compute=False)
    LoadedProgram(device, program, 0).run(graphs.inputs_of(model, 7))
    tensor = next(one for one in program.tensors if one.role == "input")
    words = device.read_memory(tensor.address, tensor.layout.elements).reshape(2, 2, 7, 6, 4)
    assert not words[1, :, :, :, 1:].any() and words[1, :, :, :, 0].any()


def test_inputs_in_any_memory_order(graphs) -> None:
    program, inputs = made(graphs, 8)
    loaded = LoadedProgram(SimDevice(CONFIG), program, 0)
    plain, _ = loaded.run(inputs)
    strided, _ = loaded.run({name: np.asfortranarray(array) for name, array in inputs.items()})
    wide = {name: np.repeat(array, 2, axis=3)[..., ::2] for name, array in inputs.items()}
    sliced, _ = loaded.run(wide)
    for name, value in plain.items():
        assert np.array_equal(value, strided[name]) and np.array_equal(value, sliced[name])


def test_every_configuration_reads_its_own_programs(graphs) -> None:
    """Word sizes from 4 to 64 bytes: constants and tensors start where their words do."""
    for array in (4, 8, 16, 32, 64):
        config = NpuConfig(array=array, vector_lanes=array, fma_lanes=array)
        graph = graphs.Graph(seed=array)
        x = graph.input((1, 70, 5, 4), integer=True, name="image")
        graph.output(graph.conv(x, 70), integer=True)
        graphs.agree(graph.model(), config)
