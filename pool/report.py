"""Pictures of the machine for people: the snapshot behind ``pool status``, and why a worker fits or not."""

import math

from errors import UsageError
from pool.records import Kind, Session, Worker
from pool.snapshot import (
    CounterFigures,
    MachineSnapshot,
    ProfileFigures,
    SessionFigures,
    SessionStanding,
    WaiterFigures,
    WorkerExplanation,
    WorkerFigures,
)
from pool.state import State
from pool.states import Mode, SessionState, WaiterState, WorkerState
from pool.waiting_list import Waiter
from profiles.matching import MatchLevel, first_difference, match
from profiles.profile import CapabilityProfile


def snapshot(state: State, now: float) -> MachineSnapshot:
    """Everything at one moment."""
    ranked = sorted(state.requests.values(), key=lambda waiter: waiter.rank)
    return MachineSnapshot(
        mode=state.mode.value,
        figures=state.figures(),
        counters=_counters(state),
        workers=tuple(_worker(worker, now) for worker in state.workers.values()),
        waiters=tuple(_waiter(state, waiter, position, now) for position, waiter in enumerate(ranked, start=1)),
        sessions=tuple(_session(session) for session in state.sessions.values()),
        profiles=tuple(_profile(kind, now) for kind in state.kinds.values()),
    )


def explain(state: State, session: str | None, profile: CapabilityProfile | None) -> list[WorkerExplanation]:
    """How well every worker fits ``profile``, or what ``session`` asked for last."""
    known = None if session is None else state.sessions.get(session)
    wanted = profile or (known.profile if known is not None else None)
    if wanted is None:
        raise UsageError(f"session {session!r} is unknown, and no profile was given to explain", session=session)
    return [_explanation(worker, known, wanted) for worker in state.workers.values()]


def _explanation(worker: Worker, session: Session | None, wanted: CapabilityProfile) -> WorkerExplanation:
    own = session is not None and session.worker is worker and worker.session is session
    have = worker.kind.profile
    soft = have.soft if worker.soft is None or not (own or worker.drifted) else worker.soft
    level = match(have, soft, wanted)
    difference = first_difference(have, wanted, soft)
    if worker.altered and not own:
        level, difference = MatchLevel.NONE, "run-time settings: a front end of its session has changed them"
    return WorkerExplanation(
        worker=worker.id,
        level=(MatchLevel.BOUND if own and level is not MatchLevel.NONE else level).label,
        difference=difference,
        state=worker.state.value,
        session=worker.session.key if worker.session else None,
    )


def _counters(state: State) -> CounterFigures:
    counters = state.counters
    return CounterFigures(
        spawned=counters.spawned,
        exits=dict(counters.exits),
        evicted=counters.evicted,
        parked=counters.parked,
        resumed=counters.resumed,
        grants=dict(counters.grants),
        releases=counters.releases,
        lost=counters.lost,
        active=len(state.holds),
        enqueued=counters.enqueued,
        served=counters.served,
        expired=counters.expired,
        refused=counters.refused,
        cancelled=counters.cancelled,
        stalled=counters.stalled,
    )


def _worker(worker: Worker, now: float) -> WorkerFigures:
    session = worker.session
    return WorkerFigures(
        id=worker.id,
        profile=worker.kind.profile.short,
        agent=worker.kind.profile.agent,
        role=worker.kind.profile.role,
        state=worker.state.value,
        session=session.key if session else None,
        preparing=worker.preparation is not None,
        holds=len(session.holds) if session else 0,
        background=worker.background,
        turns=worker.turns,
        age=now - worker.spawned_at,
        idle_for=now - worker.idle_since if worker.state is WorkerState.IDLE else None,
        rss=worker.rss,
        retiring=worker.retiring,
    )


def _waiter(state: State, waiter: Waiter, position: int, now: float) -> WaiterFigures:
    step = state.settings.age_step
    waited = now - waiter.enqueued_at
    return WaiterFigures(
        request=waiter.request,
        session=waiter.session.key,
        profile=waiter.kind.profile.short,
        priority=waiter.priority,
        priority_now=waiter.priority + (waited / step if step else 0.0),
        waited=waited,
        expires_in=waiter.deadline - now if waiter.deadline < math.inf else None,
        position=position,
        state=waiter.state.value,
        why=_why(state, waiter),
    )


def standing(state: State, session: str) -> SessionStanding:
    """Where a session is, and what it waits for; of an unknown one nothing."""
    known = state.sessions.get(session)
    if known is None:
        return SessionStanding()
    first = min(known.waiting.values(), key=lambda waiter: waiter.rank, default=None)
    worker = known.worker.id if known.worker else None
    return SessionStanding(worker, _why(state, first) if first else None)


def _why(state: State, waiter: Waiter) -> str:
    """What the request waits for, in words."""
    worker = waiter.session.worker
    if waiter.state is WaiterState.PREPARING and worker is not None:
        return f"worker {worker.id} is being prepared"
    if state.mode is Mode.PAUSED:
        return "the pool is paused"
    if waiter.state is WaiterState.BLOCKED:
        return _why_blocked(waiter, worker)
    if not waiter.privileged and not state.quota_open:
        return "only the reserve is left"
    kind = waiter.kind
    if kind.covered:
        return "a worker is on its way"
    gate = kind.lines[waiter.privileged].gate
    return gate.why if gate is not None else "next in line"


def _why_blocked(waiter: Waiter, worker: Worker | None) -> str:
    session = waiter.session
    if worker is None:
        return "another request of the session is first"
    if session.state is SessionState.PARKING:
        return f"worker {worker.id} still has the session's transcript open"
    if worker.serves(waiter.kind):
        return f"worker {worker.id} is in use with other soft arguments, or only the reserve is left"
    return f"worker {worker.id} has another profile and retires at its turn boundary"


def _session(session: Session) -> SessionFigures:
    return SessionFigures(
        key=session.key,
        state=session.state.value,
        worker=session.worker.id if session.worker else None,
        holds=len(session.holds),
        busy=session.busy,
        waiting=len(session.waiting),
        transcript=session.transcript,
        failed=str(session.failed) if session.failed else None,
    )


def _profile(kind: Kind, now: float) -> ProfileFigures:
    budget = kind.budget
    due = budget.opened_until if budget.broken else budget.retry_at
    return ProfileFigures(
        profile=kind.profile.short,
        agent=kind.profile.agent,
        role=kind.profile.role,
        live=kind.live,
        starting=sum(worker.kind is kind for worker in kind.group.starting),
        warm=len(kind.free),
        min=kind.target,
        waiting=kind.waiters,
        breaker=budget.state.value,
        retry_in=max(0.0, due - now),
        last_error=str(budget.last_error) if budget.last_error else None,
    )
