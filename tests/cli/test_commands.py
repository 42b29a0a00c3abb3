"""Every command: what it prints where, its exit codes, and what the files hold."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from npukit.compiler.pipeline import PASSES
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.instructions import Vector
from npukit.isa.program import Program
from npukit.isa.registers import COUNTERS

from npukit import zoo
from npukit.cli import run as run_command
from npukit.npufile import read_model, write_artifact

COMMANDS = ("zoo", "check", "compile", "run", "disasm", "asm", "configs", "verilog", "verify")
CONFIG_LINE = "config: int8-16x16 (16x16 int8, 384 KiB on chip, 8 B/cycle, hash "


def script(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "npukit.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


# ---- the command line itself


def test_help_lists_every_command(npukit) -> None:
    result = npukit("--help")
    assert result.code == 0 and result.err == ""
    for command in COMMANDS:
        assert f"\n    {command} " in result.out
    assert "130 interrupted" in result.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(npukit, command) -> None:
    result = npukit(command, "--help")
    assert result.code == 0 and result.err == ""
    assert result.out.startswith(f"usage: npukit {command} ")
    assert "--json" in result.out and "--quiet" in result.out


def test_version(npukit) -> None:
    assert npukit("--version").out == "npukit 0.1.0\n"


def test_module_and_its_exit_code(tmp_path) -> None:
    found = script("configs", "int8-4x4")
    assert found.returncode == 0 and "array = 4\n" in found.stdout and found.stderr == ""
    missing = script("check", tmp_path / "none.onnx", "--quiet")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == f"npukit: cannot read {tmp_path / 'none.onnx'}: No such file or directory\n"


def test_installed_script() -> None:
    path = Path(sys.executable).with_name("npukit")
    if not path.exists():
        pytest.skip("npukit is not installed beside this Python")
    assert subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout == "npukit 0.1.0\n"


def test_a_reader_that_goes_away() -> None:
    """`npukit configs | true`: no traceback, and not the exit code of success."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-m", "npukit.cli", "configs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 141


def test_interrupt_in_process(npukit, digits, monkeypatch) -> None:
    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "random_inputs", interrupt)
    npukit("run", digits, "--quiet").refused("npukit: interrupted", code=130)


def test_interrupt_of_a_process(tmp_path) -> None:
    """Ctrl-C while a command waits for its input, a pipe that nobody writes."""
    pipe = tmp_path / "model.onnx"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "npukit.cli", "check", str(pipe)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # a shell has its background jobs ignore it, and what they start, too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline().startswith("config: ")
    # a pipe can be opened for writing at once only when somebody reads it: then the command waits for its input
    writer = None
    while writer is None:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.05)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(writer)
    assert (process.returncode, out, err) == (130, "", "npukit: interrupted\n")


# ---- zoo and configs


def test_zoo_list(npukit) -> None:
    text = npukit("zoo", "--list")
    assert text.code == 0 and "digits" in text.out and text.err == ""
    assert npukit("zoo").out == text.out
    entries = npukit("zoo", "--list", "--json").json["models"]
    assert [entry["name"] for entry in entries] == list(zoo.names())
    assert entries[0]["precisions"] == ["int8", "fp32", "tflite"]


def test_zoo_writes_a_model(npukit, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = npukit("zoo", "digits")
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "digits.onnx").read_bytes() == zoo.load("digits")
    other = npukit("zoo", "digits", "--precision", "fp32", "-o", "other.onnx", "--json")
    assert other.json == {"schema": 1, "model": "digits", "precision": "fp32", "seed": 0, "path": "other.onnx"}
    assert (tmp_path / "other.onnx").read_bytes() == zoo.load("digits", "fp32")


def test_configs(npukit, tmp_path) -> None:
    text = npukit("configs")
    assert [line.split()[0] for line in text.out.splitlines()[1:]] == list(PRESETS)
    objects = npukit("configs", "--json").json["configs"]
    assert objects["int8-8x8"] == PRESETS["int8-8x8"].to_dict()
    one = npukit("configs", "int8-8x8")
    path = tmp_path / "one.toml"
    path.write_text(one.out)
    assert npukit("configs", path, "--json").json["hash"] == f"{PRESETS['int8-8x8'].hash:016x}"


