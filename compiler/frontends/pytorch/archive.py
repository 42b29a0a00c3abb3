"""Files of `torch.export.save`, read without running anything that is in them.

`torch.export.load` unpickles sample inputs, tensors and objects of classes that a file names, evaluates sizes as Python
expressions, and writes names into Python source: whoever made the file may have it run anything. So a file is looked at
first. Its graph is JSON and its weights are plain bytes; of these a new archive is made, with each field that is known
and has the form that PyTorch gives it (`archive_check`), without sample inputs, stack traces and whatever else is not
needed, and that is what PyTorch loads. What can only be had by unpickling is refused.
"""

import contextlib
import importlib
import io
import json
import logging
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import onnx
import torch
from npukit.compiler.errors import CompileError, ModelError
from npukit.compiler.frontends.pytorch.archive_check import ELEMENT_BYTES, clean_config, clean_program
from npukit.compiler.frontends.pytorch.archive_results import check_results
from npukit.compiler.frontends.pytorch.program import translate_program, with_static_shapes
from npukit.compiler.frontends.pytorch.tracing import tracing
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import load_pt2

__all__ = ["onnx_model", "read_program"]

_MODEL = "models/model.json"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_SAMPLES = "data/sample_inputs/model.pt"
_FIXED = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
"""Entries, and what has to stand in them."""
_VERSION = ".data/version"
_NEEDED = ("archive_format", "archive_version", _VERSION, _MODEL, *_CONFIGS)
_DATA = re.compile(r"data/(weights/weight|constants/tensor)_\d{1,9}")
_BOOL = 12
"""The `ScalarType` of which not every byte is one."""
_SHARED, _SMALL = 16, 1 << 28
"""Bytes of all tensors: so many times those of the file, as where several share them, and so many in any case."""
_DAMAGED = (
    zipfile.BadZipFile, ValueError, LookupError, TypeError, RecursionError, EOFError, RuntimeError, OSError,
    AttributeError, OverflowError, MemoryError, struct.error, zlib.error,
)  # fmt: skip
"""What is raised of a zip archive or JSON in which something else stands than should."""


