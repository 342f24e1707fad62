"""The conversation that a worker holds: messages in memory and their transcript on disk, always in step.

A message is in memory only once its entry is written. A conversation gets its file with its first message; until then
there is nothing to resume, and a worker that is to go on with it begins a new one.
"""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec
import trio

from agent.idle import BeforeWaiting
from agent.output import WorkerOutput
from wire.entries import (
    FORMAT_VERSION,
    CacheTtlEntry,
    CallEntry,
    CallRecord,
    CompactionEntry,
    ExecEntry,
    ExecRecord,
    KnownEntry,
    MessageEntry,
    SessionHeader,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
    outputs_directory,
)
from wire.messages import Bookmark
from wire.transcript import TranscriptWriter, read_entries, read_header
from wire.transcript_repair import TranscriptError, TranscriptMissing


class _CommitWaiter:
    """Waits until ``wanted`` entries are on the disk."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.task = trio.lowlevel.current_task()
        self.failure: Exception | None = None


class GroupCommit:
    """Brings entries to the disk: one commit for all that are written before it begins, never two at once.

    ``commit`` begins one, and has what it is given called in the event loop at its end, with the failure if it failed.
    A commit begins when the tasks that can run have run. Those who wait for one that fails hear of it; ``commit`` has
    to remember it for those who come later. ``hook`` is on the event loop from the first commit to the last one.
    """

    def __init__(self, commit: Callable[[Callable[[Exception | None], None]], None]) -> None:
        self._commit = commit
        self.hook = BeforeWaiting(self._begin)
        self._is_open = self._is_due = self._is_committing = self._is_closed = False
        self._waiting: list[_CommitWaiter] = []
        # Numbers of entries; each is at most the one before it.
        self._written = self._begun = self._safe = 0

    def mark_written(self) -> None:
        """One more entry is written."""
        self._written += 1

    def begin(self) -> None:
        """Bring what is written by now to the disk, without waiting for it."""
        if not self._is_due and self._written > (self._begun if self._is_committing else self._safe):
            self._is_due = True
            if not self._is_open:
                self._is_open = True
                trio.lowlevel.add_instrument(self.hook)

    async def wait(self) -> None:
        """Wait until what is written by now is on the disk, also when cancelled. Raises what ``commit`` raises."""
        self.begin()
        if self._safe == self._written:
            return
        waiter = _CommitWaiter(self._written)
        self._waiting.append(waiter)
        await trio.lowlevel.wait_task_rescheduled(_stay_blocked)
        if waiter.failure is not None:
            raise waiter.failure

    def close(self) -> None:
        """Begin no commit that is not waited for, and leave the event loop after the last that is."""
        self._is_closed = True
        if self._is_open and not self._waiting:
            self._is_open = self._is_due = False
            trio.lowlevel.remove_instrument(self.hook)

    def _begin(self) -> None:
        if self._is_due and not self._is_committing:
            self._is_due, self._is_committing = False, True
            self._begun = self._written
            try:
                self._commit(self._end)
            except Exception as exc:  # noqa: BLE001 - each waiter raises it
                trio.lowlevel.current_trio_token().run_sync_soon(self._end, exc)

    def _end(self, failure: Exception | None) -> None:
        """End the waits for what was written when the commit began."""
        self._is_committing = False
        if failure is None:
            self._safe = self._begun
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.wanted > self._begun:
                self._waiting.append(waiter)
            else:
                waiter.failure = failure
                trio.lowlevel.reschedule(waiter.task)
        if self._is_closed:
            self.close()


def _stay_blocked(_raise_cancel: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


_MAX_COMMANDS = 50


class Conversation:
    """One conversation, oldest message first.

    ``messages`` only grows; a compaction puts another list in its place.
    ``numbers`` are the messages' seqs, index for index; ``last_seq`` is the highest one found in a resumed transcript.
    ``records`` are the last ones of calls that have no result in a message yet, by call id; ``open_calls`` all calls
    without one. ``commands`` are the background commands of a resumed transcript, by name. ``safe_index`` is the last
    message after which no call was open (-1: none), ``bookmark`` the last message's seq and time.
    """

    def __init__(self, header: SessionHeader, output: WorkerOutput, path: Path | None) -> None:
        self.header = header
        self.path = path
        self.messages: list[TranscriptMessage] = []
        self.seqs: list[int] = []
        self.records: dict[str, CallRecord] = {}
        self.last_seq = 0
        self.open_calls: dict[str, ToolUseBlock] = {}
        self.commands: dict[str, ExecRecord] = {}
        self.safe_index = -1
        self.bookmark: Bookmark | None = None
        self._allowed: set[str] = set()
        self._output = output
        self._writer: TranscriptWriter | None = None
        self._commit = GroupCommit(self._sync_writer)

    @property
    def session_file(self) -> str | None:
        """The transcript's path, where one is kept; the file is made with the first message."""
        return None if self.path is None else str(self.path)

    @cached_property
    def outputs(self) -> str:
        """The directory (a real path) for full outputs of its tools; ``close`` removes it if there is no transcript."""
        if self.path is None:
            return os.path.realpath(outputs_directory(f"{tempfile.gettempdir()}/agent-{self.header.id}"))
        return os.path.realpath(outputs_directory(str(self.path)))

    def resume(self, writer: TranscriptWriter) -> None:
        """Take over a transcript and load it. Raises TranscriptError."""
        self._writer = writer
        for entry in read_entries(writer.path):
            self.last_seq = max(self.last_seq, entry.seq)
            match entry:
                case MessageEntry():
                    self._append(entry)
                case CallEntry():
                    self._index_call(entry.record)
                case CompactionEntry():
                    self._replace_before(entry)
                case ExecEntry():
                    self._index_command(entry.record)
                case _:
                    pass  # of a later version: stays in the file, means nothing here

    def add(self, message: TranscriptMessage) -> None:
        """Add a message and write it; on the disk it is after ``sync``. Raises TranscriptError: nothing was added."""
        entry = MessageEntry(self._output.next_seq(), time.time(), message)
        self._write(entry)
        self._append(entry)

    def record_call(self, record: CallRecord) -> None:
        """Write where a tool call stands, without its input, which its message holds; on the disk after ``sync``.

        Raises TranscriptError: nothing was noted.
        """
        written = msgspec.structs.replace(record, input=msgspec.UNSET)
        self._write(CallEntry(self._output.next_seq(), time.time(), written))
        self._index_call(written)

    def _index_call(self, record: CallRecord) -> None:
        self.records[record.id] = record
        if record.approval is not None and record.approval.allows is not None:
            self._allowed.add(record.approval.allows)

    def is_allowed(self, key: str) -> bool:
        """Whether an earlier decision of the conversation allows these calls; see ``CallApproval.allows``."""
        return key in self._allowed

    def record_command(self, record: ExecRecord) -> None:
        """Write the state of a background command. Raises TranscriptError."""
        self._write(ExecEntry(self._output.next_seq(), time.time(), record))

    def record_cache(self, provider: str, model: str) -> None:
        """Write that this model has just seen the whole conversation. Raises TranscriptError."""
        self._write(CacheTtlEntry(self._output.next_seq(), time.time(), provider, model))

    def begin_sync(self) -> None:
        """Bring everything written to the disk, without waiting; if that fails, the next write or ``sync`` does."""
        self._commit.begin()

    async def sync(self) -> None:
        """Wait until everything written is on the disk; cancelled only after that. Raises TranscriptError."""
        await self._commit.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def settle(self) -> None:
        """The same, never cancelled."""
        await self._commit.wait()

    async def compact(self, summary: str, kept: int) -> None:
        """Let ``summary`` stand for all messages but those from index ``kept`` on."""
        entry = CompactionEntry(self._output.next_seq(), time.time(), summary, self.seqs[kept])
        self._write(entry)
        self._replace_before(entry)
        await self.sync()

    def close(self) -> None:
        """Unlock the transcript; remove the outputs of a conversation that has none."""
        self._commit.close()
        if self._writer is not None:
            self._writer.close()
        if self.path is None:
            shutil.rmtree(self.outputs, ignore_errors=True)

    def _sync_writer(self, end: Callable[[Exception | None], None]) -> None:
        """Force what is written to the disk in a thread; ``end`` is called in the event loop.

        ``trio.to_thread`` also counts threads, names them and copies the context, for nothing here.
        """
        assert self._writer is not None  # noqa: S101 - something is written
        sync, token = self._writer.sync, trio.lowlevel.current_trio_token()

        def work() -> None:
            failure: Exception | None = None
            try:
                sync()
            except Exception as exc:  # noqa: BLE001 - it belongs to those who wait
                failure = exc
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(end, failure)

        trio.lowlevel.start_thread_soon(work, lambda _: None)

    def _append(self, entry: MessageEntry) -> None:
        self.messages.append(entry.message)
        self.seqs.append(entry.seq)
        kind = "assistant" if entry.message.role == "assistant" else entry.message.origin
        self.bookmark = Bookmark(entry.seq, entry.ts, kind)
        for block in entry.message.content:
            if isinstance(block, ToolUseBlock):
                self.open_calls[block.id] = block
            elif isinstance(block, ToolResultBlock):
                self.records.pop(block.tool_use_id, None)
                self.open_calls.pop(block.tool_use_id, None)
        if not self.open_calls:
            self.safe_index = len(self.messages) - 1

    def _index_command(self, record: ExecRecord) -> None:
        """Keep the latest record of each command, at most ``_MAX_COMMANDS`` of them."""
        self.commands.pop(record.id, None)
        if not record.cleared:
            self.commands[record.id] = record
        while len(self.commands) > _MAX_COMMANDS:
            del self.commands[next(iter(self.commands))]

    def _replace_before(self, entry: CompactionEntry) -> None:
        kept = next((index for index, seq in enumerate(self.seqs) if seq >= entry.kept_from), len(self.seqs))
        summary = TranscriptMessage("user", [TextBlock(entry.summary)], origin="summary")
        self.messages = [summary, *self.messages[kept:]]
        self.seqs[:kept] = [entry.kept_from - 1]
        self.safe_index = max(0, self.safe_index - kept + 1)

    def _write(self, entry: KnownEntry) -> None:
        if self.path is not None and self._writer is None:
            self._writer = TranscriptWriter.create(self.path, self.header)
        if self._writer is not None:
            self._writer.append(entry)
            self._commit.mark_written()


