"""`npukit.quantize` of modules: int8 modules on the host and on the machine, and files."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from npukit.driver.host import open_session, run_session  # noqa: E402
from torch import nn  # noqa: E402

import npukit  # noqa: E402
from npukit import zoo  # noqa: E402
from npukit.errors import UsageError  # noqa: E402
from npukit.pytorch.quantised import QuantisedModule  # noqa: E402
from npukit.quantisation import QuantiserOptions  # noqa: E402

CONFIG = "int8-8x8"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_pytorch.py"


class TwoHeads(nn.Module):
    """Two inputs, and a mapping of two results."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.one, self.two = nn.Linear(8, 5), nn.Linear(8, 3)

    def forward(self, image, *, scale):
        y = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        return {"classes": self.one(y), "box": self.two(y * scale)}


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(3)
    return TwoHeads().eval()


def sample():
    return {"image": torch.randn(1, 3, 9, 9), "scale": torch.rand(1, 8)}


torch.manual_seed(4)
SAMPLES = [sample() for _ in range(24)]


@pytest.fixture(scope="module")
def quantised(module) -> QuantisedModule:
    # as the module is called: the first argument by position, the other one by name
    return npukit.quantize(module, iter(SAMPLES), most=20)


def test_an_int8_module_is_called_like_its_module(module, quantised):
    call = SAMPLES[0]  # whose numbers are within the ranges that were measured
    with torch.no_grad():
        got = quantised(call["image"], scale=call["scale"])
        want = module(call["image"], scale=call["scale"])
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name].shape == value.shape
        assert float((got[name] - value).abs().max()) < 0.1 * float(value.abs().max())


def test_its_losses_are_measured(quantised):
    found = quantised.quantised
    assert (found.samples, found.measured) == (20, 16)
    assert {one.tensor for one in found.outputs} == {"classes", "box"}
    assert all(one.sqnr > 15 for one in found.outputs)


def test_on_the_machine_it_has_equal_results(quantised):
    machine = npukit.compile(quantised, config=CONFIG)
    for seed in range(5):
        torch.manual_seed(seed)
        call = sample()
        one, other = (run(call["image"], scale=call["scale"]) for run in (quantised, machine))
        assert all(torch.equal(one[name], other[name]) for name in one)
    report = npukit.report(machine)
    assert report.offload.macs == report.offload.macs_total > 0 and report.cycles > 0


def test_its_file_is_an_onnx_model(quantised, tmp_path):
    path = tmp_path / "two.onnx"
    quantised.save(path)
    call = sample()
    feeds = {name: value.numpy() for name, value in call.items()}
    found = run_session(open_session(onnx.load(path)), ["classes", "box"], feeds)
    got = quantised(call["image"], scale=call["scale"])
    assert all(np.array_equal(found[name], got[name].numpy()) for name in found)


def test_options(module):
    torch.manual_seed(5)
    made = npukit.quantize(module, [sample() for _ in range(4)], options=QuantiserOptions(format="qoperator"))
    assert any(node.op_type.startswith("QLinear") for node in made.quantised.model.graph.node)


def test_digits_keep_their_accuracy():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'npukit[demo]'")
    spec = importlib.util.spec_from_file_location("digits_pytorch", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    images, labels, _ = zoo.digits_heldout()
    batch, truth = torch.from_numpy(np.concatenate(images[:120])), torch.from_numpy(np.asarray(labels[:120]))
    network = example.trained()
    machine = npukit.compile(npukit.quantize(network, [image[None] for image in batch[:40]]), config="int8-16x16")
    with torch.no_grad():
        eager = network(batch).argmax(1)
        int8 = torch.cat([machine(image[None]) for image in batch]).argmax(1)
    assert int((eager == truth).sum()) - int((int8 == truth).sum()) <= 2


@pytest.mark.parametrize(
    "calibration, reason",
    [
        ([], "no samples to calibrate with"),
        ([3], "example_inputs must be a tensor"),
        ([{"image": torch.zeros(1, 3, 9, 9), "scale": torch.zeros(1, 8)}, torch.zeros(1)], "missing a required"),
    ],
)
def test_calibration_that_is_refused(module, calibration, reason):
    with pytest.raises(UsageError, match=reason):
        npukit.quantize(module, calibration)


def test_modules_and_calls_that_are_refused(module, quantised):
    with pytest.raises(UsageError, match="TwoHeads is in training mode: call eval"):
        npukit.quantize(TwoHeads().train(), [sample()])
    with pytest.raises(UsageError, match="missing a required .*argument: 'scale'"):
        quantised(torch.zeros(1, 3, 9, 9))
    with pytest.raises(UsageError, match="leave example_inputs out"):
        npukit.compile(quantised, torch.zeros(1))
    machine = npukit.compile(quantised, config=CONFIG)
    with pytest.raises(Exception, match="must have the shape"):
        machine(torch.zeros(2, 3, 9, 9), scale=torch.zeros(1, 8))
