"""From the gateway's events to the protocol's, for all runs and all peers at once. Pure.

Text that comes at once becomes one event, and text before another event is sent before it. The failure and the end of a
tool call become one result; a failure without an end is sent at the end of its run.

``agent`` events bear what is new, at most 40 a second. They and ``chat`` events repeat the whole text so far, which a
reader that lost one needs and many clients show. To keep an answer of n characters from costing n * n, a repetition of
n characters delays the next one by 30 n microseconds: an ``agent`` event goes without it until then, a ``chat`` event
waits. The last event before a tool call or the end of the run has it in any case. A text above ``MOST_TEXT`` is not
repeated.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from doors.websocket.events import (
    MESSAGE_EVENTS,
    SESSION_CHANGE_REASONS,
    EventContext,
    OutboundEvent,
    assistant_delta,
    call_id_of,
    chat_delta,
    error_of,
    session_changed,
    session_message,
    tool_result,
    translate,
)
from wire.events import ANSWER_TEXT_EVENTS
from wire.messages import EMPTY
from wire.run_text import PARAGRAPH_EVENTS, TextAssembler, joined_text

MOST_TEXT = 256 * 1024
"""Characters; a run's ``done`` holds as many."""
CHAT_SECONDS = 0.15
_AGENT_SECONDS = 1 / 40
_SECONDS_PER_REPEATED_CHAR = 30e-6


class PendingDelta:
    """The text that one kind of events has not sent yet, and when it may.

    ``needs_whole``: an event without the whole text is of no use to its readers.
    """

    def __init__(self, pause: float, *, needs_whole: bool) -> None:
        self._pause = pause
        self._needs_whole = needs_whole
        self._parts: list[str] = []
        self._next_at = self._repeat_at = -math.inf
        self.owes_whole = False
        """The latest event went without the whole text."""
        self.seq = 0
        """The last event of the gateway whose text waits, or was sent."""
        self.ts = 0.0

    @property
    def due_at(self) -> float:
        """When the waiting text may be sent; infinite where none waits."""
        return self._next_at if self._parts else math.inf

    def add(self, piece: str, seq: int, ts: float) -> None:
        """Take more text."""
        self._parts.append(piece)
        self.seq, self.ts = seq, ts

    def flush(self, now: float, whole: str | None, *, is_end: bool = False) -> tuple[str, str | None]:
        """Take the waiting text to send it now, and the whole text where that is to go with it."""
        delta = "".join(self._parts)
        self._parts.clear()
        self._next_at = now + self._pause
        self.owes_whole = whole is not None and now < self._repeat_at and not is_end
        if whole is None or self.owes_whole:
            return delta, None
        self._repeat_at = now + _SECONDS_PER_REPEATED_CHAR * len(whole)
        if self._needs_whole:
            self._next_at = max(self._next_at, self._repeat_at)
        return delta, whole


class RunText:
    """The text of one run. ``is_whole``: known from its beginning."""

    def __init__(self, *, is_whole: bool) -> None:
        self.agent = PendingDelta(_AGENT_SECONDS, needs_whole=False)
        self.chat = PendingDelta(CHAT_SECONDS, needs_whole=True)
        self._is_whole = is_whole
        self._text = ""
        self._parts: list[str] = []
        self._assembler = TextAssembler()

    @property
    def full_text(self) -> str | None:
        """The whole text; None where it is not known, or too long."""
        if not self._is_whole or self._assembler.length > MOST_TEXT:
            return None
        if self._parts:
            self._text += "".join(self._parts)
            self._parts.clear()
        return self._text

    def break_paragraph(self) -> None:
        """The next text begins a new paragraph."""
        self._assembler.break_paragraph()

    def add(self, said: str, seq: int, ts: float) -> None:
        """Take text to be sent."""
        piece = self.record(said)
        self.agent.add(piece, seq, ts)
        self.chat.add(piece, seq, ts)

    def record(self, said: str) -> str:
        """Take text without telling it; returns it with the break before it."""
        piece = self._assembler.add(said)
        if self._is_whole and self._assembler.length <= MOST_TEXT:
            self._parts.append(piece)
        else:
            self._text = ""
            self._parts.clear()
        return piece


EVENT_NAMES = (
    *("agent", "chat", "tick", "shutdown", "sessions.changed", "session.message"),
    *("exec.approval.requested", "exec.approval.resolved"),
)
"""The events that a peer may receive, beside ``connect.challenge``."""

GATEWAY_EVENT_TYPES = (
    *("run:start", *sorted(ANSWER_TEXT_EVENTS), "tool:start", "tool:update", "tool:end", "tool:error"),
    *("run:accepted", *SESSION_CHANGE_REASONS),
    *("compaction:start", "compaction:end", "error", "done", "permission_required", "permission_decided"),
)
"""The gateway's events that they are made from."""

_MOST_RUNS = 1000
"""Runs whose text is remembered: far more than run at a time, and each forgets its own at its end."""


_MOST_FAILURES = 64
"""Calls of one run whose failure is kept until their end, which usually follows at once."""


class _GatewayEvent(msgspec.Struct, gc=False):
    seq: int
    ts: float
    session: str
    type: str
    run_id: str | None = None
    data: msgspec.Raw = EMPTY


class _GatewayPush(msgspec.Struct):
    events: list[_GatewayEvent]


_RunKey = tuple[str, str]
_read_push = msgspec.json.Decoder(_GatewayPush)


