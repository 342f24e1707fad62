"""Journals: what is appended for agents of others, and what a resume is given of it."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from errors import ProtocolViolation
from rpc.acp.options import JournalFacts
from rpc.dialect import JournalWrite
from rpc.journal import MAX_TAIL_BYTES, JournalWriter, read_journal
from wire.entries import MessageEntry, ProcessMark, SessionHeader, TextBlock, TranscriptMessage
from wire.transcript import TranscriptWriter, read_entries, read_header
from wire.transcript_repair import TranscriptDamaged, TranscriptForeign, TranscriptMissing, repair_transcript

OTHER_HEADER = SessionHeader(version=1, id="native-1", created="2026-01-31T10:00:00Z", cwd="/work")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Of a journal that is not there yet."""
    return str(tmp_path / "s1.jsonl")


def header(session: str = "s1", name: str = "s1") -> SessionHeader:
    return SessionHeader(version=1, id=name, created="", cwd="/work", agent="demo", agent_session=session)


def said(path: str, text: str, *, session: str | None = None) -> JournalWrite:
    """A message of the user; ``session``: it is the first one in that session of the agent."""
    message = TranscriptMessage("user", [TextBlock(text)])
    return JournalWrite(path, None if session is None else header(session, Path(path).stem), message)


def answered(path: str, text: str) -> JournalWrite:
    message = TranscriptMessage("assistant", [TextBlock(text)] if text else [], stop_reason="stop")
    return JournalWrite(path, None, message)


def written(path: str, *writes: JournalWrite) -> JournalWriter:
    """One that has written these."""
    writer = JournalWriter()
    assert writer.append(writes) is None
    return writer


def messages(path: str) -> list[tuple[int, str, str]]:
    entries = [entry for entry in read_entries(path) if isinstance(entry, MessageEntry)]
    return [(entry.seq, entry.message.role, entry.message.text) for entry in entries]


def facts(path: str) -> JournalFacts:
    return read_journal(path).facts


def marked(path: str, state: str) -> JournalWrite:
    return JournalWrite(path, process=ProcessMark(state))


def test_the_first_message_begins_a_private_file_and_the_rest_follows(path: str) -> None:
    written(path, said(path, "hi", session="s1"), answered(path, "hello"), said(path, "again"))
    assert messages(path) == [(1, "user", "hi"), (2, "assistant", "hello"), (3, "user", "again")]
    found = read_header(path)
    assert (found.agent, found.agent_session, found.cwd) == ("demo", "s1", "/work")
    assert found.created.endswith("+00:00")
    assert Path(path).stat().st_mode & 0o077 == 0


def test_what_a_resume_is_given_are_the_facts_of_the_file(path: str) -> None:
    written(path, said(path, "hi", session="s1"), answered(path, "hello"), said(path, "again"), answered(path, ""))
    tail = "user:\nhi\n\nassistant:\nhello\n\nuser:\nagain\n\nassistant:"
    assert read_journal(path) == (JournalFacts("s1", "/work", 2, "again", tail), 4)


def test_of_several_headers_the_last_one_says_where_the_agent_has_the_conversation(path: str) -> None:
    """And the numbers of the entries go on behind it."""
    written(path, said(path, "hi", session="s1"), answered(path, "hello"), said(path, "again", session="s2"))
    assert facts(path).agent_session == "s2"
    assert read_header(path).agent_session == "s1"
    assert [seq for seq, _, _ in messages(path)] == [1, 2, 3]
    assert repair_transcript(path, dialect="acp").intact


@pytest.mark.parametrize("is_known", [True, False])
def test_a_later_writer_goes_on_with_the_numbers(path: str, is_known: bool) -> None:  # noqa: FBT001  # a parameter
    written(path, said(path, "hi", session="s1"), answered(path, "hello")).close()
    later = JournalWriter()
    if is_known:
        later.resumed(path, read_journal(path).last_seq)
    assert later.append([said(path, "again")]) is None
    assert [seq for seq, _, _ in messages(path)] == [1, 2, 3]


