"""What all routes of the HTTP port share: the services, the caller of a method, the shutdown, and what is counted."""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import msgspec
import trio
from starlette.requests import HTTPConnection
from starlette.types import Receive

from doors.budgets import InputBudget, InputShare
from doors.http.access import TokenIdentity, TokenRegistry
from doors.http.errors import HttpError, Render, TooManyRequests, render_error
from doors.http.limits import RateLimiter
from doors.http.settings import HttpSettings
from doors.http.tokens import Scope
from errors import UsageError
from gateway.caller import Caller, MethodDispatcher
from gateway.methods.operator import StatusDocument
from wire.traceparent import trace_members

PushHandler = Callable[[str, bytes], Awaitable[None]]
"""Takes the name and the data of a push."""
KEEPALIVE_SECONDS = 15.0
"""A stream that is silent this long sends a comment: proxies keep the connection, and a lost peer is noticed."""


class HttpCaller:
    """Implements ``gateway.caller.Caller`` for one request; refuses methods that outlive their answer.

    ``take`` gets every push and waits while the peer is behind; None: pushes are dropped.
    """

    def __init__(self, identity: TokenIdentity, request_id: str, *, take: PushHandler | None = None) -> None:
        self.request_id = request_id
        self.principal = identity.principal
        self.name = identity.name
        self._on_push = take

    async def push(self, event: str, data: Any) -> None:
        """Implements ``Caller.push``."""
        await self.push_encoded(event, msgspec.json.encode(data))

    async def push_encoded(self, event: str, data: bytes, *, result_follows: bool = False) -> None:  # noqa: ARG002  # every push is written at once
        """Implements ``Caller.push_encoded``."""
        if self._on_push is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._on_push(event, data)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:  # noqa: ARG002  # as callers are asked
        """Implements ``Caller.start``."""
        raise UsageError("this method needs a connection that stays; over HTTP follow GET /events instead")


class SubscriptionEnded(msgspec.Struct):
    """Why and where a subscription ended: ``closing``, or ``behind`` for a slow reader, who may go on from there."""

    bookmark: int
    reason: str


