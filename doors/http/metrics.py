"""``GET /metrics``: the figures of ``/status``, histograms, and figures of this port, in Prometheus' text format.

No figure has a session as its label: there may be 100,000 of them. Labels are agents, which the settings name, and
profiles and models, of which those beyond a number share ``other``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec
import trio
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.requests import Request
from starlette.responses import Response

from doors.http.services import HttpCaller, HttpServices, HttpStats, RouteSpec, identity_of
from doors.http.tokens import Scope
from gateway.methods.operator import MetricsDocument, StatusDocument
from pool.statistics import ProfileLatencies
from wire.histogram import OTHER, HistogramData

Samples = Mapping[tuple[str, ...], float]
"""Numbers by the values of the labels."""


def routes(services: HttpServices) -> list[RouteSpec]:
    """The one opening."""

    async def metrics(request: Request) -> Response:
        document = await services.call("metrics", {}, HttpCaller(identity_of(request), "metrics"))
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        http = msgspec.structs.replace(services.stats, requests=services.stats.requests.copy())
        # Thousands of lines: the event loop does not wait for them.
        body = await trio.to_thread.run_sync(encode, _MetricsCollector(document, http))
        return Response(body, headers={"content-type": kind})

    return [RouteSpec("/metrics", metrics, Scope.READ)]


class _MetricsCollector(Collector):
    def __init__(self, document: MetricsDocument, http: HttpStats) -> None:
        self._document = document
        self._http = http

    def collect(self) -> Iterator[Metric]:
        """Every family with its samples."""
        status = self._document.status
        for figure in (*_POOL_METRICS, *_GATEWAY_METRICS):
            yield _family(figure.kind, figure.name, figure.text, figure.read(status), figure.label)
        yield from _node_families(status)
        yield from _profile_families(self._document)
        yield from _latency_families(self._document.latencies)
        yield from _run_families(self._document)
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
    _Metric("gauge", "pool_workers_max", "Worker processes at most.", lambda now: now.pool.max),
    _Metric("gauge", "pool_sessions_bound", "Sessions that have a worker.",
            lambda now: sum(session.worker is not None for session in now.sessions)),
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


def _node_families(status: StatusDocument) -> Iterator[Metric]:
    """Machines of the cluster by group: nodes come and go, groups are those of the settings."""
    groups = status.groups
    states: Samples = {(each.group, state): float(count) for each in groups for state, count in each.nodes.items()}
    yield _gauge("pool_nodes", "Machines of the cluster, this one among them, by state.", states, "group", "state")
    slots: Samples = {(each.group,): float(each.slots) for each in groups}
    yield _gauge("pool_node_slots", "Workers that the machines of a group may run.", slots, "group")
    used: Samples = {(each.group,): float(each.used) for each in groups}
    yield _gauge("pool_node_slots_used", "Slots that workers have.", used, "group")


def _profile_families(document: MetricsDocument) -> Iterator[Metric]:
    """Workers and waiting requests by agent and profile."""
    status, known = document.status, {(each.agent, each.profile) for each in document.latencies}

    def place(agent: str, profile: str) -> tuple[str, ...]:
        """The labels that its histograms have."""
        places = ((agent, profile), (agent, OTHER))
        return next((labels for labels in places if labels in known), (OTHER, OTHER))

    def count(rows: Iterable[tuple[tuple[str, ...], float]]) -> Samples:
        sums: dict[tuple[str, ...], float] = defaultdict(float)
        for labels, value in rows:
            sums[labels] += value
        return sums

    workers = [(place(each.agent, each.profile), each) for each in status.workers]
    profiles = [(place(each.agent, each.profile), each) for each in status.profiles]
    by_state = count(((each.state, *labels), 1) for labels, each in workers)
    yield _gauge("pool_workers", "Workers by state.", by_state, "state", "agent", "profile")
    for name, text, rows in (
        ("worker_rss_bytes", "Resident memory of workers.", ((at, each.rss or 0) for at, each in workers)),
        ("worker_cpu_seconds", "CPU time that the workers of this moment have used so far.",
         ((at, each.cpu or 0) for at, each in workers)),
        ("waiting", "Requests that wait for a worker.", ((at, each.waiting) for at, each in profiles)),
        ("breakers_open", "Profiles whose workers fail to start.",
         ((at, each.breaker == "open") for at, each in profiles)),
    ):  # fmt: skip
        yield _gauge(f"pool_{name}", text, count(rows), "agent", "profile")


def _latency_families(latencies: list[ProfileLatencies]) -> Iterator[Metric]:
    for name, text in (
        ("acquire", "From a request to its worker; of requests that were given one."),
        ("reset", "Making a worker ready for another session."),
        ("spawn", "From a worker's start to its readiness."),
        ("turn", "A turn, from its prompt to its end; counted when its worker is given back."),
    ):
        rows = [((each.agent, each.profile), getattr(each, name)) for each in latencies]
        yield _histogram(f"pool_{name}_seconds", text, rows, "agent", "profile")


def _run_families(document: MetricsDocument) -> Iterator[Metric]:
    """What has become of messages, and what the models have counted."""
    runs, usage = document.runs, document.usage
    ended: Samples = {(each.agent, reason): float(count) for each in runs for reason, count in each.ended.items()}
    yield _counter("pool_runs_ended", "Runs that have their outcome, by its reason.", ended, "agent", "reason")
    waited = [((each.agent,), each.waited) for each in runs]
    yield _histogram("pool_run_wait_seconds", "From a run's acceptance to the start of its turn.", waited, "agent")
    took = [((each.agent,), each.took) for each in runs]
    yield _histogram("pool_run_seconds", "From a run's acceptance to its end, of runs that had a turn.", took, "agent")
    tokens: Samples = {
        (each.agent, each.model, kind): float(count)
        for each in usage
        for kind, count in (("input", each.input_tokens), ("output", each.output_tokens))
    }
    yield _counter("pool_tokens", "Tokens, as the models counted them.", tokens, "agent", "model", "type")
    cost: Samples = {(each.agent, each.model): each.cost for each in usage if each.cost is not None}
    yield _counter("pool_cost_dollars", "US dollars, of agents that tell what they cost.", cost, "agent", "model")


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
    make = _counter if kind == "counter" else _gauge
    if not isinstance(value, Mapping):
        return make(name, text, {(): value})
    return make(name, text, {(each,): sample for each, sample in value.items()}, label)


def _counter(name: str, text: str, samples: Samples, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _gauge(name: str, text: str, samples: Samples, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples.items():
        family.add_metric(labels, value)
    return family


def _histogram(name: str, text: str, rows: Iterable[tuple[tuple[str, ...], HistogramData]], *labels: str) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, data in rows:
        bounds = (*map(floatToGoString, data.bounds), "+Inf")
        family.add_metric(values, list(zip(bounds, accumulate(data.counts), strict=True)), data.sum)
    return family
