"""The control socket: a Unix socket that only its owner may use, and a bounded number of connections on it."""

import logging
import os
import pwd
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio

from doors.budgets import InputBudget, OutputBudget
from doors.control.connection import Budgets, ControlConnection
from doors.control.frames import encode_error
from doors.control.limits import ControlLimits
from doors.data_dir_lock import AlreadyRunning, make_private_dir
from doors.socket_path import check_socket_path
from errors import PoolSaturated, UsageError
from gateway.caller import MethodDispatcher

_BACKLOG = 128
_UCRED = struct.Struct("3i")
_logger = logging.getLogger("pool.control")


class ControlServer:
    """Serves ``methods`` on the socket ``path``. The caller holds the data directory's lock."""

    def __init__(self, methods: MethodDispatcher, path: Path, *, limits: ControlLimits | None = None) -> None:
        self._path = path
        self._acceptor = _ConnectionAcceptor(methods, limits or ControlLimits())
        self._sockets = ExitStack()
        self._identity: tuple[int, int] | None = None
        self._listening = trio.CancelScope()
        self._nursery: trio.Nursery

    async def serve(self, *, task_status: trio.TaskStatus[Path] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports started once clients can connect.

        A stale socket is replaced. When cancelled, requests in flight are answered ``pool_closed``, what was said is
        given ``flush_grace`` to be read, and the socket file is removed last.

        Raises:
            AlreadyRunning: another process listens on the path.
            UsageError: the path is too long, or cannot be bound.
        """
        with self._sockets:
            async with trio.open_nursery() as self._nursery:
                self._bind()
                task_status.started(self._path)

    def rebind(self) -> bool:
        """Bind the path again if the socket's file is gone or is another's; whether it was. Connections continue.

        Raises as ``serve`` does; then it stays as it is.
        """
        if self._identity is None or _identity(self._path) == self._identity:
            return False
        listening = self._listening
        self._bind()
        listening.cancel()
        return True

    def _bind(self) -> None:
        bound = self._sockets.enter_context(bind_control_socket(self._path))
        self._identity = _identity(self._path)
        self._listening = trio.CancelScope()
        self._nursery.start_soon(self._listen, bound, self._listening)

    async def _listen(self, bound: socket.socket, scope: trio.CancelScope) -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        with scope:
            await trio.serve_listeners(self._acceptor.admit, [listener], handler_nursery=self._nursery)


@contextmanager
def bind_control_socket(path: Path) -> Iterator[socket.socket]:
    """A listening socket of mode 0600, whose file is removed at the end, unless it was replaced."""
    check_socket_path(path)
    make_private_dir(path.parent)
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            bound.bind(os.fspath(path))
        except OSError as exc:
            raise UsageError(f"cannot make the control socket {path}: {exc.strerror}") from exc
        path.chmod(0o600)  # connecting is impossible before listen(), so no other user can be earlier
        bound.listen(_BACKLOG)
        identity = _identity(path)
        try:
            yield bound
        finally:
            if _identity(path) == identity:
                path.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _remove_stale(path: Path) -> None:
    """Remove a socket without a listener; raise UsageError for anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{path} exists and is no socket; remove it, or name another path with --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003  # the socket module's own signature
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # a process listens and is behind with accepting
        except OSError as exc:
            raise UsageError(f"cannot use the control socket {path}: {exc.strerror}") from exc
    raise AlreadyRunning(f"another supervisor listens on {path}; stop it, or name another path with --socket")


class _ConnectionAcceptor:
    """Decides who may come in, and counts who is in."""

    def __init__(self, methods: MethodDispatcher, limits: ControlLimits) -> None:
        self._methods = methods
        self._limits = limits
        self._budgets = Budgets(InputBudget(limits.input_bytes), OutputBudget(limits.output_bytes))
        self._names = {uid: account_name(uid) for uid in (0, os.geteuid())}  # asked once: it may be a network's answer
        self._open = 0

    async def admit(self, stream: trio.SocketStream) -> None:
        """Serve one accepted connection, or answer with the refusal."""
        self._open += 1
        try:
            await self._admit(stream)
        except Exception:  # a defect met on one connection must not end the others
            _logger.exception("a connection failed")
        finally:
            self._open -= 1
            stream.socket.close()

    async def _admit(self, stream: trio.SocketStream) -> None:
        uid: int | None = None  # where the system cannot tell, the socket's mode keeps others out
        if hasattr(socket, "SO_PEERCRED"):
            _pid, uid, _gid = _UCRED.unpack(
                stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            )
        if uid not in (None, 0, os.geteuid()):
            _logger.warning("refused a connection of uid %s", uid)
            await self._reject(stream, encode_error(None, UsageError("this supervisor serves another user")))
        elif self._open > self._limits.max_connections:
            text = f"{self._limits.max_connections} connections are open, which is the limit"
            await self._reject(stream, encode_error(None, PoolSaturated(text, retry_after=1.0)))
        else:
            await self._serve(stream, os.geteuid() if uid is None else uid)

    async def _serve(self, stream: trio.SocketStream, uid: int) -> None:
        with socket.socket(fileno=stream.socket.detach()) as sock:
            sock.settimeout(0)
            who = {"principal": f"uid:{uid}", "name": self._names[uid]}
            await ControlConnection(sock, self._methods, self._limits, self._budgets, **who).run()

    async def _reject(self, stream: trio.SocketStream, words: bytes) -> None:
        with trio.move_on_after(self._limits.flush_grace):
            try:
                await stream.send_all(words)
            except trio.BrokenResourceError:
                return  # it left by itself


def account_name(uid: int) -> str:
    """What the account is called; ``uid:N`` where the system knows no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"
