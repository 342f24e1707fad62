"""The ``[pool]`` table of the settings file, and the check that its workers fit into memory."""

import os
from collections.abc import Iterator

import msgspec

from errors import UsageError
from rpc.cgroup import MemoryLimit, memory_limit
from wire.units import ByteCount, NonNegativeInt, PositiveFloat, PositiveInt, PositiveSeconds, Seconds


class Prewarm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep ``count`` idle workers of one profile warm."""

    agent: str = "main"
    """Which agent definition."""
    role: str = "default"
    """In which role."""
    count: NonNegativeInt = 1
    """How many idle workers."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and times of the pool. A count of 0 or a time of 0 means "no such limit" where the text says so."""

    min: NonNegativeInt = 1
    """Idle workers that ``idle_timeout`` leaves alone."""
    max: PositiveInt = 4
    """Live worker processes, starting and stopping ones included."""
    worker_memory: ByteCount = ByteCount(150 * 1024 * 1024)
    """What one worker is reckoned to need; ``max`` times this must fit into the machine's memory."""
    max_per_profile: NonNegativeInt = 0
    """Live workers of one profile signature; 0 = no limit of its own."""
    max_per_agent: NonNegativeInt = 0
    """Live workers of one agent definition; 0 = no limit of its own."""
    max_pinned: NonNegativeInt = 0
    """Workers that background commands alone keep for their sessions; 0 = ``max`` less 1. Above that the session used
    longest ago loses its commands, with a notice, when another one waits for a worker."""
    reserve: NonNegativeInt = 0
    """Workers kept for requests of base priority >= 10 and for nested runs."""
    waiting_capacity: NonNegativeInt = 50
    """Direct acquires that may wait."""
    waiting_timeout: PositiveSeconds = Seconds(30)
    """How long a direct acquire without a deadline of its own waits."""
    age_step: PositiveSeconds = Seconds(3)
    """Waiting this long is worth one step of priority."""
    spawn_burst: PositiveInt = 8
    """Workers that may be started at once."""
    spawn_rate: PositiveFloat = 4.0
    """Workers a second after the burst."""
    fork_server: bool = True
    """Workers of the bundled agent begin as copies of one process that has loaded it: faster, with shared memory.
    False, or where that cannot be done: each is started by itself."""
    start_timeout: PositiveSeconds = Seconds(60)
    """Spawn to ready."""
    reset_timeout: PositiveSeconds = Seconds(10)
    """new_session or switch_session, with its verification."""
    ping_interval_idle: PositiveSeconds = Seconds(15)
    """How often an idle worker is asked whether it still answers."""
    ping_interval_busy: PositiveSeconds = Seconds(30)
    """The same of a worker in use."""
    ping_timeout: PositiveSeconds = Seconds(10)
    """How long it may take to answer."""
    ping_failures: PositiveInt = 3
    """Unanswered pings in a row after which a worker is unresponsive."""
    turn_stall: PositiveSeconds = Seconds(600)
    """A turn without any output for this long is aborted, then its worker killed."""
    idle_timeout: Seconds = Seconds(300)
    """An idle worker above ``min`` is stopped so long after its last turn, also one that still has a session."""
    session_idle_timeout: Seconds = Seconds(1800)
    """A session is parked so long after its last turn; 0 = never, and its worker is not stopped for being idle."""
    max_age: Seconds = Seconds(0)
    """A worker older than this (with 10 % jitter) retires at a turn boundary; 0 = never."""
    max_turns: NonNegativeInt = 0
    """A worker retires after this many turns; 0 = never."""
    max_rss: ByteCount = ByteCount(0)
    """A worker above this resident size retires at a turn boundary; 0 = never."""
    backoff_min: PositiveSeconds = Seconds(0.5)
    """After a failed start the next one of the same profile waits this long, longer after each further failure."""
    backoff_max: PositiveSeconds = Seconds(60)
    """It never waits longer than this."""
    breaker_failures: PositiveInt = 5
    """This many failures of one profile within ``breaker_window`` open its breaker."""
    breaker_window: PositiveSeconds = Seconds(60)
    """Failures longer ago than this are forgotten."""
    breaker_half_open: PositiveSeconds = Seconds(30)
    """An open breaker lets one trial spawn through after this."""
    maintenance_interval: PositiveSeconds = Seconds(30)
    """How often the workers' memory is measured."""
    drain_timeout: Seconds = Seconds(60)
    """How long ``drain`` and a graceful stop wait for turns in flight."""
    prewarm: list[Prewarm] = []
    """What to keep warm; empty = ``min`` workers of the default agent in the default role."""


def contradictions(pool: PoolSettings) -> Iterator[tuple[str, str]]:
    """Every limit that contradicts another: its name, and what is wrong with it."""
    ordinary = f"pool.max = {pool.max} must leave a worker for ordinary requests"
    pinned = f"background commands must leave one of pool.max = {pool.max} workers"
    for name, is_wrong, text in (
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
            yield name, text


_POSITIVE_SETTINGS = (
    *("max", "spawn_burst", "spawn_rate", "start_timeout", "reset_timeout", "ping_interval_idle", "ping_interval_busy"),
    *("ping_timeout", "turn_stall", "breaker_failures", "maintenance_interval"),
)
"""At zero no worker would ever be started, or what happens after a time would happen always."""


def check_settings(settings: PoolSettings) -> None:
    """Refuse limits out of range, as only a caller in Python can give them, and limits that contradict each other.

    Raises UsageError that names the setting.
    """
    for name in _POSITIVE_SETTINGS:
        if getattr(settings, name) <= 0:
            raise UsageError(f"{name} = {getattr(settings, name)!r} must be more than 0")
    for name, text in contradictions(settings):
        raise UsageError(f"pool.{name} {text}")


_MIB = 1024 * 1024


def check_memory(
    settings: PoolSettings,
    total_bytes: int | None = None,
    *,
    limit: MemoryLimit | None = None,
    here: int | None = None,
) -> None:
    """Raise UsageError when ``max`` workers of ``worker_memory`` bytes each are more than there is.

    ``total_bytes`` None: the machine's physical memory, or what its cgroup allows (``limit``, None: what holds here).
    ``here``: how many of them this machine has to run, where there are others; None: all.
    """
    workers = settings.max if here is None else min(here, settings.max)
    name = "pool.max" if workers == settings.max else "cluster.local_slots"
    total, where = total_bytes, "this machine has"
    if total is None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = limit or memory_limit()
        if limit is not None and limit.size < total:
            total, where = limit.size, f"{limit.file} allows"
    wanted = workers * settings.worker_memory
    if wanted > total:
        fits = total // settings.worker_memory
        raise UsageError(
            f"{name} = {workers} workers x {settings.worker_memory // _MIB} MiB (pool.worker_memory) = "
            f"{wanted // _MIB} MiB, but {where} {total // _MIB} MiB; "
            f"set {name} to {fits} or less, or pool.worker_memory to what a worker really needs"
        )
