"""Strategies that several files use; fixtures, because test folders are not packages."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from npukit.isa.instructions import OPCODES, FieldSpec, Instruction, Operation, Vector, fields_of

settings.register_profile("npukit", deadline=None)  # the machine may be busy
settings.load_profile("npukit")


def _values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    if spec.kind is not None:
        return st.sampled_from(list(spec.kind))
    return st.sampled_from([spec.low, spec.high]) | st.integers(spec.low, spec.high)


def _instructions_of(kind: type[Instruction], operation: Operation | None = None) -> st.SearchStrategy[Instruction]:
    fixed = {} if operation is None else {"operation": operation}
    variant = "window" if operation is not None and Vector(operation=operation).is_window else "source"
    free = {
        spec.name: _values(spec)
        for spec in fields_of(kind)
        if spec.name not in fixed and spec.variant in (None, variant)
    }
    return st.builds(kind, **free, **{name: st.just(value) for name, value in fixed.items()})


@pytest.fixture(scope="session")
def any_instruction() -> st.SearchStrategy[Instruction]:
    """Every instruction that can be encoded, extremes often."""
    plain = [_instructions_of(kind) for kind in OPCODES.values() if kind is not Vector]
    return st.one_of(*plain, *(_instructions_of(Vector, operation) for operation in Operation))
