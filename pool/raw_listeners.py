"""Who speaks with a session's worker in the words of its own program, and hears its lines as they are."""

from typing import Protocol

from errors import PoolError
from pool.stimuli import FailureKind, WorkerFailed, WorkerReconciled
from pool.worker import reconcile
from pool.worker_task import WorkerLife
from profiles.profile import SoftArgs
from rpc.client import RpcClient
from rpc.passthrough import RawLine


class SessionPort(Protocol):
    """One session's front ends of that kind."""

    async def restore(self, worker: str, client: RpcClient) -> None:
        """A worker has the session's conversation and serves nobody yet: make it what the last one was.

        Raises PoolError when it is not fit to serve.
        """
        ...

    def take_raw(self, lines: tuple[RawLine, ...]) -> None:
        """The worker has said this. Must neither block nor raise."""
        ...

    def take_words(self, lines: bytes) -> None:
        """The worker has written these lines to its stderr. Must neither block nor raise."""
        ...

    def let_go(self) -> None:
        """The session's conversation is about to be forgotten: hold its worker no longer than a request needs it."""
        ...

    def lost(self, error: PoolError) -> None:
        """The worker that had the session's conversation is gone."""
        ...


class Attendance:
    """The ports by session. A worker's lines are heard while it has the session's conversation, ready to serve."""

    def __init__(self) -> None:
        self._ports: dict[str, SessionPort] = {}
        self._heard: set[str] = set()
        """The workers."""

    def attend(self, session: str, port: SessionPort | None) -> None:
        """Let ``port`` have the session; None = nobody any more."""
        if port is None:
            self._ports.pop(session, None)
        else:
            self._ports[session] = port

    def let_go(self, session: str) -> None:
        """See ``SessionPort.let_go``."""
        port = self._ports.get(session)
        if port is not None:
            port.let_go()

    async def restore(self, session: str, life: WorkerLife) -> None:
        """The worker has just been given the session's conversation."""
        port = self._ports.get(session)
        if port is not None:
            await port.restore(life.id, life.worker.client)

    def connect(self, session: str, life: WorkerLife) -> None:
        """What the worker says is the session's from now on."""
        port = self._ports.get(session)
        if port is None:
            self.disconnect(life)
        else:
            self._heard.add(life.id)
            life.worker.client.on_raw(port.take_raw)
            life.worker.on_stderr(port.take_words)

    async def reconcile(self, life: WorkerLife, soft: SoftArgs) -> WorkerFailed | WorkerReconciled:
        """Bring a worker to what its session asks for, while nobody hears it; what came of that."""
        self.disconnect(life)
        try:
            await reconcile(life.worker.client, soft)
        except PoolError as exc:
            return WorkerFailed(life.id, FailureKind.RECONCILE, exc)
        else:
            return WorkerReconciled(life.id)
        finally:
            if life.conversation is not None:
                self.connect(life.conversation.session, life)

    def lost(self, life: WorkerLife) -> None:
        """The worker is gone, with what it said last."""
        if life.id in self._heard and life.conversation is not None and life.error is not None:
            port = self._ports.get(life.conversation.session)
            if port is not None:
                port.lost(life.error)
        self._heard.discard(life.id)

    def disconnect(self, life: WorkerLife) -> None:
        """What the worker says now concerns nobody."""
        self._heard.discard(life.id)
        life.worker.client.on_raw(None)
        life.worker.on_stderr(None)
