"""A model behind any server that speaks OpenAI's chat completions: one streamed request a call.

A call that is cancelled or abandoned closes its connection at once.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import trio

from agent.models.base import CallPiece, Model, ModelError, ModelRequest, Piece
from agent.models.openai_endpoint import Endpoint, Timeouts
from agent.models.openai_errors import error_of_status
from agent.models.openai_messages import ToolNameMap, request_body
from agent.models.openai_stream import AnswerLimits, StreamedAnswer, WholeAnswer

if TYPE_CHECKING:
    from agent.models.openai_connection import OpenAIConnection, ResponseStream


_AnswerParser: TypeAlias = StreamedAnswer | WholeAnswer


class OpenAIModel(Model):
    """One model of one server."""

    provider = "openai"
    keeps_cache = True

    def __init__(
        self, name: str, endpoint: Endpoint, timeouts: Timeouts | None = None, limits: AnswerLimits | None = None
    ) -> None:
        self.name = name
        self.needs_alternation = endpoint.compat.strict_roles
        self.takes_answer_options = endpoint.compat.answer_options
        self._endpoint = endpoint
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or AnswerLimits()
        self._connection: OpenAIConnection | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream one answer. Raises ModelError."""
        names = ToolNameMap(tool.name for tool in request.tools)
        try:
            async with aclosing(self._stream_answer(request, names)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, CallPiece):
                        yield CallPiece(names.from_server(piece.name), piece.input)
                    else:
                        yield piece
        except ModelError as exc:
            raise self._redacted(exc) from exc.__cause__

    async def aclose(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _stream_answer(self, request: ModelRequest, names: ToolNameMap) -> AsyncGenerator[Piece, None]:
        body = msgspec.json.encode(request_body(self.name, request, names, self._endpoint.compat))
        if self._connection is None:  # made in a thread: it takes a tenth of a second, and pings do not wait
            self._connection = await trio.to_thread.run_sync(_connect, self._endpoint, self._timeouts)
        async with self._connection.post(body) as reply:
            answer = await self._open_answer(reply)
            async with aclosing(self._read(reply, answer)) as batches:
                async for pieces in batches:
                    for piece in pieces:
                        yield piece
            for piece in answer.close():
                yield piece
            await reply.drain(self._timeouts.end)

    async def _open_answer(self, reply: "ResponseStream") -> _AnswerParser:
        if reply.status != 200:
            body = await reply.read_start(64 * 1024, self._timeouts.error)
            hint = self._endpoint.key_hint
            raise error_of_status(reply.status, reply.headers, body, time.time(), key_hint=hint)
        kind = reply.content_type
        if kind in {"text/html", "application/xhtml+xml"}:
            raise ModelError(f"{self._endpoint.origin} answered with a web page: is the base URL right?")
        form = WholeAnswer if kind == "application/json" or kind.endswith("+json") else StreamedAnswer
        return form(self._limits)

    async def _read(self, reply: "ResponseStream", answer: _AnswerParser) -> AsyncGenerator[list[Piece], None]:
        """Pieces as they come, until the answer is complete and counted, or the body has ended."""
        seconds = self._timeouts.first_byte
        until = trio.current_time() + seconds
        while not answer.done and (data := await _read_chunk(reply, answer, until)) is not None:
            was_complete = answer.complete
            pieces = answer.feed(data)
            yield pieces
            if answer.complete:
                seconds = self._timeouts.count
            elif pieces:
                seconds = self._timeouts.between_bytes
            if not was_complete:
                until = trio.current_time() + seconds

    def _redacted(self, error: ModelError) -> ModelError:
        """The error without the key, which some servers repeat."""
        return ModelError(
            self._endpoint.key.redact(str(error)),
            transient=error.transient,
            retry_after=error.retry_after,
            overflow=error.overflow,
        )


def _connect(endpoint: Endpoint, timeouts: Timeouts) -> "OpenAIConnection":
    from agent.models.openai_connection import OpenAIConnection  # noqa: PLC0415 - httpx is heavy, and may never be needed

    return OpenAIConnection(endpoint, timeouts)


async def _read_chunk(reply: "ResponseStream", answer: _AnswerParser, until: float) -> bytes | None:
    try:
        return await reply.read(until)
    except ModelError:
        if answer.complete:
            return None  # only the count of its tokens is missing
        raise
