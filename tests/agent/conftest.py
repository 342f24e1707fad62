"""Every test of the agent works in a directory and a home of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return place


@pytest.fixture
def sessions(tmp_path: Path) -> str:
    return str(tmp_path / "sessions")
