"""What the tests of searches share."""

from pathlib import Path

import pytest


@pytest.fixture
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which this process keeps evaluations, and nothing else."""
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr("npukit.exploration.evaluate.cache_folder", lambda _: folder)
    return folder
