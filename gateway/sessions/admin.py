"""Session administration: list, set, reset, delete, compact."""

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import msgspec
import trio

from errors import PoolError, UsageError
from gateway.events import EventBus
from gateway.hook_types import CommandReceived, HookName, SessionLifecycle
from gateway.hooks import HookRunner
from gateway.requests import PatchRequest, SessionListRequest
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.history import read_history
from gateway.sessions.session_entry import SessionEntry
from gateway.sessions.sessions import Sessions
from gateway.sessions.system_events import SystemEvents
from gateway.turns.approvals import PendingCall, PendingPermissions
from gateway.turns.scheduler import TurnScheduler
from gateway.turns.turn import Turn
from heartbeat.system_events import RESULT_KINDS, SystemEventKind
from pool import Pool
from pool.agent_report import AgentReport
from pool.stimuli import ForgetSession
from router.keys import normalize_session_key
from wire.entries import outputs_directory
from wire.events import EventType
from wire.messages import ContextSize

_SWITCHES = ("verbose", "reasoning")
_OPTIONS = ("label", "model", "thinking", "queue_mode", *_SWITCHES)
_COMMAND_HOOKS: dict[str, HookName] = {"new": "command:new", "reset": "command:reset", "stop": "command:stop"}
_ADMIN_PRIORITY = 1000
"""Above every priority that a front end can ask for: what an operator does to a session comes next."""


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """One session as front ends see it. Times are Unix times in seconds."""

    key: str
    agent: str
    role: str
    state: str
    """READY, WORKING or PAUSED."""
    worker: str | None
    """The one that has its conversation open, between turns too."""
    waits_for: str | None
    place: int | None = None
    """Why its next turn has no worker yet, None where it does not wait; its place in the queue, of one session only."""
    turn: str | None
    turn_age: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds since its worker was prompted; unset where no turn runs on one."""
    waiting: int
    transcript: str | None
    cwd: str | None
    """Where it works; None where its agent or role is not in the settings any more."""
    created_at: float
    updated_at: float
    model: str | None
    thinking: str | None
    queue_mode: str | None
    label: str | None
    last_run: str | None
    context: ContextSize | None
    """None: its agent has not said it since this supervisor has started."""
    channel: str | None
    """Where its latest message came from."""
    pending_permissions: list[PendingCall]
    report: AgentReport | msgspec.UnsetType = msgspec.UNSET
    """What its worker's program says of itself and of the conversation; unset where its dialect does not know that."""


