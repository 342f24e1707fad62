"""Where lines of an agent belong: to the conversation, to one that is loaded, to an earlier one, or to none yet."""

from typing import Any

import msgspec

from rpc.acp.link import AcpLink
from rpc.acp.messages import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNUSABLE_ID,
    AcpLine,
    MessageChunkLine,
    ThoughtChunkLine,
    decode_any,
    is_usable_id,
    object_of,
    text_of,
)
from rpc.acp.permissions import PermissionDesk
from rpc.acp.sessions import AcpSessions
from rpc.acp.turns import AcpTurns
from rpc.acp.update_handler import AcpUpdateHandler
from wire.framing import decode_block

_MAX_HELD_LINES = 64
_MAX_HELD_BYTES = 1024 * 1024
_MAX_EARLIER = 100
"""Updates of earlier conversations after which the process should be retired."""


class AcpInbox:
    """One per dialect. ``passed_over``: updates of no conversation; ``of_earlier``: of earlier ones."""

    def __init__(
        self, link: AcpLink, sessions: AcpSessions, turns: AcpTurns, updates: AcpUpdateHandler, desk: PermissionDesk
    ) -> None:
        self._link = link
        self._sessions = sessions
        self._turns = turns
        self._updates = updates
        self._desk = desk
        self._held: list[tuple[str, dict[str, Any]]] = []
        self._held_bytes = 0
        self._message_decoder = msgspec.json.Decoder(MessageChunkLine)
        self._thought_decoder = msgspec.json.Decoder(ThoughtChunkLine)
        self.passed_over = 0
        self.of_earlier = 0

    def take_pieces(self, block: bytes) -> bool:
        """Take a block that holds nothing but pieces of the running turn's text; False: it is another one."""
        run, conversation = self._turns.run, self._sessions.current
        if run is None or conversation is None:
            return False
        lines = block.count(b"\n")
        if block.count(b'"agent_message_chunk"') == lines:
            text = self._text(block, self._message_decoder, conversation.session, lines)
            if text:
                run.add_text(text)
                self._link.add_text("assistant_message", run.id, text)
        elif block.count(b'"agent_thought_chunk"') == lines:
            text = self._text(block, self._thought_decoder, conversation.session, lines)
            if text:
                self._link.add_text("thinking", run.id, text)
        else:
            return False
        return text is not None

    def _text(self, block: bytes, decoder: msgspec.json.Decoder[Any], session: str, lines: int) -> str | None:
        """The text of a block of pieces, joined; None where some line of it is something else."""
        decoded = decode_block(block, decoder).messages
        if len(decoded) != lines or any(line.params.sessionId != session for line in decoded):
            return None
        return "".join([line.params.update.content.text for line in decoded])

    def take(self, line: AcpLine) -> None:
        """Work off one line."""
        if line.is_answer:
            self._link.deliver(line)
        elif line.has_unusable_id:
            self._link.refuse(None, INVALID_REQUEST, UNUSABLE_ID)
        elif line.method == "session/update":
            self._update(line.params)
            if line.is_request and line.id is not None:  # none has to be answered, but nothing may wait for us
                self._link.respond(line.id, {})
        elif line.is_request:
            self._request(line)
        elif line.method == "$/cancel_request":
            named = object_of(decode_any(line.params)).get("requestId", msgspec.UNSET)
            if is_usable_id(named):
                self._desk.withdraw(named)

    def release(self) -> None:
        """``session/new`` is answered: what was held for its conversation is worked off, the rest is passed over."""
        held, self._held, self._held_bytes = self._held, [], 0
        for session, update in held:
            self._route(session, update)

    # --- inside ---

    def _request(self, line: AcpLine) -> None:
        if line.method != "session/request_permission":
            self._link.refuse(line.id, METHOD_NOT_FOUND, f"Method not found: {line.method}")
            return
        params = decode_any(line.params)
        session, current = text_of(object_of(params).get("sessionId")), self._sessions.current
        is_ours = current is not None and session == current.session
        # an id that is none of ours may be that of an agent's helper, which works for the turn that is on
        works_for_us = session not in self._sessions.known and self._turns.is_running
        cancelled = self._turns.is_cancelling or not (is_ours or works_for_us) or self._sessions.replay is not None
        self._desk.ask(line.id, params, self._turns.run, None if cancelled else current)

    def _update(self, raw: msgspec.Raw) -> None:
        params = object_of(decode_any(raw))
        session, update = text_of(params.get("sessionId")), params.get("update")
        if session is None or not isinstance(update, dict):
            self.passed_over += 1
        elif self._sessions.awaits_id and session not in self._sessions.known:
            self._hold(session, update, len(bytes(raw)))
        else:
            self._route(session, update)

    def _route(self, session: str, update: dict[str, Any]) -> None:
        replay, current = self._sessions.replay, self._sessions.current
        if replay is not None and replay.session == session:
            replay.take(update)
        elif current is not None and current.session == session:
            self._updates.handle(current, update)
        elif session not in self._sessions.known:
            self.passed_over += 1
        else:
            self.of_earlier += 1
            if self.of_earlier > _MAX_EARLIER:
                self._sessions.retire_reason = "it goes on to speak of earlier conversations"

    def _hold(self, session: str, update: dict[str, Any], size: int) -> None:
        if len(self._held) >= _MAX_HELD_LINES or self._held_bytes + size > _MAX_HELD_BYTES:
            self.passed_over += 1
            return
        self._held.append((session, update))
        self._held_bytes += size
