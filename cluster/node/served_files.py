"""Files of a worker's working directory, sent to home as it asks for them."""

import trio

from cluster.frames import CHUNK_BYTES, FrameKind
from cluster.link import CreditWindow, Link
from cluster.messages import Fetch, FilePart
from rpc.workspace import fetch_workspace_file

MAX_FILE_BYTES = 32 * 1024 * 1024
"""The most that is read of one file, whatever is asked for: it is held in memory while it is sent."""
_MAX_PROBLEM_CHARS = 500


class ServedFiles:
    """One channel's files, one at a time; ``run`` sends them. ``limiter``: of the threads that read."""

    def __init__(self, link: Link, channel: int, limiter: trio.CapacityLimiter) -> None:
        self._link = link
        self._channel = channel
        self._limiter = limiter
        self._asked: Fetch | None = None
        self._is_asked = trio.Event()
        self._scope = trio.CancelScope()
        self.window = CreditWindow()

    def ask(self, fetch: Fetch) -> None:
        """Send this file from now on, and no more of the one before."""
        self._asked = fetch
        self._scope.cancel()
        self._is_asked.set()

    async def run(self, cwd: str) -> None:
        """Serve until cancelled."""
        while True:
            await self._is_asked.wait()
            self._is_asked = trio.Event()
            fetch, self._asked = self._asked, None
            with trio.CancelScope() as self._scope:
                if fetch is not None:
                    await self._send(cwd, fetch)

    async def _send(self, cwd: str, fetch: Fetch) -> None:
        try:
            data = await fetch_workspace_file(cwd, fetch.path, min(fetch.limit, MAX_FILE_BYTES), self._limiter)
        except (OSError, ValueError) as exc:
            known = (exc.errno or 0, exc.strerror or "") if isinstance(exc, OSError) else (0, "")
            self._say(FilePart(fetch.number, errno=known[0], problem=(known[1] or str(exc))[:_MAX_PROBLEM_CHARS]))
            return
        for at in range(0, len(data) or 1, CHUNK_BYTES):
            await self.window.wait_room()
            part = data[at : at + CHUNK_BYTES]
            self.window.take(len(part))
            self._say(FilePart(fetch.number, part, is_last=at + CHUNK_BYTES >= len(data)))

    def _say(self, part: FilePart) -> None:
        self._link.send_message(FrameKind.FILE, part, self._channel)