def onnx_model(data: bytes, name: str, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """The program of a file as an ONNX model.

    Args:
        data: of the file.
        name: by which errors call it.
        shapes: of inputs that the program leaves open.

    Raises:
        ModelError: it is damaged, wants to be unpickled, or has an operator without an ONNX form.
    """
    program = read_program(data, name)
    try:
        with _silent():
            return translate_program(with_static_shapes(program, shapes)).model
    except CompileError as error:
        raise ModelError(f"{name}: {_joined(str(error))}") from None
    except Exception as error:  # many classes, of a program that PyTorch itself would not have made
        raise ModelError(f"{name} is damaged: its program cannot be taken apart: {_line(error)}") from None


def read_program(data: bytes, name: str = "the model") -> ExportedProgram:
    """The program of a file.

    Args:
        data: of the file.
        name: by which errors call it.

    Raises:
        ModelError: it is damaged, of another version, or wants to be unpickled.
    """
    try:
        clean = _rewritten(data)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    except _DAMAGED as error:
        raise ModelError(f"{name} is damaged, or no file of torch.export.save: {_line(error)}") from None
    try:
        with _silent():
            # as torch.export.load, which says nothing of what it cannot load
            program = load_pt2(io.BytesIO(clean)).exported_programs["model"]
            check_results(program)
            return program
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    except Exception as error:  # many classes, of what is damaged or of another version of PyTorch
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error  # without PyTorch's traceback
        raise ModelError(f"{name}: PyTorch {torch.__version__} does not load it: {_line(cause)}") from None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what PyTorch logs of a file before it raises an error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with tracing():
            yield
    finally:
        logging.disable(before)


def _line(error: Exception) -> str:
    return f"{type(error).__name__} {_joined(str(error))}"[:300].strip()


def _joined(text: str) -> str:
    return " ".join(text.split())


def _rewritten(data: bytes) -> bytes:
    """The same archive with what is needed alone."""
    files = _files(data)
    document = clean_program(json.loads(files[_MODEL]))
    if any("quantized_decomposed" in node["target"] for node in document["graph_module"]["graph"]["nodes"]):
        importlib.import_module("torch.ao.quantization.fx._decomposed")  # which registers its operators
    new = {**_FIXED, _VERSION: files[_VERSION], _MODEL: json.dumps(document).encode(), _SAMPLES: b""}
    tensors: dict[str, dict[str, Any]] = {}
    for config in _CONFIGS:
        payload = clean_config(json.loads(files[config]), config.rpartition("/")[2])
        tensors |= {name: entry["tensor_meta"] for name, entry in payload["config"].items()}
        new |= _payloads(payload, files, config)
        new[config] = json.dumps(payload).encode()
    _check_sharing(tensors, new)
    _check_held(document["graph_module"], tensors)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for path, content in new.items():
            archive.writestr(f"model/{path}", content)
    return made.getvalue()


def _files(data: bytes) -> dict[str, bytes]:
    """What is in the archive, by paths within its one folder."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if any(one.compress_type != zipfile.ZIP_STORED or one.flag_bits & 1 for one in entries) or (
            sum(one.file_size for one in entries) > len(data)
        ):
            raise ModelError(
                "its entries are compressed, encrypted or larger than the file; torch.export.save does none of that"
            )
        folders = {one.filename.split("/")[0] for one in entries}
        if len(folders) != 1:
            raise ModelError(
                f"it has the folders {', '.join(map(repr, sorted(folders)))[:100]}; a file of torch.export.save has one"
            )
        names = [one.filename.partition("/")[2] for one in entries]
        if len({*names}) != len(names):
            raise ModelError("an entry is there twice")
        for path in names:
            if path.startswith("data/aotinductor/"):
                raise ModelError(
                    "it holds compiled code of AOTInductor, which is not run: save it with torch.export.save"
                )
        if _MODEL not in names:
            models = [path for path in names if path.startswith("models/")]
            raise ModelError(
                f"it has no {_MODEL}, but {', '.join(map(repr, models))[:100] or 'no model'}: save one model"
            )
        missing = [path for path in _NEEDED if path not in names]
        if missing:
            raise ModelError(f"it has no {missing[0]}: save it with torch.export.save of a newer PyTorch")
        wanted = {*_NEEDED, *_FIXED}
        files = {
            path: archive.read(one)
            for path, one in zip(names, entries, strict=True)
            if path in wanted or _DATA.fullmatch(path)
        }
    for path, content in _FIXED.items():
        if files.get(path, content).strip() != content:
            raise ModelError(f"its {path} is {files[path][:20]!r}, not {content!r}: save it with torch.export.save")
    return files


def _payloads(config: dict[str, Any], files: Mapping[str, bytes], path: str) -> dict[str, bytes]:
    """The data of a configuration's tensors, once each is known to hold all elements of its tensors."""
    folder = path.rpartition("/")[0]
    used: dict[str, bytes] = {}
    types: dict[str, int] = {}
    for name, entry in config["config"].items():
        place, meta = f"{folder}/{entry['path_name']}", entry["tensor_meta"]
        if not _DATA.fullmatch(place) or place not in files:
            raise ModelError(f"the data of {name}, {entry['path_name']}, are missing")
        kind = meta["dtype"]
        if types.setdefault(place, kind) != kind:
            raise ModelError(f"{name} has another element type than a tensor with the same data, {entry['path_name']}")
        content = used[place] = files[place]
        sizes, strides = ([one["as_int"] for one in meta[key]] for key in ("sizes", "strides"))
        last = meta["storage_offset"]["as_int"] + sum(
            (size - 1) * stride for size, stride in zip(sizes, strides, strict=True)
        )
        elements = len(content) // ELEMENT_BYTES[kind]
        if len(content) % ELEMENT_BYTES[kind] or (prod(sizes) and last >= elements):
            raise ModelError(
                f"{name} has the shape {sizes} with the strides {strides}, and {len(content)} bytes of data, which do "
                "not hold it"
            )
        if kind == _BOOL and content.translate(None, b"\0\1"):
            raise ModelError(f"{name} is bool, and a byte of it is neither 0 nor 1")
    return used


def _check_sharing(tensors: Mapping[str, dict[str, Any]], new: Mapping[str, bytes]) -> None:
    """Tensors may share their data, and repeat them, but a small file is no large model."""
    stored = sum(len(content) for path, content in new.items() if _DATA.fullmatch(path))
    whole = sum(
        prod(one["as_int"] for one in meta["sizes"]) * ELEMENT_BYTES[meta["dtype"]] for meta in tensors.values()
    )
    if whole > _SHARED * stored + _SMALL:
        raise ModelError(f"its tensors have {whole} bytes, and the file holds {stored} of them")


def _check_held(module: dict[str, Any], tensors: Mapping[str, dict[str, Any]]) -> None:
    """What the graph takes of its module is there, and of the same shape."""
    stated = module["graph"]["tensor_values"]
    for spec in module["signature"]["input_specs"]:
        kind, content = next(iter(spec.items()))
        if kind not in ("parameter", "buffer", "tensor_constant"):
            continue
        held, name = tensors.get(content[f"{kind}_name"]), content["arg"]["name"]
        meta = stated.get(name)
        if held is None or meta is None:
            raise ModelError(f"the graph takes {content[f'{kind}_name']}, which is not in the file")
        if any(held[key] != meta[key] for key in ("dtype", "sizes", "strides")):
            raise ModelError(f"the graph takes {name} of another shape or element type than the file holds")
