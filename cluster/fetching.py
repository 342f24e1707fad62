"""Files of a node's workspace that were asked for: the requests of one channel, and their answers."""

import trio

from cluster.frames import FrameKind, LinkViolation
from cluster.link import Link
from cluster.messages import Credit, Fetch, FilePart, sendable_path
from errors import WorkerExited


class RemoteFiles:
    """Asks for one file after the other. What the node sends beyond a request's limit is a violation."""

    def __init__(self, link: Link, channel: int) -> None:
        self._link = link
        self._channel = channel
        self._turn = trio.Lock()
        self._number = 0
        self._data = bytearray()
        self._limit = 0
        self._outcome: FilePart | WorkerExited | None = None
        self._settled = trio.Event()

    async def fetch(self, path: str, limit: int) -> bytes:
        """See ``rpc.transport.NodeProcess``."""
        async with self._turn:
            if isinstance(self._outcome, WorkerExited):
                raise self._outcome
            sendable_path(path)
            self._number += 1
            self._data, self._limit, self._settled = bytearray(), limit, trio.Event()
            self._link.send_message(FrameKind.FETCH, Fetch(path, limit, self._number), self._channel)
            try:
                await self._settled.wait()
            finally:
                data, self._data, self._limit = self._data, bytearray(), 0
            return _whole(data, self._outcome)

    def on_part(self, part: FilePart) -> None:
        """Take a part; those of a request that was given up are dropped. Raises LinkViolation."""
        self._link.reply(FrameKind.CREDIT, Credit(files=len(part.data)), self._channel)
        if part.number != self._number or self._settled.is_set():
            if part.number > self._number:
                raise LinkViolation(f"channel {self._channel} sends a file that was not asked for")
            return
        if len(self._data) + len(part.data) > self._limit:
            raise LinkViolation(f"channel {self._channel} sends more of a file than was asked for")
        self._data += part.data
        if part.is_last:
            self._outcome = part
            self._settled.set()

    def lost(self, error: WorkerExited) -> None:
        """The worker has ended, or is out of reach."""
        self._outcome = error
        self._settled.set()


def _whole(data: bytearray, outcome: FilePart | WorkerExited | None) -> bytes:
    match outcome:
        case WorkerExited():
            raise outcome
        case FilePart(problem=str(problem), errno=int(number)) if problem:
            raise OSError(number, problem) if number else ValueError(problem)
        case _:
            return bytes(data)
