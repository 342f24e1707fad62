"""Which network addresses a webhook may lead to: none that only this machine or its own network can reach. Pure.

The ranges are those of the IANA registries of special-purpose addresses, written out here rather than asked of
``ipaddress``, whose answers differ between releases of Python. Of IPv6 only what is given out to the public (2000::/3)
counts as public at all.
"""

import ipaddress
from collections.abc import Iterable

__all__ = ["refusal"]

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(ranges: dict[str, str]) -> list[tuple[Network, str]]:
    return [(ipaddress.ip_network(text), kind) for text, kind in ranges.items()]


_NEVER = _networks(
    {
        "100.100.100.200/32": "the metadata service of a cloud",
        "168.63.129.16/32": "the metadata service of a cloud",
        "fd00:ec2::254/128": "the metadata service of a cloud",
        "0.0.0.0/8": "no address of a host",
        "169.254.0.0/16": "link-local",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "reserved for documentation",
        "192.88.99.0/24": "reserved",
        "198.18.0.0/15": "reserved for measurements",
        "198.51.100.0/24": "reserved for documentation",
        "203.0.113.0/24": "reserved for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
        "fe80::/10": "link-local",
        "ff00::/8": "multicast",
        "2001::/23": "reserved",
        "2001:db8::/32": "reserved for documentation",
        "2002::/16": "reserved",
        "3fff::/20": "reserved for documentation",
    }
)
_PRIVATE = _networks(
    {
        "127.0.0.0/8": "loopback",
        "::1/128": "loopback",
        "10.0.0.0/8": "private",
        "172.16.0.0/12": "private",
        "192.168.0.0/16": "private",
        "100.64.0.0/10": "private",
        "fc00::/7": "private",
    }
)
"""What ``allow_private`` opens."""
_PUBLIC_IPV6 = ipaddress.ip_network("2000::/3")
_CARRIERS = tuple(ipaddress.ip_network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
"""IPv6 addresses that lead to the IPv4 address in their last 32 bits: mapped ones, and those a NAT64 translates."""


def refusal(address: str, *, allow_private: bool) -> str | None:
    """Why nothing may be sent to this address (``loopback``, ``link-local``, ...); None = it may."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "no IP address"
    meant = _carried(parsed)
    return _kind(meant, _NEVER) or _not_public(meant, allow_private=allow_private)


def _not_public(address: IPAddress, *, allow_private: bool) -> str | None:
    if private := _kind(address, _PRIVATE):
        return None if allow_private else private
    return "reserved" if address.version == 6 and address not in _PUBLIC_IPV6 else None


def _carried(address: IPAddress) -> IPAddress:
    if address.version == 6 and any(address in carrier for carrier in _CARRIERS):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _kind(address: IPAddress, networks: Iterable[tuple[Network, str]]) -> str | None:
    return next((kind for network, kind in networks if address in network), None)