class EventTranslator:
    """``news_after``: events up to that seq are only recorded, so that later ones can be sent with the whole text."""

    def __init__(self, news_after: int) -> None:
        self._emit_after = news_after
        self._texts: OrderedDict[_RunKey, RunText] = OrderedDict()
        self._pending: dict[_RunKey, RunText] = {}
        """Runs with text that is not sent yet."""
        self._failures: dict[_RunKey, dict[str, _GatewayEvent]] = {}
        """Failures that wait for the end of their call, by its id."""

    def translate(self, data: bytes, now: float) -> list[OutboundEvent]:
        """The events to send for a push ``{"events": [...]}`` of the gateway."""
        found: list[OutboundEvent] = []
        for (session, run_id, is_text), group in groupby(_read_push.decode(data).events, _group_key):
            if not run_id:
                found += self._translate_session_events(list(group))
                continue
            if is_text:
                self._add_text((session, run_id), list(group))
            else:
                for event in group:
                    found += self._translate_run_event((session, run_id), event, now)
        return [*found, *self.flush(now)]

    def flush(self, now: float) -> list[OutboundEvent]:
        """The events whose time has come."""
        found: list[OutboundEvent] = []
        for run, text in list(self._pending.items()):
            if text.agent.due_at <= now:
                found.append(_flush_agent(run, text, now))
            if text.chat.due_at <= now:
                found.append(_flush_chat(run, text, now))
            if text.agent.due_at == text.chat.due_at == math.inf:
                del self._pending[run]
        return found

    @property
    def next_due(self) -> float:
        """When ``flush`` has something to send; infinite where nothing waits."""
        return min((min(text.agent.due_at, text.chat.due_at) for text in self._pending.values()), default=math.inf)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _add_text(self, run: _RunKey, events: list[_GatewayEvent]) -> None:
        text = self._texts.get(run) or self._track_run(run, is_whole=False)
        old = [event for event in events if event.seq <= self._emit_after]
        text.record(joined_text([event.data for event in old]))
        new = events[len(old) :]
        said = joined_text([event.data for event in new])
        if said:
            text.add(said, new[-1].seq, new[-1].ts)
            self._pending[run] = text

    def _track_run(self, run: _RunKey, *, is_whole: bool) -> RunText:
        text = self._texts[run] = RunText(is_whole=is_whole)
        if len(self._texts) > _MOST_RUNS:
            oldest, _ = self._texts.popitem(last=False)
            self._pending.pop(oldest, None)
            self._failures.pop(oldest, None)
        return text

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _translate_session_events(self, events: list[_GatewayEvent]) -> Iterator[OutboundEvent]:
        """Changes of sessions; the protocol has no other events outside runs."""
        for event in events:
            if event.seq > self._emit_after and event.type in SESSION_CHANGE_REASONS:
                yield session_changed(EventContext(event.session, "", event.seq, event.ts), event.type, event.data)

    # --- all else -----------------------------------------------------------------------------------------------------

    def _translate_run_event(self, run: _RunKey, event: _GatewayEvent, now: float) -> Iterator[OutboundEvent]:
        text = self._track_run(run, is_whole=True) if event.type == "run:start" else self._texts.get(run)
        if event.seq > self._emit_after:
            yield from self._emit(run, event, text, now)
        if event.type == "done":
            self._failures.pop(run, None)
            self._texts.pop(run, None)
            self._pending.pop(run, None)
        elif text is not None and event.type in PARAGRAPH_EVENTS:
            text.break_paragraph()

    def _emit(self, run: _RunKey, event: _GatewayEvent, text: RunText | None, now: float) -> Iterable[OutboundEvent]:
        if text is not None and (text.agent.due_at < math.inf or text.agent.owes_whole):
            yield _flush_agent(run, text, now, is_end=True)
        if event.type == "tool:error":
            yield from self._defer_failure(run, event)
        elif event.type == "tool:end":
            failure = self._failures.get(run, {}).pop(call_id_of(event.data), None)
            error = None if failure is None else error_of(failure.data)
            yield tool_result(_event_context(run, event), event.data, error)
        else:
            if event.type == "done":
                for failure in self._failures.get(run, {}).values():
                    yield tool_result(_event_context(run, failure), failure.data)
            yield from translate(
                _event_context(run, event), event.type, event.data, None if text is None else text.full_text
            )
            if event.type in MESSAGE_EVENTS:
                yield from session_message(_event_context(run, event), event.type, event.data)

    def _defer_failure(self, run: _RunKey, event: _GatewayEvent) -> Iterator[OutboundEvent]:
        """Keep a failure until the call's end; with too many, the oldest becomes a result now."""
        if run not in self._texts:
            self._track_run(run, is_whole=False)
        failures = self._failures.setdefault(run, {})
        failures[call_id_of(event.data)] = event
        if len(failures) > _MOST_FAILURES:
            oldest = failures.pop(next(iter(failures)))
            yield tool_result(_event_context(run, oldest), oldest.data)


def _group_key(event: _GatewayEvent) -> tuple[str, str, bool]:
    return event.session, event.run_id or "", event.type in ANSWER_TEXT_EVENTS


def _event_context(run: _RunKey, event: _GatewayEvent) -> EventContext:
    return EventContext(*run, event.seq, event.ts)


def _flush_agent(run: _RunKey, text: RunText, now: float, *, is_end: bool = False) -> OutboundEvent:
    waiting = text.agent
    return assistant_delta(
        EventContext(*run, waiting.seq, waiting.ts), *waiting.flush(now, text.full_text, is_end=is_end)
    )


def _flush_chat(run: _RunKey, text: RunText, now: float) -> OutboundEvent:
    waiting = text.chat
    return chat_delta(EventContext(*run, waiting.seq, waiting.ts), *waiting.flush(now, text.full_text))
