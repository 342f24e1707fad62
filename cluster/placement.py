"""Which node each worker is started on, and what the machine learns of nodes that come, drain and are lost.

No decision is made here: ``pool.nodes.NodeTable`` shares workers out, the machine decides the rest. Each method runs to
its end without awaiting. Of a lost node all workers fail, then the capacity shrinks, then each end follows when it is
sure; any other order would stop healthy workers, or start some where there is nothing.
"""

import math
from collections.abc import Callable, Iterator

import msgspec
import trio

from cluster.messages import Hello
from cluster.remote_node import RemoteNode
from cluster.settings import ClusterSettings
from errors import UsageError, WorkerExited, WorkerStartFailed
from pool.nodes import NodeStatus, NodeTable, Strategy
from pool.stimuli import FailureKind, RecycleWorker, Stimulus, StopWorker, WorkerFailed
from wire.version import VERSION

LOCAL = "."
"""This machine among the nodes; none can be called so."""
_WORKERS_PER_CORE = 8


class NodeDrain(msgspec.Struct, kw_only=True):
    """A node that is to be empty. ``until``: on the event loop's clock; None = it waits for turns as long as they take.

    ``ends``: its program is sent away once it is empty; otherwise it stays, and can be taken back. ``is_due``: what was
    left at ``until`` is being stopped.
    """

    until: float | None
    ends: bool
    is_due: bool = False
    is_over: bool = False


def reckoned_slots(hello: Hello, worker_memory: int) -> int:
    """The workers that a node may run, where no one says it: as many as its memory holds, some for each core."""
    by_memory = hello.memory // worker_memory if worker_memory else hello.cores * _WORKERS_PER_CORE
    return max(1, min(by_memory, hello.cores * _WORKERS_PER_CORE))


