"""The lane machine: when a session's next turn begins, and what becomes of messages meanwhile. Pure.

``handle(stimulus, now) -> actions``: it never awaits, reads no clock and knows no worker. Each stimulus goes to the
part that knows it; the dispatcher runs after every one.
"""

from collections.abc import Callable
from typing import Any

from errors import UsageError
from gateway.lanes import messages
from gateway.lanes.lane_entries import EntryState, LaneEntry, LaneSessionState
from gateway.lanes.messages import (
    AbortTurn,
    LaneAction,
    LanesSnapshot,
    LaneStats,
    LaneStimulus,
    RejectionReason,
    SessionLaneStats,
    Steer,
    Submit,
)
from gateway.lanes.state import LaneSession, LaneState, LaneTurn
from gateway.settings import Overflow, QueueSettings
from wire.messages import QueueMode
from wire.timers import Timers

_MAX_STEERED = 1000
"""Messages that one turn may be given while it runs; more become follow-ups, which the queue's cap bounds."""
_MAX_SUMMARIZED = 1000
"""Summarized runs of one session; of more, the one that was summarized first is rejected."""


class QueuePolicy:
    """The queue modes and the limits. Limits apply to new messages: a waiting one is dropped only when one arrives."""

    __slots__ = ("_state",)

    def __init__(self, state: LaneState) -> None:
        self._state = state

    def admit(self, submit: Submit) -> None:
        """Accept a new run, or reject it. Raises UsageError for a run that is known already."""
        if submit.run in self._state.runs:
            raise UsageError(f"run {submit.run!r} is in the lanes already", run=submit.run)
        session = self._state.sessions.get(submit.session)
        if session is None:
            self._begin_or_wait(submit)
        elif (turn := _turn_to_steer(session, submit)) is not None:
            self._steer(turn, submit)
        elif submit.mode is QueueMode.INTERRUPT and not (session.turn and session.turn.is_exclusive):
            self._interrupt(session, submit)
        else:
            self._queue(session, submit)

    def _begin_or_wait(self, submit: Submit) -> None:
        """The session is free: the message begins a turn, or waits for a slot of its lane and for nothing else."""
        state = self._state
        has_slot = state.slots.has_room(submit.lane)
        if not has_slot and not self._has_room(submit):
            return
        session = state.sessions[submit.session] = LaneSession(submit.session)
        entry = state.new_entry(submit)
        if has_slot:
            state.begin(session, submit.lane, [entry])
        else:
            state.enqueue(session, entry)
            session.queue.mark_ready()

    def _steer(self, turn: LaneTurn, submit: Submit) -> None:
        entry = self._state.new_entry(submit)
        entry.transition_to(EntryState.STEERED)
        turn.steers[entry.run] = entry
        self._state.actions.append(Steer(turn.name, entry.run))

    def _interrupt(self, session: LaneSession, submit: Submit) -> None:
        """The newest message takes the place of the turn and of all that waits, unless it may not even wait."""
        state = self._state
        if not session.queue and not self._has_room(submit):
            return
        if session.turn is not None and session.state is LaneSessionState.RUNNING:
            session.transition_to(LaneSessionState.ABORTING)
            state.actions.append(AbortTurn(session.turn.name))
        state.reject_all(list(session.queue), RejectionReason.INTERRUPTED)
        state.enqueue(session, state.new_entry(submit))

    def _queue(self, session: LaneSession, submit: Submit) -> None:
        """Let the message wait; where the session's queue is full a message is dropped, perhaps this one."""
        state, settings = self._state, self._state.settings
        is_full = session.queue.size >= settings.cap
        if is_full and settings.overflow is Overflow.NEW:
            state.emit_rejection(submit.run, submit.session, RejectionReason.FULL)
            return
        replaces = is_full and settings.overflow is Overflow.OLD
        if not replaces and not self._has_room(submit):
            return
        state.enqueue(session, state.new_entry(submit))
        # Only one is dropped, and only after the new one has joined: so a batch that gathers is never empty in between
        # and keeps its start.
        if session.queue.size > settings.cap:
            self._apply_overflow(session)

    def _apply_overflow(self, session: LaneSession) -> None:
        state, queue = self._state, session.queue
        oldest = queue.pick_victim()
        if oldest.exclusive or state.settings.overflow is not Overflow.SUMMARIZE:
            state.reject(oldest, RejectionReason.DROPPED)
            return
        queue.summarize(oldest, messages.summary_line(oldest.text))
        surplus = queue.summaries.first
        if surplus is not None and len(queue.summaries) > _MAX_SUMMARIZED:
            state.reject(surplus, RejectionReason.DROPPED)

    def _has_room(self, submit: Submit) -> bool:
        """Whether the message may wait. Where too many do, the lowest priority is evicted, the latest among equals."""
        state = self._state
        if len(state.pending) < state.settings.pending:
            return True
        lowest = state.pending.first()
        if lowest is None or lowest.priority >= submit.priority:
            state.emit_rejection(submit.run, submit.session, RejectionReason.EVICTED)
            return False
        state.reject(lowest, RejectionReason.EVICTED)
        return True


