"""The table of faults fits the sources: no mutant can rot silently. Nothing is built here."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("npukit_mutant_table", Path(__file__).with_name("mutant_table.py"))
assert _spec is not None and _spec.loader is not None
table = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = table  # dataclasses look their module up
_spec.loader.exec_module(table)


@pytest.mark.parametrize("mutant", table.MUTANTS, ids=lambda mutant: mutant.name)
def test_fault_applies_and_still_compiles(mutant) -> None:
    text = (_ROOT / mutant.file).read_text(encoding="utf-8")
    changed = table.patched(mutant, text)
    assert changed != text
    compile(changed, mutant.file, "exec")


def test_text_that_is_not_there_once_is_refused() -> None:
    mutant = table.Mutant("name", "hw/core.py", "a", "b")
    with pytest.raises(table.TableError, match="name: 'a' must stand once in hw/core.py, not 0 times"):
        table.patched(mutant, "c")
    with pytest.raises(table.TableError, match="not 2 times"):
        table.patched(mutant, "aa")


def test_there_are_enough_and_names_are_unique() -> None:
    checks = Counter(mutant.check for mutant in table.MUTANTS)
    assert checks["rtl"] >= 30
    assert checks["sim"] >= 10
    assert len({mutant.name for mutant in table.MUTANTS}) == len(table.MUTANTS)
