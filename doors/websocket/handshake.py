"""``connect`` and the states of one connection: version, identity, rights, and what each frame leads to. Pure."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from doors.http.access import TokenIdentity
from doors.http.tokens import Scope
from doors.websocket.frames import (
    MalformedFrame,
    RequestFrame,
    SocketLimits,
    encode_error,
    encode_event,
    error_shape,
    read_frame,
)
from errors import PoolError, PoolSaturated, UsageError
from wire.framing import DECODE_ERRORS

PROTOCOLS = (4, 3)
"""The best first."""
ROLE = "operator"
"""What every peer is to the gateway."""
_SCOPE_NAMES = {"operator.read": Scope.READ, "operator.write": Scope.WRITE, "operator.admin": Scope.ADMIN}
_APPROVALS_SCOPE = "operator.approvals"


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


_ShortText = Annotated[str, msgspec.Meta(max_length=256)]


class ClientInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a client says about itself; nothing depends on it."""

    id: _ShortText | None = None
    display_name: _ShortText | None = None
    version: _ShortText | None = None
    platform: _ShortText | None = None
    device_family: _ShortText | None = None
    model_identifier: _ShortText | None = None
    mode: _ShortText | None = None
    instance_id: _ShortText | None = None


class HandshakeResult(NamedTuple):
    """The peer is in."""

    protocol: int
    owner: TokenIdentity
    """Whose token it has shown."""
    identity: TokenIdentity
    """The same with the rights that were asked for, where they are less."""
    client: ClientInfo

    @property
    def scopes(self) -> list[str]:
        """What it may do, in the protocol's words."""
        granted = [name for name, scope in _SCOPE_NAMES.items() if scope <= self.identity.scope]
        return [*granted, *([_APPROVALS_SCOPE] if self.identity.approvals else [])]


class _Auth(msgspec.Struct):
    token: str | None = None


class _Device(msgspec.Struct):
    nonce: str | None = None


class _Connect(msgspec.Struct, rename="camel"):
    """The members of ``connect`` that are used here."""

    min_protocol: int
    max_protocol: int
    role: str = ROLE
    scopes: list[str] = []
    auth: _Auth | None = None
    device: _Device | None = None
    client: ClientInfo = ClientInfo()


Authenticate = Callable[[str], TokenIdentity | None]
_read = msgspec.json.Decoder(_Connect)


def accept_connect(
    params: msgspec.Raw, *, nonce: str, known: TokenIdentity | None, authenticate: Authenticate
) -> HandshakeResult:
    """Let the peer in. ``known``: who it is by the header of its handshake. Raises ConnectRefused."""
    try:
        wish = _read.decode(params)
    except DECODE_ERRORS as exc:
        raise ConnectRefused(f"bad parameters for connect: {exc}") from exc
    protocol = _choose_protocol(wish)
    if wish.role != ROLE:
        raise ConnectRefused(f"there is nothing here for the role {wish.role[:50]!r}; connect as {ROLE}")
    if wish.device is not None and wish.device.nonce not in (None, nonce):
        raise ConnectRefused("the device's nonce is not this connection's; sign the one of connect.challenge")
    owner = _identify(wish.auth or _Auth(), known, authenticate)
    return HandshakeResult(protocol, owner, _restricted(owner, wish.scopes), wish.client)


def _choose_protocol(wish: _Connect) -> int:
    for protocol in PROTOCOLS:
        if wish.min_protocol <= protocol <= wish.max_protocol:
            return protocol
    asked = f"{wish.min_protocol} to {wish.max_protocol}"
    spoken = " and ".join(map(str, PROTOCOLS))
    raise ConnectRefused(f"protocol mismatch: {spoken} are spoken here, not {asked}", CloseCode.PROTOCOL)


def _identify(auth: _Auth, known: TokenIdentity | None, authenticate: Authenticate) -> TokenIdentity:
    if auth.token is None:
        if known is None:
            raise ConnectRefused("unauthorized: no token was shown; send it as params.auth.token")
        return known
    owner = authenticate(auth.token)
    if owner is None:
        raise ConnectRefused("unauthorized: this token is not known here")
    return owner


def _restricted(owner: TokenIdentity, wanted: Sequence[str]) -> TokenIdentity:
    """Those of the rights asked for that the token has; all of them where none is named. To approve is to look, too."""
    if not wanted:
        return owner
    scopes = [_SCOPE_NAMES.get(name, Scope.READ) for name in wanted if name in _SCOPE_NAMES or name == _APPROVALS_SCOPE]
    if not scopes:
        raise ConnectRefused(f"of the scopes asked for none is one of {', '.join([*_SCOPE_NAMES, _APPROVALS_SCOPE])}")
    scope = min(owner.scope, max(scopes))
    return owner._replace(
        scope=scope, approvals=owner.approvals and (_APPROVALS_SCOPE in wanted or scope is Scope.ADMIN)
    )


