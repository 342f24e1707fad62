"""Checks of one setting against another. Pure. The types of the settings check each value by itself."""

from collections.abc import Iterator

from doors.http.tokens import http_problems
from errors import UsageError
from heartbeat.delivery.targets import target_problem
from pool.settings import PoolSettings
from profiles import build_profile
from router.settings import router_problems
from settings.problems import KeyPath, Problem, suggestion
from settings.schema import Settings


def check_settings(settings: Settings) -> list[Problem]:
    """Return every problem under its path in the file."""
    return [
        *_pool_problems(settings.pool),
        *_prewarm_problems(settings),
        *_agent_problems(settings),
        *_target_problems(settings),
        *_cron_problems(settings),
        *(Problem(path, text) for path, text in router_problems(settings.router, settings)),
        *(Problem(path, text) for path, text in http_problems(settings.http)),
    ]


def _pool_problems(pool: PoolSettings) -> Iterator[Problem]:
    ordinary = f"pool.max = {pool.max} must leave a worker for ordinary requests"
    pinned = f"background commands must leave one of pool.max = {pool.max} workers"
    for key, is_wrong, text in (
        ("min", pool.min > pool.max, f"is {pool.min}, more than pool.max = {pool.max}"),
        ("reserve", pool.reserve >= pool.max, f"is {pool.reserve}, but {ordinary}"),
        ("max_pinned", pool.max_pinned >= pool.max, f"is {pool.max_pinned}, but {pinned}"),
        (
            "backoff_min",
            pool.backoff_min > pool.backoff_max,
            f"is {pool.backoff_min}, more than pool.backoff_max = {pool.backoff_max}",
        ),
    ):
        if is_wrong:
            yield Problem(("pool", key), text)


def _prewarm_problems(settings: Settings) -> Iterator[Problem]:
    for index, entry in enumerate(settings.pool.prewarm):
        place = ("pool", "prewarm", index)
        yield from _unknown_name("agent", entry.agent, settings.agent_names(), (*place, "agent"))
        yield from _unknown_name("role", entry.role, settings.role_names(), (*place, "role"))
        if settings.has_workspace_per_session(entry.agent):
            text = f"has a workspace per session (agents.{entry.agent}.workspace_per): no worker can be started before"
            yield Problem((*place, "agent"), f"{entry.agent} {text} its session is known")
    total = sum(entry.count for entry in settings.pool.prewarm)
    if total > settings.pool.max:
        yield Problem(("pool", "prewarm"), f"asks for {total} workers, more than pool.max = {settings.pool.max}")


def _agent_problems(settings: Settings) -> Iterator[Problem]:
    """Agents whose workers could not start."""
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
    """Targets that no alert can reach."""
    targets = {name: own.target for name, own in settings.heartbeats.items() if own.target is not None}
    for name, target in {"defaults": settings.heartbeat.target, **targets}.items():
        problem = target_problem(target, settings.delivery.webhooks)
        if problem is not None:
            yield Problem(("agents", name, "heartbeat", "target"), problem)


def _cron_problems(settings: Settings) -> Iterator[Problem]:
    lane = settings.gateway.queue.lanes.get("cron")
    if lane is not None and lane < settings.cron.max_running:
        yield Problem(
            ("cron", "max_running"),
            f"is {settings.cron.max_running}, more than gateway.queue.lanes.cron = {lane}; raise that too",
        )


def _unknown_name(what: str, name: str, known: list[str], path: KeyPath) -> Iterator[Problem]:
    if name not in known:
        yield Problem(path, f"there is no {what} {name!r}{suggestion(name, known)}")
