"""A supervisor as a child process, with settings, data and socket in one folder: for the demo, and for tests."""

import collections
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from doors.control_client import ControlClient
from errors import PoolError

__all__ = ["SupervisorProcess"]

_READY_TIMEOUT = 30.0
_TERM_TIMEOUT = 30.0
_LOG_LINES = 40


class SupervisorProcess:
    """``pool run`` in a process of its own; a context manager that leaves no process behind.

    Entering starts it and waits until clients can connect; raises PoolError with its last words when it does not come
    that far. Leaving ends it, by SIGTERM and in the end by SIGKILL, unless it has ended already.
    """

    def __init__(self, folder: Path, settings: str = "") -> None:
        """``folder`` must exist and have a short path; ``settings``: the text of a file whose log tells ``ready``."""
        self.data_dir = folder / "data"
        self.socket = folder / "s"
        self._settings_file = folder / "pool.toml"
        self._settings_file.write_text(settings, encoding="utf-8")
        self._log: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
        self._is_ready = False
        self._has_answered = threading.Event()
        """It has said that it is ready, or will not any more."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-m", "cli", "run"]
        where = ["--config", self._settings_file, "--data-dir", self.data_dir, "--socket", self.socket]
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}
        self._process = subprocess.Popen(
            [*command, *map(str, where)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=env,
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self._has_answered.wait(_READY_TIMEOUT)
        if not self._is_ready:  # that there is a socket says nothing: one that was killed has left its own
            self._end()
            raise PoolError(f"the supervisor did not start: {self.log_tail().strip() or 'it said nothing'}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def connect(self) -> ControlClient:
        """A new connection to it."""
        return ControlClient(self.socket)

    def wait(self, timeout: float) -> int:
        """Wait for its end; its exit code. Raises TimeoutError."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired as exc:
            raise TimeoutError(f"the supervisor still runs after {timeout:g} s") from exc

    def log_tail(self) -> str:
        """The last lines it wrote."""
        return "".join(self._log)

    def _read_log(self) -> None:
        """Until the supervisor and whoever shares its stderr are gone."""
        assert self._process.stderr is not None  # noqa: S101  # opened as a pipe above
        with self._process.stderr as lines:
            for line in lines:
                self._log.append(line.decode(errors="replace"))
                if b'"event":"ready"' in line:
                    self._is_ready = True
                    self._has_answered.set()
        self._has_answered.set()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_TERM_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(1.0)
