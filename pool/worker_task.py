"""One worker's life: start, wait until ready, watch its health, end it on request or when it ends by itself."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import trio

from errors import PoolError, ProtocolViolation, RequestTimeout, WorkerExited, WorkerStalled, WorkerStartFailed
from pool.agent_report import AgentReport, report_of
from pool.budget import TokenBucket
from pool.health import Health, HealthDecision, Observation
from pool.lease import Lease
from pool.settings import PoolSettings
from pool.stimuli import BackgroundCount, FailureKind, Reset, Spawn, Stimulus, StopReason, TurnStalled, WorkerFailed
from pool.worker_interface import LoadedConversation, PoolWorker, WorkerLauncher, load_conversation
from profiles import DIALECTS
from rpc.transport import ProcessFacts
from wire.messages import BackgroundProcesses as BackgroundTold
from wire.messages import ExecExit, SessionResult


class BackgroundCallbacks(NamedTuple):
    """Which background commands a worker runs, and which has ended."""

    running: "Callable[[WorkerTask, BackgroundTold], None]"
    exited: "Callable[[WorkerTask, ExecExit], None]"


_ABORT_DEADLINE = 5.0
_STARTUP_STDERR_CHARACTERS = 8 * 1024
_STOP_EXPLANATIONS = {
    StopReason.UNPINNED: "only background commands kept it, and another request needed a worker",
    StopReason.MISMATCH: "only background commands kept it, and its session needs a worker with other settings",
}
_ENDS_AT_ONCE, _ENDS_A_SECOND = 256, 20.0
"""Ends of background commands that are passed on: more than any agent runs, less than would fill a disk."""


class WorkerTask:
    """The shell's record of one worker and the task that lives it. ``error`` says, in the end, what it died of."""

    def __init__(
        self, spawn: Spawn, launcher: WorkerLauncher, settings: Callable[[], PoolSettings], now: float
    ) -> None:
        self.id = spawn.worker
        self.profile = spawn.profile
        self.spawned_at = now
        self.error: PoolError | None = None
        self.health = Health(settings, now)
        self.leases: set[Lease] = set()
        self.conversation: LoadedConversation | None = None
        """The one it was given last."""
        self.startup_stderr = ""
        """What it wrote to stderr until it was ready; the end of it."""
        self.commands = BackgroundTold()
        """Which ran in the background when its end was requested."""
        self.exits_dropped = 0
        """Ends of background commands that were dropped because they came too fast to be real."""
        self._exit_limit = TokenBucket(_ENDS_AT_ONCE, _ENDS_A_SECOND)
        self._settings = settings
        self._worker: PoolWorker | None = None
        self._stop_requested = trio.Event()
        self._force = trio.Event()
        self._process = launcher.open(spawn.worker, spawn.profile, force=self._force, near=spawn.near)

    @property
    def worker(self) -> PoolWorker:
        """The running worker; only while there is one."""
        if self._worker is None:
            msg = f"worker {self.id} has no process yet"
            raise RuntimeError(msg)
        return self._worker

    @property
    def pid(self) -> int | None:
        """Its process id, once it has one."""
        return self._worker.pid if self._worker else None

    def facts(self) -> ProcessFacts:
        """What the system says of it now."""
        return self._worker.facts() if self._worker else ProcessFacts()

    def turn_age(self, now: float) -> float | None:
        """Seconds since its running turn began; None when it runs none."""
        began = [start for lease in self.leases if (start := lease.running_since) is not None]
        return now - min(began) if began else None

    def has_conversation_of(self, session: str) -> bool:
        """Whether the conversation that it was given last is this session's."""
        return self.conversation is not None and self.conversation.session == session

    @property
    def transcript(self) -> str | None:
        """That of the conversation it was given last."""
        return None if self.conversation is None else self.conversation.result.session_file

    def report(self, session: str | None) -> AgentReport | None:
        """What its program says of itself, and of the conversation that it has open, which is this session's."""
        if self._worker is None:
            return None
        held = self.conversation if session is not None and self.has_conversation_of(session) else None
        return report_of(self._worker.client, held and held.result)

    async def load(
        self,
        wanted: Reset,
        is_anothers: Callable[[str, str], bool],
        servers: Sequence[dict[str, Any]],
        *,
        honest: bool,
    ) -> SessionResult:
        """Give it a conversation, with the MCP servers declared for that where its program takes any.

        ``honest`` and what is raised as of ``load_conversation``.
        """
        taken = servers if DIALECTS[self.profile.dialect].takes_mcp_servers else ()
        return await load_conversation(self.worker, wanted, is_anothers, self.transcript, taken, honest=honest)

    @property
    def stray_lines(self) -> int:
        """How many lines it printed that were no message."""
        return 0 if self._worker is None else self._worker.client.statistics().invalid_lines

    def report_invalid_lines(self, tell: Callable[[str, dict[str, Any]], None]) -> None:
        """What it printed that was no message belongs into the log: it is the first thing to look at."""
        lines = self.stray_lines
        if lines and (samples := self.worker.client.invalid_lines.samples):
            last = samples[-1].decode(errors="replace")
            tell("worker_contaminated", {"worker": self.id, "lines": lines, "last": last})
        if self.exits_dropped:
            tell("exec_exits_dropped", {"worker": self.id, "dropped": self.exits_dropped})

    def request_stop(self, reason: StopReason, *, force: bool) -> None:
        """Ask its task to end it; ``force`` goes straight to SIGKILL. A later ``force`` hurries an earlier stop."""
        if self.error is None:
            why = _STOP_EXPLANATIONS.get(reason, reason)
            self.error = WorkerExited(f"worker {self.id} was stopped ({why})", worker=self.id)
        if not self._stop_requested.is_set() and self._worker is not None:
            self.commands = self._worker.client.background
        if force or self._worker is None:  # one that is being prepared for its start hears nothing else
            self._force.set()
        self._stop_requested.set()

    async def run(
        self,
        *,
        on_ready: Callable[["WorkerTask"], None],
        on_fact: Callable[[Stimulus], None],
        on_exec: BackgroundCallbacks,
        try_out: Callable[[str, PoolWorker], Awaitable[None]],
    ) -> None:
        """Live. Returns when the process is gone and reaped; raises only what is a bug of ours.

        ``try_out(agent, worker)`` comes before ``on_ready``; it raises WorkerStartFailed.
        """
        try:
            async with self._process as worker:
                self._worker = worker
                if await self._wait_ready(worker, on_fact, try_out):
                    on_ready(self)
                    await self._watch(worker, on_fact, on_exec)
                if self.error is not None:
                    worker.explain_end(self.error.message.removeprefix(f"worker {self.id} "))
        except WorkerStartFailed as exc:
            self._fail(FailureKind.START, exc, on_fact)

    async def _wait_ready(
        self,
        worker: PoolWorker,
        on_fact: Callable[[Stimulus], None],
        try_out: Callable[[str, PoolWorker], Awaitable[None]],
    ) -> bool:
        """True when ready; False when its stop was requested before, or when it failed to start, which is reported.

        No error leaves the nurseries here: they would wrap it into a group.
        """
        ready = False
        async with trio.open_nursery() as nursery:

            async def stop_early() -> None:
                await self._stop_requested.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(stop_early)
            try:
                await worker.client.wait_ready(self._settings().start_timeout)
                await try_out(self.profile.agent, worker)
                self.startup_stderr = worker.stderr_tail()[-_STARTUP_STDERR_CHARACTERS:]
                ready = True
            except WorkerStartFailed as exc:
                self._fail(FailureKind.START, exc, on_fact)
            nursery.cancel_scope.cancel()
        return ready

    async def _watch(
        self,
        worker: PoolWorker,
        on_fact: Callable[[Stimulus], None],
        on_exec: BackgroundCallbacks,
    ) -> None:
        """Until the worker ends by itself or its end is requested."""

        def report_end(error: PoolError) -> None:
            """Before any caller learns of it: this worker must not be granted again."""
            if not self._stop_requested.is_set():
                self.error = error
                kind = FailureKind.PROTOCOL if isinstance(error, ProtocolViolation) else FailureKind.CRASHED
                on_fact(WorkerFailed(self.id, kind, error))

        def tell_end(ended: ExecExit) -> None:
            now = trio.current_time()
            if self._exit_limit.has_token(now):
                self._exit_limit.consume(now)
                on_exec.exited(self, ended)
            else:
                self.exits_dropped += 1

        def tell_running(commands: BackgroundTold) -> None:
            on_exec.running(self, commands)
            on_fact(BackgroundCount(self.id, commands.running))

        worker.client.on_background(tell_running, tell_end)
        worker.client.on_ended(report_end)
        if worker.client.end_error is not None:
            report_end(worker.client.end_error)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._monitor_health, worker, on_fact)
            await self._stop_requested.wait()
            nursery.cancel_scope.cancel()

    async def _monitor_health(self, worker: PoolWorker, on_fact: Callable[[Stimulus], None]) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep_until(self.health.next_check())
                verdict = self.health.check(self._observe(worker), trio.current_time())
                match verdict:
                    case HealthDecision.FINE:
                        pass
                    case HealthDecision.PING:
                        nursery.start_soon(self._ping, worker)
                    case HealthDecision.ABORT_TURN:
                        self._record_stall(on_fact)
                        nursery.start_soon(self._abort_turn, worker)
                    case HealthDecision.UNRESPONSIVE:
                        self._fail(FailureKind.UNRESPONSIVE, self._unresponsive_error(), on_fact)
                        return
                    case HealthDecision.STALLED:
                        self._fail(FailureKind.STALLED, self._stalled_error(), on_fact)
                        return
                    case _:
                        assert_never(verdict)

    def _fail(self, kind: FailureKind, error: PoolError, on_fact: Callable[[Stimulus], None]) -> None:
        self.error = error
        on_fact(WorkerFailed(self.id, kind, error))

    def _observe(self, worker: PoolWorker) -> Observation:
        seen = worker.client.statistics()
        return Observation(
            events=seen.events,
            in_turn=worker.client.is_running or any(lease.awaits_answer for lease in self.leases),
            backpressured=seen.backpressured,
            awaits_person=worker.client.awaits_person,
        )

    async def _ping(self, worker: PoolWorker) -> None:
        held_back = worker.client.statistics().backpressure_count
        try:
            await worker.client.request("ping", {}, timeout=self._settings().ping_timeout)
        except RequestTimeout:
            if worker.client.statistics().backpressure_count == held_back:
                self.health.ping_failed()
            else:
                self.health.ping_inconclusive()
        except PoolError:
            return  # the worker is gone, and wait_ended says so in better words
        else:
            self.health.ping_answered(trio.current_time())

    async def _abort_turn(self, worker: PoolWorker) -> None:
        try:
            await worker.client.request("abort", {}, timeout=_ABORT_DEADLINE)
        except PoolError:
            return  # whether the turn ends is what counts, and the health record watches that

    def _record_stall(self, on_fact: Callable[[Stimulus], None]) -> None:
        for lease in self.leases:
            if lease.awaits_answer:
                lease.stalled_for = float(self._settings().turn_stall)
        on_fact(TurnStalled(self.id))

    def _unresponsive_error(self) -> WorkerStalled:
        state = "it is suspended by a signal" if self.facts().suspended else "its process is alive"
        return WorkerStalled(
            f"worker {self.id} ({self._whereabouts()}) left {self.health.failures} pings in a row unanswered; {state}",
            worker=self.id,
        )

    def _whereabouts(self) -> str:
        node = self.worker.node
        return f"pid {self.pid} on {node}" if node else f"pid {self.pid}"

    def _stalled_error(self) -> WorkerStalled:
        return WorkerStalled(
            f"worker {self.id} ({self._whereabouts()}) was silent for {self._settings().turn_stall:g} s in a turn "
            "and did not end it when aborted",
            worker=self.id,
        )


def rss_by_worker(lives: Iterable[WorkerTask]) -> dict[str, int]:
    """Bytes of memory by worker, of those whose processes can be looked at."""
    return {life.id: rss for life in lives if (rss := life.facts().rss) is not None}
