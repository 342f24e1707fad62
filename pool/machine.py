"""The pool's decisions as one pure state machine: ``handle(stimulus, now) -> actions``.

It never awaits, reads no clock and touches no process; the shell tells it what happened and carries out what it says.
This file takes each stimulus to the part that handles it, and runs the scheduler after every one.
"""

import random
from collections.abc import Callable
from typing import Any

from errors import UsageError
from pool import invariants, rejections, status, stimuli
from pool.admission import Admission
from pool.binding import SessionBinder
from pool.modes import Modes
from pool.prewarming import Prewarmer
from pool.records import WorkerRecord
from pool.scheduling import Scheduler
from pool.settings import PoolSettings, check_settings
from pool.snapshot import MachineSnapshot, PoolExplanation, SessionPlacement
from pool.spawning import Spawner
from pool.state import PoolState
from pool.stimuli import Action, FailureKind, Grant, Reject, Stimulus, StopReason
from pool.transitions import ENDING, SERVING, WorkerState
from pool.workers import Workers
from profiles.profile import CapabilityProfile

_HIGHEST_PRIORITY = 1000
"""Waiting is worth one step each ``age_step``: more than this would outlast any wait, and far more no float holds."""

_IDLE_TIMES = frozenset({"idle_timeout", "session_idle_timeout"})
_LIMITS = frozenset({"max", "max_per_profile", "max_per_agent", "max_pinned", "reserve", "spawn_burst", "spawn_rate"})
"""Settings that may let a waiter go on."""


