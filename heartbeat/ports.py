"""Interfaces of heartbeats and scheduled tasks to the gateway and the store."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from heartbeat.delivery.channel import Alert
from heartbeat.system_events import SystemEvent


class Documents(Protocol):
    """Small records that survive the supervisor: one body of bytes (JSON) for each key of a kind.

    Kinds are names that this room chooses (``cron_job``, ``beat``); keys are unique within their kind.
    """

    async def load(self, kind: str) -> dict[str, bytes]:
        """Every document of the kind by its key, in the order of their first keeping. For the start."""
        ...

    def put(self, kind: str, key: str, body: bytes | None) -> Awaitable[None]:
        """Keep a body in place of the one before, or remove it (``None``).

        It counts from the call on, whether or not the result is awaited: later calls on the same key win, and a later
        ``load`` sees it. Awaiting the result waits until it is on the disk; while the disk refuses, it is kept in
        memory and the result does not wait.
        """
        ...


class BeatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run that this room wants.

    It is a message of its own after whatever its session is doing, never one into a running turn. ``run_id`` is its
    idempotency key: the same one again means the same run, also after a restart. ``text`` is the whole prompt: it
    carries the system events it is about, the gateway adds none. ``timeout``: seconds for waiting and running.
    ``room_only``: it takes a worker that is free, or has one started where there is room; no other is stopped.
    ``lane``: as the gateway's settings name them.
    ``new_conversation``: begin one, unless a background command of the old one still runs. The transcript of the old
    one is removed where the session's latest run is one of ``earlier``; what others have begun or opened there stays.
    ``touch`` False leaves the session's last activity, and where it last spoke, as they were.
    """

    session: str
    agent: str
    run_id: str
    text: str
    room_only: bool = False
    priority: int = 3
    timeout: float = 60.0
    lane: str = "main"
    new_conversation: bool = False
    earlier: tuple[str, ...] = ()
    touch: bool = False


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of the run. ``code`` and ``message`` are the error's where ``ok`` is False.

    ``media``: paths of files that the agent handed over beside its text. ``started``: whether a worker was prompted.
    """

    ok: bool
    text: str = ""
    media: tuple[str, ...] = ()
    code: str = ""
    message: str = ""
    started: bool = True


class RunPort(Protocol):
    """The gateway runs an agent."""

    async def run(self, request: BeatRequest) -> BeatAnswer:
        """Run the request to its end, within its timeout. The same ``run_id`` means the same run, also after a restart.

        A run that fails is an answer; PoolError means it was not accepted. Cancelling the call aborts the run. With
        ``room_only`` and no room, the answer's code is ``saturated``.
        """
        ...


class BeatRunPort(RunPort, Protocol):
    """The gateway as heartbeats see it."""

    def agent_of(self, session: str) -> str | None:
        """The agent that owns the session; None for an invalid key."""
        ...

    def is_busy(self, session: str) -> bool:
        """Whether a turn of the session runs or waits for its worker."""
        ...

    def has_room(self, agent: str, session: str) -> bool:
        """Whether a worker is free for the agent's session, or could start without stopping another."""
        ...

    async def read_file(self, agent: str, session: str, name: str, limit: int) -> bytes:
        """At most the first ``limit`` bytes of a file in the directory of the agent in that session.

        Raises OSError, ValueError, and PoolError where the directory lies on a machine that cannot be asked.
        """
        ...

    def mark_active(self, session: str) -> None:
        """Count what the session has said to a person as activity."""
        ...


class EventPort(Protocol):
    """The queue of system events. Unknown ids are ignored."""

    def pending_sessions(self) -> Sequence[str]:
        """Every session with queued events."""
        ...

    def unclaimed(self, session: str) -> Sequence[SystemEvent]:
        """The session's events that no turn has claimed, the oldest first; bounded."""
        ...

    def claim(self, session: str, ids: Collection[str]) -> None:
        """Reserve these events for one turn until they are released. A claim ends with the supervisor."""
        ...

    def release(self, session: str, ids: Collection[str]) -> None:
        """Return claimed events to the session's next turn."""
        ...

    def acknowledge(self, session: str, ids: Collection[str]) -> None:
        """Delete delivered events, in the store transaction of the caller."""
        ...


class AlertPort(Protocol):
    """Delivery of alerts."""

    def accept(self, alert: Alert) -> None:
        """Take an alert over, in the store transaction of the caller; a known id is ignored. Never blocks.

        Raises UsageError for an invalid target.
        """
        ...


TransactionFactory = Callable[[], AbstractContextManager[None]]
"""Changes to the store inside the context become durable in one step or not at all; nothing is awaited there."""