# ---- check


def test_check_text(npukit, digits) -> None:
    result = npukit("check", digits)
    assert result.code == 0
    assert result.err.startswith(CONFIG_LINE) and result.err.count("\n") == 1
    assert "on the accelerator: 50 of 52 nodes, 1 276 816 of 1 276 816 MACs (100.0 %)" in result.out
    assert "stays: QuantizeLinear" in result.out


def test_check_json(npukit, digits) -> None:
    result = npukit("check", digits, "--json", "--quiet", "--config", "int8-4x4", "--set", "act_depth=999")
    assert result.code == 0 and result.err == ""
    value = result.json
    assert set(value) == {"schema", "model", "config", "subgraphs", "offload"}
    assert value["config"]["array"] == 4 and value["config"]["act_depth"] == 999
    offload = value["offload"]
    assert set(offload) == {"nodes", "nodes_total", "macs", "macs_total", "macs_unknown", "suggestion", "reasons"}
    assert offload["nodes"] + len(offload["reasons"]) == offload["nodes_total"]
    assert {*offload["reasons"][0]} == {"node", "op", "reason", "macs", "edge"}


def test_models_of_the_zoo_by_name(npukit, tmp_path, monkeypatch) -> None:
    """As int8, or as fp32 where the configuration computes floats; a file of that name comes first."""
    monkeypatch.chdir(tmp_path)
    for config in ("int8-8x8", "bf16-8x8"):
        result = npukit("run", "digits-vit", "--config", config, "--fallback", "none", "--compare", "--json")
        assert result.code == 0 and result.json["offload"]["macs"] == 453520, result.err
    assert npukit("compile", "digits", "-o", "digits.onnx").code == 0
    (tmp_path / "digits").write_bytes(b"no model")
    npukit("check", "digits").refused("digits is not an ONNX model")
    npukit("check", "digitz").refused("cannot read digitz")


def test_config_line_names_what_is_used(npukit, digits, tmp_path) -> None:
    (tmp_path / "my.toml").write_text('base = "int8-4x4"\nact_banks = 3\n')
    assert npukit("check", digits, "--config", "int8-4x4").err.startswith("config: int8-4x4 (4x4 int8")
    assert npukit("check", digits, "--config", tmp_path / "my.toml").err.startswith("config: custom (4x4 int8")
    assert npukit("check", digits, "--set", "bus_bytes=0x10").err.split(", ")[2] == "16 B/cycle"


# ---- compile


def test_what_was_compiled_to_nothing_can_be_compiled_again(npukit, digits, tmp_path) -> None:
    """It has the digest and the counts of the first time in its metadata."""
    nothing, again = tmp_path / "nothing.onnx", tmp_path / "again.onnx"
    assert npukit("compile", digits, "--min-macs", 10**12, "-o", nothing).code == 0
    assert npukit("compile", nothing, "-o", again).code == 0
    assert "on the accelerator: 50 of 52 nodes" in npukit("run", again).out
    keys = [entry.key for entry in onnx.load(again).metadata_props]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[" * 200_000,
        '{"macs": "x"}',
        "NaN",
        '{"nodes_total":2,"macs":3,"macs_total":4,"macs_unknown":0,"suggestion":"","reasons":[5]}',
        '{"nodes_total":2,"macs":3,"macs_total":4,"macs_unknown":0,"suggestion":"","reasons":[{"node":"a","macs":"d"}]}',
    ],
)
def test_counts_that_are_none(npukit, digits, tmp_path, text) -> None:
    """Anyone can write them; what the programs say stands in their place."""
    path = tmp_path / "out.onnx"
    npukit("compile", digits, "-o", path)
    model = onnx.load(path)
    next(entry for entry in model.metadata_props if entry.key == "npukit.offload").value = text
    stated = [entry for entry in model.metadata_props if entry.key == "npukit.digest"]
    for entry in stated:
        model.metadata_props.remove(entry)
    write_artifact(path, model)
    result = npukit("run", path)
    assert result.code == 0 and "1 276 816 of 1 276 816 MACs" in result.out


