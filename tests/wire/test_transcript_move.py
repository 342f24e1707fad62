"""The working directory in the header of a transcript that was moved: that alone is changed, in one step."""

import json
from pathlib import Path

import pytest

from wire.transcript_move import move_working_directory
from wire.transcript_repair import TranscriptLocked, open_locked

REST = b'{"type":"message"}\n{"torn'


def written(path: Path, first: bytes) -> Path:
    path.write_bytes(first + b"\n" + REST)
    return path


def test_the_header_alone_is_changed_and_the_file_is_its_owners(tmp_path: Path) -> None:
    path = written(tmp_path / "t", b'{"type":"session","id":"i","cwd":"/a/workspaces/w","more":[1]}')
    assert move_working_directory(path, {"/a/workspaces/w": "/b/workspaces/w"}.get)
    first, _, rest = path.read_bytes().partition(b"\n")
    assert json.loads(first) == {"type": "session", "id": "i", "cwd": "/b/workspaces/w", "more": [1]}
    assert (rest, path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (REST, 0o600, [path])


@pytest.mark.parametrize(
    "first", [b'{"type":"session","cwd":"/home"}', b'{"type":"session","cwd":5}', b'{"cwd"', b"[]", b""]
)
def test_any_other_file_stays_as_it_is(tmp_path: Path, first: bytes) -> None:
    path = written(tmp_path / "t", first)
    assert not move_working_directory(path, lambda cwd: cwd)
    assert path.read_bytes() == first + b"\n" + REST


def test_a_transcript_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "t", b'{"cwd":"/a"}')
    descriptor = open_locked(path)
    with pytest.raises(TranscriptLocked), open(descriptor, "rb"):  # noqa: PTH123 - it closes the descriptor
        move_working_directory(path, lambda _cwd: "/b")
