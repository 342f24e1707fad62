"""One life of a node, as the supervisor sees it: its link, what it says of itself, and its workers."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cluster.frames import NODE_CHANNEL, Frame, FrameKind, LinkViolation
from cluster.link import Link
from cluster.messages import Bye, Facts, Hello, Start, decode_message
from cluster.nodes import NodeLife
from cluster.shared import SharedProcess
from cluster.transport import RemoteProcess
from cluster.wire import WireClosed
from errors import WorkerStartFailed
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog


class NodeOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """How a node comes to be here, and what its engine says of it: labels, and slots (0 = nothing)."""

    engine: str
    labels: Mapping[str, str] = {}
    slots: int = 0


class RemoteNode:
    """One life of a node: its link, and the workers that were started over it.

    Attributes:
        hello: what it said of itself. is_linked: False once its link has ended. is_ready: whether it takes workers.
        labels, given_slots: what its engine says, else what it says itself. group, slots: those that it counts with.
        load, memory_free, rtt: the latest figures: of its machine, bytes, seconds.
        is_dismissed: it was sent away with nothing left on it. has_swept: it has left, and nothing runs there any more.
        end_reason: why its link is closed from here.
        is_shared: it writes transcripts where this machine reads them.
    """

    def __init__(self, hello: Hello, link: Link, life: NodeLife, sessions: Path, origin: NodeOrigin) -> None:
        self.hello = hello
        self.life = life
        self.link = link
        self.engine = origin.engine
        self.labels = {**hello.labels, **origin.labels}
        self.given_slots = origin.slots
        self.group, self.slots = "", 0
        self.load: float | None = None
        self.memory_free: int | None = None
        self.rtt: float | None = None
        self.is_linked, self.is_ready, self.is_dismissed, self.has_swept = True, False, False, False
        self.end_reason = ""
        self.is_shared = False
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
        process = (SharedProcess if self.is_shared else RemoteProcess)(
            self.link, self._channels, plan, settings, node=self.name, sessions=self._sessions, log=log
        )
        try:
            self.link.send_message(FrameKind.START, Start.of(plan, settings), self._channels)
        except (LinkViolation, UnicodeEncodeError) as exc:
            raise WorkerStartFailed(f"worker {plan.worker_id} cannot be started on node {self.name}: {exc}") from exc
        self._processes[self._channels] = process
        return process

    def forget(self, process: RemoteProcess) -> None:
        """The worker is gone."""
        self._processes.pop(process.channel, None)

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
                self._take_facts(decode_message(frame.payload, Facts))
            case FrameKind.BYE:
                bye = decode_message(frame.payload, Bye)
                self.has_swept = bye.swept
                raise WireClosed(f"it says: {bye.reason}")
            case _:
                raise LinkViolation(f"{frame.kind.name} does not concern a node")

    def _take_facts(self, facts: Facts) -> None:
        for usage in facts.workers:
            if (known := self._processes.get(usage.channel)) is not None:
                known.on_usage(usage)
        for name in ("load", "memory_free", "rtt"):
            if (value := getattr(facts, name)) is not None:
                setattr(self, name, value)

    def lost(self, reason: str) -> None:
        """The link has ended; its workers may run until the fence."""
        self.is_linked = False
        for process in self._processes.values():
            process.on_lost(f"its node {self.name} was lost: {reason}")

    def fenced(self) -> None:
        """None of its workers can run any more."""
        self.is_linked = False
        for process in self._processes.values():
            process.on_fenced()