def test_compile_text_and_json(npukit, digits, tmp_path) -> None:
    path = tmp_path / "out.onnx"
    text = npukit("compile", digits, "-o", path)
    assert text.code == 0 and "on the accelerator: 50 of 52" in text.out
    assert text.err.splitlines()[0].startswith(CONFIG_LINE) and f"wrote {path}: 1 subgraph(s)" in text.err
    first = path.read_bytes()
    value = npukit("compile", digits, "-o", path, "--json", "--quiet").json
    assert value["output"] == str(path) and value["subgraphs"] == 1
    assert set(value["seconds"]) == {
        "total", *PASSES,
    }  # fmt: skip
    assert path.read_bytes() == first, "compiling twice makes the same file"
    onnx.checker.check_model(onnx.load(path))


@pytest.mark.parametrize("stage", ["import", "normalise", "partition", "lower", "schedule", "allocate", "emit"])
def test_stop_after_prints_the_stage(npukit, digits, stage) -> None:
    result = npukit("compile", digits, "--stop-after", stage, "--quiet")
    assert result.code == 0 and result.err == ""
    assert len(result.out.splitlines()) > 10
    if stage != "allocate":
        assert "block1/conv1/Conv" in result.out


# ---- run

RUN_KEYS = {
    "schema", "version", "model", "config", "device", "dram", "dram_latency", "memory", "seed", "cycles", "clock",
    "macs", "optimize", "utilization", "seconds", "memory_peak", "offload", "counters", "layers",
}  # fmt: skip


def test_run_json(npukit, digits) -> None:
    result = npukit("run", digits, "--json", "--quiet", "--compare", "--seed", 3)
    assert result.code == 0 and result.err == ""
    value = result.json
    assert set(value) == {*RUN_KEYS, "compare"}
    assert value["schema"] == 1 and value["model"] == str(digits) and value["device"] == "sim"
    assert value["config"] == NpuConfig().to_dict()
    assert value["macs"] == 1_276_816 and value["cycles"] > 5000
    assert value["utilization"] == pytest.approx(value["macs"] / (256 * value["cycles"]))
    assert {"compile", "simulate"} <= set(value["seconds"]) and value["memory_peak"] > 1 << 20
    assert set(value["offload"]) == {
        "nodes",
        "nodes_total",
        "macs",
        "macs_total",
        "macs_unknown",
        "suggestion",
        "boundary_bytes",
        "gpu_bytes",
        "reasons",
    }
    assert value["offload"]["boundary_bytes"] == 64 + 10
    assert set(value["counters"]) == {name for name, _ in COUNTERS}
    assert value["counters"]["cycles"] == value["cycles"] == sum(layer["cycles"] for layer in value["layers"])
    compare = value["compare"]
    assert set(compare) == {
        "reference", "host", "tensors", "tensors_total", "elements", "mismatches", "max_abs_diff", "first_mismatch",
        "defined", "by_itself",
    }  # fmt: skip
    assert compare["tensors"] == compare["tensors_total"] == 13 and compare["defined"] == {}
    assert (compare["mismatches"], compare["max_abs_diff"], compare["first_mismatch"]) == (0, 0.0, None)


def test_run_text(npukit, digits) -> None:
    result = npukit("run", digits, "--compare")
    assert result.code == 0
    lines = result.out.splitlines()
    header = next(line for line in lines if line.startswith("node"))
    assert header.split() == [
        "node",
        "operator",
        "input",
        "output",
        "MACs",
        "cycles",
        "util",
        "%",
        "bound",
        "by",
    ]
    rows = [line for line in lines if "Conv " in line]
    assert len(rows) == 6 and all(line.split()[-1] in ("array", "vector", "dram", "fill") for line in rows)
    assert "0 mismatches in 9 252 elements of 13 of 13 quantised tensors" in lines[-1]
    assert result.err.splitlines()[0].startswith(CONFIG_LINE) and "% of 16x16 MACs" in result.err
    assert npukit("run", digits, "--quiet").err == ""


