"""Gates, verdict and repeats over random histories: what is told, what is kept back, and that no event is lost."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from heartbeat.answers import (
    HEARTBEAT_OK,
    AlertAnswer,
    BeatKind,
    PromptTexts,
    SilentAnswer,
    classify_answer,
    compose_prompt,
    strip_token,
)
from heartbeat.checklist import ChecklistState
from heartbeat.gates import GateFacts, Go, Skip, SkipReason, evaluate_gates
from heartbeat.records import AlertDedupe
from heartbeat.schedule import ActiveWindow, jittered, parse_active_hours
from heartbeat.system_events import RESULT_KINDS, SystemEvent
from heartbeat.wake import AWAITED_REASONS, WakeReason
from tests.heartbeat.house_around import an_event

DAY, LIMIT = 86400.0, 20
START = 1_772_000_000.0  # February 2026; the histories run over the change of the clock in March
TEXTS = ["Disk full.", "A long text that says what has to be said.", "ok", "Two\nlines of it", ""]
ANSWERS = st.builds(
    lambda before, text, after: f"{before}{text}{after}",
    st.sampled_from(["", HEARTBEAT_OK + " ", "**HEARTBEAT_OK** ", "see "]),
    st.sampled_from(TEXTS),
    st.sampled_from(["", " " + HEARTBEAT_OK, " `HEARTBEAT_OK`.", "\nMEDIA:chart.png"]),
)
SPANS = st.sampled_from([0.0, 1.0, 299.0, 3600.0, DAY / 2, DAY - 1, DAY, 3 * DAY]) | st.floats(0, 2 * DAY)
REASONS = st.sampled_from(list(WakeReason))
ABOUT_EVENTS = (WakeReason.EXEC, WakeReason.CRON, WakeReason.RETRY)
KINDS = st.sampled_from(["exec", "cron", "delegate", "other"])


class Agent(RuleBasedStateMachine):
    """One agent with one session, driven as a shell would: facts, decision, prompt, answer, verdict, repeat or not."""

    @initialize(
        hours=st.sampled_from([("00:00", "24:00"), ("08:00", "20:00"), ("20:00", "08:00"), ("02:30", "02:30")]),
        always=st.booleans(),
    )
    def begin(self, hours: tuple[str, str], *, always: bool) -> None:
        self.window: ActiveWindow = parse_active_hours(*hours, "America/New_York")
        self.always = always
        self.wall = START
        self.interval = jittered(300.0, "scout")
        self.next_due = self.wall + self.interval
        self.is_enabled, self.is_busy, self.has_room = True, False, True
        self.checklist = ChecklistState.FILLED
        self.pending: list[SystemEvent] = []
        self.shown: Counter[str] = Counter()
        self.injected = 0
        self.repeats = AlertDedupe()
        self.told: list[tuple[float, AlertAnswer]] = []
        """Alerts of plain beats without events, when each was told; others are always news here."""

    # --- the world changes --------------------------------------------------------------------------------------------

    @rule(span=SPANS)
    def time_passes(self, span: float) -> None:
        self.wall += span

    @rule(enabled=st.booleans(), busy=st.booleans(), worker=st.booleans(), state=st.sampled_from(list(ChecklistState)))
    def things_change(self, *, enabled: bool, busy: bool, worker: bool, state: ChecklistState) -> None:
        self.is_enabled, self.is_busy, self.has_room, self.checklist = enabled, busy, worker, state

    @rule()
    def everything_is_ready(self) -> None:
        self.is_enabled, self.is_busy, self.has_room = True, False, True
        self.checklist = ChecklistState.FILLED

    @rule(kind=KINDS)
    def something_happens(self, kind: str) -> None:
        self.injected += 1
        self.pending.append(an_event(f"[{self.injected}] {kind} it is", kind, f"e{self.injected}"))

    @rule()
    def the_supervisor_is_started_anew(self) -> None:
        self.repeats = AlertDedupe(self.repeats.shown_at)

    # --- a beat -------------------------------------------------------------------------------------------------------

    @rule(reason=REASONS, answer=ANSWERS, fails=st.booleans())
    def the_agent_is_woken(self, reason: WakeReason, answer: str, *, fails: bool) -> None:
        facts = self.facts()
        match evaluate_gates(facts, reason, self.wall):
            case Skip(why):
                self.check_the_skip(why, reason)
            case Go():
                self.check_the_gates(reason)
                self.beat(reason, answer, fails=fails)

    @rule(reason=REASONS, kinds=st.lists(KINDS, max_size=2), answer=ANSWERS, fails=st.booleans())
    def the_agent_is_woken_when_it_may_be(
        self, reason: WakeReason, kinds: list[str], answer: str, *, fails: bool
    ) -> None:
        """When its hours have begun and its time has come nothing shuts it out, whatever has been."""
        opens = self.window.next_start(max(self.wall, self.next_due))
        if opens is None:
            assert not self.told
            return
        self.wall = opens
        self.everything_is_ready()
        for kind in kinds:
            self.something_happens(kind)
        is_told_already = reason in ABOUT_EVENTS and not self.pending
        assert evaluate_gates(self.facts(), reason, self.wall) == (
            Skip(SkipReason.NOTHING_PENDING) if is_told_already else Go()
        )
        if not is_told_already:
            self.beat(reason, answer, fails=fails)

    def facts(self) -> GateFacts:
        return GateFacts(
            enabled=self.is_enabled,
            is_running=False,
            is_active_hour=self.window.is_active(self.wall),
            is_busy=self.is_busy,
            skip_when_busy=True,
            next_due=self.next_due,
            has_room=self.has_room,
            has_events=bool(self.pending),
            checklist=self.checklist,
        )

    def check_the_skip(self, why: SkipReason, reason: WakeReason) -> None:
        """The reason that is given is true, and an opened gate is not given as shut."""
        truth = {
            SkipReason.DISABLED: not self.is_enabled,
            SkipReason.OUTSIDE_ACTIVE_HOURS: not self.window.is_active(self.wall),
            SkipReason.BUSY: self.is_busy,
            SkipReason.NOT_DUE: self.wall < self.next_due and reason is WakeReason.INTERVAL,
            SkipReason.EMPTY_CHECKLIST: self.checklist is ChecklistState.EMPTY and not self.pending,
            SkipReason.NO_WORKER: not self.has_room and reason not in AWAITED_REASONS,
            SkipReason.NOTHING_PENDING: not self.pending and reason in ABOUT_EVENTS,
        }
        assert truth[why]

    def check_the_gates(self, reason: WakeReason) -> None:
        assert self.is_enabled
        assert not self.is_busy
        assert self.window.is_active(self.wall)
        assert self.window.start != self.window.end
        assert self.has_room or reason in AWAITED_REASONS
        assert reason is not WakeReason.INTERVAL or self.wall >= self.next_due

    def beat(self, reason: WakeReason, answer: str, *, fails: bool) -> None:
        shown = list(self.pending)
        kind = BeatKind.of(event.kind for event in shown)
        prompt = compose_prompt(shown, kind, PromptTexts())
        assert all(f"[SYSTEM] {event.text}\n" in prompt for event in shown)
        self.next_due = self.wall + self.interval if reason is WakeReason.INTERVAL else self.next_due
        if fails:
            return
        self.shown.update(event.id for event in shown)
        self.pending = [event for event in self.pending if event not in shown]
        summary = "; ".join(event.text for event in shown if event.kind in RESULT_KINDS)
        self.hear(answer, kind, summary, prompt if shown else "")

    def hear(self, answer: str, kind: BeatKind, summary: str, about: str) -> None:
        verdict = classify_answer(
            answer, kind=kind, ack_max_chars=LIMIT, exec_always_deliver=self.always, summary=summary
        )
        match verdict:
            case SilentAnswer():
                self.check_the_silence(answer, kind)
            case AlertAnswer() if not kind and self.repeats.is_repeat("s", verdict, self.wall, about=about):
                assert not about
                assert self.told_lately(verdict)
            case AlertAnswer():
                assert about or not self.told_lately(verdict) or verdict.has_media
                self.repeats.record("s", verdict, self.wall, about=about)
                self.told += [] if about else [(self.wall, verdict)]

    def check_the_silence(self, answer: str, kind: BeatKind) -> None:
        rest, is_acknowledged = strip_token(answer)
        assert is_acknowledged or not rest
        assert len(rest) <= LIMIT
        assert "MEDIA:" not in answer
        assert not (rest and BeatKind.CRON in kind)
        assert not (self.always and BeatKind.EXEC in kind)

    def told_lately(self, alert: AlertAnswer) -> bool:
        return any(told.text == alert.text and self.wall - at < DAY for at, told in self.told if not told.has_media)

    # --- what holds at any time ---------------------------------------------------------------------------------------

    @invariant()
    def every_event_waits_or_was_shown_once(self) -> None:
        waiting = Counter(event.id for event in self.pending)
        assert waiting + self.shown == Counter(f"e{number}" for number in range(1, self.injected + 1))

    @invariant()
    def no_text_is_told_twice_in_a_day(self) -> None:
        last: dict[str, float] = {}
        for at, alert in self.told:
            if not alert.has_media:
                assert at - last.get(alert.text, -DAY) >= DAY
                last[alert.text] = at


TestAgent = Agent.TestCase
TestAgent.settings = settings(max_examples=200, stateful_step_count=40)


@given(answer=ANSWERS, kind=st.sampled_from([BeatKind.PLAIN, BeatKind.EXEC]), later=st.floats(0, DAY - 1))
def test_an_alert_that_is_given_again_is_a_repeat_whatever_token_it_comes_with(
    answer: str, kind: BeatKind, later: float
) -> None:
    repeats = AlertDedupe()
    first = classify_answer(answer, kind=kind, ack_max_chars=0)
    again = classify_answer(f"{HEARTBEAT_OK}\n{answer}", kind=kind, ack_max_chars=0)
    if isinstance(first, AlertAnswer) and isinstance(again, AlertAnswer) and not first.has_media:
        repeats.record("s", first, START)
        assert repeats.is_repeat("s", again, START + later)
