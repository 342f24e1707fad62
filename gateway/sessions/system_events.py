"""System events: facts from the pool and front ends that a session's next turn gets, and its background commands.

Both are kept in the store, as one document a session: while the disk refuses, no more waits than there are events. A
kill of the supervisor kills background commands; the next supervisor reports them.
"""

import math
import uuid
from collections.abc import Callable, Collection
from typing import Any, assert_never

import msgspec
import trio

from gateway.events import EventBus
from heartbeat.system_events import SystemEvent, SystemEventKind, SystemEventLimits, SystemEventQueue, SystemEventStats
from pool.worker_output import BackgroundEvent, BackgroundExited, BackgroundLost, BackgroundRunning
from store.store import Store, StoredDocuments
from wire.events import EventType
from wire.framing import DECODE_ERRORS
from wire.messages import BackgroundProcesses

_RUNNING_KIND = "exec_running"
_encode = msgspec.json.Encoder().encode
_decode_running = msgspec.json.Decoder(BackgroundProcesses).decode


class BackgroundCommands:
    """One document for each session with background commands. Only ``leftovers`` waits for the disk."""

    def __init__(self, documents: StoredDocuments) -> None:
        self._documents = documents
        self._of_worker: dict[str, tuple[str, BackgroundProcesses]] = {}

    async def leftovers(self) -> dict[str, BackgroundProcesses]:
        """The commands that ran when the last supervisor was killed, by session. Raises StoreUnusable."""
        found: dict[str, BackgroundProcesses] = {}
        for session, body in (await self._documents.load(_RUNNING_KIND)).items():
            try:
                found[session] = _decode_running(body)
            except DECODE_ERRORS:
                found[session] = BackgroundProcesses(1)  # how many they were is not known
        return found

    def record(self, worker: str, session: str | None, commands: BackgroundProcesses) -> None:
        """The commands on a worker now, and their session (None: the conversation is over)."""
        was = self._of_worker.pop(worker, None)
        if session is not None and commands.running:
            self._of_worker[worker] = session, commands
            self._documents.put(_RUNNING_KIND, session, _encode(commands))
        if was is not None and (was[0] != session or not commands.running):
            self._documents.put(_RUNNING_KIND, was[0], None)

    def record_end(self, worker: str, name: str) -> None:
        """Remove a command whose end is reported now, so that it is not reported as killed later."""
        session, commands = self._of_worker.get(worker, (None, BackgroundProcesses()))
        if session is not None and (name in commands.names or not commands.names):
            names = [other for other in commands.names if other != name]
            self.record(worker, session, BackgroundProcesses(commands.running - 1, names))

    def of_session(self, session: str) -> BackgroundProcesses:
        """The session's commands now."""
        return next((commands for key, commands in self._of_worker.values() if key == session), BackgroundProcesses())

    def discard(self, session: str) -> None:
        """The session's conversation is over; its commands are no longer reported."""
        for worker in [worker for worker, (key, _) in self._of_worker.items() if key == session]:
            self.record(worker, None, BackgroundProcesses())


_KIND = "system_events"
_KILLED_REASON = "the supervisor was killed, and its workers with it"
_GC_INTERVAL = 30.0
_MAX_ID = 256
_MAX_SUMMARY = 2_000
_PREVIEW = 200
_decode = msgspec.json.Decoder(list[SystemEvent]).decode


