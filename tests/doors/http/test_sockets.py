"""WebSockets through the HTTP door, whatever is spoken on them: the same checks, and bounds until a token is shown."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, RejectConnection, Request
from wsproto.extensions import PerMessageDeflate

from doors.http import routes
from doors.http.services import HttpServices, RouteSpec, request_state, set_identity
from doors.http.settings import HttpToken
from doors.http.tokens import Scope
from tests.doors.http.conftest import Door, Open
from tests.doors.http.peer import TOKEN, HttpPeer, answer_to

LOOKER = "a-token-that-may-only-look-around"


class Socket:
    """A client's side of a WebSocket."""

    def __init__(self, peer: HttpPeer) -> None:
        self._peer = peer
        self._ws = WSConnection(ConnectionType.CLIENT)

    async def open(self, path: str, extensions: Sequence[Any] = (), **headers: str) -> Any:
        """The answer to the handshake."""
        given = {"authorization": f"Bearer {self._peer.token}"} if self._peer.token else {}
        fields = [(name.encode(), value.encode()) for name, value in {**given, **headers}.items()]
        await self.send(Request(self._peer.host, path, extensions=list(extensions), extra_headers=fields))
        return await self.receive()

    async def send(self, event: Any) -> None:
        await self._peer.send_raw(self._ws.send(event))

    async def say(self, text: str) -> Any:
        """Send a text; what comes back."""
        await self.send(Message(data=text))
        return await self.receive()

    async def receive(self) -> Any:
        while (event := next(self._ws.events(), None)) is None:
            self._ws.receive_data(await self._peer.stream.receive_some(65536) or None)
        return event


@pytest.fixture
async def door(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> Door:
    """With a socket that answers every message, where one may be a token."""

    def openings(services: HttpServices) -> list[RouteSpec]:
        async def echo(socket: WebSocket) -> None:
            await socket.accept()
            try:
                while True:
                    text = await socket.receive_text()
                    identity = services.access.authenticate(text)
                    if identity is not None:
                        set_identity(socket, identity)
                    known = request_state(socket).identity
                    await socket.send_text(f"{known.name if known else 'nobody'} {len(text)}")
            except WebSocketDisconnect:
                return

        async def slow(socket: WebSocket) -> None:
            assert (await socket.receive())["type"] == "websocket.connect"
            assert (await socket.receive())["type"] == "websocket.disconnect"

        return [
            RouteSpec("/slow", slow, None, is_socket=True),
            RouteSpec("/open", echo, None, is_socket=True),
            RouteSpec("/request", done, Scope.WRITE),
        ]

    async def done(_: HttpRequest) -> Response:
        return JSONResponse({})

    monkeypatch.setattr(routes, "DOORS", (openings,))
    return await open_door(tokens={"looker": HttpToken(token=LOOKER)})


@pytest.mark.parametrize(
    ("token", "path", "headers"),
    [
        (None, "/open", {"origin": "http://evil.example"}),
        (TOKEN, "/open", {"origin": "null"}),
        (TOKEN, "/nothing", {}),
    ],
)
async def test_a_handshake_is_refused_as_a_request_would_be(
    door: Door, token: str | None, path: str, headers: dict[str, str]
) -> None:
    answer = await Socket(await door.connect(token)).open(path, **headers)
    assert isinstance(answer, RejectConnection)
    assert answer.status_code == 403


async def test_a_route_for_tokens_that_write_is_closed_to_one_that_may_only_read(door: Door) -> None:
    assert (await door.call("GET", "/request", token=LOOKER)).status == 403
    assert (await door.call("GET", "/request")).status == 200


KEY = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    ("http", "headers"),
    [("1.1", f"version: 7\r\n{KEY}\r\n"), ("1.1", "version: 13\r\n"), ("1.0", "version: 13\r\n")],
    ids=["another version", "no key", "HTTP/1.0"],
)
async def test_what_is_no_handshake_is_answered_and_the_connection_ends(door: Door, http: str, headers: str) -> None:
    peer = await door.connect(None)
    upgrade = f"host: {peer.host}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-{headers}"
    answer = await answer_to(peer, f"GET /open HTTP/{http}\r\n{upgrade}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket"])
async def test_a_peer_that_sends_frames_before_the_handshake_is_answered_is_let_go_and_fills_no_log(
    door: Door, caplog: pytest.LogCaptureFixture, pieces: int, upgrade: str
) -> None:
    peer = await door.connect(None)
    shake = WSConnection(ConnectionType.CLIENT).send(Request(peer.host, "/slow"))
    shake = shake.replace(b"Upgrade: websocket", f"Upgrade: {upgrade}".encode())
    await peer.send_raw(shake + b"\x81\x02{}" * (pieces == 1))
    if pieces == 2:
        await trio.testing.wait_all_tasks_blocked()
        await peer.send_raw(b"\x81\x02{}")
    assert await peer.is_closed()
    await trio.testing.wait_all_tasks_blocked()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_token_in_the_handshake_identifies_the_peer_and_no_compression_is_offered(door: Door) -> None:
    socket = Socket(await door.connect())
    answer = await socket.open("/open", extensions=[PerMessageDeflate()])
    assert isinstance(answer, AcceptConnection)
    assert not answer.extensions
    assert (await socket.say("hello")).data == "http 5"


async def test_messages_are_small_until_a_token_is_shown(door: Door) -> None:
    socket = Socket(await door.connect(None))
    await socket.open("/open")
    assert (await socket.say("x" * 60_000)).data == "nobody 60000"
    closed = await socket.say("x" * 70_000)
    assert (type(closed), closed.code) == (CloseConnection, 1009)


async def test_a_token_shown_in_a_message_lets_messages_be_as_large_as_bodies(door: Door) -> None:
    socket = Socket(await door.connect(None))
    await socket.open("/open")
    assert (await socket.say(TOKEN)).data.startswith("http ")
    assert (await socket.say("x" * 90_000)).data == "http 90000"
    assert (await socket.say("x" * 110_000)).code == 1009


async def test_a_socket_without_a_token_gives_way_and_one_with_stays(door: Door) -> None:
    proven, stranger = Socket(await door.connect(None)), Socket(await door.connect(None))
    for socket in (proven, stranger):
        await socket.open("/open")
    await proven.say(TOKEN)
    for _ in range(3):
        with trio.fail_after(20):
            assert (await (await door.connect()).call("GET", "/nothing")).status == 404
    assert door.figures.evicted == 1
    assert (await proven.say("still here")).data == "http 10"
