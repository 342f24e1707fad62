"""Targets, as they are written and as a session last spoke."""

import pytest

from errors import UsageError
from heartbeat.delivery.targets import EVENTS, STDOUT, DeliveryTarget, resolve_target, target_problem


@pytest.mark.parametrize(
    ("target", "last", "place"),
    [
        ("none", "telegram:1", None),
        ("last", None, EVENTS),
        ("last", "", EVENTS),
        ("last", "telegram:12", DeliveryTarget("telegram", "12", is_carried=True)),
        ("last", "matrix:!room:server", DeliveryTarget("matrix", "!room:server", is_carried=True)),
        ("last", "telegram", EVENTS),
        ("last", "Te legram:1", EVENTS),
        ("last", "telegram:" + "9" * 600, EVENTS),
        ("events", "telegram:1", EVENTS),
        ("stdout", None, STDOUT),
        ("webhook:ops", None, DeliveryTarget("webhook", "ops")),
        ("telegram:12", None, DeliveryTarget("telegram", "12", is_carried=True)),
        ("matrix:!room:server", None, DeliveryTarget("matrix", "!room:server", is_carried=True)),
    ],
)
def test_a_target_means_a_place(target: str, last: str | None, place: DeliveryTarget | None) -> None:
    assert resolve_target(target, last) == place


@pytest.mark.parametrize("last", ["webhook:ops", "stdout:x", "events:x"])
def test_a_sender_who_calls_itself_like_one_of_our_channels_does_not_open_it(last: str) -> None:
    assert resolve_target("last", last) == EVENTS


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("", "is no target"),
        ("Last", "is no target"),
        ("telegram", "whom to reach"),
        ("telegram:", "whom to reach"),
        ("telegram: 1", "whom to reach"),
        ("telegram:1\n2", "whom to reach"),
        ("webhook", "whom to reach"),
        ("stdout:x", "takes no peer"),
        ("events:x", "takes no peer"),
        ("last:x", "is no channel"),
        ("none:x", "is no channel"),
        (":x", "is no target"),
        ("telegram:" + "9" * 600, "is no target"),
        ("x" * 65 + ":1", "is no target"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_with_what_to_write(target: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        resolve_target(target, None)
    assert "webhook:NAME" in caught.value.message
    assert len(caught.value.message) < 300


def test_a_webhook_that_is_not_configured_is_a_problem_of_the_settings() -> None:
    assert target_problem("webhook:ops", {"ops": 1}) is None
    assert target_problem("webhook:opps", {"ops": 1, "dev": 2}) == "there is no webhook 'opps'; there are: dev, ops"
    assert "none" in (target_problem("webhook:ops", {}) or "")
    assert "is no target" in (target_problem("?", {}) or "")
    assert [target_problem(target, {}) for target in ("last", "none", "stdout", "events", "signal:1")] == [None] * 5


def test_a_place_is_spelled_as_it_is_written() -> None:
    assert [str(place) for place in (EVENTS, STDOUT, DeliveryTarget("a", "b:c"))] == ["events", "stdout", "a:b:c"]
