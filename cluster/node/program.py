"""The node program: dials its supervisor, starts workers for it, and kills them all when the link or its lease ends.

It holds nothing that has to survive it. Each link has an instance of its own, which marks all that is started for it;
the next HELLO says that nothing of the last one runs.
"""

import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import trio

from cluster.frames import FROM_HOME, NODE_CHANNEL, Frame, FrameKind, LinkViolation
from cluster.lease import NodeLease
from cluster.link import Link
from cluster.messages import (
    MAX_SWEPT,
    SHARED_PROOF,
    Beat,
    Bye,
    Facts,
    Hello,
    Start,
    Welcome,
    decode_message,
    message_frame,
)
from cluster.node import lease_guard
from cluster.node.devices import DeviceShare
from cluster.node.hosted import HostedWorker
from cluster.proof import home_proof, is_same, node_proof
from cluster.wire import LinkWire, WireClosed
from errors import UsageError, WorkerStartFailed, unwrap_exception_groups
from rpc.cgroup import memory_limit
from rpc.guard import Guard
from rpc.host import WorkerHost
from rpc.orphans import Reaper, become_subreaper, sweep_adopted, sweep_instance, sweep_previous
from rpc.state_file import StateFile, read_state
from wire.files import open_regular
from wire.procfs import boot_id, boot_time, machine_id
from wire.version import VERSION

_PING_INTERVAL = 1.0  # seconds
_FACTS_INTERVAL = 5.0
_WELCOME_TIMEOUT = 10.0
_FACTS_AT_ONCE = 1000
_MAX_PROOF_BYTES = 100
_GOODBYE_TIMEOUT = 2.0  # seconds that the last word of a link may take to leave
_MIN_REDIAL, _MAX_REDIAL = 0.2, 10.0  # seconds between two links, doubled for each one that failed in a row

