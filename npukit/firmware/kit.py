"""The folder of C sources that runs one model."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import onnx

from npukit.files import final, staged
from npukit.firmware.boundary import boundary_of
from npukit.firmware.c_model import CModel
from npukit.firmware.errors import FirmwareError
from npukit.firmware.guide import example, guide
from npukit.firmware.mark import MARK
from npukit.firmware.names import model_identifier
from npukit.firmware.register_header import register_header
from npukit.firmware.sizes import Sizes, measure
from npukit.isa.program import Program

__all__ = ["Kit", "check_targets", "write_kit"]

_RUNTIME = ("npu.c", "npu.h", "npu_port.h")
_OTHERS = ("npu_registers.h", "example.c", "README.md")
_LONGEST_LINE = 200
"""Bytes of a file that are looked at."""


@dataclass(frozen=True)
class Kit:
    """What was written: the files, and what they take.

    Attributes:
        model: the model's names and places.
        files: paths.
        sizes: of the objects that are made of them.
    """

    model: CModel
    files: tuple[Path, ...]
    sizes: Sizes


def check_targets(folder: Path, name: str) -> None:
    """Refuse, before the work, what could not be written, or would replace what the kit has not made.

    Args:
        folder: where to; it need not exist.
        name: the model's, as `write_kit` has it.

    Raises:
        FirmwareError: a name that is too long, or a file's place that is taken.
    """
    called = model_identifier(name)
    for one in (*_RUNTIME, *_OTHERS, f"{called}.h", f"{called}.c"):
        path = folder / one
        way_out = "name another folder with -o, or move it away"
        if path.is_dir():
            raise FirmwareError(f"cannot write {path}: it is a folder; {way_out}")
        try:
            with path.open("rb") as file:
                first = file.readline(_LONGEST_LINE)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FirmwareError(f"cannot look into {path}: {error.strerror}; {way_out}") from None
        if MARK.encode() not in first:
            raise FirmwareError(
                f"{path} is there, and not from npukit, as its first line would say ({MARK!r}); {way_out}"
            )


def write_kit(
    folder: Path, name: str, artifact: onnx.ModelProto, programs: Mapping[str, Program], config_label: str
) -> Kit:
    """Write all that a model needs on a processor into a folder.

    Nothing is written of a model that is refused. Files are put in their places one by one.

    Args:
        folder: is made if need be; files of other names, or not made by the kit, stay.
        name: the model's, from which those of files and functions are made.
        artifact: the compiled model.
        programs: its programs by the names of their nodes.
        config_label: what users call the configuration.

    Raises:
        FirmwareError: a model that does not run on the accelerator alone; what `check_targets` refuses.
        OutputError: when files cannot be written.
    """
    check_targets(folder, name)
    model = CModel.of(boundary_of(artifact, programs), name, config_label)
    runtime = files("npukit.firmware") / "runtime"
    texts = {one: (runtime / one).read_text(encoding="utf-8") for one in _RUNTIME}
    texts["npu_registers.h"] = register_header()
    texts[f"{model.name}.h"] = model.header()
    texts[f"{model.name}.c"] = model.source()
    texts["example.c"] = example(model)
    with staged(folder) as work:
        for path, text in texts.items():
            (work / path).write_text(text, encoding="utf-8")
        # a compiler takes minutes for arrays of many megabytes
        sizes = measure(texts | {f"{model.name}.c": model.source(brief=True)}, ("npu.c", f"{model.name}.c"))
        (work / "README.md").write_text(guide(model, sizes), encoding="utf-8")
        written = tuple(final(path) for path in sorted(work.iterdir()))
    return Kit(model, written, sizes)
