"""The quicker ones of `make prove`, each with a fault that it finds, and the document that lists them all."""

import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
sys.path.insert(0, str(Path(__file__).parent))

from npukit.hw.toolchain import ToolError, find_tool, pip_install
from proofs.harness import Proof, check, faulty
from prove import PROOFS, markdown

_QUICK = {
    "tokens", "token overflow", "ports", "queue of 2", "issue", "read channels", "write channels", "rings",
    "register writes", "register reads", "memory arbiter", "two rates", "host link",
}  # fmt: skip


@pytest.mark.parametrize("proof", [one for one in PROOFS if one.name in _QUICK], ids=lambda one: one.name)
def test_proof(proof: Proof) -> None:
    try:
        find_tool("yices-smt2", pip_install("prove"))
    except ToolError as missing:
        pytest.skip(str(missing))
    assert check(proof) == (True, "")
    fault = random.choice(proof.faults)
    verdict = check(proof, fault)
    assert not verdict.holds, fault.name
    assert verdict.said.startswith(("after a reset: ", "after cycles in which all was true: ")), fault.name


def test_the_quick_ones_are_there() -> None:
    names = [proof.name for proof in PROOFS]
    assert set(names) >= _QUICK
    assert len(set(names)) == len(names)


def test_every_proof_has_faults() -> None:
    assert [proof.name for proof in PROOFS if len(proof.faults) < 2] == []
    for proof in PROOFS:
        for fault in proof.faults:
            assert faulty(fault)


def test_document() -> None:
    assert Path("docs/proofs.md").read_text(encoding="utf-8") == markdown(), "make docs"
