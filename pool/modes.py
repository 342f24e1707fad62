"""The modes of the pool as a whole: paused, draining, closed, and back. Pure."""

from collections.abc import Callable

from errors import UsageError
from pool import rejections
from pool.records import WorkerRecord
from pool.scheduling import Scheduler
from pool.state import PoolState
from pool.stimuli import Close, Drain, Pause, Resume, StopReason
from pool.transitions import MODE_TRANSITIONS, PoolMode
from pool.workers import Workers
from wire.states import transition


class Modes:
    """Takes the pool from one mode to another."""

    def __init__(self, state: PoolState, workers: Workers, scheduler: Scheduler) -> None:
        self._state = state
        self._workers = workers
        self._scheduler = scheduler

    def _set_mode(self, mode: PoolMode) -> None:
        state = self._state
        if mode not in MODE_TRANSITIONS[state.mode]:
            raise UsageError(f"the pool is {state.mode.value} and cannot become {mode.value}")
        state.mode = transition(MODE_TRANSITIONS, state.mode, mode)
        state.notify(f"pool_{mode.value}")

    def pause(self, _: Pause) -> None:
        """Grant nothing; holds go on."""
        if self._state.mode is not PoolMode.PAUSED:
            self._set_mode(PoolMode.PAUSED)

    def resume(self, _: Resume) -> None:
        """Undo a pause or a drain."""
        if self._state.mode is not PoolMode.RUNNING:
            self._set_mode(PoolMode.RUNNING)
            self._scheduler.wake_all()

    def drain(self, _: Drain) -> None:
        """Refuse all requests; a worker in use stops at the end of its holds, any other now."""
        if self._state.mode in (PoolMode.RUNNING, PoolMode.PAUSED):
            self._set_mode(PoolMode.DRAINING)
            self._reject_all()
            self._stop_all(StopReason.DRAINED, lambda worker: not worker.in_use)

    def close(self, _: Close) -> None:
        """Refuse all requests and stop every worker."""
        if self._state.mode is not PoolMode.CLOSED:
            self._set_mode(PoolMode.CLOSED)
            self._reject_all()
            self._stop_all(StopReason.CLOSED, lambda _: True)

    def _reject_all(self) -> None:
        state = self._state
        error = rejections.closed(state.counts(), state.mode.value)
        for waiter in list(state.requests.values()):
            state.reject(waiter, error)

    def _stop_all(self, reason: StopReason, wanted: Callable[[WorkerRecord], bool]) -> None:
        for worker in list(self._state.workers.values()):
            if wanted(worker):
                self._workers.stop(worker, reason)
