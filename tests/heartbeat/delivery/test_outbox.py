"""What the outbox decides: which alert is tried when, who makes room for whom, what is kept of it."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from errors import InternalError
from heartbeat.delivery.channel import DeliveryFailed
from heartbeat.delivery.outbox import (
    AlertOutbox,
    AlertRecord,
    AlertState,
    DeliveryAttempt,
    OutboxAction,
    OutboxLimits,
    PublishAlert,
    PublishUndeliverable,
    SaveRecord,
    decode_record,
    encode_record,
    retry_delay,
)
from heartbeat.delivery.targets import EVENTS, DeliveryTarget
from tests.heartbeat.delivery.fakes import WALL, an_alert

OPS, DEV = DeliveryTarget("webhook", "ops"), DeliveryTarget("webhook", "dev")
LATER = DeliveryFailed("it answered 500")
NEVER = DeliveryFailed("it answered 400", permanent=True)


@pytest.fixture
def outbox() -> AlertOutbox:
    return AlertOutbox(OutboxLimits())


def attempts(actions: Sequence[OutboxAction]) -> list[tuple[str, int]]:
    return [(action.alert.id, action.number) for action in actions if isinstance(action, DeliveryAttempt)]


def kept(actions: Sequence[OutboxAction]) -> dict[str, AlertState | None]:
    return {
        action.id: None if action.record is None else action.record.state
        for action in actions
        if isinstance(action, SaveRecord)
    }


def accepted(outbox: AlertOutbox, *ids: str, place: DeliveryTarget = OPS, now: float = 0.0) -> list[OutboxAction]:
    return [action for one in ids for action in outbox.accept(an_alert(one), place, now, WALL + now)]


def test_an_alert_for_the_event_stream_is_over_once_it_is_published(outbox: AlertOutbox) -> None:
    alert = an_alert()
    ended = AlertRecord(id="a1", place=EVENTS, state=AlertState.ENDED)
    assert outbox.accept(alert, EVENTS, 0.0, WALL) == [PublishAlert(alert, EVENTS), SaveRecord("a1", ended)]
    assert outbox.next_due() is None


def test_an_alert_for_a_channel_is_published_kept_and_tried_at_once(outbox: AlertOutbox) -> None:
    alert = an_alert()
    waiting = AlertRecord(id="a1", place=OPS, alert=alert, next_try=WALL)
    assert outbox.accept(alert, OPS, 5.0, WALL) == [PublishAlert(alert, OPS), SaveRecord("a1", waiting)]
    assert outbox.next_due() == 5.0
    assert outbox.tick(5.0) == [DeliveryAttempt(alert, OPS, 1)]
    assert outbox.delivered("a1") == [SaveRecord("a1", AlertRecord(id="a1", place=OPS, state=AlertState.ENDED))]


def test_the_same_id_is_nothing_new_whatever_became_of_it(outbox: AlertOutbox) -> None:
    accepted(outbox, "waits", "flies", "ended", "lost")
    outbox.tick(0.0)
    outbox.delivered("waits")
    outbox.failed("flies", NEVER, 9, 0.0, WALL)
    for known in ("waits", "flies", "ended", "lost"):
        assert accepted(outbox, known) == []
        assert accepted(outbox, known, place=EVENTS) == []


def test_pauses_grow_to_ten_minutes() -> None:
    pauses = [retry_delay(attempt, None) for attempt in range(1, 13)]
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600, 600]
    assert 3000 < sum(pauses[:-1]) < 3600
    assert retry_delay(10**9, None) == 600


@pytest.mark.parametrize(("wish", "pause"), [(1.0, 5), (60.0, 60), (1e9, 3600), (-5.0, 5)])
def test_a_longer_pause_that_the_other_side_asks_for_is_kept_within_bounds(wish: float, pause: float) -> None:
    assert retry_delay(1, wish) == pause


@pytest.mark.parametrize("alert_id", ["nobody", "waits"])
def test_an_outcome_of_what_is_not_being_tried_is_a_defect(outbox: AlertOutbox, alert_id: str) -> None:
    accepted(outbox, "flies", "waits")
    outbox.tick(0.0)
    with pytest.raises(InternalError, match=alert_id):
        outbox.delivered(alert_id)
    with pytest.raises(InternalError, match=alert_id):
        outbox.failed(alert_id, LATER, 12, 0.0, WALL)


def test_where_too_many_wait_the_oldest_that_is_not_under_way_gives_way() -> None:
    outbox = AlertOutbox(OutboxLimits(waiting=2))
    accepted(outbox, "o1", "o2")
    accepted(outbox, "d1", place=DEV)
    outbox.tick(0.0)
    actions = accepted(outbox, "o3")
    assert kept(actions) == {"o3": AlertState.WAITING, "o2": AlertState.UNDELIVERABLE}
    assert outbox.tick(0.0) == []
    assert attempts(outbox.delivered("o1")) == [("o3", 1)]
    (lost,) = outbox.statistics().undeliverable
    assert "more than 2 alerts waited for webhook:ops" in lost.error


def test_one_that_was_tried_before_keeps_its_age() -> None:
    outbox = AlertOutbox(OutboxLimits(waiting=2))
    accepted(outbox, "o1", "o2")
    outbox.tick(0.0)
    outbox.failed("o1", LATER, 12, 0.0, WALL)
    actions = accepted(outbox, "o3")
    assert kept(actions) == {"o3": AlertState.WAITING, "o1": AlertState.UNDELIVERABLE}
    (lost,) = outbox.statistics().undeliverable
    assert lost.error.endswith("the last error: it answered 500")


def test_of_undeliverable_ones_the_oldest_text_goes_and_its_id_stays_known() -> None:
    outbox, actions = AlertOutbox(OutboxLimits(undeliverable=2)), list[OutboxAction]()
    for one in ("a1", "a2", "a3"):
        accepted(outbox, one)
        outbox.tick(0.0)
        actions = outbox.failed(one, NEVER, 12, 0.0, WALL)
    assert kept(actions) == {"a3": AlertState.UNDELIVERABLE, "a1": AlertState.ENDED}
    figures = outbox.statistics()
    assert ([lost.id for lost in figures.undeliverable], figures.forgotten) == (["a2", "a3"], 1)
    assert accepted(outbox, "a1") == []


def test_of_ended_ones_the_oldest_id_is_forgotten() -> None:
    outbox = AlertOutbox(OutboxLimits(ended=2))
    actions = accepted(outbox, "a1", "a2", "a3", place=EVENTS)
    assert kept(actions) == {"a1": None, "a2": AlertState.ENDED, "a3": AlertState.ENDED}


@pytest.mark.parametrize(("wall", "due"), [(WALL + 1e9, 50.0), (WALL - 1e9, 50.0 + 3600)])
def test_a_clock_that_was_set_does_not_put_an_alert_off_for_ever(outbox: AlertOutbox, wall: float, due: float) -> None:
    outbox.restore([AlertRecord(id="a1", place=OPS, alert=an_alert(), next_try=WALL)], 50.0, wall)
    assert outbox.next_due() == due


def test_another_life_knows_what_ended_and_what_was_lost_and_keeps_its_limits() -> None:
    lost = AlertRecord(id="l", place=OPS, state=AlertState.UNDELIVERABLE, alert=an_alert("l"), attempts=3, error="no")
    ended = [AlertRecord(id=one, place=OPS, state=AlertState.ENDED) for one in ("e1", "e2", "e3")]
    outbox = AlertOutbox(OutboxLimits(ended=2))
    assert kept(outbox.restore([lost, *ended], 0.0, WALL)) == {"e1": None}
    assert accepted(outbox, "l", "e2", "e3") == []
    assert [found.id for found in outbox.statistics().undeliverable] == ["l"]
    assert outbox.next_due() is None


def test_the_figures_say_what_waits_where_and_why(outbox: AlertOutbox) -> None:
    accepted(outbox, "o1", "o2")
    accepted(outbox, "d1", place=DEV)
    accepted(outbox, "e1", place=EVENTS)
    outbox.tick(0.0)
    outbox.failed("o1", LATER, 12, 0.0, WALL)
    outbox.delivered("d1")
    figures = msgspec.json.decode(msgspec.json.encode(outbox.statistics()))
    assert figures == {
        "accepted": 4,
        "delivered": 2,
        "waiting": 2,
        "places": [
            {"to": "webhook:ops", "waiting": 2, "in_flight": True, "next_try": WALL, "error": "it answered 500"}
        ],
        "undeliverable": [],
        "forgotten": 0,
    }


LIMITS = OutboxLimits(waiting=3, undeliverable=3, ended=1000)


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, and however often it dies in between: every alert has one end, and no place two attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = AlertOutbox(LIMITS)
        self.now = 0.0
        self.documents: dict[str, bytes] = {}
        self.told: list[str] = []
        self.under_way: dict[str, DeliveryTarget] = {}
        self.ends: dict[str, str] = {}
        self.handed = 0

    def perform(self, actions: Sequence[OutboxAction]) -> None:
        for action in actions:
            match action:
                case PublishAlert(alert):
                    self.told.append(alert.id)
                case SaveRecord(alert_id, None):
                    del self.documents[alert_id]
                case SaveRecord(alert_id, AlertRecord() as record):
                    self.documents[alert_id] = encode_record(record)
                case PublishUndeliverable(alert):
                    assert self.ends.setdefault(alert.id, "lost") == "lost"
                case DeliveryAttempt(alert, place):
                    assert place not in self.under_way.values()
                    assert alert.id not in self.ends
                    self.under_way[alert.id] = place

    @rule(place=st.sampled_from([OPS, DEV, EVENTS]))
    def a_new_alert(self, place: DeliveryTarget) -> None:
        self.handed += 1
        self.perform(self.outbox.accept(an_alert(f"a{self.handed}"), place, self.now, WALL + self.now))
        if place is EVENTS:
            self.ends[f"a{self.handed}"] = "delivered"

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def an_old_alert_again(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.handed))
        assert self.outbox.accept(an_alert(f"a{number}"), OPS, self.now, WALL + self.now) == []

    @rule(seconds=st.sampled_from([0.0, 5.0, 60.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.outbox.tick(self.now))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), failure=st.sampled_from([None, LATER, NEVER]))
    def an_attempt_ends(self, data: st.DataObject, failure: DeliveryFailed | None) -> None:
        alert_id = data.draw(st.sampled_from(sorted(self.under_way)))
        del self.under_way[alert_id]
        if failure is None:
            self.ends[alert_id] = "delivered"
            self.perform(self.outbox.delivered(alert_id))
        else:
            self.perform(self.outbox.failed(alert_id, failure, 3, self.now, WALL + self.now))

    @rule()
    def it_dies_and_another_one_goes_on(self) -> None:
        self.under_way.clear()
        self.outbox = AlertOutbox(LIMITS)
        self.perform(self.outbox.restore(map(decode_record, self.documents.values()), self.now, WALL + self.now))

    @invariant()
    def each_alert_was_published_once_and_is_either_over_or_waits(self) -> None:
        assert sorted(self.told) == sorted(f"a{number + 1}" for number in range(self.handed))
        figures = self.outbox.statistics()
        assert figures.waiting == self.handed - len(self.ends)
        assert len(figures.undeliverable) == min(list(self.ends.values()).count("lost"), 3)

    @invariant()
    def nothing_grows_without_bounds(self) -> None:
        assert all(place.waiting <= 3 for place in self.outbox.statistics().places)

    def teardown(self) -> None:
        """With everybody willing, everything comes to an end."""
        for _ in range(10):
            self.perform(self.outbox.tick(self.now))
            while self.under_way:
                alert_id, _ = self.under_way.popitem()
                self.ends[alert_id] = "delivered"
                self.perform(self.outbox.delivered(alert_id))
            self.now = self.outbox.next_due() or self.now
        assert self.outbox.statistics().waiting == 0
        assert len(self.ends) == self.handed


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
