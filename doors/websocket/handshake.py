"""Connect and connection states. Pure.

``connect``: which version is spoken, who the peer is, and what it may do. Pure.

What a frame of the peer, or the time, leads to: the states of one connection. Pure.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from doors.http.access import Identity
from doors.http.tokens import Scope
from doors.websocket.frames import (
    BadFrame,
    Incoming,
    SocketLimits,
    encode_event,
    encode_refusal,
    error_shape,
    read_frame,
)
from errors import PoolError, PoolSaturated, UsageError
from wire.framing import DECODE_ERRORS

PROTOCOLS = (4, 3)
"""The best first."""
_ROLE = "operator"
_SCOPES = {"operator.read": Scope.READ, "operator.write": Scope.WRITE, "operator.admin": Scope.ADMIN}
_APPROVALS = "operator.approvals"


class CloseCode:
    """Why a connection is closed, as WebSockets number it."""

    GOING_AWAY = 1001
    PROTOCOL = 1002
    NO_TEXT = 1003
    POLICY = 1008
    TOO_LARGE = 1009


class ConnectRefused(UsageError):
    """The peer does not come in; the connection is closed with ``close_code``."""

    def __init__(self, message: str, close_code: int = CloseCode.POLICY) -> None:
        super().__init__(message)
        self.close_code = close_code


_Fact = Annotated[str, msgspec.Meta(max_length=256)]


class ClientFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What a client says about itself; nothing depends on it."""

    id: _Fact | None = None
    display_name: _Fact | None = None
    version: _Fact | None = None
    platform: _Fact | None = None
    device_family: _Fact | None = None
    model_identifier: _Fact | None = None
    mode: _Fact | None = None
    instance_id: _Fact | None = None


class Admission(NamedTuple):
    """The peer is in."""

    protocol: int
    owner: Identity
    """Whose token it has shown."""
    identity: Identity
    """The same with the rights that were asked for, where they are less."""
    client: ClientFacts

    @property
    def role(self) -> str:
        """What the peer is to the gateway."""
        return _ROLE

    @property
    def scopes(self) -> list[str]:
        """What it may do, in the protocol's words."""
        granted = [name for name, scope in _SCOPES.items() if scope <= self.identity.scope]
        return [*granted, *([_APPROVALS] if self.identity.approvals else [])]


class _Auth(msgspec.Struct):
    token: str | None = None


class _Device(msgspec.Struct):
    nonce: str | None = None


class _Connect(msgspec.Struct, rename="camel"):
    """The members of ``connect`` that are used here."""

    min_protocol: int
    max_protocol: int
    role: str = _ROLE
    scopes: list[str] = []
    auth: _Auth | None = None
    device: _Device | None = None
    client: ClientFacts = ClientFacts()


Authenticate = Callable[[str], Identity | None]
_read = msgspec.json.Decoder(_Connect)


def decide(params: msgspec.Raw, *, nonce: str, known: Identity | None, authenticate: Authenticate) -> Admission:
    """Let the peer in. ``known``: who it is by the header of its handshake. Raises ConnectRefused."""
    try:
        wish = _read.decode(params)
    except DECODE_ERRORS as exc:
        raise ConnectRefused(f"bad parameters for connect: {exc}") from exc
    protocol = _choose_protocol(wish)
    if wish.role != _ROLE:
        raise ConnectRefused(f"there is nothing here for the role {wish.role[:50]!r}; connect as {_ROLE}")
    if wish.device is not None and wish.device.nonce not in (None, nonce):
        raise ConnectRefused("the device's nonce is not this connection's; sign the one of connect.challenge")
    owner = _identify(wish.auth or _Auth(), known, authenticate)
    return Admission(protocol, owner, _narrowed(owner, wish.scopes), wish.client)


def _choose_protocol(wish: _Connect) -> int:
    for protocol in PROTOCOLS:
        if wish.min_protocol <= protocol <= wish.max_protocol:
            return protocol
    asked = f"{wish.min_protocol} to {wish.max_protocol}"
    spoken = " and ".join(map(str, PROTOCOLS))
    raise ConnectRefused(f"protocol mismatch: {spoken} are spoken here, not {asked}", CloseCode.PROTOCOL)