def test_one_writer_serves_several_conversations_in_turn(path: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.jsonl")
    writer = written(path, said(path, "a", session="s1"), said(other, "b", session="s2"), answered(path, "c"))
    assert writer.append([answered(other, "d")]) is None
    assert messages(path) == [(1, "user", "a"), (2, "assistant", "c")]
    assert messages(other) == [(1, "user", "b"), (2, "assistant", "d")]


@pytest.mark.parametrize("letter", ["x", "é"])
@pytest.mark.parametrize("count", [1, 2, 200])
def test_the_tail_is_the_end_of_the_talk_and_at_most_64_KiB(  # noqa: N802 - a unit
    path: str, letter: str, count: int
) -> None:
    long = [text for number in range(count) for text in (f"q{number} " + letter * 40_000, f"a{number}")]
    writes = [(said if index % 2 == 0 else answered)(path, text) for index, text in enumerate(long)]
    written(path, said(path, "first", session="s1"), answered(path, "one"), *writes)
    tail = facts(path).tail
    is_cut = letter == "é" or count > 1
    assert MAX_TAIL_BYTES - 8 <= len(tail.encode()) <= MAX_TAIL_BYTES if is_cut else tail.startswith("user:\nfirst")
    assert tail.endswith(f"assistant:\na{count - 1}")


def test_a_torn_end_is_as_if_it_were_not_there_and_is_cut_by_the_repair(path: str) -> None:
    written(path, said(path, "hi", session="s1"), answered(path, "hello"))
    with Path(path).open("ab") as file:
        file.write(b'{"type":"message","seq":3,"ts":1.0,"mess')
    assert (facts(path).turns, read_journal(path).last_seq) == (1, 2)
    report = repair_transcript(path, dialect="acp")
    assert report.cut_bytes > 0
    assert report.torn_file is not None
    written(path, said(path, "again"))
    assert [text for _, _, text in messages(path)] == ["hi", "hello", "again"]


@pytest.mark.parametrize("room", [0, 10])
def test_a_full_disk_ends_the_worker_and_leaves_no_half_entry(
    path: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = written(path, said(path, "hi", session="s1"))
    before = Path(path).read_bytes()
    real_write, size = os.write, len(before) + room

    def full(descriptor: int, data: bytes) -> int:
        if os.fstat(descriptor).st_size >= size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:room])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        failure = writer.append([answered(path, "lost"), said(path, "lost too")])
    assert isinstance(failure, ProtocolViolation)
    assert "its conversation cannot be recorded" in failure.message
    assert "No space left" in failure.message
    assert Path(path).read_bytes() == before


def test_a_conversation_that_cannot_be_begun_ends_the_worker(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "s1.jsonl")
    failure = JournalWriter().append([said(path, "hi", session="s1")])
    assert isinstance(failure, ProtocolViolation)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_journal_that_was_removed_ends_the_worker_and_no_other_is_begun(path: str, *, is_open: bool) -> None:
    writer = written(path, said(path, "hi", session="s1"))
    if not is_open:
        writer.close()
    Path(path).unlink()
    failure = writer.append([answered(path, "hello")])
    assert isinstance(failure, ProtocolViolation)
    assert f"there is no transcript {path}" in failure.message
    assert not Path(path).exists()


def test_a_journal_that_was_replaced_by_a_copy_of_it_goes_on(path: str) -> None:
    writer = written(path, said(path, "hi", session="s1"))
    copy = Path(f"{path}.copy")
    copy.write_bytes(Path(path).read_bytes())
    copy.rename(path)
    assert writer.append([answered(path, "hello")]) is None
    assert [text for _, _, text in messages(path)] == ["hi", "hello"]


