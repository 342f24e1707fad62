"""The hold on a session's worker that its attached front ends share: taken when one asks, kept while any waits."""

from collections.abc import Awaitable, Callable

import trio

from pool import Lease, Pool

__all__ = ["Grip"]

_LINGER = 0.05
"""Seconds that it is kept when nobody waits: who asks question after question needs it again at once."""


class _Held:
    """One hold: how many requests wait on it, since when none does, whether somebody watches that."""

    def __init__(self) -> None:
        self.users = 0
        self.free_since = 0.0
        self.is_watched = False


class Grip:
    """``acquire`` takes a hold from the pool; ``start_soon`` runs what outlives a request.

    There is more than one hold only while requests wait on a worker that serves the session no longer.
    """

    def __init__(self, pool: Pool, acquire: Callable[[], Awaitable[Lease]], start_soon: Callable[..., None]) -> None:
        self._pool = pool
        self._acquire = acquire
        self._start_soon = start_soon
        self._held: dict[Lease, _Held] = {}
        self._latest: Lease | None = None

    async def take(self) -> Lease:
        """A hold, to be given back; waits for nothing where there is one in force. Raises what ``acquire`` raises."""
        lease = self._latest
        if lease is None or not lease.is_in_force:
            lease = await self._acquire()
            self._latest = lease
        self._held.setdefault(lease, _Held()).users += 1
        return lease

    def give_back(self, lease: Lease) -> None:
        """Whoever took it needs it no more."""
        held = self._held[lease]
        held.users -= 1
        if held.users:
            return
        if not lease.is_in_force or lease is not self._latest:
            self._release(lease)
            return
        held.free_since = trio.current_time()
        if not held.is_watched:
            held.is_watched = True
            self._start_soon(self._watch, lease, held)

    @property
    def is_used(self) -> bool:
        """Whether a request waits on it."""
        return any(held.users for held in self._held.values())

    def let_go(self) -> None:
        """Keep nothing that nobody waits on."""
        for lease in [lease for lease, held in self._held.items() if not held.users]:
            self._release(lease)

    async def _watch(self, lease: Lease, held: _Held) -> None:
        """One task while the hold is used now and then, not one for each time."""
        while held.users or trio.current_time() < held.free_since + _LINGER:
            await trio.sleep_until(max(held.free_since, trio.current_time()) + _LINGER)
            if lease not in self._held:
                return
        self._release(lease)

    def _release(self, lease: Lease) -> None:
        if self._held.pop(lease, None) is not None:
            if lease is self._latest:
                self._latest = None
            self._pool.release_now(lease)
