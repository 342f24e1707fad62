"""Heartbeats' and scheduled tasks' runs: like anybody's, but that nobody has written them."""

import trio

from errors import PoolError
from gateway.run import Run, RunOutcome
from gateway.service import Gateway
from gateway.session_book import SessionEntry
from heartbeat.run_ports import BeatAnswer, BeatRequest

__all__ = ["PRINCIPAL", "GatewayRuns"]

PRINCIPAL = "heartbeat"
"""Whose runs they are. Doors name their callers otherwise."""


class GatewayRuns:
    """Implements ``heartbeat.run_ports.RunPort``."""

    def __init__(self, gateway: Gateway) -> None:
        self._intake = gateway.intake
        self._conductor = gateway.conductor
        self._sessions = gateway.sessions
        self._desk = gateway.session_desk
        self._shelf = gateway.shelf
        self._pool = gateway.pool

    async def run(self, request: BeatRequest) -> BeatAnswer:
        """See ``RunPort.run``. Raises PoolError where the run is not accepted.

        While the supervisor is shutting down nothing begins, and nothing fails for that: it waits for the end.
        """
        if self._intake.is_closed:
            await trio.sleep_forever()
        if request.new_conversation:
            await self._begin_conversation(request)
        run = await self._intake.accept_beat(request, PRINCIPAL)
        try:
            return _answer(await run.wait())
        except trio.Cancelled:
            self._leave(run)
            raise

    async def _begin_conversation(self, request: BeatRequest) -> None:
        """Unless the run itself was begun there in an earlier life. Raises AcquireTimeout where a turn does not end."""
        entry = self._entry(request.agent, request.session)  # another agent's is refused
        if entry is not None and entry.last_run != request.run_id:
            await self._desk.renew(request.session, earlier=request.earlier, within=request.timeout)

    def _leave(self, run: Run) -> None:
        """Nobody waits for it any more. At the supervisor's end it is left as it is: the next life asks for it."""
        if not self._intake.is_closed:
            self._conductor.abort(run)

    def is_busy(self, session: str) -> bool:
        """See ``RunPort.is_busy``."""
        return self._conductor.is_busy(session)

    def has_room(self, agent: str, session: str) -> bool:
        """See ``RunPort.has_room``. Of a profile that was never built, only its acquire can say."""
        entry = self._entry(agent, session)
        own = {} if entry is None else {"model": entry.model, "thinking": entry.thinking}
        profile = self._shelf.at_hand(session, agent, _role(entry), **own)
        return profile is None or self._pool.has_room(session, profile)

    def workspace_of(self, agent: str, session: str) -> str | None:
        """See ``RunPort.workspace_of``."""
        try:
            return self._shelf.workspace_of(agent, _role(self._entry(agent, session)), session)
        except PoolError:
            return None  # what is wrong with it is told to whoever runs the agent

    def touch(self, session: str) -> None:
        """See ``RunPort.touch``."""
        self._sessions.touch(session)

    def _entry(self, agent: str, session: str) -> SessionEntry | None:
        entry = self._sessions.get(session)
        return entry if entry is not None and entry.agent == agent else None


def _role(entry: SessionEntry | None) -> str:
    return "default" if entry is None else entry.role


def _answer(outcome: RunOutcome) -> BeatAnswer:
    error = outcome.error
    return BeatAnswer(
        ok=outcome.status == "ok",
        text=outcome.text,
        media=tuple(media.path for media in outcome.media),
        code="" if error is None else error.code,
        message="" if error is None else error.message,
        started=outcome.started_at is not None,
    )
