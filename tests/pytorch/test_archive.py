"""Files of `torch.export.save`: good ones give the module's results, hostile and damaged ones one sentence."""

import importlib
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

sys.path.insert(0, str(Path(__file__).parent.parent))  # as when it runs as a script

from fuzzing.case import Outcome  # noqa: E402
from fuzzing.watch import run_kind  # noqa: E402
from npukit.compiler.errors import ModelError  # noqa: E402
from npukit.compiler.frontends.pytorch.archive import onnx_model, read_program  # noqa: E402
from npukit.driver.host import open_session, run_session  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from .torch_files import ATTACKS, Attack, Parts, Small, apart, saved, together  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def assert_equal(
    module: Any, data: bytes, arguments: tuple, options: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None, atol: float = 1e-5,
) -> list[str]:  # fmt: skip
    """ONNX Runtime gives what the module gives; the names of the outputs."""
    model = onnx_model(data, "model.pt2", shapes or {})
    with torch.no_grad():
        wanted = [one for one in pytree.tree_leaves(module.eval()(*arguments, **(options or {}))) if one is not None]
    given = pytree.tree_leaves((arguments, dict(options or {})))
    names = [value.name for value in model.graph.input]
    inputs = {name: one.float().numpy() if one.dtype == torch.bfloat16 else one.numpy()
              for name, one in zip(names, given, strict=True)}  # fmt: skip
    outputs = [value.name for value in model.graph.output]
    found = run_session(open_session(model), outputs, inputs)
    assert len(wanted) == len(outputs)
    for name, want in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], want.float().numpy(), atol=atol, rtol=1e-5, err_msg=name)
    return outputs


# ---- good files


def test_named_arguments_buffers_and_constants() -> None:
    given = (torch.randn(2, 4),), {"scale": torch.randn(3)}
    module = Small()
    assert assert_equal(module, saved(module, *given), *given) == ["y", "rest_0", "rest_1"]


@pytest.mark.parametrize("factor", [1, 2])
def test_open_shapes_that_are_fixed(factor: int) -> None:
    class Two(torch.nn.Module):
        def forward(self, x, y):
            return x.mean(-1) * x.shape[0] ** 0.5, (y * y.shape[0]).flatten(1)

    batch = Dim("batch", max=64)
    data = saved(
        Two(), (torch.randn(4, 3), torch.randn(4 * factor, 3, 2)),
        dynamic_shapes={"x": {0: batch}, "y": {0: factor * batch}},
    )  # fmt: skip
    with pytest.raises(ModelError, match=r"model\.pt2: input x has the shape .*as in --input-shape x=1,3"):
        onnx_model(data, "model.pt2", {})
    shapes = {"x": (5, 3), "y": (5 * factor, 3, 2)}
    given = tuple(torch.randn(*shape) for shape in shapes.values())
    assert_equal(Two(), data, given, shapes=shapes)


def test_open_images_between_convolutions() -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.MaxPool2d(2), torch.nn.Conv2d(4, 4, 3, 2, 1), torch.nn.ReLU()
    )
    size = {2: Dim("h", min=16, max=512), 3: Dim("w", min=16, max=512)}
    data = saved(module, (torch.randn(1, 3, 40, 48),), dynamic_shapes=(size,))
    assert_equal(module, data, (torch.randn(1, 3, 32, 64),), shapes={"input": (1, 3, 32, 64)})


def test_constants_in_code_with_open_shapes() -> None:
    given = (torch.randn(2, 4),), {"scale": torch.randn(3)}
    data = saved(Small(), *given, dynamic_shapes={"x": {0: Dim("batch")}, "scale": None})
    assert len(onnx_model(data, "model.pt2", {"x": (2, 4)}).graph.output) == 3


def test_nested_arguments() -> None:
    class Nested(torch.nn.Module):
        def forward(self, first, rest, ids):
            return {"sum": first["a"] + rest[0] * rest[1][0], "ids": [ids + 1, first["b"]]}

    arguments = ({"a": torch.randn(3), "b": torch.randn(2)}, (torch.randn(3), [torch.randn(3)]), torch.arange(5))
    assert assert_equal(Nested(), saved(Nested(), arguments), arguments) == ["sum", "ids_0", "ids_1"]


def test_tied_weights() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)
            self.out.weight = self.words.weight
            self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8)] * 12)

        def forward(self, ids):
            value = self.words(ids)
            for layer in self.layers:
                value = layer(value)
            return self.out(value)

    module, ids = Tied(), torch.randint(0, 20, (2, 5))
    assert_equal(module, saved(module, (ids,)), (ids,))


