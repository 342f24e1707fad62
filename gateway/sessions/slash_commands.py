"""Slash commands: each is carried out at once, and answers with a sentence."""

from typing import Any, assert_never

from errors import UsageError
from gateway.requests import PatchRequest
from gateway.runs.run import RunRequest
from gateway.sessions.admin import SessionAdmin
from gateway.sessions.commands import (
    CommandReply,
    CompactCommand,
    NewConversationCommand,
    ParsedCommand,
    QueueOnceCommand,
    SetOptionCommand,
    StatusCommand,
    StopCommand,
)
from gateway.sessions.sessions import Sessions

_OPTION_LABELS = {
    "model": "Model",
    "thinking": "Thinking",
    "queue_mode": "Messages while the session is busy",
    "verbose": "Tool summaries",
    "reasoning": "Reasoning",
}


class SlashCommands:
    """Carries commands out. Raises PoolError where one fails."""

    def __init__(self, sessions: Sessions, actions: SessionAdmin) -> None:
        self._sessions = sessions
        self._session_admin = actions

    async def execute(self, command: ParsedCommand, request: RunRequest) -> str:  # one line a command
        """Carry out a command; returns its answer."""
        session = request.session
        match command:
            case NewConversationCommand():
                return await self._new_conversation(session, command)
            case StopCommand():
                ended = await self._session_admin.stop(session)
                return f"Stopped: {ended} {'run' if ended == 1 else 'runs'} ended." if ended else "Nothing was running."
            case StatusCommand():
                return self._session_admin.describe(session)
            case CompactCommand():
                await self._session_admin.compact(session, command.instructions)
                return "The conversation will be summarised as soon as the session is free."
            case SetOptionCommand(name, value):
                return self._set(session, name, value)
            case CommandReply():
                return command.text
            case QueueOnceCommand():
                raise AssertionError(command)  # a message, not a command: the intake has seen to it
            case _:
                assert_never(command)

    async def _new_conversation(self, session: str, command: NewConversationCommand) -> str:
        running = ", ".join(self._session_admin.background_commands(session))
        if running and not command.force:
            return (
                f"Nothing is changed: {running} still runs in the background and would end. "
                f"/{command.command} force begins a new conversation all the same."
            )
        await self._session_admin.reset(session, command.command, force=command.force)
        ended = f" Ended with it: {running}." if running else ""
        return f"A new conversation begins; the earlier one is kept.{ended}"

    def _set(self, session: str, name: str, value: Any) -> str:
        try:
            if self._sessions.get(session) is not None:
                self._session_admin.patch(PatchRequest(session=session, **{name: value}))
        except UsageError as exc:
            return f"Nothing is changed: {exc.message}."
        words: dict[object, str] = {None: "as the settings say", True: "on", False: "off"}
        return f"{_OPTION_LABELS[name]}: {words.get(value, value)}."
