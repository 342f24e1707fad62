"""Transcripts between node and home: whatever happens to the file there, the copy here becomes the same."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import mirror as mirror_module
from cluster.frames import CHUNK_BYTES, LinkViolation
from cluster.messages import Piece
from cluster.mirror import TranscriptMirror
from cluster.node.follower import ResumedTranscript, TranscriptFollower

Change = Callable[[Path, bytes], None]
SIZES = st.sampled_from((0, 10, 90, 2 * CHUNK_BYTES))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def replace(path: Path, data: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(data)
    draft.replace(path)


def write_over(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def cut(path: Path, data: bytes) -> None:
    if path.exists():
        os.truncate(path, min(len(data), path.stat().st_size))


def sides(directory: str) -> tuple[Path, Path]:
    """The directory of transcripts at home, and the file's place on the node."""
    home, node = Path(directory, "home"), Path(directory, "node")
    (home / "main").mkdir(parents=True)
    node.mkdir()
    return home, node / "t.jsonl"


def entry(number: int, size: int) -> bytes:
    return b'{"id":%d,"text":"%s"}\n' % (number, b"%02d" % number * (size // 2))


@settings(max_examples=30)  # each look is synced to the disk
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from([append, append, append, replace, write_over, cut]),
            st.integers(0, 99),
            SIZES,
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_whatever_happens_to_the_file_its_copy_is_the_same_after_the_next_look(
    changes: list[tuple[Change, int, int, bool]],
) -> None:
    with TemporaryDirectory() as directory:
        home, file = sides(directory)
        mirror = TranscriptMirror(home, str(home / "main" / "t.jsonl"))
        follower = TranscriptFollower(file, 0, 1)
        for change, number, size, is_looked_at in changes:
            change(file, entry(number, size))
            if is_looked_at:
                mirror.write(list(follower.pieces()))
        mirror.write(list(follower.pieces()))
        assert (home / "main" / "t.jsonl").exists() == file.exists()
        assert not file.exists() or (home / "main" / "t.jsonl").read_bytes() == file.read_bytes()
        assert list(follower.pieces()) == [], "what was shipped is shipped once"
        mirror.close()


def test_an_appended_entry_is_all_that_is_shipped() -> None:
    with TemporaryDirectory() as directory:
        _, file = sides(directory)
        file.write_bytes(b"one\n")
        follower = TranscriptFollower(file, 4, 7)
        append(file, b"two\n")
        assert list(follower.pieces()) == [Piece(4, b"two\n", number=7)]


def bring_up(node: Path, home: bytes) -> None:
    """What ``RemoteProcess.prepare_resume`` asks of a node, for a small file."""
    resumed = ResumedTranscript(node)
    there = resumed.compare(len(home))
    if there.size is None or hashlib.sha256(home[: there.size]).digest() != there.sha256:
        resumed.put(Piece(0, home, is_whole=True))
    elif there.size != len(home):
        at = min(there.size, len(home))
        resumed.put(Piece(at, home[at:]))


@pytest.mark.parametrize(
    ("there", "aside"),
    [
        (None, None),
        (b"one\n", None),
        (b"one\ntwo\n", None),
        (b"one\ntwo\nthree", b"three"),
        (b"another\n", b"another\n"),
        (b"", None),
    ],
)
def test_a_node_that_resumes_has_the_file_of_home_and_keeps_aside_what_was_never_acknowledged(
    tmp_path: Path, there: bytes | None, aside: bytes | None
) -> None:
    file = tmp_path / "main" / "t.jsonl"
    if there is not None:
        file.parent.mkdir()
        file.write_bytes(there)
    bring_up(file, b"one\ntwo\n")
    assert file.read_bytes() == b"one\ntwo\n"
    kept = file.with_name("t.jsonl.unacknowledged")
    assert (kept.read_bytes() if kept.exists() else None) == aside


@pytest.mark.parametrize(
    "path", ["../t.jsonl", "main/../../t.jsonl", "/etc/passwd", "link/t.jsonl", "main/link.jsonl", ""]
)
def test_a_mirror_writes_below_its_directory_alone_and_follows_no_link(tmp_path: Path, path: str) -> None:
    home, _ = sides(str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (home / "link").symlink_to(tmp_path / "elsewhere")
    (home / "main" / "link.jsonl").symlink_to(tmp_path / "elsewhere" / "t.jsonl")
    with pytest.raises((OSError, ValueError)):
        TranscriptMirror(home, str(home / path)).write([Piece(0, b"x")])
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("offset", [2, 5, 0], ids=["in what is there", "beyond it", "again"])
def test_a_piece_that_leaves_a_hole_or_comes_twice_is_a_violation(tmp_path: Path, offset: int) -> None:
    home, _ = sides(str(tmp_path))
    mirror = TranscriptMirror(home, str(home / "main" / "t.jsonl"))
    mirror.write([Piece(0, b"one\n")])
    with pytest.raises(LinkViolation):
        mirror.write([Piece(offset, b"x")])
    assert (home / "main" / "t.jsonl").read_bytes() == b"one\n"
    mirror.close()


def open_files() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_a_copy_that_cannot_be_opened_leaves_no_descriptor_open(tmp_path: Path) -> None:
    home, _ = sides(str(tmp_path))
    (home / "main" / "t.jsonl").mkdir()
    before = open_files()
    with pytest.raises(OSError, match="directory"):
        TranscriptMirror(home, str(home / "main" / "t.jsonl"))
    assert open_files() == before


def test_a_file_that_did_not_come_to_its_end_leaves_nothing(tmp_path: Path) -> None:
    home, _ = sides(str(tmp_path))
    mirror = TranscriptMirror(home, str(home / "main" / "t.jsonl"))
    mirror.write([Piece(0, b"one\n", is_whole=True, is_last=False)])
    mirror.close()
    assert list((home / "main").iterdir()) == []


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(0, b"one\n", is_whole=True, is_last=False), Piece(4, b"two\n", is_whole=True)],
        [Piece(0, b"one\n"), Piece(4, b"two\n")],
    ],
    ids=["whole", "appended"],
)
@pytest.mark.parametrize("refused", ["pwrite", "fdatasync", "sync_directory"])
def test_what_a_full_disk_refuses_is_written_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[Piece], refused: str
) -> None:
    home, _ = sides(str(tmp_path))
    mirror = TranscriptMirror(home, str(home / "main" / "t.jsonl"))
    owner = mirror_module if refused == "sync_directory" else os
    fulfil, synced = getattr(owner, refused), list[Path]()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(owner, refused, refuse)
    with pytest.raises(OSError, match="No space"):
        mirror.write(pieces)
    monkeypatch.setattr(owner, refused, fulfil)
    monkeypatch.setattr(mirror_module, "sync_directory", synced.append)
    mirror.write(pieces)
    assert (home / "main" / "t.jsonl").read_bytes() == b"one\ntwo\n"
    assert synced == [home / "main"], "the new entry is on the disk, too"
    mirror.close()
