"""Holds: a caller has a session's worker to itself until it releases it or disconnects."""

import uuid
from itertools import islice

import msgspec
import trio

from errors import PoolClosed, PoolError, UsageError
from gateway.caller import Caller
from gateway.requests import AcquireRequest
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.session_entry import SessionEntry
from gateway.sessions.sessions import Sessions
from gateway.turns.scheduler import TurnScheduler
from pool import Lease, Pool


class Hold:
    """One caller's hold. ``lease`` is set once the worker is granted."""

    def __init__(self, principal: str, session: str, timeout: float) -> None:
        self.id = uuid.uuid4().hex
        self.principal = principal
        self.session = session
        self.since = trio.current_time()
        """When it was asked for, on trio's clock; so is ``deadline``."""
        self.deadline = self.since + timeout
        """When its caller stops waiting."""
        self.lease: Lease | None = None
        self.error: PoolError | None = None
        self.resolved = trio.Event()
        self.released = trio.Event()

    def release_unused(self) -> None:
        """Release it unless a turn runs on it."""
        if self.lease is not None and self.lease.running_since is None:
            self.released.set()

    def time_left(self) -> float:
        """Seconds until its caller stops waiting."""
        return max(0.0, self.deadline - trio.current_time())


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """What ``acquire`` answers."""

    hold: str
    session: str
    worker: str
    level: str
    waited: float


class HoldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One hold. ``worker`` None: its caller waits for the session or for a worker. Times in seconds."""

    session: str
    principal: str
    worker: str | None
    age: float
    """Since it was asked for."""
    expires_in: float | None
    """Until its caller stops waiting; None once it is granted."""


class HoldStats(msgspec.Struct, frozen=True, kw_only=True):
    """``oldest``: at most 20 of them."""

    granted: int
    waiting: int
    oldest: list[HoldInfo]


_MAX_LISTED = 20


class Holds:
    """All holds by id. A hold occupies its session: messages for it wait until it is released."""

    def __init__(
        self, *, pool: Pool, scheduler: TurnScheduler, sessions: Sessions, profile_cache: ProfileCache
    ) -> None:
        self._pool = pool
        self._scheduler = scheduler
        self._sessions = sessions
        self._profile_cache = profile_cache
        self._holds: dict[str, Hold] = {}
        self._is_closed = False

    async def acquire(self, request: AcquireRequest, caller: Caller) -> HoldView:
        """Hold the worker of a session for the caller's connection. Raises what ``Pool.acquire`` raises."""
        default = self._profile_cache.parts.router.default_agent
        session, agent, role = self._sessions.resolve(request.session, request.agent, request.role, default=default)
        self._profile_cache.check(agent, role)
        entry = self._sessions.ensure(session, agent, role, source=None, run=None)
        timeout = self._pool.waiting_timeout if request.timeout is None else request.timeout
        hold = Hold(caller.principal, session, timeout)
        caller.start(lambda: self._serve(hold, request, entry))
        await hold.resolved.wait()
        if hold.lease is None:
            raise hold.error or UsageError("the hold ended before it was granted", session=hold.session)
        lease = hold.lease
        return HoldView(
            hold=hold.id, session=hold.session, worker=lease.worker_id, level=lease.level.label, waited=lease.waited
        )

    def find(self, hold_id: str, principal: str) -> Hold:
        """A caller's own hold. Raises UsageError, PoolClosed."""
        hold = self._holds.get(hold_id)
        if hold is None or hold.principal != principal or hold.lease is None or hold.released.is_set():
            if self._is_closed:
                raise PoolClosed("the supervisor is shutting down and has taken back unused holds")
            raise UsageError(f"there is no hold {hold_id!r}; it was given back, or its connection has ended")
        return hold

    def release(self, hold_id: str, principal: str) -> Hold:
        """Release a hold. Raises UsageError, PoolClosed."""
        hold = self.find(hold_id, principal)
        hold.released.set()
        return hold

    def close(self) -> None:
        """End the holds without a turn; those with one end with it."""
        self._is_closed = True
        for hold in self._holds.values():
            hold.release_unused()

    def stats(self) -> HoldStats:
        """All holds at this moment."""
        granted = sum(hold.lease is not None for hold in self._holds.values())
        oldest = [_hold_info(hold, trio.current_time()) for hold in islice(self._holds.values(), _MAX_LISTED)]
        return HoldStats(granted=granted, waiting=len(self._holds) - granted, oldest=oldest)

    async def _serve(self, hold: Hold, request: AcquireRequest, entry: SessionEntry) -> None:
        self._holds[hold.id] = hold
        try:
            await self._acquire_and_wait(hold, request, entry)
        except PoolError as exc:
            hold.error = exc
        finally:
            del self._holds[hold.id]
            hold.lease = None
            hold.resolved.set()

    async def _acquire_and_wait(self, hold: Hold, request: AcquireRequest, entry: SessionEntry) -> None:
        profile = await self._profile_cache.for_session(entry)
        async with (
            self._scheduler.acquire_session(hold.session, priority=request.priority, timeout=hold.time_left()),
            self._pool.lease(
                hold.session, profile, priority=request.priority, timeout=hold.time_left(), spawn=request.spawn
            ) as lease,
        ):
            hold.lease = lease
            self._sessions.record_transcript(hold.session)
            hold.resolved.set()
            await hold.released.wait()


def _hold_info(hold: Hold, now: float) -> HoldInfo:
    return HoldInfo(
        session=hold.session,
        principal=hold.principal,
        worker=None if hold.lease is None else hold.lease.worker_id,
        age=now - hold.since,
        expires_in=hold.deadline - now if hold.lease is None else None,
    )
