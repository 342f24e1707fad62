"""The supervisor under test: a real ``pool run`` in a folder of its own, its lives, and what each leaves behind."""

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import trio

from app.child import child_environment, run_command
from errors import PoolError
from rpc.state_file import StateFileCorrupt, read_state
from stress.facts import Journal, LeftoverProcesses, SupervisorEnded, SupervisorStarted
from stress.faults.base import FaultSetup, FaultTarget, helper_process
from stress.helper_programs import CLEAN_UP
from stress.sampler import ProcessTree, find_supervisor

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_FORCE_SECONDS = 10.0
"""Seconds for a graceful end after Ctrl-C."""
_LEFTOVER_SECONDS = 2.0
"""Seconds after a supervisor's end, plus the machine's delay, by which all its processes must have ended."""
_POLL_SECONDS = 0.05
_LOG_LINES = 40
_LINE_BYTES = 64 * 1024


class _SupervisorProcess:
    """One supervisor process. ``signals``: those sent to end it."""

    def __init__(self, number: int, process: trio.Process) -> None:
        self.number = number
        self.process = process
        self.ready = trio.Event()
        self.ended = trio.Event()
        self.signals: list[int] = []
        self.process_tree: ProcessTree | None = None


class OwnTarget(FaultTarget):
    """One data directory and its successive supervisors."""

    def __init__(
        self,
        folder: Path,
        settings: str,
        preparations: Iterable[FaultSetup],
        journal: Journal,
    ) -> None:
        """``folder`` must exist and have a short path; ``settings`` is the text of the settings file."""
        super().__init__(folder / "s", folder / "data", journal)
        self.folder = folder
        self.log = folder / "log.jsonl"
        (folder / "pool.toml").write_text(settings, encoding="utf-8")
        self._wrapper = [word for preparation in preparations for word in preparation.wrapper]
        self._env = child_environment()
        self._current: _SupervisorProcess | None = None
        self._started_count = 0
        self._is_closed = trio.Event()
        self._has_started = trio.Event()
        self._nursery: trio.Nursery
        self._is_stored = trio.Event()
        self._is_stored.set()
        self._log_tail: deque[str] = deque(maxlen=_LOG_LINES)

    # --- its lives ----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the first supervisor and watch each; when cancelled, end the one that lives."""
        keeper = helper_process([*CLEAN_UP, str(self.data_dir), str(self.folder)])
        async with keeper, trio.open_nursery() as self._nursery:
            try:
                await self.restart()
                task_status.started()
                await trio.sleep_forever()
            finally:
                await self._force_stop()

    async def restart(self) -> None:
        """Start the next supervisor and wait until it is ready; does nothing once the run is over.

        Raises PoolError if the first one does not start; for a later one a violation is recorded.
        """
        if self._is_closed.is_set():
            return
        process = await trio.lowlevel.open_process(
            [*self._wrapper, *run_command(self.data_dir, self.socket), "--config", str(self.folder / "pool.toml")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self._env,
            start_new_session=True,
        )
        if self._is_closed.is_set():
            process.kill()
            await process.wait()
            return
        self._started_count += 1
        life = self._current = _SupervisorProcess(self._started_count, process)
        self._nursery.start_soon(self._read_log, life)
        self._nursery.start_soon(self._watch_end, life)
        with trio.move_on_after(_START_SECONDS):
            await life.ready.wait()
        if self._is_closed.is_set():
            return
        if life.process_tree is None:
            what = f"the supervisor did not start: {self.log_tail().strip() or 'it said nothing'}"
            if life.number == 1:
                raise PoolError(what)
            self.journal.record_violation(what)
            return
        self.journal.record(
            SupervisorStarted(t=self.journal.now(), life=life.number, supervisor=life.process_tree.supervisor)
        )
        self._has_started.set()
        self._has_started = trio.Event()

    async def kill(self, number: int) -> int:
        """Signal the supervisor, unless it has ended by itself, and wait for its end; its exit code."""
        life = self._current
        if life is None:
            raise PoolError("there is no supervisor to be signalled")
        if life.process.returncode is None:
            life.signals.append(number)
            supervisor = life.process.pid if life.process_tree is None else life.process_tree.supervisor
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, number)
        await life.ended.wait()
        return life.process.returncode or 0

    async def stop(self, number: int, seconds: float = _STOP_SECONDS) -> None:
        """End the supervisor by a signal; if that takes longer than ``seconds``, record a violation and kill it."""
        async with self.restart_lock:
            with trio.move_on_after(seconds) as scope:
                await self.kill(number)
            if scope.cancelled_caught:
                what = f"the supervisor still runs {seconds:g} s after the signal to stop"
                self.journal.record_violation(what)
                await self.kill(signal.SIGKILL)

    async def wait_ready(self) -> Path:
        """The socket, as soon as a supervisor listens on it."""
        while self._current is None or not self._current.ready.is_set() or self._current.ended.is_set():
            await self._has_started.wait()
        return self.socket

    async def wait_stored(self) -> None:
        """Wait until its store has written all that a full disk refused; returns at once if it has ended."""
        await self._is_stored.wait()

    # --- what a fault may ask -----------------------------------------------------------------------------------------

    @property
    def process_tree(self) -> ProcessTree | None:
        """Its processes; None while there is none."""
        life = self._current
        return None if life is None or life.ended.is_set() else life.process_tree

    @property
    def life(self) -> int:
        """Number of supervisors so far."""
        return self._started_count

    def log_tail(self) -> str:
        """The last lines of the supervisors' log."""
        return "".join(self._log_tail)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _read_log(self, life: _SupervisorProcess) -> None:
        """Read until the supervisor and all that share its stderr have ended."""
        stderr = life.process.stderr
        if stderr is None:
            raise RuntimeError("the supervisor's stderr is no pipe")
        rest = b""
        async with stderr, await trio.open_file(self.log, "ab") as log:
            async for chunk in stderr:
                await log.write(bytes(chunk))
                *lines, rest = (rest + bytes(chunk)).split(b"\n")
                for line in lines:
                    self._log_tail.append(line[:_LINE_BYTES].decode(errors="replace") + "\n")
                    self._on_log_line(line, life)
        self._is_stored.set()
        life.ready.set()

    def _on_log_line(self, line: bytes, life: _SupervisorProcess) -> None:
        if b'"event":"ready"' in line:
            self._on_ready(life)
        elif b'"event":"store_degraded"' in line:
            self._is_stored = trio.Event()
        elif b'"event":"store_recovered"' in line:
            self._is_stored.set()

    def _on_ready(self, life: _SupervisorProcess) -> None:
        """Do nothing if it has died right after its ready event."""
        if life.process_tree is None and not life.ended.is_set():
            life.process_tree = ProcessTree(find_supervisor(life.process.pid), self._instance())
        life.ready.set()

    def _instance(self) -> str:
        """The marker of its processes, which no client gets; empty = unknown until a worker is seen."""
        try:
            state = read_state(self.data_dir / "workers.json")
        except StateFileCorrupt as exc:
            self.journal.record_violation(str(exc))
            return ""
        return "" if state is None else state.instance

    async def _watch_end(self, life: _SupervisorProcess) -> None:
        await life.process.wait()
        life.ended.set()
        if life.process_tree is None:
            return
        code = life.process.returncode or 0
        self.journal.record(
            SupervisorEnded(t=self.journal.now(), life=life.number, code=code, signals=tuple(life.signals))
        )
        self._nursery.start_soon(self._record_leftovers, life.number, life.process_tree)
        if not life.signals:
            await self._restart_after(life)

    async def _restart_after(self, life: _SupervisorProcess) -> None:
        """Keep the run going; a fault may already have started the next supervisor."""
        async with self.restart_lock:
            if self._current is life:
                await self.restart()

    async def _record_leftovers(self, life: int, process_tree: ProcessTree) -> None:
        with trio.CancelScope(shield=True):
            seconds = await self._wait_grace()
            left = await trio.to_thread.run_sync(process_tree.leftovers)
            self.journal.record(
                LeftoverProcesses(t=self.journal.now(), life=life, seconds=round(seconds, 1), pids=tuple(left))
            )

    @staticmethod
    async def _wait_grace() -> float:
        """Wait for the leftover limit plus the delay of our own sleeps; returns the seconds waited."""
        began = trio.current_time()
        late = 0.0
        while (seconds := trio.current_time() - began) < _LEFTOVER_SECONDS + late:
            napped = trio.current_time()
            await trio.sleep(_POLL_SECONDS)
            late += max(0.0, trio.current_time() - napped - _POLL_SECONDS)
        return seconds

    async def _force_stop(self) -> None:
        """Leave no process behind, and release faults that wait for an end."""
        self._is_closed.set()
        life = self._current
        if life is None:
            return
        with trio.CancelScope(shield=True):
            if life.process.returncode is None:
                life.signals.append(signal.SIGTERM)
                life.process.terminate()
                with trio.move_on_after(_FORCE_SECONDS):
                    await life.process.wait()
                if life.process.returncode is None:
                    life.signals.append(signal.SIGKILL)
                    life.process.kill()
                    await life.process.wait()
                    if life.process_tree is not None:
                        await _wait_gone(life.process_tree)
        life.ready.set()
        life.ended.set()


async def _wait_gone(process_tree: ProcessTree) -> None:
    """Wait for the workers of a killed supervisor, which end a moment after it."""
    left: list[int] | None = None
    with trio.move_on_after(_FORCE_SECONDS):
        while left != []:
            left = await trio.to_thread.run_sync(process_tree.leftovers)
            await trio.sleep(_POLL_SECONDS)
