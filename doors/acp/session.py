"""One session that an editor has open: how far it is attached, its runs, its open questions. Pure."""

from collections.abc import Callable, Mapping
from enum import Enum, auto

from doors.acp.procedures import OwnRun
from doors.acp.questions import Question
from doors.acp.requests import OpenSessionParams, PendingQuestion, SessionOpened
from doors.acp.updates import TURN_KINDS, EditorWishes, SessionUpdates
from wire.events import EventType
from wire.messages import ToolCallView

SUBSCRIBED_KINDS = (
    *TURN_KINDS,
    *(EventType.PERMISSION_REQUIRED, EventType.PERMISSION_DECIDED, EventType.SESSION_PATCHED),
    EventType.SESSION_DELETED,
)
"""The events of a session that are asked for. Dialogs of extensions are not among them: an editor has no words for
these, and who receives them is expected to answer."""


class SessionPhase(Enum):
    """How far a session is attached."""

    LIVE = auto()
    """Its events come."""
    LOST = auto()
    """The connection has ended; the next one brings what was missed."""
    RETURNING = auto()
    """It is being attached again."""
    CLOSING = auto()
    """Its runs are being ended."""
    CLOSED = auto()


_TRANSITIONS: Mapping[SessionPhase, frozenset[SessionPhase]] = {
    SessionPhase.LIVE: frozenset({SessionPhase.LOST, SessionPhase.CLOSING, SessionPhase.CLOSED}),
    SessionPhase.LOST: frozenset({SessionPhase.RETURNING, SessionPhase.CLOSING}),
    SessionPhase.RETURNING: frozenset(
        {SessionPhase.LIVE, SessionPhase.LOST, SessionPhase.CLOSING, SessionPhase.CLOSED}
    ),
    SessionPhase.CLOSING: frozenset({SessionPhase.CLOSED}),
    SessionPhase.CLOSED: frozenset(),
}


class AskedQuestion:
    """A call that waits for a decision, from when the editor is to be asked. ``number``: of our request, once it is.

    ``is_void``: the editor has cancelled the prompt, and an answer ``cancelled`` decides nothing any more. ``times``:
    how often it was asked about, this time included.
    """

    def __init__(self, call: ToolCallView, run: str | None, times: int = 1) -> None:
        self.call = call
        self.run = run
        self.times = times
        self.number: int | None = None
        self.question: Question | None = None
        self.is_void = False


class EditorSession:
    """One session. ``cwd``, ``servers``: as the editor has given them. ``bookmark``: everything up to it was sent."""

    def __init__(
        self, opened: SessionOpened, params: OpenSessionParams, wishes: EditorWishes, is_own: Callable[[str], bool]
    ) -> None:
        self.key = opened.session
        self.cwd = params.cwd
        self.servers = params.servers
        self.settings = opened.options
        self.knows_offers = not opened.options.any_model
        self.bookmark = opened.head
        self.updates = SessionUpdates(self.key, wishes, is_own)
        self.subscription: str | None = None
        self.runs: dict[str, OwnRun] = {}
        self.questions: dict[str, AskedQuestion] = {}
        self.unasked: list[PendingQuestion] = list(opened.pending)
        """Calls that waited for a decision before it was attached."""
        self.phase = SessionPhase.LIVE

    def move(self, phase: SessionPhase) -> None:
        """Go to another phase. Raises RuntimeError for a move that there is not."""
        if phase not in _TRANSITIONS[self.phase]:
            raise RuntimeError(f"a session does not go from {self.phase.name} to {phase.name}")
        self.phase = phase

    @property
    def is_open(self) -> bool:
        """Whether it takes prompts."""
        return self.phase not in (SessionPhase.CLOSING, SessionPhase.CLOSED)
