"""Translates the updates of the current conversation into native events, and keeps what they say of its state."""

from collections.abc import Callable
from typing import Any

import msgspec

from rpc.acp.bounds import bounded_id, first_within, sentence_of, value_of
from rpc.acp.calls import CallBook
from rpc.acp.conversation import AcpConversation
from rpc.acp.link import AcpLink
from rpc.acp.messages import objects_of, text_of
from rpc.acp.session_config import SessionConfig
from rpc.acp.turns import AcpTurns
from rpc.acp.updates import block_text, compaction_phase, notice_text, plan_todos, reported_cost
from rpc.run_events import MAX_MESSAGE_CHARS, Compaction, ErrorEvent, EventStamp, StampedEvent, StateChanged
from wire.messages import ContextSize

_MAX_COMMANDS = 256 * 1024
"""Bytes of JSON."""


class TodoChanged(StampedEvent, frozen=True):
    """``todo_changed``: the whole list of what the agent is to do."""

    todos: list[dict[str, str]]


class AcpUpdateHandler:
    """One update at a time. Kinds without a use, and those of later versions, are passed over."""

    def __init__(self, link: AcpLink, turns: AcpTurns, calls: CallBook) -> None:
        self._link = link
        self._turns = turns
        self._calls = calls
        self._handlers: dict[str, Callable[[AcpConversation, dict[str, Any]], None]] = {
            "agent_message_chunk": self._message_piece,
            "agent_thought_chunk": self._thought_piece,
            "tool_call": self._tool_call,
            "tool_call_update": self._tool_call,
            "plan": self._plan,
            "usage_update": self._usage,
            "compaction_update": self._compaction,
            "notice": self._notice,
            "session_info_update": self._session_info,
            "available_commands_update": self._commands,
            "current_mode_update": self._mode,
            "config_option_update": self._options,
        }

    def handle(self, conversation: AcpConversation, update: dict[str, Any]) -> None:
        """Work off one update."""
        handler = self._handlers.get(text_of(update.get("sessionUpdate")) or "")
        if handler is not None:
            handler(conversation, update)

    def _stamp(self) -> EventStamp:
        run = self._turns.run
        return self._link.stamp(run.id if run else None)

    # --- text ---

    def _message_piece(self, _conversation: AcpConversation, update: dict[str, Any]) -> None:
        text, run = block_text(update.get("content")), self._turns.run
        if run is not None and text:
            run.add_text(text)
            self._link.add_text("assistant_message", run.id, text)
        elif text:  # of no turn: it must not become part of the next one's answer
            run_id, seq = self._link.stamp()
            words = text[:MAX_MESSAGE_CHARS]
            event = ErrorEvent(code="out_of_turn", message=words, severity="info", run_id=run_id, seq=seq)
            self._link.emit("error", event)

    def _thought_piece(self, _conversation: AcpConversation, update: dict[str, Any]) -> None:
        text, run = block_text(update.get("content")), self._turns.run
        if run is not None and text:
            self._link.add_text("thinking", run.id, text)

    # --- tools, plan ---

    def _tool_call(self, _conversation: AcpConversation, update: dict[str, Any]) -> None:
        call_id = text_of(update.get("toolCallId"))
        if call_id is not None:
            begins = update["sessionUpdate"] == "tool_call"
            self._calls.update(bounded_id(call_id), update, self._turns.run, begins=begins)

    def _plan(self, _conversation: AcpConversation, update: dict[str, Any]) -> None:
        run_id, seq = self._stamp()
        self._link.emit("todo_changed", TodoChanged(todos=plan_todos(update), run_id=run_id, seq=seq))

    # --- the conversation's state ---

    def _usage(self, conversation: AcpConversation, update: dict[str, Any]) -> None:
        conversation.costs.note(reported_cost(update))
        try:
            context = msgspec.convert(update, ContextSize)
        except msgspec.ValidationError:
            return
        if context != conversation.context:
            conversation.context, conversation.is_context_reported = context, False
            self._turns.report_context(conversation)

    def _compaction(self, _conversation: AcpConversation, update: dict[str, Any]) -> None:
        phase = compaction_phase(update)
        if phase is None:
            return
        run_id, seq = self._stamp()
        aborted, error = update.get("status") == "cancelled", sentence_of(update.get("error"))
        self._link.emit("compaction", Compaction(phase=phase, aborted=aborted, error=error, run_id=run_id, seq=seq))

    def _notice(self, _conversation: AcpConversation, update: dict[str, Any]) -> None:
        severity, words = notice_text(update)
        if words:
            run_id, seq = self._stamp()
            event = ErrorEvent(code="notice", message=words, severity=severity, run_id=run_id, seq=seq)
            self._link.emit("error", event)

    def _session_info(self, conversation: AcpConversation, update: dict[str, Any]) -> None:
        title = sentence_of(update.get("title"))
        if title is not None and title != conversation.title:
            conversation.title = title
            run_id, seq = self._stamp()
            self._link.emit("state_changed", StateChanged(session_name=title, run_id=run_id, seq=seq))

    def _commands(self, conversation: AcpConversation, update: dict[str, Any]) -> None:
        conversation.commands = first_within(objects_of(update.get("availableCommands")), _MAX_COMMANDS)

    def _mode(self, conversation: AcpConversation, update: dict[str, Any]) -> None:
        self._set_config(conversation, conversation.config.with_mode(value_of(update.get("currentModeId"))))

    def _options(self, conversation: AcpConversation, update: dict[str, Any]) -> None:
        self._set_config(conversation, conversation.config.with_options(update.get("configOptions")))

    def _set_config(self, conversation: AcpConversation, config: SessionConfig) -> None:
        before, conversation.config = conversation.config, config
        names = ("mode", "model", "thinking")
        changed = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(before, name)}
        if changed:
            run_id, seq = self._stamp()
            self._link.emit("state_changed", StateChanged(**changed, run_id=run_id, seq=seq))