def test_run_of_inputs_and_outputs(npukit, digits, tmp_path) -> None:
    image = np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "in.npz", image=image)
    results = []
    for name in ("a.npz", "b.npz"):
        result = npukit("run", digits, "--input", tmp_path / "in.npz", "--output", tmp_path / name, "--json", "--quiet")
        assert result.code == 0 and result.json["seed"] is None
        with np.load(tmp_path / name) as file:
            assert file.files == ["logits"]
            results.append(file["logits"])
    assert results[0].shape == (1, 10) and results[0].dtype == np.float32
    assert np.array_equal(*results)


def test_outputs_of_any_name(npukit, graphs, tmp_path) -> None:
    """`file` and `allow_pickle` are words of numpy.savez, and a slash is a folder of the archive."""
    graph = graphs.Graph()
    x = graph.input((1, 3, 4, 4), name="file")
    for name in ("a/b", "allow_pickle"):
        y = graph.conv(x, 2, 1)
        graph.node("DequantizeLinear", [y.name, *graph.nodes[-1].input[1:]], name)
        graph.output_value(name)
    (tmp_path / "m.onnx").write_bytes(graph.model().SerializeToString())
    assert npukit("run", tmp_path / "m.onnx", "--output", tmp_path / "o.npz", "--compare").code == 0
    with np.load(tmp_path / "o.npz") as file:
        assert sorted(file.files) == ["a/b", "allow_pickle"]


def test_timing_only_has_the_same_cycles(npukit, digits) -> None:
    full, timing = (npukit("run", digits, "--json", "--quiet", *more).json for more in ((), ("--timing-only",)))
    assert timing["counters"] == full["counters"] and "compare" not in timing


def test_dram_latency_costs_cycles(npukit, digits) -> None:
    cycles = [
        npukit("run", digits, "--json", "--quiet", "--timing-only", "--dram-latency", n).json["cycles"]
        for n in (1, 300)
    ]
    assert cycles[0] < cycles[1]


def test_sdram(npukit, digits, tmp_path) -> None:
    """A board's memory gives half a beat of four bytes a cycle, and its times follow from its clock."""
    config = ("--config", "ulx3s-int8-8x8")
    compiled = tmp_path / "c.onnx"
    assert npukit("compile", digits, "-o", compiled, *config).code == 0
    board = ("run", compiled, "--json", "--quiet", "--timing-only")
    reference, slow, fast = (
        npukit(*board, *more).json for more in ((), ("--dram", "sdram"), ("--dram", "sdram", "--dram-megahertz", 133))
    )
    assert (reference["dram"], reference["dram_latency"]) == ("reference", 100)
    assert (slow["dram"], slow["dram_latency"]) == ("sdram", None)
    assert slow["counters"]["read_beats"] == reference["counters"]["read_beats"]
    assert reference["cycles"] < slow["cycles"] < fast["cycles"]
    mine = tmp_path / "mine.onnx"
    assert npukit("compile", digits, "-o", mine, *config, "--dram", "sdram").code == 0
    there = npukit("run", mine, *board[2:], "--dram", "sdram").json["cycles"]
    assert there != slow["cycles"] and there < 1.05 * slow["cycles"]
    board = ("run", digits, *board[2:], *config)
    assert npukit(*board, "--dram", "sdram").json["cycles"] == there
    npukit(*board, "--dram", "sdram", "--dram-latency", 5).refused("--dram-latency goes with --dram reference")
    npukit(*board, "--dram-megahertz", 5).refused("--dram-megahertz goes with --dram sdram")
    for clock in (0, -3, "nan"):
        npukit(*board, "--dram", "sdram", "--dram-megahertz", clock).refused(f"clocks up to 133 MHz, not {clock}")
    npukit(*board, "--dram", "sdram", "--dram-megahertz", 0.5).refused("too few for the SDRAM's refreshes")
    assert slow["memory"]["kind"] == "sdram" and slow["memory"]["megahertz"] == 60.0
    npukit(*board, "--dram", "sdram", "--dram-megahertz", 200).refused("clocks up to 133 MHz, not 200")
    npukit(*board, "--dram", "sdram", "--set", "bus_bytes=64").refused("4, 8 or 16 bytes, not 64")


