"""What of a turn is shown, and in which form: the gateway's manners between an agent's events and a channel.

``ReplyShaper`` takes the events of one run, in their order, under the names and with the data that the event bus
gives them, and says what to deliver: pieces while they stream, partial answers, the final reply. It touches nothing;
files are looked at by the ``check`` that ``finished`` is given.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gateway.media import Media, extract_media
from gateway.silence import HeldBack, is_silent
from gateway.tool_notes import ToolNotes
from wire.messages import ToolCallView

__all__ = ["Blocks", "Delta", "Output", "Partial", "PartialKind", "Reply", "ReplyShaper", "ReplyStyle", "finished"]

_LONGEST_REASONING = 20_000
_LARGEST_PART = 256 * 1024
"""Characters; a longer stretch of text is delivered in several parts."""
_MOST_SENT = 50


class Blocks(StrEnum):
    """Whether a channel wants answers in parts, each as soon as it is complete."""

    OFF = "off"
    TEXT_END = "text_end"
    """Whenever a stretch of text ends: at a thought, a tool call, the end of the run."""
    MESSAGE_END = "message_end"
    """Whenever a message of the model ends: at its tool calls, or at the end of the run."""


class ReplyStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How a session wants its answers."""

    verbose: bool = False
    """Say in a line each what the tools did."""
    reasoning: bool = False
    """Show what the model thought."""
    blocks: Blocks = Blocks.OFF


class Delta(msgspec.Struct, frozen=True):
    """The next piece of text for somebody who watches it being written."""

    text: str


class PartialKind(StrEnum):
    """What a partial answer is made of."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


class Partial(msgspec.Struct, frozen=True):
    """A part of the answer to be delivered now. Its text may hold ``MEDIA:`` lines, see ``finished``."""

    text: str
    kind: PartialKind = PartialKind.TEXT


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an answer: what is still to be delivered. ``silent``: nothing is, and that is as it should be."""

    text: str = ""
    media: tuple[Media, ...] = ()
    silent: bool = False


Output = Delta | Partial


