"""Wakes of heartbeat targets: coalesced, never lost, bounded by a flood guard. Pure.

``now`` is monotonic, in seconds. A *target* is one session of one agent; its beats run one after the other. The shell
performs each ``Begin`` and reports the result with ``ended``.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias, assert_never

import msgspec

from errors import PoolSaturated
from wire.timers import KeyedTimers


class WakeReason(StrEnum):
    """What a beat is for."""

    RETRY = "retry"
    """To finish an earlier beat."""
    INTERVAL = "interval"
    """The interval is over."""
    WAKE = "wake"
    """A request without a further reason."""
    EXEC = "exec"
    """A background command or a delegated task has ended."""
    CRON = "cron"
    """A scheduled task has fired."""
    HOOK = "hook"
    """An external call."""
    MANUAL = "manual"
    """An operator's request."""


REASON_RANKS: Mapping[WakeReason, int] = {
    WakeReason.RETRY: 0,
    WakeReason.INTERVAL: 1,
    WakeReason.WAKE: 2,
    WakeReason.EXEC: 3,
    WakeReason.CRON: 3,
    WakeReason.HOOK: 3,
    WakeReason.MANUAL: 4,
}

AWAITED_REASONS = frozenset(reason for reason, rank in REASON_RANKS.items() if rank >= REASON_RANKS[WakeReason.EXEC])
"""A caller awaits the result: an ordinary place in the pool's queue, and no spacing."""

EVENT_REASONS = frozenset({WakeReason.WAKE, WakeReason.EXEC, WakeReason.CRON, WakeReason.HOOK})
"""What a beat can itself bring about, so that it could go on for ever: the flood guard holds these back."""


_KIND_REASONS = {"exec": WakeReason.EXEC, "delegate": WakeReason.EXEC, "cron": WakeReason.CRON}


def reason_of(kind: str) -> WakeReason:
    """The reason of a beat for an event of this kind; ``WAKE`` for kinds without a reason of their own."""
    return _KIND_REASONS.get(kind, WakeReason.WAKE)


def stronger_reason(known: WakeReason | None, new: WakeReason) -> WakeReason:
    """The reason that counts of the two: that of higher rank, of equals the newer one."""
    return new if known is None or REASON_RANKS[new] >= REASON_RANKS[known] else known


COALESCE_DELAY = 0.25
"""Seconds from a target's first wake to its beat."""
BUSY_RETRY_DELAY = 1.0
SPACING = 30.0
"""Seconds from the start of one beat to the start of the next one that no caller awaits."""
FLOOD_BEATS = 5
FLOOD_WINDOW = 60.0
FLOOD_PAUSE = 300.0
MAX_EVENT_BEATS_PER_HOUR = 30
"""Beats of one target that events asked for; beyond these, events pause until the hour is over. They wake by default,
and an agent whose beats start the commands that wake it would go on for ever, at any speed."""
LONGEST_PAUSE = 3600.0
MAX_RUNNING = 256
"""Beats at once; what an operator asked for does not count."""
MAX_TARGETS = 100_000


class BeatTarget(NamedTuple):
    """Whose beat it is, and in which conversation."""

    agent: str
    session: str


class Begin(msgspec.Struct, frozen=True):
    """A beat of the target is to begin; ``ended`` has to follow."""

    target: BeatTarget
    reason: WakeReason


class Paused(msgspec.Struct, frozen=True):
    """Too many beats too fast: what events ask for waits until then."""

    target: BeatTarget
    until: float


WakeAction: TypeAlias = Begin | Paused


class BeatRan(msgspec.Struct, frozen=True):
    """The agent has had its beat."""


class BeatSkipped(msgspec.Struct, frozen=True):
    """A gate was shut; a retry is pointless."""


class BeatBusy(msgspec.Struct, frozen=True):
    """The session is busy; retry in a second."""


class BeatPostponed(msgspec.Struct, frozen=True):
    """No beat before ``until``."""

    until: float


class BeatFailed(msgspec.Struct, frozen=True):
    """The beat failed; up to ``max_retries`` more attempts follow, each ``delay`` seconds after the last.

    ``cooldown``: seconds after the last attempt until pending events are retried; None = there are none.
    """

    max_retries: int
    delay: float
    cooldown: float | None = None


BeatEnd: TypeAlias = BeatRan | BeatSkipped | BeatBusy | BeatPostponed | BeatFailed


