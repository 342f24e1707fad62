"""Cumulative text. Pure.

The text of one run as it is told while it comes into being: pieces joined, repeated as a whole, and not too often.

Both kinds of events repeat all that was said so far, which a reader that lost one needs. So that an answer of n
characters costs no n * n, an event that repeats n characters is followed by the next one n microseconds later at the
earliest, and a text above ``MOST_TEXT`` is not repeated any more: then only what is new is told. Pure.

From the gateway's events to the protocol's, for all runs and all peers at once. Pure.

Text that comes at once becomes one event, and what was said before something else is told before it. The failure and
the end of a tool call become one result; a failure without an end is sent at the end of its run.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from doors.websocket.events import (
    CHANGES,
    MESSAGES,
    Moment,
    Told,
    assistant,
    call_id_of,
    change,
    chat_delta,
    error_of,
    message,
    picture,
    tool_result,
)
from wire.messages import EMPTY

MOST_TEXT = 256 * 1024
"""Characters; a run's ``done`` holds as many."""
CHAT_SECONDS = 0.15
_CHARS_PER_SECOND = 1_000_000
_GAP = "\n\n"


class Stretch:
    """What one kind of events has not told yet, and when it may."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._parts: list[str] = []
        self._next_at = -math.inf
        self.seq = 0
        """The last event of the gateway that what waits comes from."""
        self.ts = 0.0

    @property
    def due_at(self) -> float:
        """When what waits may be told; never where nothing does."""
        return self._next_at if self._parts else math.inf

    def add(self, piece: str, seq: int, ts: float) -> None:
        """More has been said."""
        self._parts.append(piece)
        self.seq, self.ts = seq, ts

    def take(self, now: float, repeated: int) -> str:
        """What waits is told now, with ``repeated`` characters beside it."""
        delta = "".join(self._parts)
        self._parts.clear()
        self._next_at = now + max(self._pause, (repeated + len(delta)) / _CHARS_PER_SECOND)
        return delta


class RunText:
    """One run's. ``is_whole``: it was heard from its begin, so that all of it is known."""

    def __init__(self, *, is_whole: bool) -> None:
        self.agent = Stretch(0.0)
        self.chat = Stretch(CHAT_SECONDS)
        self._is_whole = is_whole
        self._said = ""
        self._parts: list[str] = []
        self._length = 0
        self._has_gap = False

    @property
    def whole(self) -> str | None:
        """All that was said; None where that is not known, or too much."""
        if not self._is_whole or self._length > MOST_TEXT:
            return None
        if self._parts:
            self._said += "".join(self._parts)
            self._parts.clear()
        return self._said

    def gap(self) -> None:
        """The agent does something else: what it says next is a paragraph of its own."""
        self._has_gap = self._length > 0

    def add(self, said: str, seq: int, ts: float) -> None:
        """More has been said, and is to be told."""
        piece = self.recall(said)
        self.agent.add(piece, seq, ts)
        self.chat.add(piece, seq, ts)

    def recall(self, said: str) -> str:
        """More has been said, of which nobody is told; returns it with the gap before it."""
        if not said:
            return ""
        piece = f"{_GAP}{said}" if self._has_gap else said
        self._has_gap = False
        self._length += len(piece)
        if self._is_whole and self._length <= MOST_TEXT:
            self._parts.append(piece)
        else:
            self._said = ""
            self._parts.clear()
        return piece


EVENTS = (
    *("agent", "chat", "tick", "shutdown", "sessions.changed", "session.message"),
    *("exec.approval.requested", "exec.approval.resolved"),
)
"""What a peer may hear, beside ``connect.challenge``."""

KINDS = (
    *("run:start", "text_chunk", "text_snapshot", "tool:start", "tool:update", "tool:end", "tool:error"),
    *("run:accepted", *CHANGES),
    *("compaction:start", "compaction:end", "error", "done", "permission_required", "permission_decided"),
)
"""The gateway's events that they are made of."""

_TEXTS = frozenset({"text_chunk", "text_snapshot"})
_GAPS = frozenset({"tool:start", "compaction:end"})
_MOST_RUNS = 1000
"""Runs whose text is remembered: far more than run at a time, and each forgets its own at its end."""


_MOST_FAILURES = 64
"""Calls of one run whose failure is kept until their end, which usually follows at once."""


class _Event(msgspec.Struct, gc=False):
    seq: int
    ts: float
    session: str
    type: str
    run_id: str | None = None
    data: msgspec.Raw = EMPTY


class _Push(msgspec.Struct):
    events: list[_Event]


class _Piece(msgspec.Struct, gc=False):
    delta: str = ""
    text: str = ""


_Run = tuple[str, str]
_read_push = msgspec.json.Decoder(_Push)
_read_pieces = msgspec.json.Decoder(list[_Piece])


