"""One worker on a node: from START to the last EXIT, as its channel of the link sees it."""

from collections import deque
from pathlib import Path

import msgspec
import trio

from cluster.frames import CHUNK_BYTES, Frame, FrameKind, LinkViolation
from cluster.link import CREDIT_STEP, WINDOW_BYTES, CreditWindow, Link
from cluster.messages import (
    Credit,
    EndWorker,
    Exit,
    Failed,
    Fetch,
    Follow,
    Has,
    Have,
    Piece,
    Start,
    Started,
    Usage,
    decode_message,
)
from cluster.node.devices import DeviceShare
from cluster.node.follower import ResumedTranscript, TranscriptFollower
from cluster.node.served_files import ServedFiles
from errors import WorkerExited, WorkerStartFailed
from rpc.host import WorkerHost
from rpc.process import WorkerProcess

STDERR_WINDOW_BYTES = 64 * 1024
"""Bytes of stderr that may be under way; more is dropped."""
_MAX_MESSAGE_CHARS = 32 * 1024
_MAX_PROBLEM_CHARS = 500


class HostedWorker:
    """A worker's process and what its channel asks of it. ``run`` owns it: when that ends, nothing of it is left.

    ``sessions``: the directory that its transcript has to be in. ``devices``: of which it gets one.
    """

    def __init__(self, channel: int, link: Link, host: WorkerHost, sessions: Path, devices: DeviceShare) -> None:
        self._channel = channel
        self._link = link
        self._host = host
        self._sessions = sessions
        self._devices = devices
        self._process: WorkerProcess | None = None
        self._output, self._log, self._stderr = CreditWindow(), CreditWindow(), CreditWindow(STDERR_WINDOW_BYTES)
        self._files = ServedFiles(link, channel, host.children.file_limiter)
        self._input: deque[memoryview] = deque()
        self._input_bytes = self._consumed = 0
        self._work: deque[Follow | Have | Piece] = deque()
        self._has_input, self._has_work = trio.Event(), trio.Event()
        self._is_asked_to_stop, self._is_forced = trio.Event(), trio.Event()
        self._follower: TranscriptFollower | None = None
        self._resumed: ResumedTranscript | None = None
        self._refused_put = 0  # the number of the PUT that was answered already, as it cannot be written
        self._shipping = trio.Lock()
        self._is_silenced = False  # what it says cannot be kept

    def usage(self) -> Usage | None:
        """What its process uses; None before and after its life."""
        if self._process is None or self._process.exit_status is not None:
            return None
        facts = self._process.facts()
        return Usage(self._channel, facts.rss, facts.cpu, facts.suspended)

    def handle(self, frame: Frame) -> None:
        """Take a frame of its channel. Raises LinkViolation."""
        match frame.kind:
            case FrameKind.IN:
                self._input.append(memoryview(frame.payload))
                self._input_bytes += len(frame.payload)
                if self._input_bytes > WINDOW_BYTES + CHUNK_BYTES:
                    raise LinkViolation(f"channel {self._channel} sends more than it has credit for")
                self._has_input.set()
            case FrameKind.CREDIT:
                credit = decode_message(frame.payload, Credit)
                self._output.give(credit.stream)
                self._log.give(credit.log)
                self._stderr.give(credit.stderr)
                self._files.window.give(credit.files)
            case FrameKind.STOP:
                self._is_asked_to_stop.set()
                if decode_message(frame.payload, EndWorker).force:
                    self._is_forced.set()
            case FrameKind.FOLLOW:
                self._add_work(decode_message(frame.payload, Follow))
            case FrameKind.HAVE:
                self._add_work(decode_message(frame.payload, Have))
            case FrameKind.PUT:
                self._add_work(decode_message(frame.payload, Piece))
            case FrameKind.FETCH:
                self._files.ask(decode_message(frame.payload, Fetch))
            case _:
                raise LinkViolation(f"a frame {frame.kind.name} does not belong to a worker")

    def _add_work(self, work: Follow | Have | Piece) -> None:
        self._work.append(work)
        if len(self._work) > 2 * WINDOW_BYTES // CHUNK_BYTES:
            raise LinkViolation(f"channel {self._channel} asks for more than it has credit for")
        self._has_work.set()

    async def run(self, start: Start) -> None:
        """Start the worker and carry its bytes, until nothing of it is left."""
        try:
            settings = start.settings()
            self._make_workspace(Path(start.plan.cwd))
            with (
                self._devices.one() as device,
                self._host.prepare(msgspec.structs.replace(start.plan, env=start.plan.env + device), settings) as spec,
            ):
                stop = self._is_asked_to_stop
                self._process = await self._host.spawn(spec, settings, prepare=start.plan.prepare, stop=stop)
                self._process.on_stderr(self._send_stderr)
                self._link.send_message(FrameKind.STARTED, Started(self._process.pid), self._channel)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._process.supervise)
                    nursery.start_soon(self._files.run, start.plan.cwd)
                    await self._carry(self._process)
                    nursery.cancel_scope.cancel()
        except WorkerStartFailed as exc:
            failed = Failed(exc.message[:_MAX_MESSAGE_CHARS], bool(exc.details.get("refused")))
            self._link.send_message(FrameKind.FAILED, failed, self._channel)

    def _make_workspace(self, cwd: Path) -> None:
        """Make a working directory in the data directory, as the supervisor has done. Raises WorkerStartFailed."""
        data_dir = self._sessions.parent
        if cwd.is_relative_to(data_dir):
            self._host.make_directory(*cwd.relative_to(data_dir).parts)

    async def _carry(self, process: WorkerProcess) -> None:
        async with trio.open_nursery() as nursery:
            for task in (self._carry_input, self._stop_when_asked, self._force_when_asked, self._lift_at_exit):
                nursery.start_soon(task, process)
            nursery.start_soon(self._look_after_files)
            await self._carry_output(process)
            ended = await process.wait_exit()
            await self._carry_output(process)  # what was in the pipe at its end
            await self._ship()
            self._send_exit(Exit(ended.code, ended.signal))
            await process.stop()
            self._send_exit(Exit(ended.code, ended.signal, process.ended_in_order, is_gone=True))
            nursery.cancel_scope.cancel()

    def _send_exit(self, message: Exit) -> None:
        self._link.send_message(FrameKind.EXIT, message, self._channel)

    async def _lift_at_exit(self, process: WorkerProcess) -> None:
        await process.wait_exit()
        self._output.lift()  # no more than a pipe holds

    async def _carry_output(self, process: WorkerProcess) -> None:
        """Until the end of its stdout. What it wrote to its transcript before goes before."""
        while (data := process.receive_nowait()) != b"":
            if data is None:
                await process.wait_readable()
                continue
            await self._output.wait_room()
            await self._ship()
            for at in range(0, 0 if self._is_silenced else len(data), CHUNK_BYTES):
                self._link.send(FrameKind.OUT, self._channel, data[at : at + CHUNK_BYTES])
            self._output.take(len(data))
            await trio.lowlevel.checkpoint()

    async def _ship(self) -> None:
        async with self._shipping:
            try:
                for piece in self._follower.pieces() if self._follower is not None else ():
                    await self._log.wait_room()
                    self._log.take(len(piece.data))
                    self._link.send_message(FrameKind.LOG, piece, self._channel)
            except OSError as exc:
                self._send_stderr(f"pool node: the transcript cannot be read: {exc}\n".encode())
                self._is_silenced = True
                self._is_forced.set()

    async def _carry_input(self, process: WorkerProcess) -> None:
        while True:
            while not self._input:
                self._has_input = trio.Event()
                await self._has_input.wait()
            try:
                taken = process.send_nowait(self._input[0])
            except WorkerExited:
                taken = len(self._input[0])  # no one reads it; its end is reported by EXIT
            if taken < len(self._input[0]):
                self._input[0] = self._input[0][taken:]
                await process.wait_writable()
            else:
                self._input.popleft()
            self._input_bytes -= taken
            self._consumed += taken
            if self._consumed >= CREDIT_STEP:
                self._link.send_message(FrameKind.CREDIT, Credit(stream=self._consumed), self._channel)
                self._consumed = 0

    def _send_stderr(self, lines: bytes) -> None:
        for at in range(0, len(lines), CHUNK_BYTES):
            data = lines[at : at + CHUNK_BYTES]
            if self._stderr.has_room:
                self._stderr.take(len(data))
                self._link.send(FrameKind.ERR, self._channel, data)

    async def _stop_when_asked(self, process: WorkerProcess) -> None:
        await self._is_asked_to_stop.wait()
        await process.stop(force=self._is_forced.is_set())

    async def _force_when_asked(self, process: WorkerProcess) -> None:
        await self._is_forced.wait()
        await process.stop(force=True)

    async def _look_after_files(self) -> None:
        """What home asks about the transcript, one after the other."""
        while True:
            while not self._work:
                self._has_work = trio.Event()
                await self._has_work.wait()
            work = self._work.popleft()
            try:
                answer = await self._do(work)
            except (OSError, ValueError) as exc:
                self._refused_put = work.number if isinstance(work, Piece) else 0
                answer = Has(problem=str(exc)[:_MAX_PROBLEM_CHARS] or type(exc).__name__)
            if answer is not None:
                answer = msgspec.structs.replace(answer, number=work.number)
                self._link.send_message(FrameKind.HAS, answer, self._channel)

    async def _do(self, work: Follow | Have | Piece) -> Has | None:
        match work:
            case Follow(path, size, number):
                await self._ship()
                self._follower = TranscriptFollower(self._checked(path), size, number) if path else None
                await self._ship()
                return Has()
            case Have(path, limit, _):
                self._resumed = ResumedTranscript(self._checked(path))
                return await trio.to_thread.run_sync(self._resumed.compare, limit)
            case Piece() as piece if self._resumed is not None:
                try:
                    if piece.number == self._refused_put:
                        return None
                    await trio.to_thread.run_sync(self._resumed.put, piece)
                finally:
                    self._link.send_message(FrameKind.CREDIT, Credit(log=len(piece.data)), self._channel)
                return Has() if piece.is_last else None
            case _:
                raise LinkViolation(f"channel {self._channel} puts a file that it has not asked for")

    def _checked(self, path: str) -> Path:
        """A transcript's path, which lies below ``sessions``. Raises ValueError."""
        found = Path(path)
        if ".." in found.parts or not found.is_relative_to(self._sessions) or found == self._sessions:
            raise ValueError(f"{path!r} lies outside {self._sessions}")
        return found
