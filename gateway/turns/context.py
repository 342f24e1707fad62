"""What a turn asks of the gateway: a worker, its words made known, its runs' steps made durable, their outcomes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from errors import AcquireTimeout, InternalError, PoolSaturated
from gateway.events.translate import TextPieces, TurnOutput
from gateway.events.worker_events import PublishedEvent
from gateway.runs.registry import RunRegistry
from gateway.runs.run import DoneReason, Run, RunOutcome, RunRequest, history_turns, outcome_of_error
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.sessions import SessionEntry, Sessions, SessionStatus
from gateway.sessions.system_events import SystemEvents
from gateway.settings import GatewaySettings
from gateway.turns.approvals import PendingPermissions
from gateway.turns.replies import FinalReply, ReplyContent, ReplyStyle
from gateway.turns.reply_stream import ReplyStream
from gateway.turns.turn import Turn, TurnResult
from heartbeat.system_events import SystemEvent
from pool import Lease, Pool
from profiles import CapabilityProfile
from store import Store
from wire.messages import ErrorBody, PromptResult

_REASONS = {
    "stop": DoneReason.COMPLETED,
    "aborted": DoneReason.INTERRUPTED,
    "error": DoneReason.ERROR,
    "timeout": DoneReason.TIMEOUT,
    "tool_calls": DoneReason.TOOL_CALLS,
    "length": DoneReason.LENGTH,
    "max_steps": DoneReason.LENGTH,
}
_FAILED_REASONS = frozenset({"error", "timeout", "aborted"})
"""What of a turn that ended so was taken in nobody knows."""


class TurnContext:
    """Implements ``gateway.turns.scheduler.ConductorDesk``."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        pool: Pool,
        store: Store,
        answers: ReplyStream,
        ledger: RunRegistry,
        sessions: Sessions,
        shelf: ProfileCache,
        permissions: PendingPermissions,
        system_events: SystemEvents,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._store = store
        self._reply_stream = answers
        self._run_registry = ledger
        self._sessions = sessions
        self._profile_cache = shelf
        self._pending_permissions = permissions
        self._system_events = system_events

    def reconfigure(self, settings: GatewaySettings) -> None:
        """New limits."""
        self._settings = settings

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
        return await self._profile_cache.get(
            request.agent,
            request.role,
            model=request.model or (entry.model if entry else None),
            thinking=entry.thinking if entry else None,
            session=request.session,
        )

    async def mark_started(self, runs: list[Run], turn: Turn, worker: str) -> None:
        """See ``TurnDesk.mark_started``; the session's transcript becomes durable with it."""
        self._sessions.record_transcript(turn.session)
        await self._run_registry.start(runs, worker=worker, turn=turn.id, leader=turn.leader)

    def history_turns(self, turn: Turn) -> int | None:
        """See ``TurnDesk.history_turns``; of a session whose message names no source, its latest source counts."""
        request, entry = turn.leader.request, self._sessions.get(turn.session)
        source = request.source or (entry.source if entry is not None else None)
        profiles = self._profile_cache.parts.profiles
        if not profiles.traits_of(request.agent).history_limit:
            return None
        return history_turns(profiles.history_turns_of(request.agent), self._settings.dm_history_limit, source)

    def claim_events(self, turn: Turn) -> list[SystemEvent]:
        """See ``TurnDesk.pending``. A command for the agent must begin its prompt, results of tools must be alone."""
        self._system_events.release(turn.session, turn.event_ids)  # of a worker that has died under it
        has_its_own = any(run.request.tool_results or not run.request.tells_events for run in turn.runs)
        if has_its_own or turn.text.lstrip().startswith("/"):
            return []
        events = self._system_events.unclaimed(turn.session)
        self._system_events.claim(turn.session, [event.id for event in events])
        return events

    async def publish(self, turn: Turn, steps: list[TurnOutput]) -> None:
        """See ``TurnDesk.publish``."""
        for step in steps:
            match step:
                case TextPieces():
                    await self._reply_stream.on_text(turn, step)
                case PublishedEvent():
                    await self._reply_stream.on_event(turn, step)
                    self._pending_permissions.observe(turn.session, step)

    async def wait_store_room(self) -> None:
        """See ``TurnDesk.room``."""
        await self._store.wait_room()

    def set_awaiting_person(self, turn: Turn, over: str | None) -> None:
        """See ``TurnDesk.awaits_person``."""
        if over is None:
            self._sessions.set_status(turn.session, SessionStatus.PAUSED, "awaiting a person's answer")
        else:
            self._sessions.set_status(turn.session, SessionStatus.WORKING, over)

    # --- its ends -----------------------------------------------------------------------------------------------------

    def on_begun(self, turn: Turn) -> None:
        """The session is in its turn."""
        request = turn.leader.request
        entry = self._sessions.get(turn.session) or self._recreate_session(request)
        verbose, reasoning = (entry.verbose, entry.reasoning) if entry is not None else (False, False)
        turn.begin_reply(ReplyStyle(verbose=verbose, reasoning=reasoning, blocks=request.blocks))
        self._sessions.set_status(turn.session, SessionStatus.WORKING, "run started")

    def _recreate_session(self, request: RunRequest) -> SessionEntry | None:
        """The session was deleted, or forgotten, while the message waited; None where there is no room for it."""
        try:
            return self._sessions.ensure(
                request.session, request.agent, request.role, source=request.source, run=request.run_id
            )
        except PoolSaturated:
            return None

    def on_ended(self, turn: Turn, report: TurnResult) -> None:
        """The session's turn is over, however it ended."""
        if report.result is not None and report.result.stop_reason not in _FAILED_REASONS:
            self._system_events.acknowledge(turn.session, turn.event_ids)
        self._system_events.release(turn.session, turn.event_ids)
        self._pending_permissions.close_session(turn.session)
        self._sessions.record_transcript(turn.session)
        reason = "run completed" if report.error is None else f"run ended: {report.error.code}"
        self._sessions.set_status(turn.session, SessionStatus.READY, reason)

    async def final_reply(self, turn: Turn, report: TurnResult) -> FinalReply | None:
        """See ``ConductorDesk.answer``."""
        return await self._reply_stream.finish(turn, report.result)

    async def after_delivery(self, turn: Turn, answer: FinalReply) -> None:
        """See ``ConductorDesk.sent``."""
        await self._reply_stream.after_delivery(turn, answer)

    def outcome(self, report: TurnResult, reply: ReplyContent | None, run: Run) -> RunOutcome:
        """See ``ConductorDesk.outcome``."""
        facts: dict[str, Any] = {"worker": report.worker, "level": report.level, "waited": report.waited}
        now, result = self._run_registry.now(), report.result
        if run in report.discarded and report.end_error is not None:
            return outcome_of_error(run, report.end_error, ended_at=now, **facts)
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
            step=result.step,
            media=list(reply.media),
            silent=reply.silent,
            calls=result.calls,
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
