"""From the name of a host to addresses that may be reached, resolved once: whoever connects uses these and no name.

Were the name resolved again for the connection, whoever answers for it could say something else the second time.
"""

import socket

import trio

from heartbeat.delivery.addresses import refusal
from heartbeat.delivery.channel import DeliveryFailed

__all__ = ["lookup"]


async def lookup(host: str, port: int, *, allow_private: bool) -> list[str]:
    """Every address of the host, in the order of preference. Cancellable; a literal address is checked all the same.

    One address that is refused refuses them all: a name that leads inwards as well as outwards is a trap or a mistake.
    Raises DeliveryFailed.
    """
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise DeliveryFailed(f"the host {host} cannot be resolved: {_words(exc)}") from exc
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise DeliveryFailed(f"the host {host} has no address")
    for address in addresses:
        if why := refusal(address, allow_private=allow_private):
            text = f"the host {host} leads to {address}, which is refused: {why} (see allow_private)"
            raise DeliveryFailed(text, permanent=True)
    return addresses


def _words(error: OSError | UnicodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
