"""The ``[http]`` settings, addresses, and which host names and origins the server accepts. Pure.

A page of another site that points its own name at this server (DNS rebinding) sends that name as the host; a page that
calls across sites sends its own as the origin. Neither can choose what the browser writes there.
"""

import ipaddress
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal

import msgspec

from errors import UsageError
from wire.units import AtLeastKiB, ByteCount, NonNegativeInt, PositiveInt, PositiveSeconds, Seconds


class HttpToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[http.tokens.NAME]``: an additional token with fewer rights. Its name is shown as the author of decisions."""

    token: str = ""
    token_file: str = ""
    """A file that holds it, readable by its owner only; exactly one of the two is set."""
    scope: Literal["read", "write", "admin"] = "read"
    """read: look; write: also prompt agents; admin: everything."""
    approvals: bool = False
    """Whether it may decide about tool calls and answer dialogs; admin may."""


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[http]``: the HTTP door, with all that is served on its port. Off unless ``bind`` is set."""

    bind: str = ""
    """Where to listen, as "127.0.0.1:8765" or "[::1]:8765"; port 0 = any free one; empty = nowhere."""
    token: str = ""
    """What callers show as "Authorization: Bearer ...": 16 characters or more. It may do everything. $POOL_HTTP_TOKEN
    comes before it. Where nothing is set one is made, in the file http-token of the data directory."""
    token_file: str = ""
    """A file that holds it instead, readable by its owner only."""
    tokens: dict[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], HttpToken] = {}
    """Further ones, each in a table [http.tokens.NAME]."""
    allowed_hosts: list[str] = []
    """Names under which the server may be addressed, beside localhost and the addresses it listens on."""
    allowed_origins: list[str] = []
    """Web sites whose pages may call, as "https://ops.example"; a page of the server itself always may."""
    abort_on_disconnect: bool = False
    """Whether a run that was begun through /v1 ends when its caller leaves."""
    max_connections: PositiveInt = 512
    """A new one above that takes the place of one that has shown no token; where there is none it is turned away."""
    max_body: AtLeastKiB = ByteCount(8 * 1024 * 1024)
    """Bytes of one request's body."""
    body_bytes: AtLeastKiB = ByteCount(64 * 1024 * 1024)
    """Bytes of all bodies that are being read or worked on."""
    max_headers: AtLeastKiB = ByteCount(16 * 1024)
    """Bytes of one request's line and headers."""
    header_timeout: PositiveSeconds = Seconds(10)
    """How long a request's line and headers may take, from the first byte or the connection's begin."""
    body_timeout: PositiveSeconds = Seconds(60)
    """How long a body may take."""
    idle_timeout: PositiveSeconds = Seconds(75)
    """How long a connection is kept without a request."""
    write_stall: PositiveSeconds = Seconds(30)
    """A peer that takes no byte for this long, while some wait for it, is cut off."""
    close_grace: PositiveSeconds = Seconds(2)
    """How long the last words may take when the supervisor ends."""
    rate: NonNegativeInt = 1000
    """Requests a second of one token, or of one address without any; a burst may have twice as many."""


def with_token_files(settings: HttpSettings, place: Callable[[str], str]) -> HttpSettings:
    """The same with every token file where ``place`` has it: a name in the settings is one beside their file."""

    def placed(token: HttpToken) -> HttpToken:
        return msgspec.structs.replace(token, token_file=place(token.token_file)) if token.token_file else token

    return msgspec.structs.replace(
        settings,
        token_file=place(settings.token_file) if settings.token_file else "",
        tokens={name: placed(token) for name, token in settings.tokens.items()},
    )


_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def host_name(header: str) -> str | None:
    """The name in a header ``Host``, in small letters, without port and brackets; None where it is none."""
    match = _HOST.fullmatch(header)
    return None if match is None else match[1].strip("[]").rstrip(".").lower()


def is_host_allowed(header: str, address: str, allowed: Collection[str]) -> bool:
    """Whether the server answers to that name: localhost, the address that was connected to, and what is allowed."""
    name = host_name(header)
    if name is None:
        return False
    return name == "localhost" or _same_address(name, address) or name in {other.lower() for other in allowed}


def _same_address(name: str, address: str) -> bool:
    try:
        named, own = ipaddress.ip_address(name), ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return named == own


def is_origin_allowed(origin: str, host: str, allowed: Collection[str]) -> bool:
    """Whether pages of ``origin`` may call: those of the server itself, as ``host`` names it, and what is allowed."""
    site = _parse_origin(origin)
    if site is None:
        return False
    own = {_parse_origin(f"{scheme}://{host}") for scheme in ("http", "https")}
    return site in own or site in {_parse_origin(other) for other in allowed}


def is_origin(text: str) -> bool:
    """Whether the text names a web site, as ``https://ops.example:8443``."""
    return _parse_origin(text) is not None


def _parse_origin(text: str) -> tuple[str, str, str] | None:
    """Scheme, name and port."""
    scheme, separator, rest = text.lower().rstrip("/").partition("://")
    match = _HOST.fullmatch(rest)
    if not separator or scheme not in _DEFAULT_PORTS or match is None:
        return None
    return scheme, match[1].rstrip("."), match[2] or _DEFAULT_PORTS[scheme]


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def require_loopback(host: str, text: str) -> None:
    """Raise UsageError where other machines reach ``host``, which ``text`` in the settings names."""
    if not is_loopback(host):
        raise UsageError(
            f"http.bind is {text}, which other machines can reach: set http.token_file (or http.token) to a token "
            "of your choice first, or bind 127.0.0.1"
        )


def url_of(address: tuple[Any, ...]) -> str:
    """What to type into a browser on this machine for a socket's address."""
    host, port = address[:2]
    if _is_wildcard(host):  # all addresses of the machine, and no host to ask for
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
