"""The server under peers that mean no good, and at its end."""

import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from doors.http.binding import bind, parse_bind, url_of
from doors.http.server import HttpServer
from doors.http.settings import HttpSettings
from errors import UsageError
from tests.doors.http.conftest import Connect, Door, Open
from tests.doors.http.peer import GET, TOKEN, HttpPeer, answer_to
from tests.doors.methods import FakeMethods
from tests.gateway.world import World
from wire.units import Seconds


async def settle(until: Callable[[], bool]) -> None:
    """Let the server's tasks go on until something holds, within reason."""
    with trio.fail_after(20):
        while not until():
            await wait_all_tasks_blocked(0.005)


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"G", GET, GET[:-2]])
async def test_headers_that_do_not_come_to_an_end_are_not_waited_for(
    open_door: Open, connect: Connect, sent: bytes
) -> None:
    door = await open_door(header_timeout=Seconds(0.3))
    assert await answer_to(await connect(door), sent) == b""
    await settle(lambda: door.figures.connections == 0)


async def test_headers_that_come_a_byte_at_a_time_have_no_more_time_than_others(
    open_door: Open, connect: Connect
) -> None:
    peer = await connect(await open_door(header_timeout=Seconds(0.3)))
    sent = 0
    with trio.fail_after(20), contextlib.suppress(trio.BrokenResourceError):
        while True:
            await peer.send_raw(b"X")
            sent += 1
            await trio.sleep(0.02)
    assert sent < 60


async def test_the_headers_of_a_later_request_have_no_more_time_than_those_of_the_first(
    open_door: Open, connect: Connect
) -> None:
    peer = await connect(await open_door(header_timeout=Seconds(1), idle_timeout=Seconds(3600)))
    assert (await peer.call("GET", "/health")).status == 200
    await wait_all_tasks_blocked()  # the server rests, too
    await peer.send_raw(b"GET /health HTTP/1.1\r\n")
    with trio.fail_after(20):
        assert await peer.is_closed()


async def test_a_connection_without_a_request_is_closed_after_a_while(open_door: Open, connect: Connect) -> None:
    peer = await connect(await open_door(idle_timeout=Seconds(0.3)))
    assert (await peer.call("GET", "/health")).status == 200
    with trio.fail_after(20):
        assert await peer.is_closed()


