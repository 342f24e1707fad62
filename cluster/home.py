"""The supervisor's end of its nodes' links: who is let in, whose worker says what, when a lost node is fenced."""

import hmac
import secrets
from collections.abc import Callable
from pathlib import Path

import trio

from cluster.frames import FROM_NODE, FROM_STRANGER, NODE_CHANNEL, Frame, FrameKind, LinkViolation
from cluster.link import Link
from cluster.messages import Beat, Bye, Facts, Hello, Start, Welcome, decode_hello, decode_message
from cluster.nodes import NodeAdmission, NodeLife, NodeRoster
from cluster.transport import RemoteProcess
from cluster.wire import LinkWire, WireClosed
from errors import WorkerStartFailed
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from wire.procfs import boot_time

_HELLO_TIMEOUT = 5.0  # seconds
_MAX_STRANGERS = 16  # peers that are not known yet; a further one is turned away


class RemoteNode:
    """One life of a node: its link, and the workers that were started over it.

    Attributes:
        hello: what it said of itself. is_linked: False once its link has ended.
    """

    def __init__(self, hello: Hello, link: Link, life: NodeLife, sessions: Path) -> None:
        self.hello = hello
        self.life = life
        self.link = link
        self.is_linked = True
        self._sessions = sessions
        self._processes: dict[int, RemoteProcess] = {}
        self._channels = NODE_CHANNEL

    @property
    def name(self) -> str:
        """The node's name."""
        return self.hello.name

    def start(self, plan: WorkerPlan, settings: RpcSettings, log: LineLog) -> RemoteProcess:
        """Start a worker; the caller runs ``run``, waits for ``wait_started`` and ``forget``s it when it is gone.

        Raises WorkerStartFailed.
        """
        if not self.is_linked:
            raise WorkerStartFailed(f"worker {plan.worker_id} could not be started: node {self.name} is not linked")
        self._channels += 1
        process = RemoteProcess(
            self.link, self._channels, plan, settings, node=self.name, sessions=self._sessions, log=log
        )
        self._processes[self._channels] = process
        self.link.send_message(FrameKind.START, Start.of(plan, settings), self._channels)
        return process

    def forget(self, process: RemoteProcess) -> None:
        """The worker is gone."""
        self._processes = {channel: each for channel, each in self._processes.items() if each is not process}

    def handle(self, frame: Frame) -> None:
        """Take a frame of a worker, or figures of several. Raises LinkViolation."""
        if frame.channel != NODE_CHANNEL:
            if not 0 < frame.channel <= self._channels:
                raise LinkViolation(f"node {self.name} speaks for a worker that was never started")
            process = self._processes.get(frame.channel)
            if process is not None:
                process.on_frame(frame)
            return
        match frame.kind:
            case FrameKind.FACTS:
                for usage in decode_message(frame.payload, Facts).workers:
                    if (known := self._processes.get(usage.channel)) is not None:
                        known.on_usage(usage)
            case FrameKind.BYE:
                raise WireClosed(f"it says: {decode_message(frame.payload, Bye).reason}")
            case _:
                raise LinkViolation(f"{frame.kind.name} does not concern a node")

    def lost(self, reason: str) -> None:
        """The link has ended; its workers may run until the fence."""
        self.is_linked = False
        for process in self._processes.values():
            process.on_lost(f"its node {self.name} was lost: {reason}")

    def fenced(self) -> None:
        """None of its workers can run any more."""
        for process in self._processes.values():
            process.on_fenced()


