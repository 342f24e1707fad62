"""Interfaces to the gateway and store.

What this room asks of the house, as protocols: the rooms below implement them, the application joins them.

What beats and scheduled tasks ask of the gateway, as protocols: to run, to know who is busy, to tell.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from heartbeat.delivery.channel import Alert


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
    """The gateway, as this room sees it."""

    async def run(self, request: BeatRequest) -> BeatAnswer:
        """Run it to its end. A run that fails is an answer, not an exception; cancelling the call aborts the run.

        With ``room_only`` and no room, the answer's code is ``saturated``.
        """
        ...

    def is_busy(self, session: str) -> bool:
        """Whether a turn of the session is in flight or waits for its worker, whoever asked for it."""
        ...

    def has_room(self, agent: str, session: str) -> bool:
        """Whether a worker is free for the agent's session, or could be started without stopping another."""
        ...

    def workspace_of(self, agent: str, session: str) -> str | None:
        """The absolute directory the agent works in for that session; None where it cannot be known."""
        ...

    def mark_active(self, session: str) -> None:
        """The session has said something to somebody: that is activity."""
        ...


class PendingEvent(Protocol):
    """A system event, as a beat sees it."""

    @property
    def id(self) -> str:
        """Unique among all events."""
        ...

    @property
    def kind(self) -> str:
        """``exec``, ``cron``, ``delegate``, ``channel`` or ``other``."""
        ...

    @property
    def text(self) -> str:
        """One line or more."""
        ...


class EventPort(Protocol):
    """The queue of system events."""

    def pending_sessions(self) -> Sequence[tuple[str, str]]:
        """Agent and session of every conversation with events that nobody is telling. For the start."""
        ...

    def peek(self, session: str) -> Sequence[PendingEvent]:
        """What the session is to be told and nobody is telling it, the oldest first; bounded."""
        ...

    def claim(self, session: str, ids: Sequence[str]) -> None:
        """These are being told: no other turn is to tell them until they are released. Unknown ids are fine.

        A claim ends with the supervisor.
        """
        ...

    def release(self, session: str, ids: Sequence[str]) -> None:
        """Nobody was told these after all; they are the next turn's. Unknown ids are fine."""
        ...

    def acknowledge(self, session: str, ids: Sequence[str]) -> None:
        """These have been told and are gone; in the step of the store in which it is called. Unknown ids are fine."""
        ...


class AlertPort(Protocol):
    """Who brings alerts to people."""

    def accept(self, alert: Alert) -> None:
        """Take an alert over, in the step of the store in which it is called; one whose id is known is nothing new.

        Raises UsageError for a target that makes no sense.
        """
        ...


class Monitor(Protocol):
    """The gateway's event stream."""

    def publish(self, type_: str, session: str, data: dict[str, Any]) -> None:
        """Publish a monitor event; neither blocks nor raises."""
        ...


TransactionFactory = Callable[[], AbstractContextManager[None]]
"""What is put into the store inside of it becomes durable in one step or not at all; nothing is awaited there."""