class PoolMachine:
    """Who gets which worker.

    Args:
        settings: limits and times; UsageError where they contradict each other.
        rng: for jitter; a seeded one makes every decision repeatable.
        now: seconds on the clock that every later ``now`` is read from. It never goes back.
    """

    def __init__(self, settings: PoolSettings, *, rng: random.Random, now: float) -> None:
        self._state = PoolState(settings, rng, now)
        self._spawner = Spawner(self._state)
        self._workers = Workers(self._state, self._spawner)
        self._binder = SessionBinder(self._state, self._workers)
        self._admission = Admission(self._state, self._spawner, self._workers, self._binder)
        self._scheduler = Scheduler(self._state, self._spawner, self._workers, self._binder, self._admission)
        self._prewarmer = Prewarmer(self._state, self._spawner)
        modes = Modes(self._state, self._workers, self._scheduler)
        self._handlers: dict[type, Callable[[Any], None]] = {
            stimuli.Acquire: self._acquire,
            stimuli.Cancel: self._binder.cancel,
            stimuli.Release: self._binder.release,
            stimuli.SessionBusy: self._session_busy,
            stimuli.SessionIdle: self._session_idle,
            stimuli.BackgroundCount: self._background_count,
            stimuli.MemoryUsage: self._memory_usage,
            stimuli.TurnStalled: self._workers.turn_stalled,
            stimuli.SessionKnown: self._session_known,
            stimuli.ForgetSession: self._forget_session,
            stimuli.AgentLearned: self._agent_learned,
            stimuli.SessionAsks: self._session_asks,
            stimuli.WorkerReady: self._worker_ready,
            stimuli.WorkerResetDone: self._worker_reset_done,
            stimuli.WorkerReconciled: self._worker_reconciled,
            stimuli.WorkerFailed: self._worker_failed,
            stimuli.ProcessExited: self._process_exited,
            stimuli.StopWorker: self._stop_worker,
            stimuli.RecycleWorker: self._recycle_worker,
            stimuli.WorkerModified: self._worker_modified,
            stimuli.SetPrewarm: self._set_prewarm,
            stimuli.ProfilesChanged: self._profiles_changed,
            stimuli.ClockTick: self._tick,
            stimuli.SettingsChanged: self._settings_changed,
            stimuli.Capacity: self._capacity,
            stimuli.Pause: modes.pause,
            stimuli.Resume: modes.resume,
            stimuli.Drain: modes.drain,
            stimuli.Close: modes.close,
        }

    def handle(self, stimulus: Stimulus, now: float) -> list[Action]:
        """Take in one fact and say what is to be done, in order.

        Everything that was due by ``now`` happens first. Raises UsageError where the stimulus makes no sense; it then
        changes nothing, and what was due is returned by the next call (``next_wakeup`` says at once).
        """
        state = self._state
        state.now = max(state.now, now)
        if state.timers.fire(state.now):
            self._schedule()
        self._handlers[type(stimulus)](stimulus)
        self._schedule()
        actions, state.actions = state.actions, []
        return actions

    def settings(self) -> PoolSettings:
        """The limits now in force: the only copy that a reload replaces."""
        return self._state.settings

    def next_wakeup(self) -> float | None:
        """When the next ClockTick is needed, on the machine's clock; None = nothing is due."""
        return self._state.now if self._state.actions else self._state.timers.next_at()

    def transcript_of(self, session: str) -> str | None:
        """The session's transcript, as its worker or ``SessionKnown`` named it."""
        known = self._state.sessions.get(session)
        return known.transcript if known else None

    def has_session(self, session: str) -> bool:
        """Whether the session has a conversation or a worker, or waits for one."""
        known = self._state.sessions.get(session)
        return known is not None and not known.forgettable

    def belongs_to_other(self, session: str, transcript: str) -> bool:
        """Whether the conversation in that file is one of another session."""
        return self._state.transcript_owners.get(transcript, session) != session

    def owner_of(self, transcript: str) -> str | None:
        """The session whose conversation is in that file, or None."""
        return self._state.transcript_owners.get(transcript)

    def placement(self, session: str, *, counted: bool = False) -> SessionPlacement:
        """Where a session is, and what it waits for; of an unknown one nothing. ``counted``: its place in the queue."""
        return status.placement(self._state, session, counted=counted)

    def is_quiescent(self, session: str) -> bool:
        """Whether nothing is held, in flight or running in the background for the session."""
        known = self._state.sessions.get(session)
        return known is None or known.quiescent

    def session_of(self, worker: str) -> str | None:
        """Whose conversation the worker has, or is being prepared for; None without one, and for an unknown worker."""
        known = self._state.workers.get(worker)
        return known.session.key if known and known.session else None

    def take_warm(self, request: str, session: str, profile: CapabilityProfile, now: float) -> Grant | None:
        """What an ordinary Acquire would get in the same step from the session's own worker; None where nothing.

        ``request``: an id that no other one has. The short way of what ``handle`` decides: a request that never waits
        needs no place on the waiting list, and what it takes makes nothing possible for those that have one. None also
        while something is due, which ``handle`` does first.
        """
        known, due = self._state.sessions.get(session), self.next_wakeup()
        if known is None or (due is not None and due <= now):
            return None
        self._state.now = max(self._state.now, now)
        return self._binder.take_warm(request, known, profile)

    def has_worker(self, session: str, profile: CapabilityProfile) -> bool:
        """Whether an ordinary Acquire that may not spawn would be granted in the same step."""
        known = self._state.sessions.get(session)
        return (known is None or known.failed is None) and self._admission.has_worker(known, profile)

    def has_room(self, session: str, profile: CapabilityProfile, now: float) -> bool:
        """The same for one that may spawn where there is room: it would be granted, or a worker started for it."""
        known, at = self._state.sessions.get(session), max(self._state.now, now)
        return (known is None or known.failed is None) and self._admission.has_room(known, profile, at)

    def slot_demand(self) -> dict[str, int]:
        """By group that requests wait for, how many further slots they could use."""
        return status.slot_demand(self._state)

    def snapshot(self, now: float) -> MachineSnapshot:
        """A frozen picture, consistent with itself."""
        return status.snapshot(self._state, now)

    def explain(self, session: str | None, profile: CapabilityProfile | None = None) -> PoolExplanation:
        """How well every worker fits ``profile``, or what ``session`` asked for last, and its wait; or UsageError."""
        return status.explain(self._state, session, profile)

    def validate(self) -> None:
        """Check every invariant over the whole state; raises AssertionError. A test aid, O(everything)."""
        invariants.check(self._state)

    def _schedule(self) -> None:
        self._scheduler.run()
        if self._state.pending_restarts or self._state.prewarm_targets:
            self._prewarmer.run()

    # --- requests ---------------------------------------------------------------------------------------------------

    def _acquire(self, acquire: stimuli.Acquire) -> None:
        state = self._state
        if not -_HIGHEST_PRIORITY <= acquire.priority <= _HIGHEST_PRIORITY:
            raise UsageError(f"a priority lies between -{_HIGHEST_PRIORITY} and {_HIGHEST_PRIORITY}")
        request = acquire.request
        if request in state.requests or request in state.holds or request in state.lost_holds:
            raise UsageError(f"request {request!r} is in use already")
        if state.mode in ENDING:
            state.counters.refused += 1
            state.actions.append(Reject(request, rejections.closed(state.counts(), state.mode.value)))
            return
        waiter = state.new_waiter(acquire)
        session = waiter.session
        session.last_profile = acquire.profile
        if session.failed is not None:
            state.reject(waiter, session.failed)
            return
        self._admission.admit(waiter, spawn=acquire.spawn)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _session_busy(self, busy: stimuli.SessionBusy) -> None:
        session = self._state.session_record(busy.session)
        session.busy = True
        self._workers.refresh_session(session)

    def _session_idle(self, quiet: stimuli.SessionIdle) -> None:
        session = self._state.sessions.get(quiet.session)
        if session is None:
            return
        session.busy = False
        self._workers.refresh_session(session)
        self._state.forget_if_empty(session)

    def _session_known(self, known: stimuli.SessionKnown) -> None:
        session = self._state.session_record(known.session)
        self._state.set_transcript(session, known.transcript)
        self._state.forget_if_empty(session)

    def _forget_session(self, forget: stimuli.ForgetSession) -> None:
        session = self._state.sessions.get(forget.session)
        if session is None:
            return
        is_prepared = session.worker is not None and session.worker.session is session and session.worker.preparation
        if session.holds or is_prepared:
            raise UsageError(f"session {session.key!r} is in use", session=session.key)
        self._state.set_transcript(session, None)
        session.failed = None
        session.resume_failures = 0
        self._workers.detach(session)
        self._state.forget_if_empty(session)

    def _session_asks(self, asks: stimuli.SessionAsks) -> None:
        self._state.asking.pop(asks.session, None)
        if asks.call is not None:
            self._state.asking[asks.session] = asks.call

    def _agent_learned(self, learned: stimuli.AgentLearned) -> None:
        self._state.set_forgets(learned.agent, forgets=learned.forgets)

    # --- workers ----------------------------------------------------------------------------------------------------

    def _known_worker(self, name: str) -> WorkerRecord | None:
        """The worker of that id; None for late news of a dead one. Raises UsageError for an id never given out."""
        worker = self._state.workers.get(name)
        if worker is None:
            number = name[1:]
            if not (name[:1] == "w" and number.isascii() and number.isdigit() and int(number) <= self._spawner.spawned):
                raise UsageError(f"there is no worker {name!r}", worker=name)
        return worker

    def _live_worker(self, name: str) -> WorkerRecord:
        worker = self._state.workers.get(name)
        if worker is None:
            raise UsageError(f"there is no worker {name!r}", worker=name)
        return worker

    def _active_worker(self, name: str) -> WorkerRecord | None:
        """The same, but None also for one that is to stop: what it still says changes nothing."""
        worker = self._known_worker(name)
        return None if worker is None or worker.state is WorkerState.STOPPING else worker

    def _worker_ready(self, ready: stimuli.WorkerReady) -> None:
        worker = self._active_worker(ready.worker)
        if worker is None:
            return
        if worker.state is not WorkerState.STARTING:
            raise UsageError(f"worker {worker.id} was ready before", worker=worker.id)
        worker.node = ready.node
        self._workers.ready(worker)

    def _worker_reset_done(self, done: stimuli.WorkerResetDone) -> None:
        worker = self._active_worker(done.worker)
        if worker is not None:
            self._binder.reset_done(worker, done.session, done.transcript)

    def _worker_reconciled(self, reconciled: stimuli.WorkerReconciled) -> None:
        worker = self._active_worker(reconciled.worker)
        if worker is not None:
            self._binder.reconciled(worker)

    def _worker_failed(self, failed: stimuli.WorkerFailed) -> None:
        worker = self._active_worker(failed.worker)
        if worker is None:
            return
        kind = failed.kind
        if kind is FailureKind.RECONCILE:
            self._binder.reconcile_failed(worker, failed.error)
            return
        if kind in (FailureKind.DISK_FULL, FailureKind.UNFIT):
            self._binder.reset_refused(worker, kind, failed.error)
            return
        if worker.state is WorkerState.STARTING and kind is not FailureKind.LOST:
            kind = FailureKind.START
        is_charged = self._binder.failed(worker, kind, failed.error)
        if not (worker.proven or is_charged or kind is FailureKind.LOST):
            self._spawner.record_failure(worker, failed.error)

    def _process_exited(self, exited: stimuli.ProcessExited) -> None:
        worker = self._known_worker(exited.worker)
        if worker is not None:
            self._workers.exited(worker, exited.error)

    def _background_count(self, background: stimuli.BackgroundCount) -> None:
        worker = self._active_worker(background.worker)
        if worker is None:
            return
        worker.background = background.running
        if worker.session is None and background.running and worker.state is not WorkerState.STARTING:
            self._workers.stop(worker, StopReason.RETIRED)
        else:
            self._workers.refresh(worker)

    def _memory_usage(self, usage: stimuli.MemoryUsage) -> None:
        limit = self._state.settings.max_rss
        for name, rss in usage.rss.items():
            worker = self._state.workers.get(name)
            if worker is not None and limit and rss > limit:
                self._workers.schedule_retirement(worker, "rss")

    def _stop_worker(self, stop: stimuli.StopWorker) -> None:
        self._workers.stop(self._live_worker(stop.worker), StopReason.OPERATOR)

    def _recycle_worker(self, recycle: stimuli.RecycleWorker) -> None:
        why = "recycle" if recycle.replace else "drain"
        self._workers.schedule_retirement(self._live_worker(recycle.worker), why)

    def _worker_modified(self, altered: stimuli.WorkerModified) -> None:
        worker = self._known_worker(altered.worker)
        if worker is not None and not worker.modified:
            worker.modified = True
            self._state.index.withdraw(worker)

    def _set_prewarm(self, prewarmed: stimuli.SetPrewarm) -> None:
        self._prewarmer.set_targets(prewarmed.targets)
        self._workers.stop_idle()

    def _profiles_changed(self, changed: stimuli.ProfilesChanged) -> None:
        state, current = self._state, changed.signatures
        outdated = [kind for signature, kind in state.profiles.items() if signature not in current]
        self._prewarmer.drop(outdated)
        for worker in [worker for kind in outdated for worker in kind.workers]:
            self._workers.mark_outdated(worker)

    # --- the pool ---------------------------------------------------------------------------------------------------

    def _tick(self, _: stimuli.ClockTick) -> None:
        """What is due has happened already."""

    def _settings_changed(self, changed: stimuli.SettingsChanged) -> None:
        state, old, new = self._state, self._state.settings, changed.settings
        check_settings(new)
        state.settings = new
        state.places.set_most(new.max)
        names = {name for name in PoolSettings.__struct_fields__ if getattr(old, name) != getattr(new, name)}
        self._spawner.set_rate()
        if names & _IDLE_TIMES:
            for worker in state.index.lru:
                self._workers.arm_idle_timer(worker)
        if "max_age" in names:
            for worker in state.workers.values():
                if worker.state in SERVING:
                    self._workers.arm_age_timer(worker)
        for session in self._admission.dedication.limit_changed():
            self._workers.refresh_session(session)
        self._workers.shrink_to_max()
        self._workers.stop_idle()
        if names & _LIMITS:
            self._scheduler.wake_all()

    def _capacity(self, capacity: stimuli.Capacity) -> None:
        """Costs by the number of groups, whatever the number of workers."""
        state = self._state
        state.places.set_slots(capacity.slots)
        for place in state.places:
            line = None if place.is_full else place.condition.peek()
            if line is not None:
                state.touched[line.profile_record] = None
        self._spawner.set_rate(capacity)
        for session in self._admission.dedication.limit_changed():
            self._workers.refresh_session(session)
