"""A data directory that was copied, moved or restored: its supervisor goes on with the transcripts in it alone."""

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.supervisor import running_supervisor

pytestmark = pytest.mark.process


def transcripts(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.glob("sessions/*/*.jsonl")}


def first_life(data: Path) -> None:
    with running_supervisor(data, "--max", "1") as supervisor:
        supervisor.prompt("s", "remember 42")


def make_absolute(data: Path) -> None:
    """What stores of older versions hold."""
    with closing(sqlite3.connect(data / "pool.db")) as store, store:
        assert store.execute("UPDATE sessions SET transcript = ? || transcript", (f"{data}/",)).rowcount == 1


@pytest.mark.parametrize("is_old", [False, True])
def test_a_copy_and_a_moved_directory_go_on_with_their_own_transcripts(tmp_path: Path, *, is_old: bool) -> None:
    original, copy, moved = (tmp_path / name for name in "abc")
    first_life(original)
    if is_old:
        make_absolute(original)
    before = transcripts(original)
    shutil.copytree(original, copy)
    for file in copy.glob("pool.db*"):
        file.chmod(0o644)
    with running_supervisor(original, "--max", "1"), running_supervisor(copy, "--max", "1") as supervisor:
        assert "remember 42" in supervisor.prompt("s", "RECALL")
        assert (transcripts(original), transcripts(copy).keys()) == (before, before.keys())
        assert b'"cwd":"%s/workspaces/default"' % bytes(copy) in next(iter(transcripts(copy).values()))
        assert [stat.S_IMODE(file.stat().st_mode) for file in copy.glob("pool.db*")] == [0o600] * 3
        (line,) = supervisor.logged("modes_tightened")
        assert (line["level"], set(line["names"]) >= {"pool.db"}) == ("warning", True)
    copy.rename(moved)
    with running_supervisor(moved, "--max", "1") as supervisor:
        assert "remember 42" in supervisor.prompt("s", "RECALL")
        assert supervisor.logged("transcripts_missing") == []
    assert (transcripts(original), transcripts(moved).keys()) == (before, before.keys())


def test_a_conversation_whose_transcript_is_missing_is_not_begun_again_in_silence(tmp_path: Path) -> None:
    first_life(tmp_path)
    (name,) = transcripts(tmp_path)
    (tmp_path / name).rename(tmp_path / "elsewhere")
    with running_supervisor(tmp_path, "--max", "1") as supervisor:
        (line,) = supervisor.logged("transcripts_missing")
        assert (line["level"], line["count"], line["sessions"]) == ("warning", 1, ["s"])
        refused = supervisor.pool("prompt", "-s", "s", "RECALL")
        assert (refused.returncode != 0, refused.stdout) == (True, "")
        assert f"{name} is missing" in refused.stderr
        assert "put the file back and restart, or begin a new conversation: pool sessions reset s" in refused.stderr
    (tmp_path / "elsewhere").rename(tmp_path / name)
    with running_supervisor(tmp_path, "--max", "1") as supervisor:
        assert "remember 42" in supervisor.prompt("s", "RECALL")


def test_a_copy_whose_transcripts_are_a_link_to_the_originals_does_not_start_beside_it(tmp_path: Path) -> None:
    original, copy = tmp_path / "a", tmp_path / "b"
    first_life(original)
    shutil.copytree(original, copy)
    shutil.rmtree(copy / "sessions")
    (copy / "sessions").symlink_to(original / "sessions")
    with running_supervisor(original, "--max", "1") as supervisor:
        refused = supervisor.pool("run", "--data-dir", str(copy), "--socket", str(copy / "s"))
        assert refused.returncode != 0
        assert f"another supervisor writes the transcripts in {original / 'sessions'}" in refused.stderr
