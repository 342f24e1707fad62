"""Context, caller, shutdown, counters.

The caller of a method that was reached over HTTP: pushes go where the door says.

The end of the server, as those see it who work for a peer: they are told, or what they wait for is cancelled.

Refusals in the log: the first of its kind at once, then one line for all that came within some seconds.

What the HTTP door has counted; ``/metrics`` shows it.

What the endpoints of every door on the HTTP port work with.

What is served on the HTTP port: a path, its endpoint, and what a caller must be to come in.

Noticing that a peer has left while an endpoint works for it.
"""

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

from doors.http.access import TokenIdentity, TokenRegistry
from doors.http.errors import HttpError, Render, TooManyRequests, render_error
from doors.http.limits import RateLimiter
from doors.http.settings import HttpSettings
from doors.http.tokens import Scope
from doors.limits import InputBudget, InputShare
from errors import UsageError
from gateway.caller import Caller
from gateway.status import StatusDocument

PushHandler = Callable[[str, bytes], Awaitable[None]]


class HttpCaller:
    """Implements ``gateway.caller.Caller`` for one request.

    ``take`` gets every push, name and data as JSON text, and waits while the peer is behind; None: nobody looks.
    ``nursery`` runs what outlives the method's answer, a subscription say; None: such methods are refused.
    """

    def __init__(
        self,
        identity: TokenIdentity,
        request_id: str,
        *,
        take: PushHandler | None = None,
        nursery: trio.Nursery | None = None,
    ) -> None:
        self.request_id = request_id
        self.principal = identity.principal
        self.name = identity.name
        self._on_push = take
        self._nursery = nursery

    async def push(self, event: str, data: Any) -> None:
        """See ``Caller.push``."""
        await self.push_encoded(event, msgspec.json.encode(data))

    async def push_encoded(self, event: str, data: bytes) -> None:
        """See ``Caller.push_encoded``."""
        if self._on_push is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._on_push(event, data)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """See ``Caller.start``."""
        if self._nursery is None:
            raise UsageError("this method needs a connection that stays; over HTTP follow GET /events instead")
        self._nursery.start_soon(task)


class Shutdown:
    """Begins once; until then it knows whom to tell."""

    def __init__(self) -> None:
        self._begun = trio.Event()
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the server ends."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Tell everybody."""
        self._begun.set()
        for tell in list(self._callbacks.values()):
            tell()

    async def wait(self) -> None:
        """Until it begins."""
        await self._begun.wait()

    @contextmanager
    def on_begin(self, tell: Callable[[], object]) -> Iterator[None]:
        """Have ``tell`` called when the server ends; at once where it does already."""
        key = object()
        self._callbacks[key] = tell
        try:
            if self.has_begun:
                tell()
            yield
        finally:
            del self._callbacks[key]

    @contextmanager
    def scope(self) -> Iterator[trio.CancelScope]:
        """Work that is cancelled when the server ends; ``cancelled_caught`` tells afterwards whether it was."""
        with trio.CancelScope() as scope, self.on_begin(scope.cancel):
            yield scope


_PAUSE_SECONDS = 10.0


class ThrottledWarnings:
    """Whoever hammers at the door must not fill the log. Kinds are ours, and few."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warn(self, kind: str, **facts: Any) -> None:
        """Warn of a refusal, with what is known of this one, and of how many like it were not told of."""
        now = self._clock()
        if now - self._logged_at.get(kind, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        more = self._suppressed.pop(kind, 0)
        shown = "".join(f", {name} {value}" for name, value in facts.items() if value is not None)
        self._logger.warning("refused: %s%s%s", kind.lower(), shown, f" (and {more} more before)" if more else "")


class HttpStats:
    """Plain sums, and what is open at the moment."""

    def __init__(self) -> None:
        self.connections = 0
        """Open."""
        self.accepted = 0
        self.turned_away = 0
        self.evicted = 0
        """Connections without a token that gave way to others."""
        self.stalled = 0
        """Peers cut off because they did not read."""
        self.streams = 0
        """Open streams of events."""
        self.streams_behind = 0
        """Streams that were cut off with a bookmark."""
        self.events_bytes = 0
        self.sockets = 0
        """Open WebSockets."""
        self.sockets_slow = 0
        """Those that were closed because they did not read."""
        self.events_dropped = 0
        """Events that slow WebSockets have lost."""
        self.requests: Counter[int] = Counter()
        """By status."""


_STATUS_SECONDS = 1.0
_INTERNAL_IDENTITY = TokenIdentity("http", Scope.READ, approvals=False)
_logger = logging.getLogger("pool.http")


class BackgroundTask(Protocol):
    """A task of a door's own."""

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Say ``task_status.started()``, then go on until cancelled. It must not raise."""
        ...


class MethodsPort(Protocol):
    """What stands behind the doors: ``gateway.methods.table.Methods``."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method; raises PoolError for what the caller is to be told."""
        ...


