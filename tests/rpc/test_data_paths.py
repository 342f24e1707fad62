"""Paths in the store: those of the data directory follow it, all others stay."""

from pathlib import Path

import pytest

from errors import UsageError
from rpc.data_paths import DataPaths


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A data directory that is a link, beside another one and the directory of an agent of its own."""
    for name in ("real/sessions/pi/mine.jsonl", "other/sessions/pi/mine.jsonl", "other/supervisor.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "agent/sessions/--work--").mkdir(parents=True)
    (tmp_path / "agent/sessions/--work--/x.jsonl").touch()
    (tmp_path / "real/workspaces/pi").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    return tmp_path / "link"


@pytest.mark.parametrize("written_as", ["link", "real"])
def test_a_path_in_the_data_directory_is_stored_relative_and_comes_back(here: Path, written_as: str) -> None:
    paths = DataPaths(here)
    stored = paths.stored(str(here.parent / written_as / "sessions/pi/mine.jsonl"))
    assert stored == "sessions/pi/mine.jsonl"
    assert paths.used(stored) == str(here / "sessions/pi/mine.jsonl")
    assert (paths.stored(None), paths.used(None)) == (None, None)


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        ("{}/other/sessions/pi/mine.jsonl", "{}/link/sessions/pi/mine.jsonl"),
        ("{}/other/sessions/pi/not-here.jsonl", "{}/link/sessions/pi/not-here.jsonl"),  # the other supervisor's
        ("{}/gone/sessions/pi/lost.jsonl", "{}/link/sessions/pi/lost.jsonl"),
        ("{}/gone/workspaces/pi", "{}/link/workspaces/pi"),
        ("{}/agent/sessions/--work--/x.jsonl", "{}/agent/sessions/--work--/x.jsonl"),  # in no data directory
        ("{}/agent/sessions/--work--/gone.jsonl", "{}/agent/sessions/--work--/gone.jsonl"),
        ("{}/agent/workspaces/pi", "{}/agent/workspaces/pi"),  # though there is one of that name here
        ("{}/other/workspaces/pi", "{}/link/workspaces/pi"),
        ("/elsewhere/x.jsonl", "/elsewhere/x.jsonl"),
    ],
)
def test_an_absolute_path_of_an_older_store_becomes_the_one_here(here: Path, stored: str, used: str) -> None:
    assert DataPaths(here).used(stored.format(here.parent)) == used.format(here.parent)


def test_a_transcript_of_another_data_directory_is_refused(here: Path) -> None:
    paths = DataPaths(here)
    with pytest.raises(UsageError, match="belongs to the data directory"):
        paths.check_own(f"{here.parent}/other/sessions/pi/mine.jsonl")
    for own in ("real/sessions/pi/mine.jsonl", "agent/sessions/--work--/x.jsonl", "other/workspaces/x.jsonl"):
        paths.check_own(str(here.parent / own))
    inner = here.parent / "other/workspaces/inner"
    DataPaths(inner).check_own(f"{inner}/sessions/pi/mine.jsonl")
