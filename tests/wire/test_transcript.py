"""Transcripts: what was acknowledged survives any crash, and nothing is overwritten or lost in silence."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.entries import (
    CallApproval,
    CallEntry,
    CallRecord,
    CallState,
    CallTransition,
    CompactionEntry,
    ImageBlock,
    MessageEntry,
    SessionHeader,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
    UnknownEntry,
)
from wire.transcript import TranscriptWriter, read_entries, read_header
from wire.transcript_repair import (
    TranscriptDamaged,
    TranscriptError,
    TranscriptForeign,
    TranscriptLocked,
    TranscriptMissing,
    repair_transcript,
)

HEADER = SessionHeader(1, "abc", "2026-01-31T10:00:00Z", "/work")
HEADER_LINE = msgspec.json.encode(HEADER) + b"\n"
DEEP = b'{"type":"session","id":"s","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
"""Nested deeper than any decoder goes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


@contextmanager
def left_alone(path: Path, content: bytes) -> Iterator[None]:
    """The file has this content before and after the block, and no other lies beside it."""
    path.write_bytes(content)
    yield
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def said(seq: int, text: str) -> MessageEntry:
    return MessageEntry(seq, 1.5, TranscriptMessage("user", [TextBlock(text)]))


def write(path: Path, *texts: str) -> bytes:
    writer = TranscriptWriter.create(path, HEADER)
    for seq, text in enumerate(texts, 1):
        writer.append(said(seq, text))
    writer.sync()
    writer.close()
    return path.read_bytes()


def texts_of(path: Path) -> list[str]:
    return [entry.message.text for entry in read_entries(path) if isinstance(entry, MessageEntry)]


# --- writing and reading --------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "s.jsonl"
    entries = [
        said(3, "hello\u2028there\n"),
        MessageEntry(4, 2.0, TranscriptMessage("assistant", [ToolUseBlock("c1", "exec", {"command": "ls"})])),
        MessageEntry(5, 2.5, TranscriptMessage("user", [ToolResultBlock("c1", {"ok": True})], origin="tool")),
        CompactionEntry(6, 3.0, "what was", 4),
    ]
    writer = TranscriptWriter.create(path, HEADER)
    for entry in entries:
        writer.append(entry)  # type: ignore[arg-type]  # the list's type is wider than its members
    writer.close()
    assert list(read_entries(path)) == entries
    assert read_header(path) == HEADER


def test_a_call_and_its_history_are_read_back_whole(path: Path) -> None:
    record = CallRecord(
        "c1",
        "exec",
        CallState.DENIED,
        approval=CallApproval("listed", "deny", "not today", "ann"),
        result={"ok": False},
        images=[ImageBlock("AAAA")],
        error="denied",
        completed_at=2.0,
        audit=[CallTransition(CallState.PENDING, 1.0), CallTransition(CallState.DENIED, 2.0, "not today")],
    )
    writer = TranscriptWriter.create(path, HEADER)
    writer.append(CallEntry(3, 1.5, record))
    writer.close()
    (entry,) = read_entries(path)
    assert entry == CallEntry(3, 1.5, record)
    assert b'"input"' not in path.read_bytes()


