"""Raw-line listeners: front ends that read a session's worker output unchanged (``pool attach``)."""

from typing import Protocol

from errors import PoolError
from pool.stimuli import FailureKind, WorkerFailed, WorkerReconciled
from pool.worker_interface import reconcile
from pool.worker_task import WorkerTask
from profiles.profile import SoftArgs
from rpc.client import RpcClient
from rpc.passthrough import RawLine


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
        """Bring a worker to what its session asks for, while it has no listener; what came of that."""
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
