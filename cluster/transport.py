"""A worker on a node, as its client sees it: a ``NodeProcess`` whose bytes come over a link."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import trio

from cluster.fetching import RemoteFiles
from cluster.frames import CHUNK_BYTES, Frame, FrameKind, LinkViolation
from cluster.link import CREDIT_STEP, WINDOW_BYTES, CreditWindow, Link
from cluster.messages import (
    Credit,
    EndWorker,
    Exit,
    Failed,
    FilePart,
    Has,
    Piece,
    Started,
    Usage,
    decode_message,
)
from cluster.mirrored import MirroredTranscript
from errors import PoolError, WorkerExited, WorkerStartFailed
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog, StderrTail
from rpc.transport import Abort, ExitStatus, ProcessFacts
from wire.redaction import SecretMask

_MAX_EXCESS = 2 * 1024 * 1024  # bytes beyond its credit: what a pipe may hold at a worker's end
_MAX_PIECES = 4096  # that wait to be written; empty ones have no credit to bound them
_DISK_PATIENCE, _DISK_PAUSE = 10.0, 1.0  # seconds that a disk may be full before the end; between two tries
_STOP_PATIENCE = 20.0  # seconds beyond the graces: a node kills for 5 s, waits for 10 s for what a worker has left


class RemoteProcess:
    """One channel of a node's link.

    ``on_frame`` is called by the link's reader; ``run`` writes the transcript, for as long as the worker is there.
    Output is handed on only when all that the worker wrote to its transcript before it is on the disk here.
    """

    def __init__(
        self,
        link: Link,
        channel: int,
        plan: WorkerPlan,
        settings: RpcSettings,
        *,
        node: str,
        sessions: Path,
        log: LineLog,
    ) -> None:
        self.node = node
        self.pid: int | None = None
        self.end_reason: str | None = None
        self.ended_in_order = False
        self.mask = SecretMask(plan.secrets)
        self._worker_id = plan.worker_id
        self.channel = channel
        self._link = link
        self._settings = settings
        self._log = log
        self._tail = StderrTail(mask=self.mask)
        self._window = CreditWindow()
        self._changed = trio.lowlevel.ParkingLot()
        self._inbox: deque[bytes | Piece | Exit | Has] = deque()
        self._has_inbox = trio.Event()
        self._output: deque[bytes] = deque()
        self._held_bytes = self._consumed = self._logged = self._stderr_consumed = 0
        self._is_interrupted = self._is_given_up = False
        self._files = RemoteFiles(link, channel)
        self.fetch = self._files.fetch
        directory = sessions / plan.agent  # no worker writes to the conversations of other agents
        self._transcript = MirroredTranscript(
            link, channel, directory, worker=plan.worker_id, node=node, mask=self.mask, check_life=self._check_life
        )
        self._facts = ProcessFacts()
        self._start_error: WorkerStartFailed | None = None
        self._status: ExitStatus | None = None
        self._is_gone = False

    # --- what the node says -------------------------------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        """Take a frame of its channel. Raises LinkViolation."""
        match frame.kind:
            case FrameKind.OUT:
                self._hold(frame.payload, len(frame.payload))
            case FrameKind.LOG:
                piece = decode_message(frame.payload, Piece)
                self._hold(piece, len(piece.data))
            case FrameKind.EXIT:
                self._hold(decode_message(frame.payload, Exit), 0)
            case FrameKind.HAS:
                self._hold(decode_message(frame.payload, Has), 0)
            case FrameKind.ERR:
                self._take_stderr(frame.payload)
            case FrameKind.CREDIT:
                credit = decode_message(frame.payload, Credit)
                self._window.give(credit.stream)
                self._transcript.puts.give(credit.log)
            case FrameKind.FILE:
                self._files.on_part(decode_message(frame.payload, FilePart))
            case FrameKind.STARTED:
                self._note_start(decode_message(frame.payload, Started).pid)
            case FrameKind.FAILED:
                failed = decode_message(frame.payload, Failed)
                details = {"worker": self._worker_id, "refused": failed.is_refused or None}
                self._start_error = WorkerStartFailed(self.mask.text(failed.message), **details)
                self._end(ExitStatus(), is_gone=True)
            case _:
                raise LinkViolation(f"a frame {frame.kind.name} does not belong to a worker")
        self._changed.unpark_all()

    def _note_start(self, pid: int) -> None:
        if self.pid is not None:
            raise LinkViolation(f"worker {self._worker_id} is said to start twice")
        self.pid = pid

    def _hold(self, what: bytes | Piece | Exit | Has, size: int) -> None:
        """Keep the order: nothing passes a piece of the transcript that is not on the disk."""
        self._held_bytes += size
        if self._held_bytes > 2 * WINDOW_BYTES + _MAX_EXCESS or len(self._inbox) >= _MAX_PIECES:
            raise LinkViolation(f"worker {self._worker_id} sends more than it has credit for")
        if self._inbox or isinstance(what, Piece):
            self._inbox.append(what)
            self._has_inbox.set()
        else:
            self._hand_on(what)

    def _hand_on(self, what: bytes | Piece | Exit | Has) -> None:
        match what:
            case bytes() if self._is_given_up:
                self._held_bytes -= len(what)
            case bytes():
                self._output.append(what)
            case Exit(code, signal, in_order, is_gone):
                self.ended_in_order = in_order
                self._end(ExitStatus(code, signal), is_gone=is_gone)
            case Has():
                self._transcript.on_answer(what)
            case Piece():
                self._held_bytes -= len(what.data)
                self._logged += len(what.data)
                if self._logged >= CREDIT_STEP:
                    self._link.send_message(FrameKind.CREDIT, Credit(log=self._logged), self.channel)
                    self._logged = 0
        self._changed.unpark_all()

    def _take_stderr(self, data: bytes) -> None:
        self._tail.feed(data)
        self._log.feed(data)
        self._stderr_consumed += len(data)
        if self._stderr_consumed >= CREDIT_STEP // 4:
            self._link.reply(FrameKind.CREDIT, Credit(stderr=self._stderr_consumed), self.channel)
            self._stderr_consumed = 0

    def on_usage(self, usage: Usage) -> None:
        """What the node has measured."""
        self._facts = ProcessFacts(usage.rss, usage.cpu, usage.suspended)

    def on_lost(self, reason: str) -> None:
        """The link has ended: the worker is out of reach, though it may run until the fence."""
        if self._status is None:
            self._end(ExitStatus(reason=reason), is_gone=False)

    def on_fenced(self) -> None:
        """Nothing of the worker can run any more."""
        self._end(self._status or ExitStatus(), is_gone=True)

    def _end(self, status: ExitStatus, *, is_gone: bool) -> None:
        self._status = self._status or status
        self._is_gone = self._is_gone or is_gone
        self._window.lift()
        self._transcript.ended()
        self._files.lost(self._ended_error(self._status))
        self._changed.unpark_all()

    async def run(self) -> None:
        """Write the transcript as its pieces come, until cancelled or until the disk has been full for too long."""
        try:
            while True:
                while not self._inbox:
                    self._has_inbox = trio.Event()
                    await self._has_inbox.wait()
                batch = list(self._inbox)
                await self._write([what for what in batch if isinstance(what, Piece)])
                for what in batch:
                    self._inbox.popleft()
                    self._hand_on(what)
                while self._inbox and not isinstance(self._inbox[0], Piece):
                    self._hand_on(self._inbox.popleft())
        finally:
            self._transcript.close()
            self._log.close()

    async def _write(self, pieces: list[Piece]) -> None:
        deadline = trio.current_time() + _DISK_PATIENCE
        while pieces and not self._is_given_up:
            try:
                pieces = await self._transcript.write(pieces)
            except OSError as exc:
                if trio.current_time() >= deadline:
                    self._give_up(f"its transcript cannot be written: {exc.strerror}")
                else:
                    await trio.sleep(_DISK_PAUSE)
            except LinkViolation as exc:
                self._give_up(exc.message)

    def _give_up(self, reason: str) -> None:
        """Kill it; nothing that it says is handed on any more, but its end."""
        self._is_given_up = True
        self._link.send_message(FrameKind.STOP, EndWorker(force=True), self.channel)
        self._end(ExitStatus(reason=reason), is_gone=False)

    # --- Transport ----------------------------------------------------------------------------------------------------

    async def wait_readable(self) -> None:
        """See ``rpc.transport.Transport``."""
        while not self._output and self._status is None and not self._is_interrupted:
            await self._changed.park()
        self._is_interrupted = False

    def interrupt(self) -> None:
        """End the wait for output."""
        self._is_interrupted = True
        self._changed.unpark_all()

    def receive_nowait(self) -> bytes | None:
        """What lies ready, None when there is nothing now, ``b""`` after the end."""
        if not self._output:
            return None if self._status is None else b""
        data = self._output.popleft()
        self._held_bytes -= len(data)
        self._consumed += len(data)
        if self._consumed >= CREDIT_STEP:
            self._link.send_message(FrameKind.CREDIT, Credit(stream=self._consumed), self.channel)
            self._consumed = 0
        return data

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send as much as there is credit for. Raises WorkerExited after the end."""
        self._check_life()
        sent = 0
        view = memoryview(data)
        while sent < len(view) and self._window.left > 0:
            piece = bytes(view[sent : sent + min(CHUNK_BYTES, self._window.left)])
            self._link.send(FrameKind.IN, self.channel, piece)
            self._window.take(len(piece))
            sent += len(piece)
        return sent

    async def wait_writable(self) -> None:
        """Wait until there is credit, or until the end."""
        await self._window.wait_room()

    async def wait_exit(self) -> ExitStatus:
        """Wait for the end, or for the loss of its node; its last output can be received then."""
        while self._status is None:
            await self._changed.park()
        return self._status

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._status is not None

    def stderr_tail(self) -> str:
        """The last text that it wrote to stderr, secrets hidden."""
        return self._tail.text()

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        """Pass the lines that go to the log to one listener as they come; None removes it."""
        self._log.listener = listener

    def _check_life(self) -> None:
        if self._status is not None:
            raise self._ended_error(self._status)

    def _ended_error(self, status: ExitStatus) -> WorkerExited:
        name = self._worker_id
        return WorkerExited(f"worker {name} has {status}", worker=name, stderr_tail=self.stderr_tail())

    # --- NodeProcess --------------------------------------------------------------------------------------------------

    async def wait_started(self) -> None:
        """Wait until its process runs. Raises WorkerStartFailed."""
        while self.pid is None and self._status is None:
            await self._changed.park()
        if self._start_error is not None:
            raise self._start_error
        if self.pid is None:
            raise WorkerStartFailed(f"worker {self._worker_id} {self._status}", worker=self._worker_id)

    def facts(self) -> ProcessFacts:
        """What the node has measured last."""
        return self._facts if self._status is None else ProcessFacts()

    async def keep(self, transcript: str | None) -> None:
        """From now on what it writes to this file is written here too. Raises WorkerError."""
        await self._transcript.keep(transcript)

    async def prepare_resume(self, transcript: str) -> bool:
        """Send the node what it lacks of the file, or all of it where they differ. Raises ResumeFailed."""
        return await self._transcript.prepare_resume(transcript)

    async def stop(self, *, abort: Abort | None = None, force: bool = False) -> ExitStatus:
        """End it; returns when nothing of it can run any more: after its last EXIT, or after the fence of its node."""
        if abort is not None and not force and self._status is None:
            with trio.move_on_after(self._settings.abort_grace):
                with suppress(PoolError):  # it is on its way out already
                    await abort()
        if not self._is_gone:
            self._link.send_message(FrameKind.STOP, EndWorker(force), self.channel)
        with trio.move_on_after(self._settings.eof_grace + self._settings.term_grace + _STOP_PATIENCE) as patience:
            await self._wait_gone()
        if patience.cancelled_caught:
            self._link.close(f"worker {self._worker_id} does not end there")
            await self._wait_gone()  # the fence
        return self._status or ExitStatus()

    async def _wait_gone(self) -> None:
        while not self._is_gone:
            await self._changed.park()
