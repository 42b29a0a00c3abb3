"""The folder of C sources that runs one model."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import onnx

from npukit.files import final, staged
from npukit.firmware.boundary import boundary_of
from npukit.firmware.c_model import CModel
from npukit.firmware.guide import example, guide
from npukit.firmware.register_header import register_header
from npukit.firmware.sizes import Sizes, measure
from npukit.isa.program import Program

__all__ = ["Kit", "write_kit"]

_RUNTIME = ("npu.c", "npu.h", "npu_port.h")


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


def write_kit(
    folder: Path, name: str, artifact: onnx.ModelProto, programs: Mapping[str, Program], config_label: str
) -> Kit:
    """Write all that a model needs on a processor into a folder, or nothing.

    Args:
        folder: is made if need be; files of other names in it stay.
        name: the model's, from which those of files and functions are made.
        artifact: the compiled model.
        programs: its programs by the names of their nodes.
        config_label: what users call the configuration.

    Raises:
        FirmwareError: a model that does not run on the accelerator alone.
        OutputError: when files cannot be written.
    """
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
