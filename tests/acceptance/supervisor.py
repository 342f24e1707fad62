"""A real ``pool run`` in a process of its own, and the ``pool`` commands against it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

POOL = (str(Path(sys.executable).parent / "pool"),)
LONGEST_YIELD_MS = 120_000
"""No command that a test ends goes to the background before."""
_START_LIMIT = 90.0
_COMMAND_LIMIT = 90.0


def gated(gate: Path) -> str:
    """A prompt of the bundled agent whose turn goes on until the file ``gate`` is there."""
    call = {"command": f"until [ -e {gate} ]; do sleep 0.05; done", "yield_ms": LONGEST_YIELD_MS}
    return f"TOOL:exec {msgspec.json.encode(call).decode()}"


class Supervisor:
    """One ``pool run``. ``log`` collects what it writes to stderr."""

    def __init__(
        self, data_dir: Path, *flags: str, wrapper: Sequence[str] = (), terminal: int = subprocess.DEVNULL
    ) -> None:
        """``terminal``: the file descriptor of its standard input."""
        self.data_dir = data_dir
        self.socket = data_dir / "control.sock"
        self.log: list[str] = []
        self._started: list[subprocess.Popen[str]] = []
        self._env = {**os.environ, "POOL_SOCKET": str(self.socket)}
        self._changed = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            [*wrapper, *POOL, "run", *self._place(), *flags],
            stderr=subprocess.PIPE,
            stdin=terminal,
            text=True,
            start_new_session=terminal != subprocess.DEVNULL,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _place(self) -> list[str]:
        return ["--data-dir", str(self.data_dir), "--socket", str(self.socket)]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_log(self, event: str, count: int = 1) -> None:
        """Wait until it has logged ``event`` so often."""

        def is_there() -> bool:
            return self._ended or self.has_logged(event, count)

        with self._changed:
            assert self._changed.wait_for(is_there, _START_LIMIT), "".join(self.log)
        assert self.has_logged(event, count), "".join(self.log)

    def has_logged(self, event: str, count: int = 1) -> bool:
        """Whether so many lines of that event are there."""
        return sum(f'"event":"{event}"' in line for line in self.log) >= count

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A ``pool`` command that goes on."""
        command = subprocess.Popen(
            [*POOL, *arguments],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(command)
        return command

    def clear(self) -> None:
        """End every command that a failed test has left running."""
        for command in self._started:
            if command.poll() is None:
                command.kill()
            if command.stdout is not None and not command.stdout.closed:
                command.communicate()

    def pool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A ``pool`` command, run to its end."""
        return subprocess.run(
            [*POOL, *arguments],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_LIMIT,
            check=False,
        )

    def prompt(self, session: str, text: str, *flags: str) -> str:
        """The answer to one prompt; it must succeed."""
        done = self.pool("prompt", "-s", session, *flags, text)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def status(self) -> dict[str, Any]:
        done = self.pool("status", "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = msgspec.json.decode(done.stdout)
        return document

    def wait_for_turn(self, session: str) -> dict[str, Any]:
        """The worker that runs a turn of ``session``; asked for until there is one."""
        for _ in range(200):
            for worker in self.status()["workers"]:
                if worker["session"] == session and worker["turn_age"] is not None and worker["pid"]:
                    return dict(worker)
        raise AssertionError(f"no turn of {session} began: {self.status()}")

    def wait_for_loss(self, pid: int) -> None:
        """Until it has noticed that the worker with this pid is no more."""
        while any(worker["pid"] == pid for worker in self.status()["workers"]):
            continue

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, limit: float = 20.0) -> int:
        code = self.process.wait(limit)
        self._reader.join(limit)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def instance(self) -> str:
        """What its workers are marked with."""
        return str(msgspec.json.decode((self.data_dir / "workers.json").read_bytes())["instance"])


@contextmanager
def running_supervisor(
    data_dir: Path, *flags: str, wrapper: Sequence[str] = (), terminal: int = subprocess.DEVNULL
) -> Iterator[Supervisor]:
    """``wrapper``: a program that starts it, as ``nohup`` does."""
    supervisor = Supervisor(data_dir, *flags, wrapper=wrapper, terminal=terminal)
    try:
        supervisor.wait_for_log("ready")
        yield supervisor
    finally:
        supervisor.clear()
        if supervisor.process.poll() is None:
            supervisor.signal(signal.SIGTERM)
        try:
            supervisor.wait()
        except subprocess.TimeoutExpired:
            supervisor.process.kill()
            supervisor.wait()


def marked_processes(instance: str) -> list[psutil.Process]:
    """Every live process that carries the marker of this supervisor, found without any code of ours."""
    found = []
    for process in psutil.process_iter():
        try:
            marker = process.environ().get("POOL_WORKER_ID", "")
            if marker.startswith(f"{instance}:") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def processes_with(instance: str, program: str, count: int = 1) -> list[psutil.Process]:
    """These processes, once so many of them run ``program``."""
    while True:
        processes = marked_processes(instance)
        with suppress(psutil.NoSuchProcess):  # one that ends meanwhile: look again
            if sum(process.name() == program for process in processes) >= count:
                return processes


def gone_within(processes: list[psutil.Process], seconds: float) -> bool:
    """Whether all of them end in time, be they reaped or not."""
    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if _is_alive(process)]:
        if time.monotonic() > deadline:
            return False
        psutil.wait_procs(alive, timeout=0.05)
    return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
