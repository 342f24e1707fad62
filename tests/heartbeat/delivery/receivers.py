"""Receivers of webhooks: small HTTP servers over any streams, and a name service that changes its mind."""

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

CERTIFICATE = Path(__file__).with_name("hooks_example.pem")
"""Of ``hooks.example``, with its key: signed by itself, good for a hundred years and for nothing else."""

Answer = Callable[[trio.abc.Stream], Awaitable[None]]


class Request:
    """One request as it came."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        self.line, *fields = head.decode().split("\r\n")
        self.headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}


class Receiver:
    """Takes one request of each connection and answers with the next of what is planned, then with 204."""

    def __init__(self, *plan: bytes | Answer) -> None:
        self.plan = list(plan)
        self.requests: list[Request] = []
        self.server_names: list[str | None] = []

    async def serve(self, stream: trio.abc.Stream) -> None:
        async with stream:
            request = await _read_request(stream)
            if request is None:
                return
            self.requests.append(request)
            answer = self.plan.pop(0) if self.plan else reply(204)
            try:
                await (stream.send_all(answer) if isinstance(answer, bytes) else answer(stream))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # who asked has left

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """On real TCP; yields the port."""
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, self.serve, 0, host="127.0.0.1"))
            yield listener.socket.getsockname()[1]
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def listening_encrypted(self) -> AsyncIterator[int]:
        """The same over TLS, as ``hooks.example``."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE)
        context.sni_callback = lambda _socket, name, _context: self.server_names.append(name)
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_ssl_over_tcp, self._serve_tls, 0, context, host="127.0.0.1")
            (listener,) = await nursery.start(partial(serve, https_compatible=True))
            yield listener.transport_listener.socket.getsockname()[1]
            nursery.cancel_scope.cancel()

    async def _serve_tls(self, stream: trio.abc.Stream) -> None:
        try:
            await self.serve(stream)
        except trio.BrokenResourceError:
            return  # the handshake failed on the other side


async def _read_request(stream: trio.abc.Stream) -> Request | None:
    received = b""
    while True:
        chunk = await stream.receive_some(65536)
        if not chunk:
            return None
        received += chunk
        request = Request(received)
        if b"\r\n\r\n" in received and len(request.body) >= int(request.headers["content-length"]):
            return request


def reply(status: int, *fields: str, body: bytes = b"") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status} Words", f"Content-Length: {len(body)}", *fields])
    return head.encode() + b"\r\n\r\n" + body


class Names(trio.abc.HostnameResolver):
    """Answers each question about a name with the next of its answers, and goes on with the last one."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    async def getaddrinfo(self, host: bytes | None, port: Any, *_how: Any, **_more: Any) -> Any:
        assert host is not None
        await trio.lowlevel.checkpoint()
        name = host.decode()
        self.asked.append(name)
        planned = self.answers.get(name, [])
        found = planned.pop(0) if len(planned) > 1 else next(iter(planned), [])
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [_entry(address, int(port)) for address in found]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


def _entry(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


class Net:
    """A network in memory: what is connected to is noted, and leads to the receiver of that address."""

    def __init__(self, nursery: trio.Nursery, receivers: dict[str, Receiver]) -> None:
        self.connected: list[str] = []
        self._nursery = nursery
        self._receivers = receivers

    async def open_tcp_stream(self, host: str, port: int, **_options: Any) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.connected.append(host)
        assert port
        if host not in self._receivers:
            raise OSError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._receivers[host].serve, theirs)
        return ours
