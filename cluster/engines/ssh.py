"""The engine of nodes that ssh reaches: a link is the pipes of an ssh, and ends with it."""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from cluster.engines.engine import Desk, EngineLost
from cluster.engines.ssh_command import SshNode, SshProblem, end_of_ssh, node_argv, words_before
from cluster.frames import LinkViolation
from cluster.settings import NodeSettings
from cluster.wire import LinkWire, WireClosed
from errors import PoolError, unwrap_exception_groups
from rpc.pipes import Pipe
from rpc.stderr_log import StderrTail
from rpc.transport import ExitStatus

_MIN_DELAY, _MAX_DELAY = 0.5, 30.0  # seconds between two links, doubled for each one that ended early
_FIRST_BYTES_TIMEOUT = 30.0  # seconds in which ssh is let in and the node program says something
_LAST_WORDS_TIMEOUT = 1.0  # seconds from the end of its output in which ssh ends and says why
_END_GRACE = 2.0  # seconds from the closing of its pipes until ssh is asked to end, and from there until it is killed
_STDERR_BYTES = 8 * 1024


def next_delay(delay: float, lived: float) -> float:
    """Seconds before the next link, ``delay`` being those before the last one, which lived for ``lived`` seconds."""
    return _MIN_DELAY if lived >= _MAX_DELAY else min(max(2 * delay, _MIN_DELAY), _MAX_DELAY)


class SshEngine:
    """Keeps an ssh running for each of its nodes, which runs the node program there."""

    name = "ssh"

    def __init__(self, nodes: Mapping[str, NodeSettings]) -> None:
        self._nodes = [SshNode(name, settings) for name, settings in nodes.items()]

    async def run(self, desk: Desk) -> None:
        """Link all nodes, each again when its link has ended, until cancelled. Raises EngineLost without ssh."""
        if shutil.which("ssh") is None:
            raise EngineLost("there is no program ssh on PATH; install OpenSSH's client")
        with unwrap_exception_groups():
            async with trio.open_nursery() as nursery:
                for node in self._nodes:
                    nursery.start_soon(self._keep_linked, desk, node)

    async def want(self, slots: Mapping[str, int]) -> None:
        """Pass it over: all nodes of the settings run already."""

    async def _keep_linked(self, desk: Desk, node: SshNode) -> None:
        delay = 0.0
        while True:
            await trio.sleep(delay)
            began = trio.current_time()
            await run_ssh(node, node.name, partial(self._serve, desk, node))
            delay = next_delay(delay, trio.current_time() - began)

    async def _serve(self, desk: Desk, node: SshNode, wire: LinkWire) -> None:
        await desk.serve(wire, node.name, engine=self.name, labels=node.settings.labels, slots=node.settings.slots)


async def run_ssh(node: SshNode, name: str, serve: Callable[[LinkWire], Awaitable[None]]) -> None:
    """Run one ssh for as long as ``serve`` uses its wire, on which a node program called ``name`` speaks.

    ``serve`` begins once something was said, or stands in its place.
    """
    ssh = _Ssh(node)
    try:
        async with trio.open_nursery() as nursery:
            wire = await ssh.start(name, nursery)
            await wire.read_first()
            await serve(wire)
            nursery.cancel_scope.cancel()
    finally:
        await ssh.end()


class _Ssh:
    """One process of ssh, and what it has written to stderr last."""

    def __init__(self, node: SshNode) -> None:
        self._node = node
        self._process: trio.Process | None = None
        self._wire = SshWire(Pipe(-1), Pipe(-1), node, self._problem)
        self._tail = StderrTail(_STDERR_BYTES)
        self._is_silent = trio.Event()
        self._failure: SshProblem | None = None

    async def start(self, name: str, nursery: trio.Nursery) -> "SshWire":
        """Start it; its pipes, which have ended where that fails."""
        try:
            self._process = await trio.lowlevel.open_process(
                node_argv(self._node, name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # Ctrl-C in the terminal of the supervisor is not for it
            )
            nursery.start_soon(self._read_stderr, self._process)
            pipes = _taken(self._process.stdout), _taken(self._process.stdin)
            self._wire = SshWire(*pipes, self._node, self._problem)
        except (OSError, ValueError) as exc:  # ValueError: a word of the settings that no program can be given
            self._failure = SshProblem(f"ssh cannot be started: {exc}")
        return self._wire

    async def end(self) -> None:
        """Close its pipes and wait until it has ended, by force where that takes long."""
        self._wire.close()
        if self._process is None:
            return
        with trio.CancelScope(shield=True):
            for end_it in (self._process.terminate, self._process.kill):
                with trio.move_on_after(_END_GRACE):
                    await self._process.wait()
                    return
                end_it()
            await self._process.wait()

    async def _read_stderr(self, process: trio.Process) -> None:
        """Read it to its end, so that ssh never waits for that."""
        assert process.stderr is not None  # noqa: S101  # opened as a pipe above
        async with process.stderr as lines:
            async for data in lines:
                self._tail.feed(bytes(data))
        self._is_silent.set()

    async def _problem(self) -> SshProblem:
        """Why its output has ended, once it has said so itself."""
        if self._failure is not None:
            return self._failure
        code = None
        if self._process is not None:
            with trio.move_on_after(_LAST_WORDS_TIMEOUT):
                await self._process.wait()
                await self._is_silent.wait()
            code = self._process.returncode
        if code is None:
            return SshProblem(f"the node program on {self._node.host} has closed its output")
        return end_of_ssh(self._node, ExitStatus.from_returncode(code), self._tail.text())


def _taken(stream: object) -> Pipe:
    """A pipe of a process, which belongs to the caller. Raises OSError."""
    assert isinstance(stream, trio.lowlevel.FdStream)  # noqa: S101  # opened as a pipe above
    fd = os.dup(stream.fileno())
    stream.close()  # lets the pipe block again
    os.set_blocking(fd, False)
    return Pipe(fd)


class SshWire(LinkWire):
    """The pipes of an ssh: how they have ended, and what comes before the first frame, it says in words for people.

    Its errors have what to do about them as ``details["fix"]``.
    """

    def __init__(
        self, incoming: Pipe, outgoing: Pipe, node: SshNode, problem: Callable[[], Awaitable[SshProblem]]
    ) -> None:
        super().__init__(incoming, outgoing)
        self._node = node
        self._problem = problem
        self._first: bytes | PoolError | None = None

    async def read_first(self) -> None:
        """Wait for the first bytes, or for what stands in their place: the next ``receive`` has it.

        A peer that has not said who it is has a few seconds for that, and ssh may take longer to be let in.
        """
        try:
            with trio.fail_after(_FIRST_BYTES_TIMEOUT):
                self._first = await self.receive()
            if problem := words_before(self._node, self._first):
                self._first = LinkViolation(str(problem), fix=problem.fix)
        except trio.TooSlowError:
            self._first = WireClosed(f"ssh {self._node.host}: nothing was said within {_FIRST_BYTES_TIMEOUT:g} s")
        except WireClosed as exc:
            self._first = exc

    async def receive(self) -> bytes:
        """The next bytes. Raises WireClosed at the end of ssh, LinkViolation for what is no frame."""
        first, self._first = self._first, None
        if isinstance(first, PoolError):
            raise first
        if first is not None:
            return first
        try:
            return await super().receive()
        except WireClosed as exc:
            problem = await self._problem()
            raise WireClosed(str(problem), fix=problem.fix) from exc
