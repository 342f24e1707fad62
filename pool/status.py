"""The snapshot behind ``pool status``, and the explanation why a worker fits a session or not."""

import math
from collections import Counter

import msgspec

from errors import PoolError, UsageError
from pool.records import ProfileRecord, SessionRecord, Waiter, WorkerRecord
from pool.snapshot import (
    MachineSnapshot,
    PoolExplanation,
    ProfileSnapshot,
    SessionPlacement,
    SessionSnapshot,
    WaiterSnapshot,
    WaitExplanation,
    WorkerExplanation,
    WorkerSnapshot,
)
from pool.state import PoolState
from pool.transitions import PoolMode, SessionState, WaiterState, WorkerState
from pool.wait_needs import wait_needs
from profiles.matching import MatchLevel, first_difference, match
from profiles.profile import CapabilityProfile
from wire.terminal import with_last_words


def snapshot(state: PoolState, now: float) -> MachineSnapshot:
    """Everything at one moment."""
    ranked = sorted(state.requests.values(), key=lambda waiter: waiter.rank)
    return MachineSnapshot(
        mode=state.mode.value,
        counts=state.counts(),
        counters=msgspec.structs.replace(
            state.counters,
            exits=dict(state.counters.exits),
            grants=dict(state.counters.grants),
            active=len(state.holds),
        ),
        workers=tuple(_worker(worker, now) for worker in state.workers.values()),
        waiters=tuple(_waiter(state, waiter, position, now) for position, waiter in enumerate(ranked, start=1)),
        sessions=tuple(_session(session) for session in state.sessions.values()),
        profiles=tuple(_profile(kind, now) for kind in state.profiles.values()),
    )


def explain(state: PoolState, session: str | None, profile: CapabilityProfile | None) -> PoolExplanation:
    """How well every worker fits ``profile``, or what ``session`` asked for last."""
    known = None if session is None else state.sessions.get(session)
    wanted = profile or (known.last_profile if known is not None else None)
    if wanted is None:
        raise UsageError(f"session {session!r} is unknown, and no profile was given to explain", session=session)
    workers = [
        _explanation(worker, known, wanted, is_dedicated=worker in state.dedicated) for worker in state.workers.values()
    ]
    return PoolExplanation(workers, None if known is None else _wait_explanation(state, known))


def _wait_explanation(state: PoolState, session: SessionRecord) -> WaitExplanation | None:
    found = placement(state, session.key, counted=True)
    if found.waits_for is None or found.place is None:
        return None
    first = min(session.waiting.values(), key=lambda waiter: waiter.rank)
    needs = wait_needs(state, first)
    return WaitExplanation(place=found.place, waiting=len(state.requests), why=found.waits_for, needs=needs)


def _explanation(
    worker: WorkerRecord, session: SessionRecord | None, wanted: CapabilityProfile, *, is_dedicated: bool
) -> WorkerExplanation:
    own = session is not None and session.worker is worker and worker.session is session
    have = worker.profile_record.profile
    soft = have.soft if worker.soft is None or not (own or worker.drifted) else worker.soft
    level = match(have, soft, wanted)
    difference = first_difference(have, wanted, soft)
    if worker.modified and not own:
        level, difference = MatchLevel.NONE, "run-time settings: a front end of its session has changed them"
    if is_dedicated and not own:
        level, difference = MatchLevel.NONE, 'resume: it keeps the conversation of its session ("pin")'
    return WorkerExplanation(
        worker=worker.id,
        level=(MatchLevel.BOUND if own and level is not MatchLevel.NONE else level).label,
        difference=difference,
        state=worker.state.value,
        session=worker.session.key if worker.session else None,
    )


def _worker(worker: WorkerRecord, now: float) -> WorkerSnapshot:
    session = worker.session
    return WorkerSnapshot(
        id=worker.id,
        profile=worker.profile_record.profile.short,
        agent=worker.profile_record.profile.agent,
        role=worker.profile_record.profile.role,
        state=worker.state.value,
        session=session.key if session else None,
        holds=len(session.holds) if session else 0,
        background=worker.background,
        turns=worker.turns,
        age=now - worker.spawned_at,
        retiring=worker.retire_reason,
        node=worker.node,
    )


