"""Parts of the supervisor that only some settings ask for; their long imports are made before anything runs."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from errors import UsageError
from gateway.runs.trace import Tracer
from settings.schema import Settings

if TYPE_CHECKING:
    from app.tracing import OtlpTracer
    from cluster.service import ClusterService
    from doors.http.server import HttpServer

_OTEL_PACKAGES = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
_FLUSH_SECONDS = 3.0
"""That the last spans may take; a collector that does not answer loses them."""


def http_server_type(settings: Settings) -> "type[HttpServer] | None":
    """The HTTP server's class, None where none is configured."""
    if not settings.http.bind:
        return None
    from doors.http.server import HttpServer  # noqa: PLC0415

    return HttpServer


def cluster_type(settings: Settings) -> "type[ClusterService] | None":
    """The class of the service for other machines, None where there are none."""
    if not settings.cluster.is_on:
        return None
    from cluster.service import ClusterService  # noqa: PLC0415

    return ClusterService


def tracer_type(settings: Settings) -> "type[OtlpTracer] | None":
    """The class of the exporter of traces, None where none are recorded.

    Raises UsageError where its packages are not installed.
    """
    if not settings.telemetry.traces:
        return None
    try:
        from app.tracing import OtlpTracer  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        again = "install pool again as '.[otel]' (uv tool install --force, pipx install --force, pip install)"
        beside = f"or its packages beside it ({sys.executable} -m pip install {_OTEL_PACKAGES})"
        text = f"telemetry.traces needs the extra otel: {again}, {beside}: {exc}"
        raise UsageError(text) from exc
    return OtlpTracer


@asynccontextmanager
async def opened_tracer(make: "Callable[[], OtlpTracer] | None") -> AsyncGenerator[Tracer | None, None]:
    """The exporter of traces, or None; at its end the last spans are sent."""
    if make is None:
        yield None
        return
    tracer = make()
    try:
        yield tracer
    finally:
        with trio.move_on_after(_FLUSH_SECONDS, shield=True):
            await trio.to_thread.run_sync(tracer.close, abandon_on_cancel=True)
