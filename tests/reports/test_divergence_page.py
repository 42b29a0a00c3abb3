"""The page of a comparison: what differs, where, and by which instructions."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from npukit.isa.assembly import format_instruction
from npukit.isa.config import PRESETS

from npukit import zoo
from npukit.compare import Oracle, compare
from npukit.compare_floats import compare_floats
from npukit.divergence import made_by
from npukit.reports.divergence_page import divergence_page
from npukit.session import Session

CONFIG = PRESETS["int8-4x4"]


@pytest.fixture(scope="module")
def model(graphs):
    graph = graphs.Graph(seed=2)
    y = graph.conv(graph.input((1, 5, 24, 24)), 9, pads=[1] * 4)
    y = graph.maxpool(y, 2, strides=[2, 2])
    graph.output(graph.gemm(graph.flatten(y), 7))
    return graph.model()


def _run(model, graphs):
    session = Session(model, CONFIG, capture=True)
    inputs = graphs.inputs_of(model)
    return session, inputs, session.run(inputs), Oracle(model)


def test_a_whole_tile(model, graphs, open_page: Callable) -> None:
    """All that one instruction wrote is wrong, and an element of a later tensor as well."""
    session, inputs, outputs, oracle = _run(model, graphs)
    (program,) = session.programs.values()
    name, later = oracle.tensors[1], oracle.tensors[2]
    captures = [one for one in program.captures if one.tensor == program.captured[name].source]
    assert len(captures) > 1, "the layer must have several tiles"
    wrong_by = captures[1].instruction
    right = session.tensors[name]
    # each element by itself: which instruction wrote it?
    wrong = right.copy()
    for index in np.ndindex(right.shape):
        one = right.copy()
        one[index] ^= 1
        session.tensors[name] = one
        first = compare(session, oracle, inputs, outputs).first_mismatch
        assert first is not None
        if first["instruction"] == wrong_by:
            wrong[index] ^= 3
    session.tensors[name] = wrong
    session.tensors[later] = session.tensors[later].copy()
    session.tensors[later].flat[0] ^= 1
    found = compare(session, oracle, inputs, outputs)
    assert found.divergence is not None and found.first_mismatch is not None
    made = made_by(session.programs, found.divergence, found.first_mismatch["instruction"])
    assert made is not None and made.tile is not None and made.instruction == wrong_by
    differing = found.divergence.unequal
    assert np.array_equal(made.tile, differing) and differing.any()

    opened = open_page(divergence_page("a model", found, session.programs))
    assert opened.complaints == [] and opened.requests == []
    text = opened.page.locator("body").inner_text()
    first = found.first_mismatch
    assert f"Instruction {wrong_by} wrote that element" in text and "The cause lies on the accelerator" in text
    assert f"{first['op']} {first['node']}" in text
    marked = opened.page.locator("#instructions tbody tr").filter(has_text="wrote the element")
    assert marked.count() == 1 and format_instruction(program.instructions[wrong_by]) in marked.inner_text()
    counts = opened.page.evaluate(
        "[...document.getElementById('tensors').tBodies[0].rows].map((row) => [...row.cells].map((c) => c.textContent))"
    )
    apart = {tensor: int(count.replace(" ", "")) for tensor, _, count in counts if count != "0"}
    assert apart == {name: int(differing.sum()), later: 1}
    assert json.loads(opened.page.locator("#data").text_content() or "") == json.loads(json.dumps(found.to_json()))
    assert opened.page.locator(".chart[data-drawn] canvas").count() == 1


def test_the_host(model, graphs, open_page: Callable) -> None:
    session, inputs, outputs, oracle = _run(model, graphs)
    name = oracle.tensors[0]  # the quantiser's, at the accelerator's edge
    session.tensors[name] = session.tensors[name].copy()
    session.tensors[name].flat[7] ^= 1
    opened = open_page(divergence_page("a model", compare(session, oracle, inputs, outputs), session.programs))
    assert opened.complaints == []
    text = opened.page.locator("body").inner_text()
    assert "on the host" in text and "The cause lies on the accelerator" not in text
    assert opened.page.locator("#instructions").count() == 0


def test_bf16(open_page: Callable) -> None:
    with Session(zoo.load("digits", "fp32"), "bf16-4x4", capture=True) as session:
        inputs = {"image": np.random.default_rng(1).random((1, 1, 8, 8), np.float32)}
        outputs = session.run(inputs)
        name = list(session.tensors)[2]
        session.tensors[name] = session.tensors[name].copy()
        session.tensors[name].flat[5] += 1
        found = compare_floats(session, inputs, outputs)
        assert found.mismatches and found.divergence is not None and found.divergence.tensor == name
        opened = open_page(divergence_page("digits", found, session.programs))
        assert opened.complaints == [] and name in opened.page.locator("body").inner_text()


def test_command(npukit_digits: Path, tmp_path: Path, open_page: Callable) -> None:
    """Without a difference the page says so, and a page of an earlier run does not stay."""
    from npukit.cli import main

    path = tmp_path / "compare.html"
    path.write_text("an earlier one")
    assert main(["run", str(npukit_digits), "--compare", "--compare-report", str(path), "--quiet"]) == 0
    opened = open_page(path.read_text())
    assert opened.complaints == [] and "Nothing differs." in opened.page.locator("body").inner_text()
    assert main(["run", str(npukit_digits), "--compare-report", str(path)]) == 2


@pytest.fixture
def npukit_digits(tmp_path: Path) -> Path:
    path = tmp_path / "digits.onnx"
    path.write_bytes(zoo.load("digits"))
    return path
