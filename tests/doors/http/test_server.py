"""The server under hostile peers: bytes that are no request, slow and large ones, many of them; and at its end."""

import contextlib
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from doors.http.server import HttpServer, bind
from doors.http.settings import HttpSettings, url_of
from errors import UsageError
from tests.doors.http.conftest import Door, Open, settle
from tests.doors.http.peer import GET, POST, TOKEN, HttpPeer, answer_to
from tests.doors.methods import FakeMethods
from wire.addresses import parse_bind
from wire.units import Seconds

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


MALFORMED = [
    (b"GARBAGE\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100, 400),
    (GET + b"X: " + b"x" * 5000 + b"\r\n\r\n", 431),
    (GET + b"".join(b"X%d: y\r\n" % number for number in range(1000)) + b"\r\n", 431),
    (b"GET /" + b"x" * 5000, 431),
    (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    (GET + b"Content-Length: -1\r\n\r\n", 400),
    (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"PRI * HTTP/2.0\r\nHost: localhost\r\n\r\nSM\r\n\r\n", 505),
    (GET.replace(b"/health", b"http://evil.example/health") + b"Connection: close\r\n\r\n", 404),
]


async def test_bytes_that_are_no_request_are_answered_and_end_the_connection(door: Door) -> None:
    for data, status in MALFORMED:
        answer = await answer_to(await door.connect(), data)
        assert answer.startswith(b"HTTP/1.1 %d" % status), data
        assert b'"error":{"code":"%b"' % HTTPStatus(status).name.lower().encode() in answer
        assert (await door.call("GET", "/health")).status == 200


async def test_what_comes_behind_a_malformed_body_or_two_lengths_is_not_read(door: Door) -> None:
    """A proxy that goes by the other length would take the rest for a request of somebody else's."""
    answer = await answer_to(await door.connect(), GET + CHUNKED + b"zz\r\n" + GET + b"\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    answer = await answer_to(await door.connect(), GET + b"Content-Length: 6\r\n" + CHUNKED + b"0\r\n\r\n" + GET)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"both Content-Length and Transfer-Encoding" in answer
    assert b"connection: close" in answer.lower()


async def test_an_offer_to_speak_http_2_is_passed_over(door: Door) -> None:
    offer = {"connection": "upgrade, http2-settings", "upgrade": "h2c"}
    assert (await door.call("GET", "/health", **offer)).status == 200


async def test_requests_that_come_at_once_are_answered_in_order(door: Door) -> None:
    peer = await door.connect()
    await peer.send_raw((GET + b"\r\n") * 3)
    answer = b""
    while answer.count(b'{"status":"ok"}') < 3:
        answer += await peer.stream.receive_some(65536)
    assert answer.count(b"HTTP/1.1 200") == 3


REQUEST = GET + b"\r\n"
SHORT = Seconds(0.1)


@pytest.mark.parametrize(
    ("limit", "sent", "answers"),
    [
        *(
            ("header_timeout", b"", []),
            ("header_timeout", GET[:-2], []),
        ),
        *(("idle_timeout", REQUEST, [200]), ("body_timeout", POST + b"Content-Length: 50\r\n\r\n{", [408])),
    ],
    ids=["no headers", "half of them", "silence", "half a body"],
)
async def test_what_does_not_arrive_in_time_is_not_waited_for(
    open_door: Open, methods: FakeMethods, limit: str, sent: bytes, answers: list[int]
) -> None:
    door = await open_door(**{limit: SHORT})
    said = await answer_to(await door.connect(), sent)
    assert [int(line[9:12]) for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")] == answers
    await settle(lambda: door.figures.connections == 0)
    assert methods.calls == []


async def test_headers_that_come_a_byte_at_a_time_have_no_more_time_than_others(open_door: Open) -> None:
    peer, count = await (await open_door(header_timeout=SHORT)).connect(), 0
    with trio.fail_after(20), contextlib.suppress(trio.BrokenResourceError):
        while True:
            await peer.send_raw(b"X")
            count += 1
            await trio.sleep(0.01)
    assert count < 60


async def test_the_headers_of_a_later_request_have_no_more_time_than_those_of_the_first(open_door: Open) -> None:
    peer = await (await open_door(header_timeout=SHORT, idle_timeout=Seconds(3600))).connect()
    assert (await peer.call("GET", "/health")).status == 200
    await wait_all_tasks_blocked()  # the server rests, too
    await peer.send_raw(b"GET /health HTTP/1.1\r\n")
    assert await peer.is_closed()


async def test_a_request_may_take_longer_than_all_that_waits_for_the_peer(
    open_door: Open, methods: FakeMethods, mock_clock: MockClock
) -> None:
    limits = dict.fromkeys(("header_timeout", "body_timeout", "idle_timeout", "write_stall"), Seconds(0.2))
    peer = await (await open_door(**limits)).connect()
    await peer.send("POST", "/api/wait", {})
    await methods.hanging.wait()
    mock_clock.jump(60)
    await wait_all_tasks_blocked()
    methods.release.set()
    assert (await peer.read()).json == "released"


async def test_a_peer_that_does_not_read_is_cut_off(open_door: Open, methods: FakeMethods) -> None:
    door = await open_door(write_stall=Seconds(0.1))
    peer = await door.connect()
    peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await peer.open("/events")
    await settle(lambda: door.figures.stalled == 1 and door.figures.connections == 0)
    assert (door.figures.streams, methods.ended) == (0, ["closing"])


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 1000000000000\r\n\r\n" + b"x" * 1000,
        CHUNKED + b"1\r\nx\r\n" * 10_000,
        CHUNKED + (b"200\r\n" + b"x" * 0x200 + b"\r\n") * 1000,
    ],
    ids=["declared", "tiny chunks", "chunks"],
)
async def test_a_body_without_end_is_refused_where_it_becomes_too_large(
    open_door: Open, methods: FakeMethods, body: bytes
) -> None:
    answer = await answer_to(await (await open_door(max_body=5000)).connect(), POST + body)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"http.max_body" in answer
    assert methods.calls == []


async def test_nothing_is_read_from_a_peer_that_has_shown_no_token(door: Door, methods: FakeMethods) -> None:
    """Neither do the bytes that it sends on keep the connection, or its place."""
    peer = await door.connect()
    head = b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED
    answer = await answer_to(peer, head + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 100)
    assert answer.startswith(b"HTTP/1.1 401"), "the answer was not lost on a connection that was reset"
    await peer.stream.aclose()
    await settle(lambda: door.figures.connections == 0)
    assert methods.calls == []


async def test_all_bodies_together_have_a_budget_that_is_given_back(open_door: Open, methods: FakeMethods) -> None:
    door = await open_door(body_bytes=50_000)
    large, first = {"text": "x" * 99_000}, await door.connect()
    await first.send("POST", "/api/wait", large)
    await methods.hanging.wait()
    answer = await door.call("POST", "/api/echo", large)
    assert (answer.status, answer.error["code"]) == (503, "saturated")
    assert (await door.call("POST", "/api/echo", {"text": "x" * 9000})).status == 200, "small ones pass"
    methods.release.set()
    assert (await first.read()).status == 200
    assert (await door.call("POST", "/api/echo", large)).status == 200


async def test_connections_without_a_token_give_way_to_others_the_oldest_first(door: Door) -> None:
    strangers = [await door.connect(None) for _ in range(4)]
    await settle(lambda: door.figures.connections == 4)
    assert (await door.call("POST", "/api/echo")).status == 200
    assert door.figures.evicted == 1
    assert await strangers[0].is_closed()
    assert (await strangers[1].call("GET", "/health")).status == 200


async def test_where_all_are_busy_a_new_connection_is_told_so(door: Door, methods: FakeMethods) -> None:
    busy = [await door.connect() for _ in range(4)]
    for peer in busy:
        await peer.send("POST", "/api/wait", {})
    await settle(lambda: methods.running == 4)
    late = await HttpPeer.connect(door.url)
    answer = await late.read()
    assert (answer.status, answer.error["code"]) == (503, "saturated")
    await late.stream.aclose()
    assert door.figures.turned_away == 1
    methods.release.set()
    assert [(await peer.read()).status for peer in busy] == [200] * 4


async def test_thousands_of_attempts_to_connect_leave_room_for_a_peer_with_a_token(open_door: Open) -> None:
    door = await open_door(max_connections=16)
    owner, most = await door.connect(), 0
    host, _, port = owner.host.rpartition(":")
    for count in range(100, 2_001, 100):
        crowd = [socket.create_connection((host, int(port))) for _ in range(100)]
        assert (await owner.call("POST", "/api/echo", {})).status == 200, "its connection stays"
        await settle(lambda count=count: door.figures.accepted == count + 1)  # type: ignore[misc]  # it takes none
        most = max(most, door.figures.connections)
        for sock in crowd:
            sock.close()
    assert most <= 16 + 1
    assert (await door.call("POST", "/api/echo")).status == 200


async def test_a_peer_that_leaves_in_the_middle_of_anything_leaves_nothing_behind(
    door: Door, methods: FakeMethods
) -> None:
    for sent in (b"", GET[:20], GET + b"\r\n", GET + b"Content-Length: 5\r\n\r\nhe"):
        peer = await door.connect()
        await peer.send_raw(sent)
        peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await peer.stream.aclose()
    await settle(lambda: door.figures.accepted == 4 and door.figures.connections == 0)
    assert methods.running == 0


async def test_a_defect_of_one_connection_is_logged_and_ends_no_other(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_self: object) -> None:
        raise KeyError("nothing")

    other = await door.connect()
    await other.call("GET", "/health")
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("doors.http.connection.HttpConnection._read", fail)
        assert await (await door.connect()).is_closed()
    assert "a connection failed" in caplog.text
    assert (await other.call("GET", "/health")).status == 200


async def test_at_the_end_requests_are_answered_and_no_further_connection_is_accepted(
    door: Door, methods: FakeMethods
) -> None:
    idle, busy = await door.connect(), await door.connect()
    await idle.call("GET", "/health")
    await busy.send("POST", "/api/hang", {})
    await methods.hanging.wait()
    door.close()
    answer = await busy.read()
    assert (answer.status, answer.error["code"]) == (503, "pool_closed")
    assert await idle.is_closed()
    with trio.fail_after(20):
        await door.ended.wait()
    with pytest.raises(OSError, match="onnect"):
        await door.connect()


async def test_a_server_that_is_told_to_end_before_it_has_begun_ends(tmp_path: Path) -> None:
    server = new_server(tmp_path, token=TOKEN)
    with trio.fail_after(20), trio.CancelScope() as scope:
        scope.cancel()
        await server.serve()
    assert server.services.shutdown.has_begun


async def test_a_peer_that_does_not_read_does_not_hold_up_the_end(open_door: Open) -> None:
    door = await open_door(write_stall=3600, close_grace=Seconds(0.1))
    peer = await door.connect()
    peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await peer.open("/events")
    await wait_all_tasks_blocked(0.05)
    door.close()
    with trio.fail_after(20):
        await door.ended.wait()


def new_server(folder: Path, *, hide: Callable[[list[str]], None] = lambda _: None, **settings: str) -> HttpServer:
    return HttpServer(FakeMethods(), HttpSettings(**{"bind": "127.0.0.1:0", **settings}), folder, hide=hide, env={})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "8765", ":8765", "127.0.0.1", "127.0.0.1:", "::1:80", "h:99999", "h:x", "[]:1"])
