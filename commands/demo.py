"""``pool demo``, and a supervisor as a child process: for the demo, the stress command, and tests.

The demo runs in a temporary directory and needs nothing installed: a real supervisor, prompts of more sessions than
there are workers, a worker killed in mid-turn, a clean end. Each claim is checked; the first failure ends the demo.
"""

import collections
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
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
from commands.requests import stop_supervisor
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

    def __init__(self, folder: Path, settings: str = "") -> None:
        """``folder`` must exist and have a short path; ``settings``: a file whose log shows ``ready``."""
        self.data_dir = folder / "data"
        self.socket = folder / "s"
        self._settings_file = folder / "pool.toml"
        self._settings_file.write_text(settings, encoding="utf-8")
        self._log: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
        self._is_ready = False
        self._is_decided = threading.Event()
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
        self._is_decided.wait(_READY_TIMEOUT)
        if not self._is_ready:  # that there is a socket says nothing: one that was killed has left its own
            self._stop()
            raise PoolError(f"the supervisor did not start: {self.log_tail().strip() or 'it said nothing'}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

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
        """Until the supervisor and all that share its stderr have ended."""
        assert self._process.stderr is not None  # noqa: S101  # opened as a pipe above
        with self._process.stderr as lines:
            for line in lines:
                self._log.append(line.decode(errors="replace"))
                if b'"event":"ready"' in line:
                    self._is_ready = True
                    self._is_decided.set()
        self._is_decided.set()

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_TERM_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
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
