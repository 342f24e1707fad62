"""What a turn needs from the gateway: a worker, durable steps, published output, hooks and the outcomes of its runs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import trio

from errors import AcquireTimeout, InternalError, PoolError, PoolSaturated
from gateway.events import EventBus, TextKind
from gateway.events.translate import TextPieces, TurnOutput
from gateway.events.worker_events import PublishedEvent
from gateway.hook_types import Drop, HookMessage
from gateway.hooks import HookRunner
from gateway.runs.registry import RunRegistry
from gateway.runs.run import DoneReason, Run, RunOutcome, RunRequest, outcome_of_error
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.session_entry import SessionEntry, SessionStatus
from gateway.sessions.sessions import Sessions
from gateway.sessions.system_events import SystemEvents
from gateway.settings import CurrentSettings
from gateway.turns.approvals import PERMISSION_EVENTS, PendingPermissions
from gateway.turns.file_copies import MEDIA_DIR, FileCopies
from gateway.turns.media import check_media, media_names
from gateway.turns.replies import (
    FinalReply,
    ReplyContent,
    ReplyPart,
    ReplyStyle,
    attach_media,
)
from gateway.turns.state import TurnState
from heartbeat.system_events import SystemEvent
from pool import Lease, Pool
from store.store import Store
from wire.events import EventType
from wire.messages import ContextSize, ErrorBody, PromptResult, TokenUsage
from wire.run_text import excerpt

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
"""After these it is unknown how much of the prompt the agent has taken in."""
_MAX_ANSWER_CHARS = 4 * 1024 * 1024
"""However it is escaped, the outcome of a run fits into a line of a client (64 MiB)."""
_REPLY_EVENTS = ("tool:", "compaction:")
"""Prefixes of the events that a reply may show something of."""
_decode = msgspec.json.Decoder(str).decode


class _OwnModel(TypedDict):
    """What a session, or a message, has chosen instead of its agent's."""

    model: str | None
    thinking: str | None