def test_an_address_that_cannot_be_is_refused_with_one_that_can(text: str) -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:8765"):
        parse_bind(text)


def test_an_address_is_told_as_a_browser_wants_it() -> None:
    assert parse_bind("[::1]:80") == ("::1", 80)
    assert [url_of(("::1", 80)), url_of(("127.0.0.1", 8765))] == ["http://[::1]:80", "http://127.0.0.1:8765"]
    assert [url_of(("::", 80, 0, 0)), url_of(("0.0.0.0", 80))] == ["http://[::1]:80", "http://127.0.0.1:80"]


def test_other_machines_are_let_in_only_where_a_token_was_chosen_for_it() -> None:
    with pytest.raises(UsageError, match=r"http\.token_file"):
        bind("0.0.0.0:0", token_was_made=True)
    with bind("0.0.0.0:0", token_was_made=False) as chosen, bind("localhost:0", token_was_made=True) as local:
        assert chosen.getsockname()[0] == "0.0.0.0"
        assert local.getsockname()[1]


async def test_a_reload_that_takes_the_chosen_token_away_is_refused_where_other_machines_reach_the_port(
    open_door: Open,
) -> None:
    door = await open_door(bind="0.0.0.0:0")
    with pytest.raises(UsageError, match=r"http\.bind is 0\.0\.0\.0:0, which other machines can reach"):
        door.server.prepare(HttpSettings(bind="0.0.0.0:0"))
    assert not (door.data_dir / "http-token").exists()
    door.server.prepare(HttpSettings(bind="0.0.0.0:0", token="another-token-0123456789"))()
    local = await open_door()
    local.server.prepare(HttpSettings(bind="127.0.0.1:0"))()
    assert (local.data_dir / "http-token").exists()


async def test_an_address_in_use_is_said_with_its_setting(door: Door, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"http\.bind.*in use"):
        await new_server(tmp_path, bind=door.url.removeprefix("http://"), token=TOKEN).serve()


async def test_a_made_token_is_hidden_and_told_as_a_place(tmp_path: Path) -> None:
    hidden: list[str] = []
    server = new_server(tmp_path, hide=hidden.extend)
    assert hidden == [(tmp_path / "http-token").read_text().strip()]
    assert server.status_fields() == {"url": "", "token_path": str(tmp_path / "http-token")}
