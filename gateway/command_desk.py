"""Slash commands, carried out: each answers with a sentence, at once, whatever the session is doing."""

from typing import Literal, Protocol, assert_never

from gateway.commands import (
    Compact,
    NewConversation,
    Parsed,
    QueueOnce,
    Reply,
    SetModel,
    SetQueueMode,
    SetReasoning,
    SetThinking,
    SetVerbose,
    Status,
    Stop,
)
from gateway.run import RunRequest
from gateway.sessions import Sessions

__all__ = ["CommandDesk", "SessionActions"]


class SessionActions(Protocol):
    """What commands do to sessions."""

    def running(self, session: str) -> list[str]:
        """The session's background commands: their ids, or how many there are."""
        ...

    async def reset(self, session: str, command: Literal["new", "reset"], *, force: bool = False) -> list[str]:
        """Begin a new conversation: abort the turn, refuse what waits. Returns the background commands that end."""
        ...

    async def stop(self, session: str) -> int:
        """Abort the running turn, refuse what waits; how much that was."""
        ...

    def compact(self, session: str, instructions: str | None) -> None:
        """Summarise the conversation as soon as the session is free."""
        ...

    def describe(self, session: str) -> str:
        """The session in a few lines."""
        ...


class CommandDesk:
    """Carries commands out. Raises PoolError where one fails."""

    def __init__(self, sessions: Sessions, actions: SessionActions) -> None:
        self._sessions = sessions
        self._actions = actions

    async def execute(self, command: Parsed, request: RunRequest) -> str:  # noqa: C901, PLR0911  # one line a command
        """Do what it says; the answer for whoever gave it."""
        session = request.session
        match command:
            case NewConversation():
                return await self._new_conversation(session, command)
            case Stop():
                ended = await self._actions.stop(session)
                return f"Stopped: {ended} {'run' if ended == 1 else 'runs'} ended." if ended else "Nothing was running."
            case Status():
                return self._actions.describe(session)
            case Compact():
                self._actions.compact(session, command.instructions)
                return "The conversation will be summarised as soon as the session is free."
            case SetModel():
                return self._set(session, "model", command.model, "Model")
            case SetThinking():
                return self._set(session, "thinking", command.level, "Thinking")
            case SetQueueMode():
                return self._set(session, "queue_mode", command.mode, "Messages while the session is busy")
            case SetVerbose():
                return self._set(session, "verbose", command.on, "Tool summaries")
            case SetReasoning():
                return self._set(session, "reasoning", command.on, "Reasoning")
            case Reply():
                return command.text
            case QueueOnce():
                raise AssertionError(command)  # a message, not a command: the intake has seen to it
            case _:
                assert_never(command)

    async def _new_conversation(self, session: str, command: NewConversation) -> str:
        running = ", ".join(self._actions.running(session))
        if running and not command.force:
            return (
                f"Nothing is changed: {running} still runs in the background and would end. "
                f"/{command.command} force begins a new conversation all the same."
            )
        await self._actions.reset(session, command.command, force=command.force)
        ended = f" Ended with it: {running}." if running else ""
        return f"A new conversation begins; the earlier one is kept.{ended}"

    def _set(self, session: str, name: str, value: object, label: str) -> str:
        entry = self._sessions.get(session)
        if entry is not None:
            setattr(entry, name, value)
            self._sessions.save(entry)
        words: dict[object, str] = {None: "as the settings say", True: "on", False: "off"}
        return f"{label}: {words.get(value, value)}."
