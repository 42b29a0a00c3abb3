"""Files: written whole or not at all, and read only when they are what was written."""

import os

import onnx
import pytest
from npukit.compiler.pipeline import compile_model
from npukit.driver.executor import ArtifactError, programs_of
from npukit.isa.config import PRESETS

from npukit import zoo
from npukit.errors import UsageError
from npukit.files import OutputError
from npukit.npufile import check_writable, read_model, write_artifact, write_bytes


@pytest.fixture(scope="module")
def artifact() -> onnx.ModelProto:
    made = compile_model(zoo.load("digits"), PRESETS["int8-8x8"]).artifact
    assert made is not None
    return made


def test_write(tmp_path) -> None:
    path = tmp_path / "f"
    write_bytes(path, b"first")
    write_bytes(str(path), b"second")
    assert path.read_bytes() == b"second" and os.listdir(tmp_path) == ["f"]


def test_what_cannot_be_written(tmp_path) -> None:
    for path, message in (
        (tmp_path, "it is a folder"),
        (tmp_path / "none" / "f", f"the folder {tmp_path / 'none'} does not exist"),
    ):
        for action in (check_writable, lambda path: write_bytes(path, b"")):
            with pytest.raises(UsageError, match=f"^cannot write {path}: {message}$"):
                action(path)


def test_a_folder_without_permission(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root, permissions do not hold
    with pytest.raises(UsageError, match=f"no permission to write into the folder {tmp_path}$"):
        check_writable(tmp_path / "f")


def test_a_disk_that_is_full(tmp_path, monkeypatch) -> None:
    """The file that was there stays, and nothing is left beside it."""
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="cannot write .*: No space left on device"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["f"]


def test_artifacts(artifact, tmp_path) -> None:
    path = tmp_path / "a.onnx"
    write_artifact(path, artifact)
    model = read_model(path)
    assert read_model(path.read_bytes()) == model
    (program,) = programs_of(model).values()
    (tmp_path / "p.npu").write_bytes(program.to_bytes())
    wrapped = read_model(tmp_path / "p.npu")
    assert list(programs_of(wrapped).values()) == [program]
    assert read_model(program.to_bytes()) == wrapped
    onnx.checker.check_model(wrapped)
    write_artifact(path, artifact)
    assert read_model(path) == model, "writing again adds nothing"


@pytest.mark.parametrize("field", ["ir_version", "producer_name", "opset", "metadata", "graph", "doc_string"])
def test_the_digest_covers_everything(artifact, tmp_path, field) -> None:
    path = tmp_path / "a.onnx"
    write_artifact(path, artifact)
    model = onnx.load(path)
    if field == "ir_version":
        model.ir_version -= 1
    elif field == "opset":
        model.opset_import[0].version -= 1
    elif field == "metadata":
        model.metadata_props.add(key="more", value="")
    elif field == "graph":
        model.graph.node[0].name += "x"
    else:
        setattr(model, field, "another")
    with pytest.raises(ArtifactError, match="the compiled model's digest does not match"):
        read_model(model.SerializeToString())
    with pytest.raises(ArtifactError, match="the compiled model's digest does not match"):
        read_model(model)


def test_models_in_memory_need_no_digest(artifact) -> None:
    assert read_model(artifact) is artifact
    with pytest.raises(ArtifactError, match="the compiled model has no digest: the file is cut short or was edited"):
        read_model(artifact.SerializeToString())
