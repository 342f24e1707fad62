"""``/health``, ``/ready``: for whoever only wants to know whether to go on; ``/status``: everything at one moment."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from doors.http.caller import HttpCaller
from doors.http.openings import Opening
from doors.http.refusals import json_response
from doors.http.scopes import Scope
from doors.http.services import Services, identity_of
from errors import PoolClosed

__all__ = ["health_routes"]


def health_routes(services: Services) -> Sequence[Opening]:
    """The three openings; the first two are for everybody and tell nothing else."""

    async def health(_request: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(_request: Request) -> Response:
        mode = (await services.status()).pool.mode
        if services.closing.has_begun or mode != "running":
            raise PoolClosed(f"the pool is {'closing' if services.closing.has_begun else mode} and begins no turns")
        return json_response({"status": "ready"})

    async def status(request: Request) -> Response:
        return json_response(await services.call("status", {}, HttpCaller(identity_of(request), "status")))

    return [
        Opening("/health", health, None),
        Opening("/ready", ready, None),
        Opening("/status", status, Scope.READ),
    ]
