"""``pool demo``: what a pool does, shown with real processes.

It runs in a temporary directory and needs nothing installed: a real supervisor, prompts of more sessions than
there are workers, a worker killed in mid-turn, a clean end. Each claim is checked; the first failure ends the demo.
"""

import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import click
import psutil
from rich.console import Console
from rich.text import Text

from app.child import SupervisorProcess
from commands.event_text import answer_text
from commands.run_ends import check_outcome
from commands.supervisor import stop_supervisor
from commands.tables import status_view
from errors import PoolError, WorkerExited
from wire.terminal import clean, error_line, format_duration

_SETTINGS = """
[pool]
min = 1
max = 2

[roles.reviewer]
append_system_prompt = "You review what others have written."
"""
_SESSIONS = {"ada": "default", "grace": "default", "linus": "reviewer", "margaret": "reviewer", "ken": "default"}
_MAX_WORKERS = 2
_PIECES = "PIECES=3 DELAY=100"
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
            turns = [threads.submit(self._prompt, session, _PIECES) for session in _SESSIONS]
            outcomes = [turn.result() for turn in turns]
        used = {outcome["worker"] for outcome in outcomes}
        waited = max(outcome["waited"] for outcome in outcomes)
        self._check(all(outcome.get("text") for outcome in outcomes), "not every session got its answer")
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
        """The status document, of no more workers than allowed; notes every process, to look for at the end."""
        with self._supervisor.connect() as client:
            document: dict[str, Any] = client.call("status")
        live = document["pool"]["total"]
        self._check(live <= _MAX_WORKERS, f"{live} workers are alive, more than {_MAX_WORKERS}")
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
