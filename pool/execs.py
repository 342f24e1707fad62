"""Ends of commands that a worker ran in the background: whose they were, told to one listener.

A command belongs to the conversation that started it. The worker is bound to that one's session as long as it runs,
and in the moment of its end at least: whose it was is read from the conversation that the worker was given last, not
from the session that it is promised to next.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from wire.messages import Background, ExecExit, SessionResult

__all__ = ["Conversation", "ExecDesk", "ExecEnded", "ExecLost", "ExecNews", "ExecRunning"]


class Conversation(NamedTuple):
    """A session's conversation, as the worker holds it."""

    session: str
    held: SessionResult


class ExecEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One has ended. ``session`` None: the conversation it belonged to is no longer that of any session."""

    worker: str
    session: str | None
    exit: ExecExit


class ExecLost(msgspec.Struct, frozen=True, kw_only=True):
    """These ended with their worker (None: of an earlier life), which told nothing; ``reason`` says why it ended."""

    worker: str | None
    session: str
    commands: Background
    reason: str


class ExecRunning(msgspec.Struct, frozen=True, kw_only=True):
    """These run on the worker now. ``session`` None: they are not, or no longer, of any session's conversation."""

    worker: str
    session: str | None
    commands: Background


ExecNews = ExecEnded | ExecLost | ExecRunning
_NONE = Background()


def _tell_nobody(news: ExecNews) -> None:
    """The listener of a pool that has none."""


class ExecDesk:
    """``session_of`` a worker and ``transcript_of`` a session are what the pool knows at the moment of the call."""

    def __init__(self, session_of: Callable[[str], str | None], transcript_of: Callable[[str], str | None]) -> None:
        self.listener: Callable[[ExecNews], None] = _tell_nobody
        self._session_of = session_of
        self._transcript_of = transcript_of

    def ended(self, worker: str, conversation: Conversation | None, ended: ExecExit) -> None:
        """A worker tells that a command has ended."""
        owner = self._owner(worker, conversation)
        if conversation is not None and ended.session_key not in (None, conversation.held.session_id):
            owner = None
        self.listener(ExecEnded(worker=worker, session=owner, exit=ended))

    def running(self, worker: str, conversation: Conversation | None, commands: Background) -> None:
        """A worker tells which commands it runs."""
        owner = self._owner(worker, conversation)
        self.listener(ExecRunning(worker=worker, session=owner, commands=commands))

    def died(self, worker: str, conversation: Conversation | None, commands: Background, reason: str) -> None:
        """A worker has ended while these commands ran. Whoever forgot their conversation has no use for that."""
        owner = self._owner(worker, conversation)
        if commands.running and owner is not None:
            self.listener(ExecLost(worker=worker, session=owner, commands=commands, reason=reason))
        self.listener(ExecRunning(worker=worker, session=None, commands=_NONE))

    def _owner(self, worker: str, conversation: Conversation | None) -> str | None:
        """The session that still has this conversation."""
        if conversation is None:
            return None
        session, transcript = conversation.session, conversation.held.session_file
        if transcript is None:
            return session if self._session_of(worker) == session else None
        return session if self._transcript_of(session) == transcript else None