def test_bfloat16() -> None:
    module, value = torch.nn.Linear(8, 4).bfloat16(), torch.randn(2, 8).bfloat16()
    assert_equal(module, saved(module, (value,)), (value,), atol=0.05)


def test_of_a_gpu() -> None:
    """Devices are those of this machine, wherever a file was made."""
    given = (torch.randn(2, 4),), {"scale": torch.randn(3)}
    module = Small()
    parts = apart(saved(module, *given))
    for name in ("model", "weights", "constants"):
        text = json.dumps(getattr(parts, name))
        setattr(parts, name, json.loads(text.replace('"type": "cpu", "index": null', '"type": "cuda", "index": 0')))
    assert "cuda" in json.dumps(parts.model) and "cuda" in json.dumps(parts.weights)
    assert_equal(module, together(parts), *given)


def test_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make torch")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    module, ids = transformers.BertModel(config), torch.randint(0, 50, (1, 6))
    names = assert_equal(module, saved(module, (ids,)), (ids,))
    assert names == ["last_hidden_state", "pooler_output"]


def test_quantized_operators_are_known_when_they_are_read() -> None:
    class Fake(torch.nn.Module):
        def forward(self, x):
            call = torch.ops.quantized_decomposed
            whole = call.quantize_per_tensor.default(x, 0.1, 3, -128, 127, torch.int8)
            return call.dequantize_per_tensor.default(whole, 0.1, 3, -128, 127, torch.int8)

    importlib.import_module("torch.ao.quantization.fx._decomposed")
    value = torch.randn(4)
    assert_equal(Fake(), saved(Fake(), (value,)), (value,))


# ---- hostile files


@pytest.fixture(scope="module")
def small() -> bytes:
    """With a size that is open, so that what is read is also called."""
    given = (torch.randn(2, 4),), {"scale": torch.randn(3)}
    return saved(Small(), *given, dynamic_shapes={"x": {0: Dim("batch")}, "scale": None})


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_in_a_file_runs(attack: Attack, small: bytes, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    parts = apart(small)
    attack.change(parts, tmp_path / "touched")
    data = together(parts)
    if attack.message is None:
        onnx_model(data, "model.pt2", {"x": (2, 4)})
    else:
        with pytest.raises(ModelError, match=attack.message) as caught:
            onnx_model(data, "model.pt2", {"x": (2, 4)})
        assert "\n" not in str(caught.value) and str(caught.value).startswith("model.pt2")
    assert not (tmp_path / "touched").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        "Add(Mul(Integer(2), Symbol('s0', integer=True, positive=True)), Integer(-1))",
        "FloorDiv(Add(Symbol('s0'), Rational(1, 2)), Integer(2))",
        "FloatPow(ToFloat(Symbol('s0')), Float('0.5', precision=53))",
        "Where(StrictLessThan(Symbol('s0'), Integer(3)), Symbol('u1'), Max(Symbol('s0'), Integer(1)))",
        "And(Equality(Symbol('s0'), Integer(2)), true)",
    ],
)
def test_formulas_of_sizes_as_pytorch_writes_them(text: str) -> None:
    from npukit.compiler.frontends.pytorch.archive_check import _size

    assert _size(text, "it") == text
    for bad in (
        text.replace("Symbol", "Function", 1),
        text.replace("Integer(", "Integer(1<<", 1),
        f"{text}.x",
        f"[{text}]",
    ):
        if bad != text:
            with pytest.raises(ModelError, match="has to be a short formula of sizes"):
                _size(bad, "it")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is damaged, or no file of torch.export.save"),
        (b"PK\x03\x04" + bytes(100), "is damaged, or no file of torch.export.save: BadZipFile"),
    ],
)
def test_no_archive(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_program(data)


@pytest.mark.parametrize("gone", ["archive_version", ".data/version"])
def test_what_is_missing_is_named(gone: str, small: bytes) -> None:
    parts: Parts = apart(small)
    del parts.entries[gone]
    with pytest.raises(ModelError, match=f"it has no {gone}: save it with torch.export.save of a newer PyTorch"):
        read_program(together(parts))


# ---- random changes


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    """In processes that are watched: `python tests/fuzz.py --only torch` makes more of them."""
    for seed in (1, secrets.randbelow(1_000_000)):
        print(f"repeat with: python tests/fuzz.py --only torch --seed {seed} --cases 100")
        report = run_kind("torch", seed, 100, tmp_path, workers=1)
        assert report.good and report.cases == 100, report.findings
        assert report.counts[Outcome.ACCEPTED] and report.counts[Outcome.REFUSED] > 20
