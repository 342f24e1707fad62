"""A conversation that is open in an agent's process, and the proof that a loaded one is the one that was meant."""

import posixpath
from collections import deque
from enum import Enum, auto
from typing import Any

import msgspec

from rpc.acp.messages import object_of, text_of
from rpc.acp.options import JournalFacts, journal_id
from rpc.acp.session_config import SessionConfig
from rpc.acp.updates import block_text
from wire.messages import ContextSize

ANSWER_MARK = "About the answer to this message: "
NOTE_MARK = "[Notes on earlier tool calls]"
EARLIER_MARK = "[Earlier talk of this conversation, for your memory; it needs no answer]"
MAX_EARLIER_BYTES = 64 * 1024
_OWN_MARKS = ("[", "<")
"""What an agent adds to a user's messages by itself begins so: interruptions, its own commands and their output."""
_STATE_KINDS = frozenset({"available_commands_update", "session_info_update", "usage_update"})
_ALPHABETS = ("0123456789", "abcdef", "ghijklmnopqrstuv", "ABCDEF", "GHIJKLMNOPQRSTUV", "wxyz", "WXYZ")
_CHANGED_PLACES = 12
_COST_DIGITS = 9
_WHOLE_TAIL = MAX_EARLIER_BYTES - 4 * 1024
"""A tail of that many bytes may not begin with the conversation."""
MAX_REPLAY = 9 * 1024 * 1024
"""Characters of the latest messages that are kept of a replay: the longest prompt, and what is put around it."""
_PIECE_COST = 64
_MAX_COMPARED = 2**28
"""Characters that a replay is compared with, which takes a third of a second."""


class CostMeter:
    """From the sum that an agent reports of a conversation to the cost of each turn, in US dollars.

    Of a conversation that was loaded the sum of before is not known until the agent reports one; no turn is charged
    with it.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._charged = 0.0 if fresh else None
        self._reported: float | None = None

    def note(self, reported: float | None) -> None:
        """The sum so far; None where the agent has reported none."""
        self._reported = self._reported if reported is None else reported

    def begin(self) -> None:
        """A turn begins; what was reported before the first one, during a load, is charged already."""
        if self._charged is None:
            self._charged, self._reported = self._reported, None

    def charge(self) -> float | msgspec.UnsetType:
        """The cost of the turn that has ended, late news of the one before included; unset where it is not known."""
        reported, self._reported = self._reported, None
        if reported is None:
            return msgspec.UNSET
        before, self._charged = self._charged, reported
        return msgspec.UNSET if before is None or reported < before else round(reported - before, _COST_DIGITS)


class AcpConversation:
    """What is known of one conversation.

    Attributes:
        session: the agent's id.
        journal: path of its transcript.
        turns: how many have ended, those before it was loaded included.
        config: what can be set in it, and is.
        earlier: talk that its next prompt begins with.
        notes: what persons said beside decisions about its calls, for its next prompt.
        is_fresh: nothing was said in the agent's session; the first prompt brings the instructions.
        has_header: its transcript names the agent's session.
        is_spare: it was begun at the start of the process, and no request was given it yet.
        commands: the agent's own commands, as it lists them.
        title, context: as the agent last said.
        is_context_reported: an event has said what ``context`` is.
        costs: what it has cost.
        servers: the MCP servers it was begun or loaded with, beside the definition's.
    """

    def __init__(self, session: str, journal: str, config: SessionConfig, *, turns: int = 0, fresh: bool) -> None:
        self.session = session
        self.journal = journal
        self.config = config
        self.turns = turns
        self.is_fresh = fresh
        self.has_header = not fresh
        self.is_spare = False
        self.servers: list[dict[str, Any]] = []
        self.earlier = ""
        self.notes: list[str] = []
        self.commands: list[dict[str, Any]] = []
        self.title: str | None = None
        self.context: ContextSize | None = None
        self.is_context_reported = True
        self.costs = CostMeter(fresh=fresh)

    def take_notes(self) -> list[str]:
        """The notes for a prompt that is about to be sent."""
        notes, self.notes = self.notes, []
        return notes

    @property
    def id(self) -> str:
        """Its name above the dialect: that of its transcript."""
        return posixpath.basename(self.journal).removesuffix(".jsonl")


def journal_path(directory: str, session: str) -> str:
    """Where the transcript of a new conversation lies."""
    return posixpath.join(directory, f"{journal_id(session)}.jsonl")


def unknown_id(like: str, nonce: str) -> str:
    """An id that the agent cannot have and whose form is that of ``like``: it must not be refused for its form.

    ``nonce``: 32 random hexadecimal digits. They take the places of the last 12 letters and digits, each by one of its
    own kind; an id that has fewer of them is replaced by a UUID, since another of that length may be in use.
    """
    places = [index for index, letter in enumerate(like) if any(letter in kind for kind in _ALPHABETS)]
    if len(places) < _CHANGED_PLACES:
        return f"{nonce[:8]}-{nonce[8:12]}-4{nonce[13:16]}-8{nonce[17:20]}-{nonce[20:32]}"
    letters = list(like)
    for index, digit in zip(places[-_CHANGED_PLACES:], nonce, strict=False):
        kind = next(kind for kind in _ALPHABETS if letters[index] in kind)
        letters[index] = kind[int(digit, 16) % len(kind)]
    return "".join(letters)


class ReplayVerdict(Enum):
    """What the replay of a loaded conversation shows."""

    WHOLE = auto()
    """It holds the last user text of the journal."""
    LESS = auto()
    """It holds less than the journal."""
    FOREIGN = auto()
    """It holds text that is not the journal's."""


