"""The HTTP server: who is let in, how many, and the end, at which every peer may hear last words."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from doors.http.access import TokenRegistry
from doors.http.app import build_app
from doors.http.connection import HttpConnection
from doors.http.limits import ACCEPT_COST_SECONDS, AnonymousThrottle, ConnectionCost, ConnectionLimiter, run_metered
from doors.http.protocol import ServerContext
from doors.http.routes import route_specs
from doors.http.services import HttpServices
from doors.http.settings import HttpSettings, require_loopback, url_of
from doors.http.tokens import TokenGrant, find_token_source, load_grants
from errors import UsageError
from gateway.caller import MethodDispatcher
from wire.addresses import parse_bind

_BACKLOG = 256
_SEND_BUFFER_BYTES = 512 * 1024
"""The kernel doubles it. What it would hold by itself for a peer that does not read are some megabytes."""
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A peer whose machine has gone is noticed after a minute."""
_CAPACITY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 78\r\n\r\n"
    b'{"error":{"code":"saturated","message":"too many connections are open here"}}\n'
)
_logger = logging.getLogger("pool.http")


def bind(text: str, token_was_made: bool) -> socket.socket:  # noqa: FBT001  # it is what the name says
    """A socket bound there; to an address that other machines reach only where a token was chosen for it.

    Raises UsageError.
    """
    host, port = parse_bind(text)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as exc:
        raise UsageError(f"http.bind: there is no address {host!r}: {exc.strerror}") from exc
    if token_was_made:
        require_loopback(str(address[0]), text)
    bound = socket.socket(family, kind)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        bound.bind(address)
    except OSError as exc:
        bound.close()
        raise UsageError(f"cannot listen on {text} (http.bind): {exc.strerror}") from exc
    return bound


def set_socket_options(sock: socket.socket, settings: HttpSettings) -> None:
    """A connection's: answers leave at once, a peer that is there no more is noticed. Raises OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    timeout = getattr(socket, "TCP_USER_TIMEOUT", None)
    if timeout is not None:
        sock.setsockopt(socket.IPPROTO_TCP, timeout, max(1, int(settings.write_stall * 1000)))


class _ThrottledListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts a connection when something may be done for one that has shown no token."""

    def __init__(self, listener: trio.SocketListener, strangers: AnonymousThrottle) -> None:
        self._listener = listener
        self._throttle = strangers

    async def accept(self) -> trio.SocketStream:
        await self._throttle.acquire(ACCEPT_COST_SECONDS)
        return await self._listener.accept()

    async def aclose(self) -> None:
        await self._listener.aclose()


