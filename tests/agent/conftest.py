"""Every test of the agent works in a directory and a home of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.fake_openai import FakeOpenAI, serving


@pytest.fixture(scope="session")
def server() -> Iterator[FakeOpenAI]:
    """A fake model server."""
    with serving() as server:
        yield server


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
