"""A real ``pool run`` in a process of its own, its lives, and the ``pool`` commands against it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
from click.testing import CliRunner

import cli
from app.child import SupervisorProcess
from wire.messages import EventEnvelope

POOL = (str(Path(sys.executable).parent / "pool"),)
LONGEST_YIELD_MS = 120_000
"""No command that a test ends goes to the background before."""
_LIMIT = 90.0


def tool(command: str, **given: Any) -> str:
    """A prompt with which the bundled agent runs a shell command."""
    return f"TOOL:exec {msgspec.json.encode({'command': command, **given}).decode()}"


def gated(gate: Path) -> str:
    """A prompt of the bundled agent whose turn goes on until the file ``gate`` is there."""
    return tool(f"until [ -e {gate} ]; do sleep 0.05; done", yield_ms=LONGEST_YIELD_MS)


class Supervisor(SupervisorProcess):
    """One ``pool run``, begun at once; all of its log is kept."""

    def __init__(
        self, data_dir: Path, *flags: str, wrapper: Sequence[str] = (), terminal: int = subprocess.DEVNULL
    ) -> None:
        """``terminal``: the file descriptor of its standard input."""
        super().__init__(data_dir, None, flags=flags, wrapper=wrapper, stdin=terminal, stdout=None, log_lines=None)
        self.data_dir = data_dir
        self.socket = data_dir / "control.sock"
        self.env = dict(os.environ)
        self._commands: list[subprocess.Popen[str]] = []
        self._start()

    # --- its log ------------------------------------------------------------------------------------------------------

    def wait_for_log(self, event: str, count: int = 1) -> None:
        """Wait until it has logged ``event`` ``count`` times."""
        assert self.wait_for_event(event, count, timeout=_LIMIT), self.log_tail()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Every line of that event."""
        return [msgspec.json.decode(line) for line in self.log if f'"event":"{event}"' in line]

    # --- commands -----------------------------------------------------------------------------------------------------

    def pool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A ``pool`` command run to its end, in this process: what it needs a process of its own for is tests/cli's."""
        runner = CliRunner(env={"POOL_SOCKET": str(self.socket)})
        done = runner.invoke(cli.main, arguments, prog_name="pool")
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A ``pool`` command in a process of its own, which goes on."""
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {**self.env, "POOL_SOCKET": str(self.socket)}
        self._commands.append(subprocess.Popen([*POOL, *arguments], env=env, text=True, **pipes))
        return self._commands[-1]

    def prompt(self, session: str, text: str, *flags: str) -> str:
        """The answer to one prompt; it must succeed."""
        done = self.pool("prompt", "-s", session, *flags, text)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # --- requests -----------------------------------------------------------------------------------------------------

    def call(self, method: str, **params: Any) -> Any:
        """What the method answers."""
        with self.connect() as client:
            return client.call(method, params, timeout=_LIMIT)

    def begin(self, session: str, text: str, **params: Any) -> str:
        """Send a message without waiting for its answer; the run's id."""
        return str(self.call("agent", session=session, text=text, **params)["run_id"])

    def outcome(self, run_id: str) -> dict[str, Any]:
        """How the run ends."""
        return dict(self.call("agent.wait", run_id=run_id))

    def status(self) -> dict[str, Any]:
        return dict(self.call("status"))

    def worker_of(self, session: str) -> dict[str, Any]:
        """The worker that the session is bound to."""
        return next(worker for worker in self.status()["workers"] if worker["session"] == session)

    def wait_for_turn(self, session: str) -> dict[str, Any]:
        """The worker that runs a turn of ``session``; asked for until there is one."""
        deadline = time.monotonic() + _LIMIT
        while time.monotonic() < deadline:
            for worker in self.status()["workers"]:
                if worker["session"] == session and worker["turn_age"] is not None and worker["pid"]:
                    return dict(worker)
        raise AssertionError(f"no turn of {session} began: {self.status()}")

    def wait_for_loss(self, pid: int) -> None:
        """Until it has noticed that the worker with this pid is no more."""
        while any(worker["pid"] == pid for worker in self.status()["workers"]):
            continue

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Every event of this type in its stream so far, in all lives."""
        found: list[dict[str, Any]] = []
        with self.connect() as client:
            subscription = client.subscribe({"since": 0, "kinds": [kind, "pool_running"]})
            client.call("pause")
            client.call("resume")  # told by an event, which comes after all that was told so far
            for events in subscription.batches():
                found += [_opened(event) for event in events if event.type == kind]
                if any(event.type == "pool_running" and event.seq > subscription.head for event in events):
                    return found
        raise AssertionError(subscription.reason)

    @contextmanager
    def following(self, *kinds: str, since: int | None = 0) -> Iterator[Iterator[dict[str, Any]]]:
        """All events of these types from the first one on (None: from now on), as they arrive."""
        with self.connect() as client:
            subscription = client.subscribe({"kinds": list(kinds), **({} if since is None else {"since": since})})
            yield (_opened(event) for events in subscription.batches() for event in events)

    # --- its process --------------------------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 20.0) -> int:
        return super().wait(timeout)

    def kill(self) -> None:
        """``kill -9``, and wait for its end."""
        self.process.kill()
        self.wait()

    def instance(self) -> str:
        """What its workers are marked with."""
        return str(msgspec.json.decode((self.data_dir / "workers.json").read_bytes())["instance"])

    def close(self) -> None:
        """End it and every command that a failed test has left running."""
        for command in self._commands:
            if command.poll() is None:
                command.kill()
            if command.stdout is not None and not command.stdout.closed:
                command.communicate()
        self._stop()


def _opened(event: EventEnvelope) -> dict[str, Any]:
    facts = {name: getattr(event, name) for name in ("seq", "type", "session", "run_id", "channel")}
    return {**facts, "data": msgspec.json.decode(event.data)}


@contextmanager
def running_supervisor(
    data_dir: Path, *flags: str, settings: str | None = None, **options: Any
) -> Iterator[Supervisor]:
    """One that serves. ``settings``: the text of ``pool.toml`` there; ``options``: as ``Supervisor`` takes them."""
    if settings is not None:
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / "pool.toml").write_text(settings)
        flags = (*flags, "--config", str(data_dir / "pool.toml"))
    supervisor = Supervisor(data_dir, *flags, **options)
    try:
        supervisor.wait_for_log("ready")
        yield supervisor
    finally:
        supervisor.close()


class Lives:
    """One data directory and the supervisors that live on it, one after the other: only the last can be alive."""

    def __init__(self, folder: Path, settings: str) -> None:
        """``folder`` exists and has a short path; ``settings`` is the text of the settings file."""
        self.data_dir = folder / "data"
        self.settings_file = folder / "pool.toml"
        self.settings_file.write_text(settings)
        self.all: list[Supervisor] = []

    def living(self) -> Supervisor:
        """The supervisor, ready for clients; a new one where the last has ended."""
        if not self.all or self.all[-1].process.poll() is not None:
            self.all.append(Supervisor(self.data_dir, "--config", str(self.settings_file)))
            self.all[-1].wait_for_log("ready")
        return self.all[-1]

    def stop(self) -> None:
        """Stop the last one in good order, if it lives."""
        if self.all and self.all[-1].process.poll() is None:
            self.all[-1].signal(signal.SIGTERM)
            assert self.all[-1].wait() == 0, self.all[-1].log_tail()
        for life in self.all:
            life.close()


def marked_processes(instance: str) -> list[psutil.Process]:
    """Every live process that carries the marker of this supervisor, found without any code of ours."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marker = process.environ().get("POOL_WORKER_ID", "")
            if marker.startswith(f"{instance}:") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def processes_with(instance: str, program: str, count: int = 1) -> list[psutil.Process]:
    """These processes, once ``count`` of them run ``program``."""
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
