"""Threads that share a session, sessions that share a device, forks, copies, and runs that are cut short."""

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from npukit.compiler import pipeline
from npukit.compiler.pipeline import compile_model
from npukit.driver.device import DeviceError
from npukit.driver.loader import LoadedProgram
from npukit.driver.sim_device import SimDevice
from npukit.isa.config import PRESETS
from npukit.isa.instructions import End, Load
from npukit.isa.place import ALIGNMENT
from npukit.isa.program import Program
from npukit.sim.dram import DramModel, SdramDram
from npukit.sim.timing import simulate_timing
from npukit.sim.validator import ValidationError, validate
from numpy.typing import NDArray

from npukit import Session, zoo
from npukit.compare import Oracle
from npukit.errors import TOOL_ERRORS, USER_ERRORS, UsageError

CONFIG = PRESETS["int8-4x4"]
SEEDS = pytest.mark.parametrize("seed", [41, None], ids=["fixed", "fresh"])


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Threads take turns after a microsecond, not after 5000."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def chosen(seed: int | None) -> Random:
    """A generator, and its seed in the test's output."""
    seed = Random().getrandbits(32) if seed is None else seed
    print(f"seed {seed}")
    return Random(seed)


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """What each job returns, each in a thread of its own, all of which begin together."""
    together = threading.Barrier(len(jobs))
    results: dict[int, Any] = {}
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        together.wait(60)
        try:
            results[number] = jobs[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert len(results) == len(jobs), "a thread hangs"
    return [results[number] for number in range(len(jobs))]


def small_model(graphs: ModuleType, random: Random) -> onnx.ModelProto:
    """Two programs with a node of ONNX Runtime's between them."""
    graph = graphs.Graph(seed=random.getrandbits(32), dtype=random.choice([np.int8, np.uint8]))
    channels, size = random.randint(3, 9), random.randint(5, 9)
    x = graph.input((1, channels, size, size + 1), name="x")
    y = graph.conv(x, random.randint(3, 9), kernel=random.choice([1, 2, 3]))
    stays = graph.quantize(graph.node("LpNormalization", [graph.dequantize(y)]), 0.004, 0)
    graph.output(graph.maxpool(graph.add(y, stays), 2))
    return graph.model()


@dataclass
class Case:
    """A model, inputs for it, and what ONNX Runtime makes of each."""

    model: onnx.ModelProto
    inputs: list[dict[str, NDArray]]
    outputs: list[dict[str, NDArray]] = field(default_factory=list)
    tensors: list[dict[str, NDArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        oracle = Oracle(self.model)
        for inputs in self.inputs:
            found = oracle.run(inputs)
            self.outputs.append({name: found[name] for name in oracle.outputs})
            self.tensors.append({name: found[name] for name in oracle.tensors})

    def run(self, session: Session, order: Sequence[int]) -> None:
        """Run the inputs of those numbers, and compare."""
        for number in order:
            outputs = session.run(self.inputs[number])
            assert same(outputs, self.outputs[number])
            if session.tensors:
                assert same(session.tensors, self.tensors[number])


def same(found: dict[str, NDArray], expected: dict[str, NDArray]) -> bool:
    """Whether these are the same arrays under the same names."""
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in found)


@pytest.fixture(scope="module")
def digits() -> Case:
    """Eight handwritten digits."""
    images, _, _ = zoo.digits_heldout()
    return Case(onnx.load_from_string(zoo.load("digits")), [{"image": image} for image in images[:8]])


@pytest.fixture(scope="module")
def session(digits: Case) -> Session:
    """A session on the digits that captures."""
    return Session(digits.model, CONFIG, capture=True)


def small_case(graphs: ModuleType, random: Random) -> Case:
    """A random small model and four inputs."""
    model = small_model(graphs, random)
    return Case(model, [graphs.inputs_of(model, random.getrandbits(32)) for _ in range(4)])


# ---- threads


@SEEDS
def test_threads_share_a_session(graphs, digits: Case, session: Session, seed: int | None) -> None:
    random = chosen(seed)
    small = small_case(graphs, random)
    for case, one in ((digits, session), (small, Session(small.model, CONFIG, capture=True))):
        assert len(one.programs) == (1 if case is digits else 2)
        one.run(case.inputs[0])
        expected = one.profile
        profiles = []

        def job(case: Case = case, one: Session = one, profiles: list = profiles) -> None:
            for number in order():
                case.run(one, [number])
                profiles.append(one.profile)

        def order(case: Case = case) -> list[int]:
            return [random.randrange(len(case.inputs)) for _ in range(5)]

        at_once(*[job] * 4)
        assert len({id(profile) for profile in profiles}) == 20
        for profile in profiles:  # times depend on no value
            assert (profile.cycles, profile.macs, profile.counters, profile.layers, profile.boundary.moved) == (
                expected.cycles, expected.macs, expected.counters, expected.layers, expected.boundary.moved
            )  # fmt: skip


def test_profile_and_tensors_are_of_the_threads_own_run(digits: Case) -> None:
    session = Session(digits.model, CONFIG, capture=True)
    assert session.profile.cycles == 0 and session.tensors == {}
    all_ran = threading.Barrier(3)

    def job(number: int) -> Any:
        session.run(digits.inputs[number])
        all_ran.wait(10)
        assert same(session.tensors, digits.tensors[number])
        return session.profile

    profiles = at_once(*[lambda number=number: job(number) for number in range(3)])
    assert session.profile in profiles, "in a thread without a run: the latest of all"
    assert len({id(profile) for profile in profiles}) == 3
    session.run(digits.inputs[3])
    assert at_once(lambda: session.profile)[0] is session.profile


def test_tasks_of_asyncio(digits: Case, session: Session) -> None:
    async def classify() -> list[dict[str, NDArray]]:
        return await asyncio.gather(*(asyncio.to_thread(session.run, inputs) for inputs in digits.inputs))

    for found, expected in zip(asyncio.run(classify()), digits.outputs, strict=True):
        assert same(found, expected)


def test_outputs_belong_to_the_run_that_made_them(graphs) -> None:
    """An output that is a constant is not one array for all."""
    graph = graphs.Graph()
    graph.output(graph.conv(graph.input((1, 4, 5, 5), name="x"), 4))
    model = graph.model()
    model.graph.initializer.append(onnx.helper.make_tensor("constant", onnx.TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("constant", onnx.TensorProto.FLOAT, [3]))
    session = Session(model, CONFIG)
    for _ in range(2):
        outputs = session.run(graphs.inputs_of(model))
        assert outputs["constant"].tolist() == [1, 2, 3]
        outputs["constant"][:] = 0


@SEEDS
def test_compilations_at_once(graphs, seed: int | None) -> None:
    random = chosen(seed)
    models = [small_model(graphs, random) for _ in range(3)]
    models.append(models[0])  # two threads compile the same object

    def compiled(model: onnx.ModelProto) -> bytes:
        artifact = compile_model(model, CONFIG).artifact
        assert artifact is not None
        return artifact.SerializeToString(deterministic=True)

    alone = [compiled(model) for model in models]
    assert at_once(*[lambda model=model: compiled(model) for model in models]) == alone
    assert gc.isenabled()


def test_garbage_is_collected_after_compilations_that_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins while the first is at work, and goes on when that has ended."""
    within, over = threading.Event(), threading.Event()

    def compiling(source: str, *_: Any) -> None:
        if source == "first":
            within.set()
            looked.wait(0.3)
            return
        assert not gc.isenabled()

    looked = threading.Event()

    class Collector:
        """`gc`, with a long way between looking and acting in the second thread."""

        def isenabled(self) -> bool:
            enabled = gc.isenabled()
            if threading.current_thread().name == "second":
                looked.set()
                over.wait(0.3)
            return enabled

        enable, disable = staticmethod(gc.enable), staticmethod(gc.disable)

    monkeypatch.setattr(pipeline, "gc", Collector())
    monkeypatch.setattr(pipeline, "_compile", compiling)

    def first() -> None:
        compile_model("first", CONFIG)
        over.set()

    threads = [
        threading.Thread(target=first),
        threading.Thread(target=lambda: compile_model("second", CONFIG), name="second"),
    ]
    threads[0].start()
    assert within.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)
    try:
        assert gc.isenabled()
    finally:
        gc.enable()


# ---- one device


@SEEDS
def test_sessions_share_a_device(graphs, digits: Case, seed: int | None) -> None:
    random = chosen(seed)
    device = SimDevice(CONFIG, memory_bytes=1 << 20)
    cases = [digits, small_case(graphs, random), small_case(graphs, random)]
    sessions = [Session(case.model, CONFIG, device, capture=True) for case in cases]
    for number in range(4):  # in turns
        for case, session in zip(cases, sessions, strict=True):
            case.run(session, [number])

    def job(case: Case, session: Session) -> None:
        case.run(session, [random.randrange(4) for _ in range(4)])

    def late() -> None:
        job(cases[1], Session(cases[1].model, CONFIG, device))  # made while the others run

    pairs = list(zip(cases, sessions, strict=True))
    at_once(*[lambda pair=pair: job(*pair) for pair in pairs], late)


def test_whoever_wrote_to_the_device(digits: Case) -> None:
    """A session does not rely on memory or registers to be as it left them."""
    device = SimDevice(CONFIG, memory_bytes=1 << 20)
    session = Session(digits.model, CONFIG, device)
    device.write_memory(0, np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8))
    digits.run(session, [0])
    broken = LoadedProgram(device, Program(CONFIG, (Load(dram=1 << 20), End()), dram_bytes=4096), 0, None)
    with pytest.raises(DeviceError, match="stopped at instruction 0"):
        broken.run({})
    digits.run(session, [1])
    device.write_memory(0, np.zeros(1 << 20, np.uint8))
    digits.run(session, [0, 1])


def test_memory_for_one_program_at_a_time(graphs, digits: Case) -> None:
    """Sessions use the same memory by turns; one that does not fit alone says so."""
    session = Session(digits.model, CONFIG)
    small = small_case(graphs, Random(7))
    (loaded,) = session.loaded.executor.loaded.values()
    device = SimDevice(CONFIG, memory_bytes=loaded.end)
    sessions = [Session(case.model, CONFIG, device) for case in (digits, small)]
    for case, one in zip((digits, small, digits), (*sessions, sessions[0]), strict=True):
        case.run(one, [0, 1])
    with pytest.raises(DeviceError, match=f"needs {loaded.end} bytes of device memory from 0; the device has 4096"):
        Session(digits.model, CONFIG, SimDevice(CONFIG, memory_bytes=4096))


def test_programs_of_several_threads(graphs) -> None:
    """Without a session: each program has memory of its own, and the device is theirs by turns."""
    device = SimDevice(CONFIG)
    jobs, address = [], 0
    for seed in range(3):
        graph = graphs.Graph(seed=seed)
        x = graph.input((1, 5, 7, 6), integer=True, name="x")
        graph.output(graph.conv(x, 9, pads=[1] * 4), integer=True)
        model = graph.model()
        (program,) = compile_model(model, CONFIG).programs
        inputs = graphs.inputs_of(model, seed)
        expected, _ = LoadedProgram(SimDevice(CONFIG), program, 0).run(inputs)
        loaded = LoadedProgram(device, program, address)
        address = loaded.end

        def job(loaded: LoadedProgram = loaded, inputs: dict = inputs, expected: dict = expected) -> None:
            for _ in range(10):
                outputs, _ = loaded.run(inputs)
                assert same(outputs, expected)

        jobs.append(job)
    at_once(*jobs)


def test_memory_that_threads_write(graphs) -> None:
    """Each write is whole, while memory grows under it."""
    for _ in range(5):
        device = SimDevice(CONFIG)

        def job(mine: int, device: SimDevice = device) -> None:
            for page in range(mine, 240, 4):
                device.write_memory(page * ALIGNMENT, np.full(ALIGNMENT, page, np.uint8))

        at_once(*[lambda mine=mine: job(mine) for mine in range(4)])
        pages = device.read_memory(0, 240 * ALIGNMENT).reshape(240, ALIGNMENT)
        assert (pages == np.arange(240, dtype=np.uint8)[:, None]).all()


def test_who_has_the_device_has_it_alone(digits: Case) -> None:
    device = SimDevice(CONFIG, memory_bytes=1 << 20)
    session = Session(digits.model, CONFIG, device)
    with ThreadPoolExecutor(3) as pool:
        with device.exclusive():
            before = device.read_memory(0, 1 << 20)
            run = pool.submit(session.run, digits.inputs[0])
            others = [
                pool.submit(device.write_memory, 0, np.ones(1 << 20, np.uint8)),
                pool.submit(device.read_register, 0),
            ]
            with device.exclusive():  # again
                pass
            with pytest.raises(TimeoutError):
                run.result(0.05)
            assert not any(future.done() for future in others)
            assert np.array_equal(device.read_memory(0, 1 << 20), before)
        assert same(run.result(10), digits.outputs[0])
        for future in others:
            future.result(10)


# ---- runs that are cut short


class Interrupted(SimDevice):
    """A device in which a call by the test's choice fails, before or after it has done its work."""

    calls: int
    fails_at: int | None = None
    before: bool
    error: BaseException

    def _pass(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        fails = self.calls - 1 == self.fails_at
        if fails and self.before:
            raise self.error
        result = call()
        if fails:
            raise self.error
        return result

    calls = 0

    def reset(self) -> None:
        self._pass(super().reset)

    def read_memory(self, address: int, size: int) -> NDArray[np.uint8]:
        return self._pass(lambda: super(Interrupted, self).read_memory(address, size))

    def write_memory(self, address: int, data: NDArray[np.uint8]) -> None:
        self._pass(lambda: super(Interrupted, self).write_memory(address, data))

    def read_register(self, offset: int) -> int:
        return self._pass(lambda: super(Interrupted, self).read_register(offset))

    def write_register(self, offset: int, value: int) -> None:
        self._pass(lambda: super(Interrupted, self).write_register(offset, value))

    def wait(self, deadline: float) -> None:
        self._pass(lambda: super(Interrupted, self).wait(deadline))


@pytest.mark.parametrize("error", [DeviceError("injected"), KeyboardInterrupt()], ids=lambda one: type(one).__name__)
def test_an_error_at_any_call_of_the_device(graphs, error: BaseException) -> None:
    case = small_case(graphs, Random(9))
    device = Interrupted(CONFIG)
    sessions = [Session(case.model, CONFIG, device, capture=True) for _ in range(2)]
    start = device.calls
    case.run(sessions[0], [0])
    count = device.calls - start
    assert count > 50
    device.error = error
    for place in range(0, count, 5):
        device.before = bool(place % 2)
        device.calls, device.fails_at = 0, place
        with pytest.raises(type(error)):
            sessions[0].run(case.inputs[1])
        device.fails_at = None
        assert device.observer is None
        case.run(sessions[place % 2], [place % 4])
        at_once(lambda: device.read_register(0))  # nobody holds it


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a timer's signals are POSIX")
@SEEDS
def test_an_interrupt_at_any_moment(digits: Case, session: Session, seed: int | None) -> None:
    random = chosen(seed)
    interrupted = 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(25):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 2e-2))
                    session.run(digits.inputs[random.randrange(8)])
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            digits.run(session, [random.randrange(8)])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 0
    at_once(lambda: digits.run(session, [0]))
    assert not session.loaded._running


def test_the_programs_error_is_its_own(graphs, digits: Case) -> None:
    """What ERROR holds after a program does not stop the next one, of whichever session."""
    device = SimDevice(CONFIG)
    good, bad = Session(digits.model, CONFIG, device), Session(digits.model, CONFIG, device)
    (loaded,) = bad.loaded.executor.loaded.values()
    limit, loaded.limit = loaded.limit, 0
    with pytest.raises(DeviceError, match="npukit_0 stopped at instruction 0"):
        bad.run(digits.inputs[0])
    digits.run(good, [0])
    loaded.limit = limit
    digits.run(bad, [1])


# ---- the end of a session


class Blocked(SimDevice):
    """A device that waits for the test."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.started, self.may_end = threading.Event(), threading.Event()
        self.closed = 0

    def wait(self, deadline: float) -> None:
        self.started.set()
        assert self.may_end.wait(10)

    def close(self) -> None:
        self.closed += 1


def test_close(digits: Case) -> None:
    with Session(digits.model, CONFIG) as session:
        digits.run(session, [0])
        profile = session.profile
    for _ in range(2):
        with pytest.raises(UsageError, match="the session is closed: make another one"):
            session.run(digits.inputs[0])
        session.close()
    assert session.profile is profile and session.programs and session.inputs
    device = Blocked(CONFIG)
    device.may_end.set()
    for _ in range(2):
        with Session(digits.model, CONFIG, device) as session:
            digits.run(session, [0])
    assert device.closed == 0, "a device that was given is its owner's"


def test_close_waits_for_runs(digits: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npukit.devices.SimDevice", Blocked)
    session = Session(digits.model, CONFIG)
    device = session.device
    assert isinstance(device, Blocked)
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(session.run, digits.inputs[0])
        assert device.started.wait(10)
        closing = pool.submit(session.close)
        while not session.loaded._closed:
            pass
        with pytest.raises(UsageError, match="closed"):
            session.run(digits.inputs[0])
        assert not closing.done() and not device.closed and not run.done()
        device.may_end.set()
        assert same(run.result(10), digits.outputs[0])
        closing.result(10)
        assert device.closed == 1


def test_close_from_within_a_run(digits: Case) -> None:
    device = SimDevice(CONFIG)
    session = Session(digits.model, CONFIG, device)
    device.observer = lambda *_: session.close()
    with pytest.raises(UsageError, match="cannot be closed from within a run"):
        session.run(digits.inputs[0])
    device.observer = None
    digits.run(session, [0])


# ---- other processes


def in_a_fork(job: Callable[[], Any]) -> str:
    """What the job raises in a forked process, or returns, as text."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads: that is the point
        process = os.fork()
    if process == 0:
        signal.alarm(30)
        try:
            text = f"returned {job()}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as file:
            return file.read()
    finally:
        os.waitpid(process, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks_are_refused(digits: Case) -> None:
    device = SimDevice(CONFIG)
    session = Session(digits.model, CONFIG, device)
    digits.run(session, [0])
    here = os.getpid()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with device.exclusive():
            held.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)  # a fork has the lock, and not the thread that would release it
    try:
        text = in_a_fork(lambda: session.run(digits.inputs[0]))
        assert text.startswith(f"UsageError: the session was made in process {here} and does not work in its fork")
        assert text.endswith("make the Session, or load the model, in the process that uses it")
        for use in (
            lambda: device.read_memory(0, 4),
            lambda: device.write_memory(0, np.zeros(4, np.uint8)),
            lambda: device.write_register(0, 1),
            lambda: Session(digits.model, CONFIG, device),
        ):
            text = in_a_fork(use)
            assert text.startswith(f"DeviceError: the device was made in process {here} and does not work in its fork")
        assert in_a_fork(session.close) == "returned None"
        fresh = in_a_fork(lambda: digits.run(Session(digits.model, CONFIG), [0, 1]))
        assert fresh == "returned None", "a session of the fork's own"
    finally:
        done.set()
        holder.join(10)
    digits.run(session, [1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_ends() -> None:
    """With all that a process does at its end, for which ONNX Runtime may wait for threads that a fork has not."""
    script = """if True:
        import os, sys
        from npukit import Session, zoo
        session = Session(zoo.load("digits"), "int8-4x4")
        process = os.fork()
        if process == 0:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    """
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.communicate(timeout=60) == ("7\n", None)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the fork, if it has not ended


def test_what_is_no_value_is_neither_pickled_nor_copied(session: Session) -> None:
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a Session cannot be pickled or copied: .*`artifact`"):
            action(session)
        with pytest.raises(TypeError, match="a SimDevice cannot be pickled or copied: it is one machine"):
            action(session.device)
        with pytest.raises(TypeError, match="a SimDevice cannot be pickled or copied"):
            action({"nested": session.loaded.executor}) if action is not copy.copy else action(session.device)


def test_values_are_pickled(session: Session, digits: Case) -> None:
    outputs = session.run(digits.inputs[0])
    (program,) = session.programs.values()
    schedule = simulate_timing(CONFIG, program.instructions)
    values = [CONFIG, session.profile, program, DramModel(latency=7), SdramDram()]
    for value in values:
        assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)
    assert pickle.loads(pickle.dumps(session.artifact)) == session.artifact
    assert same(pickle.loads(pickle.dumps(outputs)), outputs)
    assert np.array_equal(pickle.loads(pickle.dumps(schedule)).end, schedule.end)


def test_errors_come_back_from_other_processes() -> None:
    """A pool hangs for ever on an error that cannot be unpickled, and one that becomes another error misleads."""
    kinds: list[type[Exception]] = [kind for kind in (*USER_ERRORS, *TOOL_ERRORS) if kind is not ValidationError]
    errors = [kind("a sentence") for kind in kinds]
    findings = validate(CONFIG, (Load(bank=99), Load(bank=98), End()), 4096)
    assert len(findings) == 2
    errors.append(ValidationError(findings))
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_another_process_makes_its_own_session(tmp_path, monkeypatch, digits: Case, session: Session) -> None:
    """Spawned, with the compiled model, as the refusals say."""
    (tmp_path / "npukit_spawned.py").write_text(
        "from npukit import Session\n\n"
        "def classify(artifact, inputs):\n"
        "    with Session(artifact) as session:\n"
        "        outputs = [session.run(one) for one in inputs]\n"
        "        return outputs, session.profile, session.config\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import npukit_spawned  # pyright: ignore[reportMissingImports]

    session.run(digits.inputs[1])
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        wrong = pool.submit(session.run, digits.inputs[0])
        with pytest.raises(TypeError, match="a Session cannot be pickled"):
            wrong.result(60)
        job = pool.submit(npukit_spawned.classify, session.artifact, digits.inputs[:2])
        outputs, profile, config = job.result(60)
    assert all(same(found, expected) for found, expected in zip(outputs, digits.outputs[:2], strict=True))
    assert config == CONFIG and profile.layers == session.profile.layers
