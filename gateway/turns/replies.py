"""What of a turn is shown: tool summaries, silent answers, the parts of a reply and its end. Pure.

``ReplyShaper`` takes what one run says and does, in order, and returns what is to be delivered: parts of the answer as
soon as they are complete, where the channel wants parts, and the reply at its end. Files are looked at by the ``check``
that ``attach_media`` is given. The stream of text pieces passes ``NoReplyFilter`` only.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from gateway.turns.media import Media, extract_media
from wire.messages import ToolCallView

MESSAGING_TOOLS = frozenset({"message", "send_message", "reply"})
"""Tools that deliver a text themselves, so that the reply need not repeat it."""
NO_REPLY = "NO_REPLY"
"""The whole answer of an agent that has nothing to say."""

_MAX_WHITESPACE = 256
_MAX_SUMMARIES = 50
_MAX_SUMMARY_CHARS = 160
_MAX_ERROR_CHARS = 200
_MAX_FAILED_CALLS = 64
_FAILED_STATES: Mapping[str, str] = {
    "FAILED": "no reason was given",
    "DENIED": "it was not allowed",
    "SEALED": "it was interrupted",
}
"""States in which a call may end without an error of its own; the text for each."""
_CONTENT_KEYS = frozenset({"text", "message", "content", "action"})


_decode = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def is_silent(text: str) -> bool:
    """Whether the text is ``NO_REPLY`` and nothing else but white space."""
    return text.strip() == NO_REPLY


class NoReplyFilter:
    """Holds back the beginning of a streamed text for as long as it may still turn out to be ``NO_REPLY``.

    What it holds is bounded: of white space that could be part of a silent answer, 256 characters a side are kept. Once
    a piece has shown that the text is an answer, everything passes untouched.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_open = False

    def push(self, pieces: list[msgspec.Raw]) -> list[msgspec.Raw]:
        """The pieces that may be shown now; each is a JSON string."""
        if self._is_open:
            return pieces
        for index, piece in enumerate(pieces):
            text = self._held + _decode(piece)
            begun = text.strip()
            if not (NO_REPLY.startswith(text.lstrip()) or begun == NO_REPLY):
                self._held, self._is_open = "", True
                return [msgspec.Raw(_encode(text)), *pieces[index + 1 :]]
            start = text.find(begun) if begun else len(text)
            self._held = text[:start][-_MAX_WHITESPACE:] + begun + text[start + len(begun) :][:_MAX_WHITESPACE]
        return []

    def end(self) -> list[msgspec.Raw]:
        """The text has ended: what was held back and is an answer after all. The next piece begins a new text."""
        text, self._held, self._is_open = self._held, "", False
        return [] if not text or text.isspace() or is_silent(text) else [msgspec.Raw(_encode(text))]


class ToolSummaries:
    """A line for each tool call of a run, from its end.

    Attributes:
        failure: text of the latest failure; empty once the same tool has succeeded since.
        has_delivered: whether a messaging tool has delivered a text to this conversation, as far as is known.
    """

    def __init__(self) -> None:
        self.failure = ""
        self.has_delivered = False
        self._failed_tool: str | None = None
        self._failed_calls: dict[str, None] = {}
        """Ids of calls whose error was reported and whose end was not; the latest last."""
        self._lines: list[str] = []
        self._dropped = 0

    def on_tool_end(self, call: ToolCallView, error: str | None, *, keep_note: bool) -> str | None:
        """A call has ended; returns the text that it has delivered to this conversation, where the event has it.

        A failed call may be reported twice, as an error and as an end; the second adds nothing.
        """
        name = call.name or "a tool"
        if error is None and call.id in self._failed_calls:
            del self._failed_calls[call.id]
            return None
        if error is not None:
            self._expect_end(call.id)
        else:
            error = _FAILED_STATES.get(call.state)
        self._update_failure(name, error)
        if keep_note:
            self._add_line(_summary_line(call, name, error))
        if error is not None or name not in MESSAGING_TOOLS:
            return None
        to_here, text = _read_delivery(call)
        self.has_delivered = self.has_delivered or to_here
        return text

    def drain(self) -> list[str]:
        """Take the lines so far, as one text; the last says how many were left out."""
        notes, left_out = self._lines, self._dropped
        self._lines, self._dropped = [], 0
        text = "\n".join([*notes, f"[and {left_out} more tool calls]"] if left_out else notes)
        return [text] if text else []

    def _expect_end(self, call_id: str) -> None:
        self._failed_calls[call_id] = None
        if len(self._failed_calls) > _MAX_FAILED_CALLS:
            del self._failed_calls[next(iter(self._failed_calls))]

    def _update_failure(self, name: str, error: str | None) -> None:
        if error is not None:
            self._failed_tool, self.failure = name, f"{name} failed: {_single_line(error, _MAX_ERROR_CHARS)}"
        elif self._failed_tool == name:
            self._failed_tool, self.failure = None, ""

    def _add_line(self, note: str) -> None:
        if len(self._lines) < _MAX_SUMMARIES:
            self._lines.append(note)
        else:
            self._dropped += 1


