"""What peers of the HTTP port that show no token can make the supervisor do."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance.supervisor import running_supervisor

TOKEN = "the-token-of-an-operator-0123456789"
SECONDS = 2.5
SHARE = 0.05
AT_ONCE = 0.2
"""CPU seconds: what may be saved up (0.1), and what is spent before it is counted."""

CHUNKED = b"POST /api/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def send_again_and_again(peer: socket.socket, data: bytes) -> None:
    while True:
        peer.sendall(data)


def malformed(peer: socket.socket) -> None:
    peer.sendall(CHUNKED + b"zz\r\nrubbish")
    while peer.recv(65536):
        pass


def tiny_chunks(peer: socket.socket) -> None:
    peer.sendall(CHUNKED)
    send_again_and_again(peer, b"1\r\na\r\n" * 1000)


def headers_in_pieces(peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(b"GET / HTTP/1.1\r\nX: ")
    send_again_and_again(peer, b"a")


def requests(peer: socket.socket) -> None:
    while True:
        peer.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20)
        if not peer.recv(65536):
            return


def empty_frames(peer: socket.socket) -> None:
    peer.sendall(SOCKET)
    peer.recv(4096)
    peer.sendall(b"\x01\x80\0\0\0\0")
    send_again_and_again(peer, b"\0\x80\0\0\0\0" * 1000)


ATTACKS = (malformed, tiny_chunks, headers_in_pieces, requests, empty_frames)


@contextmanager
def beside(attack: Callable[[socket.socket], None], port: int) -> Iterator[None]:
    """A peer attacks, over one connection after the other, until the block ends."""
    ended = threading.Event()
    peers: list[socket.socket] = []

    def go_on() -> None:
        while not ended.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
                peers[:] = [peer]
                attack(peer)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        while thread.is_alive():
            with suppress(OSError, IndexError):
                peers[0].shutdown(socket.SHUT_RDWR)
            thread.join(0.1)


@pytest.mark.process
def test_s79_peers_without_a_token_together_cost_little_of_a_cpu_and_keep_nobody_out(tmp_path: Path) -> None:
    config = tmp_path / "pool.toml"
    config.write_text(f'[http]\nbind = "127.0.0.1:0"\ntoken = "{TOKEN}"\n')
    with running_supervisor(tmp_path / "d", "--config", str(config)) as supervisor:
        server = supervisor.status()["supervisor"]
        url, process = server["http"]["url"], psutil.Process(server["pid"])
        port = int(url.rpartition(":")[2])

        def spent_while(seconds: float) -> tuple[float, float]:
            """CPU seconds of the supervisor, and how long it really was."""
            began, before = time.monotonic(), process.cpu_times()
            answer = httpx.post(f"{url}/api/ping", json={}, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            after = process.cpu_times()
            assert answer.status_code == 200
            return after.user + after.system - before.user - before.system, time.monotonic() - began

        idle, idle_seconds = spent_while(SECONDS / 4)
        with ExitStack() as attacks:
            for attack in ATTACKS:
                attacks.enter_context(beside(attack, port))
            taken, seconds = spent_while(SECONDS)
    assert taken - idle / idle_seconds * seconds < AT_ONCE + SHARE * seconds
