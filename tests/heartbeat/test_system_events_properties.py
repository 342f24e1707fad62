"""The queue of system events through any story: none is lost, none is told twice, the limits hold."""

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from heartbeat.system_events import SystemEvent, SystemEventKind, SystemEventLimits, SystemEventQueue

WALL = 1_000_000.0

sessions = st.sampled_from("abcd")
kinds = st.sampled_from(SystemEventKind)
words = st.sampled_from(["", " x ", "x", "y", "z" * 9])
LIMITS = SystemEventLimits(per_session=3, sessions=3, chars=40, text=8, age=100.0, age_of_results=250.0)


class AnyStory(RuleBasedStateMachine):
    """Every event that was taken in is told by a turn that succeeded, or accounted for; none is told twice."""

    @initialize()
    def begin(self) -> None:
        self.ids = count(1)
        self.queue = SystemEventQueue(lambda: f"e{next(self.ids)}", LIMITS)
        self.now = 0.0
        self.kept: dict[str, list[SystemEvent]] = {}
        self.turns: dict[str, list[SystemEvent]] = {}
        self.taken: dict[str, SystemEvent] = {}
        self.told: list[str] = []
        self.forgotten = self.gone_before = 0

    @rule(session=sessions, text=words, kind=kinds)
    def inject(self, session: str, text: str, kind: SystemEventKind) -> None:
        before = [event.text for event in self.queue.peek(session, self.now)]
        shown = self.turns.get(session, [])
        event = self.queue.inject(session, text, kind=kind, now=self.now, wall_now=WALL + self.now)
        if event is None:
            assert not text.strip() or (before and before[-1][:7] == text.strip()[:7] and kind != "exec")
        else:
            self.taken[event.id] = event
            assert self.queue.peek(session, self.now)[-1] == event
            assert not shown or event not in shown

    @rule(session=sessions)
    def begin_turn(self, session: str) -> None:
        self.turns[session] = self.queue.peek(session, self.now)
        self.queue.mark_shown(session, [event.id for event in self.turns[session]])

    @rule(session=sessions, succeeds=st.booleans())
    def end_turn(self, session: str, succeeds: bool) -> None:  # noqa: FBT001  # drawn by name
        shown = self.turns.pop(session, [])
        there = set(self.queue.peek(session, self.now))
        if succeeds:
            self.told += [event.id for event in shown if event in there]
            self.queue.consume(session, [event.id for event in shown])
            assert set(self.queue.peek(session, self.now)) == there - set(shown)

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.queue.gc(self.now)

    @rule(session=sessions)
    def forget(self, session: str) -> None:
        self.forgotten += self.queue.discard(session, (SystemEventKind.EXEC, SystemEventKind.DELEGATE))

    @rule()
    def begin_another_life(self) -> None:
        self.keep()
        figures = self.queue.stats()
        self.gone_before += figures.evicted + figures.expired
        left = [event for events in self.kept.values() for event in events]
        self.queue = SystemEventQueue(lambda: f"e{next(self.ids)}", LIMITS)
        self.queue.restore(left, now=self.now, wall_now=WALL + self.now)
        self.turns.clear()

    def keep(self) -> None:
        for session, events in self.queue.pop_changed().items():
            self.kept[session] = events

    @invariant()
    def none_is_lost_and_none_is_told_twice(self) -> None:
        assert len(self.told) == len(set(self.told))
        figures = self.queue.stats()
        gone = self.gone_before + figures.evicted + figures.expired + self.forgotten
        assert len(self.taken) == len(self.told) + figures.pending + gone

    @invariant()
    def what_is_kept_elsewhere_is_what_is_there(self) -> None:
        self.keep()
        for session in "abcd":
            assert self.kept.get(session, []) == self.queue.peek(session, self.now)

    @invariant()
    def the_limits_hold(self) -> None:
        pending = [self.queue.peek(session, self.now) for session in "abcd"]
        everything = [event for events in pending for event in events]
        assert all(len(events) <= LIMITS.per_session for events in pending)
        assert sum(map(bool, pending)) == self.queue.stats().sessions <= LIMITS.sessions
        assert sum(len(event.text) for event in everything) <= LIMITS.chars
        assert all(WALL + self.now - event.ts <= LIMITS.age_of(event.kind) for event in everything)
        assert (self.queue.next_expiry() is None) == (not everything)


AnyStory.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestAnyStory = AnyStory.TestCase
