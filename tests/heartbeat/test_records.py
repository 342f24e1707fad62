"""The same alert is shown once a day."""

from collections.abc import Iterable

import pytest

from heartbeat.answers import AlertAnswer
from heartbeat.records import AlertDedupe

DAY = 86400.0
NOW = 1_800_000_000.0


def dedupe(shown: Iterable[tuple[str, float]] = (("Disk full.", 0),), most: int = 200, **facts: str) -> AlertDedupe:
    known = AlertDedupe(most=most)
    for text, at in shown:
        known.record("s", AlertAnswer(text), NOW + at, **facts)
    return known


@pytest.mark.parametrize(
    ("text", "session", "about", "at", "is_repeat"),
    [
        ("Disk full.", "s", "host a", 0, True),
        (" Disk full.\n", "s", "host a", 0, True),
        ("Disk full.", "s", "host a", DAY - 1, True),
        ("Disk full.", "s", "host a", DAY, False),
        ("Disk full.", "s", "host a", -60, True),
        ("Disk full.", "s", "host a", -DAY, False),  # a clock that is set back silences for a day at most
        ("Disk full!", "s", "host a", 0, False),
        ("Disk full.", "t", "host a", 0, False),
        ("Disk full.", "s", "host b", 0, False),
        ("Disk full.", "s", "", 0, False),
        # the parts are not mistaken for each other
        ("aDisk full.", "s", "host ", 0, False),
        ("Disk full.", "shost", " a", 0, False),
    ],
)
def test_the_same_text_about_the_same_events_in_the_same_session_is_a_repeat_for_a_day(
    text: str, session: str, about: str, at: float, *, is_repeat: bool
) -> None:
    known = dedupe(about="host a")
    for later in (known, AlertDedupe(known.shown_at)):  # also in the next supervisor
        assert later.is_repeat(session, AlertAnswer(text), NOW + at, about=about) is is_repeat


def test_an_alert_with_files_is_always_new() -> None:
    known, chart = dedupe([]), AlertAnswer("Chart.", has_media=True)
    known.record("s", chart, NOW)
    assert known.shown_at == {}
    known.record("s", AlertAnswer("Chart."), NOW)
    assert not known.is_repeat("s", chart, NOW)


@pytest.mark.parametrize(
    ("shown", "most", "kept"),
    [
        ([("0", 0), ("1", 1), ("2", 2), ("3", 3)], 2, ["2", "3"]),
        ([("0", 0), ("1", DAY - 1), ("0", DAY), ("2", DAY)], 2, ["0", "2"]),  # shown on the next day: the newest
        ([("0", 0), ("1", DAY)], 200, ["1"]),
    ],
)
def test_expired_alerts_and_beyond_the_bound_the_oldest_are_dropped(
    shown: list[tuple[str, float]], most: int, kept: list[str]
) -> None:
    known = dedupe(shown, most)
    assert len(known.shown_at) == len(kept)
    assert [text for text in "0123" if known.is_repeat("s", AlertAnswer(text), NOW + shown[-1][1])] == kept


def test_of_more_than_are_kept_the_latest_stay() -> None:
    known = AlertDedupe(dict(sorted(dedupe([(str(number), number) for number in range(5)]).shown_at.items())), most=2)
    assert [text for text in "01234" if known.is_repeat("s", AlertAnswer(text), NOW + 5)] == ["3", "4"]


@pytest.mark.parametrize("text", ["\ud800", "\0", "x" * 1_000_000, ""])
def test_any_text_is_remembered_in_a_few_bytes(text: str) -> None:
    known = AlertDedupe()
    known.record("s\ud800", AlertAnswer(text), NOW)
    assert known.is_repeat("s\ud800", AlertAnswer(text), NOW)
    assert [len(name) for name in known.shown_at] == [32]