def _identify(auth: _Auth, known: Identity | None, authenticate: Authenticate) -> Identity:
    if auth.token is None:
        if known is None:
            raise ConnectRefused("unauthorized: no token was shown; send it as params.auth.token")
        return known
    owner = authenticate(auth.token)
    if owner is None:
        raise ConnectRefused("unauthorized: this token is not known here")
    return owner


def _narrowed(owner: Identity, wanted: Sequence[str]) -> Identity:
    """Those of the rights asked for that the token has; all of them where none is named. To approve is to look, too."""
    if not wanted:
        return owner
    scopes = [_SCOPES.get(name, Scope.READ) for name in wanted if name in _SCOPES or name == _APPROVALS]
    if not scopes:
        raise ConnectRefused(f"of the scopes asked for none is one of {', '.join([*_SCOPES, _APPROVALS])}")
    scope = min(owner.scope, max(scopes))
    return owner._replace(scope=scope, approvals=owner.approvals and (_APPROVALS in wanted or scope is Scope.ADMIN))


class Phase(Enum):
    """How far the connection is."""

    CHALLENGED = auto()
    """The peer has been told the nonce; its ``connect`` is awaited."""
    OPEN = auto()
    """It makes requests and hears of runs."""
    ENDED = auto()
    """Nothing it sends counts any more."""


class Stimulus(Enum):
    """What moves it."""

    ADMITTED = auto()
    REFUSED = auto()
    REQUEST = auto()
    BROKEN = auto()
    """What came is no request, or cannot be answered."""
    LATE = auto()
    """No ``connect`` in time."""
    GOING_AWAY = auto()
    """The server ends."""


_MOVES = {
    (Phase.CHALLENGED, Stimulus.ADMITTED): Phase.OPEN,
    (Phase.CHALLENGED, Stimulus.REFUSED): Phase.ENDED,
    (Phase.CHALLENGED, Stimulus.BROKEN): Phase.ENDED,
    (Phase.CHALLENGED, Stimulus.LATE): Phase.ENDED,
    (Phase.CHALLENGED, Stimulus.GOING_AWAY): Phase.ENDED,
    (Phase.OPEN, Stimulus.REQUEST): Phase.OPEN,
    (Phase.OPEN, Stimulus.BROKEN): Phase.ENDED,
    (Phase.OPEN, Stimulus.LATE): Phase.OPEN,
    (Phase.OPEN, Stimulus.GOING_AWAY): Phase.ENDED,
    (Phase.ENDED, Stimulus.LATE): Phase.ENDED,
    (Phase.ENDED, Stimulus.GOING_AWAY): Phase.ENDED,
}


class IllegalMove(RuntimeError):
    """A defect of whoever drives the machine."""


class Say(NamedTuple):
    """Send a frame."""

    frame: bytes


class Admit(NamedTuple):
    """Answer ``connect``: the peer is in."""

    request_id: str
    admission: Admission


class Serve(NamedTuple):
    """Carry a request out; tell ``answered`` when it has its last answer."""

    request: Incoming


class End(NamedTuple):
    """Close the connection once all that was said has been sent."""

    code: int
    reason: str


Action: TypeAlias = Say | Admit | Serve | End


