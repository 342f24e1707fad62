"""Addresses as people write them, ``HOST:PORT`` or ``[IPV6]:PORT``, and names of machines."""

import re
import socket
from contextlib import suppress

from errors import UsageError

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a node of a cluster may be called."""


def parse_bind(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[IPV6]:PORT``. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    inner = host[1:-1] if is_bracketed else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not (colon and inner and is_port) or (":" in inner) is not is_bracketed:
        raise UsageError(f'must be an address and a port such as "127.0.0.1:8765" or "[::1]:8765", not {text!r}')
    return inner, int(port)


def outgoing_address(host: str) -> str:
    """What other machines reach this one by, where it listens on ``host``: itself, unless that stands for all."""
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return host
    family, far = (socket.AF_INET, "192.0.2.1") if host == "0.0.0.0" else (socket.AF_INET6, "2001:db8::1")  # noqa: S104
    with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):  # no route: its name has to do
        probe.connect((far, 9))  # nothing is sent: it only chooses the address
        return str(probe.getsockname()[0])
    return socket.gethostname()
