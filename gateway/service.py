"""The gateway: what front ends can do with sessions, whatever door they come through."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from errors import PoolClosed, UsageError
from gateway.places import Lanes
from gateway.runs import Run, RunRequest
from gateway.settings import GatewaySettings
from gateway.workspaces import workspace_for
from pool import Pool
from profiles import CapabilityProfile, ProfilesSettings, build_profile

__all__ = ["Gateway", "open_gateway"]

_MAX_SESSION_KEY = 512
_MOST_PROFILES_KEPT = 100_000
"""Sessions whose profile is remembered for ``explain``; older ones are explained as the default agent's."""


class Gateway:
    """Accepts runs and keeps them going; made by ``open_gateway``."""

    def __init__(
        self,
        pool: Pool,
        settings: GatewaySettings,
        profiles: ProfilesSettings,
        *,
        data_dir: Path,
        nursery: trio.Nursery,
    ) -> None:
        self.pool = pool
        self.shutdown_requested = trio.Event()
        self._settings = settings
        self._profiles = profiles
        self._data_dir = data_dir
        self._nursery = nursery
        self._lanes = Lanes(settings)
        self._running: dict[str, list[Run]] = {}
        self._session_profiles: dict[str, CapabilityProfile] = {}
        self._profile_cache: dict[tuple[str, str], CapabilityProfile] = {}

    def profile(self, agent: str, role: str) -> CapabilityProfile:
        """The profile of an agent in a role. Raises UsageError for unknown ones."""
        key = (agent, role)
        profile = self._profile_cache.get(key)
        if profile is None:
            cwd = workspace_for(self._profiles, agent, role, self._data_dir)
            profile = self._profile_cache[key] = build_profile(self._profiles, agent, role, cwd)
        return profile

    def queued(self, session: str) -> int:
        """Runs of the session that wait behind its first one."""
        return max(0, self._lanes.depth(session) - 1)

    def session_profile(self, session: str) -> CapabilityProfile | None:
        """The profile the session was last run with."""
        return self._session_profiles.get(session)

    def start_run(
        self,
        session: str,
        text: str,
        *,
        agent: str = "main",
        role: str = "default",
        priority: int = 5,
        timeout: float | None = None,
        retry_safe: bool = False,
        name: str | None = None,
    ) -> Run:
        """Accept a run; it goes on even when nobody follows it. Raises UsageError, PoolSaturated, PoolClosed.

        ``name`` is the caller's own for this run; see ``abort``.
        """
        check_session_key(session)
        if not text.strip():
            raise UsageError("the prompt is empty; say something")
        if self.shutdown_requested.is_set():
            raise PoolClosed("the supervisor is shutting down and takes no new runs")
        profile = self.profile(agent, role)
        if timeout is None:
            timeout = self._settings.run_timeout or None
        run = Run(
            RunRequest(
                session=session,
                profile=profile,
                text=text,
                priority=priority,
                timeout=timeout,
                retry_safe=retry_safe,
                name=name,
            ),
            self._lanes.join(session),
        )
        self._remember_profile(session, profile)
        self._running.setdefault(session, []).append(run)
        self._nursery.start_soon(self._execute, run)
        return run

    async def abort(self, session: str, name: str | None = None) -> bool:
        """End the run of that name; without one the session's running run, or the first that waits.

        False when there is no such run.
        """
        for run in self._running.get(session, ()):
            if name is None or run.request.name == name:
                return await run.abort()
        return False

    def _remember_profile(self, session: str, profile: CapabilityProfile) -> None:
        """The session used last stands last; the one used longest ago is forgotten first."""
        self._session_profiles.pop(session, None)
        self._session_profiles[session] = profile
        if len(self._session_profiles) > _MOST_PROFILES_KEPT:
            del self._session_profiles[next(iter(self._session_profiles))]

    async def _execute(self, run: Run) -> None:
        session = run.request.session
        try:
            await run.execute(self.pool)
        finally:
            runs = self._running[session]
            runs.remove(run)
            if not runs:
                del self._running[session]


def check_session_key(session: str) -> None:
    """Raise UsageError for a key that no listing could show."""
    if not 1 <= len(session) <= _MAX_SESSION_KEY:
        raise UsageError(f"a session key has 1 to {_MAX_SESSION_KEY} characters, this one has {len(session)}")
    if not session.isprintable():
        raise UsageError(f"the session key {session!r} holds characters that cannot be printed; leave them out")


@asynccontextmanager
async def open_gateway(
    pool: Pool, settings: GatewaySettings, profiles: ProfilesSettings, *, data_dir: Path
) -> AsyncIterator[Gateway]:
    """A gateway over an open pool. Leaving the block ends every run."""
    async with trio.open_nursery() as nursery:
        yield Gateway(pool, settings, profiles, data_dir=data_dir, nursery=nursery)
        nursery.cancel_scope.cancel()
