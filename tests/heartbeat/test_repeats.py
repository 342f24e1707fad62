"""The same alert is told once a day."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.answers import HEARTBEAT_OK, AlertAnswer, BeatKind, classify_answer
from heartbeat.records import AlertDedupe

DAY = 86400.0
DISK = AlertAnswer("Disk full.")
NOW = 1_800_000_000.0


def test_an_alert_that_was_told_is_a_repeat_for_a_day() -> None:
    repeats = AlertDedupe()
    assert not repeats.is_repeat("s", DISK, NOW)
    repeats.record("s", DISK, NOW)
    assert repeats.is_repeat("s", DISK, NOW)
    assert repeats.is_repeat("s", DISK, NOW + DAY - 1)
    assert not repeats.is_repeat("s", DISK, NOW + DAY)


def test_another_text_and_another_session_are_news() -> None:
    repeats = AlertDedupe()
    repeats.record("s", DISK, NOW)
    assert repeats.is_repeat("s", AlertAnswer(" Disk full.\n"), NOW)
    assert not repeats.is_repeat("s", AlertAnswer("Disk full!"), NOW)
    assert not repeats.is_repeat("t", DISK, NOW)
    assert not repeats.is_repeat("sDisk", AlertAnswer(" full."), NOW)


def test_the_same_text_about_other_events_is_news() -> None:
    repeats = AlertDedupe()
    repeats.record("s", DISK, NOW, about="the disk of host a")
    assert repeats.is_repeat("s", DISK, NOW, about="the disk of host a")
    assert not repeats.is_repeat("s", DISK, NOW, about="the disk of host b")
    assert not repeats.is_repeat("s", DISK, NOW)
    assert not repeats.is_repeat("s", AlertAnswer("aDisk full."), NOW, about="the disk of host ")


def test_an_alert_with_files_is_always_news() -> None:
    repeats = AlertDedupe()
    repeats.record("s", AlertAnswer("Chart.", has_media=True), NOW)
    assert not repeats.is_repeat("s", AlertAnswer("Chart.", has_media=True), NOW)
    assert not repeats.is_repeat("s", AlertAnswer("Chart."), NOW)
    repeats.record("s", AlertAnswer("Chart."), NOW)
    assert not repeats.is_repeat("s", AlertAnswer("Chart.", has_media=True), NOW)


def test_a_clock_that_is_set_back_silences_for_a_day_at_most() -> None:
    repeats = AlertDedupe()
    repeats.record("s", DISK, NOW)
    assert repeats.is_repeat("s", DISK, NOW - 60)
    assert not repeats.is_repeat("s", DISK, NOW - DAY)


def test_what_was_told_outlives_the_supervisor() -> None:
    repeats = AlertDedupe()
    repeats.record("s", DISK, NOW)
    assert AlertDedupe(repeats.shown_at).is_repeat("s", DISK, NOW + 1)


def test_the_oldest_is_forgotten_beyond_the_bound() -> None:
    repeats = AlertDedupe(most=3)
    for number in range(5):
        repeats.record("s", AlertAnswer(str(number)), NOW + number)
    assert [repeats.is_repeat("s", AlertAnswer(str(number)), NOW + 5) for number in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_an_alert_that_is_told_on_the_next_day_is_the_newest() -> None:
    repeats = AlertDedupe(most=2)
    for text, at in (("first", NOW), ("second", NOW + DAY - 1), ("first", NOW + DAY), ("third", NOW + DAY)):
        repeats.record("s", AlertAnswer(text), at)
    told = [text for text in ("first", "second", "third") if repeats.is_repeat("s", AlertAnswer(text), NOW + DAY)]
    assert told == ["first", "third"]


def test_more_than_is_kept_may_be_handed_over_and_the_latest_stay() -> None:
    earlier = AlertDedupe(most=5)
    for number in range(5):
        earlier.record("s", AlertAnswer(str(number)), NOW + number)
    shuffled = dict(sorted(earlier.shown_at.items()))
    repeats = AlertDedupe(shuffled, most=2)
    assert [repeats.is_repeat("s", AlertAnswer(str(number)), NOW + 5) for number in range(5)] == [False] * 3 + [
        True
    ] * 2


def test_what_is_over_is_not_kept() -> None:
    repeats = AlertDedupe()
    repeats.record("s", DISK, NOW)
    repeats.record("s", AlertAnswer("other"), NOW + DAY)
    assert len(repeats.shown_at) == 1


@pytest.mark.parametrize("text", ["\ud800", "\0", "x" * 1_000_000, ""])
def test_any_text_can_be_remembered_in_a_few_bytes(text: str) -> None:
    repeats = AlertDedupe()
    repeats.record("s\ud800", AlertAnswer(text), NOW)
    assert repeats.is_repeat("s\ud800", AlertAnswer(text), NOW)
    assert [len(name) for name in repeats.shown_at] == [32]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, DAY / 2)), max_size=60))
def test_a_text_is_told_once_in_any_day(history: list[tuple[int, float]]) -> None:
    repeats, now = AlertDedupe(), NOW
    told: dict[int, list[float]] = {}
    for text, later in history:
        now += later
        is_repeat = repeats.is_repeat("s", AlertAnswer(str(text)), now)
        assert is_repeat == any(now - before < DAY for before in told.get(text, []))
        if not is_repeat:
            repeats.record("s", AlertAnswer(str(text)), now)
            told.setdefault(text, []).append(now)
    assert len(repeats.shown_at) <= 4


TEXTS = ["Disk full.", "A long text that says what has to be said.", "ok", "Two\nlines of it", ""]
ANSWERS = st.builds(
    lambda before, text, after: f"{before}{text}{after}",
    st.sampled_from(["", HEARTBEAT_OK + " ", "**HEARTBEAT_OK** ", "see "]),
    st.sampled_from(TEXTS),
    st.sampled_from(["", " " + HEARTBEAT_OK, " `HEARTBEAT_OK`.", "\nMEDIA:chart.png"]),
)


@given(answer=ANSWERS, kind=st.sampled_from([BeatKind.PLAIN, BeatKind.EXEC]), later=st.floats(0, DAY - 1))
def test_an_alert_that_is_given_again_is_a_repeat_whatever_token_it_comes_with(
    answer: str, kind: BeatKind, later: float
) -> None:
    repeats = AlertDedupe()
    first = classify_answer(answer, kind=kind, ack_max_chars=0)
    again = classify_answer(f"{HEARTBEAT_OK}\n{answer}", kind=kind, ack_max_chars=0)
    if isinstance(first, AlertAnswer) and isinstance(again, AlertAnswer) and not first.has_media:
        repeats.record("s", first, NOW)
        assert repeats.is_repeat("s", again, NOW + later)