class HttpServices:
    """One for the server's life."""

    def __init__(self, methods: MethodsPort, settings: HttpSettings, access: TokenRegistry) -> None:
        self.methods = methods
        self.settings = settings
        """Those that hold now: look at them when they are needed, a reload changes them."""
        self.access = access
        self.shutdown = Shutdown()
        self.stats = HttpStats()
        self.body_budget = InputBudget(settings.body_bytes)
        self.rate_limiter = RateLimiter(settings.rate)
        self.warnings = ThrottledWarnings(_logger, trio.current_time)
        self.background_tasks: list[BackgroundTask] = []
        """What doors do beside requests, for as long as the server serves; each adds its own in ``routes``."""
        self.started_at = time.time()
        self._status: StatusDocument | None = None
        self._status_at = -_STATUS_SECONDS

    def reconfigure(self, settings: HttpSettings) -> None:
        """Other settings hold from now on."""
        self.settings = settings
        self.body_budget.limit = settings.body_bytes
        self.rate_limiter.rate = settings.rate

    async def call(self, method: str, params: Any, caller: Caller) -> Any:
        """Run a method of the control socket; ``params``: anything that encodes to a JSON object, or a ``Raw``."""
        raw = params if isinstance(params, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(params))
        return await self.methods.call(method, raw, caller)

    def check_rate(self, key: str) -> None:
        """Count a request of somebody. Raises TooMany where they have made too many."""
        wait = self.rate_limiter.acquire(key, trio.current_time())
        if wait:
            raise TooManyRequests(f"too many requests: {self.rate_limiter.rate} a second are allowed (http.rate)", wait)

    async def status(self) -> StatusDocument:
        """The status document, at most a second old: for whoever may ask again and again without a token."""
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
    """The visit that a request belongs to."""
    visit: RequestState = connection.scope["state"]["visit"]
    return visit


def identity_of(connection: HTTPConnection) -> TokenIdentity:
    """Who asks. Raises Refusal (401) where no token was shown."""
    visit = request_state(connection)
    if visit.identity is None:
        assert visit.auth_error is not None  # noqa: S101  # the gate leaves one of the two
        raise visit.auth_error
    return visit.identity


def set_identity(connection: HTTPConnection, identity: TokenIdentity) -> None:
    """Somebody has shown a token otherwise than in a header: in a first frame, say."""
    visit = request_state(connection)
    visit.identity = identity
    if visit.peer is not None:
        visit.peer.identity = identity


Endpoint = Callable[[Any], Awaitable[Any]]
"""``async (starlette.requests.Request) -> Response``, or ``async (starlette.websockets.WebSocket) -> None``."""


class RouteSpec(NamedTuple):
    """One way in. ``scope`` None: everybody, who has shown no token too."""

    path: str
    endpoint: Endpoint
    scope: Scope | None
    methods: tuple[str, ...] = ("GET",)
    is_socket: bool = False
    render: Render = render_error
    """How an error of this endpoint is answered."""


async def wait_disconnect(receive: Receive) -> None:
    """Wait until the peer has left; ``receive`` is ASGI's. What is left of a body is passed over."""
    while (await receive())["type"] != "http.disconnect":
        pass
