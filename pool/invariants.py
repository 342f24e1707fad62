"""Every invariant of the machine, checked over its whole state; for tests and simulations, never in operation."""

from collections import Counter

from pool.records import ProfileRecord, SessionRecord, Waiter, WorkerRecord
from pool.state import PoolState
from pool.transitions import PoolMode, SessionState, WaiterState, WorkerState


def check(state: PoolState) -> None:
    """Raise AssertionError with the first thing that is not as it must be."""
    for worker in state.workers.values():
        _check_worker(state, worker)
    for session in state.sessions.values():
        _check_session(state, session)
    for kind in state.profiles.values():
        _check_profile(state, kind)
    for waiter in state.requests.values():
        _check_waiter(state, waiter)
    _check_counts(state)
    _check_no_waiter_has_a_match(state)


def _require(condition: object, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def _check_worker(state: PoolState, worker: WorkerRecord) -> None:
    name = f"worker {worker.id}"
    available = worker in state.index.lru
    session = worker.session
    idle = worker.state is WorkerState.IDLE
    _require(worker.state is not WorkerState.DEAD, f"{name} is dead and still counted")
    _require(available == idle, f"{name} is {worker.state} but available: {available}")
    _require((worker in state.stopping) == (worker.state is WorkerState.STOPPING), f"{name} stopping count")
    claimed = worker.claimed_for
    starts = worker.profile_record.starts_unclaimed if claimed is None else claimed.starts_claimed
    _require((worker in starts) == (worker.state is WorkerState.STARTING), f"{name} is starting: {worker in starts}")
    is_dedicated = worker in state.dedicated
    only_commands = worker.state is WorkerState.LEASED and not worker.in_use and not is_dedicated
    _require((worker in state.pinned) == only_commands, f"{name} is pinned: {worker in state.pinned}")
    if is_dedicated:
        _require(session is not None and worker.profile_record.is_dedicated, f"{name} keeps no conversation")
        _require(worker.state is WorkerState.LEASED, f"{name} is dedicated and {worker.state}")
    if idle:
        _require(worker.quiescent, f"{name} is available in the middle of something")
        _require(worker.retire_reason is None or worker.successor, f"{name} should have retired")
    if worker.preparation is not None:
        _require(worker.state is WorkerState.LEASED, f"{name} is prepared but not leased")
        _require(session is not None, f"{name} is prepared without a session")
    if session is not None:
        _require(session.worker is worker, f"{name} thinks it has session {session.key}")
        stopping = worker.state is WorkerState.STOPPING
        expected = SessionState.PARKING if stopping else SessionState.ACTIVE
        _require(session.state is expected, f"session {session.key} of {name} is {session.state}")
    if worker.closing_session is not None:
        _require(worker.closing_session.state is SessionState.PARKING, f"{name} closes {worker.closing_session.key}")
        _require(worker.closing_session.worker is worker, f"{name} closes a session that is elsewhere")
    ordinary = sum(not held.privileged for held in state.holds.values() if held.worker is worker)
    if worker.preparation is not None:
        ordinary += sum(not waiter.privileged for waiter in worker.preparation.waiters.values())
    _require(worker.ordinary_holds == ordinary, f"{name} counts {worker.ordinary_holds} ordinary holds, not {ordinary}")


def _check_session(state: PoolState, session: SessionRecord) -> None:
    name = f"session {session.key}"
    worker = session.worker
    _require((session.state is SessionState.PARKED) == (worker is None), f"{name} is {session.state} with {worker}")
    if worker is not None:
        _require(state.workers.get(worker.id) is worker, f"{name} is with a worker that is gone")
        _require(session in (worker.session, worker.closing_session), f"{name} is not known to its worker")
    for request in session.holds:
        _require(state.holds[request].worker is worker, f"{name} holds {request} elsewhere")
    queued = sum(waiter.state is WaiterState.QUEUED for waiter in session.waiting.values())
    if session.state is SessionState.PARKED and session.waiting:
        _require(queued == 1, f"{name} has {queued} requests in line")
    else:
        _require(queued == 0, f"{name} is {session.state} and in line")
    _require(not session.forgettable, f"{name} should have been forgotten")


def _check_profile(state: PoolState, kind: ProfileRecord) -> None:
    name = f"profile {kind.profile.short}"
    workers = [worker for worker in state.workers.values() if worker.profile_record is kind]
    _require(list(kind.workers) == workers, f"{name} lists {len(kind.workers)} workers, not {len(workers)}")
    covering = sum(worker.claimed_for is kind for worker in state.workers.values())
    _require(kind.claims == covering, f"{name} counts {kind.claims} covers, not {covering}")
    for line in kind.queues:
        _require(line.size == sum(1 for _ in line), f"{name} counts {line.size} in a line")
        if line.size and state.mode is PoolMode.RUNNING:
            asleep = line.condition is None and kind.claims < line.size
            shared = line.privileged is False and not state.quota_open
            _require(not asleep or shared, f"{name} has a line that no condition covers")
    _require(
        kind.waiters == sum(w.profile_record is kind for w in state.requests.values()),
        f"{name} counts its waiters wrongly",
    )


def _check_waiter(state: PoolState, waiter: Waiter) -> None:
    name = f"request {waiter.request}"
    session = waiter.session
    _require(waiter.request not in state.holds, f"{name} waits and holds")
    _require(waiter.deadline > state.now, f"{name} is past its deadline")
    _require(state.sessions.get(session.key) is session, f"{name} waits for a forgotten session")
    _require(
        state.profiles.get(waiter.profile_record.profile.signature) is waiter.profile_record,
        f"{name} waits for a forgotten profile",
    )
    if waiter.state is WaiterState.PREPARING:
        preparation = session.worker.preparation if session.worker else None
        _require(preparation and waiter.request in preparation.waiters, f"{name} is prepared by no worker")
    else:
        _require(waiter.state in (WaiterState.QUEUED, WaiterState.BLOCKED), f"{name} is {waiter.state}")
        _require(session.waiting.get(waiter.request) is waiter, f"{name} is not with its session")


def _check_counts(state: PoolState) -> None:
    waiting = state.waiting
    counters = state.counters
    states = Counter(worker.state for worker in state.workers.values())
    by_state = {key: count for key, count in state.by_state.items() if count}
    _require(by_state == dict(states), f"states counted as {by_state}, are {dict(states)}")
    kinds_of_waiting = Counter(waiter.state for waiter in state.requests.values())
    _require(waiting.queued == kinds_of_waiting[WaiterState.QUEUED], "queued waiters miscounted")
    _require(waiting.blocked == kinds_of_waiting[WaiterState.BLOCKED], "blocked waiters miscounted")
    bounded = sum(w.bounded and w.state is not WaiterState.PREPARING for w in state.requests.values())
    _require(waiting.bounded == bounded, "bounded waiters miscounted")
    used = [worker.idle_since for worker in state.index.lru]
    _require(used == sorted(used), "available workers are not in the order of their last use")
    _require(len(state.dedicated) < max(1, state.places.limit), f"{len(state.dedicated)} workers are dedicated")
    unclaimed = [worker for worker in state.stopping if worker.claimed_for is None]
    _require(set(state.unclaimed_slots) == set(unclaimed), f"{len(state.unclaimed_slots)} slots unclaimed")
    for agent in state.agents.values():
        own = {worker for worker in unclaimed if worker.profile_record.agent is agent}
        _require(set(agent.unclaimed_slots) == own, f"{len(agent.unclaimed_slots)} slots of {agent.name} unclaimed")
    for place in state.places:
        here = sum(worker.profile_record.agent.place is place for worker in state.workers.values())
        _require(place.live == here, f"{place} counts {place.live} workers, not {here}")
    for group in state.groups.values():
        starts = sum(len(kind.starts_claimed) + len(kind.starts_unclaimed) for kind in group.profiles.values())
        _require(group.starting == starts, f"{group.starting} workers of a group are starting, not {starts}")
    granted = sum(counters.grants.values())
    ended = counters.releases + counters.lost + len(state.holds)
    _require(granted == ended, f"{granted} grants, but {ended} ended or in force")
    ordinary = sum(worker.ordinary_holds > 0 for worker in state.workers.values())
    _require(state.ordinary_workers == ordinary, f"{state.ordinary_workers} ordinary workers, not {ordinary}")
    _require(not state.freed and not state.actions, "something was left undone")


def _check_no_waiter_has_a_match(state: PoolState) -> None:
    if state.mode is not PoolMode.RUNNING:
        return
    for kind in state.profiles.values():
        for line in kind.queues:
            if line.size and (line.privileged or state.quota_open):
                free = state.index.match_unbound(kind)
                _require(free is None, f"{kind.profile.short} waits beside {free and free.id}")
                uncovered = kind.claims < line.size
                quiet = state.index.match_quiescent(kind) if uncovered else None
                _require(quiet is None, f"{kind.profile.short} waits beside quiet {quiet and quiet.id}")
