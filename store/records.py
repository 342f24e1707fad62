"""Rows of the store. ``data``, ``request`` and ``outcome`` hold the gateway's own JSON; to the store they are bytes."""

from enum import StrEnum

import msgspec

__all__ = [
    "DocumentKey",
    "DocumentRow",
    "EventRow",
    "Loaded",
    "RunKey",
    "RunRow",
    "RunState",
    "SessionRow",
    "StoreStatistics",
]


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. Times are Unix times in seconds."""

    key: str
    agent: str
    role: str
    transcript: str | None
    created_at: float
    updated_at: float
    data: bytes = b"{}"


RunKey = tuple[str, str, str]
"""Principal, session, run id: what identifies a run. The run id alone is its caller's choice."""


class RunState(StrEnum):
    """How far a run has come; each step is durable before anybody is told."""

    ACCEPTED = "accepted"
    STARTED = "started"
    """Its turn may have reached the worker: never to be started again."""
    ENDED = "ended"


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run; ``body_hash`` tells a repeated request from another one."""

    principal: str
    session: str
    run_id: str
    state: RunState
    body_hash: str
    request: bytes
    accepted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: bytes | None = None

    @property
    def key(self) -> RunKey:
        """What identifies the run."""
        return (self.principal, self.session, self.run_id)


class EventRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One event; of a ``text_snapshot`` ``seq`` is the last seq that it covers. ``data`` is JSON."""

    seq: int
    ts: float
    session: str
    channel: str
    type: str
    data: bytes
    run_id: str | None = None


DocumentKey = tuple[str, str]
"""Kind and key."""


class DocumentRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A small record of whoever needs no table of its own; ``body`` is its owner's JSON."""

    kind: str
    key: str
    body: bytes


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What the store held when it was opened, all that the gateway keeps in memory but for the documents.

    Those are read by whoever they belong to (``Store.read_documents``).
    """

    sessions: list[SessionRow]
    runs: list[RunRow]
    """In the order of their acceptance."""
    first_seq: int
    """The first seq that may be used: above every seq that any earlier life has given out."""
    set_aside: str | None
    """Where a damaged file was moved to, with the reason, and what such files take once they are many; None = it was
    sound, or there was none."""
    was_clean: bool
    """Whether the last life closed it; False = crash."""


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The store at one moment."""

    rows_waiting: int
    """Rows to be put or deleted that are in memory only."""
    bytes_waiting: int
    rows_written: int
    degraded: bool
    lost: int
    """Rows given up: events while the disk refused, and rows that the database cannot hold."""
    last_error: str | None
