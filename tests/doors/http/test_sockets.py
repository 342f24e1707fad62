"""WebSockets through the HTTP door, whatever is spoken on them: the same checks, and bounds until a token is shown."""

import contextlib
from typing import Any

import pytest
import trio
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect
from trio.testing import wait_all_tasks_blocked
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.extensions import PerMessageDeflate

from doors.http import routes
from doors.http.services import HttpServices, RouteSpec, request_state, set_identity
from doors.http.settings import HttpToken
from doors.http.tokens import Scope
from tests.doors.http.conftest import Door, Open
from tests.doors.http.peer import TOKEN, answer_to
from tests.doors.websocket.peer import SocketPeer

LOOKER = "a-token-that-may-only-look-around"


@pytest.fixture
async def door(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> Door:
    """With a socket that answers every message, where one may be a token."""

    def openings(services: HttpServices) -> list[RouteSpec]:
        async def echo(socket: WebSocket) -> None:
            await socket.accept()
            with contextlib.suppress(WebSocketDisconnect):
                while True:
                    text = await socket.receive_text()
                    identity = services.access.authenticate(text)
                    if identity is not None:
                        set_identity(socket, identity)
                    known = request_state(socket).identity
                    await socket.send_json({"name": known and known.name, "size": len(text)})

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


async def opened(door: Door, path: str = "/open", token: str | None = None, **options: Any) -> tuple[SocketPeer, Any]:
    """A client, and the answer to its handshake."""
    peer = SocketPeer(await door.connect(None))
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return peer, await peer.open(path, is_challenged=False, **headers, **options)


async def said(peer: SocketPeer, text: str) -> dict[str, Any] | None:
    """What comes back."""
    await peer.say(text)
    return await peer.frame()


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
    _, answer = await opened(door, path, token, **headers)
    assert isinstance(answer, RejectConnection)
    assert answer.status_code == 403


async def test_a_peer_that_leaves_while_its_handshake_is_refused_fills_no_log(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        peer = await door.connect(None)
        shake = WSConnection(ConnectionType.CLIENT).send(Request(peer.host, "/open"))
        await peer.send_raw(shake.replace(b"\r\n\r\n", b"\r\norigin: http://evil.example\r\n\r\n"))
        await peer.stream.receive_some(1)
        await peer.stream.send_eof()
        assert await peer.is_closed()
    await wait_all_tasks_blocked()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_socket_with_a_scope_that_its_route_would_not_check_is_refused_at_the_start(
    open_door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endpoint(_: WebSocket) -> None: ...

    spec = RouteSpec("/scoped", endpoint, Scope.WRITE, is_socket=True)
    monkeypatch.setattr(routes, "DOORS", (lambda _: [spec],))
    with pytest.raises(ValueError, match=r"/scoped: a WebSocket .* takes no scope"):
        await open_door()


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
        await wait_all_tasks_blocked()
        await peer.send_raw(b"\x81\x02{}")
    assert await peer.is_closed()
    await wait_all_tasks_blocked()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_token_in_the_handshake_identifies_the_peer_and_no_compression_is_offered(door: Door) -> None:
    peer, answer = await opened(door, token=TOKEN, extensions=[PerMessageDeflate()])
    assert isinstance(answer, AcceptConnection)
    assert not answer.extensions
    assert await said(peer, "hello") == {"name": "http", "size": 5}


async def test_messages_are_small_until_a_token_is_shown(door: Door) -> None:
    peer, _ = await opened(door)
    assert await said(peer, "x" * 60_000) == {"name": None, "size": 60_000}
    assert (await said(peer, "x" * 70_000), peer.closed and peer.closed[0]) == (None, 1009)


async def test_a_token_shown_in_a_message_lets_messages_be_as_large_as_bodies(door: Door) -> None:
    peer, _ = await opened(door)
    await said(peer, TOKEN)
    assert await said(peer, "x" * 90_000) == {"name": "http", "size": 90_000}
    assert (await said(peer, "x" * 110_000), peer.closed and peer.closed[0]) == (None, 1009)


async def test_a_socket_without_a_token_gives_way_and_one_with_stays(door: Door) -> None:
    proven, _ = await opened(door)
    await opened(door)
    await said(proven, TOKEN)
    for _ in range(3):
        with trio.fail_after(20):
            assert (await (await door.connect()).call("GET", "/nothing")).status == 404
    assert door.figures.evicted == 1
    assert await said(proven, "still here") == {"name": "http", "size": 10}