def test_a_difference_is_exit_code_1_and_named(npukit, digits, monkeypatch, tmp_path) -> None:
    """One weight of the compiled model is another: the comparison names tensor, node and instructions."""
    path = tmp_path / "c.onnx"
    assert npukit("compile", digits, "-o", path).code == 0
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type == "EPContext")
    blob = next(attribute for attribute in node.attribute if attribute.name == "ep_cache_context")
    program = Program.from_bytes(blob.s)
    constants = bytearray(program.constants)
    constants[len(constants) // 2 : len(constants) // 2 + 512] = bytes(512)
    blob.s = Program(**{**vars(program), "constants": bytes(constants)}).to_bytes()
    del model.metadata_props[:]

    def damaged(source, shapes=None):
        return model if str(source) == str(path) else read_model(source, shapes)

    monkeypatch.setattr(run_command, "read_model", damaged)
    result = npukit("run", path, "--compare", "--reference", digits)
    assert result.code == 1
    assert "mismatches in" in result.out and "first difference: tensor " in result.out
    assert "; made by Conv " in result.out and ", instructions " in result.out
    value = npukit("run", path, "--compare", "--reference", digits, "--json", "--quiet")
    assert value.code == 1
    first = value.json["compare"]["first_mismatch"]
    assert value.json["compare"]["mismatches"] >= first["mismatches"] > 0
    low, high = first["instructions"]
    assert low <= first["instruction"] <= high
    assert isinstance(program.instructions[first["instruction"]], Vector)


# ---- the round trip


def test_round_trip(npukit, digits, tmp_path) -> None:
    """check, compile, run, disasm, asm, run: cycles and outputs stay the same to the last bit."""
    assert npukit("check", digits).code == 0
    compiled, text, program = tmp_path / "c.onnx", tmp_path / "p.asm", tmp_path / "p.npu"
    assert npukit("compile", digits, "-o", compiled).code == 0
    first = npukit("run", digits, "--json", "--quiet", "--seed", 5, "--output", tmp_path / "a.npz").json
    second = npukit("run", compiled, "--json", "--quiet", "--seed", 5, "--output", tmp_path / "b.npz").json
    for key in ("cycles", "macs", "counters", "layers", "offload", "config"):
        assert first[key] == second[key], key
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert np.array_equal(a["logits"], b["logits"])
    assert npukit("run", compiled, "--compare", "--reference", digits, "--seed", 5).code == 0

    listing = npukit("disasm", compiled)
    assert listing.code == 0 and listing.out.splitlines()[-1].startswith("END")
    assert "  # Conv block1/conv1/Conv" in listing.out
    assert npukit("disasm", compiled, "-o", text).out == ""
    assert text.read_text() == listing.out == npukit("disasm", compiled, "--json", "--quiet").json["text"]
    assert npukit("asm", text, "--like", compiled, "-o", program).code == 0
    assert npukit("disasm", program).out == listing.out
    third = npukit("run", program, "--json", "--quiet", "--seed", 5).json
    assert third["cycles"] == first["cycles"] and third["layers"] == first["layers"]


def test_program_runs_as_its_model_does(npukit, small, compiled, program, tmp_path) -> None:
    outputs = []
    for path in (small, compiled, program):
        options = ("--config", "int8-8x8") if path == small else ()
        assert npukit("run", path, "--seed", 9, "--output", tmp_path / "o.npz", *options).code == 0
        with np.load(tmp_path / "o.npz") as file:
            outputs.append(dict(file))
    assert len(outputs[0]) == 1
    for other in outputs[1:]:
        assert all(np.array_equal(other[name], value) for name, value in outputs[0].items())
    assert npukit("run", program, "--compare", "--reference", small).code == 0


def test_assembled_from_nothing(npukit, tmp_path) -> None:
    text, program = tmp_path / "p.asm", tmp_path / "p.npu"
    text.write_text("# four words in and out\nLOAD words=4 word_stride=1 signal=STORE\nSTORE dram=8 words=4 "
                    "word_stride=1 wait=LOAD\nEND\n")  # fmt: skip
    assert npukit("asm", text, "-o", program, "--set", "act_depth=64", "--dram-bytes", 4096).code == 0
    result = npukit("run", program, "--json", "--quiet")
    assert result.code == 0 and result.json["cycles"] > 100 and result.json["config"]["act_depth"] == 64
    assert npukit("asm", text, "-o", program, "--json", "--quiet").json["instructions"] == 3


def test_edited_program_of_other_length(npukit, compiled, program, tmp_path) -> None:
    """Tables that number the old instructions are left out rather than wrong."""
    text, edited = tmp_path / "p.asm", tmp_path / "p.npu"
    text.write_text("LOAD words=1 word_stride=1\n" + npukit("disasm", program).out)
    result = npukit("asm", text, "--like", compiled, "-o", edited)
    assert result.code == 0 and "layers and captures are left out" in result.err
    value = npukit("run", edited, "--json", "--quiet").json
    assert value["layers"] == [] and value["cycles"] > 0
    assert npukit("run", edited, "--quiet").code == 0


def test_subgraphs_are_chosen_by_name(npukit, graphs, tmp_path) -> None:
    graph = graphs.Graph()
    x = graph.conv(graph.input((1, 3, 4, 4)), 3, 1)
    y = graph.quantize(graph.node("LpNormalization", [graph.dequantize(x)]), 0.004, -128)
    graph.output(graph.conv(y, 2, 1))
    (tmp_path / "m.onnx").write_bytes(graph.model().SerializeToString())
    assert npukit("compile", tmp_path / "m.onnx", "-o", tmp_path / "c.onnx").code == 0
    both = npukit("disasm", tmp_path / "c.onnx")
    both.refused("has the programs npukit_0, npukit_1: choose one with --subgraph")
    npukit("disasm", tmp_path / "c.onnx", "--subgraph", "x").refused("npukit_0, npukit_1, not 'x'")
    texts = [npukit("disasm", tmp_path / "c.onnx", "--subgraph", f"npukit_{n}") for n in (0, 1)]
    assert texts[0].code == texts[1].code == 0 and texts[0].out != texts[1].out
    (tmp_path / "p.asm").write_text(texts[1].out)
    arguments = ("asm", tmp_path / "p.asm", "--like", tmp_path / "c.onnx", "-o", tmp_path / "p.npu")
    assert npukit(*arguments, "--subgraph", "npukit_1").code == 0
    assert npukit("disasm", tmp_path / "p.npu").out == texts[1].out
    value = npukit("run", tmp_path / "m.onnx", "--json", "--quiet", "--compare")
    assert value.code == 0 and len(value.json["layers"]) == 2


def test_json_stands_alone_on_stdout(npukit, small, compiled, program, tmp_path) -> None:
    for arguments in (
        ("zoo", "--list"), ("configs",), ("check", small), ("compile", small, "-o", tmp_path / "o.onnx"),
        ("run", small, "--compare"), ("run", program), ("disasm", compiled, "-o", tmp_path / "o.asm"),
    ):  # fmt: skip
        result = npukit(*arguments, "--json")
        assert result.code == 0 and result.json["schema"] == 1, arguments
        assert json.loads(result.out)
        assert npukit(*arguments, "--json", "--quiet").err == ""
