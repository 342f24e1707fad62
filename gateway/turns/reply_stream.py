"""The way out of a turn: its stream of text, the parts of its answer, the reply at its end; hooks have their say."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import trio

from gateway.events import EventBus, TextKind
from gateway.events.translate import TextPieces
from gateway.events.worker_events import PublishedEvent
from gateway.hook_runner import HookRunner
from gateway.hooks import Drop, HookMessage
from gateway.sessions.agent_profiles import ProfileCache
from gateway.turns.replies import FinalReply, ReplyContent, ReplyPart, attach_media
from gateway.turns.reply_filters import check_media
from gateway.turns.turn import Turn
from wire.messages import EventChannel, PromptResult

_SHAPING = ("tool:", "compaction:")
"""Events that a reply may have to show something of."""
_decode = msgspec.json.Decoder(str).decode


class ReplyStream:
    """Tells what turns say, in the order in which they say it.

    Whoever asked for parts is told each as a progress event ``reply`` of ``{kind, text, media?}``, as soon as it is
    complete. A part, and the reply at the end, pass the hooks ``message:sending`` before they are told and
    ``message:sent`` after.
    """

    def __init__(self, bus: EventBus, hooks: HookRunner, shelf: ProfileCache) -> None:
        self._bus = bus
        self._hooks = hooks
        self._profile_cache = shelf

    # --- while the turn goes on ---------------------------------------------------------------------------------------

    async def on_text(self, turn: Turn, said: TextPieces) -> None:
        """The worker has said something, or thought it."""
        is_text, shaper = said.type == "text_chunk", turn.shaper
        self._publish_text(turn, said.type, turn.no_reply_filter.push(said.pieces) if is_text else said.pieces)
        if shaper.wants_text if is_text else shaper.wants_reasoning:
            piece = "".join(map(_decode, said.pieces))
            await self._deliver(turn, shaper.add_text(piece) if is_text else shaper.add_reasoning(piece))

    async def on_event(self, turn: Turn, event: PublishedEvent) -> None:
        """Something has happened in the turn."""
        parts: list[ReplyPart] = []
        if event.type.startswith(_SHAPING):
            self._flush_text(turn)
            parts = turn.shaper.add_event(event.type, msgspec.to_builtins(event.data))
        if event.type == "tool:start":  # what was said is complete before it
            await self._deliver(turn, parts)
            parts = []
        self._publish(turn, event.channel, event.type, event.data)
        await self._deliver(turn, parts)

    def _publish_text(self, turn: Turn, type_: TextKind, pieces: list[msgspec.Raw]) -> None:
        if turn.leader.request.is_quiet:
            return
        self._bus.publish_text(turn.session, type_, pieces, run_id=turn.leader.request.run_id)

    def _flush_text(self, turn: Turn) -> None:
        self._publish_text(turn, "text_chunk", turn.no_reply_filter.end())

    def _publish(self, turn: Turn, channel: EventChannel, type_: str, data: Any) -> None:
        self._bus.publish(turn.session, channel, type_, data, run_id=turn.leader.request.run_id)

    async def _deliver(self, turn: Turn, parts: Iterable[ReplyPart]) -> None:
        """Hooks may take their time here, which holds the reading of the worker up, but not the end of the turn."""
        for part in parts:
            with turn.cancel_when_ending():
                reply = await self._apply_hooks(turn, ReplyContent(text=part.text))
                if reply.silent:
                    continue
                media = {"media": reply.media} if reply.media else {}
                self._publish(turn, EventChannel.PROGRESS, "reply", {"kind": part.kind, "text": reply.text, **media})
                await self._notify_sent(turn, reply)

    # --- at its end ---------------------------------------------------------------------------------------------------

    async def finish(self, turn: Turn, result: PromptResult | None) -> FinalReply | None:
        """What of the turn's answer is shown, and which files it hands over; None where it has no answer."""
        self._flush_text(turn)
        if result is None:
            return None
        answer = turn.shaper.finish(result.text)
        rest = await self._apply_hooks(turn, answer.remainder)
        if answer.full is answer.remainder or turn.runs == [turn.leader]:
            return FinalReply(rest, rest)
        return FinalReply(rest, await self._apply_hooks(turn, answer.full))

    async def after_delivery(self, turn: Turn, answer: FinalReply) -> None:
        """The turn's runs have been told."""
        if not (answer.remainder.silent or turn.leader.request.is_quiet):
            await self._notify_sent(turn, answer.remainder)

    # --- hooks and files ----------------------------------------------------------------------------------------------

    async def _apply_hooks(self, turn: Turn, reply: ReplyContent) -> ReplyContent:
        """The reply as hooks leave it, with its files beside the text."""
        if not reply.silent and self._hooks.has("message:sending"):
            heard = await self._hooks.filter("message:sending", _hook_message(turn, reply))
            text = "" if isinstance(heard, Drop) else heard.text
            reply = ReplyContent(text=text, silent=not text.strip())
        return await self._with_media(turn, reply) if "MEDIA:" in reply.text else reply

    async def _notify_sent(self, turn: Turn, reply: ReplyContent) -> None:
        if self._hooks.has("message:sent"):
            await self._hooks.notify("message:sent", _hook_message(turn, reply))

    async def _with_media(self, turn: Turn, reply: ReplyContent) -> ReplyContent:
        request = turn.leader.request
        try:
            workspace = Path((await self._profile_cache.get(request.agent, request.role, session=turn.session)).cwd)
            return await trio.to_thread.run_sync(attach_media, reply, lambda name: check_media(name, workspace))
        except Exception as exc:  # noqa: BLE001 - files that cannot be looked at stay text; the answer is worth more
            message = f"the files of an answer could not be looked at: {exc}"
            self._publish(
                turn, EventChannel.MONITOR, "error", {"severity": "warn", "phase": "system", "message": message}
            )
            return reply


def _hook_message(turn: Turn, reply: ReplyContent) -> HookMessage:
    request = turn.leader.request
    return HookMessage(session=turn.session, text=reply.text, source=request.source, run_id=request.run_id)
