"""Noticing that a peer has left while an endpoint works for it."""

from starlette.types import Receive

__all__ = ["until_gone"]


async def until_gone(receive: Receive) -> None:
    """Wait until the peer has left; ``receive`` is ASGI's. What is left of a body is passed over."""
    while (await receive())["type"] != "http.disconnect":
        pass