class _TargetState(msgspec.Struct, eq=False):
    """One target. ``pending`` waits for its time, ``held`` for the end of a pause, ``running`` has begun."""

    pending: WakeReason | None = None
    ready_at: float = 0.0
    held: WakeReason | None = None
    paused_until: float = -math.inf
    running: WakeReason | None = None
    began_at: float = -math.inf
    last: float = -math.inf
    """Start of the last beat that was not skipped."""
    latest: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=FLOOD_BEATS))
    """Starts of the latest beats that no operator requested; only these count as a flood."""
    for_events: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_EVENT_BEATS_PER_HOUR))
    """Starts of the latest beats requested by events."""
    failures: int = 0

    def spaced_at(self) -> float:
        """When the next beat that no caller awaits may start."""
        return SPACING + (self.last if self.running is None else self.began_at)

    def flooded_until(self, now: float) -> float | None:
        """Until when event wakes must pause; None = one more beat is allowed."""
        if len(self.latest) == FLOOD_BEATS and now - self.latest[0] < FLOOD_WINDOW:
            return now + FLOOD_PAUSE
        if len(self.for_events) == MAX_EVENT_BEATS_PER_HOUR and now - self.for_events[0] < LONGEST_PAUSE:
            return max(self.for_events[0] + LONGEST_PAUSE, now + FLOOD_PAUSE)
        return None

    def relevant_until(self, now: float) -> float:
        """Until when past beats and pauses matter."""
        beats = max(self.last + FLOOD_WINDOW, now)
        asked = self.for_events[-1] + LONGEST_PAUSE if self.for_events else now
        return max(beats, asked, self.paused_until)

    def record_beat(self, reason: WakeReason) -> None:
        """Count an ended beat that was not skipped."""
        self.last = self.began_at
        if reason is not WakeReason.MANUAL:
            self.latest.append(self.began_at)
        if reason in EVENT_REASONS:
            self.for_events.append(self.began_at)

    def schedule(self, reason: WakeReason, ready_at: float) -> None:
        """Add a reason to the next beat, which starts no later than ``ready_at``."""
        self.ready_at = ready_at if self.pending is None else min(self.ready_at, ready_at)
        self.pending = stronger_reason(self.pending, reason)

    def reschedule(self, reason: WakeReason, ready_at: float) -> None:
        """Schedule the reason of an ended beat again; requests that came during the beat are newer."""
        newer = self.pending
        self.schedule(reason, ready_at)
        self.pending = reason if newer is None else stronger_reason(reason, newer)


