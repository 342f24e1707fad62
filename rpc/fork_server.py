"""The supervisor's side of the fork server: workers of the bundled agent begin as copies of one that has imported it.

A forked worker is a child of this process, as one that was spawned. Whatever cannot be forked, and every worker while
there is no server, is spawned: ``ForkServer.start`` then returns None.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import NamedTuple

import trio

from rpc.cgroup import raise_oom_score
from rpc.children import ChildRegistry, ExitWatch, ForkedChild
from rpc.rlimit_mark import can_mark_by_rlimit, mark_number, marking_children
from rpc.spawn import SpawnedProcess, WorkerSpec
from rpc.transport import ExitStatus
from wire.fork_request import ANSWER, MAX_MESSAGE, READY, ForkRequest
from wire.procfs import identify

_READY_TIMEOUT = 10.0  # seconds until a server that says nothing is given up, and workers are spawned
_ANSWER_TIMEOUT = 5.0  # seconds that a fork may take
_EXIT_TIMEOUT = 2.0  # seconds that a server gets to end after its socket was closed
_RESTART_DELAY = 10.0  # seconds before a lost server is replaced; workers are spawned meanwhile
_MAX_REQUEST_BYTES = 128 * 1024
"""A larger one is left to the kernel, which refuses arguments above this size: what can be started shall not depend on
how it is started."""

_SHAPING_PREFIXES = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "OPENSSL_")
_SHAPING_NAMES = frozenset({"HOME", "LANG", "LANGUAGE", "LOCPATH", "GCONV_PATH", "TZ"})
"""Variables that the interpreter and its libraries read once, as they begin."""


class _Server(NamedTuple):
    """A running server and the socket to it."""

    popen: subprocess.Popen[bytes]
    watch: ExitWatch
    socket: socket.socket


class ForkServer:
    """Keeps one server process, from the first worker that wants it on; ``run`` owns it.

    Args:
        command: ``python -P -m agent`` with the first options; what a worker's command must begin with to be forked.
        env: the server's whole environment; a worker whose environment would shape another interpreter is spawned.
        children: where server and workers are registered.
        on_lost: gets a sentence for every server that ended by itself, or cannot be had here.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        env: Mapping[str, str],
        marker: str,
        children: ChildRegistry,
        *,
        on_lost: Callable[[str], None],
    ) -> None:
        self._command = command
        self._env = dict(env)
        self._marker = marker
        self._children = children
        self._on_lost = on_lost
        self._server: _Server | None = None
        """The one that serves."""
        self._wanted = trio.Event()
        self._settled = trio.Event()
        """Whether it is known if there is a server now."""
        self._settled.set()

    # --- the server's life --------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a server until cancelled, or until it says that it cannot serve here."""
        self._settled = trio.Event()
        task_status.started()
        try:
            while True:
                await self._wanted.wait()
                if not await self._keep_one():
                    return
                await trio.sleep(_RESTART_DELAY)
                self._wanted, self._settled = trio.Event(), trio.Event()
        finally:
            self._settled.set()

    async def _keep_one(self) -> bool:
        """From its start to its end; whether another one may be tried."""
        try:
            server = self._spawn()
        except OSError as exc:
            self._lose(f"the fork server could not be started: {exc}")
            return True
        message = b""
        try:
            message = await _receive_first(server.socket)
            if message == READY:
                self._server = server
                self._settled.set()
                await server.watch.wait()
        finally:
            self._server = None
            status = await self._end(server)
        if message in {READY, b""}:
            self._lose(f"the fork server {server.popen.pid} {status}; workers are spawned until there is another")
            return True
        self._lose(f"workers cannot be forked here and are spawned: {message.decode('utf-8', 'replace')}")
        return False

    def _lose(self, reason: str) -> None:
        self._on_lost(reason)
        self._settled.set()

    def _spawn(self) -> _Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as undo:
            undo.callback(ours.close)
            with theirs, marking_children(self._marker):
                popen = subprocess.Popen(
                    [*self._command[: self._command.index("-m")], "-m", "agent.fork_server"],
                    env=self._env,
                    cwd="/",
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    umask=0o077,
                    start_new_session=True,
                )
            undo.callback(popen.wait)
            undo.callback(popen.kill)
            watch = ExitWatch.open(popen)
            undo.pop_all()
        raise_oom_score(popen.pid)
        ours.settimeout(0)
        self._children.register(identify(popen.pid))
        return _Server(popen, watch, ours)

    async def _end(self, server: _Server) -> ExitStatus:
        """End and reap it; its workers stay."""
        trio.lowlevel.notify_closing(server.socket)
        server.socket.close()
        for _ in range(2):
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _EXIT_TIMEOUT):
                await server.watch.wait()
            if server.watch.has_ended():
                break
            server.watch.signal(signal.SIGKILL)
        code = server.popen.poll()  # one that the kernel does not end yet is left to the reaper
        self._children.unregister(server.popen.pid)
        server.watch.close()
        return ExitStatus.from_returncode(-signal.SIGKILL if code is None else code)

    # --- its workers --------------------------------------------------------------------------------------------------

    async def start(self, spec: WorkerSpec) -> SpawnedProcess | None:
        """Fork ``spec``; None where it is to be spawned, which also says what is wrong with it.

        Waits for a server that has just been started: by then it will have been faster than a spawned worker.
        """
        if not self._can_fork(spec):
            return None
        self._wanted.set()
        await self._settled.wait()
        server = self._server
        if server is None:
            return None
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                streams, answer = _send_request(server.socket, spec, ours, theirs)
            except (OSError, ValueError):
                return None  # no descriptors, no such directory, a server that ends, a text that no process can have
            theirs.close()
            pid = await _receive_answer(answer, server.watch)
            if pid is None:
                return None
            ours.pop_all()
        os.close(answer)
        return SpawnedProcess(ForkedChild(pid), *streams)

    def _can_fork(self, spec: WorkerSpec) -> bool:
        is_ours = spec.argv[: len(self._command)] == self._command
        return is_ours and _shaping(spec.env) == _shaping(self._env.items())


