"""`make prove`: what is proven of the hardware's blocks, and that each proof fails on a block with a fault.

Exit code 1 when a proof does not hold, or a fault does not make it fail.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from npukit.hw.toolchain import ToolError
from proofs import addresses, board, control, registers, streams, windows
from proofs.harness import Fault, Proof, Verdict, check

__all__ = ["PROOFS", "markdown"]

PROOFS: tuple[Proof, ...] = (
    *control.PROOFS, *streams.PROOFS, *addresses.PROOFS, *windows.PROOFS, *registers.PROOFS, *board.PROOFS,
)  # fmt: skip
"""In the order of the document."""
_HEAD = """\
# What is proven

`make prove` proves the following of the hardware's blocks, with [Yosys](https://yosyshq.net) and the solver
[Yices 2](https://yices.csl.sri.com); the properties are in [`tests/proofs`](../tests/proofs). Blocks have free inputs,
within what their neighbours promise: a stream into a block keeps what it offers until it is taken, an engine lets go of
ports that it holds, memory answers what it was asked.

"All" means for all times, by induction: no claim can fail in the cycles after a reset that the column says, and none
can fail after so many cycles in which all were true. A number alone means that no claim can fail in that many cycles
after a reset; nothing is said of later ones. Each proof is seen to fail on a block with each fault of the last column.

| proof | says | cycles | faults that it finds |
|---|---|---|---|
"""


def markdown() -> str:
    """`docs/proofs.md`."""
    rows = []
    for proof in PROOFS:
        depth = str(proof.cycles) if proof.induction is None else f"all ({proof.cycles}, then {proof.induction})"
        rows.append(f"| {proof.name} | {proof.says} | {depth} | {'; '.join(fault.name for fault in proof.faults)} |\n")
    return _HEAD + "".join(rows)


def _questions(proofs: Sequence[Proof], faults: bool) -> Iterator[tuple[Proof, Fault | None]]:
    for proof in proofs:
        yield proof, None
        if faults:
            yield from ((proof, fault) for fault in proof.faults)


def _ask(question: tuple[Proof, Fault | None]) -> tuple[Verdict, float]:
    begun = time.perf_counter()
    return check(*question), time.perf_counter() - begun


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Prove what is claimed of the hardware's blocks.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this proof alone; repeatable")
    parser.add_argument("--list", action="store_true", help="name the proofs and leave")
    parser.add_argument("--no-faults", action="store_true", help="do not look whether faults are found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="at once (default: one a core)")
    parser.add_argument("--markdown", action="store_true", help="print docs/proofs.md and leave")
    options = parser.parse_args()
    if options.markdown:
        print(markdown(), end="")
        return 0
    if options.list:
        for proof in PROOFS:
            print(f"{proof.name:45} {proof.says}")
        return 0
    unknown = set(options.only) - {proof.name for proof in PROOFS}
    if unknown:
        raise SystemExit(f"prove: no proof is called {min(unknown)!r} (see --list)")
    chosen = [proof for proof in PROOFS if proof.name in options.only or not options.only]
    wrong = found = 0
    begun = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        questions = list(_questions(chosen, not options.no_faults))
        try:
            for (proof, fault), (verdict, seconds) in zip(questions, pool.map(_ask, questions), strict=True):
                good = verdict.holds == (fault is None)
                wrong += not good
                found += good and fault is not None
                if fault is None:
                    said = "holds" if verdict.holds else f"DOES NOT HOLD: {verdict.said}"
                    print(f"{proof.name}: {said}, {seconds:.1f} s", flush=True)
                elif verdict.holds:
                    print(f"{proof.name}: holds THOUGH {fault.name}, {seconds:.1f} s", flush=True)
        except ToolError as error:
            pool.shutdown(wait=False, cancel_futures=True)
            print(f"prove: {error}", file=sys.stderr)
            return 1
    faults = f", {found} faults found" if not options.no_faults else ""
    print(f"{len(chosen)} proofs{faults}, {wrong} not as they should be, {time.perf_counter() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