def _waiter(state: PoolState, waiter: Waiter, position: int, now: float) -> WaiterSnapshot:
    step = state.settings.age_step
    waited = now - waiter.enqueued_at
    return WaiterSnapshot(
        request=waiter.request,
        session=waiter.session.key,
        profile=waiter.profile_record.profile.short,
        priority=waiter.priority,
        priority_now=waiter.priority + (waited / step if step else 0.0),
        waited=waited,
        expires_in=waiter.deadline - now if waiter.deadline < math.inf else None,
        position=position,
        state=waiter.state.value,
        why=_wait_reason(state, waiter),
    )


def placement(state: PoolState, session: str, *, counted: bool = False) -> SessionPlacement:
    """Where a session is, and what it waits for; of an unknown one nothing.

    ``counted``: also its place in the queue, for which all requests are looked at.
    """
    known = state.sessions.get(session)
    if known is None:
        return SessionPlacement()
    worker = known.worker.id if known.worker else None
    first = min(known.waiting.values(), key=lambda waiter: waiter.rank, default=None)
    if first is None:
        return SessionPlacement(worker)
    place = sum(waiter.rank <= first.rank for waiter in state.requests.values()) if counted else None
    return SessionPlacement(worker, _wait_reason(state, first), place)


def slot_demand(state: PoolState) -> dict[str, int]:
    """By group that requests wait for, how many further slots they could use; ``max`` bounds them all together."""
    waiting: Counter[str] = Counter()
    for kind in state.profiles.values():
        place = kind.agent.place
        queued = sum(line.size for line in kind.queues if line.condition is place.condition)
        waiting[place.group] += max(0, queued - kind.claims)
    found, room = {}, max(0, state.places.most - len(state.workers))
    for group, count in waiting.items():
        if count:
            found[group] = min(count, room)
            room -= found[group]
    return found


def _wait_reason(state: PoolState, waiter: Waiter) -> str:
    """What the request waits for, in words."""
    worker = waiter.session.worker
    if waiter.state is WaiterState.PREPARING and worker is not None:
        return f"worker {worker.id} is being prepared"
    if state.mode is PoolMode.PAUSED:
        return "the pool is paused"
    if waiter.state is WaiterState.BLOCKED:
        return _blocked_reason(waiter, worker)
    if not waiter.privileged and not state.quota_open:
        return "only the reserve is left"
    kind = waiter.profile_record
    if kind.claims:
        return "a worker is on its way"
    gate = kind.queues[waiter.privileged].condition
    return f"{gate.reason}{_questions(len(state.asking))}" if gate is not None else "next in line"


def _questions(asking: int) -> str:
    if not asking:
        return ""
    return f", and {'1 session waits' if asking == 1 else f'{asking} sessions wait'} for a person (pool approvals)"


def _blocked_reason(waiter: Waiter, worker: WorkerRecord | None) -> str:
    session = waiter.session
    if worker is None:
        return "another request of the session is first"
    if session.state is SessionState.PARKING:
        return f"worker {worker.id} still has the session's transcript open"
    if worker.serves(waiter.profile_record):
        return f"worker {worker.id} is in use with other soft arguments, or only the reserve is left"
    return f"worker {worker.id} has another profile and retires at its turn boundary"


def _session(session: SessionRecord) -> SessionSnapshot:
    return SessionSnapshot(
        key=session.key,
        state=session.state.value,
        worker=session.worker.id if session.worker else None,
        holds=len(session.holds),
        busy=session.busy,
        waiting=len(session.waiting),
        transcript=session.transcript,
        failed=str(session.failed) if session.failed else None,
    )


def _profile(kind: ProfileRecord, now: float) -> ProfileSnapshot:
    budget = kind.budget
    due = budget.opened_until if budget.is_open else budget.retry_at
    return ProfileSnapshot(
        profile=kind.profile.short,
        agent=kind.profile.agent,
        role=kind.profile.role,
        live=len(kind.workers),
        starting=sum(worker.state is WorkerState.STARTING for worker in kind.workers),
        warm=len(kind.unbound),
        min=kind.prewarm_target,
        waiting=kind.waiters,
        breaker=budget.state.value,
        retry_in=max(0.0, due - now),
        restarts=budget.losses,
        last_error=_last_error(budget.last_error),
    )


def _last_error(error: PoolError | None) -> str | None:
    return None if error is None else with_last_words(error.message, error.stderr_tail)