def test_after_a_failed_sync_nothing_is_said_to_be_safe_until_the_transcript_was_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "a")

    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    writer = TranscriptWriter.open(path)
    writer.append(said(2, "b"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(TranscriptError, match="Input/output error"):
            writer.sync()
    with pytest.raises(TranscriptError, match="may be lost"):
        writer.sync()
    with pytest.raises(TranscriptError, match="may be lost"):
        writer.append(said(3, "c"))
    writer.close()
    writer = TranscriptWriter.open(path)
    writer.append(said(3, "c"))
    writer.sync()
    writer.close()
    assert texts_of(path) == ["a", "b", "c"]


def test_a_transcript_is_private(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "s.jsonl"
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_an_existing_file_is_never_begun_anew(path: Path) -> None:
    before = write(path, "a")
    with pytest.raises(TranscriptError, match="exists"):
        TranscriptWriter.create(path, HEADER)
    assert path.read_bytes() == before


def test_a_second_writer_is_refused_until_the_first_has_closed(path: Path) -> None:
    first = TranscriptWriter.create(path, HEADER)
    with pytest.raises(TranscriptLocked, match="another process"):
        TranscriptWriter.open(path)
    with pytest.raises(TranscriptLocked):
        repair_transcript(path)
    first.close()
    first.close()
    TranscriptWriter.open(path).close()


def test_a_resumed_transcript_goes_on_after_its_last_whole_entry(path: Path) -> None:
    whole = write(path, "a", "b")
    path.write_bytes(whole + b'{"type":"message","se')
    assert texts_of(path) == ["a", "b"], "reading stops before it"
    writer = TranscriptWriter.open(path)
    writer.append(said(9, "c"))
    writer.close()
    assert texts_of(path) == ["a", "b", "c"]
    assert writer.report is not None
    assert writer.report.torn_file is not None


def test_entries_of_unknown_types_are_kept(path: Path) -> None:
    line = b'{"type":"bookmark","seq":7,"until":12}'
    path.write_bytes(HEADER_LINE + line + b'\n{"no":"type"}\n{"type":5}\n')
    assert list(read_entries(path)) == [
        UnknownEntry("bookmark", 7, line),
        UnknownEntry("", 0, b'{"no":"type"}'),
        UnknownEntry("", 0, b'{"type":5}'),
    ]


def test_an_entry_of_a_known_type_with_a_wrong_shape_is_damage(path: Path) -> None:
    path.write_bytes(HEADER_LINE + b'{"type":"message","seq":"x"}\n')
    with pytest.raises(TranscriptDamaged, match="broken entry"):
        list(read_entries(path))


def test_a_newer_format_is_refused(path: Path) -> None:
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(HEADER, version=99)) + b"\n")
    with pytest.raises(TranscriptDamaged, match="newer"):
        TranscriptWriter.open(path)


def test_a_full_disk_leaves_no_half_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TranscriptWriter.create(path, HEADER)
    writer.append(said(1, "a"))
    before = path.read_bytes()
    real_write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:-10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(TranscriptError, match="No space left"):
            writer.append(said(2, "lost"))
    assert path.read_bytes() == before
    writer.append(said(3, "b"))
    writer.close()
    assert texts_of(path) == ["a", "b"]


# --- repair ---------------------------------------------------------------------------------------------------------


def test_an_intact_transcript_is_left_untouched(path: Path) -> None:
    before = write(path, "a", "b")
    report = repair_transcript(path)
    assert report.intact
    assert (report.session_id, report.entries) == ("abc", 2)
    assert path.read_bytes() == before


def test_a_torn_last_line_is_cut_and_kept_aside(path: Path) -> None:
    whole = write(path, "a")
    for number, torn in enumerate((b'{"type":"message","seq":2,"mess', b"\0\0\0\0", b"\xff\xfe", b'{"half":\n'), 1):
        path.write_bytes(whole + torn)
        report = repair_transcript(path)
        assert path.read_bytes() == whole
        assert report.cut_bytes == len(torn)
        assert report.torn_file == f"{path}.torn-{number}"
        assert Path(report.torn_file).read_bytes() == torn
        assert stat.S_IMODE(Path(report.torn_file).stat().st_mode) == 0o600


def test_a_whole_last_line_that_lacks_only_its_end_is_completed(path: Path) -> None:
    whole = write(path, "a", "b")
    path.write_bytes(whole[:-1])
    report = repair_transcript(path)
    assert report.completed
    assert report.torn_file is None
    assert path.read_bytes() == whole


def test_a_transcript_of_pi_is_repaired_as_well(tmp_path: Path) -> None:
    path = tmp_path / "pi.jsonl"
    whole = PI_HEADER + b'{"type":"model_change","id":"x","parentId":null,"provider":"fake"}\n'
    path.write_bytes(whole + b'{"type":"message","id":"y","parentId":"x","mess')
    report = repair_transcript(path)
    assert report.session_id == "ae0e"
    assert path.read_bytes() == whole


PI_HEADER = b'{"type":"session","version":3,"id":"ae0e","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'


@pytest.mark.parametrize("before", [1, 15])
def test_a_header_that_is_not_the_first_line_is_refused_with_its_place(path: Path, before: int) -> None:
    content = b'{"type":"title","title":"x"}\n' * before + PI_HEADER + b'{"type":"message","torn'
    words = rf'its type is "title"; the header is line {before + 1}: make it the'
    with left_alone(path, content), pytest.raises(TranscriptDamaged, match=words):
        repair_transcript(path, dialect="pi")


@pytest.mark.parametrize(("header", "dialect"), [(HEADER_LINE, "pi"), (PI_HEADER, "native")])
def test_a_transcript_of_another_dialect_is_refused_and_left_alone(path: Path, header: bytes, dialect: str) -> None:
    with (
        left_alone(path, header + b'{"type":"message","torn'),
        pytest.raises(TranscriptForeign, match=f"and the agent speaks {dialect}"),
    ):
        repair_transcript(path, dialect=dialect)


def test_the_native_writer_touches_no_transcript_of_pi(path: Path) -> None:
    with left_alone(path, PI_HEADER + b"torn"), pytest.raises(TranscriptForeign):
        TranscriptWriter.open(path)


@pytest.mark.parametrize(("header", "dialect"), [(HEADER_LINE, "native"), (PI_HEADER, "pi")])
def test_a_transcript_of_the_own_dialect_is_taken(path: Path, header: bytes, dialect: str) -> None:
    path.write_bytes(header)
    assert repair_transcript(path, dialect=dialect).intact


@pytest.mark.parametrize("middle", [b"garbage", b"null", b"[1]", b'{"a":', b'{"text":"\xff"}', DEEP])
def test_damage_in_the_middle_is_an_error_and_nothing_is_cut(path: Path, middle: bytes) -> None:
    content = HEADER_LINE + middle + b'\n{"type":"message"}\n'
    with left_alone(path, content), pytest.raises(TranscriptDamaged, match="line 2"):
        repair_transcript(path)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"hello\n", b"\x89PNG\r\n\x1a\n\0\0", b'{"type":"message"}\n'),
        *(HEADER_LINE[:20], b"[]\n", b"null\n"),
        DEEP + b"\n",
        b'{"type":"session","timestamp":"2026-01-01T00:00:00.000Z"}\n',
        b'{"type":"session","id":7,"timestamp":"2026-01-01T00:00:00.000Z"}\n',
        b'{"type":"title"}\n' * 16 + PI_HEADER,
    ],
)
def test_what_is_no_transcript_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    for touch in (repair_transcript, TranscriptWriter.open):
        with left_alone(path, content), pytest.raises(TranscriptDamaged):
            touch(path)


