"""The control socket as a file: whose it is, who may come in, what becomes of it at the end."""

import socket
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from doors.control import server
from doors.control.server import ControlServer, bind_control_socket
from doors.locations import AlreadyRunning
from errors import UsageError
from tests.doors.conftest import Connect
from tests.doors.methods import FakeMethods
from tests.doors.peer import Peer


async def test_only_the_owner_may_use_the_socket(path: Path) -> None:
    assert stat.S_IMODE((await trio.Path(path).stat()).st_mode) == 0o600


async def test_a_peer_of_another_user_is_turned_away(
    connect: Connect, methods: FakeMethods, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = SimpleNamespace(size=server._UCRED.size, unpack=lambda _bytes: (1, 54_321, 1))
    monkeypatch.setattr(server, "_UCRED", credentials)
    peer = await connect()
    assert "another user" in (await peer.refusal())[2]
    assert await peer.hear() is None
    assert methods.calls == []


async def test_a_closing_server_answers_what_is_in_flight_and_takes_its_socket_along(
    short_dir: Path, methods: FakeMethods
) -> None:
    path = short_dir / "s"
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlServer(methods, path).serve)
        peer = await Peer.connect(path)
        await peer.ask(1, "hang")
        await methods.hanging.wait()
        nursery.cancel_scope.cancel()
    [answer] = await peer.rest()
    assert (answer["id"], answer["error"]["code"]) == (1, "pool_closed")
    assert answer["error"]["data"] == {"cut_short": True}, "which tells it from a request that was refused"
    assert not path.exists()
    peer.close()


def test_a_stale_socket_is_replaced(short_dir: Path) -> None:
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with bind_control_socket(path) as bound:
        assert bound.getsockname() == str(path)


def test_a_socket_somebody_listens_on_is_left_alone(short_dir: Path) -> None:
    path = short_dir / "s"
    with bind_control_socket(path):
        with pytest.raises(AlreadyRunning, match="another supervisor listens on"), bind_control_socket(path):
            pass
        assert path.exists()


def test_a_file_that_is_no_socket_is_never_removed(short_dir: Path) -> None:
    path = short_dir / "s"
    path.write_text("precious")
    with pytest.raises(UsageError, match="is no socket"), bind_control_socket(path):
        pass
    assert path.read_text() == "precious"


def test_a_socket_that_took_our_place_is_left_alone(short_dir: Path) -> None:
    path = short_dir / "s"
    with bind_control_socket(path):
        path.unlink()
        path.write_text("another's")
    assert path.exists()


async def test_a_socket_whose_file_is_gone_is_bound_again_when_asked_its_connections_go_on_and_it_ends_with_the_server(
    short_dir: Path, methods: FakeMethods
) -> None:
    path = short_dir / "s"
    server = ControlServer(methods, path)
    assert not server.rebind(), "it does not serve yet"
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        before = await Peer.connect(path)
        assert await before.call(1, "echo") == {"id": 1, "result": {}}
        assert not server.rebind(), "nothing is wrong with it"
        for _ in range(2):
            path.unlink()
            assert server.rebind()
            assert path.stat().st_mode & 0o777 == 0o600
            after = await Peer.connect(path)
            assert await after.call(1, "echo") == {"id": 1, "result": {}}
            after.close()
        assert await before.call(2, "echo") == {"id": 2, "result": {}}
        before.close()
        nursery.cancel_scope.cancel()
    assert not path.exists()


async def test_a_place_that_somebody_else_has_taken_is_not_taken_back(
    short_dir: Path, methods: FakeMethods, nursery: trio.Nursery
) -> None:
    path = short_dir / "s"
    server = ControlServer(methods, path)
    await nursery.start(server.serve)
    before = await Peer.connect(path)
    path.unlink()
    with bind_control_socket(path), pytest.raises(AlreadyRunning):
        server.rebind()
    assert await before.call(1, "echo") == {"id": 1, "result": {}}
    assert server.rebind(), "as soon as it is free"
    before.close()
