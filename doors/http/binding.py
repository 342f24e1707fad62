"""The listening socket of the HTTP port: its address, and the options of accepted sockets."""

import socket
from typing import Any

from doors.http.settings import HttpSettings, is_loopback
from errors import UsageError

_SEND_BUFFER_BYTES = 512 * 1024
"""The kernel doubles it. What it would hold by itself for a peer that does not read are some megabytes."""
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A peer whose machine has gone is noticed after a minute."""


def parse_bind(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[IPV6]:PORT``. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    inner = host[1:-1] if is_bracketed else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not (colon and inner and is_port) or (":" in inner) is not is_bracketed:
        raise UsageError(f'must be an address and a port such as "127.0.0.1:8765" or "[::1]:8765", not {text!r}')
    return inner, int(port)


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


def require_loopback(host: str, text: str) -> None:
    """Raise UsageError where other machines reach ``host``, which ``text`` in the settings names."""
    if not is_loopback(host):
        raise UsageError(
            f"http.bind is {text}, which other machines can reach: set http.token_file (or http.token) to a token "
            "of your choice first, or bind 127.0.0.1"
        )


def url_of(address: tuple[Any, ...]) -> str:
    """What to type into a browser for a socket's address."""
    host, port = address[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


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
