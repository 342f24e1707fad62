"""What is served on the HTTP port: a path, its endpoint, and what a caller must be to come in."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from doors.http.refusals import Render, render_error
from doors.http.scopes import Scope

__all__ = ["Endpoint", "Opening"]

Endpoint = Callable[[Any], Awaitable[Any]]
"""``async (starlette.requests.Request) -> Response``, or ``async (starlette.websockets.WebSocket) -> None``."""


class Opening(NamedTuple):
    """One way in. ``scope`` None: everybody, who has shown no token too."""

    path: str
    endpoint: Endpoint
    scope: Scope | None
    methods: tuple[str, ...] = ("GET",)
    is_socket: bool = False
    render: Render = render_error
    """How an error of this endpoint is answered."""
