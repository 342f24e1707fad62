"""One session: what is kept of it, and its row in the store."""

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from pool.agent_report import AgentReport
from router.source import MessageSource
from store.records import SessionRow
from wire.messages import ContextSize, QueueMode
from wire.session_state import session_state


class SessionStatus(StrEnum):
    """What a session is doing; not kept over a restart, after which nothing is in its turn."""

    READY = "READY"
    WORKING = "WORKING"
    PAUSED = "PAUSED"
    """In a turn that waits for a person's approval."""

    @property
    def word(self) -> str:
        """What people read: one of ``wire.session_state.SESSION_STATES``."""
        return session_state(self)


class SessionData(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What of a session is kept as JSON in its row's ``data``. ``gc=False``: nothing in here can point back to it."""

    queue_mode: QueueMode | None = None
    """The session's own; None = as the settings say. So for the two that follow: None = as the agent's definition."""
    model: str | None = None
    thinking: str | None = None
    verbose: bool = False
    """Whether its answers show what the tools do."""
    reasoning: bool = False
    """Whether its answers show what the model thinks."""
    source: MessageSource | None = None
    """The latest message's: where the session last spoke."""
    last_run: str | None = None
    last_principal: str | None = None
    """Who began that run."""
    label: str | None = None
    """A name for people, of this session only."""
    cwd: str | None = None
    """The directory it works in, absolute and without links, where its front end has chosen one; it never changes while
    the session has a conversation."""
    unwritten: bool = False
    """Whether its transcript is a name only: no turn that began in it has ended with the file there."""


class SessionEntry(SessionData, kw_only=True, eq=False, gc=False):
    """One session. Times are Unix times in seconds. Fields may be assigned, ``transcript`` only by the table.

    ``context``: as its agent last said in a turn, since this supervisor has started. ``unknown``: fields of ``data``
    that a newer version wrote, kept as they are.
    """

    key: str
    agent: str
    role: str
    transcript: str | None
    created_at: float
    updated_at: float
    status: SessionStatus = SessionStatus.READY
    context: ContextSize | None = None
    unknown: dict[str, Any] | None = None

    def known_context(self, report: AgentReport | None) -> ContextSize | None:
        """As its worker reports it; where none has the conversation open, as the last turn left it."""
        return self.context if report is None or report.context is None else report.context

    def row(self, stored: Callable[[str | None], str | None] = lambda path: path) -> SessionRow:
        """As the store keeps it. ``stored``: what it keeps of a path."""
        known = SessionData(
            queue_mode=self.queue_mode,
            model=self.model,
            thinking=self.thinking,
            verbose=self.verbose,
            reasoning=self.reasoning,
            source=self.source,
            last_run=self.last_run,
            last_principal=self.last_principal,
            label=self.label,
            cwd=stored(self.cwd),
            unwritten=self.unwritten,
        )
        data = msgspec.json.encode(known)
        if self.unknown:
            data = msgspec.json.encode({**self.unknown, **msgspec.json.decode(data)})
        return SessionRow(
            key=self.key,
            agent=self.agent,
            role=self.role,
            transcript=stored(self.transcript),
            created_at=self.created_at,
            updated_at=self.updated_at,
            data=data,
        )


class _SoundData(SessionData, forbid_unknown_fields=True, gc=False):
    """Data that this version understands as a whole."""


_DATA_FIELDS = {field.name: field.type for field in msgspec.structs.fields(SessionData)}
_read_data = msgspec.json.Decoder(_SoundData).decode


def entry_of(row: SessionRow) -> SessionEntry:
    """The entry of a row. A field that this version cannot read is kept in ``unknown`` and counts as not set.

    Raises msgspec.DecodeError when the row's ``data`` is no JSON object.
    """
    unknown: dict[str, Any] = {}
    try:
        known = msgspec.structs.asdict(_read_data(row.data))
    except msgspec.ValidationError:
        known, unknown = _read_each_field(row.data)
    return SessionEntry(
        key=row.key,
        agent=sys.intern(row.agent),  # few names, many sessions
        role=sys.intern(row.role),
        transcript=row.transcript,
        created_at=row.created_at,
        updated_at=row.updated_at,
        unknown=unknown or None,
        **known,
    )


def _read_each_field(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What this version can read, and the rest as it is. One session takes 30 us."""
    data = msgspec.json.decode(raw, type=dict[str, Any])
    known = {name: value for name in _DATA_FIELDS if (value := _read_field(name, data)) is not None}
    return known, {name: value for name, value in data.items() if name not in known}


def _read_field(name: str, data: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(data.get(name), _DATA_FIELDS[name])
    except msgspec.ValidationError:
        return None  # the value itself stays in ``unknown``