class SubscriptionCaller(HttpCaller):
    """The caller of ``subscribe``. Its events reach ``take`` while ``follow`` runs."""

    _task: Callable[[], Awaitable[None]]
    ended: SubscriptionEnded | None = None
    """How it ended, also where ``follow`` was cancelled."""

    async def push_encoded(self, event: str, data: bytes, *, result_follows: bool = False) -> None:
        """Keep the end for ``ended``; pass on anything else."""
        if event == "subscription_ended":
            self.ended = msgspec.json.decode(data, type=SubscriptionEnded)
        else:
            await super().push_encoded(event, data, result_follows=result_follows)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Keep the task for ``follow``."""
        self._task = task

    async def follow(self) -> None:
        """Follow the subscription to its end, once ``subscribe`` has succeeded."""
        await self._task()


class Shutdown:
    """The end of the server: it begins once, and calls back what was registered for it."""

    def __init__(self) -> None:
        self._begun = trio.Event()
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the server is ending."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Run all callbacks."""
        self._begun.set()
        for callback in list(self._callbacks.values()):
            callback()

    async def wait(self) -> None:
        """Until it begins."""
        await self._begun.wait()

    @contextmanager
    def on_begin(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call ``callback`` when the server ends; at once if it is ending already."""
        key = object()
        self._callbacks[key] = callback
        try:
            if self.has_begun:
                callback()
            yield
        finally:
            del self._callbacks[key]

    @contextmanager
    def scope(self) -> Iterator[trio.CancelScope]:
        """Work that is cancelled when the server ends; ``cancelled_caught`` says whether it was."""
        with trio.CancelScope() as scope, self.on_begin(scope.cancel):
            yield scope


_PAUSE_SECONDS = 10.0


class ThrottledWarnings:
    """Rate-limits refusal warnings: the first of its kind at once, then one line for each ten seconds."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warn(self, kind: str, **facts: Any) -> None:
        """Warn of a refusal, with its facts and the number of those that were suppressed."""
        now = self._clock()
        if now - self._logged_at.get(kind, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        more = self._suppressed.pop(kind, 0)
        shown = "".join(f", {name} {value}" for name, value in facts.items() if value is not None)
        self._logger.warning("refused: %s%s%s", kind.lower(), shown, f" (and {more} more before)" if more else "")


class HttpStats(msgspec.Struct):
    """Counters of the HTTP port; ``doors.http.metrics`` says what each counts."""

    connections: int = 0
    accepted: int = 0
    turned_away: int = 0
    evicted: int = 0
    stalled: int = 0
    streams: int = 0
    streams_behind: int = 0
    events_bytes: int = 0
    sockets: int = 0
    sockets_slow: int = 0
    events_dropped: int = 0
    requests: dict[int, int] = msgspec.field(default_factory=Counter)
    """By status."""


_STATUS_SECONDS = 1.0
_INTERNAL_IDENTITY = TokenIdentity("http", Scope.READ, approvals=False)
_logger = logging.getLogger("pool.http")


BackgroundTask = Callable[..., Awaitable[None]]
"""A task of a door's own: takes ``task_status``, calls its ``started``, goes on until cancelled. It must not raise."""


class HttpServices:
    """One for the server's life."""

    def __init__(self, methods: MethodDispatcher, settings: HttpSettings, access: TokenRegistry) -> None:
        self.methods = methods
        self.settings = settings
        """The settings in force; a reload replaces them, so read them at use."""
        self.access = access
        self.shutdown = Shutdown()
        self.stats = HttpStats()
        self._body_budget = InputBudget(settings.body_bytes)
        self._rate_limiter = RateLimiter()
        self.warnings = ThrottledWarnings(_logger, trio.current_time)
        self.background_tasks: list[BackgroundTask] = []
        """Run for as long as the server serves; each door adds its own in ``routes``."""
        self.started_at = time.time()
        self._status: StatusDocument | None = None
        self._status_at = -_STATUS_SECONDS

    def new_body_share(self) -> InputShare:
        """What one request's body takes of the budget for all."""
        self._body_budget.limit = self.settings.body_bytes
        return InputShare(self._body_budget)

    async def call(self, method: str, params: Any, caller: Caller) -> Any:
        """Run a method of the control socket; ``params``: anything that encodes to a JSON object, or a ``Raw``."""
        raw = params if isinstance(params, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(params))
        return await self.methods.call(method, raw, caller)

    def check_rate(self, key: str) -> None:
        """Count a request of ``key``. Raises TooManyRequests above ``http.rate``."""
        rate = self.settings.rate
        wait = self._rate_limiter.acquire(key, rate, trio.current_time())
        if wait:
            raise TooManyRequests(f"too many requests: {rate} a second are allowed (http.rate)", wait)

    async def status(self) -> StatusDocument:
        """The status document, at most a second old: peers without a token may ask often."""
        now = trio.current_time()
        if self._status is None or now - self._status_at >= _STATUS_SECONDS:
            self._status_at = now
            self._status = await self.call("status", {}, HttpCaller(_INTERNAL_IDENTITY, "status"))
        return self._status


class ClientConnection(Protocol):
    """The connection below a request."""

    identity: TokenIdentity | None
    """Set once a token was shown: until then the connection gives way to others."""

    async def send_messages(self, messages: Sequence[bytes], on_blocked: Callable[[], object]) -> None:
        """Send texts over a WebSocket, in one piece instead of many; ``on_blocked`` hears that the peer is behind."""
        ...


class RequestState:
    """One request or WebSocket on its way through the door."""

    def __init__(self, peer: ClientConnection | None, share: InputShare) -> None:
        self.peer = peer
        self.share = share
        """What its body takes of the budget for all of them; given back at its end."""
        self.identity: TokenIdentity | None = None
        self.auth_error: HttpError | None = None
        """Why it has no identity."""


def request_state(connection: HTTPConnection) -> RequestState:
    """What is known of a request."""
    visit: RequestState = connection.scope["state"]["visit"]
    return visit


def identity_of(connection: HTTPConnection) -> TokenIdentity:
    """Who asks. Raises HttpError (401) where no token was shown."""
    visit = request_state(connection)
    if visit.identity is None:
        assert visit.auth_error is not None  # noqa: S101  # the gate leaves one of the two
        raise visit.auth_error
    return visit.identity


def set_identity(connection: HTTPConnection, identity: TokenIdentity) -> None:
    """A token was shown otherwise than in a header: in a first frame, for example."""
    visit = request_state(connection)
    visit.identity = identity
    if visit.peer is not None:
        visit.peer.identity = identity


def trace_of(connection: HTTPConnection) -> dict[str, str]:
    """The span of the peer that a request names (W3C trace context), as members of a message."""
    state = ",".join(connection.headers.getlist("tracestate"))
    return trace_members(connection.headers.get("traceparent", ""), state)


Endpoint = Callable[[Any], Awaitable[Any]]
"""``async (starlette.requests.Request) -> Response``, or ``async (starlette.websockets.WebSocket) -> None``."""


class RouteSpec(NamedTuple):
    """One route. ``scope`` None: no token is needed; a WebSocket has none, and looks at tokens itself."""

    path: str
    endpoint: Endpoint
    scope: Scope | None
    methods: tuple[str, ...] = ("GET",)
    is_socket: bool = False
    render: Render = render_error
    """How an error of this endpoint is answered."""


async def wait_disconnect(receive: Receive) -> None:
    """Wait until the peer has left; ``receive`` is ASGI's. The rest of a body is skipped."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_on_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    """Cancel ``scope`` when the peer has left."""
    await wait_disconnect(receive)
    scope.cancel()
