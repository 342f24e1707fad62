"""One worker's life: start, wait until ready, watch its health, end it when told or when it ends by itself."""

from collections.abc import Callable
from typing import assert_never

import trio

from errors import PoolError, ProtocolViolation, RequestTimeout, WorkerStalled, WorkerStartFailed
from pool.health import Health, Observation, Verdict
from pool.settings import PoolSettings
from pool.stimuli import Background, FailureKind, Stimulus, WorkerFailed
from pool.worker import PoolWorker, ProcessFacts, WorkerLauncher
from profiles import CapabilityProfile

__all__ = ["WorkerLife"]

_ABORT_DEADLINE = 5.0


class WorkerLife:
    """The shell's record of one worker and the task that lives it. ``error`` says, in the end, what it died of."""

    def __init__(self, worker_id: str, profile: CapabilityProfile, settings: PoolSettings, now: float) -> None:
        self.id = worker_id
        self.profile = profile
        self.spawned_at = now
        self.error: PoolError | None = None
        self.health = Health(settings, now)
        self._settings = settings
        self._worker: PoolWorker | None = None
        self._stop_requested = trio.Event()
        self._force = False

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

    def request_stop(self, *, force: bool) -> None:
        """Ask its task to end it; ``force`` goes straight to SIGKILL. A later ``force`` hurries an earlier stop."""
        self._force = self._force or force
        self._stop_requested.set()

    async def run(
        self,
        launcher: WorkerLauncher,
        *,
        on_ready: Callable[["WorkerLife"], None],
        on_fact: Callable[[Stimulus], None],
    ) -> None:
        """Live. Returns when the process is gone and reaped; raises only what is a bug of ours."""
        try:
            async with launcher.open(self.id, self.profile, stop=lambda: self._force) as worker:
                self._worker = worker
                if await self._until_ready(worker):
                    on_ready(self)
                    await self._watch(worker, on_fact)
        except WorkerStartFailed as exc:
            self.error = exc
            on_fact(WorkerFailed(self.id, FailureKind.START, exc))

    async def _until_ready(self, worker: PoolWorker) -> bool:
        """True when ready, False when told to stop before; raises WorkerStartFailed."""
        ready = False
        async with trio.open_nursery() as nursery:

            async def stop_early() -> None:
                await self._stop_requested.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(stop_early)
            await worker.client.wait_ready(self._settings.start_timeout)
            ready = True
            nursery.cancel_scope.cancel()
        return ready

    async def _watch(self, worker: PoolWorker, on_fact: Callable[[Stimulus], None]) -> None:
        """Until the worker ends by itself or is told to."""
        worker.client.on_background(lambda running: on_fact(Background(self.id, running)))
        async with trio.open_nursery() as nursery:

            async def end_with_worker() -> None:
                self.error = await worker.client.wait_ended()
                if isinstance(self.error, ProtocolViolation) and not self._stop_requested.is_set():
                    on_fact(WorkerFailed(self.id, FailureKind.PROTOCOL, self.error))
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_with_worker)
            nursery.start_soon(self._keep_healthy, worker, on_fact)
            await self._stop_requested.wait()
            nursery.cancel_scope.cancel()

    async def _keep_healthy(self, worker: PoolWorker, on_fact: Callable[[Stimulus], None]) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep_until(self.health.next_look())
                verdict = self.health.look(self._observe(worker), trio.current_time())
                match verdict:
                    case Verdict.FINE:
                        pass
                    case Verdict.PING:
                        nursery.start_soon(self._ping, worker)
                    case Verdict.ABORT_TURN:
                        nursery.start_soon(self._abort_turn, worker)
                    case Verdict.UNRESPONSIVE:
                        on_fact(WorkerFailed(self.id, FailureKind.UNRESPONSIVE, self._unresponsive()))
                        return
                    case Verdict.STALLED:
                        on_fact(WorkerFailed(self.id, FailureKind.STALLED, self._stalled()))
                        return
                    case _:
                        assert_never(verdict)

    def _observe(self, worker: PoolWorker) -> Observation:
        seen = worker.client.statistics()
        return Observation(
            events=seen.events,
            in_turn=worker.client.is_running,
            backpressured=seen.backpressured,
            awaits_person=worker.client.awaits_person,
        )

    async def _ping(self, worker: PoolWorker) -> None:
        try:
            await worker.client.request("ping", {}, timeout=self._settings.ping_timeout)
        except RequestTimeout:
            self.health.ping_failed()
        except PoolError:
            return  # the worker is gone, and wait_ended says so in better words
        else:
            self.health.ping_answered(trio.current_time())

    async def _abort_turn(self, worker: PoolWorker) -> None:
        try:
            await worker.client.request("abort", {}, timeout=_ABORT_DEADLINE)
        except PoolError:
            return  # whether the turn ends is what counts, and the health record watches that

    def _unresponsive(self) -> WorkerStalled:
        state = "it is suspended by a signal" if self.facts().suspended else "its process is alive"
        return WorkerStalled(
            f"worker {self.id} (pid {self.pid}) left {self.health.failures} pings in a row unanswered; {state}",
            worker=self.id,
        )

    def _stalled(self) -> WorkerStalled:
        return WorkerStalled(
            f"worker {self.id} (pid {self.pid}) was silent for {self._settings.turn_stall:g} s in a turn "
            "and did not end it when aborted",
            worker=self.id,
        )
