"""Reading and writing model files: ONNX, compiled ONNX, and bare programs."""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import helper

from npukit.compiler.frontends.onnx.artifact import TENSOR_TYPES
from npukit.compiler.frontends.onnx.importer import load_model
from npukit.driver.executor import ArtifactError, programs_of
from npukit.errors import UsageError
from npukit.files import is_stream, write_file
from npukit.isa.program import MAGIC, Program

__all__ = ["check_apart", "check_folder", "check_writable", "read_model", "write_artifact", "write_bytes"]

_DIGEST = "npukit.digest"


def check_writable(path: str | Path) -> None:
    """Refuse before long work what could not be written after it.

    Raises:
        UsageError: when the folder does not exist or cannot be written, or the path is a folder.
    """
    path = Path(path)
    try:
        there = _exists(path)
        if there and path.is_dir():
            raise UsageError(f"cannot write {path}: it is a folder")
        if there and not os.access(path, os.W_OK):
            raise UsageError(f"cannot write {path}: no permission to change it")
        if is_stream(path):
            return
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: no permission to write into the folder {folder}")


def _exists(path: Path) -> bool:
    """Whether something is there, also behind links; `Path.exists` says no to links that go in a circle.

    Raises:
        OSError: when that cannot be found out.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_apart(outputs: Mapping[str, str | Path], inputs: Mapping[str, str | Path]) -> None:
    """Refuse an output that would replace an input or another output. Pipes and devices hold nothing that is lost.

    Args:
        outputs: paths by what the user calls them, an option as a rule.
        inputs: the same of what is read; what is not there does not count.

    Raises:
        UsageError: when two are one file; it names both.
    """
    written: list[tuple[str, str | Path]] = []
    for name, path in outputs.items():
        for other, place in inputs.items():
            if os.path.exists(place) and _is_same(path, place):
                raise UsageError(
                    f"{name} {path} is the same file as {other} {place}, which would be lost: name another file to "
                    "write"
                )
        for other, place in written:
            if _is_same(path, place):
                raise UsageError(f"{other} {place} and {name} {path} are the same file: name two files to write")
        written.append((name, path))


def _is_same(one: str | Path, other: str | Path) -> bool:
    """Whether two paths are one file, or lead to where one would be made."""
    try:
        found, second = os.stat(one), os.stat(other)
    except OSError:
        return not (os.path.exists(one) or os.path.exists(other)) and os.path.realpath(one) == os.path.realpath(other)
    return stat.S_ISREG(found.st_mode) and os.path.samestat(found, second)


def check_folder(path: str | Path) -> None:
    """The same of a folder to write files into, which need not exist.

    Raises:
        UsageError: when it is no folder, cannot be made, or cannot be written.
    """
    path = Path(path)
    try:
        if _exists(path) and not path.is_dir():
            raise UsageError(f"cannot write into {path}: it is not a folder")
        folder = next(one for one in (path, *path.absolute().parents) if _exists(one))
    except OSError as error:
        raise UsageError(f"cannot write into {path}: {error.strerror}") from None
    if not folder.is_dir():
        raise UsageError(f"cannot make the folder {path}: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write into {path}: no permission to write into the folder {folder}")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all; a pipe or a device through itself.

    Raises:
        UsageError: when the folder does not exist or cannot be written.
        OutputError: when the disk, or whatever else it is, does not take it.
    """
    check_writable(path)
    write_file(path, data)


def _split_digest(model: onnx.ModelProto) -> tuple[str | None, str]:
    """The digest that a model states, and the digest of everything else in it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.metadata_props[:]
    stated = None
    for entry in model.metadata_props:
        if entry.key == _DIGEST and stated is None:
            stated = entry.value
        else:
            copy.metadata_props.append(entry)
    return stated, hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()


def write_artifact(path: str | Path, model: onnx.ModelProto) -> None:
    """Write a compiled model with a digest over all of it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.metadata_props.add(key=_DIGEST, value=_split_digest(model)[1])
    write_bytes(path, copy.SerializeToString())


def read_model(
    source: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> onnx.ModelProto:
    """A model from a file of any kind, from bytes, or a proto as it is.

    Args:
        source: a model, a compiled one, or a program.
        shapes: of inputs that a program of torch.export leaves open.

    Raises:
        ModelError: not readable as ONNX.
        ArtifactError: a compiled model whose digest does not match, or a file of one without a digest.
        ProgramError: a damaged program.
    """
    if not isinstance(source, onnx.ModelProto):
        head = source[: len(MAGIC)] if isinstance(source, bytes) else _head(source)
        if head == MAGIC:
            data = source if isinstance(source, bytes) else Path(source).read_bytes()
            return _wrap(Program.from_bytes(data))
    model = load_model(source, shapes)
    stated, digest = _split_digest(model)
    if stated is not None and stated != digest:
        raise ArtifactError("the compiled model's digest does not match: the file is damaged or was edited")
    if stated is None and not isinstance(source, onnx.ModelProto) and programs_of(model):
        raise ArtifactError("the compiled model has no digest: the file is cut short or was edited")
    return model


def _head(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC))
    except OSError:
        return b""  # load_model says what is wrong


def _wrap(program: Program) -> onnx.ModelProto:
    """A bare program as a compiled model of one node."""

    def values(role: str) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(tensor.name, TENSOR_TYPES[tensor.dtype], tensor.shape)
            for tensor in program.tensors
            if tensor.role == role
        ]

    inputs, outputs = values("input"), values("output")
    node = helper.make_node(
        "EPContext",
        [value.name for value in inputs],
        [value.name for value in outputs],
        name=program.name or "npukit_0",
        domain="com.microsoft",
        main_context=1,
        embed_mode=1,
        ep_cache_context=program.to_bytes(),
        source="npukit",
    )
    graph = helper.make_graph([node], program.name or "program", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="npukit")
