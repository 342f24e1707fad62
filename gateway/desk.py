"""What a turn asks of the gateway: a worker, its words made known, its runs' steps made durable, their outcomes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from errors import AcquireTimeout, InternalError, PoolSaturated
from gateway.events import EventBus, TextKind
from gateway.events.translate import Single, Step, TextPieces
from gateway.ledger import Ledger
from gateway.media import check_media
from gateway.permissions import Permissions
from gateway.profile_shelf import ProfileShelf
from gateway.replies import Reply, ReplyShaper, ReplyStyle, finished
from gateway.run import DoneReason, Run, RunOutcome, RunRequest, outcome_of_error
from gateway.session_book import SessionEntry, SessionStatus
from gateway.sessions import Sessions
from gateway.turn import Turn, TurnReport
from pool import Lease, Pool
from profiles import CapabilityProfile
from store import Store
from wire.envelope import Channel
from wire.messages import ErrorBody, PromptResult

__all__ = ["Desk"]

_REASONS = {
    "stop": DoneReason.COMPLETED,
    "aborted": DoneReason.INTERRUPTED,
    "error": DoneReason.ERROR,
    "timeout": DoneReason.TIMEOUT,
    "tool_calls": DoneReason.TOOL_CALLS,
    "length": DoneReason.LENGTH,
    "max_steps": DoneReason.LENGTH,
}
_SHAPING = ("tool:", "compaction:")
"""Events that a reply may have to show something of."""


class Desk:
    """Implements ``gateway.conductor.ConductorDesk``."""

    def __init__(
        self,
        *,
        pool: Pool,
        store: Store,
        bus: EventBus,
        ledger: Ledger,
        sessions: Sessions,
        shelf: ProfileShelf,
        permissions: Permissions,
    ) -> None:
        self._pool = pool
        self._store = store
        self._bus = bus
        self._ledger = ledger
        self._sessions = sessions
        self._shelf = shelf
        self._permissions = permissions

    # --- during a turn ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lease(self, turn: Turn) -> AsyncGenerator[Lease, None]:
        """A worker for the turn, within its time; the one that its caller holds, where there is one."""
        if turn.held is not None:
            yield turn.held
            return
        request = turn.leader.request
        profile = await self.profile_of(request)
        left = turn.deadline - trio.current_time()  # infinite without a limit: None would be the pool's own
        if left <= 0.0:
            raise AcquireTimeout(f"the run of session {turn.session} had no time left", session=turn.session)
        async with self._pool.lease(
            turn.session,
            profile,
            priority=turn.priority,
            timeout=left,
            spawn=request.spawn,
            nested=request.nested,
            bounded=False,
        ) as lease:
            yield lease

    async def profile_of(self, request: RunRequest) -> CapabilityProfile:
        """What the run's worker must be able to do, with the session's own model and thinking level."""
        entry = self._sessions.get(request.session)
        return await self._shelf.get(
            request.agent,
            request.role,
            model=entry.model if entry else None,
            thinking=entry.thinking if entry else None,
        )

    async def mark_started(self, runs: list[Run], turn: Turn, worker: str) -> None:
        """See ``TurnDesk.mark_started``; the session's transcript becomes durable with it."""
        self._sessions.note_transcript(turn.session)
        await self._ledger.start(runs, worker=worker, turn=turn.id, leader=turn.leader)

    def publish(self, turn: Turn, steps: list[Step]) -> None:
        """See ``TurnDesk.publish``."""
        for step in steps:
            match step:
                case TextPieces(type="text_chunk"):
                    self._publish_text(turn, "text_chunk", turn.leading.take(step.pieces))
                case TextPieces():
                    self._publish_text(turn, step.type, step.pieces)
                    if turn.style.reasoning:
                        turn.shaper.feed(step.type, {"delta": "".join(map(msgspec.json.decode, step.pieces))})
                case Single():
                    self._publish_single(turn, step)

    def _publish_text(self, turn: Turn, type_: TextKind, pieces: list[msgspec.Raw]) -> None:
        self._bus.publish_text(turn.session, type_, pieces, run_id=turn.leader.request.run_id)

    def _publish_single(self, turn: Turn, event: Single) -> None:
        if event.type.startswith(_SHAPING):
            self._publish_text(turn, "text_chunk", turn.leading.end())
            turn.shaper.feed(event.type, msgspec.to_builtins(event.data))
        self._bus.publish(turn.session, event.channel, event.type, event.data, run_id=turn.leader.request.run_id)
        self._permissions.note(turn.session, event)

    async def room(self) -> None:
        """See ``TurnDesk.room``."""
        await self._store.room()

    def awaits_person(self, turn: Turn, *, now: bool) -> None:
        """See ``TurnDesk.awaits_person``."""
        if now:
            self._sessions.set_status(turn.session, SessionStatus.PAUSED, "awaiting a person's answer")
        else:
            self._sessions.set_status(turn.session, SessionStatus.WORKING, "answered")

    # --- its ends -----------------------------------------------------------------------------------------------------

    def began(self, turn: Turn) -> None:
        """The session is in its turn."""
        entry = self._sessions.get(turn.session) or self._anew(turn.leader.request)
        if entry is not None:
            turn.style = ReplyStyle(verbose=entry.verbose, reasoning=entry.reasoning)
            turn.shaper = ReplyShaper(turn.style)
        self._sessions.set_status(turn.session, SessionStatus.WORKING, "run started")

    def _anew(self, request: RunRequest) -> SessionEntry | None:
        """The session was deleted, or forgotten, while the message waited; None where there is no room for it."""
        try:
            return self._sessions.use(
                request.session, request.agent, request.role, source=request.source, run=request.run_id
            )
        except PoolSaturated:
            return None

    def ended(self, turn: Turn, report: TurnReport) -> None:
        """The session's turn is over, however it ended."""
        self._permissions.forget(turn.session)
        self._sessions.note_transcript(turn.session)
        reason = "run completed" if report.error is None else f"run ended: {report.error.code}"
        self._sessions.set_status(turn.session, SessionStatus.READY, reason)

    async def shape(self, turn: Turn, report: TurnReport) -> Reply | None:
        """What of the turn's answer is shown, and which files it hands over; None where it has no answer."""
        self._publish_text(turn, "text_chunk", turn.leading.end())
        if report.result is None:
            return None
        _outputs, reply = turn.shaper.finish(report.result.text)
        return await self._with_media(turn, reply) if "MEDIA:" in reply.text else reply

    async def _with_media(self, turn: Turn, reply: Reply) -> Reply:
        try:
            workspace = Path((await self.profile_of(turn.leader.request)).cwd)
            return await trio.to_thread.run_sync(finished, reply, lambda name: check_media(name, workspace))
        except Exception as exc:  # noqa: BLE001 - files that cannot be looked at stay text; the answer is worth more
            message = f"the files of an answer could not be looked at: {exc}"
            data = {"severity": "warn", "phase": "system", "message": message}
            self._bus.publish(turn.session, Channel.MONITOR, "error", data, run_id=turn.leader.request.run_id)
            return reply

    def outcome(self, report: TurnReport, reply: Reply | None, run: Run) -> RunOutcome:
        """What one of the turn's runs is told."""
        facts: dict[str, Any] = {"worker": report.worker, "level": report.level, "waited": report.waited}
        now, result = self._ledger.now(), report.result
        if run in report.cut_off and report.why is not None:
            return outcome_of_error(run, report.why, ended_at=now, **facts)
        if report.error is not None or result is None or reply is None:
            why = report.error or InternalError("the turn ended without a result")
            said = {} if result is None or reply is None else {"text": reply.text, "usage": result.usage}
            return outcome_of_error(run, why, ended_at=now, **facts, **said)
        error = _error_of(result, run)
        return RunOutcome(
            run_id=run.request.run_id,
            session=run.request.session,
            status="ok" if error is None else "error",
            text=reply.text,
            stop_reason=result.stop_reason,
            reason=_REASONS[result.stop_reason],
            error=error,
            accepted_at=run.accepted_at,
            started_at=run.started_at,
            ended_at=now,
            usage=result.usage,
            media=list(reply.media),
            silent=reply.silent,
            **facts,
        )


def _error_of(result: PromptResult, run: Run) -> ErrorBody | None:
    """A turn that the worker itself ended badly."""
    session = run.request.session
    match result.stop_reason:
        case "error":
            return ErrorBody(
                "worker_error", result.error or "the agent ended the turn with an error", {"session": session}
            )
        case "timeout":
            return ErrorBody("request_timeout", "the turn took longer than the agent allows", {"session": session})
        case "aborted":
            return ErrorBody("aborted", "the turn was aborted", {"session": session})
        case _:
            return None
