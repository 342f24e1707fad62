"""Deletes the sessions of delegated tasks, as long after a task's end as its outcome is kept."""

import logging
from collections.abc import Callable

import trio

from errors import PoolError
from gateway.conductor import Conductor
from gateway.session_desk import SessionDesk
from gateway.sessions import Sessions
from pool import Pool

__all__ = ["TASKS", "TaskSessions"]

TASKS = "subagent:"
"""Prefix of their keys, before the id of the task's run."""
_logger = logging.getLogger("pool.gateway")


class TaskSessions:
    """A session that had another run since is not deleted."""

    def __init__(
        self,
        *,
        pool: Pool,
        conductor: Conductor,
        sessions: Sessions,
        desk: SessionDesk,
        start_soon: Callable[..., None],
    ) -> None:
        self._pool = pool
        self._conductor = conductor
        self._sessions = sessions
        self._desk = desk
        self._start_soon = start_soon

    def forget_later(self, key: str, seconds: float) -> None:
        """Delete the session after this time, or later, when nothing runs in it, not even in the background."""
        self._start_soon(self._forget, key, seconds)

    def take_over(self, seconds: float) -> None:
        """The same for all sessions that an earlier supervisor has left."""
        for entry in list(self._sessions):
            if entry.key.startswith(TASKS):
                self.forget_later(entry.key, seconds)

    async def _forget(self, key: str, seconds: float) -> None:
        while True:
            await trio.sleep(seconds)
            entry = self._sessions.get(key)
            if entry is None or entry.last_run != key.removeprefix(TASKS):
                return
            if not self._conductor.is_busy(key) and self._pool.is_quiescent(key):
                break
        try:
            await self._desk.delete(key)
        except PoolError as exc:
            _logger.warning("could not delete session %s of a delegated task: %s", key, exc)