Dial = Callable[[], Awaitable[LinkWire]]


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself, and where it remembers what it has started (``state_file``).

    ``devices``: as of ``DeviceShare``.
    """

    name: str
    state_file: Path
    slots: int = 0
    labels: dict[str, str] = {}
    secret: str = ""
    token: str = ""
    devices: str = ""


class _Refused(Exception):
    """The supervisor does not take the node now; ``retry_after``: seconds, None = never."""

    def __init__(self, said: Bye) -> None:
        super().__init__(said.reason)
        self.retry_after = said.retry_after


async def sweep_last_life(path: Path) -> tuple[str, ...]:
    """Kill what an earlier node program of this name has left; the instances of which nothing runs any more.

    Raises UsageError where that program still runs.
    """
    state = read_state(path)
    if state is None:
        return ()
    report = await sweep_previous(path)
    return () if report.left else (state.instance,)


def run_node(identity: NodeIdentity, dial: Dial, say: Callable[[str], None], *, is_single: bool) -> None:
    """Run a node program in this process. Raises PoolError where it is refused for good."""
    become_subreaper()
    trio.run(partial(NodeProgram(identity, say).run, dial, is_single=is_single))


class _Dismissed(WireClosed):
    """The supervisor sends this node away for good."""


class NodeProgram:
    """One node, link after link."""

    def __init__(self, identity: NodeIdentity, say: Callable[[str], None]) -> None:
        self._identity = identity
        self._say = say
        self._swept: tuple[str, ...] = ()
        self._leaves = ""

    async def run(self, dial: Dial, *, is_single: bool) -> None:
        """Serve one link after the other, or a single one, until cancelled, dismissed, or ended by SIGTERM or SIGINT.

        A link that it ends itself ends with a word that nothing of it runs any more: the supervisor need not wait for
        the lease. Raises UsageError where it is refused.
        """
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals, unwrap_exception_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._leave_when_asked, signals, nursery.cancel_scope)
                await self._run(dial, is_single=is_single)
                nursery.cancel_scope.cancel()

    async def _leave_when_asked(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for number in signals:
            self._leaves = f"it was ended by {signal.Signals(number).name}"
            self._say(self._leaves)
            scope.cancel()

    async def _run(self, dial: Dial, *, is_single: bool) -> None:
        self._identity.state_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._swept = await sweep_last_life(self._identity.state_file)
        delay = _MIN_REDIAL
        while True:
            began = trio.current_time()
            try:
                await self._serve_once(dial)
            except _Refused as exc:
                self._say(f"refused: {exc}")
                if exc.retry_after is None:
                    raise UsageError(f"the supervisor refuses this node: {exc}") from exc
                delay = min(max(exc.retry_after, _MIN_REDIAL), 60.0)
            except _Dismissed as exc:
                self._say(str(exc))
                return
            except (OSError, WireClosed, LinkViolation, WorkerStartFailed) as exc:
                self._say(f"link ended: {exc}")
                failed_at_once = trio.current_time() - began < _MAX_REDIAL
                delay = min(2 * delay, _MAX_REDIAL) if failed_at_once else _MIN_REDIAL
            if is_single:
                return
            await trio.sleep(delay)

    async def _serve_once(self, dial: Dial) -> None:
        instance = secrets.token_hex(8)
        wire, lease = await dial(), None
        swept, is_refused = self._swept, False
        try:
            link, sent = Link(wire), boot_time()
            lease_of = await self._greet(link, instance, wire.peer_fingerprint)
            lease, swept = NodeLease(lease_of.lease, hello_sent=sent), ()
            await _Service(self._identity, link, lease, lease_of, instance).run()
        except _Refused:
            is_refused = True
            raise
        finally:
            if not self._leaves:
                wire.close()
            with trio.CancelScope(shield=True):
                report = await sweep_instance(instance)
                # what was swept before counts until a supervisor has heard of it, which may have taken this link, too
                self._swept = swept if is_refused or report.left else (*swept[: MAX_SWEPT - 1], instance)
                if lease is not None and self._leaves:
                    await self._say_goodbye(wire, has_swept=not report.left)
            wire.close()

    async def _say_goodbye(self, wire: LinkWire, *, has_swept: bool) -> None:
        """End a link at this program's wish: the supervisor is to know that nothing runs any more, where that is so."""
        wire.send(message_frame(FrameKind.BYE, NODE_CHANNEL, Bye(self._leaves, swept=has_swept)))
        with trio.move_on_after(_GOODBYE_TIMEOUT):
            await wire.wait_written()

    async def _greet(self, link: Link, instance: str, fingerprint: str) -> Welcome:
        own = self._identity
        hello = Hello(
            version=VERSION,
            name=own.name,
            boot=boot_id(),
            machine=machine_id(),
            instance=instance,
            swept=self._swept,
            slots=own.slots,
            labels=own.labels,
            memory=_memory(),
            cores=len(os.sched_getaffinity(0)),
            secret=own.secret,
            proof=node_proof(own.token, fingerprint, instance) if own.token else "",
        )
        link.send_message(FrameKind.HELLO, hello)
        first = await link.receive_first(FROM_HOME, _WELCOME_TIMEOUT)
        if first.kind is FrameKind.BYE:
            raise _Refused(decode_message(first.payload, Bye))
        if first.kind is not FrameKind.WELCOME:
            raise LinkViolation(f"{first.kind.name} came before WELCOME")
        welcome = decode_message(first.payload, Welcome)
        if own.token and not is_same(home_proof(own.token, fingerprint, instance), welcome.proof):
            raise LinkViolation("the supervisor does not know this node's token")
        return welcome


def _memory_free() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    with suppress(OSError, ValueError), Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _memory() -> int:
    """Bytes of memory that this machine's workers may have."""
    limit = memory_limit()
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return physical if limit is None else min(limit.size, physical)


