"""HTTP/1.1 as Hypercorn speaks it, without what this server does not offer: HTTP/2 and compressed WebSockets."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.ws_stream import ASGIWebsocketState, WSStream
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp
from wsproto.connection import ConnectionState
from wsproto.events import TextMessage

from doors.http.errors import HttpError, render_error
from doors.http.services import HttpServices

_ERROR_TEXTS = {
    431: "the request's line and headers are too large (http.max_headers)",
    505: "only HTTP/1.1 is spoken here",
}

_AMBIGUOUS_LENGTH_TEXT = "a request has both Content-Length and Transfer-Encoding: its end is ambiguous"

FIRST_MESSAGE_BYTES = 64 * 1024
"""A WebSocket's message before a token is shown."""


class _AmbiguousLength(h11.RemoteProtocolError):
    """Request smuggling: a body with two lengths, of which a proxy may believe the other."""


class ServerContext(WorkerContext):
    """What all connections of a server share with Hypercorn: the application, its limits, and the server's end."""

    def __init__(self, app: ASGIApp, services: HttpServices) -> None:
        super().__init__(max_requests=None)
        self.app = app
        self.services = services


class HttpProtocol(H11Protocol):
    """One connection's. ``tasks`` runs the application, ``send`` takes bytes and what becomes of the connection."""

    stream: Any

    def __init__(
        self,
        context: ServerContext,
        tasks: Any,
        state: dict[str, Any],
        addresses: tuple[Any, Any],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        client, server = addresses
        config = Config()
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.h11_max_incomplete_size = int(context.services.settings.max_headers)
        config.keep_alive_max_requests = 2**63
        config.websocket_max_message_size = FIRST_MESSAGE_BYTES
        super().__init__(context.app, config, context, tasks, state, False, client, server, send)  # type: ignore[arg-type]  # noqa: FBT003  # no TLS

    @property
    def has_no_partial_request(self) -> bool:
        """Whether the peer has sent a whole request, or nothing at all."""
        return self.connection.their_state in (None, h11.IDLE, h11.DONE, h11.MUST_CLOSE, h11.CLOSED)

    def set_max_message_size(self, size: int) -> None:
        """A WebSocket's messages may be so large from now on."""
        if isinstance(self.stream, WSStream):
            self.stream.buffer.max_length = size

    def encode_messages(self, messages: Sequence[bytes]) -> bytes:
        """A WebSocket's messages of UTF-8 text as the bytes to send; none once it is closed."""
        stream = self.stream
        if not isinstance(stream, WSStream) or stream.closed or stream.connection.state is not ConnectionState.OPEN:
            return b""
        return b"".join([stream.connection.send(TextMessage(data=message.decode())) for message in messages])

    async def handle(self, event: Event) -> None:
        """Take what has arrived, or that nothing will."""
        if isinstance(event, RawData) and self._is_in_handshake:
            await self.send(Closed())  # Hypercorn's refusal and the endpoint's answer would run into each other
            return
        try:
            await super().handle(event)
        except h11.RemoteProtocolError as exc:
            text = _AMBIGUOUS_LENGTH_TEXT if isinstance(exc, _AmbiguousLength) else ""
            await self._send_error_response(exc.error_status_hint, text)
            await self.send(Closed())
        if self._has_refused:
            await self.send(Closed())  # Hypercorn would wait, for ever, until the peer agrees

    @property
    def _has_refused(self) -> bool:
        """Whether Hypercorn itself has refused a WebSocket's handshake, or a message that was too large."""
        stream = self.stream
        if not isinstance(stream, WSStream):
            return False
        if stream.state is ASGIWebsocketState.HANDSHAKE:
            return stream.closed
        if stream.state is not ASGIWebsocketState.CONNECTED:
            return False  # a refused one never gets a ``connection``
        return stream.connection.state is ConnectionState.LOCAL_CLOSING  # and its endpoint has closed nothing

    @property
    def _is_in_handshake(self) -> bool:
        """Whether a WebSocket's endpoint has not answered yet: until then its peer has nothing to say."""
        stream = self.stream
        return isinstance(stream, WSStream) and not stream.closed and stream.state is ASGIWebsocketState.HANDSHAKE

    async def _check_protocol(self, event: h11.Request) -> None:
        """An offer to speak HTTP/2 is passed over, as the standard allows."""
        await trio.lowlevel.checkpoint()
        if event.http_version not in (b"1.0", b"1.1"):
            raise h11.RemoteProtocolError("only HTTP/1.1 is spoken here", error_status_hint=505)
        size = len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers)
        if size > self.config.h11_max_incomplete_size:  # h11 looks at what is incomplete only
            raise h11.RemoteProtocolError("the headers are too large", error_status_hint=431)
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            raise _AmbiguousLength("two lengths", error_status_hint=400)
        is_upgrade = any(name == b"upgrade" and value.lower() == b"websocket" for name, value in event.headers)
        if is_upgrade and self.connection.trailing_data[0]:
            raise h11.RemoteProtocolError("frames came before the handshake was answered", error_status_hint=400)

    async def _send_error_response(self, status_code: int, text: str = "") -> None:
        """To bytes that are no request."""
        usual = f"what was sent is no HTTP request ({HTTPStatus(status_code).phrase})"
        text = text or _ERROR_TEXTS.get(status_code, usual)
        answer = render_error(HttpError(HTTPStatus(status_code), text, {"connection": "close"}))
        fields = [*answer.raw_headers, *self.config.response_headers("h11")]
        head = h11.Response(status_code=status_code, headers=fields)
        # in one piece: the endpoint of the same request may be about to answer
        parts = [self.connection.send(part) for part in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage())]
        await self.send(RawData(b"".join(part or b"" for part in parts)))

    async def _create_stream(self, request: h11.Request) -> None:
        """A small compressed message may be a large one: no compression is offered."""
        kept = [(name, value) for name, value in request.headers if name != b"sec-websocket-extensions"]
        if len(kept) < len(request.headers):
            version = request.http_version
            request = h11.Request(method=request.method, headers=kept, target=request.target, http_version=version)
        await super()._create_stream(request)
