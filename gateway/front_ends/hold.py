"""The hold on a session's worker that the requests of its front ends share."""

from collections.abc import Awaitable, Callable

import trio

from pool import Lease, Pool

_LINGER = 0.05
"""Seconds that an unused hold is kept, for a front end that sends request after request."""


class _HoldUsage:
    """One hold: how many requests use it, since when none does, whether a task watches for that."""

    def __init__(self) -> None:
        self.users = 0
        self.free_since = 0.0
        self.is_watched = False


class SharedHold:
    """``acquire`` takes a hold from the pool; ``start_soon`` runs what outlives a request.

    There is more than one hold only while requests wait on a worker that serves the session no longer.
    """

    def __init__(self, pool: Pool, acquire: Callable[[], Awaitable[Lease]], start_soon: Callable[..., None]) -> None:
        self._pool = pool
        self._acquire = acquire
        self._start_soon = start_soon
        self._leases: dict[Lease, _HoldUsage] = {}
        self._latest: Lease | None = None

    async def acquire(self) -> Lease:
        """A hold, to be given back; waits for nothing where there is one in force. Raises what ``acquire`` raises."""
        lease = self._latest
        if lease is None or not lease.is_valid:
            lease = await self._acquire()
            self._latest = lease
        self._leases.setdefault(lease, _HoldUsage()).users += 1
        return lease

    def release(self, lease: Lease) -> None:
        """Give back what ``acquire`` returned; the hold ends after 50 ms without use."""
        held = self._leases[lease]
        held.users -= 1
        if held.users:
            return
        if not lease.is_valid or lease is not self._latest:
            self._release_lease(lease)
            return
        held.free_since = trio.current_time()
        if not held.is_watched:
            held.is_watched = True
            self._start_soon(self._release_when_idle, lease, held)

    @property
    def is_used(self) -> bool:
        """Whether a request waits on it."""
        return any(held.users for held in self._leases.values())

    def release_idle(self) -> None:
        """Release every hold that no request uses."""
        for lease in [lease for lease, held in self._leases.items() if not held.users]:
            self._release_lease(lease)

    async def _release_when_idle(self, lease: Lease, held: _HoldUsage) -> None:
        """One task while the hold is used now and then, not one for each time."""
        while held.users or trio.current_time() < held.free_since + _LINGER:
            await trio.sleep_until(max(held.free_since, trio.current_time()) + _LINGER)
            if lease not in self._leases:
                return
        self._release_lease(lease)

    def _release_lease(self, lease: Lease) -> None:
        if self._leases.pop(lease, None) is not None:
            if lease is self._latest:
                self._latest = None
            self._pool.release_now(lease)