class _Service:
    """One link from WELCOME to its end. Nothing that it has started outlives ``run``."""

    def __init__(self, identity: NodeIdentity, link: Link, lease: NodeLease, welcome: Welcome, instance: str) -> None:
        self._identity = identity
        self._link = link
        self._lease = lease
        self._welcome = welcome
        self._sessions = Path(welcome.data_dir) / "sessions"
        self._host = WorkerHost(data_dir=Path(welcome.data_dir), instance=instance)
        self._instance = instance
        self._devices = DeviceShare(identity.devices)
        self._workers: dict[int, HostedWorker] = {}
        self._last_channel = 0
        self._guard: Guard | None = None
        self._rtt: float | None = None

    async def run(self) -> None:
        """Serve until the link or the lease ends. Raises WireClosed, LinkViolation, WorkerStartFailed."""
        try:
            await self._run()
        finally:
            self._host.close()

    async def _run(self) -> None:
        children, cgroup = self._host.children, self._host.cgroup
        try:
            self._host.make_directory("sessions")
        except WorkerStartFailed as exc:
            self._link.send_message(FrameKind.BYE, Bye(exc.message[:1000]))
            raise
        self._guard = Guard.start(
            self._instance, cgroup, children, program=lease_guard.__file__, more=(str(self._lease.ends_at),)
        )
        state = StateFile(
            self._identity.state_file,
            self._instance,
            children,
            cgroup=cgroup.path if cgroup is not None else None,
            is_kept=True,  # the next program says by it what it has swept
        )
        try:
            with unwrap_exception_groups():
                async with trio.open_nursery() as beside:
                    await beside.start(Reaper(children).run)
                    await beside.start(state.run)
                    await self._serve(self._guard)
                    beside.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await sweep_adopted(children)
                await self._guard.aclose()

    async def _serve(self, guard: Guard) -> None:
        with unwrap_exception_groups():
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._watch_guard, guard)
                nursery.start_soon(self._ping)
                nursery.start_soon(self._send_facts)
                try:
                    await self._link.run(FROM_HOME, self._welcome.lease, self._handle)
                finally:
                    guard.send(lease_guard.ENDING)  # before the workers are killed, which takes time

    async def _watch_guard(self, guard: Guard) -> None:
        raise WireClosed(f"the guard process {await guard.wait_exit()}")

    def _shared_proof(self) -> str:
        """What lies in the supervisor's directory, if this is it."""
        try:
            path = Path(self._welcome.data_dir, SHARED_PROOF)
            with os.fdopen(open_regular(path, os.O_RDONLY, follow=False), "rb") as file:
                return file.read(_MAX_PROOF_BYTES).decode("ascii", "replace")
        except OSError as exc:
            return f"none: {exc.strerror}"

    async def _ping(self) -> None:
        proof = self._shared_proof() if self._welcome.shared else ""
        while True:
            now = boot_time()
            if self._lease.has_ended(now):
                raise WireClosed("the lease has ended")
            self._link.send_message(FrameKind.PING, Beat(self._lease.ping(now), proof))
            proof = ""
            await trio.sleep(max(0.0, min(_PING_INTERVAL, self._lease.ends_at - boot_time())))

    async def _send_facts(self) -> None:
        while True:
            machine = Facts((), os.getloadavg()[0], _memory_free(), self._rtt)
            self._link.send_message(FrameKind.FACTS, machine)
            found = [usage for worker in self._workers.values() if (usage := worker.usage()) is not None]
            for at in range(0, len(found), _FACTS_AT_ONCE):
                self._link.send_message(FrameKind.FACTS, Facts(tuple(found[at : at + _FACTS_AT_ONCE])))
            await trio.sleep(_FACTS_INTERVAL)

    def _handle(self, frame: Frame) -> None:
        if self._lease.has_ended(boot_time()):
            raise WireClosed("the lease has ended")
        if frame.channel == NODE_CHANNEL:
            self._handle_own(frame)
        elif frame.kind is FrameKind.START:
            if frame.channel <= self._last_channel:
                raise LinkViolation(f"channel {frame.channel} was used before")
            self._last_channel = frame.channel
            worker = HostedWorker(frame.channel, self._link, self._host, self._sessions, self._devices)
            self._workers[frame.channel] = worker
            self._nursery.start_soon(self._run_worker, frame.channel, worker, decode_message(frame.payload, Start))
        elif (known := self._workers.get(frame.channel)) is not None:
            known.handle(frame)  # any other has ended, which home will hear

    async def _run_worker(self, channel: int, worker: HostedWorker, start: Start) -> None:
        try:
            await trio.lowlevel.checkpoint()  # nothing is started once the end has begun
            await worker.run(start)
        finally:
            del self._workers[channel]

    def _handle_own(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.PONG:
                seq = decode_message(frame.payload, Beat).seq
                if (sent := self._lease.sent_at(seq)) is not None:
                    self._rtt = boot_time() - sent
                if self._lease.answered(seq) and self._guard is not None:
                    self._guard.send(lease_guard.extended(self._lease.ends_at))
            case FrameKind.BYE:
                bye = decode_message(frame.payload, Bye)
                text = f"the supervisor says: {bye.reason}"
                raise WireClosed(text) if bye.retry_after is not None else _Dismissed(text)
            case _:
                raise LinkViolation(f"{frame.kind.name} does not concern a node")
