"""What the endpoints of every door on the HTTP port work with."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import trio
from starlette.requests import HTTPConnection

from doors.control_limits import InputBudget, InputShare
from doors.http.access import Access, Identity
from doors.http.caller import HttpCaller
from doors.http.closing import Closing
from doors.http.complaints import Complaints
from doors.http.figures import HttpFigures
from doors.http.rates import Rates
from doors.http.refusals import Refusal, TooMany
from doors.http.scopes import Scope
from doors.http.settings import HttpSettings
from gateway.caller import Caller
from gateway.status import StatusDocument

__all__ = ["Chore", "MethodsPort", "Peer", "Services", "Visit", "identity_of", "prove", "visit_of"]


_STATUS_SECONDS = 1.0
_OURSELVES = Identity("http", Scope.READ, approvals=False)
_logger = logging.getLogger("pool.http")


class Chore(Protocol):
    """A task of a door's own."""

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Say ``task_status.started()``, then go on until cancelled. It must not raise."""
        ...


class MethodsPort(Protocol):
    """What stands behind the doors: ``gateway.methods.table.Methods``."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method; raises PoolError for what the caller is to be told."""
        ...


class Services:
    """One for the server's life."""

    def __init__(self, methods: MethodsPort, settings: HttpSettings, access: Access) -> None:
        self.methods = methods
        self.settings = settings
        """Those that hold now: look at them when they are needed, a reload changes them."""
        self.access = access
        self.closing = Closing()
        self.figures = HttpFigures()
        self.bodies = InputBudget(settings.body_bytes)
        self.rates = Rates(settings.rate)
        self.complaints = Complaints(_logger, trio.current_time)
        self.chores: list[Chore] = []
        """What doors do beside requests, for as long as the server serves; each adds its own in ``routes``."""
        self.started_at = time.time()
        self._status: StatusDocument | None = None
        self._status_at = -_STATUS_SECONDS

    def reconfigure(self, settings: HttpSettings) -> None:
        """Other settings hold from now on."""
        self.settings = settings
        self.bodies.limit = settings.body_bytes
        self.rates.rate = settings.rate

    async def call(self, method: str, params: Any, caller: Caller) -> Any:
        """Run a method of the control socket; ``params``: anything that encodes to a JSON object, or a ``Raw``."""
        raw = params if isinstance(params, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(params))
        return await self.methods.call(method, raw, caller)

    def check_rate(self, key: str) -> None:
        """Count a request of somebody. Raises TooMany where they have made too many."""
        wait = self.rates.take(key, trio.current_time())
        if wait:
            raise TooMany(f"too many requests: {self.rates.rate} a second are allowed (http.rate)", wait)

    async def status(self) -> StatusDocument:
        """The status document, at most a second old: for whoever may ask again and again without a token."""
        now = trio.current_time()
        if self._status is None or now - self._status_at >= _STATUS_SECONDS:
            self._status_at = now
            self._status = await self.call("status", {}, HttpCaller(_OURSELVES, "status"))
        return self._status


class Peer(Protocol):
    """The connection below a request."""

    identity: Identity | None
    """Set once a token was shown: until then the connection gives way to others."""

    async def send_messages(self, messages: Sequence[bytes], on_blocked: Callable[[], object]) -> None:
        """Send texts over a WebSocket, in one piece instead of many; ``on_blocked`` hears that the peer is behind."""
        ...


class Visit:
    """One request or WebSocket on its way through the door."""

    def __init__(self, peer: Peer | None, share: InputShare) -> None:
        self.peer = peer
        self.share = share
        """What its body takes of the budget for all of them; given back at its end."""
        self.identity: Identity | None = None
        self.refusal: Refusal | None = None
        """Why it has no identity."""


def visit_of(connection: HTTPConnection) -> Visit:
    """The visit that a request belongs to."""
    visit: Visit = connection.scope["state"]["visit"]
    return visit


def identity_of(connection: HTTPConnection) -> Identity:
    """Who asks. Raises Refusal (401) where no token was shown."""
    visit = visit_of(connection)
    if visit.identity is None:
        assert visit.refusal is not None  # noqa: S101  # the gate leaves one of the two
        raise visit.refusal
    return visit.identity


def prove(connection: HTTPConnection, identity: Identity) -> None:
    """Somebody has shown a token otherwise than in a header: in a first frame, say."""
    visit = visit_of(connection)
    visit.identity = identity
    if visit.peer is not None:
        visit.peer.identity = identity