class Replay:
    """Swallows what an agent replays of a conversation while it loads it, and keeps the user's latest messages.

    What is too long to be compared counts as less than the journal: the conversation is fed again, which is right
    whatever the agent has.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        self._messages: deque[list[str]] = deque()
        self._kept = 0
        self._is_too_long = False
        self._last_id: object = None
        self._in_message = False
        self.state: dict[str, dict[str, Any]] = {}
        """The latest update of each kind that says something of the conversation's state."""

    def take(self, update: dict[str, Any]) -> None:
        """One update."""
        kind = text_of(update.get("sessionUpdate")) or ""
        if kind in _STATE_KINDS:
            self.state[kind] = update
        if kind != "user_message_chunk":
            if kind in ("agent_message_chunk", "agent_thought_chunk", "tool_call"):
                self._in_message = False
            return
        message_id = text_of(update.get("messageId"))
        if not self._in_message or message_id != self._last_id:
            self._messages.append([])
        self._in_message, self._last_id = True, message_id
        self._keep(block_text(object_of(update.get("content"))))

    def _keep(self, text: str) -> None:
        self._messages[-1].append(text)
        self._kept += _cost(text)
        while self._kept > MAX_REPLAY:
            self._is_too_long = self._is_too_long or len(self._messages) == 1
            self._kept -= sum(map(_cost, self._messages[0]))
            if len(self._messages) == 1:
                self._messages[0].clear()
            else:
                self._messages.popleft()

    @property
    def is_empty(self) -> bool:
        """Whether it had no message of the user."""
        return not self._messages

    def verdict(self, facts: JournalFacts, instructions: str) -> ReplayVerdict:
        """Compare it with the journal; spaces and line ends do not count."""
        if self._is_too_long:
            return ReplayVerdict.LESS
        last, said_first = _plain(facts.last_user_text), _plain(instructions)
        if not last and self._messages:  # nothing but images, of which a replay may show anything
            return ReplayVerdict.WHOLE
        later: list[str] = []
        for message in reversed(self._messages):
            if _is_text(message, last, said_first):
                return _judge(later, facts.tail, ReplayVerdict.WHOLE)
            later.append("".join(message))
        judged = later if len(facts.tail.encode()) < _WHOLE_TAIL else later[:1]
        return _judge(judged, facts.tail, ReplayVerdict.LESS)


def _cost(text: str) -> int:
    return len(text) + _PIECE_COST


def _judge(messages: list[str], tail: str, otherwise: ReplayVerdict) -> ReplayVerdict:
    plain_tail, texts = _plain(tail), _user_texts(tail)
    if len(messages) * len(plain_tail) + sum(map(len, messages)) * len(texts) > _MAX_COMPARED:
        return ReplayVerdict.LESS
    return ReplayVerdict.FOREIGN if _any_foreign(messages, plain_tail, texts) else otherwise


def _is_text(blocks: list[str], text: str, instructions: str) -> bool:
    """Whether a message has this text, by itself or between what we put around it."""
    if sum(map(len, blocks)) < len(text):
        return False
    if text in map(_plain, blocks):
        return True
    whole = _plain("".join(blocks))
    whole = whole.split(_plain(ANSWER_MARK), 1)[0].rstrip()
    if whole == text:
        return True
    prefixes = [prefix for prefix in (instructions, _plain(EARLIER_MARK), _plain(NOTE_MARK)) if prefix]
    return bool(text) and whole.endswith(text) and any(whole.startswith(prefix) for prefix in prefixes)


def _any_foreign(messages: list[str], plain_tail: str, texts: list[str]) -> bool:
    for message in messages:
        plain = _plain(message)
        if not plain or plain.startswith(_OWN_MARKS) or plain in plain_tail:
            continue
        if not any(text in plain for text in texts):
            return True
    return False


def _user_texts(tail: str) -> list[str]:
    """The user's messages in a tail; the first one may have lost its beginning."""
    texts: list[str] = []
    mine = True
    current: list[str] = []
    for line in [*tail.splitlines(), "assistant:"]:
        mark = line.split(":", 1)[0]
        if mark in ("user", "assistant") and ":" in line:
            if mine and (text := _plain("\n".join(current))):
                texts.append(text)
            mine, current = mark == "user", [line.split(":", 1)[1]]
        else:
            current.append(line)
    return texts


def _plain(text: str) -> str:
    return " ".join(text.split())
