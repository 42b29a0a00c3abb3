"""`npukit quantize`: a float model as an int8 one, and what that costs."""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict

from npukit.cli.common import add_output, add_shapes, check_outputs, print_json, say, shapes_of
from npukit.errors import UsageError
from npukit.npufile import write_bytes
from npukit.quantisation import CALIBRATIONS, FORMATS, TYPES, Loss, Quantised, QuantiserOptions, quantize

__all__ = ["add_parsers"]

_SHOWN = 10


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "quantize", help="make an int8 model of a float one",
        description="Quantise a float ONNX model statically with ONNX Runtime's quantiser, and say what each layer "
        "lost. Without --data, ranges are measured on random inputs, which is good for timing and not for accuracy.",
    )  # fmt: skip
    parser.add_argument("model", metavar="MODEL", help="float ONNX model")
    parser.add_argument("-o", "--output", metavar="F", required=True, help="file to write")
    parser.add_argument(
        "--data", metavar="F.npz|FOLDER",
        help="samples of the inputs: a .npz file, or a folder of them, with an array by each input's name; several "
        "samples in one array lie one behind the other along its first dimension",
    )  # fmt: skip
    parser.add_argument("--samples", type=int, metavar="N", help="take the first N samples (default: all)")
    parser.add_argument("--format", default="qdq", choices=FORMATS, help="form of the model (default: qdq)")
    parser.add_argument(
        "--calibration", default="minmax", choices=CALIBRATIONS, help="how ranges follow from samples (default: minmax)"
    )
    parser.add_argument("--activations", default="int8", choices=TYPES, help="their type (default: int8)")
    parser.add_argument("--weights", default="int8", choices=TYPES, help="their type (default: int8)")
    parser.add_argument("--per-tensor", action="store_true", help="one scale for all of a layer's weights")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="NODE", help="a node that stays float; may be repeated"
    )
    parser.add_argument(
        "--exclude-operator", action="append", default=[], metavar="OP",
        help="an operator whose nodes stay float; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--free-scales", action="store_true",
        help="leave the scales around ConvTranspose and AveragePool as they are measured: by default they grow a "
        "little, so that the machine may compute these",
    )  # fmt: skip
    add_shapes(parser)
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.samples is not None and options.samples < 1:
        raise UsageError(f"--samples must be 1 or above, not {options.samples}")
    if options.samples is not None and options.data is None:
        raise UsageError("--samples goes with --data")
    check_outputs(options, {"-o": options.output}, {"MODEL": options.model})
    chosen = QuantiserOptions(
        format=options.format,
        calibration=options.calibration,
        activations=options.activations,
        weights=options.weights,
        per_channel=not options.per_tensor,
        exclude=tuple(options.exclude),
        exclude_operators=tuple(options.exclude_operator),
        exact_scales=not options.free_scales,
    )
    terminal = sys.stderr.isatty() and not options.quiet
    try:
        found = quantize(
            options.model, options.data, chosen, shapes_of(options), options.samples,
            _progress if terminal else lambda _: None,
        )  # fmt: skip
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    write_bytes(options.output, found.model.SerializeToString())
    if options.json:
        print_json(_json(options, found))
        return 0
    if options.data is None:
        say(options, "note: without --data, ranges are those of random inputs: the result is good for timing alone")
    print(_text(found))
    say(options, f"wrote {options.output}: {found.model.ByteSize()} bytes; next: npukit run {options.output} --compare")
    return 0


def _progress(text: str) -> None:
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _number(value: float) -> float | None:
    """As JSON can hold it."""
    return value if math.isfinite(value) else None


def _json(options: argparse.Namespace, found: Quantised) -> dict:
    def losses(those: Sequence[Loss]) -> list[dict]:
        numbers = ("sqnr", "largest", "range")
        return [{**asdict(one), **{name: _number(getattr(one, name)) for name in numbers}} for one in those]

    return {
        "schema": 1,
        "model": options.model,
        "output": options.output,
        "samples": found.samples,
        "measured": found.measured,
        "random": options.data is None,
        "float": list(found.excluded),
        "exact": list(found.exact),
        "layers": losses(found.layers),
        "outputs": losses(found.outputs),
    }


def _text(found: Quantised) -> str:
    worst = sorted(found.layers, key=lambda one: one.sqnr)
    lines = [
        f"signal to quantisation noise over {found.measured} sample(s), the worst {min(_SHOWN, len(worst))} first:"
    ]
    lines += [_line(one) for one in worst[:_SHOWN]]
    lines += ["at the outputs:", *(_line(one) for one in found.outputs)]
    if found.exact:
        more = " ..." if found.exact[_SHOWN:] else ""
        lines.append(f"larger scales around {', '.join(found.exact[:_SHOWN])}{more}")
    return "\n".join(lines)


def _line(one: Loss) -> str:
    part = 100 * one.largest / one.range if one.range else 0.0
    return f"  {one.sqnr:6.1f} dB  {one.op} {one.node}: largest difference {one.largest:.4g}, {part:.1f} % of the range"