class ClusterPlacement:
    """The nodes that take workers, by name, and what is under way on them.

    Args:
        settings: groups, their strategies, slots of this machine; ``reconfigure`` gives others.
        worker_memory: bytes that one worker is reckoned to need.
        on_drained: called with a node that has nothing left, and whether its program is to end.
        clock: seconds of the event loop.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        worker_memory: int,
        on_drained: Callable[[str, NodeDrain], None],
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._worker_memory = worker_memory
        self._on_drained = on_drained
        self._submit: Callable[[Stimulus], object] = _no_pool
        self._table = NodeTable({name: Strategy(group.strategy) for name, group in settings.groups.items()})
        self._table.add(LOCAL, "", settings.local_slots)
        self._nodes: dict[str, RemoteNode] = {}
        self._returned: dict[str, RemoteNode] = {}
        """Nodes that are back while workers of their last life still end."""
        self._empty_since: dict[str, float] = {}
        self._drains: dict[str, NodeDrain] = {}
        self._deadline_set = trio.Event()

    def connect(self, submit: Callable[[Stimulus], object]) -> None:
        """The pool is there: what concerns it goes to ``submit`` from now on, first the capacity."""
        self._submit = submit
        self._tell_capacity()

    def reconfigure(self, settings: ClusterSettings, worker_memory: int) -> None:
        """Take what may change in a running supervisor."""
        self._settings, self._worker_memory = settings, worker_memory
        self._table.open(LOCAL, "", settings.local_slots)
        self._tell_capacity()

    @property
    def local_slots(self) -> int:
        """Workers that this machine may run."""
        return self._settings.local_slots

    # --- workers ------------------------------------------------------------------------------------------------------

    def place(self, worker: str, group: str, near: str) -> RemoteNode | None:
        """Give a worker its slot; None: here. Raises WorkerStartFailed where no node of the group has one."""
        name = self._table.place(worker, group, near)
        if name is None:
            raise WorkerStartFailed(f"worker {worker} could not be started: no node of group {group!r} has a free slot")
        self._empty_since.pop(name, None)
        return self._nodes.get(name)

    def release(self, worker: str) -> None:
        """Nothing of the worker can run any more; the pool hears of its end after this."""
        name = self._table.node_of(worker)
        has_changed = self._table.release(worker)
        if name in self._nodes and not self._workers_of(name):
            self._empty_since[name] = self._clock()
        if name is not None and self._table.find(name) is None:
            if (node := self._returned.pop(name, None)) is not None:
                self._open(node)
            self._note_empty(name)
        if has_changed:
            self._tell_capacity()

    # --- nodes --------------------------------------------------------------------------------------------------------

    def joined(self, node: RemoteNode) -> None:
        """The node takes workers from now on, unless it is to be empty."""
        node.group = self._settings.group_of(node.labels)
        node.slots = node.given_slots or node.hello.slots or reckoned_slots(node.hello, self._worker_memory)
        drain = self._drains.get(node.name)
        if drain is not None and drain.ends and drain.until is not None and drain.until <= self._clock():
            del self._drains[node.name]  # that machine is gone by now: this is another one
        if self._table.find(node.name) is not None:
            self._returned[node.name] = node
            return
        self._open(node)
        self._note_empty(node.name)
        self._tell_capacity()

    def _open(self, node: RemoteNode) -> None:
        self._nodes[node.name] = node
        self._empty_since[node.name] = self._clock()
        if node.name not in self._drains:
            self._table.open(node.name, node.group, node.slots)

    def lost(self, node: RemoteNode, reason: str) -> int:
        """The node is out of reach: all its workers fail now, and end when that is sure. How many there were."""
        if self._returned.get(node.name) is node:
            del self._returned[node.name]
        if self._nodes.get(node.name) is not node:
            return 0
        del self._nodes[node.name]
        self._empty_since.pop(node.name, None)
        workers = self._table.close(node.name)
        for worker in workers:
            text = f"worker {worker} was lost with its node {node.name}: {reason}"
            self._submit(WorkerFailed(worker, FailureKind.LOST, WorkerExited(text, worker=worker, node=node.name)))
        self._tell_capacity()
        return len(workers)

    def drain(self, name: str, seconds: float | None, *, ends: bool) -> None:
        """Start nothing more on the node, and have it empty within ``seconds``.

        One that ``ends`` may join later. Raises UsageError where another is not linked.
        """
        if not ends and name not in self._nodes and name not in self._returned:
            raise UsageError(f"there is no node {name!r}")
        until = None if seconds is None else self._clock() + seconds
        self._drains[name] = NodeDrain(until=until, ends=ends)
        workers = self._table.close(name)
        self._tell_capacity()
        if name in self._nodes:  # else those of a life before, which have failed
            for worker in workers:
                self._submit(RecycleWorker(worker, replace=False))
        self._note_empty(name)
        self._deadline_set.set()

    def resume(self, name: str) -> None:
        """The node takes workers again. Raises UsageError."""
        if self._drains.pop(name, None) is None:
            raise UsageError(f"node {name!r} is not being drained")
        if (node := self._nodes.get(name)) is not None:
            self._table.open(name, node.group, node.slots)
            self._tell_capacity()

    def forget_drain(self, name: str) -> None:
        """The node has ended as it was to; one of its name that comes later is another one."""
        self._drains.pop(name, None)

    def _note_empty(self, name: str) -> None:
        drain = self._drains.get(name)
        if drain is not None and not drain.is_over and name in self._nodes and self._table.find(name) is None:
            drain.is_over = True
            self._on_drained(name, drain)

    async def run(self) -> None:
        """End what is left on nodes that were to be empty by now, each in its time, until cancelled."""
        while True:
            due = self.end_overdue()
            self._deadline_set = trio.Event()
            with trio.move_on_at(due):
                await self._deadline_set.wait()

    def end_overdue(self) -> float:
        """Stop what is left on nodes that were to be empty by now; when there may be more to stop."""
        due = math.inf
        for name, drain in self._drains.items():
            if drain.until is None or drain.is_due or drain.is_over or name not in self._nodes:
                continue
            if drain.until > self._clock():
                due = min(due, drain.until)
                continue
            drain.is_due = True
            for worker in self._workers_of(name):
                self._submit(StopWorker(worker))
        return due

    def idle(self, name: str) -> float:
        """Seconds for which a node has had no worker; 0 where it has some."""
        now = self._clock()
        return now - self._empty_since.get(name, now)

    # --- figures ------------------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[NodeStatus]:
        """Those that are there, this machine first."""
        used = len(self._workers_of(LOCAL))
        yield NodeStatus(name="", engine="local", state="up", slots=self._settings.local_slots, used=used)
        now = self._clock()
        for node in (*self._nodes.values(), *self._returned.values()):
            drain = self._drains.get(node.name)
            left = None if drain is None or drain.until is None or drain.is_due else max(0.0, drain.until - now)
            yield NodeStatus(
                name=node.name,
                group=node.group,
                engine=node.engine,
                state="up" if drain is None else "draining",
                until=left,
                slots=node.slots,
                used=len(self._workers_of(node.name)),
                load=node.load,
                memory=node.hello.memory,
                memory_free=node.memory_free,
                rtt=node.rtt,
                note=_note(node, drain),
            )

    def total_slots(self) -> int:
        """Slots of all nodes and of this machine."""
        return sum(self._table.capacity().slots.values())

    def _workers_of(self, name: str) -> tuple[str, ...]:
        node = self._table.find(name)
        return () if node is None else tuple(node.workers)

    def _tell_capacity(self) -> None:
        self._submit(self._table.capacity(self._settings.start_rate))


def _note(node: RemoteNode, drain: NodeDrain | None) -> str:
    if drain is not None and drain.is_over:
        return "empty"
    return "" if node.hello.version == VERSION else f"pool {node.hello.version}, not {VERSION}"


def _no_pool(_stimulus: Stimulus) -> None:
    """Before ``connect``: the pool will hear of the capacity as it is then."""