class SocketMachine:
    """One connection's. ``known``: who the peer is by the header of its handshake, where it had one."""

    def __init__(self, nonce: str, known: Identity | None, authenticate: Authenticate, limits: SocketLimits) -> None:
        self.phase = Phase.CHALLENGED
        self._nonce = nonce
        self._known = known
        self._authenticate = authenticate
        self._limits = limits
        self._in_flight: set[str] = set()
        self._refused_in_a_row = 0

    # --- stimuli ------------------------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> list[Action]:
        """The connection is there."""
        payload = msgspec.json.encode({"nonce": self._nonce, "ts": now_ms})
        return [Say(encode_event("connect.challenge", payload))]

    def receive(self, text: str | None) -> list[Action]:
        """A frame of the peer; None = one that is no text."""
        if self.phase is Phase.ENDED:
            return []
        if text is None:
            return self._end(Stimulus.BROKEN, CloseCode.NO_TEXT, "frames are JSON text")
        return self._connect(text) if self.phase is Phase.CHALLENGED else self._request(text)

    def late(self) -> list[Action]:
        """The time for ``connect`` is over."""
        if self.phase is Phase.CHALLENGED:
            return self._end(Stimulus.LATE, CloseCode.POLICY, "no connect in time")
        self._move(Stimulus.LATE)
        return []

    def go_away(self) -> list[Action]:
        """The server ends."""
        was_open, is_over = self.phase is Phase.OPEN, self.phase is Phase.ENDED
        self._move(Stimulus.GOING_AWAY)
        word = Say(encode_event("shutdown", b'{"reason":"the supervisor ends"}'))
        return [] if is_over else [*([word] if was_open else []), End(CloseCode.GOING_AWAY, "the supervisor ends")]

    def answered(self, request_id: str) -> None:
        """A request has had its last answer: its id may be used again."""
        self._in_flight.remove(request_id)

    # --- moves --------------------------------------------------------------------------------------------------------

    def _move(self, stimulus: Stimulus) -> None:
        after = _MOVES.get((self.phase, stimulus))
        if after is None:
            raise IllegalMove(f"{stimulus.name} in {self.phase.name}")
        self.phase = after

    def _end(self, stimulus: Stimulus, code: int, reason: str) -> list[Action]:
        self._move(stimulus)
        return [End(code, reason)]

    # --- the first frame ----------------------------------------------------------------------------------------------

    def _connect(self, text: str) -> list[Action]:
        if len(text) > self._limits.first_frame_bytes or len(text.encode()) > self._limits.first_frame_bytes:
            return self._end(Stimulus.BROKEN, CloseCode.TOO_LARGE, "the first frame is too large")
        try:
            frame = read_frame(text)
        except BadFrame as exc:
            return self._refuse_connect(exc.request_id, ConnectRefused(exc.message))
        if frame.method != "connect":
            return self._refuse_connect(frame.id, ConnectRefused("the first request must be connect"))
        try:
            admission = decide(frame.params, nonce=self._nonce, known=self._known, authenticate=self._authenticate)
        except ConnectRefused as exc:
            return self._refuse_connect(frame.id, exc)
        self._move(Stimulus.ADMITTED)
        return [Admit(frame.id, admission)]

    def _refuse_connect(self, request_id: str | None, refusal: ConnectRefused) -> list[Action]:
        ending = self._end(Stimulus.REFUSED, refusal.close_code, refusal.message)
        return [*_refusal(request_id, refusal), *ending]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self, text: str) -> list[Action]:
        try:
            frame = read_frame(text)
        except BadFrame as exc:
            return self._refuse_frame(exc)
        self._move(Stimulus.REQUEST)
        try:
            self._check(frame)
        except PoolError as exc:
            return _refusal(frame.id, exc)
        self._refused_in_a_row = 0
        self._in_flight.add(frame.id)
        return [Serve(frame)]

    def _check(self, frame: Incoming) -> None:
        if frame.id in self._in_flight:
            raise UsageError(f"a request with the id {frame.id!r} is still in flight; use another")
        if frame.method == "connect":
            raise UsageError("this connection is connected already")
        if len(self._in_flight) >= self._limits.max_requests:
            text = f"{self._limits.max_requests} requests of this connection have no answer yet, which is the limit"
            raise PoolSaturated(text, retry_after=1.0)

    def _refuse_frame(self, refusal: BadFrame) -> list[Action]:
        self._refused_in_a_row += 1
        answer = _refusal(refusal.request_id, refusal)
        if not answer or self._refused_in_a_row > self._limits.max_refused:
            return [*answer, *self._end(Stimulus.BROKEN, CloseCode.POLICY, refusal.message)]
        self._move(Stimulus.REQUEST)
        return answer


def _refusal(request_id: str | None, error: PoolError) -> list[Action]:
    return [] if request_id is None else [Say(encode_refusal(request_id, error_shape(error)))]
