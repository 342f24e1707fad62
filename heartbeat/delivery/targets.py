"""Targets of alerts (``last``, ``none``, ``CHANNEL:PEER``), and the addresses that webhooks may reach. Pure.

Built-in channels are ``events`` (the event stream), ``stdout`` (of ``pool run``) and ``webhook:NAME``. A front end
delivers the others: it finds the target in the event stream.

The address ranges are those of IANA's special-purpose registries, written out because ``ipaddress`` differs between
releases of Python. Of IPv6 only 2000::/3 counts as public.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable

import msgspec

from errors import UsageError

LAST = "last"
NOWHERE = "none"
WEBHOOK = "webhook"
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MAX_LENGTH = 512
_HINT = 'write "last", "none", "events", "stdout", "webhook:NAME" or "CHANNEL:PEER"'


class DeliveryTarget(msgspec.Struct, frozen=True):
    """A channel and whom to reach through it; ``is_carried`` says that our own channels do not lead there.

    Then a front end delivers it, by the event stream.
    """

    channel: str
    peer: str = ""
    is_carried: bool = False

    def __str__(self) -> str:
        return f"{self.channel}:{self.peer}" if self.peer else self.channel


EVENTS = DeliveryTarget("events", is_carried=True)
STDOUT = DeliveryTarget("stdout")


def resolve_target(target: str, last: str | None) -> DeliveryTarget | None:
    """The place of a target; None = nowhere. ``last``: the channel of the session's latest message.

    Without one it is the event stream. So it is where the front end uses the name of a built-in channel: a sender's
    name must not open the operator's webhooks. Raises UsageError.
    """
    if target == NOWHERE:
        return None
    if target != LAST:
        return _parse_target(target)
    channel, _, peer = (last or "").partition(":")
    if not peer or len(peer) > _MAX_LENGTH or not _CHANNEL.fullmatch(channel) or channel in _BUILT_IN:
        return EVENTS
    return DeliveryTarget(channel, peer, is_carried=True)


def target_problem(target: str, webhooks: Collection[str]) -> str | None:
    """What is wrong with a target where these webhooks are configured; None = nothing."""
    try:
        place = resolve_target(target, None)
    except UsageError as exc:
        return exc.message
    if place is not None and place.channel == WEBHOOK and place.peer not in webhooks:
        known = ", ".join(sorted(webhooks)) or "none"
        return f"there is no webhook {place.peer!r}; there are: {known}"
    return None


def _parse_target(target: str) -> DeliveryTarget:
    channel, colon, peer = target.partition(":")
    if target in _PEERLESS:
        return _PEERLESS[target]
    if not _CHANNEL.fullmatch(channel) or len(target) > _MAX_LENGTH:
        raise UsageError(f"{target[:80]!r} is no target of an alert; {_HINT}")
    if channel in _PEERLESS:
        raise UsageError(f"{channel!r} takes no peer; {_HINT}")
    if not (colon and peer and peer.isprintable() and peer == peer.strip()):
        raise UsageError(f"{target[:80]!r} does not say whom to reach through {channel!r}; {_HINT}")
    if channel in (LAST, NOWHERE):
        raise UsageError(f"{channel!r} is no channel; {_HINT}")
    return DeliveryTarget(channel, peer, is_carried=channel != WEBHOOK)


_PEERLESS = {str(place): place for place in (EVENTS, STDOUT)}
_BUILT_IN = frozenset({*_PEERLESS, WEBHOOK})


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(ranges: dict[str, str]) -> list[tuple[Network, str]]:
    return [(ipaddress.ip_network(text), kind) for text, kind in ranges.items()]


_BLOCKED = _networks(
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
_IPV4_PREFIXES = tuple(ipaddress.ip_network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
"""IPv6 addresses that lead to the IPv4 address in their last 32 bits: mapped ones, and those a NAT64 translates."""


def blocked_reason(address: str, *, allow_private: bool) -> str | None:
    """Why nothing may be sent to this address (``loopback``, ``link-local``, ...); None = it may."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "no IP address"
    meant: IPAddress = parsed
    if parsed.version == 6 and any(parsed in carrier for carrier in _IPV4_PREFIXES):
        meant = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
    return _range_kind(meant, _BLOCKED) or _not_public(meant, allow_private=allow_private)


def _not_public(address: IPAddress, *, allow_private: bool) -> str | None:
    if private := _range_kind(address, _PRIVATE):
        return None if allow_private else private
    return "reserved" if address.version == 6 and address not in _PUBLIC_IPV6 else None


def _range_kind(address: IPAddress, networks: Iterable[tuple[Network, str]]) -> str | None:
    return next((kind for network, kind in networks if address in network), None)
