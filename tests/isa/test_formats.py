"""Number formats agree with numpy and ml_dtypes, and a configuration's sizes with its formats."""

import ml_dtypes
import numpy as np
import pytest
from npukit.isa.config import PRESETS, NpuConfig
from npukit.isa.formats import BFLOAT16, DATAPATHS, FLOAT32, INT8, INT32, NumberFormat


@pytest.mark.parametrize("one", [INT8, INT32, BFLOAT16, FLOAT32], ids=lambda one: one.name)
def test_format_is_that_of_the_library(one: NumberFormat) -> None:
    theirs = np.dtype(getattr(ml_dtypes, one.name, one.name))
    assert theirs.itemsize == np.dtype(one.storage).itemsize == one.bytes
    assert 8 * one.bytes == one.bits
    assert one.floating == (theirs.kind not in "iu")


@pytest.mark.parametrize("one", [INT8, BFLOAT16], ids=lambda one: one.name)
def test_stored_numbers_are_those_of_the_storage(one: NumberFormat) -> None:
    assert len(one.stored) == 1 << one.bits
    assert one.storage(one.stored[0]) == one.stored[0] and one.storage(one.stored[-1]) == one.stored[-1]


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_words_hold_their_formats(config: NpuConfig) -> None:
    assert config.datapath is DATAPATHS[config.dtype]
    assert config.word_bytes == config.array * config.activation.bytes
    assert config.wide_word_bytes == config.array * config.accumulator.bytes
    assert config.activation.floating == config.accumulator.floating == config.datapath.weight.floating
