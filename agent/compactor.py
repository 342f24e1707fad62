"""Shortens a conversation: the model summarises its beginning, and the summary replaces that."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import trio

from agent.conversation import Conversation
from agent.hooks import CompactionInfo
from agent.models.base import ModelError, ModelRequest, Piece, TextPiece
from agent.models.retry import ask_with_retries
from agent.sanitize import estimate_tokens
from agent.toolbox import Toolbox
from wire.entries import TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

KEPT_TURNS = 2
_TITLE = "[Summary of the conversation so far]"
_MESSAGE_CHARS = 4_000
_CALL_CHARS = 400

SUMMARY_SYSTEM_PROMPT = (
    "You summarise conversations between a user and a coding agent, so that the agent can go on from the summary "
    "alone. Keep: what the user wants, decisions and their reasons, what was done and found out, names of files, "
    "what is left to do. Write plainly and briefly; answer with the summary only."
)


def plan_cut(messages: Sequence[TranscriptMessage], keep_tokens: int | None = None) -> int | None:
    """The index of the first message that is kept as it is; None when nothing old is there to be summarised.

    The last two turns are kept. With ``keep_tokens`` less is kept where these are longer: the last turn, or the end of
    it; a cut never lies between a tool call and its result.
    """
    first = 1 if messages and messages[0].origin == "summary" else 0
    starts = [
        index
        for index, message in enumerate(messages)
        if message.role == "user" and message.origin in {"prompt", "follow_up"}
    ]
    if keep_tokens is None:
        return starts[-KEPT_TURNS] if len(starts) > KEPT_TURNS else None
    turns = starts[-KEPT_TURNS:]
    inside = [index for index in _inner_cuts(messages) if not turns or index > turns[-1]]
    cuts = [index for index in [*turns, *inside] if index > first]
    return next((cut for cut in cuts if estimate_tokens(messages[cut:]) <= keep_tokens), cuts[-1] if cuts else None)


def _inner_cuts(messages: Sequence[TranscriptMessage]) -> Iterator[int]:
    """Before each answer of the model at which no call is open."""
    pending: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "assistant" and not pending:
            yield index
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                pending.add(block.id)
            elif isinstance(block, ToolResultBlock):
                pending.discard(block.tool_use_id)


def summary_prompt(
    messages: Sequence[TranscriptMessage], instructions: str | None, most_chars: int
) -> TranscriptMessage:
    """What the model is asked; of a very long conversation, its end."""
    lines = [line for message in messages for line in _lines(message)]
    shown: list[str] = []
    for line in reversed(lines):
        most_chars -= len(line) + 1
        if most_chars < 0 and shown:
            shown.append(f"({len(lines) - len(shown)} older lines left out)")
            break
        shown.append(line)
    wish = f" ({instructions})" if instructions else ""
    return TranscriptMessage("user", [TextBlock("\n".join([f"Summarise this conversation{wish}:", *reversed(shown)]))])


def summary_of(text: str) -> str:
    """The summary as it stands in the conversation."""
    return f"{_TITLE}\n{text.strip()}"


def _lines(message: TranscriptMessage) -> Iterator[str]:
    """One line a block, but of an earlier summary its own lines."""
    if message.origin == "summary":
        yield from message.text.removeprefix(f"{_TITLE}\n").split("\n")
        return
    for block in message.content:
        match block:
            case TextBlock(text) if text.strip():
                yield f"{message.role}: {_one_line(text, _MESSAGE_CHARS)}"
            case ToolUseBlock(_, name, given):
                yield f"call: {name} {_one_line(msgspec.json.encode(given).decode(), _CALL_CHARS)}"
            case ToolResultBlock(_, content):
                yield f"result: {_one_line(msgspec.json.encode(content).decode(), _CALL_CHARS)}"
            case _:
                pass  # thinking and images are left out


def _one_line(text: str, most: int) -> str:
    flat = " ".join(text[: 4 * most].split())
    return flat if len(flat) <= most and len(text) <= 4 * most else f"{flat[:most]}..."


CompactionReason: TypeAlias = Literal["manual", "threshold", "overflow"]
_Emit: TypeAlias = Callable[[str, dict[str, Any]], Any]

_MIN_CHARS = 1_000
"""If the model cannot read even this much, the compaction fails."""


class CompactionFailed(Exception):
    """There is no summary and the conversation is unchanged; the message says why."""


class Compactor:
    """``running`` while it works; ``was_cancelled``: the last compaction was cancelled."""

    def __init__(self, toolbox: Toolbox, timeout: float) -> None:
        self._toolbox = toolbox
        self._timeout = timeout
        self.running = False
        self.was_cancelled = False

    async def compact(
        self,
        conversation: Conversation,
        emit: _Emit,
        reason: CompactionReason,
        *,
        instructions: str | None = None,
        keep_tokens: int | None = None,
    ) -> str | None:
        """Compact; the summary, or None when nothing is old enough. ``keep_tokens`` is for ``plan_cut``.

        Emits ``compaction{phase, reason, aborted?, error?}``. Raises CompactionFailed or TranscriptError.
        """
        cut = plan_cut(conversation.messages, keep_tokens)
        if cut is None:
            return None
        self.running, self.was_cancelled = True, False
        emit("compaction", {"phase": "start", "reason": reason})
        end: dict[str, Any] = {"aborted": True}
        try:
            summary = await self._compact(conversation, cut, instructions, emit)
            end = {}
        except CompactionFailed as exc:
            end = {"error": str(exc)}
            raise
        except trio.Cancelled:
            self.was_cancelled = True
            raise
        finally:
            self.running = False
            emit("compaction", {"phase": "end", "reason": reason, **end})
        return summary

    async def _compact(self, conversation: Conversation, cut: int, instructions: str | None, emit: _Emit) -> str:
        hooks = self._toolbox.hooks
        await hooks.notify("before_compaction", CompactionInfo(len(conversation.messages), instructions))
        summary = summary_of(await self._summarise(conversation.messages[:cut], instructions, emit))
        await conversation.compact(summary, cut)
        await hooks.notify("after_compaction", CompactionInfo(len(conversation.messages), instructions, summary))
        return summary

    async def _summarise(self, messages: list[TranscriptMessage], instructions: str | None, emit: _Emit) -> str:
        """A summary of all, or of as much of the end as the model can read."""
        most_chars = 2 * self._toolbox.context_tokens
        with trio.move_on_after(self._timeout):
            while True:
                prompt = summary_prompt(messages, instructions, most_chars=most_chars)
                try:
                    text = await self._ask_model(prompt, emit)
                except ModelError as exc:
                    most_chars = len(prompt.text) // 2
                    if not exc.overflow or most_chars < _MIN_CHARS:
                        raise CompactionFailed(f"the conversation could not be summarised: {exc}") from exc
                    continue
                if not text.strip():
                    raise CompactionFailed("the conversation could not be summarised: the model said nothing")
                return text
        raise CompactionFailed(f"the conversation could not be summarised within {self._timeout:g} s")

    async def _ask_model(self, prompt: TranscriptMessage, emit: _Emit) -> str:
        request = ModelRequest("summary", [prompt], system_prompt=SUMMARY_SYSTEM_PROMPT, purpose="summary")
        parts: list[str] = []

        async def take(piece: Piece) -> None:
            if isinstance(piece, TextPiece):
                parts.extend(piece.parts)

        await ask_with_retries(self._toolbox.model, request, take, emit)
        return "".join(parts)