class SystemEvents:
    """The queues of all sessions. Each queued event is published as ``system_event``, once it is durable."""

    def __init__(
        self, store: Store, bus: EventBus, *, clock: Callable[[], float], limits: SystemEventLimits | None = None
    ) -> None:
        """``clock`` gives Unix time in seconds."""
        self._queue = SystemEventQueue(lambda: uuid.uuid4().hex, limits)
        self._documents = StoredDocuments(store)
        self._commands = BackgroundCommands(self._documents)
        self._store = store
        self._bus = bus
        self._clock = clock
        self._arrived = trio.Event()
        self._claimed: dict[str, set[str]] = {}
        """Events that a turn is telling, by session."""
        self._listener: Callable[[SystemEvent], None] | None = None

    def on_queued(self, listener: Callable[[SystemEvent], None]) -> None:
        """Call ``listener`` for every event queued from now on; it must not block or raise."""
        self._listener = listener

    async def load(self) -> None:
        """Load what the previous supervisor left. Raises StoreUnusable."""
        events: list[SystemEvent] = []
        for session, body in (await self._documents.load(_KIND)).items():
            try:
                events += _decode(body)
            except DECODE_ERRORS as exc:
                self._documents.put(_KIND, session, None)
                message = f"an event for the session could not be read and is lost: {exc}"
                self._publish(session, EventType.ERROR, {"severity": "error", "phase": "system", "message": message})
        self._queue.restore(events, now=trio.current_time(), wall_now=self._clock())
        self._persist()
        for session, commands in (await self._commands.leftovers()).items():
            lost = BackgroundLost(worker=None, session=session, commands=commands, reason=_KILLED_REASON)
            with self._store.transaction():
                self._on_background_lost(lost)
                self._documents.put(_RUNNING_KIND, session, None)

    async def run(self) -> None:
        """Drop events when they are too old, until cancelled; sleeps while there are none."""
        while True:
            self._arrived = trio.Event()
            due = self._queue.next_expiry()
            with trio.move_on_at(math.inf if due is None else max(due, trio.current_time() + _GC_INTERVAL)):
                await self._arrived.wait()
            self._queue.gc(trio.current_time())
            self._persist()

    # --- in -----------------------------------------------------------------------------------------------------------

    def inject(
        self, session: str, text: str, *, kind: SystemEventKind, context: str | None = None
    ) -> SystemEvent | None:
        """Queue an event; None if it is empty or repeats the last one (``SystemEventQueue.inject``)."""
        now, wall_now = trio.current_time(), self._clock()
        event = self._queue.inject(session, text, kind=kind, now=now, wall_now=wall_now, context=context)
        with self._store.transaction():
            self._persist()
            if event is not None:
                facts = {"id": event.id, "kind": kind, "text": event.text[:_PREVIEW], "context": context}
                self._publish(session, EventType.SYSTEM_EVENT, facts)
        if event is not None and self._listener is not None:
            self._listener(event)
        return event

    async def wait_durable(self) -> None:
        """Wait until everything so far is durable, or the disk refuses."""
        await self._store.flush()

    def on_background(self, news: BackgroundEvent) -> None:
        """Take news of background commands from the pool: which run, and their ends."""
        with self._store.transaction():
            match news:
                case BackgroundExited():
                    self._on_background_exit(news)
                case BackgroundLost():
                    self._on_background_lost(news)
                case BackgroundRunning():
                    self._commands.record(news.worker, news.session, news.commands)
                case _:
                    assert_never(news)

    def _on_background_exit(self, news: BackgroundExited) -> None:
        ended = news.exit
        self._commands.record_end(news.worker, ended.session_id)
        name = ended.session_id[:_MAX_ID]
        summary = ended.summary[:_MAX_SUMMARY].strip() or f"Exec ended ({name})"
        facts = {
            "session_id": name,
            "summary": summary,
            "worker": news.worker,
            "exit_code": ended.exit_code,
            "signal": ended.signal and ended.signal[:_MAX_ID],
            "timed_out": ended.timed_out or None,
        }
        if news.session is not None:
            self.inject(news.session, summary, kind=SystemEventKind.EXEC, context=f"exec:{name}:exit")
        self._publish(news.session or "", EventType.EXEC_EXIT, facts)

    def _on_background_lost(self, news: BackgroundLost) -> None:
        count, names = news.commands.running, news.commands.names
        what = ", ".join(names) or _describe_count(count)
        text = f"Exec failed ({what}) :: ended with what it ran on: {news.reason}"[:_MAX_SUMMARY]
        self.inject(news.session, text, kind=SystemEventKind.EXEC, context="exec:lost")
        facts = {"worker": news.worker, "commands": count, "names": names or None, "reason": news.reason}
        self._publish(news.session, EventType.EXEC_LOST, facts)

    def background_commands(self, session: str) -> list[str]:
        """The session's background commands: their ids, or how many there are."""
        commands = self._commands.of_session(session)
        return commands.names or ([_describe_count(commands.running)] if commands.running else [])

    # --- looking, and out ---------------------------------------------------------------------------------------------

    def peek(self, session: str) -> list[SystemEvent]:
        """The session's queued events, oldest first."""
        return self._queue.peek(session, trio.current_time())

    def unclaimed(self, session: str) -> list[SystemEvent]:
        """Those of them that no turn is telling."""
        if session not in self._queue.by_session:
            return []
        claimed = self._claimed.get(session, ())
        return [event for event in self.peek(session) if event.id not in claimed]

    def pending_sessions(self) -> list[str]:
        """The sessions with queued events."""
        return self._queue.sessions()

    def claim(self, session: str, ids: Collection[str]) -> None:
        """Reserve events for a turn until they are released or acknowledged, or the supervisor ends."""
        if ids:
            self._claimed.setdefault(session, set()).update(ids)
            self._queue.mark_shown(session, ids)

    def release(self, session: str, ids: Collection[str]) -> None:
        """The turn is over: what of these is still there is the next one's. Unknown ids are fine."""
        claimed = self._claimed.get(session)
        if claimed is not None:
            claimed.difference_update(ids)
            if not claimed:
                del self._claimed[session]

    def acknowledge(self, session: str, ids: Collection[str]) -> None:
        """Remove events that a turn has delivered. Unknown ids are ignored."""
        self._queue.consume(session, ids)
        self.release(session, ids)
        self._persist()

    def discard(self, session: str, kinds: Collection[SystemEventKind]) -> None:
        """Remove the session's events of these kinds."""
        if SystemEventKind.EXEC in kinds:
            self._commands.discard(session)
        self._queue.discard(session, kinds)
        self._persist()

    def stats(self) -> SystemEventStats:
        """Figures of this moment."""
        return self._queue.stats()

    # --- keeping ------------------------------------------------------------------------------------------------------

    def _persist(self) -> None:
        for session, events in self._queue.pop_changed().items():
            self._documents.put(_KIND, session, _encode(events) if events else None)
            self._arrived.set()

    def _publish(self, session: str, type_: EventType, facts: dict[str, Any]) -> None:
        """Publish an event; it is visible once everything kept before it is durable."""
        data = {name: value for name, value in facts.items() if value is not None}
        self._bus.publish(session, type_, data)


def _describe_count(commands: int) -> str:
    return "a background command" if commands == 1 else f"{commands} background commands"
