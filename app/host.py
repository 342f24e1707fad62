"""How the host controls a supervisor: its signals, and the service manager (systemd) with readiness and watchdog."""

import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trio

from app.detach import announce_ready
from errors import UsageError


def handled_signals() -> tuple[signal.Signals, ...]:
    """Signals that stop the supervisor, and SIGHUP: reload, or the terminal is gone.

    Where ``nohup`` has SIGHUP ignored it stays so.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


@contextmanager
def receive_signals(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
    """``trio.open_signal_receiver``, but afterwards they are ignored: what they ask for is as good as done.

    By their defaults one that comes a moment later would end the process as if it had been killed in its work.
    """
    missed: list[int] = []
    for number in numbers:  # what the receiver puts back at its end: there is no moment in which one would end us
        signal.signal(number, lambda number, _frame: missed.append(number))
    try:
        with trio.open_signal_receiver(*numbers) as signals:
            for came in missed:
                signal.raise_signal(came)
            yield signals
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


def has_terminal() -> bool:
    """Whether some terminal controls this process: one that is closed takes with it what runs in it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


# --- the service manager ----------------------------------------------------------------------------------------------

_SHORTEST_WATCHDOG = 0.01
"""Seconds; below, the pings would be all that we do."""


class ServiceManager:
    """The way to the service manager; without ``NOTIFY_SOCKET`` no method says anything to one. A context manager.

    Args:
        env: the process's environment.
        on_trouble: called with ``(event, data)`` when a message cannot be delivered, once for a row of them.
        ready_fd: where a program that started this one in the background reads that it serves.

    Raises:
        UsageError: ``NOTIFY_SOCKET`` is no address of a Unix socket, or ``WATCHDOG_USEC`` is no time.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        on_trouble: Callable[[str, dict[str, Any]], None] = lambda _event, _data: None,
        *,
        ready_fd: int | None = None,
    ) -> None:
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self._interval = watchdog_interval(env, os.getpid())
        self.unit = None if self._address is None else service_unit(_own_cgroup())
        """The unit of systemd that this process is, with ``user`` or ``system``; None where there is none."""
        self._on_trouble = on_trouble
        self._ready_fd = ready_fd
        self._is_unreachable = False
        self._socket: socket.socket | None = None
        if self._address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(0)  # whatever the manager does, we do not wait for it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Say no more; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ready(self) -> None:
        """We serve: at the start, and again after every ``reloading``."""
        self._send("READY=1")
        if self._ready_fd is not None:
            announce_ready(self._ready_fd)
            self._ready_fd = None

    def reloading(self) -> None:
        """Notify that settings are reloading; ``ready`` must follow in any case."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """We are on our way out."""
        self._send("STOPPING=1")

    async def keep_alive(self) -> None:
        """Ping at half the interval that the manager asks for, as long as the event loop turns; until cancelled.

        Returns at once without a watchdog.
        """
        if self._interval is None or self._socket is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self._interval / 2)

    def _send(self, *lines: str) -> None:
        if self._socket is None or self._address is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as exc:  # full, gone, forbidden: the manager's own affair
            if not self._is_unreachable:
                self._on_trouble("service_manager_unreachable", {"message": lines[0], "reason": exc.strerror})
            self._is_unreachable = True
        else:
            self._is_unreachable = False


def watchdog_interval(env: Mapping[str, str], pid: int) -> float | None:
    """Seconds after which the service manager takes a silent process for dead; None where it does not watch ``pid``."""
    if env.get("WATCHDOG_PID", str(pid)) != str(pid) or not env.get("WATCHDOG_USEC"):
        return None
    text = env["WATCHDOG_USEC"]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) / 1e6 >= _SHORTEST_WATCHDOG):
        raise UsageError(f"WATCHDOG_USEC={text!r} is no time that a watchdog could have")
    return int(text) / 1e6


def service_unit(cgroup: str) -> dict[str, str] | None:
    """``{"unit": "pool.service", "manager": "user"}`` by the text of ``/proc/self/cgroup``; None for no service."""
    parts = cgroup.strip().rpartition(":")[2].split("/")
    units = [part for part in parts if part.endswith(".service") and not part.startswith("user@")]
    if not units:
        return None
    return {"unit": units[-1], "manager": "user" if any(part.startswith("user@") for part in parts) else "system"}


def _own_cgroup() -> str:
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""  # not Linux


def _address(name: str) -> bytes | None:
    """A path, or an abstract name: ``@`` stands for the NUL it begins with. The kernel's limit is 108 bytes."""
    if not name:
        return None
    address = os.fsencode(name)
    if address[:1] not in (b"/", b"@") or len(address) > 107 or len(address) == 1:
        raise UsageError(f"NOTIFY_SOCKET={name!r} is no address of a Unix socket")
    return b"\0" + address[1:] if address.startswith(b"@") else address
