"""Workers here or on nodes: from a profile to a running process with its client, and to its end wherever it runs."""

import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import trio

from cluster.remote_node import RemoteNode
from cluster.transport import RemoteProcess
from errors import WorkerStartFailed
from pool.launcher import LocalLauncher, stop_worker, worker_client
from pool.local_worker import LocalWorker
from pool.plan import dialect_for, settings_for, worker_plan
from profiles import CapabilityProfile
from rpc.cgroup import OrphanGuarantee
from rpc.stderr_log import LineLog


class SlotKeeper(Protocol):
    """Who knows the slots of all nodes."""

    def place(self, worker: str, group: str, near: str) -> RemoteNode | None:
        """Give a worker a slot, near a node where it has a name; None: here. Raises WorkerStartFailed."""
        ...

    def release(self, worker: str) -> None:
        """Nothing of the worker can run any more."""
        ...


class ClusterLauncher:
    """A ``pool.worker_interface.WorkerLauncher`` that starts workers where ``slots`` says, those here by ``local``."""

    def __init__(self, local: LocalLauncher, slots: SlotKeeper) -> None:
        self._local = local
        self._slots = slots
        self.known_transcripts = local.known_transcripts

    def open(
        self, worker_id: str, profile: CapabilityProfile, *, force: trio.Event, near: str = ""
    ) -> AbstractAsyncContextManager[LocalWorker]:
        """Start a worker, whose slot is taken now; on leaving the block nothing of it can run any more.

        Raises WorkerStartFailed on entering.
        """
        try:
            node = self._slots.place(worker_id, profile.group, near)
        except WorkerStartFailed as exc:
            return _NoSlot(exc)
        return self._open(node, worker_id, profile, force=force)

    @asynccontextmanager
    async def _open(
        self, node: RemoteNode | None, worker_id: str, profile: CapabilityProfile, *, force: trio.Event
    ) -> AsyncGenerator[LocalWorker, None]:
        opened = (
            self._local.open(worker_id, profile, force=force)
            if node is None
            else self._open_on(node, worker_id, profile, force=force)
        )
        try:
            async with opened as worker:
                yield worker
        finally:
            self._slots.release(worker_id)

    @asynccontextmanager
    async def _open_on(
        self, node: RemoteNode, worker_id: str, profile: CapabilityProfile, *, force: trio.Event
    ) -> AsyncGenerator[LocalWorker, None]:
        local = self._local
        plan, settings = worker_plan(worker_id, profile, local.data_dir), settings_for(local.settings, profile)
        dialect = dialect_for(profile, settings, local.data_dir, partial(local.attended, worker_id))
        local.host.make_directory("sessions", profile.agent)
        with local.open_log(worker_id) as path:
            on_written = partial(local.log_changes.note, worker_id)
            log = LineLog(path, settings.log_bytes, clock=time.time, on_written=on_written)
            process = node.start(plan, settings, log)
            client, journal = worker_client(process, dialect, settings, worker_id, profile)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(process.run)
                    try:
                        failure = await _start_failure(process, force)
                        if failure is None:
                            nursery.start_soon(client.run)
                            known = self.known_transcripts
                            yield LocalWorker(
                                worker_id,
                                process,
                                client,
                                known,
                                dialect=profile.dialect,
                                journal=journal,
                                moved=local.moved_path,
                            )
                    finally:
                        with trio.CancelScope(shield=True):  # the ladder and the fence have deadlines of their own
                            await stop_worker(process, client, force)
                        nursery.cancel_scope.cancel()
            finally:
                node.forget(process)
            if journal is not None:
                journal.process_ended(in_order=process.ended_in_order)
            if failure is not None:
                raise failure  # outside the nursery, which would put it into a group

    def guarantee(self) -> OrphanGuarantee:
        """How sure it is here that no descendant of a worker survives it; a node says its own."""
        return self._local.guarantee()


class _NoSlot(AbstractAsyncContextManager[LocalWorker]):
    """A worker that no node has a slot for."""

    def __init__(self, why: WorkerStartFailed) -> None:
        self._why = why

    async def __aenter__(self) -> LocalWorker:
        await trio.lowlevel.checkpoint()
        raise self._why

    async def __aexit__(self, *_: object) -> None:
        """Never entered."""


async def _start_failure(process: RemoteProcess, force: trio.Event) -> WorkerStartFailed | None:
    """Wait until it runs; why it does not. ``force`` ends what its start may wait for."""
    failure: WorkerStartFailed | None = None

    async def hurry() -> None:
        await force.wait()
        await process.stop(force=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hurry)
        try:
            await process.wait_started()
        except WorkerStartFailed as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    return failure
