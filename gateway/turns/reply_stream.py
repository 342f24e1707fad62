"""The way out of a turn: its stream of text, the parts of its answer, the reply at its end; hooks have their say."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import trio

from gateway.events import EventBus, TextKind
from gateway.events.translate import TextPieces
from gateway.events.worker_events import Single
from gateway.hook_runner import HookRunner
from gateway.hooks import Drop, MessageSeen
from gateway.sessions.agent_profiles import ProfileShelf
from gateway.turns.replies import Answer, Part, Reply, finished
from gateway.turns.reply_filters import check_media
from gateway.turns.turn import Turn
from wire.messages import Channel, PromptResult

_SHAPING = ("tool:", "compaction:")
"""Events that a reply may have to show something of."""
_decode = msgspec.json.Decoder(str).decode


class Answers:
    """Tells what turns say, in the order in which they say it.

    Whoever asked for parts is told each as a progress event ``reply`` of ``{kind, text, media?}``, as soon as it is
    complete. A part, and the reply at the end, pass the hooks ``message:sending`` before they are told and
    ``message:sent`` after.
    """

    def __init__(self, bus: EventBus, hooks: HookRunner, shelf: ProfileShelf) -> None:
        self._bus = bus
        self._hooks = hooks
        self._shelf = shelf

    # --- while the turn goes on ---------------------------------------------------------------------------------------

    async def take_text(self, turn: Turn, said: TextPieces) -> None:
        """The worker has said something, or thought it."""
        is_text, shaper = said.type == "text_chunk", turn.shaper
        self._stream(turn, said.type, turn.leading.take(said.pieces) if is_text else said.pieces)
        if shaper.wants_text if is_text else shaper.wants_thoughts:
            piece = "".join(map(_decode, said.pieces))
            await self._deliver(turn, shaper.text(piece) if is_text else shaper.thought(piece))

    async def take_event(self, turn: Turn, event: Single) -> None:
        """Something has happened in the turn."""
        parts: list[Part] = []
        if event.type.startswith(_SHAPING):
            self._end_text(turn)
            parts = turn.shaper.event(event.type, msgspec.to_builtins(event.data))
        if event.type == "tool:start":  # what was said is complete before it
            await self._deliver(turn, parts)
            parts = []
        self._tell(turn, event.channel, event.type, event.data)
        await self._deliver(turn, parts)

    def _stream(self, turn: Turn, type_: TextKind, pieces: list[msgspec.Raw]) -> None:
        if turn.leader.request.is_quiet:
            return
        self._bus.publish_text(turn.session, type_, pieces, run_id=turn.leader.request.run_id)

    def _end_text(self, turn: Turn) -> None:
        self._stream(turn, "text_chunk", turn.leading.end())

    def _tell(self, turn: Turn, channel: Channel, type_: str, data: Any) -> None:
        self._bus.publish(turn.session, channel, type_, data, run_id=turn.leader.request.run_id)

    async def _deliver(self, turn: Turn, parts: Iterable[Part]) -> None:
        """Hooks may take their time here, which holds the reading of the worker up, but not the end of the turn."""
        for part in parts:
            with turn.patience():
                reply = await self._let_out(turn, Reply(text=part.text))
                if reply.silent:
                    continue
                media = {"media": reply.media} if reply.media else {}
                self._tell(turn, Channel.PROGRESS, "reply", {"kind": part.kind, "text": reply.text, **media})
                await self._tell_sent(turn, reply)

    # --- at its end ---------------------------------------------------------------------------------------------------

    async def finish(self, turn: Turn, result: PromptResult | None) -> Answer | None:
        """What of the turn's answer is shown, and which files it hands over; None where it has no answer."""
        self._end_text(turn)
        if result is None:
            return None
        answer = turn.shaper.finish(result.text)
        rest = await self._let_out(turn, answer.rest)
        if answer.whole is answer.rest or turn.runs == [turn.leader]:
            return Answer(rest, rest)
        return Answer(rest, await self._let_out(turn, answer.whole))

    async def sent(self, turn: Turn, answer: Answer) -> None:
        """The turn's runs have been told."""
        if not (answer.rest.silent or turn.leader.request.is_quiet):
            await self._tell_sent(turn, answer.rest)

    # --- hooks and files ----------------------------------------------------------------------------------------------

    async def _let_out(self, turn: Turn, reply: Reply) -> Reply:
        """The reply as hooks leave it, with its files beside the text."""
        if not reply.silent and self._hooks.has("message:sending"):
            heard = await self._hooks.filter("message:sending", _seen(turn, reply))
            text = "" if isinstance(heard, Drop) else heard.text
            reply = Reply(text=text, silent=not text.strip())
        return await self._with_media(turn, reply) if "MEDIA:" in reply.text else reply

    async def _tell_sent(self, turn: Turn, reply: Reply) -> None:
        if self._hooks.has("message:sent"):
            await self._hooks.notify("message:sent", _seen(turn, reply))

    async def _with_media(self, turn: Turn, reply: Reply) -> Reply:
        request = turn.leader.request
        try:
            workspace = Path((await self._shelf.get(request.agent, request.role, session=turn.session)).cwd)
            return await trio.to_thread.run_sync(finished, reply, lambda name: check_media(name, workspace))
        except Exception as exc:  # noqa: BLE001 - files that cannot be looked at stay text; the answer is worth more
            message = f"the files of an answer could not be looked at: {exc}"
            self._tell(turn, Channel.MONITOR, "error", {"severity": "warn", "phase": "system", "message": message})
            return reply


def _seen(turn: Turn, reply: Reply) -> MessageSeen:
    request = turn.leader.request
    return MessageSeen(session=turn.session, text=reply.text, source=request.source, run_id=request.run_id)