class HttpServer:
    """Serves ``methods`` where ``settings.bind`` says."""

    def __init__(
        self,
        methods: MethodDispatcher,
        settings: HttpSettings,
        data_dir: Path,
        *,
        hide: Callable[[list[str]], None],
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """``hide`` is given every token, to be shown in no log. Raises UsageError for tokens that cannot be used."""
        self._data_dir = data_dir
        self._hide = hide
        self._env = env
        self._limiter: ConnectionLimiter[HttpConnection] = ConnectionLimiter()
        self._connections: trio.Nursery
        self._throttle: AnonymousThrottle
        self._token_source = find_token_source(settings, env, data_dir)
        self.services = HttpServices(methods, settings, TokenRegistry(self._load_grants(settings)))
        self._context = ServerContext(build_app(self.services, route_specs(self.services)), self.services)
        self._host = ""
        self.url = ""
        """Where it can be reached, once it serves."""

    def status_fields(self) -> dict[str, Any]:
        """For the supervisor's status: where the server is, and where its token."""
        file = self._token_source.file
        return {"url": self.url, "token_path": None if file is None else str(file)}

    def prepare(self, settings: HttpSettings) -> Callable[[], bool]:
        """Look at other settings; what is returned makes them hold, and tells whether the tokens are others.

        Raises UsageError for tokens that cannot be used.

        Connections that are open keep their limits; those whose token holds no more are cut. As at the start, a token
        that would have to be made is refused where other machines reach the server.
        """
        if self._host and find_token_source(settings, self._env, self._data_dir).is_made:
            require_loopback(self._host, self.services.settings.bind)
        grants = self._load_grants(settings)

        def commit() -> bool:
            self._token_source = find_token_source(settings, self._env, self._data_dir)
            self.services.settings = settings
            are_others = self.services.access.set_grants(grants)
            for connection in self._limiter.members():
                if connection.identity is not None and not self.services.access.is_valid(connection.identity):
                    connection.abort()
            return are_others

        return commit

    def _load_grants(self, settings: HttpSettings) -> list[TokenGrant]:
        grants = load_grants(settings, self._env, self._data_dir)
        self._hide([grant.token for grant in grants])
        return grants

    # --- life ---------------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; has started, with its address, when clients can connect.

        At its end it accepts no connections, endpoints are notified, and their last output has ``close_grace``.

        Raises:
            UsageError: it cannot be bound there.
        """
        settings = self.services.settings
        with bind(settings.bind, self._token_source.is_made) as bound:
            bound.listen(_BACKLOG)
            self._host = str(bound.getsockname()[0])
            self.url = url_of(bound.getsockname())
            self._throttle = AnonymousThrottle()
            listener = _ThrottledListener(trio.SocketListener(trio.socket.from_stdlib_socket(bound)), self._throttle)
            async with trio.open_nursery() as nursery:
                ready = trio.Event()
                nursery.start_soon(self._run_connections, ready)
                try:
                    await ready.wait()
                    for chore in self.services.background_tasks:
                        await nursery.start(chore)
                    task_status.started(self.url)
                    await trio.serve_listeners(self._admit, [listener], handler_nursery=self._connections)
                finally:
                    self.services.shutdown.begin()

    async def _run_connections(self, ready: trio.Event) -> None:
        """They outlive the cancellation of the server for as long as last words may take."""
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as turns:
                turns.start_soon(self._throttle.run)
                async with trio.open_nursery() as self._connections:
                    ready.set()
                    await self.services.shutdown.wait()
                    scope.deadline = trio.current_time() + self.services.settings.close_grace
                    await self._context.terminated.set()
                    for connection in self._limiter.members():
                        connection.close_when_idle()
                turns.cancel_scope.cancel()

    # --- who comes in -------------------------------------------------------------------------------------------------

    async def _admit(self, stream: trio.SocketStream) -> None:
        expense = ConnectionCost(self._throttle)
        expense.add(ACCEPT_COST_SECONDS)
        await run_metered(self._serve_accepted(stream, expense), expense)

    async def _serve_accepted(self, stream: trio.SocketStream, expense: ConnectionCost) -> None:
        with socket.socket(fileno=stream.socket.detach()) as sock:
            sock.setblocking(False)  # noqa: FBT003  # the socket module's own signature
            self.services.stats.accepted += 1
            try:
                addresses = sock.getpeername()[:2], sock.getsockname()[:2]
                set_socket_options(sock, self.services.settings)
            except OSError:
                return  # it left while it waited to be let in
            if self._make_room():
                set_rank = self._limiter.set_rank
                await self._serve(HttpConnection(sock, addresses, self._context, expense, on_rank=set_rank))
                return
            self.services.stats.turned_away += 1
            with contextlib.suppress(OSError):  # it may have left already
                sock.send(_CAPACITY_RESPONSE)

    def _make_room(self) -> bool:
        if len(self._limiter) < self.services.settings.max_connections:
            return True
        victim = self._limiter.eviction_candidate()
        if victim is None:
            return False
        self.services.stats.evicted += 1
        self._limiter.remove(victim)
        victim.abort()
        return True

    async def _serve(self, connection: HttpConnection) -> None:
        stats = self.services.stats
        stats.connections += 1
        try:
            await connection.run()
        except Exception:  # a defect met on one connection must not end the others
            _logger.exception("a connection failed")
        finally:
            self._limiter.remove(connection)
            stats.connections -= 1
            stats.stalled += connection.has_stalled
