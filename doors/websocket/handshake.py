"""``connect``: which version is spoken, who the peer is, and what it may do. Pure."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from doors.http.access import Identity
from doors.http.scopes import Scope
from errors import UsageError
from wire.framing import DECODE_ERRORS

__all__ = ["PROTOCOLS", "Admission", "ClientFacts", "CloseCode", "ConnectRefused", "decide"]

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