class NodeDesk:
    """All nodes, by name; run ``run`` for as long as there may be any.

    Args:
        data_dir: the supervisor's, which is the nodes' too.
        lease, margin, silence: seconds; see ``cluster.nodes`` and ``Link.run``.
        emit: called with an event's name and its facts: node_joined, node_refused, node_lost, node_fenced.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        lease: float,
        margin: float,
        silence: float,
        emit: Callable[[str, dict[str, str]], None],
    ) -> None:
        self._data_dir = data_dir
        self._lease = lease
        self._silence = silence
        self._emit = emit
        self._table = NodeRoster(lease=lease, margin=margin)
        self._secrets: dict[str, str] = {}
        self._lives: dict[str, RemoteNode] = {}
        self._changed = trio.Event()
        self._strangers = 0

    def linked(self, name: str) -> RemoteNode | None:
        """The node of this name, if it is linked."""
        return next((node for node in self._lives.values() if node.name == name and node.is_linked), None)

    async def wait_linked(self, name: str) -> RemoteNode:
        """Wait until a node is linked."""
        while (node := self.linked(name)) is None:
            await self._changed.wait()
        return node

    def invite(self, name: str) -> str:
        """The secret that lets a node of this name in."""
        self._secrets[name] = secrets.token_urlsafe(24)
        return self._secrets[name]

    async def run(self) -> None:
        """Fence the nodes that were lost, each in its time, until cancelled."""
        while True:
            for life in self._table.fence(boot_time()):
                self._fence(life)
            due, changed = self._table.next_fence(), self._changed
            with trio.move_on_after(float("inf") if due is None else max(0.0, due - boot_time())):
                await changed.wait()

    async def serve(self, wire: LinkWire, name: str | None = None) -> None:
        """Serve one link until it ends. ``name``: whose it is, where that is known; otherwise its secret says it."""
        node: RemoteNode | None = None
        reason = ""
        link = Link(wire)
        try:
            node = self._admit(await self._meet(wire, link), link, name)
            if node is not None:
                await self._run_link(node, link)
        except (WireClosed, LinkViolation) as exc:
            reason = str(exc)
        finally:
            wire.close()
            if node is not None:
                self._table.unlinked(node.life)
                node.lost(reason)
                self._emit("node_lost", {"node": node.name, "reason": reason})
                self._notify()
            elif reason:
                self._emit("node_refused", {"node": name or "", "reason": reason})

    async def _meet(self, wire: LinkWire, link: Link) -> Hello:
        """What a peer says of itself. Raises WireClosed, LinkViolation."""
        if self._strangers >= _MAX_STRANGERS:
            raise WireClosed("too many peers at once that have not said who they are")
        self._strangers += 1
        try:
            await wire.shake_hands()
            return decode_hello((await link.receive_first(FROM_STRANGER, _HELLO_TIMEOUT)).payload)
        finally:
            self._strangers -= 1

    def _admit(self, hello: Hello, link: Link, name: str | None) -> RemoteNode | None:
        """The node, welcome; None: it was refused."""
        expected = self._secrets.get(hello.name, "")
        if name != hello.name and not (name is None and expected and hmac.compare_digest(expected, hello.secret)):
            self._refuse(link, hello.name, Bye("its name or secret is not the right one"))
            return None
        answer = self._table.hello(hello, boot_time())
        if not isinstance(answer, NodeAdmission):
            self._refuse(link, hello.name, Bye(answer.reason, answer.retry_after))
            return None
        if answer.fenced is not None:
            self._fence(answer.fenced)
        life = self._table.life_of(hello.name)
        if life is None:
            raise LinkViolation(f"node {hello.name} has no life")
        node = RemoteNode(hello, link, life, self._data_dir / "sessions")
        self._lives[hello.instance] = node
        link.send_message(FrameKind.WELCOME, Welcome(lease=self._lease, data_dir=str(self._data_dir)))
        self._emit("node_joined", {"node": hello.name})
        self._notify()
        return node

    def _refuse(self, link: Link, name: str, why: Bye) -> None:
        link.send_message(FrameKind.BYE, why)
        self._emit("node_refused", {"node": name, "reason": why.reason})

    async def _run_link(self, node: RemoteNode, link: Link) -> None:
        def handle(frame: Frame) -> None:
            if frame.kind is FrameKind.PING:
                self._table.answered(node.life, boot_time())
                link.send_message(FrameKind.PONG, decode_message(frame.payload, Beat))
            else:
                node.handle(frame)

        await link.run(FROM_NODE, self._silence, handle)

    def _fence(self, life: NodeLife) -> None:
        node = self._lives.pop(life.instance, None)
        if node is not None:
            node.link.close()
            node.fenced()
            self._emit("node_fenced", {"node": life.name})

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
