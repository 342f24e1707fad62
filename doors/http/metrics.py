"""``GET /metrics``: the figures of ``/status`` and of this port, in Prometheus' text format.

No figure has a session as its label: there may be 100,000 of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from doors.http.services import HttpCaller, HttpServices, HttpStats, RouteSpec, identity_of
from doors.http.tokens import Scope
from gateway.methods.operator import StatusDocument
from pool.statistics import LatencyStats


def routes(services: HttpServices) -> Sequence[RouteSpec]:
    """The one opening."""

    async def metrics(request: Request) -> Response:
        status = await services.call("status", {}, HttpCaller(identity_of(request), "metrics"))
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(_StatusCollector(status, services.stats)), headers={"content-type": kind})

    return [RouteSpec("/metrics", metrics, Scope.READ)]


class _StatusCollector(Collector):
    def __init__(self, status: StatusDocument, http: HttpStats) -> None:
        self._status = status
        self._http = http

    def collect(self) -> Iterator[Metric]:
        """Every family with its samples."""
        for figure in (*_POOL_METRICS, *_GATEWAY_METRICS):
            yield _family(figure.kind, figure.name, figure.text, figure.read(self._status), figure.label)
        for name, what in (
            ("acquire", "From a request to its worker"),
            ("reset", "Making a worker ready for another session"),
            ("spawn", "From a worker's start to its readiness"),
            ("turn", "A turn"),
        ):
            latency = getattr(self._status.latency, name)
            yield _summary(f"pool_{name}_seconds", f"{what}; of the latest 1,024.", latency)
        yield from _http_families(self._http)


class _Metric(NamedTuple):
    """One family: ``read`` gives a number, or numbers by the value of ``label``."""

    kind: Literal["counter", "gauge"]
    name: str
    text: str
    read: Callable[[StatusDocument], float | Mapping[str, float]]
    label: str = ""


_POOL_METRICS = (
    _Metric("gauge", "pool_up", "1 while the pool grants workers, 0 while it is paused, draining or closed.",
            lambda now: float(now.pool.mode == "running")),
    _Metric("gauge", "pool_workers", "Workers by state.",
            lambda now: Counter(worker.state for worker in now.workers), "state"),
    _Metric("gauge", "pool_workers_max", "Worker processes at most.", lambda now: now.pool.max),
    _Metric("gauge", "pool_worker_rss_bytes", "Resident memory of all workers.",
            lambda now: sum(worker.rss or 0 for worker in now.workers)),
    _Metric("gauge", "pool_worker_cpu_percent", "CPU of all workers, 100 = one core.",
            lambda now: sum(worker.cpu or 0 for worker in now.workers)),
    _Metric("gauge", "pool_waiting", "Requests that wait for a worker.", lambda now: now.pool.waiting),
    _Metric("gauge", "pool_sessions_bound", "Sessions that have a worker.",
            lambda now: sum(session.worker is not None for session in now.sessions)),
    _Metric("gauge", "pool_breakers_open", "Profiles whose workers fail to start.",
            lambda now: sum(profile.breaker == "open" for profile in now.profiles)),
    _Metric("counter", "pool_spawned", "Workers started.", lambda now: now.counters.spawned),
    _Metric("counter", "pool_exits", "Workers ended, by cause.", lambda now: now.counters.exits, "cause"),
    _Metric("counter", "pool_evicted", "Workers that gave way to another profile.", lambda now: now.counters.evicted),
    _Metric("counter", "pool_grants", "Workers granted, by how well they matched.",
            lambda now: now.counters.grants, "match"),
    _Metric("counter", "pool_requests_refused", "Requests for a worker refused at once.",
            lambda now: now.counters.refused),
    _Metric("counter", "pool_turns_stalled", "Turns aborted because nothing happened in them.",
            lambda now: now.counters.stalled),
    _Metric("counter", "pool_requests_expired", "Requests for a worker that waited too long.",
            lambda now: now.counters.expired),
)  # fmt: skip

_GATEWAY_METRICS = (
    _Metric("gauge", "pool_runs", "Runs accepted and not ended.", lambda now: now.gateway.runs),
    _Metric("gauge", "pool_turns", "Turns that run.", lambda now: now.gateway.lanes.running),
    _Metric("gauge", "pool_messages_waiting", "Messages that wait for a turn.", lambda now: now.gateway.lanes.waiting),
    _Metric("gauge", "pool_sessions", "Sessions known.", lambda now: now.gateway.sessions),
    _Metric("gauge", "pool_permissions_pending", "Tool calls that wait for a person.",
            lambda now: len(now.gateway.permissions)),
    _Metric("gauge", "pool_system_events_pending", "System events that wait for a turn.",
            lambda now: now.gateway.system_events.pending),
    _Metric("counter", "pool_events", "Events published, pieces of text not counted.",
            lambda now: now.gateway.events.events),
    _Metric("counter", "pool_text_pieces", "Pieces of text published.", lambda now: now.gateway.events.text_pieces),
    _Metric("gauge", "pool_event_ring_bytes", "Memory of recent events.", lambda now: now.gateway.events.ring_bytes),
    _Metric("gauge", "pool_event_seq", "The last event that readers may see.", lambda now: now.gateway.events.head),
    _Metric("gauge", "pool_store_degraded", "1 while the disk refuses.", lambda now: float(now.gateway.store.degraded)),
    _Metric("gauge", "pool_store_rows_waiting", "Rows that are in memory only.",
            lambda now: now.gateway.store.rows_waiting),
    _Metric("gauge", "pool_store_bytes_waiting", "Their bytes.", lambda now: now.gateway.store.bytes_waiting),
    _Metric("counter", "pool_store_rows_written", "Rows written.", lambda now: now.gateway.store.rows_written),
    _Metric("counter", "pool_store_rows_lost", "Rows given up.", lambda now: now.gateway.store.lost),
    _Metric("gauge", "pool_uptime_seconds", "Since the supervisor's start.",
            lambda now: float(now.supervisor["uptime"])),
)  # fmt: skip


def _http_families(http: HttpStats) -> Iterator[Metric]:
    """What this door has counted itself."""
    gauges = (
        ("connections", "Open connections.", http.connections),
        ("streams", "Open streams of events.", http.streams),
        ("sockets", "Open WebSockets.", http.sockets),
    )
    counters = (
        ("connections_accepted", "Connections accepted.", http.accepted),
        ("connections_turned_away", "Connections refused because all others were busy.", http.turned_away),
        ("connections_evicted", "Connections without a token that gave way to others.", http.evicted),
        ("connections_stalled", "Peers cut off because they did not read.", http.stalled),
        ("streams_behind", "Streams cut off with a bookmark because they were too slow.", http.streams_behind),
        ("stream_bytes", "Bytes sent as events.", http.events_bytes),
        ("sockets_slow", "WebSockets closed because they were too slow.", http.sockets_slow),
        ("socket_events_dropped", "Events that slow WebSockets have lost.", http.events_dropped),
    )
    for name, text, value in gauges:
        yield _family("gauge", f"pool_http_{name}", text, value)
    for name, text, value in counters:
        yield _family("counter", f"pool_http_{name}", text, value)
    answers = {str(status): float(count) for status, count in sorted(http.requests.items())}
    yield _family("counter", "pool_http_requests", "Requests answered, by status.", answers, "status")


def _family(kind: str, name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make(name, text, labels=[label] if label else [])
    for name_of, sample in value.items() if isinstance(value, Mapping) else [("", value)]:
        family.add_metric([name_of] if label else [], sample)
    return family


def _summary(name: str, text: str, figures: LatencyStats) -> Metric:
    family = Metric(name, text, "summary")
    for quantile, value in (("0.5", figures.p50), ("0.99", figures.p99), ("1", figures.max)):
        family.add_sample(name, {"quantile": quantile}, value)
    family.add_sample(f"{name}_count", {}, figures.count)
    return family
