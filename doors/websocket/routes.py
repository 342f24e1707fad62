"""WebSockets at any path, since clients of the protocol differ in theirs."""

from collections.abc import Sequence

from starlette.websockets import WebSocket

from doors.control_limits import OutputBudget
from doors.http.openings import Opening
from doors.http.services import Services
from doors.websocket.connection import SocketConnection
from doors.websocket.hub import Hub
from doors.websocket.limits import SocketLimits

__all__ = ["routes"]


def routes(services: Services) -> Sequence[Opening]:
    """Open to everybody: the token is shown in the first frame, or in the handshake's header."""
    limits = SocketLimits()
    hub = Hub(services, limits)
    budget = OutputBudget(limits.output_bytes)
    services.chores.append(hub.run)

    async def serve(socket: WebSocket) -> None:
        await SocketConnection(socket, services, hub, limits, budget).run()

    return [Opening("/{path:path}", serve, None, is_socket=True)]
