"""What a search found, as files: a table, an object, and the configuration of each point of the front."""

import csv
import io
import shlex
from collections.abc import Mapping
from typing import Any

from npukit.exploration.study import Explored, Point

__all__ = ["area_beyond", "commands", "config_name", "files", "label", "to_json"]

_MODEL_COLUMNS = ("cycles", "energy_picojoules", "dram_bytes")


def config_name(point: Point) -> str:
    """The file of a point's configuration, below the folder of results."""
    return f"configs/{point.number:04}.toml"


def label(point: Point) -> str:
    """A machine in a few words."""
    config = point.candidate.config
    return (
        f"{config.size}, {config.on_chip_bytes / 1024:g} KiB, {config.bus_bytes} B/cycle, {config.vector_lanes} lanes"
    )


def commands(found: Explored, point: Point, folder: str) -> list[str]:
    """What runs a point again, for each model, and holds its hardware to the simulator."""
    config = f"{folder}/{config_name(point)}"
    candidate = point.candidate
    options = ["--config", config, "--timing-only", "--dram-latency", str(candidate.latency), "--optimize",
               str(candidate.level)]  # fmt: skip
    runs = [shlex.join(["npukit", "run", model.name, *options]) for model in found.models]
    return [*runs, shlex.join(["npukit", "verify", "--config", config])]


def area_beyond(found: Explored, point: Point) -> list[str]:
    """Where the machine lies beyond those that the area model was fitted to; empty where area is no objective."""
    if "area" not in found.objectives:
        return []
    from npukit.fpga.area_model import beyond

    return beyond(point.candidate.config)


def _row(found: Explored, point: Point) -> dict[str, Any]:
    candidate = point.candidate
    row: dict[str, Any] = {"trial": point.number, "front": point in found.front, "preset": point.origin}
    row |= {name: point.values.get(name, "") for name in ("cycles", "area", "energy", "memory")}
    row |= {name: getattr(candidate.config, name) for name in found.space.choices}
    row |= {
        "dram_latency": candidate.latency,
        "optimize": candidate.level,
        "config_hash": f"{candidate.config.hash:016x}",
    }
    for model, result in zip(found.models, point.results, strict=False):
        for column, value in zip(_MODEL_COLUMNS, (result.cycles, result.energy, result.dram_bytes), strict=True):
            row[f"{model.name} {column}"] = "" if result.refused else value
    return row | {"area_beyond": "; ".join(area_beyond(found, point)), "refused": point.refused}


def to_json(found: Explored, folder: str) -> dict[str, Any]:
    """All points, and of the front what runs them again."""
    front = {one.number for one in found.front}
    return {
        "schema": 1,
        "models": [model.name for model in found.models],
        "objectives": list(found.objectives),
        "points": [
            {
                "trial": point.number,
                "front": point.number in front,
                "preset": point.origin,
                "values": dict(point.values),
                "config": point.candidate.config.to_dict(),
                "dram_latency": point.candidate.latency,
                "optimize": point.candidate.level,
                "area_beyond": area_beyond(found, point),
                "refused": point.refused,
                "models": {
                    model.name: {"cycles": one.cycles, "energy_picojoules": one.energy, "dram_bytes": one.dram_bytes}
                    for model, one in zip(found.models, point.results, strict=False)
                    if not one.refused
                },
                "commands": commands(found, point, folder) if point.number in front else [],
            }
            for point in found.points
        ],
    }


def files(found: Explored) -> Mapping[str, str]:
    """Names and texts: `pareto.csv` with all points, those of the front first, and configurations of the front."""
    front = found.front
    rest = [one for one in found.points if one not in front]
    rows = [_row(found, point) for point in (*front, *rest)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return {"pareto.csv": text.getvalue()} | {
        config_name(point): f"# trial {point.number}\n{point.candidate.config.to_toml()}" for point in front
    }
