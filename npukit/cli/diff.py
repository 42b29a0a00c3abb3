"""`npukit diff`: two profiles beside each other."""

import argparse

from npukit.cli.common import add_output, print_json, say
from npukit.hw.toolchain import needs
from npukit.npufile import check_apart, check_writable, write_bytes
from npukit.profiling.difference import ProfileDifference, change_text, difference
from npukit.profiling.saved import profile_file, read_profile
from npukit.profiling.text import aligned, printable, thousands

__all__ = ["add_parsers"]

_SHOWN = 20


def add_parsers(commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "diff", help="compare two profiles: layers that gained and lost",
        description="Compare two profiles, of two configurations, memories, models or releases of the kit: layers are "
        "matched by name, and those whose cycles changed most come first.",
    )  # fmt: skip
    what = "folder that npukit profile wrote, or a JSON file of it or of npukit run --json"
    parser.add_argument("before", metavar="A", help=what)
    parser.add_argument("after", metavar="B", help="the same; B is compared with A")
    parser.add_argument("-o", "--output", metavar="F.html", help="write a page with the layers and a chart as well")
    parser.add_argument(
        "--all", action="store_true",
        help=f"print all layers, and not only the {_SHOWN} whose cycles changed most",
    )  # fmt: skip
    add_output(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.output:
        check_apart({"-o": options.output}, {"A": profile_file(options.before), "B": profile_file(options.after)})
        check_writable(options.output)
    found = difference(read_profile(options.before), read_profile(options.after))
    if options.output:
        with needs("profile", "an HTML report"):
            from npukit.reports.difference_page import difference_page
        data = difference_page(found).encode()
        write_bytes(options.output, data)
        say(options, f"wrote {options.output}: {len(data)} bytes")
    if options.json:
        print_json(found.to_json())
    else:
        print(_text(found, len(found.layers) if options.all else _SHOWN))
    return 0


def _text(found: ProfileDifference, most: int) -> str:
    before, after = found.before, found.after
    lines = [
        f"cycles {thousands(before.cycles)} -> {thousands(after.cycles)}, {change_text(before.cycles, after.cycles)}",
        f"DRAM bytes {thousands(before.moved)} -> {thousands(after.moved)}, {change_text(before.moved, after.moved)}",
        *map(printable, found.changes),
    ]
    if before.milliseconds is not None and after.milliseconds is not None:
        lines.insert(1, f"milliseconds {before.milliseconds:.4g} -> {after.milliseconds:.4g}")
    changed = [one for one in found.layers if one.cycles or one.moved or one.before is None or one.after is None]
    if not changed:
        return "\n".join([*lines, f"no layer of {len(found.layers)} differs"])
    rows = [
        (
            one.layer.node, one.layer.op, _count(one.before and one.before.cycles),
            _count(one.after and one.after.cycles), thousands(one.cycles), thousands(one.moved), one.bound,
        )
        for one in changed[:most]
    ]  # fmt: skip
    heads = ("layer", "operator", "cycles A", "cycles B", "change", "change of DRAM bytes", "bound by")
    lines += ["", *aligned([heads, *rows], {2, 3, 4, 5})]
    if len(changed) > most:
        rest = sum(one.cycles for one in changed[most:])
        lines.append(f"{len(changed) - most} more layers: {thousands(rest)} cycles (--all)")
    both = [one for one in found.layers if one.before is not None and one.after is not None]
    gained, lost = (sum(sign * one.cycles < 0 for one in both) for sign in (1, -1))
    lines.append(f"{gained} layers became faster, {lost} slower, {len(both) - gained - lost} as they were")
    alone = [sum(one.after is None for one in changed), sum(one.before is None for one in changed)]
    if any(alone):
        lines[-1] += f", {alone[0]} only in A, {alone[1]} only in B"
    return "\n".join(lines)


def _count(value: int | None) -> str:
    return "-" if value is None else thousands(value)
