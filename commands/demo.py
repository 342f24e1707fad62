"""``pool demo``, and a supervisor as a child process: for the demo, the stress command, and tests.

The demo runs in a temporary directory and needs nothing installed: a real supervisor, prompts of more sessions than
there are workers, a worker killed in mid-turn, a clean end. Each claim is checked; the first failure ends the demo.
"""

import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import click
import psutil
from rich.console import Console
from rich.text import Text

from commands.event_text import answer_text
from commands.prompt import check_outcome
from commands.supervisor import stop_supervisor
from commands.tables import status_view
from doors.control.client import ControlClient
from errors import PoolError, WorkerExited
from wire.terminal import clean, error_line, format_duration

_READY_TIMEOUT = 30.0
_TERM_TIMEOUT = 30.0
_LOG_LINES = 40


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
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}
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
        place = ["--data-dir", str(self.data_dir), "--socket", str(self.socket)]
        self.process = subprocess.Popen(
            [*self._wrapper, sys.executable, "-P", "-m", "cli", "run", *place, *self._flags],
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


_SETTINGS = """
[pool]
min = 1
max = 2

[roles.reviewer]
append_system_prompt = "You review what others have written."
"""
_SESSIONS = {"ada": "default", "grace": "default", "linus": "reviewer", "margaret": "reviewer", "ken": "default"}
_MAX_WORKERS = 2
_TURN_TIMEOUT = 15.0
_END_TIMEOUT = 10.0
_REAP_TIMEOUT = 3.0


class DemoFailed(PoolError):
    """Something the demo shows did not happen."""

    code: ClassVar[str] = "demo_failed"


@click.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Run a self-contained demo: a supervisor, prompts, a worker killed and replaced, a clean end."""
    ctx.exit(run_demo())


def run_demo(console: Console | None = None) -> int:
    """Run the demo on the terminal; the exit code: 0 only if all of it worked."""
    console = console or Console(highlight=False)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pool-demo-") as folder:
        supervisor = SupervisorProcess(Path(folder), _SETTINGS)
        try:
            with supervisor:
                _Demo(console, supervisor).run()
        except (PoolError, TimeoutError) as exc:
            reason = error_line(exc) if isinstance(exc, PoolError) else str(exc)
            console.print(Text(f"\nThe demo failed: {reason}", "bold red"))
            console.print(Text(f"The supervisor's last lines:\n{supervisor.log_tail()}", "dim"))
            return 1
    console.print(Text(f"\nAll of it worked, in {format_duration(time.monotonic() - started)}.", "bold green"))
    return 0


class _Demo:
    """The scenes, in order."""

    def __init__(self, console: Console, supervisor: SupervisorProcess) -> None:
        self._console = console
        self._supervisor = supervisor
        self._processes: dict[int, psutil.Process] = {}

    def run(self) -> None:
        """Play them; raises PoolError or TimeoutError where one fails."""
        self._print_heading(
            f"A supervisor runs (pid {self._supervisor.pid}) with at most {_MAX_WORKERS} worker processes."
        )
        self._show_one_answer()
        self._show_more_sessions_than_workers()
        self._show_killed_worker()
        self._show_status()
        self._show_clean_shutdown()

    # --- scenes -----------------------------------------------------------------------------------------------------

    def _show_one_answer(self) -> None:
        self._print_heading("One session, its answer as it comes:")
        self._prompt("ada", "I am Ada and my number is 1815.", live=True)

    def _show_more_sessions_than_workers(self) -> None:
        self._print_heading(f"{len(_SESSIONS)} sessions in 2 roles at the same time, on {_MAX_WORKERS} workers:")
        with ThreadPoolExecutor(len(_SESSIONS)) as threads:
            turns = [threads.submit(self._prompt, session, "PIECES=3 DELAY=100") for session in _SESSIONS]
            outcomes = [turn.result() for turn in turns]
        used = {outcome["worker"] for outcome in outcomes}
        waited = max(outcome["waited"] for outcome in outcomes)
        self._check(len(outcomes) == len(_SESSIONS), "not every session got its answer")
        self._print_heading(
            f"All answered by the workers {', '.join(sorted(used))}; the longest wait was {format_duration(waited)}.",
            "green",
        )

    def _show_killed_worker(self) -> None:
        self._print_heading("A worker is killed (SIGKILL) in the middle of ada's turn:")
        try:
            self._prompt("ada", "PIECES=400 DELAY=25", kill_at_first_piece=True)
        except WorkerExited as error:
            self._print("ada", Text(f"the turn failed: {error_line(error)}", "red"))
        else:
            raise DemoFailed("the turn of a killed worker ended as if nothing had happened")
        self._print_heading("The next prompt gets another worker, which resumes the session from its transcript:")
        answer = self._prompt("ada", "RECALL")["text"]
        self._check("my number is 1815" in answer, "the session was lost with its worker")

    def _show_status(self) -> None:
        self._print_heading("What `pool status` shows now:")
        document = self._record_workers()
        self._console.print(status_view(document, self._console.width))
        live = document["pool"]["total"]
        self._check(live <= _MAX_WORKERS, f"{live} workers are alive, more than {_MAX_WORKERS}")

    def _show_clean_shutdown(self) -> None:
        self._print_heading("Stop:")
        with self._supervisor.connect() as client:
            stop_supervisor(client, _END_TIMEOUT)
        code = self._supervisor.wait(_END_TIMEOUT)
        self._check(code == 0, f"the supervisor ended with code {code}")
        _gone, left = psutil.wait_procs(list(self._processes.values()), timeout=_REAP_TIMEOUT)
        self._check(not left, f"worker processes are left: {', '.join(str(process.pid) for process in left)}")
        self._check(not self._supervisor.socket.exists(), "the control socket is left")
        self._print_heading(
            f"The supervisor has ended with code 0, and so have all {len(self._processes)} processes it had.", "green"
        )

    # --- what the scenes are made of --------------------------------------------------------------------------------

    def _prompt(
        self, session: str, text: str, *, live: bool = False, kill_at_first_piece: bool = False
    ) -> dict[str, Any]:
        params = {"session": session, "role": _SESSIONS[session], "text": text, "timeout": _TURN_TIMEOUT}
        if live:
            self._print(session, Text(f"> {text}", "dim"))
            self._console.print(Text(f"{session:>10}  "), end="")
        with self._supervisor.connect() as client:
            stream = client.stream("prompt", params, timeout=_TURN_TIMEOUT + 5)
            for batch in stream:
                piece = "".join(clean(answer_text(pushed.data.events)) for pushed in batch)
                self._show_piece(session, piece, live=live)
                if kill_at_first_piece and piece:
                    self._kill_worker_of(session)
                    kill_at_first_piece = False
        self._record_workers()
        if live:
            self._console.print()
        outcome: dict[str, Any] = stream.result
        check_outcome(outcome)
        return outcome

    def _show_piece(self, session: str, piece: str, *, live: bool) -> None:
        if live:
            self._console.print(Text(piece), end="")
        elif piece:
            self._print(session, Text(piece))

    def _kill_worker_of(self, session: str) -> None:
        workers = self._record_workers()["workers"]
        pid = next((worker["pid"] for worker in workers if worker["session"] == session), None)
        if pid is None:
            raise DemoFailed(f"no worker is shown for the session {session} in the middle of its turn")
        os.kill(pid, signal.SIGKILL)

    def _record_workers(self) -> dict[str, Any]:
        """The status document; notes every process below the supervisor, to look for at the end."""
        with self._supervisor.connect() as client:
            document: dict[str, Any] = client.call("status")
        for process in psutil.Process(self._supervisor.pid).children(recursive=True):
            self._processes.setdefault(process.pid, process)
        return document

    def _check(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001  # reads like an assertion
        if not holds:
            raise DemoFailed(otherwise)

    def _print_heading(self, text: str, style: str = "bold cyan") -> None:
        self._console.print(Text(f"\n{text}", style))

    def _print(self, session: str, text: Text) -> None:
        self._console.print(Text(f"{session:>10}  ").append_text(text))