def test_two_journals_that_were_exchanged_are_refused_and_stay_as_they_are(path: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.jsonl")
    writer = written(path, said(other, "b", session="s2"), said(path, "a", session="s1"))
    Path(path).rename(tmp_path / "kept")
    Path(other).rename(path)
    (tmp_path / "kept").rename(other)
    before = Path(path).read_bytes(), Path(other).read_bytes()
    for each, owner in ((path, "other"), (other, "s1")):
        words = f"{each} is the journal of another conversation, {owner}"
        with pytest.raises(TranscriptDamaged, match=words):
            read_journal(each)
        failure = writer.append([answered(each, "c")])
        assert isinstance(failure, ProtocolViolation)
        assert words in failure.message
    assert (Path(path).read_bytes(), Path(other).read_bytes()) == before


# --- whether the last process has closed it ---


def after_a_turn(path: str, answer: str = "stop") -> JournalWriter:
    message = TranscriptMessage("assistant", [TextBlock("hello")], stop_reason=answer)
    return written(path, said(path, "hi", session="s1"), JournalWrite(path, None, message))


def test_a_process_that_ends_in_order_closes_its_conversation_until_something_follows(path: str) -> None:
    after_a_turn(path).process_ended(in_order=True)
    assert facts(path).closed_cleanly
    before = read_journal(path)
    assert [text for _, _, text in messages(path)] == ["hi", "hello"], "for readers nothing has changed"
    assert repair_transcript(path, dialect="acp").intact
    assert (before.last_seq, before.facts.turns) == (2, 1)
    for later in (said(path, "again"), said(path, "again", session="s2"), marked(path, "opened"), marked(path, "new")):
        written(path, marked(path, "closed"), later)
        assert not facts(path).closed_cleanly, later


@pytest.mark.parametrize(
    "end", ["killed", "in a turn", "aborted", "lost", "opened elsewhere", "goes on elsewhere", "removed"]
)
def test_an_end_that_may_have_lost_something_closes_nothing(path: str, end: str) -> None:
    writer = after_a_turn(path, "aborted" if end == "aborted" else "stop")
    if end == "in a turn":
        assert writer.append([said(path, "again")]) is None
    elif end == "lost":
        assert writer.append([marked(path, "lost")]) is None
    elif end == "opened elsewhere":
        written(path, marked(path, "opened")).close()
    elif end == "goes on elsewhere":
        after_a_turn(path).close()
    elif end == "removed":
        writer.close()
        Path(path).unlink()
    writer.process_ended(in_order=end != "killed")
    assert not Path(path).exists() if end == "removed" else not facts(path).closed_cleanly


def test_every_conversation_of_the_process_is_closed_by_its_end_up_to_twenty(path: str) -> None:
    paths = [path.replace(".jsonl", f"{number}.jsonl") for number in range(21)]
    writer = written(path, *(write for each in paths for write in (said(each, "hi", session="s"), answered(each, "x"))))
    writer.process_ended(in_order=True)
    assert [facts(each).closed_cleanly for each in paths] == [False] + [True] * 20


def test_a_conversation_is_not_taken_up_where_that_cannot_be_recorded(path: str) -> None:
    """Else the mark of its last process would still hold; a mark that only spares a load may be missing."""
    assert JournalWriter().append([marked(path, "closed")]) is None
    assert isinstance(JournalWriter().append([marked(path, "opened")]), ProtocolViolation)


# --- what is no journal -----------------------------------------------------------------------------------------------


def test_there_may_be_none(path: str) -> None:
    with pytest.raises(TranscriptMissing):
        read_journal(path)


def test_a_transcript_of_the_bundled_agent_is_none(path: str) -> None:
    TranscriptWriter.create(path, OTHER_HEADER).close()
    with pytest.raises(TranscriptDamaged, match="is no journal of an ACP agent"):
        read_journal(path)
    with pytest.raises(TranscriptForeign, match="of the native dialect, and the agent speaks acp"):
        repair_transcript(path, dialect="acp")


def test_a_session_of_pi_is_none(path: str) -> None:
    Path(path).write_text('{"type":"session","version":3,"id":"x","timestamp":"2026-01-31T10:00:00Z","cwd":"/"}\n')
    with pytest.raises(TranscriptForeign, match="of the pi dialect, and the agent speaks acp"):
        repair_transcript(path, dialect="acp")


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_no_other_agent_goes_on_with_a_journal(path: str, dialect: str) -> None:
    written(path, said(path, "hi", session="s1"))
    before = Path(path).read_bytes()
    with pytest.raises(TranscriptForeign, match=f"of the acp dialect, and the agent speaks {dialect}"):
        repair_transcript(path, dialect=dialect)
    assert Path(path).read_bytes() == before


BROKEN = ['{"type":"process"}', '{"type":"session","version":1}', '{"type":"session","id":7}', '{"type":"message"}']


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_line_is_damage(path: str, line: str) -> None:
    written(path, said(path, "hi", session="s1"))
    with Path(path).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(TranscriptDamaged):
        read_journal(path)


def test_entries_of_a_later_version_are_passed_over(path: str) -> None:
    written(path, said(path, "hi", session="s1"))
    with Path(path).open("ab") as file:
        file.write(msgspec.json.encode({"type": "later", "seq": 7}) + b"\n")
    assert read_journal(path).last_seq == 7
    written(path, answered(path, "hello"))
    assert [seq for seq, _, _ in messages(path)] == [1, 8]
