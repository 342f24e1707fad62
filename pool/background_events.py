"""Which session a background command belongs to, and what the pool's listener hears of it.

A command belongs to the conversation that started it. The worker stays bound to that conversation's session while the
command runs: the owner is read from the conversation that the worker was given last, not from its next session.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from wire.messages import BackgroundProcesses, ExecExit, SessionResult


class LoadedConversation(NamedTuple):
    """A session's conversation, as the worker holds it."""

    session: str
    result: SessionResult


class BackgroundExited(msgspec.Struct, frozen=True, kw_only=True):
    """One has ended. ``session`` None: the conversation it belonged to is no longer that of any session."""

    worker: str
    session: str | None
    exit: ExecExit


class BackgroundLost(msgspec.Struct, frozen=True, kw_only=True):
    """These ended with their worker (None: of an earlier life), which told nothing; ``reason`` says why it ended."""

    worker: str | None
    session: str
    commands: BackgroundProcesses
    reason: str


class BackgroundRunning(msgspec.Struct, frozen=True, kw_only=True):
    """These run on the worker now. ``session`` None: they are not, or no longer, of any session's conversation."""

    worker: str
    session: str | None
    commands: BackgroundProcesses


BackgroundEvent = BackgroundExited | BackgroundLost | BackgroundRunning
_NO_COMMANDS = BackgroundProcesses()


def _ignore_event(news: BackgroundEvent) -> None:
    """The default listener."""


class BackgroundEvents:
    """``session_of`` a worker and ``transcript_of`` a session are what the pool knows at the moment of the call."""

    def __init__(self, session_of: Callable[[str], str | None], transcript_of: Callable[[str], str | None]) -> None:
        self.listener: Callable[[BackgroundEvent], None] = _ignore_event
        self._session_of = session_of
        self._transcript_of = transcript_of

    def exited(self, worker: str, conversation: LoadedConversation | None, ended: ExecExit) -> None:
        """A worker tells that a command has ended."""
        owner = self._owner(worker, conversation)
        if conversation is not None and ended.session_key not in (None, conversation.result.session_id):
            owner = None
        self.listener(BackgroundExited(worker=worker, session=owner, exit=ended))

    def running(self, worker: str, conversation: LoadedConversation | None, commands: BackgroundProcesses) -> None:
        """A worker tells which commands it runs."""
        owner = self._owner(worker, conversation)
        self.listener(BackgroundRunning(worker=worker, session=owner, commands=commands))

    def worker_exited(
        self, worker: str, conversation: LoadedConversation | None, commands: BackgroundProcesses, reason: str
    ) -> None:
        """A worker has ended while these commands ran. A session that has left their conversation needs no report."""
        owner = self._owner(worker, conversation)
        if commands.running and owner is not None:
            self.listener(BackgroundLost(worker=worker, session=owner, commands=commands, reason=reason))
        self.listener(BackgroundRunning(worker=worker, session=None, commands=_NO_COMMANDS))

    def _owner(self, worker: str, conversation: LoadedConversation | None) -> str | None:
        """The session that still has this conversation."""
        if conversation is None:
            return None
        session, transcript = conversation.session, conversation.result.session_file
        if transcript is None:
            return session if self._session_of(worker) == session else None
        return session if self._transcript_of(session) == transcript else None