def _summary_line(call: ToolCallView, name: str, error: str | None) -> str:
    took = "" if call.duration_ms is None else f" ({call.duration_ms / 1000:.1f} s)"
    what = f"{name} {call.input_preview}".strip()
    return _single_line(f"[{what}]{took}" if error is None else f"[{what}]{took} failed: {error}", _MAX_SUMMARY_CHARS)


def _single_line(text: str, most: int) -> str:
    """One line of at most ``most`` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _read_delivery(call: ToolCallView) -> tuple[bool, str | None]:
    """Whether a messaging call went to this conversation, and its text.

    An input that names an address went elsewhere. A preview that was cut off has no text: a text that is shown twice is
    better than one that is not shown.
    """
    try:
        given = msgspec.json.decode(call.input_preview)
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, dict):
        return True, None
    if not given.keys() <= _CONTENT_KEYS:
        return False, None
    texts = (given.get(name) for name in ("text", "message", "content"))
    return True, next((text for text in texts if isinstance(text, str)), None)


_MAX_REASONING_CHARS = 20_000
_MAX_PART_CHARS = 256 * 1024
"""Characters; a longer stretch of text is delivered in several parts."""
_MAX_SENT_TEXTS = 50


class Blocks(StrEnum):
    """Whether a channel wants answers in parts, each as soon as it is complete."""

    OFF = "off"
    TEXT_END = "text_end"
    """Whenever a stretch of text ends: at a thought, a tool call, the end of the run."""
    MESSAGE_END = "message_end"
    """Whenever a message of the model ends: at its tool calls, or at the end of the run."""


class ReplyStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is wanted."""

    verbose: bool = False
    """Show a line for each tool call."""
    reasoning: bool = False
    """Show what the model thought."""
    blocks: Blocks = Blocks.OFF


class ReplyPartKind(StrEnum):
    """What a part of an answer is made of."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


class ReplyPart(msgspec.Struct, frozen=True):
    """A part of the answer to be delivered now. Its text may hold ``MEDIA:`` lines, see ``attach_media``."""

    text: str
    kind: ReplyPartKind = ReplyPartKind.TEXT


class ReplyContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be delivered. ``silent``: nothing is, and that is as it should be."""

    text: str = ""
    media: tuple[Media, ...] = ()
    silent: bool = False


class FinalReply(NamedTuple):
    """The end of an answer. Both are one where no part was delivered."""

    remainder: ReplyContent
    """For the run that leads the turn: it was given the parts."""
    full: ReplyContent
    """For the runs that were merged or steered into it."""


