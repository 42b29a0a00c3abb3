"""What a core takes on an ECP5, estimated from its configuration: a model, fitted to cores that were synthesised.

`bench/area.py` synthesised those of `area_points.json`. Each resource is a sum of terms that follow the hardware's
structure, each with a factor that is not negative, found by least squares of relative errors. The core alone is meant,
without a board's memory controller and host link, before placement.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from math import ceil

import numpy as np
from npukit.fpga.ecp5 import Area
from npukit.hw.toolchain import needs
from npukit.isa.config import NpuConfig
from numpy.typing import NDArray

__all__ = ["Errors", "beyond", "leave_one_out", "points", "predict"]

RESOURCES = tuple(one.name for one in fields(Area))
_SHAPES = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))
"""(bits, words) of a block RAM, DP16KD."""


@dataclass(frozen=True)
class Errors:
    """How far predictions of points are away that the fit has not seen, as shares of what was measured."""

    mean: float
    worst: float


def points() -> list[tuple[NpuConfig, Area]]:
    """What was measured."""
    text = (files("npukit.fpga") / "area_points.json").read_text(encoding="utf-8")
    found = json.loads(text)["points"]
    return [(NpuConfig.from_dict(one["config"]), Area(**{name: one[name] for name in RESOURCES})) for one in found]


def _block_rams(bits: int, words: int) -> int:
    return min(ceil(bits / wide) * ceil(words / deep) for wide, deep in _SHAPES)


def _terms(config: NpuConfig, resource: str) -> Mapping[str, float]:
    """What a resource may grow with."""
    size, floating = config.array, config.activation.floating
    softmax = size / config.softmax_cycles if config.softmax_cycles else 0.0
    normalize = size / config.normalize_cycles if config.normalize_cycles and not floating else 0.0
    terms = {
        "the same for all": 1.0,
        "processing elements": config.array_macs,
        "columns": size,
        "lanes": config.vector_lanes,
        "taps of all lanes": config.vector_lanes * config.vector_taps,
        "words of taps": size * config.vector_taps,
        "lanes of two sources": config.fma_lanes,
        "lanes in fixed point": config.fma_lanes * config.fma_fixed * (not floating),
        "softmax lanes": softmax,
        "softmax": float(softmax > 0),
        "normalising lanes": normalize,
        "normalising": float(normalize > 0),
        "tiles turned around": config.transpose * size**2,
        "banks of ACT": config.act_banks * size,
        "banks of ACC": config.acc_banks * size,
        "bus": config.bus_bytes,
        "queues": config.queue_depth,
        "windows": config.max_window * size,
    }
    if resource == "block_rams":
        narrow, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        terms["memories"] = (
            config.act_banks * _block_rams(narrow, config.act_depth)
            + _block_rams(narrow, config.wgt_depth)
            + config.acc_banks * _block_rams(wide, config.acc_depth)
            + _block_rams(wide, config.par_depth)
        )
    return terms


def _matrix(configs: Sequence[NpuConfig], resource: str) -> NDArray[np.float64]:
    return np.array([list(_terms(config, resource).values()) for config in configs], np.float64)


def _fit(terms: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    with needs("explore", "the area model"):
        from scipy.optimize import nnls
    factors, _ = nnls(terms / measured[:, None], np.ones(len(measured)))
    return factors


@cache
def _measured(dtype: str) -> tuple[tuple[NpuConfig, ...], Mapping[str, NDArray[np.float64]]]:
    mine = [(config, area) for config, area in points() if config.dtype == dtype]
    values = {name: np.array([getattr(area, name) for _, area in mine], np.float64) for name in RESOURCES}
    return tuple(config for config, _ in mine), values


@cache
def _factors(dtype: str, resource: str) -> NDArray[np.float64]:
    configs, values = _measured(dtype)
    return _fit(_matrix(configs, resource), values[resource])


def predict(config: NpuConfig) -> Area:
    """The area of a core.

    Raises:
        ToolError: SciPy is not installed.
    """
    return Area(**{name: round(float(_matrix([config], name)[0] @ _factors(config.dtype, name))) for name in RESOURCES})


def leave_one_out(dtype: str) -> dict[str, Errors]:
    """Errors of each resource, for a datapath: each point is predicted from the others alone."""
    configs, values = _measured(dtype)
    found = {}
    for resource in RESOURCES:
        terms, measured = _matrix(configs, resource), values[resource]
        errors = []
        for one in range(len(measured)):
            others = np.arange(len(measured)) != one
            errors.append(abs(float(terms[one] @ _fit(terms[others], measured[others])) / measured[one] - 1))
        found[resource] = Errors(float(np.mean(errors)), max(errors))
    return found


def beyond(config: NpuConfig) -> list[str]:
    """Fields whose values lie beyond those that were synthesised, with the range: there the model only continues."""
    configs, _ = _measured(config.dtype)
    found = []
    for one in fields(config):
        if one.name == "dtype":
            continue
        values = [getattr(other, one.name) for other in configs]
        if not min(values) <= getattr(config, one.name) <= max(values):
            found.append(f"{one.name} {getattr(config, one.name)} (synthesised: {min(values)} to {max(values)})")
    return found
