"""Addresses as people write them, ``HOST:PORT`` or ``[IPV6]:PORT``, and names of machines."""

import re

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