def _shaping(env: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in env if name in _SHAPING_NAMES or name.startswith(_SHAPING_PREFIXES)}


async def _receive_first(server: socket.socket) -> bytes:
    """The server's first message; nothing where it ends before, or takes too long."""
    with trio.move_on_after(_READY_TIMEOUT), suppress(ConnectionError):
        await trio.lowlevel.wait_readable(server)
        return server.recv(MAX_MESSAGE)
    return b""


def _send_request(
    server: socket.socket, spec: WorkerSpec, ours: ExitStack, theirs: ExitStack
) -> tuple[tuple[int, int, int], int]:
    """Ask for a worker; our ends of its streams, and of the pipe for the answer, all non-blocking. OSError, ValueError.

    ``ours`` closes them, ``theirs`` what the server has copies of.
    """
    mark = mark_number(spec.marker) if can_mark_by_rlimit() else 0
    request = ForkRequest(spec.argv, spec.env, mark).encode()
    if len(request) > _MAX_REQUEST_BYTES:
        raise ValueError("too large")
    file = os.memfd_create("fork-request")
    theirs.callback(os.close, file)
    os.pwrite(file, request, 0)
    directory = os.open(spec.cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    theirs.callback(os.close, directory)
    child_in, our_in = _pipe(reader=theirs, writer=ours)
    our_out, child_out = _pipe(reader=ours, writer=theirs)
    our_err, child_err = _pipe(reader=ours, writer=theirs)
    our_answer, child_answer = _pipe(reader=ours, writer=theirs)
    for descriptor in (our_in, our_out, our_err, our_answer):
        os.set_blocking(descriptor, False)
    socket.send_fds(server, [b"f"], [file, directory, child_in, child_out, child_err, child_answer])
    return (our_in, our_out, our_err), our_answer


def _pipe(*, reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Both ends, each to be closed by its owner."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


async def _receive_answer(answer: int, server: ExitWatch) -> int | None:
    """Pid of the new process; None where there is none.

    Shielded, for a process that is made must have an owner. One that answers too late finds the pipe closed and ends.
    """
    for _ in range(2):
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _ANSWER_TIMEOUT):
            await trio.lowlevel.wait_readable(answer)
            break
        server.signal(signal.SIGKILL)  # then the new process answers, or the last writer of the pipe is gone
    with suppress(BlockingIOError):
        data = os.read(answer, ANSWER.size)
        if len(data) == ANSWER.size:
            (pid,) = ANSWER.unpack(data)
            return int(pid)
    return None
