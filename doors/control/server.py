"""The control socket: a Unix socket that only its owner may use, and a bounded number of connections on it."""

import logging
import os
import pwd
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import trio

from doors.budgets import InputBudget, OutputBudget
from doors.control.connection import Budgets, ControlConnection, ControlLimits
from doors.control.frames import encode_error
from doors.locations import AlreadyRunning, check_socket_path, make_private_dir
from errors import PoolError, PoolSaturated, UsageError
from gateway.caller import MethodDispatcher

_BACKLOG = 128
_UCRED = struct.Struct("3i")
_logger = logging.getLogger("pool.control")


class ControlServer:
    """Serves ``methods`` on the socket ``path``. The caller holds the data directory's lock."""

    def __init__(self, methods: MethodDispatcher, path: Path, *, limits: ControlLimits | None = None) -> None:
        self._methods = methods
        self._path = path
        self._limits = limits or ControlLimits()
        self._budgets = Budgets(InputBudget(self._limits.input_bytes), OutputBudget(self._limits.output_bytes))
        self._names = {uid: _account_name(uid) for uid in (0, os.geteuid())}  # asked once: it may be a network's answer
        self._open = 0
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
            await trio.serve_listeners(self._admit, [listener], handler_nursery=self._nursery)

    async def _admit(self, stream: trio.SocketStream) -> None:
        self._open += 1
        try:
            with socket.socket(fileno=stream.socket.detach()) as sock:
                sock.settimeout(0)
                await self._serve(sock)
        except Exception:  # a defect met on one connection must not end the others
            _logger.exception("a connection failed")
        finally:
            self._open -= 1

    async def _serve(self, sock: socket.socket) -> None:
        uid = os.geteuid()  # where the system cannot tell, the socket's mode keeps others out
        if hasattr(socket, "SO_PEERCRED"):
            _pid, uid, _gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        if uid not in self._names:
            _logger.warning("refused a connection of uid %s", uid)
            _refuse(sock, UsageError("this supervisor serves another user"))
        elif self._open > self._limits.max_connections:
            text = f"{self._limits.max_connections} connections are open, which is the limit"
            _refuse(sock, PoolSaturated(text, retry_after=1.0))
        else:
            who = {"principal": f"uid:{uid}", "name": self._names[uid]}
            await ControlConnection(sock, self._methods, self._limits, self._budgets, **who).run()


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


def _refuse(sock: socket.socket, error: PoolError) -> None:
    with suppress(OSError):  # the peer may have left
        sock.send(encode_error(None, error))


def _account_name(uid: int) -> str:
    """What the account is called; ``uid:N`` where the system knows no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"