async def test_a_body_that_does_not_arrive_is_not_waited_for(
    open_door: Open, connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect(await open_door(body_timeout=Seconds(0.3)))
    head = f"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    answer = await answer_to(peer, f"{head}Content-Length: 50\r\n\r\n{{".encode())
    assert answer.startswith(b"HTTP/1.1 408")
    assert methods.calls == []


async def test_a_request_may_take_longer_than_all_that_waits_for_the_peer(
    open_door: Open, connect: Connect, methods: FakeMethods
) -> None:
    limits = dict.fromkeys(("header_timeout", "body_timeout", "idle_timeout", "write_stall"), Seconds(0.5))
    peer = await connect(await open_door(**limits))
    await peer.send("POST", "/api/wait", {})
    await trio.sleep(0.6)
    methods.release.set()
    assert (await peer.read()).json == "released"


async def test_a_peer_that_does_not_read_is_cut_off(open_door: Open, connect: Connect, methods: FakeMethods) -> None:
    door = await open_door(write_stall=Seconds(0.3))
    peer = await connect(door)
    peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await peer.open("/events")
    await settle(lambda: door.figures.stalled == 1)
    await settle(lambda: door.figures.connections == 0)
    assert door.figures.streams == 0
    assert methods.ended == ["closing"]


# --- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_body_that_says_it_is_too_large_is_not_read(door: Door, connect: Connect, methods: FakeMethods) -> None:
    peer = await connect(door)
    head = f"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    answer = await answer_to(peer, f"{head}Content-Length: 1000000000000\r\n\r\n".encode() + b"x" * 1000)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"http.max_body" in answer
    assert methods.calls == []


@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"200\r\n" + b"x" * 0x200 + b"\r\n"])
async def test_a_body_without_end_is_refused_where_it_becomes_too_large(
    open_door: Open, connect: Connect, methods: FakeMethods, chunk: bytes
) -> None:
    door = await open_door(max_body=5000)
    head = f"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    peer = await connect(door)
    answer = await answer_to(peer, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 10_000)
    assert answer.startswith(b"HTTP/1.1 413")
    assert methods.calls == []


async def test_nothing_is_read_from_whoever_has_shown_no_token(
    door: Door, connect: Connect, methods: FakeMethods
) -> None:
    """Neither do the bytes that it sends on keep the connection, or its place."""
    peer = await connect(door)
    head = b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await answer_to(peer, head + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 100)
    assert answer.startswith(b"HTTP/1.1 401"), "the answer was not lost on a connection that was reset"
    await peer.stream.aclose()
    await settle(lambda: door.figures.connections == 0)
    assert methods.calls == []


async def test_all_bodies_together_have_a_budget_that_is_given_back(
    open_door: Open, connect: Connect, methods: FakeMethods
) -> None:
    door = await open_door(body_bytes=50_000)
    large = {"text": "x" * 99_000}
    first, second = await connect(door), await connect(door)
    await first.send("POST", "/api/wait", large)
    await methods.hanging.wait()
    answer = await second.call("POST", "/api/echo", large)
    assert (answer.status, answer.error["code"]) == (503, "saturated")
    assert (await (await connect(door)).call("POST", "/api/echo", {"text": "x" * 9000})).status == 200, (
        "small ones pass"
    )
    methods.release.set()
    assert (await first.read()).status == 200
    assert (await (await connect(door)).call("POST", "/api/echo", large)).status == 200


# --- many -------------------------------------------------------------------------------------------------------------


async def test_connections_without_a_token_give_way_to_others_the_oldest_first(door: Door, connect: Connect) -> None:
    strangers = [await connect(door, None) for _ in range(4)]
    await settle(lambda: door.figures.connections == 4)
    assert (await (await connect(door)).call("POST", "/api/echo")).status == 200
    assert door.figures.evicted == 1
    assert await strangers[0].is_closed()
    assert (await strangers[1].call("GET", "/health")).status == 200


async def test_where_all_are_busy_a_new_connection_is_told_so(
    door: Door, connect: Connect, methods: FakeMethods
) -> None:
    busy = [await connect(door) for _ in range(4)]
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


async def test_ten_thousand_attempts_to_connect_leave_room_for_whoever_may_come_in(
    open_door: Open, connect: Connect, world: World
) -> None:
    door = await open_door(world.methods, max_connections=16)
    owner = await connect(door)
    await owner.open("/events?kinds=test")
    await owner.take(1)
    host, _, port = owner.host.rpartition(":")
    most = 0
    for count in range(100, 10_001, 100):
        crowd = [socket.create_connection((host, int(port))) for _ in range(100)]
        await settle(lambda count=count: door.figures.accepted == count + 1)  # type: ignore[misc]  # it takes none
        most = max(most, door.figures.connections)
        world.gateway.bus.publish("alice", "test", {"count": count})
        assert (await owner.take(1))[0]["data"]["data"] == {"count": count}, "the stream goes on"
        for sock in crowd:
            sock.close()
    assert most <= 16 + 1
    assert (await (await connect(door)).call("POST", "/api/ping")).status == 200


async def test_a_peer_that_leaves_in_the_middle_of_anything_leaves_nothing_behind(
    door: Door, connect: Connect, methods: FakeMethods
) -> None:
    for sent in (b"", GET[:20], GET + b"\r\n", GET + b"Content-Length: 5\r\n\r\nhe"):
        peer = await connect(door)
        await peer.send_raw(sent)
        peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await peer.stream.aclose()
    await settle(lambda: door.figures.accepted == 4 and door.figures.connections == 0)
    assert methods.running == 0


async def test_a_defect_of_one_connection_is_logged_and_ends_no_other(
    door: Door, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_self: object) -> None:
        raise KeyError("nothing")

    other = await connect(door)
    await other.call("GET", "/health")
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("doors.http.connection.HttpConnection._read", fail)
        assert await (await connect(door)).is_closed()
    assert "a connection failed" in caplog.text
    assert (await other.call("GET", "/health")).status == 200


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_at_the_end_requests_are_answered_and_nobody_comes_in_any_more(
    door: Door, connect: Connect, methods: FakeMethods
) -> None:
    idle, busy = await connect(door), await connect(door)
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
        await connect(door)


async def test_a_server_that_is_told_to_end_before_it_has_begun_ends(tmp_path: Path) -> None:
    settings = HttpSettings(bind="127.0.0.1:0", token=TOKEN)
    server = HttpServer(FakeMethods(), settings, tmp_path, hide=lambda _: None, env={})
    with trio.fail_after(20), trio.CancelScope() as scope:
        scope.cancel()
        await server.serve()
    assert server.services.shutdown.has_begun


async def test_a_peer_that_does_not_read_does_not_hold_up_the_end(open_door: Open, connect: Connect) -> None:
    door = await open_door(write_stall=3600, close_grace=Seconds(0.5))
    peer = await connect(door)
    peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await peer.open("/events")
    await wait_all_tasks_blocked(0.05)
    door.close()
    with trio.fail_after(20):
        await door.ended.wait()


# --- where it listens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "8765", ":8765", "127.0.0.1", "127.0.0.1:", "::1:80", "h:99999", "h:x", "[]:1"])
def test_an_address_that_cannot_be_is_refused_with_one_that_can(text: str) -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:8765"):
        parse_bind(text)


def test_an_address_is_told_as_a_browser_wants_it() -> None:
    assert parse_bind("[::1]:80") == ("::1", 80)
    assert url_of(("::1", 80)) == "http://[::1]:80"
    assert url_of(("127.0.0.1", 8765)) == "http://127.0.0.1:8765"


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
    taken = door.url.removeprefix("http://")
    settings = HttpSettings(bind=taken, token=TOKEN)
    second = HttpServer(FakeMethods(), settings, tmp_path, hide=lambda _: None, env={})
    with pytest.raises(UsageError, match=r"http\.bind.*in use"):
        await second.serve()


async def test_a_made_token_is_hidden_and_told_as_a_place(tmp_path: Path) -> None:
    hidden: list[str] = []
    server = HttpServer(FakeMethods(), HttpSettings(bind="127.0.0.1:0"), tmp_path, hide=hidden.extend, env={})
    (token,) = hidden
    assert (tmp_path / "http-token").read_text().strip() == token
    facts: dict[str, Any] = server.status_fields()
    assert facts == {"url": "", "token_path": str(tmp_path / "http-token")}
