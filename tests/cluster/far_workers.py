"""A worker behind a link without one: the test says what its node says."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio
import trio.testing

from cluster.frames import CHUNK_BYTES, Frame, FrameDecoder, FrameKind, Limits
from cluster.link import WINDOW_BYTES, Link
from cluster.messages import (
    Fetch,
    FilePart,
    Follow,
    Has,
    Started,
    decode_message,
    message_frame,
)
from cluster.transport import RemoteProcess
from errors import unwrap_exception_groups
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog

ALL: Limits = dict.fromkeys(FrameKind, 1 << 20)
PLAN = WorkerPlan(worker_id="w1", agent="main", argv=("agent",), cwd="/", secrets=("canary-secret",))


class SentFrames(Link):
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._decoder = FrameDecoder(ALL)
        self._wire = self  # type: ignore[assignment]

    def send(self, kind: FrameKind, channel: int, payload: bytes = b"") -> None:
        self._frames.append(Frame(kind, channel, payload))

    def send_message(self, kind: FrameKind, message: msgspec.Struct, channel: int = 0) -> None:
        self._frames += self._decoder.feed(message_frame(kind, channel, message))

    reply = send_message

    def taken(self, kind: FrameKind) -> Iterator[Frame]:
        found = [frame for frame in self._frames if frame.kind is kind]
        self._frames = [frame for frame in self._frames if frame.kind is not kind]
        return iter(found)


class FarWorker:
    """A worker on the node ``n``, whose side of the link is the test's."""

    def __init__(self, directory: Path) -> None:
        self.link = SentFrames()
        self.sessions = directory / "sessions"
        (self.sessions / "main").mkdir(parents=True)
        self.transcript = str(self.sessions / "main" / "t.jsonl")
        self.process = RemoteProcess(
            self.link, 1, PLAN, RpcSettings(), node="n", sessions=self.sessions, log=LineLog(None, 1 << 20)
        )

    def says(self, kind: FrameKind, said: msgspec.Struct | bytes) -> None:
        payload = said if isinstance(said, bytes) else msgspec.msgpack.encode(said)
        self.process.on_frame(Frame(kind, 1, payload))

    def floods(self) -> None:
        """Ten times what it has credit for."""
        for _ in range(10 * WINDOW_BYTES // CHUNK_BYTES):
            self.says(FrameKind.OUT, bytes(CHUNK_BYTES))

    async def keep(self) -> int:
        """Let it have a transcript; the number of its pieces."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.process.keep, self.transcript)
            while not (asked := list(self.link.taken(FrameKind.FOLLOW))):
                await trio.lowlevel.checkpoint()
            number = decode_message(asked[0].payload, Follow).number
            self.says(FrameKind.HAS, Has(number=number))
        return number

    async def fetch(self, answer: Callable[[int], Iterable[FilePart]], limit: int = 10) -> bytes:
        """Ask for a file and let the node say ``answer``, given the request's number."""
        found: list[bytes | OSError] = []

        async def ask() -> None:
            try:
                found.append(await self.process.fetch("a.txt", limit))
            except OSError as exc:
                found.append(exc)

        with unwrap_exception_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                while not (asked := list(self.link.taken(FrameKind.FETCH))):
                    await trio.lowlevel.checkpoint()
                for part in answer(decode_message(asked[0].payload, Fetch).number):
                    self.says(FrameKind.FILE, part)
        if isinstance(found[0], OSError):
            raise found[0]
        return found[0]

    async def output(self) -> bytes:
        await self.process.wait_readable()
        return self.process.receive_nowait() or b""


@asynccontextmanager
async def far_worker(directory: Path) -> AsyncGenerator[FarWorker, None]:
    async with trio.open_nursery() as nursery:
        worker = FarWorker(directory)
        nursery.start_soon(worker.process.run)
        worker.says(FrameKind.STARTED, Started(77))
        yield worker
        nursery.cancel_scope.cancel()
