"""An answer as a stream of server-sent events, each as soon as the agent says it.

The stream begins with the first word, or when the agent has been silent for some time: what goes wrong before has a
status of its own, what goes wrong later is the stream's last message.
"""

from typing import Protocol

import trio
from starlette.types import Receive, Scope, Send

from doors.http.refusals import told
from doors.http.sse import STREAM_HEADERS
from doors.openai.answers import WAITING
from doors.openai.asking import Asking
from doors.openai.refusals import render
from doors.openai.stops import StopCutter
from doors.openai.words import Words
from errors import PoolError
from gateway.run import RunOutcome

__all__ = ["AnswerStream"]

_QUIET_SECONDS = 15.0
"""After so long without a word a comment is sent: proxies keep the connection, a peer that has gone is noticed."""

Headers = dict[str, str]


class Messages(Protocol):
    """Makes the messages of one stream."""

    def text(self, text: str) -> bytes:
        """More of the answer."""
        ...

    def end(self, outcome: RunOutcome) -> bytes:
        """The last messages."""
        ...

    def failed(self, error: PoolError) -> bytes:
        """The last message of a stream that fails."""
        ...


class AnswerStream:
    """One answer, held one piece at a time: a slow reader delays its stream, not the run.

    An answer of a given form comes in one piece, once it is known to fit.
    """

    def __init__(self, asking: Asking, chunks: Messages, headers: Headers) -> None:
        self._asking = asking
        self._chunks = chunks
        self._headers = [*STREAM_HEADERS, *((name.encode(), value.encode()) for name, value in headers.items())]
        self._words = Words()
        self._stops = StopCutter(asking.wanted.stop)
        self._comes_whole = asking.wanted.json is not None or bool(asking.wanted.must_call)
        self._error: PoolError | None = None
        self._has_begun = False
        self._has_left = False
        self._pieces, self._taken = trio.open_memory_channel[bytes](0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the peer leaves."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, receive)
            await self._write(send)
        if self._has_left:
            return
        if self._error is not None and not self._has_begun:
            await render(self._error)(scope, receive, send)
            return
        last = b"" if self._error is None else self._chunks.failed(self._error)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def _ask(self, receive: Receive) -> None:
        async with self._pieces:
            try:
                outcome = await self._asking.answer(receive, self._take)
            except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
                self._error = told(exc, "a completion")
                return
            self._has_left = outcome is None
            if outcome is not None:
                rest = self._stops.end() if self._words.has_spoken else outcome.text
                said = self._chunks.text(rest) if rest else b""
                await self._pieces.send(said + self._chunks.end(outcome))

    async def _take(self, _event: str, data: bytes) -> None:
        text = "" if self._comes_whole else self._stops.push(self._words.take(data))
        if text:
            await self._pieces.send(self._chunks.text(text))
        else:
            await trio.lowlevel.checkpoint()

    # --- what is answered ---------------------------------------------------------------------------------------------

    async def _write(self, send: Send) -> None:
        """Until there is no more. Nobody else writes, so that a piece is whole or the peer is gone."""
        while True:
            piece = WAITING
            with trio.move_on_after(_QUIET_SECONDS):
                try:
                    piece = await self._taken.receive()
                except trio.EndOfChannel:
                    return
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": piece, "more_body": True})
