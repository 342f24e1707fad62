"""Deletes the sessions that this door created for single requests, once their run has ended.

A session whose agent waits for results of the client's tools is kept for ten minutes, one that ``previous_response_id``
may name for thirty days after its last use. Leftovers of an earlier supervisor are treated alike.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from doors.http.access import TokenIdentity
from doors.http.services import HttpCaller, HttpServices
from doors.http.tokens import Scope
from doors.openai.session_ref import OWN_SESSION, is_stored
from errors import PoolError, UsageError

_MOST_CALLING, _MOST_STORED = 1000, 2000
_INTERNAL_IDENTITY = TokenIdentity("openai", Scope.ADMIN, approvals=False)
_logger = logging.getLogger("pool.http")


class _DeletionTimers(NamedTuple):
    """Timers of kept sessions, the oldest first: each of ``seconds``, at most ``most``."""

    seconds: float
    most: int
    timers: dict[str, trio.CancelScope]


class EphemeralSessions:
    """Deletes the sessions that this door created; one for the server's life, a background task of it."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._caller = HttpCaller(_INTERNAL_IDENTITY, "openai")
        self._nursery: trio.Nursery | None = None
        self._awaiting_tools = _DeletionTimers(600.0, _MOST_CALLING, {})
        """Sessions whose client owes results of its tools."""
        self._stored = _DeletionTimers(30 * 86400.0, _MOST_STORED, {})
        """Sessions that ``previous_response_id`` may name."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Delete sessions when they are due, until cancelled; the next supervisor adopts the rest."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await self._adopt_leftovers()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _adopt_leftovers(self) -> None:
        try:
            sessions: Any = await self._services.call("sessions.list", {}, self._caller)
        except PoolError as exc:
            _logger.warning("could not delete leftover sessions: %s", exc)
            return
        for view in reversed(sessions):  # the oldest first, as in ``_DeletionTimers``
            if OWN_SESSION.fullmatch(view.key):
                self.delete_later(view.key, unused_for=time.time() - view.updated_at if is_stored(view.key) else 0.0)

    # --- when -------------------------------------------------------------------------------------------------------

    def delete_soon(self, session: str) -> None:
        """Delete it now, in the background."""
        self.cancel_deletion(session)
        self._start(self._delete_quietly, session)

    def delete_after(self, end: Callable[[], Awaitable[object]], session: str | None) -> None:
        """Run ``end`` in the background; delete the session when it has returned or raised PoolError."""
        self._start(self._delete_after_end, end, session)

    def delete_later(self, session: str, unused_for: float = 0.0) -> None:
        """Delete it after some time: the client may return with results of its tools, or continue the conversation."""
        self.cancel_deletion(session)
        kept = self._timers_for(session)
        if len(kept.timers) >= kept.most:
            self.delete_soon(next(iter(kept.timers)))
        scope = kept.timers[session] = trio.CancelScope()
        self._start(self._delete_when_due, session, scope, max(0.0, kept.seconds - unused_for))

    def cancel_deletion(self, session: str) -> None:
        """The client has returned: keep the session until another of these is called."""
        scope = self._timers_for(session).timers.pop(session, None)
        if scope is not None:
            scope.cancel()

    async def delete(self, session: str) -> None:
        """Delete it now. Raises PoolError; UsageError where there is no such session."""
        self.cancel_deletion(session)
        await self._services.call("sessions.delete", {"session": session}, self._caller)

    # --- and how ----------------------------------------------------------------------------------------------------

    def _timers_for(self, session: str) -> _DeletionTimers:
        return self._stored if is_stored(session) else self._awaiting_tools

    def _start(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(task, *args)

    async def _delete_after_end(self, end: Callable[[], Awaitable[object]], session: str | None) -> None:
        try:
            await end()
        except PoolError as exc:
            _logger.debug("waiting for a run failed: %s", exc)
        if session is not None:
            await self._delete_quietly(session)

    async def _delete_when_due(self, session: str, scope: trio.CancelScope, seconds: float) -> None:
        with scope:
            await trio.sleep(seconds)
            del self._timers_for(session).timers[session]
        if not scope.cancelled_caught:
            await self._delete_quietly(session)

    async def _delete_quietly(self, session: str) -> None:
        try:
            await self.delete(session)
        except UsageError:
            _logger.debug("there is no session %s to delete", session)  # its request was refused, or comes twice
        except PoolError as exc:
            _logger.warning("session %s was not deleted: %s", session, exc)
