"""What would make a model faster, the greatest gain first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from npukit.compiler.frontends.onnx.offload import Offload
from npukit.isa.config import NpuConfig
from npukit.profiling.layers import LayerProfile, Profile

__all__ = ["Advice", "advise", "measured"]

_Change = Callable[[LayerProfile], tuple[float, float, float]]
"""By what the work of array, VECTOR and bus for a layer is multiplied."""
_NAMED = 5
"""Layers that an advice names."""
_LEAST = 0.005
"""Of all cycles; what gains less is not worth a line."""


@dataclass(frozen=True)
class Advice:
    """One change, and what it is expected to gain.

    Attributes:
        title: what to do.
        why: what stands in the way today.
        changes: fields of the configuration that change, with their values; empty where it is something else to do.
        cycles: that are expected to go, by an estimate: `advise` says how.
        share: of the program's cycles.
        measured: cycles that went when the changed machine was simulated; negative where it got slower; None where it
            was not.
        layers: those that gain most, the first with the greatest gain.
    """

    title: str
    why: str
    changes: dict[str, int]
    cycles: int
    share: float
    layers: tuple[str, ...]
    measured: int | None = None

    @property
    def options(self) -> str:
        """The change as options of the command line."""
        return " ".join(f"--set {name}={value}" for name, value in self.changes.items())

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {**asdict(self), "options": self.options}


def advise(profile: Profile, offload: Offload) -> list[Advice]:
    """What would help, by an estimate.

    Engines work at once, so that a layer takes as long as the busiest of array, VECTOR and bus. A change shortens what
    one of them has to do; the layer is expected to lose the same share of its foreground cycles as the busiest one
    loses. That leaves out how tiles change and what overlaps between layers: `measured` simulates it.
    """
    found = [
        *_machine(profile),
        _estimate(
            profile, "run four inputs as one batch", "weights are read for one input only", {},
            lambda layer: (1, 1, 1 - 0.75 * _weights(layer)),
        ),
    ]  # fmt: skip
    idle = [(max(0.0, layer.cycles - _busiest(layer)), layer.node) for layer in profile.layers]
    found.append(
        _advice(
            profile, "let layers follow each other more closely (larger images or batches, --optimize 2)",
            "no engine is the limit: engines wait for each other, or layers are too small to fill them", {}, idle,
        )
    )  # fmt: skip
    stays = offload.macs_total - offload.macs
    chosen = sorted((one for one in found if one.share >= _LEAST), key=lambda one: -one.cycles)
    if stays:
        chosen.insert(0, _stays(offload, stays))
    return chosen


def _stays(offload: Offload, stays: int) -> Advice:
    names = sorted(offload.fallback, key=lambda reason: -(reason.macs or 0))
    return Advice(
        offload.suggestion or "bring the rest of the model onto the accelerator",
        f"{100 * stays / offload.macs_total:.1f} % of the multiply-accumulates stay on the host",
        {}, 0, 0.0, tuple(reason.node for reason in names[:_NAMED]),
    )  # fmt: skip


def _machine(profile: Profile) -> Iterable[Advice]:
    config = profile.config
    size, lanes, taps, bus = (
        2 * getattr(config, name) for name in ("array", "vector_lanes", "vector_taps", "bus_bytes")
    )
    fma_lanes = max(config.fma_lanes, lanes)
    changes: list[tuple[str, str, dict[str, int], _Change]] = [
        (f"a bus of {bus} bytes a cycle", "the bus is busier than array and VECTOR", {"bus_bytes": bus},
         lambda layer: (1, 1, 1 / 2)),
        (f"{lanes} lanes of VECTOR", "VECTOR is busier than array and bus",
         {"vector_lanes": lanes, "fma_lanes": fma_lanes}, lambda layer: (1, 1 / 2, 1)),
        (f"{taps} taps of VECTOR", "VECTOR takes windows a few columns at a time", {"vector_taps": taps},
         lambda layer: (1, ceil(layer.window / taps) / ceil(layer.window / config.vector_taps), 1)
         if layer.window else (1, 1, 1)),
        (f"an array of {size} by {size}", "the array is busier than VECTOR and bus", {"array": size, "array_rows": 0},
         lambda layer: (_steps(layer, size, config.array) / config.row_passes, 1, 1)),
    ]  # fmt: skip
    for title, why, fields, changed in changes:
        if _possible(profile, fields):
            yield _estimate(profile, title, why, fields, changed)


def _possible(profile: Profile, fields: dict[str, int]) -> bool:
    try:
        profile.dram.check(replace(profile.config, **fields))
    except ValueError:  # of the configuration's rules, or because an SDRAM has the bus that it has
        return False
    return True


def _steps(layer: LayerProfile, array: int, before: int) -> float:
    """Tiles of weights with an array of that size, to those of another one; channels are dimension 1."""
    channels = [shape[1] for shape in (layer.inputs[0], layer.output) if len(shape) > 1]
    steps = 1.0
    for size in channels:
        steps *= -(-size // array) / -(-size // before)
    return steps


def _weights(layer: LayerProfile) -> float:
    """Share of the layer's traffic that is weights."""
    moved = layer.read_bytes + layer.write_bytes
    return layer.weight_bytes / moved if moved else 0.0


def _busiest(layer: LayerProfile, factors: tuple[float, float, float] = (1, 1, 1)) -> float:
    """Cycles of the busiest of array, VECTOR and bus, by itself."""
    return max(a * b for a, b in zip((layer.array, layer.vector, layer.dram), factors, strict=True))


def _estimate(profile: Profile, title: str, why: str, changes: dict[str, int], changed: _Change) -> Advice:
    gains = []
    for layer in profile.layers:
        busiest = _busiest(layer)
        if busiest:
            limited = min(layer.cycles, busiest)
            gains.append((limited * (1 - _busiest(layer, changed(layer)) / busiest), layer.node))
    return _advice(profile, title, why, changes, gains)


def _advice(
    profile: Profile, title: str, why: str, changes: dict[str, int], gains: Sequence[tuple[float, str]]
) -> Advice:
    total = round(sum(gain for gain, _ in gains))
    largest = sorted((one for one in gains if one[0] > 0), reverse=True)[:_NAMED]
    share = total / profile.cycles if profile.cycles else 0.0
    return Advice(title, why, changes, total, share, tuple(name for _, name in largest))


def measured(advice: Sequence[Advice], profile: Profile, cycles_of: Callable[[NpuConfig], int | None]) -> list[Advice]:
    """The same with what the changed machines were found to take, the greatest measured gain first.

    Args:
        cycles_of: compiles for a configuration and simulates it; None where it cannot be done.
    """
    found = []
    for one in advice:
        if one.changes:
            cycles = cycles_of(replace(profile.config, **one.changes))
            if cycles is not None:
                one = replace(one, measured=profile.cycles - cycles)
        found.append(one)
    return sorted(found, key=lambda one: -(one.cycles if one.measured is None else one.measured))