class TurnContext:
    """The gateway's services for its turns. One object serves all turns; each method is given the turn."""

    def __init__(
        self,
        settings: CurrentSettings,
        *,
        pool: Pool,
        store: Store,
        bus: EventBus,
        hooks: HookRunner,
        run_registry: RunRegistry,
        sessions: Sessions,
        profile_cache: ProfileCache,
        pending_permissions: PendingPermissions,
        system_events: SystemEvents,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._bus = bus
        self._hooks = hooks
        self._run_registry = run_registry
        self._sessions = sessions
        self._profile_cache = profile_cache
        self._pending_permissions = pending_permissions
        self._system_events = system_events
        self._file_copies = FileCopies(profile_cache.data_dir / MEDIA_DIR)
        self.wait_store_room = store.wait_room
        self.wait_visible, self.call_when_visible = bus.wait_visible, bus.call_when_visible
        self.release = pool.release_now
        """Give the worker of a turn back, once nothing of the turn runs there."""

    # --- before the prompt --------------------------------------------------------------------------------------------

    def on_begun(self, turn: TurnState) -> None:
        """The session is in its turn."""
        request = turn.leader.request
        entry = turn.entry = self._sessions.get(turn.session) or self._recreate_session(request)
        verbose, reasoning = (entry.verbose, entry.reasoning) if entry is not None else (False, False)
        turn.begin_reply(ReplyStyle(verbose=verbose, reasoning=reasoning, blocks=request.blocks))
        for run in turn.runs:
            if run.trace is not None:
                run.trace.begun(self._run_registry.clock())
        self._sessions.set_status(entry, SessionStatus.WORKING, "run started")

    def _recreate_session(self, request: RunRequest) -> SessionEntry | None:
        """The session was deleted, or evicted, while the message waited; None where there is no room for it."""
        try:
            return self._sessions.ensure(
                request.session, request.agent, request.role, source=request.source, run=request.key
            )
        except PoolSaturated:
            return None

    def acquire_nowait(self, turn: TurnState) -> Lease | None:
        """The session's own warm worker, to be given back; None where only ``acquire`` can say whether there is one."""
        request = turn.leader.request
        if request.nested or turn.deadline <= trio.current_time():  # a quota of its own; its time is over
            return None
        profile = self._profile_cache.peek(turn.session, request.agent, request.role, **_own_model(turn))
        try:
            return None if profile is None else self._pool.acquire_nowait(turn.session, profile)
        except (trio.WouldBlock, PoolError):
            return None

    async def acquire(self, turn: TurnState) -> Lease:
        """A worker for the turn, within its time; to be given back."""
        request = turn.leader.request
        profile = await self._profile_cache.get(request.agent, request.role, session=turn.session, **_own_model(turn))
        left = turn.deadline - trio.current_time()  # infinite without a limit: None would be the pool's own
        if left <= 0.0:
            raise AcquireTimeout(f"the run of session {turn.session} had no time left", session=turn.session)
        return await self._pool.acquire(
            turn.session,
            profile,
            priority=turn.priority,
            timeout=left,
            spawn=request.spawn,
            nested=request.nested,
            bounded=False,
        )

    def mark_started(self, runs: list[Run], turn: TurnState, worker: str) -> int:
        """Record that these runs may reach the worker once the returned seq is visible, and where the transcript is."""
        self._sessions.record_transcript(turn.session)
        for run in runs:
            if run.trace is not None:
                run.trace.leased(turn.leader.trace, turn.model, self._run_registry.clock())
        return self._run_registry.start(runs, worker=worker, turn=turn.id, leader=turn.leader)

    def mark_prompted(self, turn: TurnState) -> str | None:
        """The worker is prompted now; the ``traceparent`` of the turn, where traces are recorded."""
        trace = turn.leader.trace
        return None if trace is None else trace.prompted(self._run_registry.clock())

    def history_turns(self, turn: TurnState) -> int | None:
        """Number of user messages that the model is shown; None = all.

        For a message without a source the session's latest source counts.
        """
        request, of_channel = turn.leader.request, None
        source = request.source or (turn.entry.source if turn.entry is not None else None)
        if source is not None and source.chat_type == "dm":
            of_channel = self._settings.value.dm_history_limit.get(source.channel)
        return self._profile_cache.parts.profiles.history_turns_of(request.agent, of_channel)

    def claim_events(self, turn: TurnState) -> list[SystemEvent]:
        """The system events for the turn's prompt; no other turn gets them.

        None for a command of the agent, which must begin its prompt, and for results of tools, which must be alone.
        """
        if turn.event_ids:  # of a worker that has died under it
            self._system_events.release(turn.session, turn.event_ids)
        request = turn.leader.request  # one that must be alone leads a turn of its own
        if request.tool_results or not request.tells_events or turn.text.lstrip().startswith("/"):
            return []
        events = self._system_events.unclaimed(turn.session)
        if events:
            self._system_events.claim(turn.session, [event.id for event in events])
        return events

    # --- while the worker answers -------------------------------------------------------------------------------------

    async def publish(self, turn: TurnState, steps: list[TurnOutput]) -> None:
        """Publish what the worker said, in order; waits only for hooks.

        A caller that asked for parts gets each as a progress event ``reply`` of ``{kind, text, media?}`` as soon as it
        is complete. A part, and the reply at the end, pass the hooks ``message:sending`` before they are published and
        ``message:sent`` after.
        """
        for step in steps:
            match step:
                case TextPieces():
                    await self._publish_pieces(turn, step)
                case PublishedEvent():
                    if turn.leader.trace is not None:
                        turn.leader.trace.observe(step.type, step.data, self._run_registry.clock())
                    await self._publish_event(turn, step)
                    if step.type in PERMISSION_EVENTS:
                        self._pending_permissions.observe(turn.session, step)
                    elif step.type == EventType.TOKEN_USAGE:
                        self._count_usage(turn, step.data)

    def _count_usage(self, turn: TurnState, usage: TokenUsage) -> None:
        """Count what was not counted before; a turn may end without a result that has it all."""
        self._run_registry.figures.count_usage(turn.leader.request.agent, turn.model, turn.usage, usage)
        turn.usage = usage

    def set_awaiting_person(self, turn: TurnState, over: str | None) -> None:
        """The turn waits for a person from now on (``over`` None), or no longer; ``over``: why."""
        if over is None:
            self._sessions.set_status(turn.entry, SessionStatus.PAUSED, "awaiting a person's answer")
        else:
            self._sessions.set_status(turn.entry, SessionStatus.WORKING, over)

    async def _publish_pieces(self, turn: TurnState, said: TextPieces) -> None:
        is_text, shaper = said.type == "text_chunk", turn.shaper
        self._publish_text(turn, said.type, turn.no_reply_filter.push(said.pieces) if is_text else said.pieces)
        if shaper.wants_text if is_text else shaper.wants_reasoning:
            piece = "".join(map(_decode, said.pieces))
            await self._deliver(turn, shaper.add_text(piece) if is_text else shaper.add_reasoning(piece))

    async def _publish_event(self, turn: TurnState, event: PublishedEvent) -> None:
        parts: list[ReplyPart] = []
        if event.type.startswith(_REPLY_EVENTS):
            self._publish_text(turn, "text_chunk", turn.no_reply_filter.end())
            parts = turn.shaper.add_event(event.type, msgspec.to_builtins(event.data))
        if event.type == "tool:start":  # what was said is complete before it
            await self._deliver(turn, parts)
            parts = []
        if isinstance(event.data, ContextSize) and turn.entry is not None:
            turn.entry.context = event.data
        self._publish(turn, event.type, event.data)
        if parts:
            await self._deliver(turn, parts)

    def _publish_text(self, turn: TurnState, type_: TextKind, pieces: list[msgspec.Raw]) -> None:
        if pieces and not turn.leader.request.is_quiet:
            self._bus.publish_text(turn.session, type_, pieces, run_id=turn.leader.request.run_id)

    def _publish(self, turn: TurnState, type_: str, data: Any) -> None:
        self._bus.publish(turn.session, type_, data, run_id=turn.leader.request.run_id)

    async def _deliver(self, turn: TurnState, parts: Iterable[ReplyPart]) -> None:
        """Hooks may take their time here, which holds the reading of the worker up, but not the end of the turn."""
        for part in parts:
            await self.copy_files(turn, part.text)
            with turn.cancel_when_ending():
                reply = await self._apply_hooks(turn, ReplyContent(text=part.text))
                if reply.silent:
                    continue
                media = {"media": reply.media} if reply.media else {}
                self._publish(turn, EventType.REPLY, {"kind": part.kind, "text": reply.text, **media})
                await self._notify_sent(turn, reply)

    # --- at the end ---------------------------------------------------------------------------------------------------

    async def final_reply(self, turn: TurnState) -> FinalReply | None:
        """What of the turn's answer is shown, with the files it hands over; None without an answer. Waits for hooks."""
        self._publish_text(turn, "text_chunk", turn.no_reply_filter.end())
        if turn.result is None:
            return None
        answer = turn.shaper.finish(excerpt(turn.result.text, _MAX_ANSWER_CHARS))
        rest = await self._apply_hooks(turn, answer.remainder)
        if answer.full is answer.remainder or turn.runs == [turn.leader]:
            return FinalReply(rest, rest)
        return FinalReply(rest, await self._apply_hooks(turn, answer.full))

    def outcome(self, turn: TurnState, answer: FinalReply | None, run: Run) -> RunOutcome:
        """The outcome of one of the turn's runs. The leader was given the parts, so it gets what remains."""
        facts: dict[str, Any] = {"worker": turn.worker, "level": turn.level, "waited": turn.waited}
        now, result = self._run_registry.clock(), turn.result
        facts["strategy"] = "refed" if result is not None and result.strategy == "refed" else None
        reply = None if answer is None else answer.remainder if run is turn.leader else answer.full
        if run in turn.discarded and turn.end_error is not None:
            return outcome_of_error(run, turn.end_error, ended_at=now, **facts)
        if turn.error is not None or result is None or reply is None:
            why = turn.error or InternalError("the turn ended without a result")
            said = {} if result is None or reply is None else {"text": reply.text, "usage": result.usage}
            return outcome_of_error(run, why, ended_at=now, **facts, **said)
        error = _error_of(result, run) if result.stop_reason in _FAILED_REASONS else None
        return RunOutcome(
            run_id=run.request.run_id,
            session=run.request.session,
            status="ok" if error is None else "error",
            text=reply.text,
            stop_reason=result.stop_reason,
            reason=_REASONS[result.stop_reason],
            error=error,
            accepted_at=run.record.accepted_at,
            started_at=run.record.started_at,
            ended_at=now,
            usage=result.usage,
            step=result.step,
            media=list(reply.media),
            silent=reply.silent,
            calls=result.calls,
            **facts,
        )

    def on_ended(self, turn: TurnState) -> None:
        """The session's turn is over, however it ended."""
        if turn.event_ids:
            if turn.result is not None and turn.result.stop_reason not in _FAILED_REASONS:
                self._system_events.acknowledge(turn.session, turn.event_ids)
            self._system_events.release(turn.session, turn.event_ids)
        if turn.session in self._pending_permissions.sessions:
            self._pending_permissions.close_session(turn.session)
        if turn.result is not None and turn.result.usage != turn.usage:
            self._count_usage(turn, turn.result.usage)
        self._sessions.record_transcript(turn.session)
        reason = "run completed" if turn.error is None else f"run ended: {turn.error.code}"
        self._sessions.set_status(turn.entry, SessionStatus.READY, reason)

    async def after_delivery(self, turn: TurnState, answer: FinalReply) -> None:
        """Tell hooks of it once the turn's runs have their outcomes."""
        if "message:sent" in self._hooks.table and not (answer.remainder.silent or turn.leader.request.is_quiet):
            await turn.leader.wait()
            await self._notify_sent(turn, answer.remainder)

    # --- hooks and files ----------------------------------------------------------------------------------------------

    async def _apply_hooks(self, turn: TurnState, reply: ReplyContent) -> ReplyContent:
        """The reply as hooks leave it, with its files beside the text."""
        if not reply.silent and "message:sending" in self._hooks.table:
            heard = await self._hooks.filter("message:sending", _hook_message(turn, reply))
            text = "" if isinstance(heard, Drop) else heard.text
            reply = ReplyContent(text=text, silent=not text.strip())
        return await self._with_media(turn, reply) if "MEDIA:" in reply.text else reply

    async def _notify_sent(self, turn: TurnState, reply: ReplyContent) -> None:
        if "message:sent" in self._hooks.table:
            await self._hooks.notify("message:sent", _hook_message(turn, reply))

    async def copy_files(self, turn: TurnState, text: str) -> None:
        """Copy the files that a text names from the node of the turn's worker, which it must hold."""
        names = media_names(text) if turn.copies is not None else []
        if names and turn.lease is not None and turn.copies is not None:
            try:
                with turn.cancel_when_ending():
                    await self._file_copies.copy(names, turn.lease.fetch, turn.copies)
            except OSError as exc:
                self._warn_of_files(turn, exc)

    async def _with_media(self, turn: TurnState, reply: ReplyContent) -> ReplyContent:
        request = turn.leader.request
        if turn.copies is not None:
            return attach_media(reply, turn.copies.get)
        try:
            workspace = Path((await self._profile_cache.get(request.agent, request.role, session=turn.session)).cwd)
            return await trio.to_thread.run_sync(attach_media, reply, lambda name: check_media(name, workspace))
        except Exception as exc:  # noqa: BLE001 - files that cannot be looked at stay text; the answer is worth more
            self._warn_of_files(turn, exc)
            return reply

    def _warn_of_files(self, turn: TurnState, exc: Exception) -> None:
        message = f"the files of an answer could not be looked at: {exc}"
        self._publish(turn, EventType.ERROR, {"severity": "warn", "phase": "system", "message": message})


def _own_model(turn: TurnState) -> _OwnModel:
    request, entry = turn.leader.request, turn.entry
    if entry is None:
        return {"model": request.model, "thinking": None}
    return {"model": request.model or entry.model, "thinking": entry.thinking}


def _hook_message(turn: TurnState, reply: ReplyContent) -> HookMessage:
    request = turn.leader.request
    return HookMessage(session=turn.session, text=reply.text, source=request.source, run_id=request.run_id)


def _error_of(result: PromptResult, run: Run) -> ErrorBody:
    """The error of a turn that the worker itself ended badly, by one of ``_FAILED_REASONS``."""
    details = {"session": run.request.session}
    match result.stop_reason:
        case "error":
            return ErrorBody("worker_error", result.error or "the agent ended the turn with an error", details)
        case "timeout":
            return ErrorBody("request_timeout", "the turn took longer than the agent allows", details)
        case _:
            return ErrorBody("aborted", result.error or "the turn was aborted", details)