def _turn_to_steer(session: LaneSession, submit: Submit) -> LaneTurn | None:
    """The turn that takes the message; None where there is none, or where it would overtake another message."""
    turn = session.turn
    if turn is None or session.state is not LaneSessionState.RUNNING or turn.is_exclusive:
        return None
    if submit.mode is not QueueMode.STEER or not submit.may_steer or submit.exclusive:
        return None
    if len(turn.steers) >= _MAX_STEERED:
        return None
    return None if session.queue.has_ahead(submit.priority) else turn


class Dispatcher:
    """Runs after every stimulus, over what it has touched.

    First every touched session takes its place (free, gathering, or in line), then the lanes give their slots: so a
    slot goes to the best of all that are due, in whatever order they became so.
    """

    __slots__ = ("_state", "timers")

    def __init__(self, state: LaneState) -> None:
        self._state = state
        self.timers = Timers()
        """The ends of debounces."""

    def run(self) -> None:
        """Look again at everything that was touched."""
        sessions, lanes, slots = self._state.touched_sessions, self._state.touched_lanes, self._state.slots
        while sessions:
            _, session = sessions.popitem()
            if session.turn is None:
                self._update_session(session)
        while lanes:
            lane, _ = lanes.popitem()
            while (best := slots.peek(lane)) is not None:
                self._begin_next(best, lane)

    def _update_session(self, session: LaneSession) -> None:
        state = self._state
        if session.timer is not None:
            self.timers.cancel(session.timer)
        leader = session.queue.head()
        if leader is None:
            if session.position is not None:
                state.slots.remove(session)
            session.transition_to(LaneSessionState.FREE)
            del state.sessions[session.key]
        elif (due := session.queue.due(state.settings.debounce)) > state.now:
            state.slots.remove(session)
            session.transition_to(LaneSessionState.GATHERING)
            session.timer = self.timers.at(due, state.touch, session)
        else:
            session.queue.mark_ready()
            session.transition_to(LaneSessionState.QUEUED)
            state.slots.enqueue(session, leader.lane, leader.rank)
            state.touched_lanes[leader.lane] = None

    def _begin_next(self, session: LaneSession, lane: str) -> None:
        state = self._state
        state.slots.remove(session)
        entries = session.queue.pop()
        for entry in entries:
            state.unindex(entry)
        state.begin(session, lane, entries)


_WAIT_REASONS = {
    LaneSessionState.GATHERING: "more messages may follow, to be answered together",
    LaneSessionState.QUEUED: "its lane has as many turns as it may",
}


