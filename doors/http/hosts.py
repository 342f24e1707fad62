"""Under which names the server answers, and to the pages of which sites: what keeps foreign pages out. Pure.

A page of another site that gets its own name to point at this server (DNS rebinding) names that site as the host; a
page that calls across names its own site as the origin. Neither can choose what the browser writes there.
"""

import ipaddress
import re
from collections.abc import Collection

__all__ = ["host_name", "is_host_allowed", "is_loopback", "is_origin_allowed", "is_site"]

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?")
_USUAL_PORTS = {"http": "80", "https": "443"}


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
    site = _site(origin)
    if site is None:
        return False
    own = {_site(f"{scheme}://{host}") for scheme in ("http", "https")}
    return site in own or site in {_site(other) for other in allowed}


def is_site(text: str) -> bool:
    """Whether the text names a web site, as ``https://ops.example:8443``."""
    return _site(text) is not None


def _site(text: str) -> tuple[str, str, str] | None:
    """Scheme, name and port."""
    scheme, separator, rest = text.lower().rstrip("/").partition("://")
    match = _HOST.fullmatch(rest)
    if not separator or scheme not in _USUAL_PORTS or match is None:
        return None
    return scheme, match[1].rstrip("."), match[2] or _USUAL_PORTS[scheme]


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"