class SocketPhase(Enum):
    """How far the connection is."""

    CHALLENGED = auto()
    """The peer has the nonce; its ``connect`` is awaited."""
    OPEN = auto()
    """It makes requests and hears of runs."""
    ENDED = auto()
    """Nothing it sends counts any more."""


class SendFrame(NamedTuple):
    """Send a frame."""

    frame: bytes


class Accept(NamedTuple):
    """Answer ``connect``: the peer is in."""

    request_id: str
    handshake: HandshakeResult


class Dispatch(NamedTuple):
    """Run a request; call ``answered`` with its last answer."""

    request: RequestFrame


class CloseSocket(NamedTuple):
    """Close the connection once all that was said has been sent."""

    code: int
    reason: str


Action: TypeAlias = SendFrame | Accept | Dispatch | CloseSocket


class SocketMachine:
    """One connection's. ``known``: who the peer is by the header of its handshake, where it had one."""

    def __init__(
        self, nonce: str, known: TokenIdentity | None, authenticate: Authenticate, limits: SocketLimits
    ) -> None:
        self.phase = SocketPhase.CHALLENGED
        self._nonce = nonce
        self._known = known
        self._authenticate = authenticate
        self._limits = limits
        self._in_flight: set[str] = set()
        self._consecutive_invalid = 0

    # --- stimuli ------------------------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> list[Action]:
        """The connection is there."""
        payload = msgspec.json.encode({"nonce": self._nonce, "ts": now_ms})
        return [SendFrame(encode_event("connect.challenge", payload))]

    def receive(self, text: str | None) -> list[Action]:
        """A frame of the peer; None = one that is no text."""
        if self.phase is SocketPhase.ENDED:
            return []
        if text is None:
            return self._close(CloseCode.NO_TEXT, "frames are JSON text")
        return self._connect(text) if self.phase is SocketPhase.CHALLENGED else self._request(text)

    def on_connect_timeout(self) -> list[Action]:
        """The time for ``connect`` is over."""
        return self._close(CloseCode.POLICY, "no connect in time") if self.phase is SocketPhase.CHALLENGED else []

    def on_shutdown(self) -> list[Action]:
        """The server ends."""
        if self.phase is SocketPhase.ENDED:
            return []
        word = SendFrame(encode_event("shutdown", b'{"reason":"the supervisor ends"}'))
        words = [word] if self.phase is SocketPhase.OPEN else []
        return [*words, *self._close(CloseCode.GOING_AWAY, "the supervisor ends")]

    def answered(self, request_id: str) -> None:
        """A request has had its last answer: its id may be used again."""
        self._in_flight.remove(request_id)

    def _close(self, code: int, reason: str) -> list[Action]:
        self.phase = SocketPhase.ENDED
        return [CloseSocket(code, reason)]

    # --- the first frame ----------------------------------------------------------------------------------------------

    def _connect(self, text: str) -> list[Action]:
        if len(text) > self._limits.first_frame_bytes or len(text.encode()) > self._limits.first_frame_bytes:
            return self._close(CloseCode.TOO_LARGE, "the first frame is too large")
        try:
            frame = read_frame(text)
        except MalformedFrame as exc:
            return self._reject_connect(exc.request_id, ConnectRefused(exc.message))
        if frame.method != "connect":
            return self._reject_connect(frame.id, ConnectRefused("the first request must be connect"))
        try:
            admission = accept_connect(
                frame.params, nonce=self._nonce, known=self._known, authenticate=self._authenticate
            )
        except ConnectRefused as exc:
            return self._reject_connect(frame.id, exc)
        self.phase = SocketPhase.OPEN
        return [Accept(frame.id, admission)]

    def _reject_connect(self, request_id: str | None, refusal: ConnectRefused) -> list[Action]:
        return [*_error_reply(request_id, refusal), *self._close(refusal.close_code, refusal.message)]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self, text: str) -> list[Action]:
        try:
            frame = read_frame(text)
        except MalformedFrame as exc:
            return self._reject_frame(exc)
        try:
            self._check(frame)
        except PoolError as exc:
            return _error_reply(frame.id, exc)
        self._consecutive_invalid = 0
        self._in_flight.add(frame.id)
        return [Dispatch(frame)]

    def _check(self, frame: RequestFrame) -> None:
        if frame.id in self._in_flight:
            raise UsageError(f"a request with the id {frame.id!r} is still in flight; use another")
        if frame.method == "connect":
            raise UsageError("this connection is connected already")
        if len(self._in_flight) >= self._limits.max_requests:
            text = f"{self._limits.max_requests} requests of this connection have no answer yet, which is the limit"
            raise PoolSaturated(text, retry_after=1.0)

    def _reject_frame(self, refusal: MalformedFrame) -> list[Action]:
        self._consecutive_invalid += 1
        answer = _error_reply(refusal.request_id, refusal)
        if not answer or self._consecutive_invalid > self._limits.max_refused:
            return [*answer, *self._close(CloseCode.POLICY, refusal.message)]
        return answer


def _error_reply(request_id: str | None, error: PoolError) -> list[Action]:
    return [] if request_id is None else [SendFrame(encode_error(request_id, error_shape(error)))]
