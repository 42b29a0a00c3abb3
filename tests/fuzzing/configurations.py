"""Configuration files: values of every kind, and of legal ones a small model, compared with ONNX Runtime."""

import hashlib
import json
import tomllib
from dataclasses import fields
from pathlib import Path
from random import Random

from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.formats import DATAPATHS

from .case import Outcome, Result, WrongResult, answer_of, run_command
from .mutate import change_bytes, change_number, odd_number
from .samples import float_model, quantised_model

__all__ = ["Configurations", "make"]

_NAMES = [field.name for field in fields(NpuConfig)]
_OTHER = (
    "1.0", "-0.0", "inf", "nan", "true", "false", '"4"', "'int8'", '""', "[]", "[4]", "{}", "{ a = 1 }", "1979-05-27",
    "1979-05-27T07:32:00Z", "07:32:00", "0x10", "0o20", "0b100", "1_6", "+16", "016", "1e3", '"""\n"""', "16 # lanes",
    "9999-99-99", "0000-01-01", "1" + "0" * 5000, "[" * 2000 + "]" * 2000, "{a=" * 1500 + "1" + "}" * 1500, "",
)  # fmt: skip
_KEYS = (
    "array.size",
    '"array"',
    "'act depth'",
    "",
    "[table]\nx",
    "[[table]]\nx",
    "base.x",
    "ARRAY",
    "array\u00df",
    "\u0000",
)
_RUN_SHARE = 6
"""One in so many legal configurations runs a model."""


class Configurations:
    """See the module."""

    seconds = 60.0
    megabytes = 1024
    suffix = ".toml"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "configuration.toml"
        self.models: dict[str, Path] = {}
        for dtype, model in (("int8", quantised_model()), ("bf16", float_model())):
            self.models[dtype] = folder / f"{dtype}.onnx"
            self.models[dtype].write_bytes(model.SerializeToString())

    def input(self, random: Random) -> bytes:
        """A file: a preset's with values a little changed, a few fields of any kind, or either with bytes changed."""
        lines = self._near(random) if random.random() < 0.6 else self._any(random)
        if random.random() < 0.5:
            lines.insert(random.randrange(len(lines) + 1), f"base = {self._base(random)}")
        text = "\n".join(lines) + random.choice(["", "\n", "\r\n"])
        data = text.encode()
        return change_bytes(random, data, 3) if random.random() < 0.3 else data

    @staticmethod
    def _base(random: Random) -> str:
        if random.random() < 0.9:
            return f'"{random.choice(list(PRESETS))}"'
        return random.choice(_OTHER)

    @staticmethod
    def _near(random: Random) -> list[str]:
        values = random.choice(list(PRESETS.values())).to_dict()
        for name in random.sample(_NAMES, random.randint(0, 3)):
            value = values[name]
            values[name] = random.choice(list(DATAPATHS)) if isinstance(value, str) else change_number(random, value)
            if random.random() < 0.3 and isinstance(value, int):
                values[name] = max(1, value // random.choice([2, 4, 8, 16, 64]))
        kept = random.sample(_NAMES, random.randint(1, len(_NAMES)))
        return [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
                for name, value in values.items() if name in kept]  # fmt: skip

    @staticmethod
    def _any(random: Random) -> list[str]:
        lines = []
        for _ in range(random.randint(0, 5)):
            name = random.choice(_NAMES) if random.random() < 0.9 else random.choice(_KEYS)
            value = str(odd_number(random)) if random.random() < 0.6 else random.choice(_OTHER)
            lines.append(f"{name} = {value}")
        return lines

    def run(self, data: bytes) -> Result:
        """`npukit configs`, which must show what the file says; and, of some, `npukit run --compare`."""
        self.path.write_bytes(data)
        answer = run_command("configs", self.path, "--json", "--quiet")
        result = answer_of(answer)
        if result.outcome is not Outcome.ACCEPTED:
            return result
        values = tomllib.loads(data.decode())
        expected = PRESETS[values.pop("base", "int8-16x16")].to_dict() | values
        shown = json.loads(answer.out)["config"]
        if shown != expected or [type(one) for one in shown.values()] != [type(one) for one in expected.values()]:
            raise WrongResult(f"the file says {expected}, npukit {shown}")
        if hashlib.sha256(data).digest()[0] % _RUN_SHARE:
            return result
        return self._run(shown["dtype"])

    def _run(self, dtype: str) -> Result:
        answer = run_command("run", self.models[dtype], "--config", self.path, "--compare", "--json", "--quiet")
        if answer.code == 1 and not answer.err:
            raise WrongResult(f"the model differs from ONNX Runtime: {json.loads(answer.out)['compare']}")
        return answer_of(answer)


def make(folder: Path) -> Configurations:
    """The kind, with its files in `folder`."""
    return Configurations(folder)
