"""What workers say outside their turns, by session: background commands, and raw lines for attached front ends.

A background command belongs to the conversation that started it. The worker stays bound to that conversation's
session while the command runs: the owner is read from the conversation it was given last, not from its next session.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from errors import PoolError
from pool.stimuli import FailureKind, WorkerFailed, WorkerReconciled
from pool.worker_interface import reconcile
from pool.worker_task import WorkerTask
from profiles.profile import SoftArgs
from rpc.client import RpcClient
from rpc.passthrough import RawLine
from wire.messages import BackgroundProcesses, ExecExit


class BackgroundExited(msgspec.Struct, frozen=True, kw_only=True):
    """One has ended. ``session`` None: the conversation it belonged to is no longer that of any session."""

    worker: str
    session: str | None
    exit: ExecExit


class BackgroundLost(msgspec.Struct, frozen=True, kw_only=True):
    """These ended with their worker (None: of an earlier life), without a report; ``reason`` says why it ended."""

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

    def exited(self, life: WorkerTask, ended: ExecExit) -> None:
        """A worker reports that a command has ended."""
        owner, conversation = self._owner(life), life.conversation
        if conversation is not None and ended.session_key not in (None, conversation.result.session_id):
            owner = None
        self.listener(BackgroundExited(worker=life.id, session=owner, exit=ended))

    def running(self, life: WorkerTask, commands: BackgroundProcesses) -> None:
        """A worker reports which commands it runs."""
        self.listener(BackgroundRunning(worker=life.id, session=self._owner(life), commands=commands))

    def worker_exited(self, life: WorkerTask) -> None:
        """A worker has ended with its commands. A session that has left their conversation needs no report."""
        owner = self._owner(life)
        if life.commands.running and owner is not None:
            lost = BackgroundLost(worker=life.id, session=owner, commands=life.commands, reason=str(life.error))
            self.listener(lost)
        self.listener(BackgroundRunning(worker=life.id, session=None, commands=_NO_COMMANDS))

    def _owner(self, life: WorkerTask) -> str | None:
        """The session that still has the worker's conversation."""
        if life.conversation is None:
            return None
        session, transcript = life.conversation.session, life.transcript
        if transcript is None:
            return session if self._session_of(life.id) == session else None
        return session if self._transcript_of(session) == transcript else None


class RawListener(Protocol):
    """One session's front ends of that kind."""

    async def restore(self, worker: str, client: RpcClient) -> None:
        """A worker has the session's conversation and serves no request yet: make it what the last one was.

        Raises PoolError when it is not fit to serve.
        """
        ...

    def receive_raw(self, lines: tuple[RawLine, ...]) -> None:
        """The worker has said this. Must neither block nor raise."""
        ...

    def receive_stderr(self, lines: bytes) -> None:
        """The worker has written these lines to its stderr. Must neither block nor raise."""
        ...

    def release_idle(self) -> None:
        """The session's conversation is about to be forgotten: hold its worker no longer than a request needs it."""
        ...

    def worker_lost(self, error: PoolError) -> None:
        """The worker that had the session's conversation is gone."""
        ...


class RawListeners:
    """The ports by session. A worker's lines are heard while it has the session's conversation, ready to serve."""

    def __init__(self) -> None:
        self._ports: dict[str, RawListener] = {}
        self._connected: set[str] = set()
        """The workers."""

    def set_listener(self, session: str, port: RawListener | None) -> None:
        """Let ``port`` have the session; None removes it."""
        if port is None:
            self._ports.pop(session, None)
        else:
            self._ports[session] = port

    def release_idle(self, session: str) -> None:
        """Ask the session's front ends to hold its worker no longer than a request needs it."""
        port = self._ports.get(session)
        if port is not None:
            port.release_idle()

    async def restore(self, session: str, life: WorkerTask) -> None:
        """The worker has just been given the session's conversation."""
        port = self._ports.get(session)
        if port is not None:
            await port.restore(life.id, life.worker.client)

    def connect(self, session: str, life: WorkerTask) -> None:
        """What the worker says is the session's from now on."""
        port = self._ports.get(session)
        if port is None:
            self.disconnect(life)
        else:
            self._connected.add(life.id)
            life.worker.client.on_raw(port.receive_raw)
            life.worker.on_stderr(port.receive_stderr)

    async def reconcile(self, life: WorkerTask, soft: SoftArgs) -> WorkerFailed | WorkerReconciled:
        """Bring a worker to what its session asks for, while it has no listener; what came of that.

        One that turns out to have lost the conversation has failed: another is given it.
        """
        self.disconnect(life)
        try:
            await reconcile(life.worker.client, soft)
        except PoolError as exc:
            has_lost = life.worker.client.dialect.has_lost_conversation
            return WorkerFailed(life.id, FailureKind.RESET if has_lost else FailureKind.RECONCILE, exc)
        else:
            return WorkerReconciled(life.id)
        finally:
            if life.conversation is not None:
                self.connect(life.conversation.session, life)

    def worker_lost(self, life: WorkerTask) -> None:
        """The worker is gone, with what it said last."""
        if life.id in self._connected and life.conversation is not None and life.error is not None:
            port = self._ports.get(life.conversation.session)
            if port is not None:
                port.worker_lost(life.error)
        self._connected.discard(life.id)

    def disconnect(self, life: WorkerTask) -> None:
        """The worker's output has no listener now."""
        self._connected.discard(life.id)
        life.worker.client.on_raw(None)
        life.worker.on_stderr(None)