class ReplyShaper:
    """The reply of one run while it comes into being: ``feed`` it every event, then ``finish`` it once.

    With answers in parts the parts take the place of the stream's pieces for whoever wants parts; both are told.
    """

    def __init__(self, style: ReplyStyle) -> None:
        self._style = style
        self._held = HeldBack()
        self._tools = ToolNotes()
        self._pending: list[str] = []
        """Where answers come in parts: the text that was not yet delivered, and its length."""
        self._pending_size = 0
        self._reasoning = ""
        self._sent: dict[str, None] = {}
        """What messaging tools have sent, white space evened out, the latest last."""
        self._last_part = ""
        """The latest part of text that was delivered, white space evened out."""
        self._handlers: dict[str, Callable[[Any], list[Output]]] = {
            "text_chunk": lambda data: self.feed_text(data["delta"]),
            "think_chunk": lambda data: self._think(data["delta"]),
            "tool:start": lambda _data: self._message_ends(),
            "tool:end": lambda data: self._tool_ended(data["call"], error=None),
            "tool:error": lambda data: self._tool_ended(data["call"], error=data.get("error") or "it failed"),
            "compaction:end": self._compacted,
        }

    def feed(self, type_: str, data: Mapping[str, Any]) -> list[Output]:
        """Take one event; what it lets be delivered. Types that say nothing about the reply are passed over."""
        handler = self._handlers.get(type_)
        return handler(data) if handler else []

    def feed_text(self, piece: str) -> list[Output]:
        """Take a piece of text: ``feed`` of a ``text_chunk`` for those who have it without its event."""
        shown = self._reasoning_as_part()
        shown += _deltas(self._held.push(piece))
        if self._style.blocks is not Blocks.OFF:
            self._pending.append(piece)
            self._pending_size += len(piece)
        return shown if self._pending_size < _LARGEST_PART else [*shown, *self._text_ends()]

    def note_sent(self, text: str) -> None:
        """A messaging tool has delivered this text here: it need not be delivered again as the final one."""
        text = evened_out(text)
        if not text:
            return
        self._sent.pop(text, None)
        self._sent[text] = None
        if len(self._sent) > _MOST_SENT:
            del self._sent[next(iter(self._sent))]

    def finish(self, final_text: str) -> tuple[list[Output], Reply]:
        """The run has ended with this text (``done``): the last pieces of the stream, and what is still to deliver.

        The reply's ``media`` are not looked at yet, see ``finished``.
        """
        outputs = _deltas(self._held.end())
        text = self._undelivered(final_text)
        if is_silent(text):
            return outputs, Reply(silent=True)
        was_sent = evened_out(text) in self._sent
        parts = [self._reasoning_text(), *self._tools.take(), "" if was_sent else text]
        if not (text.strip() or self._last_part):
            parts.append(self._tools.failure)
        shown = "\n\n".join(part for part in parts if part.strip())
        return outputs, Reply(text=shown, silent=not shown)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _undelivered(self, final_text: str) -> str:
        """With answers in parts, what no part has delivered; otherwise the run's own final text."""
        pending = self._take_pending()
        if not self._last_part:
            return final_text
        if pending.strip():
            return pending
        return "" if evened_out(final_text).endswith(self._last_part) else final_text

    def _take_pending(self) -> str:
        text = "".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        return text

    def _think(self, piece: str) -> list[Output]:
        outputs = self._text_ends() if self._style.blocks is Blocks.TEXT_END else []
        if self._style.reasoning and len(self._reasoning) < _LONGEST_REASONING:
            self._reasoning += piece[: _LONGEST_REASONING - len(self._reasoning)]
        return outputs

    def _message_ends(self) -> list[Output]:
        return [*_deltas(self._held.end()), *self._reasoning_as_part(), *self._text_ends()]

    def _text_ends(self) -> list[Output]:
        outputs, text = _deltas(self._held.end()), self._take_pending().strip()
        if text and not is_silent(text):
            self._last_part = evened_out(text)
            outputs.append(Partial(text))
        return outputs

    def _tool_ended(self, call: object, *, error: str | None) -> list[Output]:
        sent = self._tools.ended(msgspec.convert(call, ToolCallView), error, keep_note=self._style.verbose)
        if sent is not None:
            self.note_sent(sent)
        if self._style.blocks is Blocks.OFF:
            return []
        return [Partial(note, PartialKind.TOOL) for note in self._tools.take()]

    def _reasoning_as_part(self) -> list[Output]:
        if self._style.blocks is Blocks.OFF or not self._reasoning.strip():
            return []
        text, self._reasoning = self._reasoning_text(), ""
        return [Partial(text, PartialKind.REASONING)]

    def _reasoning_text(self) -> str:
        return f"Reasoning:\n{self._reasoning.strip()}" if self._reasoning.strip() else ""

    def _compacted(self, data: Mapping[str, Any]) -> list[Output]:
        """After a compaction for want of room the model is asked again: what it said before is not its answer."""
        if data.get("aborted") or data.get("error") or not (data.get("retry") or data.get("reason") == "overflow"):
            return []
        self._held = HeldBack()
        self._tools = ToolNotes()
        self._take_pending()
        self._reasoning = ""
        return []


def _deltas(text: str) -> list[Output]:
    return [Delta(text)] if text else []


def finished(reply: Reply, check: Callable[[str], Media | None]) -> Reply:
    """The reply with its files beside the text. ``check`` looks at files (see ``check_media``): call it in a thread.

    Partial answers go through it too, as ``Reply(text=partial.text)``.
    """
    text, media = extract_media(reply.text, check)
    if media and is_silent(text):
        text = ""
    return Reply(text=text, media=tuple(media), silent=reply.silent)


def evened_out(text: str) -> str:
    """The text without differences that nobody sees."""
    return " ".join(text.split())