def test_a_missing_file_stays_missing(path: Path) -> None:
    for read in (repair_transcript, TranscriptWriter.open, read_header):
        with pytest.raises(TranscriptMissing):
            read(path)
    assert not path.exists()


def test_a_directory_and_a_named_pipe_are_no_transcripts(tmp_path: Path) -> None:
    with pytest.raises(TranscriptDamaged):
        repair_transcript(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TranscriptDamaged):
        repair_transcript(tmp_path / "pipe")


def test_blank_lines_and_carriage_returns_are_no_damage(path: Path) -> None:
    content = HEADER_LINE + b'\n{"type":"x"}\r\n\n'
    path.write_bytes(content)
    assert repair_transcript(path).intact
    assert [entry.line for entry in read_entries(path) if isinstance(entry, UnknownEntry)] == [b'{"type":"x"}']


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.data())
def test_wherever_a_crash_cuts_the_file_every_whole_entry_survives(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "s.jsonl"
    whole = write(path, *texts)
    length = data.draw(st.integers(len(HEADER_LINE), len(whole)))
    path.write_bytes(whole[:length])
    report = repair_transcript(path)
    kept = path.read_bytes()
    torn = Path(report.torn_file).read_bytes() if report.torn_file else b""
    assert whole.startswith(kept)
    assert (kept[:-1] if report.completed else kept + torn) == whole[:length]
    assert texts_of(path) == texts[: report.entries]
    assert repair_transcript(path).intact
