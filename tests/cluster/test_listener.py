"""Strangers at the port where nodes dial, over TLS: they end their own connection and nothing else."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from cluster.frames import FrameKind, LinkViolation
from cluster.listener import LifeCertificate, serve_nodes
from cluster.messages import message_frame
from cluster.wire import LinkWire, WireClosed
from tests.cluster.peers import desk_world, hello

_BROKEN_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)


async def _is_closed(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some(1 << 16):
            pass
    except trio.BrokenResourceError:
        return


async def garbage(port: int) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n")
        await _is_closed(stream)


async def half_a_handshake(port: int) -> None:
    begin = ssl.MemoryBIO()
    peer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), begin, server_hostname="pool")
    with pytest.raises(ssl.SSLWantReadError):
        peer.do_handshake()
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(begin.read())
        assert await stream.receive_some(1)
        await stream.send_all(_BROKEN_RECORD)
        await _is_closed(stream)


async def a_broken_record(port: int) -> None:
    wire = await LinkWire.dial("127.0.0.1", port, "")
    wire._write(_BROKEN_RECORD)
    with pytest.raises((WireClosed, LinkViolation)):
        await wire.receive()
    wire.close()


@pytest.mark.parametrize("stranger", [garbage, half_a_handshake, a_broken_record])
async def test_a_peer_that_speaks_no_tls_ends_its_own_link_alone(
    tmp_path: Path, stranger: Callable[[int], Awaitable[None]]
) -> None:
    certificate = await trio.to_thread.run_sync(LifeCertificate.make)
    async with desk_world(tmp_path) as world, trio.open_nursery() as nursery:
        port = await nursery.start(serve_nodes, world.desk, certificate, "127.0.0.1", 0)
        await stranger(port)
        wire = await LinkWire.dial("127.0.0.1", port, certificate.fingerprint)
        wire.send(message_frame(FrameKind.HELLO, 0, hello(secret=world.desk.invite("a"))))
        assert await wire.receive(), "a node is heard after it"
        wire.close()
        (reason,) = world.reasons("node_refused")[:1]
        assert reason.startswith("TLS: ")
        nursery.cancel_scope.cancel()


async def test_a_wire_that_is_closed_with_a_backlog_ends_its_writer(tmp_path: Path) -> None:
    async with desk_world(tmp_path) as world, trio.open_nursery() as nursery:
        world.connect()
        wire = world.wires[0]
        wire.send(bytes(4 << 20))
        nursery.start_soon(wire.run_writer)
        await trio.testing.wait_all_tasks_blocked()
        assert 0 < wire.queued_bytes < wire.sent_bytes == 4 << 20
        wire.close()
        await trio.testing.wait_all_tasks_blocked()
        wire.send(b"after the end")
        assert wire.queued_bytes == 0
        nursery.cancel_scope.cancel()