class SessionStore:
    """Creates, opens and finds conversations. ``directory`` None: no transcripts are kept."""

    def __init__(self, directory: Path | None, cwd: str, output: WorkerOutput) -> None:
        self._directory = directory
        self._cwd = cwd
        self._output = output

    def create(self, parent: str | None = None) -> Conversation:
        """A new conversation, its transcript not made yet."""
        now = time.gmtime()
        session_id = str(uuid.uuid4())
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", now)
        header = SessionHeader(FORMAT_VERSION, session_id, created, self._cwd, parent)
        name = f"{time.strftime('%Y-%m-%dT%H-%M-%SZ', now)}_{session_id}.jsonl"
        path = None if self._directory is None else self._directory / name
        return Conversation(header, self._output, path)

    def open(self, path: str) -> Conversation:
        """Resume the conversation of a transcript; blocks, may run in a thread. Raises TranscriptError."""
        writer = TranscriptWriter.open(Path(self._cwd, path))
        conversation = Conversation(writer.header, self._output, writer.path)
        try:
            conversation.resume(writer)
        except BaseException:
            writer.close()
            raise
        return conversation

    def find(self, name: str) -> str:
        """The path of a transcript named by path or by (the beginning of) its id. Raises TranscriptError."""
        if "/" in name or name.endswith(".jsonl"):
            return name
        found = [path for path in self._transcripts() if path.stem.rpartition("_")[2].startswith(name)]
        if len(found) > 1:
            raise TranscriptError(f"{len(found)} sessions in {self._directory} begin with {name!r}")
        if not found:
            raise TranscriptMissing(f"there is no session {name!r} in {self._directory}")
        return str(found[0])

    def latest(self) -> str | None:
        """The path of the transcript of this directory that was written last, or None."""
        for path in sorted(self._transcripts(), key=_modified, reverse=True):
            if self._is_of_this_directory(path):
                return str(path)
        return None

    def _is_of_this_directory(self, path: Path) -> bool:
        try:
            return read_header(path).cwd == self._cwd
        except TranscriptError:
            return False  # no native transcript: none that could be continued

    def _transcripts(self) -> Iterator[Path]:
        return iter(()) if self._directory is None else self._directory.glob("*.jsonl")


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0  # gone since it was listed
