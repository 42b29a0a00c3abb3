"""From a float model to an int8 one, by ONNX Runtime's quantiser, and what each layer loses on the way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from numpy.typing import NDArray

from npukit.errors import UsageError
from npukit.quantisation.calibration import check_samples, random_samples, read_samples
from npukit.quantisation.exact import with_exact_scales
from npukit.quantisation.losses import Loss, losses_of
from npukit.quantisation.prepare import prepare
from npukit.quantisation.quantiser import CALIBRATIONS, FORMATS, TYPES, QuantiserOptions, run_quantiser

__all__ = ["CALIBRATIONS", "FORMATS", "TYPES", "Loss", "Quantised", "QuantiserOptions", "quantize"]

_MEASURED = 16
"""Samples on which losses are measured."""


@dataclass(frozen=True)
class Quantised:
    """A quantised model, and what it lost.

    Attributes:
        model: as its quantiser wrote it.
        layers: the losses of quantised tensors, in the order of the graph.
        outputs: the losses of the model's outputs.
        samples: for how many inputs its ranges were measured.
        measured: on how many of them its losses were.
        excluded: nodes that were left float, by name, so that the machine computes them and their neighbours as one.
        exact: nodes around which scales were made slightly larger, by name, so that the machine may compute them.
    """

    model: onnx.ModelProto
    layers: tuple[Loss, ...]
    outputs: tuple[Loss, ...]
    samples: int
    measured: int
    excluded: tuple[str, ...]
    exact: tuple[str, ...]


def quantize(
    model: str | Path | bytes | onnx.ModelProto,
    data: Sequence[Mapping[str, NDArray]] | str | Path | None = None,
    options: QuantiserOptions | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    most: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Quantised:
    """Quantise a float model statically.

    Args:
        model: path, bytes or proto.
        data: samples for the ranges of activations, each an array by each input's name, of the input's shape; or a
            `.npz` file of them, or a folder of such files. Without them, 8 of random numbers: then ranges are guesses.
        options: formats, types and what stays float.
        shapes: of inputs that the model leaves open.
        most: how many samples to take at most.
        progress: gets a line as each step begins.

    Raises:
        CompileError: a model that cannot be read or quantised, or is quantised already.
        UsageError: data that cannot be read, or are not the model's inputs.
    """
    options = options or QuantiserOptions()
    if most is not None and most < 1:
        raise UsageError(f"at least one sample is needed, not {most}")
    progress("preparing")
    prepared = prepare(model, shapes or {})
    if data is None:
        samples = random_samples(prepared)
    elif isinstance(data, str | Path):
        samples = read_samples(prepared, data, most)
    else:
        samples = check_samples(prepared, data)[:most]
    quantised, excluded = run_quantiser(prepared, samples, options, progress)
    changed: tuple[str, ...] = ()
    if options.exact_scales and options.format == "qdq":
        quantised, changed = with_exact_scales(quantised, prepared)
    progress("measuring what it lost")
    layers, outputs = losses_of(prepared, quantised, samples[:_MEASURED])
    return Quantised(quantised, layers, outputs, len(samples), min(len(samples), _MEASURED), excluded, changed)