class WakeMachine:
    """All targets with a coming beat or a recent one. Every step costs O(log n)."""

    def __init__(self, *, most_running: int = MAX_RUNNING, most_targets: int = MAX_TARGETS) -> None:
        self._states: dict[BeatTarget, _TargetState] = {}
        self._due: KeyedTimers[BeatTarget] = KeyedTimers()
        self._urgent: KeyedTimers[BeatTarget] = KeyedTimers()
        """Targets of operators, exempt from the limit of running beats."""
        self._idle: OrderedDict[BeatTarget, float] = OrderedDict()
        """Targets without a coming beat, and until when their past is relevant."""
        self._running = 0
        self._max_running = most_running
        self._max_targets = most_targets

    def __len__(self) -> int:
        return len(self._states)

    def pending(self, target: BeatTarget) -> WakeReason | None:
        """The reason of the target's next beat; None if there is none, or only after a pause."""
        state = self._states.get(target)
        return None if state is None else state.pending

    def is_held(self, target: BeatTarget) -> bool:
        """Whether the target's next beat comes only after a pause."""
        state = self._states.get(target)
        return state is not None and state.held is not None and state.pending is None

    def paused_until(self, target: BeatTarget, now: float) -> float | None:
        """Until when the flood guard holds the target's event wakes; None = it does not."""
        state = self._states.get(target)
        return state.paused_until if state is not None and state.paused_until > now else None

    def next_due(self) -> float | None:
        """When ``begin_due`` has something to do; None = not before another stimulus."""
        urgent = self._urgent.next_due()
        due = self._due.next_due() if self._has_room() else None
        return min((time for time in (urgent, due) if time is not None), default=None)

    def request(self, target: BeatTarget, reason: WakeReason, now: float) -> None:
        """Request a beat soon. Raises PoolSaturated when too many targets wait already."""
        state = self._ensure_state(target, now)
        if reason in EVENT_REASONS and state.paused_until > now:
            state.held = stronger_reason(state.held, reason)
        else:
            ready_at = now + COALESCE_DELAY
            state.schedule(reason, ready_at if reason in AWAITED_REASONS else max(ready_at, state.spaced_at()))
        self._reschedule(target, state, now)

    def pause(self, target: BeatTarget, until: float, now: float) -> None:
        """Continue a pause from before a restart."""
        state = self._ensure_state(target, now)
        state.paused_until = until
        self._reschedule(target, state, now)

    def begin_due(self, now: float) -> list[WakeAction]:
        """The actions due now, the earliest first, as far as there is room."""
        actions: list[WakeAction] = []
        while urgent := self._urgent.pop_due(now, limit=1):
            self._begin(urgent[0], now, actions)
        while self._has_room() and (due := self._due.pop_due(now, limit=1)):
            self._begin(due[0], now, actions)
        return actions

    def ended(self, target: BeatTarget, end: BeatEnd, now: float) -> None:
        """Report the end of a running beat."""
        state = self._states[target]
        reason = state.running
        if reason is None:
            msg = f"no beat of {target} has begun"
            raise RuntimeError(msg)
        state.running = None
        self._running -= reason is not WakeReason.MANUAL
        if isinstance(end, BeatRan | BeatFailed):  # the others cost nothing
            state.record_beat(reason)
        self._conclude(state, reason, end, now)
        self._reschedule(target, state, now)

    def _begin(self, target: BeatTarget, now: float, actions: list[WakeAction]) -> None:
        state = self._states[target]
        if state.held is not None and state.paused_until <= now:
            held, state.held = state.held, None
            state.schedule(held, now)
        reason = state.pending
        assert reason is not None  # noqa: S101 - a due target has something pending, or had it held until now
        state.pending = None
        flooded_until = state.flooded_until(now) if reason in EVENT_REASONS else None
        if flooded_until is not None:
            state.held, state.paused_until = stronger_reason(state.held, reason), flooded_until
            actions.append(Paused(target, state.paused_until))
            self._reschedule(target, state, now)
        else:
            state.running, state.began_at = reason, now
            self._running += reason is not WakeReason.MANUAL
            actions.append(Begin(target, reason))

    def _conclude(self, state: _TargetState, reason: WakeReason, end: BeatEnd, now: float) -> None:
        match end:
            case BeatRan() | BeatSkipped():
                state.failures = 0
            case BeatBusy():
                state.reschedule(reason, now + BUSY_RETRY_DELAY)
            case BeatPostponed(until):
                state.reschedule(reason, max(until, now + BUSY_RETRY_DELAY))
            case BeatFailed(max_retries, delay) if state.failures < max_retries:
                state.failures += 1
                state.reschedule(reason, now + delay)
            case BeatFailed(cooldown=rest):
                state.failures = 0
                if rest is not None:
                    state.reschedule(WakeReason.RETRY, now + rest)
            case _:
                assert_never(end)

    def _ensure_state(self, target: BeatTarget, now: float) -> _TargetState:
        self._expire_idle(now)
        state = self._states.get(target)
        if state is None:
            if len(self._states) >= self._max_targets and not self._evict_idle():
                text = f"{len(self._states)} sessions have a heartbeat before them; {target.session} is refused one"
                raise PoolSaturated(text, session=target.session, retry_after=FLOOD_WINDOW)
            state = self._states[target] = _TargetState()
        self._idle.pop(target, None)
        return state

    def _reschedule(self, target: BeatTarget, state: _TargetState, now: float) -> None:
        self._due.discard(target)
        self._urgent.discard(target)
        if state.running is not None:
            return
        times = []
        if state.pending is not None:
            times.append(state.ready_at)
        if state.held is not None:
            times.append(state.paused_until)
        if times:
            table = self._urgent if state.pending is WakeReason.MANUAL else self._due
            table.set(target, min(times))
        else:
            self._idle[target] = state.relevant_until(now)
            self._expire_idle(now)

    def _evict_idle(self) -> bool:
        """Make room for a new target by dropping the one that has been idle longest."""
        if not self._idle:
            return False
        target, _ = self._idle.popitem(last=False)
        del self._states[target]
        return True

    def _expire_idle(self, now: float) -> None:
        """Drop targets without a coming beat and without a relevant past."""
        while self._idle:
            target, until = next(iter(self._idle.items()))
            if until > now:
                return
            del self._idle[target], self._states[target]

    def _has_room(self) -> bool:
        return self._running < self._max_running
