"""What would have to happen before a waiting request gets its worker, in words. Pure."""

from collections.abc import Iterable

from pool.records import Waiter, WorkerRecord
from pool.rejections import questions
from pool.state import PoolState
from pool.transitions import PoolMode, SessionState, WaiterState, WorkerState

_SESSIONS_NAMED = 3


def wait_needs(state: PoolState, waiter: Waiter) -> str:
    """One sentence without its full stop; it goes with the reason that the status gives for the wait."""
    worker = waiter.session.worker
    if waiter.state is WaiterState.PREPARING and worker is not None:
        return f"worker {worker.id} has to have the conversation open"
    if state.mode is PoolMode.PAUSED:
        return "`pool resume` has to be given"
    if waiter.state is WaiterState.BLOCKED:
        return _unblocking(state, waiter, worker)
    if not waiter.privileged and not state.quota_open:
        return f"{_an_end(state, state.workers.values())}, or a request of higher priority has to be made"
    if waiter.profile_record.claims:
        return "the worker that is on its way has to be ready"
    return _opening(state, waiter)


def _unblocking(state: PoolState, waiter: Waiter, worker: WorkerRecord | None) -> str:
    session = waiter.session
    if worker is None:
        return "the session's earlier request has to get its worker, and to end"
    if session.state is SessionState.PARKING:
        return f"worker {worker.id} has to close the session's transcript"
    asked = _asked(state, [session.key])
    return f"what uses worker {worker.id} in this session has to end{asked}"


def _opening(state: PoolState, waiter: Waiter) -> str:
    """What opens the gate at which the request's line stands."""
    kind = waiter.profile_record
    gate = kind.queues[waiter.privileged].condition
    if gate is state.waiting.pool_full:
        return f"{_an_end(state, state.workers.values())}, or pool.max ({state.settings.max}) has to be raised"
    if gate is state.waiting.tokens:
        return f"some time has to pass: {state.settings.spawn_rate:g} workers a second are started (pool.spawn_rate)"
    if gate is kind.agent.condition:
        own = [each for each in state.workers.values() if each.profile_record.agent is kind.agent]
        return f"{_an_end(state, own)}, or the limit of agent {kind.agent.name} has to be raised"
    place = kind.agent.place
    if gate is place.condition:
        here = [each for each in state.workers.values() if each.profile_record.agent.place is place]
        return f"{_an_end(state, here)}, or {place} has to get more slots"
    if gate is kind.condition:
        return f"{_an_end(state, kind.workers)}, or the next attempt to start one has to succeed"
    return "nothing: it is served next"


def _an_end(state: PoolState, workers: Iterable[WorkerRecord]) -> str:
    """The sessions one of which has to let its worker go, the first of them by name."""
    keys = [worker.session.key for worker in workers if worker.session and worker.state is WorkerState.LEASED]
    if not keys:
        return "a worker has to become ready"
    more = len(keys) - _SESSIONS_NAMED
    named = ", ".join(keys[:_SESSIONS_NAMED]) + (f" or {more} more" if more > 0 else "")
    asked = _asked(state, keys)
    return f"a turn or background command has to end in {'one of ' if len(keys) > 1 else ''}{named}{asked}"


def _asked(state: PoolState, sessions: Iterable[str]) -> str:
    found = questions(sessions, state.asking)
    return f" ({'; '.join(found)})" if found else ""