class SessionAdmin:
    """Views and changes of sessions, for methods and slash commands."""

    def __init__(
        self,
        *,
        pool: Pool,
        bus: EventBus,
        sessions: Sessions,
        scheduler: TurnScheduler,
        profile_cache: ProfileCache,
        permissions: PendingPermissions,
        system_events: SystemEvents,
        hooks: HookRunner,
        data_dir: Path,
        start_soon: Callable[..., None],
    ) -> None:
        self._pool = pool
        self._bus = bus
        self._sessions = sessions
        self._scheduler = scheduler
        self._profile_cache = profile_cache
        self._pending_permissions = permissions
        self._system_events = system_events
        self._hooks = hooks
        self._data_dir = data_dir
        self._start_soon = start_soon

    # --- looking ------------------------------------------------------------------------------------------------------

    def view(self, key: str) -> SessionView:
        """One session. Raises UsageError for an unknown one."""
        return self._view(self._require(key), counted=True)

    def views(self, request: SessionListRequest) -> list[SessionView]:
        """Every session, or those that work in ``cwd``, the one used last first."""
        places = None if request.cwd is None else {request.cwd, os.path.realpath(request.cwd)}
        found = [each for each in self._sessions if places is None or self._profile_cache.directory_of(each) in places]
        return sorted(map(self._view, found), key=lambda view: view.updated_at, reverse=True)

    async def history(self, key: str, limit: int) -> list[dict[str, Any]]:
        """The latest messages, oldest first. Raises UsageError: unknown, or its transcript cannot be read."""
        transcript = self._require(key).transcript
        return [] if transcript is None else await read_history(transcript, limit)

    def describe(self, session: str) -> str:
        """The session in a few lines."""
        view = self._view(self._require(session))
        lines = [f"Session {view.key}: {self._require(session).status.word}, agent {view.agent}, role {view.role}."]
        if view.turn is not None:
            lines.append(f"A turn runs on worker {view.worker or '(none yet)'}.")
        if view.waiting:
            lines.append(f"{view.waiting} messages wait.")
        for label, value in (("Model", view.model), ("Thinking", view.thinking), ("Queue", view.queue_mode)):
            if value is not None:
                lines.append(f"{label}: {value}.")
        figures = self._pool.statistics().pool
        lines.append(f"Pool: {figures.leased} of {figures.max} workers are busy, {figures.waiting} requests wait.")
        return "\n".join(lines)

    def _view(self, entry: SessionEntry, *, counted: bool = False) -> SessionView:
        turn = self._scheduler.turn_of(entry.key)
        worker = turn.worker if turn else None
        standing = self._pool.placement(entry.key, counted=counted)
        return SessionView(
            key=entry.key,
            agent=entry.agent,
            role=entry.role,
            state=entry.status,
            worker=worker or standing.worker,
            waits_for=None if worker else standing.waits_for or self._scheduler.why_waiting(entry.key),
            place=standing.place,
            turn=turn.id if turn else None,
            turn_age=_age_of(turn),
            waiting=self._scheduler.depth(entry.key),
            transcript=entry.transcript,
            cwd=self._profile_cache.directory_of(entry),
            created_at=entry.created_at,
            updated_at=entry.updated_at,
            model=entry.model,
            thinking=entry.thinking,
            queue_mode=entry.queue_mode,
            label=entry.label,
            last_run=entry.last_run,
            context=entry.known_context(report := self._pool.report_of(entry.key)),
            channel=entry.source.channel if entry.source else None,
            pending_permissions=self._pending_permissions.pending(entry.key),
            report=report or msgspec.UNSET,
        )

    def _require(self, key: str) -> SessionEntry:
        entry = self._sessions.get(normalize_session_key(key))
        if entry is None:
            raise UsageError(f"there is no session {key!r}", session=key)
        return entry

    # --- settings of its own ------------------------------------------------------------------------------------------

    def patch(self, changes: PatchRequest) -> SessionView:
        """Change a session's own settings.

        Raises UsageError: it is unknown, another session has the label, or its agent has no such level of thinking.
        """
        entry = self._require(changes.session)
        given = {name: value for name in _OPTIONS if (value := getattr(changes, name)) is not msgspec.UNSET}
        if given.get("label") is not None:
            self._check_label(entry.key, given["label"])
        if given.get("thinking") is not None:
            self._profile_cache.parts.profiles.traits_of(entry.agent).check_thinking(given["thinking"])
        for name, value in given.items():
            setattr(entry, name, bool(value) if name in _SWITCHES else value)
        if given:
            self._sessions.save(entry)
            self._bus.publish(entry.key, EventType.SESSION_PATCHED, {"changed": sorted(given)})
        return self._view(entry)

    def _check_label(self, session: str, label: str) -> None:
        if not label.isprintable():
            raise UsageError("a label can hold printable characters only", session=session)
        for other in self._sessions:
            if other.label == label and other.key != session:
                raise UsageError(f"the label {label!r} is session {other.key}'s already", session=session)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def stop(self, session: str) -> int:
        """Abort the running turn, refuse what waits; how much that was."""
        ended = self._stop(session)
        await self._notify_command("stop", self._require(session))
        return ended

    def _stop(self, session: str) -> int:
        waiting = self._scheduler.lanes.depth(session)
        self._scheduler.clear(session)
        return waiting + int(self._scheduler.abort_session(session))

    def background_commands(self, session: str) -> list[str]:
        """The session's background commands: their ids, or how many there are."""
        return self._system_events.background_commands(session)

    async def reset(
        self, session: str, command: Literal["new", "reset"] = "reset", *, force: bool = False
    ) -> list[str]:
        """Begin a new conversation; a running turn is aborted, what waits is refused, the transcript stays.

        Its background commands end, and are returned. Raises UsageError for these without ``force``.
        """
        entry = self._require(session)
        running = self.background_commands(session)
        if running and not force:
            raise UsageError(
                f"{', '.join(running)} of session {session!r} still runs in the background and would end; "
                "reset it with force",
                session=session,
                running=running,
            )
        self._stop(session)
        async with self._scheduler.acquire_session(session, priority=_ADMIN_PRIORITY):
            old = self._drop_conversation(session)
        await self._notify_end(entry, "reset", old)
        await self._notify_command(command, entry)
        await self._hooks.notify("session:start", _lifecycle(entry, "reset"))
        return running

    async def start_new_conversation(self, session: str, *, earlier: Collection[str], within: float) -> None:
        """Begin a new conversation once no turn runs there, unless a command of the old one runs in the background.

        The old transcript is removed where the session's latest run is one of ``earlier``, and stays otherwise. Raises
        AcquireTimeout where a turn lasts for more than ``within`` seconds.
        """
        async with self._scheduler.acquire_session(session, priority=_ADMIN_PRIORITY, timeout=within):
            entry = self._sessions.get(session)
            if entry is None or self.background_commands(session):
                return
            old = self._drop_conversation(session)
        await self._notify_end(entry, "reset", old)
        if old is not None and entry.last_run in earlier:
            await trio.to_thread.run_sync(_remove_transcript, old, self._data_dir / "sessions")

    async def delete(self, key: str) -> str | None:
        """Forget a session with its conversation; returns the file that was removed.

        A transcript that does not lie where the supervisor keeps them is the agent's own affair and stays.
        """
        entry = self._require(key)
        self._stop(entry.key)
        async with self._scheduler.acquire_session(entry.key, priority=_ADMIN_PRIORITY):
            transcript = self._forget(entry.key)
            self._pool.declared_servers.forget(entry.key)
        self._bus.publish(entry.key, EventType.SESSION_DELETED, {"transcript": transcript})
        await self._notify_end(entry, "deleted", transcript)
        if transcript is None:
            return None
        return await trio.to_thread.run_sync(_remove_transcript, transcript, self._data_dir / "sessions")

    async def release_transcript(self, key: str) -> None:
        """Forget a session in which nothing runs, but not its transcript, which another session is to use.

        Returns once no worker has the transcript open. Raises PoolError where a worker does not close it.
        """
        entry = self._require(key)
        async with self._scheduler.acquire_session(entry.key, priority=_ADMIN_PRIORITY):
            if self._pool.placement(entry.key).worker:
                profile = await self._profile_cache.for_session(entry)
                async with self._pool.lease(entry.key, profile, spawn=False) as lease:
                    await lease.request("new_session", {})
            transcript = self._forget(entry.key)
        self._bus.publish(entry.key, EventType.SESSION_DELETED, {"transcript": None})
        await self._notify_end(entry, "moved", transcript)

    async def compact(self, session: str, instructions: str | None) -> None:
        """Summarise the conversation as soon as the session is free; returns once later messages come after it."""
        queued = trio.Event()
        self._start_soon(self._compact, session, instructions, queued)
        await queued.wait()

    async def _notify_command(self, command: Literal["new", "reset", "stop"], entry: SessionEntry) -> None:
        event = CommandReceived(command=command, session=entry.key, source=entry.source)
        await self._hooks.notify(_COMMAND_HOOKS[command], event)

    async def _notify_end(self, entry: SessionEntry, reason: str, transcript: str | None) -> None:
        await self._hooks.notify("session:end", _lifecycle(entry, reason, transcript))

    def _drop_conversation(self, session: str) -> str | None:
        """Only while nothing runs in the session."""
        self._pool.submit(ForgetSession(session))
        self._system_events.discard(session, RESULT_KINDS)  # the new conversation knows nothing of them
        old = self._sessions.drop_transcript(session)
        self._bus.publish(session, EventType.SESSION_RESET, {"transcript": old})
        return old

    def _forget(self, session: str) -> str | None:
        """The same, and remove the session."""
        transcript = self._drop_conversation(session)
        self._sessions.remove(session)
        self._system_events.discard(session, tuple(SystemEventKind))
        return transcript

    async def _compact(self, session: str, instructions: str | None, queued: trio.Event) -> None:
        params = {} if instructions is None else {"instructions": instructions}
        try:
            async with self._scheduler.acquire_session(session, on_queued=queued.set):
                profile = await self._profile_cache.for_session(self._require(session))
                async with self._pool.lease(session, profile, bounded=False) as lease:
                    await lease.request("compact", params)
        except PoolError as exc:
            error = {"severity": "error", "phase": "model", "message": f"the conversation was not summarised: {exc}"}
            self._bus.publish(session, EventType.ERROR, error)


def _age_of(turn: Turn | None) -> float | msgspec.UnsetType:
    since = None if turn is None or turn.lease is None else turn.lease.running_since
    return msgspec.UNSET if since is None else trio.current_time() - since


def _lifecycle(entry: SessionEntry, reason: str, transcript: str | None = None) -> SessionLifecycle:
    return SessionLifecycle(session=entry.key, agent=entry.agent, role=entry.role, reason=reason, transcript=transcript)


def _remove_transcript(path: str, ours: Path) -> str | None:
    """Remove a transcript that a worker has named, if its real path is below ``ours``, and the outputs beside it."""
    try:
        real = Path(path).resolve(strict=True)
        if not real.is_relative_to(ours.resolve()):
            return None
        shutil.rmtree(outputs_directory(str(real)), ignore_errors=True)  # most conversations have none
        os.unlink(path)  # noqa: PTH108  # a thread's work, on the string as the worker gave it
    except (OSError, ValueError):  # it is not there, or cannot be removed: it is not said to be
        return None
    return path
