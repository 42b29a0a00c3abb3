"""The notebooks: the first one is run, and draws its rooflines."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples" / "notebooks"


@pytest.fixture(scope="module")
def run():
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_first_one_runs(run) -> None:
    notebook = run.executed(FOLDER / "first_model.py")
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.data for output in outputs if output.output_type in ("display_data", "execute_result")]
    charts = [one["image/svg+xml"] for one in shown if "image/svg+xml" in one]
    assert len(charts) == 2
    for chart, layer in zip(charts, ("block1/conv1/Conv", "conv_5"), strict=True):
        assert layer in chart and "MACs a byte of the busier DRAM channel" in chart
    assert any("<table" in one.get("text/html", "") for one in shown)
    text = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    answers, labels = (line.split("[")[1] for line in text.splitlines()[:2])
    assert sum(a == b for a, b in zip(answers.split(","), labels.split(","), strict=True)) >= 19