class ReplyShaper:
    """The reply of one run: give it everything that it wants, then ``finish`` it once."""

    def __init__(self, style: ReplyStyle) -> None:
        self._style = style
        self.wants_text = style.blocks is not Blocks.OFF
        """Whether it needs the text, which only parts are made of."""
        self.wants_reasoning = style.reasoning or self.wants_text
        """Whether it needs what the model thinks."""
        self._tools = ToolSummaries()
        self._pending: list[str] = []
        """The text that was not yet delivered."""
        self._pending_size = 0
        self._reasoning = ""
        self._sent: dict[str, None] = {}
        """What messaging tools have sent, with normalized white space, the latest last."""
        self._last_part = ""
        """The latest part of text that was delivered, with normalized white space."""

    def add_text(self, piece: str) -> list[ReplyPart]:
        """Take a piece of text, as the model said it."""
        parts = self._reasoning_as_part()
        self._pending.append(piece)
        self._pending_size += len(piece)
        return parts if self._pending_size < _MAX_PART_CHARS else [*parts, *self._end_text()]

    def add_reasoning(self, piece: str) -> list[ReplyPart]:
        """Take a piece of what the model thinks."""
        parts = self._end_text() if self._style.blocks is Blocks.TEXT_END else []
        if self._style.reasoning and len(self._reasoning) < _MAX_REASONING_CHARS:
            self._reasoning += piece[: _MAX_REASONING_CHARS - len(self._reasoning)]
        return parts

    def add_event(self, type_: str, data: Mapping[str, Any]) -> list[ReplyPart]:
        """Take an event as it is published; types that do not concern the reply are ignored."""
        match type_:
            case "tool:start":
                return self._end_message()
            case "tool:end":
                return self._on_tool_end(data["call"], error=None)
            case "tool:error":
                return self._on_tool_end(data["call"], error=data.get("error") or "it failed")
            case "compaction:end":
                self._on_compaction_end(data)
        return []

    def finish(self, final_text: str) -> FinalReply:
        """The run has ended with this text (``done``). Its files are not looked at yet, see ``attach_media``."""
        left = "".join(self._pending)
        notes = [*([self._reasoning_text()] if self._reasoning else []), *self._tools.drain()]
        whole = self._reply(final_text, notes, is_all=True)
        if not self._last_part:
            return FinalReply(whole, whole)
        if not left.strip():
            left = "" if normalize_whitespace(final_text).endswith(self._last_part) else final_text
        return FinalReply(self._reply(left, notes, is_all=False), whole)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _reply(self, text: str, notes: list[str], *, is_all: bool) -> ReplyContent:
        """``is_all``: nothing was delivered before it. A failed tool is reported only where there is no other text."""
        failure = self._tools.failure if is_all and not self._tools.has_delivered else ""
        if is_silent(text):
            return ReplyContent(text=failure, silent=not failure)
        parts = [*notes, "" if self._sent and normalize_whitespace(text) in self._sent else text]
        if not text.strip():
            parts.append(failure)
        shown = "\n\n".join(part for part in parts if part.strip())
        return ReplyContent(text=shown, silent=not shown)

    def _pop_pending(self) -> str:
        text = "".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        return text

    def _end_message(self) -> list[ReplyPart]:
        return [*self._reasoning_as_part(), *self._end_text()]

    def _end_text(self) -> list[ReplyPart]:
        text = self._pop_pending().strip()
        if not text or is_silent(text):
            return []
        self._last_part = normalize_whitespace(text)
        return [ReplyPart(text)]

    def _on_tool_end(self, call: object, *, error: str | None) -> list[ReplyPart]:
        sent = self._tools.on_tool_end(msgspec.convert(call, ToolCallView), error, keep_note=self._style.verbose)
        if sent is not None:
            self._record_sent(sent)
        if self._style.blocks is Blocks.OFF:
            return []
        return [ReplyPart(note, ReplyPartKind.TOOL) for note in self._tools.drain()]

    def _record_sent(self, text: str) -> None:
        """A messaging tool has delivered this text here: it need not be delivered again as the final one."""
        text = normalize_whitespace(text)
        if not text:
            return
        self._sent.pop(text, None)
        self._sent[text] = None
        if len(self._sent) > _MAX_SENT_TEXTS:
            del self._sent[next(iter(self._sent))]

    def _reasoning_as_part(self) -> list[ReplyPart]:
        if self._style.blocks is Blocks.OFF or not self._reasoning.strip():
            return []
        text, self._reasoning = self._reasoning_text(), ""
        return [ReplyPart(text, ReplyPartKind.REASONING)]

    def _reasoning_text(self) -> str:
        return f"Reasoning:\n{self._reasoning.strip()}" if self._reasoning.strip() else ""

    def _on_compaction_end(self, data: Mapping[str, Any]) -> None:
        """After a compaction for want of room the model is asked again: what it said before is not its answer."""
        if data.get("reason") == "overflow" and not (data.get("aborted") or data.get("error")):
            has_spoken, self._tools = self._tools.has_delivered, ToolSummaries()
            self._tools.has_delivered = has_spoken
            self._pop_pending()
            self._reasoning = ""


def attach_media(reply: ReplyContent, check: Callable[[str], Media | None]) -> ReplyContent:
    """The reply with its files beside the text. ``check`` looks at files (see ``check_media``): call it in a thread."""
    text, media = extract_media(reply.text, check)
    if media and is_silent(text):
        text = ""
    return ReplyContent(text=text, media=tuple(media), silent=reply.silent)


def normalize_whitespace(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())
