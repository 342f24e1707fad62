"""De-duplication: a message that comes again starts nothing, another one always does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.runs.arrivals import Dedupe
from gateway.settings import CurrentSettings, DedupeSettings, GatewaySettings
from router.source import MessageSource
from wire.units import Seconds


def dedupe(**options: Any) -> Dedupe[str]:
    return Dedupe(CurrentSettings(GatewaySettings(dedupe=DedupeSettings(**options))))


def source(message_id: str | None = "m1", **fields: Any) -> MessageSource:
    named = {"channel": "telegram", "chat_type": "dm", "chat_id": "c", "sender_id": "p", "message_id": message_id}
    return MessageSource(**{**named, **fields})


def test_a_message_that_comes_again_is_the_run_it_started_for_a_window_that_begins_with_the_first() -> None:
    seen = dedupe()
    assert seen.check(source(), "hi", "run1", 0.0) is None
    assert seen.check(source(), "hi, edited", "run2", 30.0) == "run1"
    assert seen.check(source(), "hi", "run3", 59.9) == "run1"
    assert seen.check(source(), "hi", "run4", 60.0) is None
    assert seen.check(source(), "hi", "run5", 61.0) == "run4"


def test_an_empty_account_is_another_than_none() -> None:
    seen = dedupe()
    seen.check(source(), "hi", "run1", 0.0)
    assert seen.check(source(account_id=""), "hi", "run2", 0.0) is None


def test_without_an_id_the_whole_text_tells_messages_apart() -> None:
    seen = dedupe()
    start = "x" * 10_000
    seen.check(source(None), start + "a", "run1", 0.0)
    assert seen.check(source(None), start + "b", "run2", 0.0) is None
    assert seen.check(source(None), start + "a", "run3", 0.0) == "run1"
    assert seen.check(source(start[:500]), start + "a", "run4", 0.0) is None


@pytest.mark.parametrize("off", [{"window": Seconds(0)}, {"entries": 0}])
def test_it_can_be_switched_off(off: dict[str, Any]) -> None:
    seen = dedupe(**off)
    assert [seen.check(source(), "hi", "run", 0.0) for _ in range(3)] == [None] * 3
    assert len(seen) == 0


def test_a_message_whose_run_was_refused_is_new_when_it_comes_again() -> None:
    seen = dedupe()
    seen.check(source(), "hi", "run1", 0.0)
    for _ in range(2):
        seen.discard(source(), "hi")
    assert seen.check(source(), "hi", "run2", 1.0) is None


def test_only_the_latest_messages_are_remembered_and_new_limits_hold_at_once() -> None:
    seen = dedupe()
    for number in range(5):
        seen.check(source(str(number)), "hi", "run", 0.0)
    seen._settings.value = GatewaySettings(dedupe=DedupeSettings(window=Seconds(5), entries=2))
    assert seen.check(source("4"), "hi", "new", 4.0) == "run"
    assert len(seen) == 2
    assert seen.check(source("4"), "hi", "new", 5.0) is None
    assert seen.check(source("0"), "hi", "again", 5.0) is None


parts = st.lists(st.text(alphabet="a:1-", max_size=3), min_size=5, max_size=5)


@given(parts, parts | st.tuples(st.integers(0, 4), st.text(alphabet="a:", max_size=1)))
@settings(max_examples=60)
def test_two_messages_are_the_same_exactly_when_all_their_parts_are(one: list[str], change: Any) -> None:
    def of(channel: str, account: str, chat: str, sender: str, message: str) -> MessageSource:
        return source(channel=channel, account_id=account, chat_id=chat, sender_id=sender, message_id=message)

    other = change
    if isinstance(change, tuple):
        other = [*one]
        other[change[0]] += change[1]
    seen = dedupe()
    seen.check(of(*one), "hi", "run1", 0.0)
    assert (seen.check(of(*other), "hi", "run2", 0.0) == "run1") is (one == other)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 40)), max_size=40))
@settings(max_examples=60)
def test_no_history_keeps_more_than_the_limit_or_longer_than_the_window(history: list[tuple[str, float]]) -> None:
    seen = dedupe(entries=3)
    now, starts = 0.0, dict[str, float]()
    for name, wait in history:
        now += wait
        earlier = seen.check(source(name), "hi", f"{name}@{now}", now)
        assert len(seen) <= 3
        if earlier is None:
            starts[name] = now
        else:
            assert now - starts[name] < 60
            assert earlier == f"{name}@{starts[name]}"
