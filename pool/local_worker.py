"""One worker process with its client, as the pool's shell sees them; transcripts are mended on this machine."""

import errno
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from errors import ResumeFailed
from pool.worker_interface import redacted
from rpc.client import RpcClient
from rpc.journal import JournalWriter, read_journal
from rpc.transport import NodeProcess, ProcessFacts
from wire.transcript_move import move_working_directory
from wire.transcript_repair import TranscriptError, repair_transcript

_SMALL_TRANSCRIPT = 128 * 1024
"""Bytes that are scanned in less time than it takes to ask a thread."""


class LocalWorker:
    """One worker process and its client."""

    def __init__(
        self,
        worker_id: str,
        process: NodeProcess,
        client: RpcClient,
        known: set[str],
        *,
        dialect: str,
        journal: JournalWriter | None = None,
        moved: Callable[[str], str | None] | None = None,
    ) -> None:
        """``moved``: the path here of a working directory of another data directory, as of ``DataPaths.used``."""
        self.id = worker_id
        self._dialect = dialect
        self._moved = moved
        self._journal = journal
        self.client = client
        self._process = process
        self.known_transcripts = known

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    @property
    def node(self) -> str:
        """Where the process runs; "" is this machine."""
        return self._process.node

    def facts(self) -> ProcessFacts:
        """Resident size, CPU time and whether it is suspended; empty once it is gone."""
        return self._process.facts()

    def stderr_tail(self) -> str:
        """The last text that it wrote to stderr, secrets hidden."""
        return self._process.stderr_tail()

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        """Pass further stderr lines, without secrets, to one listener; None removes it."""
        self._process.on_stderr(listener)

    def explain_end(self, reason: str) -> None:
        """Why its end was requested, for its log."""
        self._process.end_reason = reason

    def record_transcript(self, transcript: str) -> None:
        """Remember a transcript that exists: it must not be missing later."""
        with suppress(OSError, ValueError):  # its next resume reports what is wrong with it
            if _transcript_size(transcript) is not None:
                self.known_transcripts.add(transcript)

    async def keep(self, transcript: str | None) -> None:
        """From now on the conversation is that of this file."""
        await self._process.keep(transcript)

    async def prepare_resume(self, transcript: str) -> bool:
        """Repair the transcript where its end is torn; False: there is none yet. Raises ResumeFailed."""
        try:
            size = _transcript_size(transcript)
            if size is None:
                if transcript in self.known_transcripts:
                    raise ResumeFailed(redacted(self.client, f"the transcript {transcript} is missing"))
                return False  # it never came to a first answer
            self.known_transcripts.add(transcript)
            if size <= _SMALL_TRANSCRIPT:
                self._repair(transcript)
            else:
                await trio.to_thread.run_sync(self._repair, transcript)
        except TranscriptError as exc:
            raise ResumeFailed(redacted(self.client, exc.message)) from exc
        except (OSError, ValueError) as exc:
            raise ResumeFailed(redacted(self.client, f"the transcript {transcript!r} cannot be read: {exc}")) from exc
        return await self._process.prepare_resume(transcript)

    async def fetch(self, path: str, limit: int) -> bytes:
        """At most the first ``limit`` bytes of a file in its working directory."""
        return await self._process.fetch(path, limit)

    def _repair(self, transcript: str) -> None:
        if self._moved is not None:
            move_working_directory(Path(transcript), self._moved)
        repair_transcript(transcript, dialect=self._dialect)

    async def resume_params(self, transcript: str, *, honest: bool) -> dict[str, Any]:
        """The transcript, and what its journal says where this pool keeps one. Raises ResumeFailed."""
        if self._journal is None:
            return {"session_file": transcript}
        try:
            found = await trio.to_thread.run_sync(read_journal, transcript)
        except TranscriptError as exc:
            raise ResumeFailed(redacted(self.client, exc.message)) from exc
        self._journal.resumed(transcript, found.last_seq)
        return {"session_file": transcript, "journal": found.facts, "honest": honest}


def _transcript_size(path: str) -> int | None:
    """Bytes of a transcript, None where there is none. The path is a worker's word: it may be anything at all.

    Raises OSError, also for what is no regular file (opening a fifo would wait for ever), and ValueError.
    """
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return found.st_size
