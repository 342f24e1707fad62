"""The routes of all doors on the HTTP port."""

from collections.abc import Callable, Sequence

from doors.dashboard import routes as dashboard
from doors.http import api, events, metrics
from doors.http import api as health
from doors.http.services import HttpServices, RouteSpec
from doors.openai import routes as openai
from doors.websocket import connection as websocket

Door = Callable[[HttpServices], Sequence[RouteSpec]]

DOORS: tuple[Door, ...] = (
    *(health.health_routes, metrics.routes, api.routes, events.routes),
    *(openai.routes, websocket.routes, dashboard.routes),
)
"""Each door's function; the order decides where two paths match."""


def route_specs(services: HttpServices) -> list[RouteSpec]:
    """Every opening of every door."""
    return [opening for door in DOORS for opening in door(services)]
