"""The transcript of one worker on a node: what home asks of the node about it, and the copies of it here."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from cluster.frames import CHUNK_BYTES, FrameKind, LinkViolation
from cluster.link import CreditWindow, Link
from cluster.messages import Follow, Has, Have, Piece
from cluster.mirror import TranscriptMirror, relative_parts
from cluster.node.follower import transcript_facts
from errors import ResumeFailed, WorkerError, WorkerExited
from wire.files import open_regular
from wire.redaction import SecretMask


class MirroredTranscript:
    """Asks one thing after the other; each has a number, which its answer repeats.

    ``directory``: where the transcripts of its agent lie. ``check_life`` raises WorkerExited once it has ended.
    ``puts``: the credit for what is sent.
    """

    def __init__(
        self,
        link: Link,
        channel: int,
        directory: Path,
        *,
        worker: str,
        node: str,
        mask: SecretMask,
        check_life: Callable[[], None],
    ) -> None:
        self._link = link
        self._channel = channel
        self._directory = directory
        self._worker = worker
        self._node = node
        self._mask = mask
        self._check_life = check_life
        self._mirrors: dict[int, TranscriptMirror] = {}
        self._asked = 0
        self._answer: Has | None = None
        self._is_closed = False
        self._changed = trio.lowlevel.ParkingLot()
        self.puts = CreditWindow()

    def on_answer(self, answer: Has) -> None:
        """Take an answer; one to what was given up is dropped."""
        if answer.number == self._asked:
            self._answer = answer
            self._changed.unpark_all()

    def ended(self) -> None:
        """The worker has ended, or is out of reach."""
        self.puts.lift()
        self._changed.unpark_all()

    def close(self) -> None:
        """Close the copies; none is made any more."""
        self._is_closed = True
        for mirror in self._mirrors.values():
            mirror.close()

    async def write(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Write the pieces of one copy; those that are left. Raises OSError, then it may be called again with the same.

        Raises LinkViolation.
        """
        number = pieces[0].number
        if number not in self._mirrors:
            raise LinkViolation("a part of a transcript came that it was not asked for")
        own = [piece for piece in pieces if piece.number == number]
        await trio.to_thread.run_sync(self._mirrors[number].write, own)
        return [piece for piece in pieces if piece.number != number]

    async def keep(self, transcript: str | None) -> None:
        """See ``rpc.transport.NodeProcess``."""
        if transcript is None:
            await self._follow("", None, 0)
            return
        try:
            mirror = await trio.to_thread.run_sync(TranscriptMirror, self._directory, transcript)
        except (OSError, ValueError) as exc:
            raise WorkerError(f"worker {self._worker}: its transcript cannot be kept: {exc}") from exc
        await self._follow(transcript, mirror, 0)

    async def _follow(self, path: str, mirror: TranscriptMirror | None, size: int) -> None:
        if self._is_closed and mirror is not None:
            mirror.close()
            raise WorkerError(f"worker {self._worker} is given up: its transcript is kept no more")
        older = self._mirrors.copy()
        number = self._next()
        if mirror is not None:
            self._mirrors[number] = mirror
        self._link.send_message(FrameKind.FOLLOW, Follow(path, size, number), self._channel)
        await self._wait_answer()
        for known, old in older.items():  # all that belonged to them came before the answer, and is on the disk
            del self._mirrors[known]
            old.close()

    async def prepare_resume(self, transcript: str) -> bool:
        """See ``rpc.transport.NodeProcess``. Raises ResumeFailed."""
        try:
            relative_parts(self._directory, transcript)
            here = await trio.to_thread.run_sync(transcript_facts, Path(transcript), 0)
            if here.size is None:
                return False
            self._link.send_message(FrameKind.HAVE, Have(transcript, here.size, self._next()), self._channel)
            there = await self._wait_answer()
            if there.size is not None:
                here = await trio.to_thread.run_sync(transcript_facts, Path(transcript), there.size)
            is_whole = there.size is None or here.sha256 != there.sha256
            if is_whole or there.size != here.size:
                await self._put(Path(transcript), 0 if is_whole else there.size or 0, is_whole=is_whole)
            mirror = await trio.to_thread.run_sync(TranscriptMirror, self._directory, transcript)
            await self._follow(transcript, mirror, mirror.size)
        except (OSError, ValueError) as exc:
            raise ResumeFailed(f"the transcript {transcript!r} cannot be sent to {self._node}: {exc}") from exc
        except WorkerExited:
            raise
        except WorkerError as exc:
            raise ResumeFailed(exc.message) from exc
        return True

    async def _put(self, path: Path, known: int, *, is_whole: bool) -> None:
        number = self._next()
        with os.fdopen(open_regular(path, os.O_RDONLY, follow=False), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            offset, is_last = min(known, size), False
            while not is_last and self._answer is None:  # which comes early where it cannot be written there
                piece = os.pread(file.fileno(), CHUNK_BYTES, offset)
                is_last = not piece or offset + len(piece) >= size
                await self.puts.wait_room()
                self._check_life()
                self.puts.take(len(piece))
                self._link.send_message(FrameKind.PUT, Piece(offset, piece, is_whole, is_last, number), self._channel)
                offset += len(piece)
        await self._wait_answer()

    def _next(self) -> int:
        """The number of what is asked now."""
        self._asked += 1
        self._answer = None
        return self._asked

    async def _wait_answer(self) -> Has:
        """The node's answer to what was asked last. Raises WorkerExited, WorkerError with the node's problem."""
        while self._answer is None:
            self._check_life()
            await self._changed.park()
        answer, self._answer = self._answer, None
        if answer.problem:
            raise WorkerError(f"node {self._node}: {self._mask.text(answer.problem)}")
        return answer
