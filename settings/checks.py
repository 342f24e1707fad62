"""What the settings say that cannot be meant: each value by itself, and one against another. Pure."""

import math
from collections.abc import Iterator
from functools import reduce
from typing import Any

from doors.http.tokens import http_problems
from errors import UsageError
from heartbeat.delivery.targets import target_problem
from pool.settings import PoolSettings
from profiles import build_profile, has_workspace_per_session
from router.settings import router_problems
from settings.problems import KeyPath, Problem, suggestion
from settings.schema import Settings

_KIB = 1024

_AT_LEAST: dict[tuple[str, ...], int] = {
    ("pool", "min"): 0,
    ("pool", "max"): 1,
    ("pool", "max_per_profile"): 0,
    ("pool", "max_per_agent"): 0,
    ("pool", "max_pinned"): 0,
    ("pool", "reserve"): 0,
    ("pool", "waiting_capacity"): 0,
    ("pool", "spawn_burst"): 1,
    ("pool", "ping_failures"): 1,
    ("pool", "max_turns"): 0,
    ("pool", "breaker_failures"): 1,
    ("rpc", "max_line_bytes"): _KIB,
    ("rpc", "max_contaminated_lines"): 1,
    ("rpc", "send_queue_bytes"): _KIB,
    ("rpc", "subscriber_events"): 1,
    ("rpc", "log_bytes"): _KIB,
    ("rpc", "log_workers"): 1,
    ("gateway", "queue", "cap"): 1,
    ("gateway", "queue", "pending"): 1,
    ("gateway", "dedupe", "entries"): 1,
    ("gateway", "events", "ring"): 64 * _KIB,
    ("gateway", "outcomes"): 1,
    ("gateway", "outcome_bytes"): 64 * _KIB,
    ("gateway", "pending_bytes"): 64 * _KIB,
    ("gateway", "runs"): 1,
    ("gateway", "sessions"): 1,
    ("gateway", "delegate_depth"): 0,
    ("gateway", "delegate_fan_out"): 1,
    ("store", "events"): 1,
    ("store", "backlog"): 64 * _KIB,
    ("http", "max_connections"): 1,
    ("http", "max_body"): _KIB,
    ("http", "body_bytes"): _KIB,
    ("http", "max_headers"): _KIB,
    ("http", "rate"): 0,
}
_MORE_THAN_ZERO: list[tuple[str, ...]] = [
    *(("pool", name) for name in ("waiting_timeout", "age_step", "spawn_rate", "start_timeout", "reset_timeout")),
    *(("pool", name) for name in ("ping_interval_idle", "ping_interval_busy", "ping_timeout", "turn_stall")),
    *(("pool", name) for name in ("backoff_min", "backoff_max", "breaker_window", "breaker_half_open")),
    ("pool", "maintenance_interval"),
    ("rpc", "request_timeout"),
    ("rpc", "ui_timeout"),
    *(("store", name) for name in ("stall", "retry", "close_timeout")),
    *(("http", name) for name in ("header_timeout", "body_timeout", "idle_timeout", "write_stall", "close_grace")),
]


def check_settings(settings: Settings) -> list[Problem]:
    """Every problem, under the path that the file has for it."""
    return [
        *_number_problems(settings),
        *_lane_problems(settings.gateway.queue.lanes),
        *_pool_problems(settings.pool),
        *_prewarm_problems(settings),
        *_agent_problems(settings),
        *_target_problems(settings),
        *_cron_problems(settings),
        *(Problem(path, text) for path, text in router_problems(settings.router, settings)),
        *(Problem(path, text) for path, text in http_problems(settings.http)),
    ]


def _number_problems(settings: Settings) -> Iterator[Problem]:
    for path, least in _AT_LEAST.items():
        value = _value(settings, path)
        if value < least:
            yield Problem(path, f"must be {least} or more, not {int(value)}")
    for path in _MORE_THAN_ZERO:
        value = _value(settings, path)
        if not (value > 0 and math.isfinite(value)):
            yield Problem(path, f"must be more than 0, not {value:g}")


def _value(settings: Settings, path: tuple[str, ...]) -> Any:
    return reduce(getattr, path, settings)


def _lane_problems(lanes: dict[str, int]) -> Iterator[Problem]:
    for name, limit in lanes.items():
        if limit < 1:
            yield Problem(("gateway", "queue", "lanes", name), f"must be 1 or more, not {limit}")


def _pool_problems(pool: PoolSettings) -> Iterator[Problem]:
    if pool.min > pool.max:
        yield Problem(("pool", "min"), f"is {pool.min}, more than pool.max = {pool.max}")
    if pool.reserve >= max(pool.max, 1):
        yield Problem(
            ("pool", "reserve"),
            f"is {pool.reserve}, but pool.max = {pool.max} must leave a worker for ordinary requests",
        )
    if pool.max_pinned >= max(pool.max, 1):
        yield Problem(
            ("pool", "max_pinned"),
            f"is {pool.max_pinned}, but background commands must leave one of pool.max = {pool.max} workers",
        )
    if pool.backoff_min > pool.backoff_max:
        yield Problem(
            ("pool", "backoff_min"), f"is {pool.backoff_min}, more than pool.backoff_max = {pool.backoff_max}"
        )


def _prewarm_problems(settings: Settings) -> Iterator[Problem]:
    for index, entry in enumerate(settings.pool.prewarm):
        place = ("pool", "prewarm", index)
        yield from _unknown_name("agent", entry.agent, settings.agent_names(), (*place, "agent"))
        yield from _unknown_name("role", entry.role, settings.role_names(), (*place, "role"))
        if has_workspace_per_session(settings, entry.agent):
            text = f"has a workspace per session (agents.{entry.agent}.workspace_per): no worker can be started before"
            yield Problem((*place, "agent"), f"{entry.agent} {text} its session is known")
        if entry.count < 0:
            yield Problem((*place, "count"), f"must be 0 or more, not {entry.count}")
    total = sum(entry.count for entry in settings.pool.prewarm)
    if total > max(settings.pool.max, 0):
        yield Problem(("pool", "prewarm"), f"asks for {total} workers, more than pool.max = {settings.pool.max}")


def _agent_problems(settings: Settings) -> Iterator[Problem]:
    """What no worker could be started with, found before somebody asks for one."""
    for name in settings.agents:
        try:
            build_profile(settings, name, "default", "/")
        except UsageError as exc:
            setting = exc.details.get("setting")
            if setting is None:
                yield Problem(("agents", name), exc.message)
            else:
                yield Problem(("agents", name, setting), exc.message.removeprefix(f"{setting}: "))


def _target_problems(settings: Settings) -> Iterator[Problem]:
    """Alerts that would reach nobody."""
    targets = {name: own.target for name, own in settings.heartbeats.items() if own.target is not None}
    for name, target in {"defaults": settings.heartbeat.target, **targets}.items():
        problem = target_problem(target, settings.delivery.webhooks)
        if problem is not None:
            yield Problem(("agents", name, "heartbeat", "target"), problem)


def _cron_problems(settings: Settings) -> Iterator[Problem]:
    lane = settings.gateway.queue.lanes.get("cron")
    if lane is not None and 1 <= lane < settings.cron.max_running:
        yield Problem(
            ("cron", "max_running"),
            f"is {settings.cron.max_running}, more than gateway.queue.lanes.cron = {lane}; raise that too",
        )


def _unknown_name(what: str, name: str, known: list[str], path: KeyPath) -> Iterator[Problem]:
    if name not in known:
        yield Problem(path, f"there is no {what} {name!r}{suggestion(name, known)}")
