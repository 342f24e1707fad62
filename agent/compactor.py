"""Shortens a conversation: the model summarises its beginning, and the summary replaces that."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

import trio

from agent.conversation import Conversation
from agent.history.compaction import SUMMARY_SYSTEM_PROMPT, plan_cut, summary_of, summary_prompt
from agent.hooks import CompactionInfo
from agent.models.base import ModelError, ModelRequest, TextPiece
from agent.models.retry import stream_with_retries
from agent.toolbox import Toolbox
from wire.entries import TranscriptMessage

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
        async with aclosing(stream_with_retries(self._toolbox.model, request, emit)) as pieces:
            return "".join([part async for piece in pieces if isinstance(piece, TextPiece) for part in piece.parts])