class Story:
    """``news_after``: events up to that seq are only remembered, so that what follows can be told with all its text."""

    def __init__(self, news_after: int) -> None:
        self._news_after = news_after
        self._texts: OrderedDict[_Run, RunText] = OrderedDict()
        self._waiting: dict[_Run, RunText] = {}
        """Those of which something is not told yet."""
        self._failures: dict[_Run, dict[str, _Event]] = {}
        """Failures that wait for the end of their call, by its id."""

    def take(self, data: bytes, now: float) -> list[Told]:
        """What to tell of a push ``{"events": [...]}`` of the gateway."""
        told: list[Told] = []
        for (session, run_id, is_text), group in groupby(_read_push.decode(data).events, _thread):
            if not run_id:
                told += self._of_sessions(list(group))
                continue
            if is_text:
                self._say((session, run_id), list(group))
            else:
                for event in group:
                    told += self._single((session, run_id), event, now)
        return [*told, *self.flush(now)]

    def flush(self, now: float) -> list[Told]:
        """What has waited for its time, which has come."""
        told: list[Told] = []
        for run, text in list(self._waiting.items()):
            if text.agent.due_at <= now:
                told.append(_tell_agent(run, text, now))
            if text.chat.due_at <= now:
                told.append(_tell_chat(run, text, now))
            if text.agent.due_at == text.chat.due_at == math.inf:
                del self._waiting[run]
        return told

    @property
    def next_due(self) -> float:
        """When ``flush`` has something to tell; infinite where nothing waits."""
        return min((min(text.agent.due_at, text.chat.due_at) for text in self._waiting.values()), default=math.inf)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _say(self, run: _Run, events: list[_Event]) -> None:
        text = self._texts.get(run) or self._remember(run, is_whole=False)
        old = [event for event in events if event.seq <= self._news_after]
        text.recall(_join(old))
        new = events[len(old) :]
        said = _join(new)
        if said:
            text.add(said, new[-1].seq, new[-1].ts)
            self._waiting[run] = text

    def _remember(self, run: _Run, *, is_whole: bool) -> RunText:
        text = self._texts[run] = RunText(is_whole=is_whole)
        if len(self._texts) > _MOST_RUNS:
            oldest, _ = self._texts.popitem(last=False)
            self._waiting.pop(oldest, None)
            self._failures.pop(oldest, None)
        return text

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _of_sessions(self, events: list[_Event]) -> Iterator[Told]:
        """Changes of sessions; the protocol has no other events outside runs."""
        for event in events:
            if event.seq > self._news_after and event.type in CHANGES:
                yield change(Moment(event.session, "", event.seq, event.ts), event.type, event.data)

    # --- all else -----------------------------------------------------------------------------------------------------

    def _single(self, run: _Run, event: _Event, now: float) -> Iterator[Told]:
        text = self._remember(run, is_whole=True) if event.type == "run:start" else self._texts.get(run)
        if event.seq > self._news_after:
            yield from self._tell(run, event, text, now)
        if event.type == "done":
            self._failures.pop(run, None)
            self._texts.pop(run, None)
            self._waiting.pop(run, None)
        elif text is not None and event.type in _GAPS:
            text.gap()

    def _tell(self, run: _Run, event: _Event, text: RunText | None, now: float) -> Iterable[Told]:
        if text is not None and text.agent.due_at < math.inf:
            yield _tell_agent(run, text, now)
        if event.type == "tool:error":
            yield from self._fail(run, event)
        elif event.type == "tool:end":
            failure = self._failures.get(run, {}).pop(call_id_of(event.data), None)
            error = None if failure is None else error_of(failure.data)
            yield tool_result(_moment(run, event), event.data, error)
        else:
            if event.type == "done":
                for failure in self._failures.get(run, {}).values():
                    yield tool_result(_moment(run, failure), failure.data)
            yield from picture(_moment(run, event), event.type, event.data, None if text is None else text.whole)
            if event.type in MESSAGES:
                yield from message(_moment(run, event), event.type, event.data)

    def _fail(self, run: _Run, event: _Event) -> Iterator[Told]:
        """Keep a failure until the call's end; with too many, the oldest becomes a result now."""
        if run not in self._texts:
            self._remember(run, is_whole=False)
        failures = self._failures.setdefault(run, {})
        failures[call_id_of(event.data)] = event
        if len(failures) > _MOST_FAILURES:
            oldest = failures.pop(next(iter(failures)))
            yield tool_result(_moment(run, oldest), oldest.data)


def _thread(event: _Event) -> tuple[str, str, bool]:
    return event.session, event.run_id or "", event.type in _TEXTS


def _moment(run: _Run, event: _Event) -> Moment:
    return Moment(*run, event.seq, event.ts)


def _join(events: list[_Event]) -> str:
    pieces = _read_pieces.decode(b"[%b]" % b",".join([event.data for event in events]))
    return "".join([piece.delta or piece.text for piece in pieces])


def _tell_agent(run: _Run, text: RunText, now: float) -> Told:
    whole, waiting = text.whole, text.agent
    return assistant(Moment(*run, waiting.seq, waiting.ts), waiting.take(now, len(whole or "")), whole)


def _tell_chat(run: _Run, text: RunText, now: float) -> Told:
    whole, waiting = text.whole, text.chat
    return chat_delta(Moment(*run, waiting.seq, waiting.ts), waiting.take(now, len(whole or "")), whole)
