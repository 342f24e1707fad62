"""A supervisor as a child process: for the demo, the stress command, the benchmarks and tests."""

import collections
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from doors.control.client import ControlClient
from errors import PoolError

_READY_TIMEOUT = 30.0
_TERM_TIMEOUT = 30.0
_LOG_LINES = 40


def run_command(data_dir: Path, socket: Path) -> list[str]:
    """``pool run`` of this installation, whatever ``PATH`` and the working directory hold."""
    return [sys.executable, "-P", "-m", "cli", "run", "--data-dir", str(data_dir), "--socket", str(socket)]


def child_environment() -> dict[str, str]:
    """This process's own without ``POOL_*``, which would name another supervisor."""
    return {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}


class SupervisorProcess:
    """``pool run`` in a process of its own; a context manager that leaves no process behind.

    Entering starts it and waits until clients can connect; raises PoolError with its last words when it does not come
    that far. Leaving ends it, by SIGTERM and in the end by SIGKILL, unless it has ended already.
    """

    def __init__(
        self,
        folder: Path,
        settings: str | None = "",
        *,
        flags: Sequence[str] = (),
        wrapper: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = subprocess.DEVNULL,
        log_lines: int | None = _LOG_LINES,
    ) -> None:
        """``folder`` must exist and have a short path.

        ``settings``: a file whose log shows ``ready``; None = no file but the one that ``flags`` name. ``wrapper``: a
        program that starts it. ``log_lines``: how many of its last lines are kept; None = all.
        """
        self.data_dir = folder / "data"
        self.socket = folder / "s"
        self.env = child_environment()
        self.process: subprocess.Popen[bytes]
        self._flags = list(flags)
        if settings is not None:
            file = folder / "pool.toml"
            file.write_text(settings, encoding="utf-8")
            self._flags += ["--config", str(file)]
        self._wrapper = wrapper
        self._stdin, self._stdout = stdin, stdout
        self._lines: collections.deque[str] = collections.deque(maxlen=log_lines)
        self._changed = threading.Condition()
        self._events: collections.Counter[str] = collections.Counter()
        self._has_said_all = False

    def __enter__(self) -> Self:
        self._start()
        if not self.wait_for_event(
            "ready", timeout=_READY_TIMEOUT
        ):  # a socket says nothing: a killed one leaves its own
            self._stop()
            raise PoolError(f"the supervisor did not start: {self.log_tail().strip() or 'it said nothing'}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    def _start(self) -> None:
        """Begin the process; its log is read from now on."""
        self.process = subprocess.Popen(
            [*self._wrapper, *run_command(self.data_dir, self.socket), *self._flags],
            stdin=self._stdin,
            stdout=self._stdout,
            stderr=subprocess.PIPE,
            start_new_session=self._stdin != subprocess.DEVNULL,
            env=self.env,
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def connect(self) -> ControlClient:
        """A new connection to it."""
        return ControlClient(self.socket)

    def wait(self, timeout: float) -> int:
        """Wait for its end; its exit code. Raises TimeoutError."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired as exc:
            raise TimeoutError(f"the supervisor still runs after {timeout:g} s") from exc
        self._reader.join(1.0)  # its workers may hold the log open a moment longer
        return code

    def wait_for_event(self, event: str, count: int = 1, *, timeout: float) -> bool:
        """Whether the event was logged ``count`` times, or is before the log's end or ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_said_all or self._events[event] >= count, timeout)
            return self._events[event] >= count

    def log_tail(self) -> str:
        """The last lines it wrote."""
        return "".join(self.log)

    @property
    def log(self) -> list[str]:
        """The lines that are kept of what it has written so far."""
        with self._changed:
            return [*self._lines]

    def _read_log(self) -> None:
        """Until the supervisor and all that share its stderr have ended."""
        assert self.process.stderr is not None  # noqa: S101  # opened as a pipe above
        with self.process.stderr as lines:
            for line in lines:
                self._note(line.decode(errors="replace"))
        with self._changed:
            self._has_said_all = True
            self._changed.notify_all()

    def _note(self, line: str) -> None:
        with self._changed:
            self._lines.append(line)
            self._events.update(re.findall(r'"event":"(\w+)"', line))
            self._changed.notify_all()

    def _stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_TERM_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(1.0)
