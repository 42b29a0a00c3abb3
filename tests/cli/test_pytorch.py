"""Programs of `torch.export` on the command line."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")


def saved(folder, module, *arguments, **options):
    path = folder / "model.pt2"
    torch.export.save(torch.export.export(module.eval(), arguments, **options), path)
    return path


def layers():
    torch.manual_seed(2)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 4)
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("pt2"), layers(), torch.randn(1, 3, 8, 8))


def test_check_and_run(npukit, path):
    assert "on the accelerator: 5 of 5 nodes" in npukit("check", path, "--config", "bf16-4x4").out
    result = npukit("run", path, "--config", "bf16-4x4", "--compare", "--fallback", "none")
    assert result.code == 0 and "0 mismatches" in result.out


def test_values_are_the_modules(npukit, path, tmp_path):
    torch.manual_seed(3)
    x = torch.randn(1, 3, 8, 8)
    np.savez(tmp_path / "in.npz", input=x.numpy())
    out = tmp_path / "out.npz"
    assert npukit("run", path, "--config", "bf16-8x8", "--input", tmp_path / "in.npz", "--output", out).code == 0
    with torch.no_grad():
        want = layers().eval()(x).numpy()
    got = np.load(out)["output_0"]
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_compile_profile_explain_quantize(npukit, path, tmp_path):
    made = tmp_path / "made.npu.onnx"
    assert npukit("compile", path, "--config", "bf16-4x4", "-o", made).code == 0
    assert npukit("run", made, "--compare", "--reference", path).code == 2  # bf16 wants the model itself
    assert npukit("run", made, "--quiet").code == 0
    assert npukit("profile", path, "--config", "bf16-4x4", "-o", tmp_path / "profile").code == 0
    assert "bound" in npukit("explain", path, "conv2d", "--config", "bf16-4x4").out
    int8 = tmp_path / "int8.onnx"
    assert npukit("quantize", path, "-o", int8).code == 0
    assert npukit("run", int8, "--config", "int8-4x4", "--compare", "--fallback", "none").code == 0


def test_open_shapes(npukit, tmp_path):
    batch = torch.export.Dim("batch", min=1, max=64)
    path = saved(tmp_path, layers(), torch.randn(2, 3, 8, 8), dynamic_shapes=({0: batch},))
    said = npukit("check", path, "--config", "bf16-4x4")
    assert said.code == 2 and "--input-shape input=1,3,8,8" in said.err
    for size in (1, 3):
        options = ("--config", "bf16-4x4", "--input-shape", f"input={size},3,8,8")
        assert npukit("run", path, *options, "--compare").code == 0
    said = npukit("check", path, "--config", "bf16-4x4", "--input-shape", "input=1,3,9,8")
    assert said.code == 2 and "has the fixed dimension 8, not 9" in said.err
    assert "has the inputs input, not 'x'" in npukit("check", path, "--input-shape", "x=1").err


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).real


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


def test_what_is_refused(npukit, tmp_path):
    said = npukit("check", saved(tmp_path, Unknown(), torch.randn(2, 4)))
    assert said.code == 2 and "a module that has it runs with torch.compile" in said.err
    said = npukit("check", saved(tmp_path, Counting(), torch.randn(2, 4)))
    assert said.code == 2 and "changes calls when it runs" in said.err and "call eval()" in said.err
    other = tmp_path / "other.pt2"
    other.write_bytes(b"PK\x03\x04 and nothing else")
    said = npukit("check", other)
    assert said.code == 2 and "is damaged, or no file of torch.export.save" in said.err