class LaneMachine:
    """One turn per session at a time; everything else waits by the rules of its queue mode.

    A run is known from its Submit until it is rejected or withdrawn, or the turn that answers for it has ended.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self._state = LaneState(settings)
        self._policy = QueuePolicy(self._state)
        self._dispatcher = Dispatcher(self._state)
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Submit: self._policy.admit,
            messages.SteerRejected: self._steer_rejected,
            messages.TurnEnded: self._turn_ended,
            messages.Withdraw: self._withdraw,
            messages.Clear: self._clear,
            messages.Tick: self._tick,
            messages.Reconfigure: self._reconfigure,
        }

    def handle(self, stimulus: LaneStimulus, now: float) -> list[LaneAction]:
        """Handle a stimulus; returns the actions to perform, in order. ``now``: seconds on a monotonic clock.

        Everything that was due by ``now`` happens first. Raises UsageError where the stimulus makes no sense; it then
        changes nothing, and what was due is returned by the next call (``next_wakeup`` says at once).
        """
        state = self._state
        state.now = max(state.now, now)
        if self._dispatcher.timers.fire(state.now):
            self._dispatcher.run()
        self._handlers[type(stimulus)](stimulus)
        self._dispatcher.run()
        actions, state.actions = state.actions, []
        return actions

    def next_wakeup(self) -> float | None:
        """When the next Tick is needed, on the clock of ``now``; None = nothing is due."""
        return self._state.now if self._state.actions else self._dispatcher.timers.next_at()

    # --- questions --------------------------------------------------------------------------------------------------

    def depth(self, session: str) -> int:
        """Number of runs of the session that wait for a turn, the summarized ones among them."""
        known = self._state.sessions.get(session)
        return len(known.queue) if known else 0

    def why_waiting(self, session: str) -> str | None:
        """What the session waits for before its next turn begins, in words; None where it does not wait."""
        known = self._state.sessions.get(session)
        return _WAIT_REASONS.get(known.state) if known else None

    def waiting(self, session: str) -> tuple[str, ...]:
        """Those runs: first the summarized ones, which go with whatever is next, then as they will be served."""
        known = self._state.sessions.get(session)
        return tuple(entry.run for entry in known.queue) if known else ()

    def running_turn(self, session: str) -> str | None:
        """The session's turn; None while it has none."""
        known = self._state.sessions.get(session)
        return known.turn.name if known and known.turn else None

    def snapshot(self) -> LanesSnapshot:
        """Everything at this moment, consistent with itself."""
        state = self._state
        return LanesSnapshot(
            running=len(state.turns),
            waiting=len(state.pending),
            lanes=tuple(
                LaneStats(
                    name=lane.name,
                    limit=state.slots.limits.get(lane.name),
                    running=lane.running,
                    waiting=lane.queue.size,
                )
                for lane in sorted(state.slots, key=lambda lane: lane.name)
            ),
            sessions=tuple(_session_stats(session) for session in state.sessions.values()),
        )

    # --- stimuli ----------------------------------------------------------------------------------------------------

    def _steer_rejected(self, refused: messages.SteerRejected) -> None:
        turn = self._find_turn(refused.turn)
        self._requeue_steer(turn, _find_steer(turn, refused.run))

    def _turn_ended(self, ended: messages.TurnEnded) -> None:
        turn = self._find_turn(ended.turn)
        unconsumed = [_find_steer(turn, run) for run in ended.unconsumed]
        if len(set(unconsumed)) < len(unconsumed):
            raise UsageError(f"turn {turn.name!r} gives the same run back twice", turn=turn.name)
        for entry in unconsumed:
            self._requeue_steer(turn, entry)
        for entry in (*turn.entries, *turn.steers.values()):
            self._state.end(entry)
        self._state.finish(turn)

    def _withdraw(self, withdraw: messages.Withdraw) -> None:
        entry = self._state.runs.get(withdraw.run)
        if entry is not None and entry.is_waiting:
            self._state.remove(entry)

    def _clear(self, clear: messages.Clear) -> None:
        session = self._state.sessions.get(clear.session)
        if session is not None:
            self._state.reject_all(list(session.queue), RejectionReason.CLEARED)

    def _tick(self, _: messages.Tick) -> None:
        """What was due has happened before."""

    def _reconfigure(self, reconfigure: messages.Reconfigure) -> None:
        state = self._state
        state.settings = reconfigure.settings
        state.slots.set_limits(reconfigure.settings.lanes)
        state.touched_sessions.update(state.sessions)  # debounces may be shorter, lanes wider

    # --- turns ------------------------------------------------------------------------------------------------------

    def _find_turn(self, name: str) -> LaneTurn:
        turn = self._state.turns.get(name)
        if turn is None:
            raise UsageError(f"no turn {name!r} is running", turn=name)
        return turn

    def _requeue_steer(self, turn: LaneTurn, entry: LaneEntry) -> None:
        """A steer that was not consumed waits at the place of its arrival; what interrupts the turn has replaced it."""
        del turn.steers[entry.run]
        self._state.enqueue(turn.session, entry)
        if turn.session.state is LaneSessionState.ABORTING:
            self._state.reject(entry, RejectionReason.INTERRUPTED)


def _find_steer(turn: LaneTurn, run: str) -> LaneEntry:
    entry = turn.steers.get(run)
    if entry is None:
        raise UsageError(f"run {run!r} was not steered into turn {turn.name!r}", run=run, turn=turn.name)
    return entry


def _session_stats(session: LaneSession) -> SessionLaneStats:
    turn = session.turn
    return SessionLaneStats(
        session=session.key,
        state=session.state.value,
        turn=turn.name if turn else None,
        runs=tuple(entry.run for entry in turn.entries) if turn else (),
        steered=len(turn.steers) if turn else 0,
        waiting=session.queue.size,
        summarized=len(session.queue.summaries),
    )
