"""How soon a message gets a worker, by where it comes from."""

from typing import Any

import pytest

from router.route import find_priority
from router.settings import RouterSettings
from router.source import MessageSource

PLAIN = RouterSettings()
LISTED = RouterSettings(priority_senders=["telegram:7", "8"])


def source(**facts: Any) -> MessageSource:
    return MessageSource(**{"channel": "telegram", "chat_type": "dm", "chat_id": "7", "sender_id": "7", **facts})


@pytest.mark.parametrize(
    ("facts", "priority"),
    [
        ({}, 10),
        ({"chat_type": "group", "chat_id": "-100"}, 5),
        ({"chat_type": "channel"}, 5),
        ({"chat_type": "thread", "thread_id": "1"}, 5),
        ({"channel": "webhook"}, 3),
        ({"channel": "hook"}, 3),
    ],
)
def test_a_message_is_as_urgent_as_its_source_says(facts: dict[str, Any], priority: int) -> None:
    message = source(**facts)
    assert find_priority(PLAIN, message, "alice").priority == priority
    assert find_priority(LISTED, message, "alice").priority == priority + (2 if message.channel == "telegram" else 0)


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        ({"sender_id": "7", "channel": "signal"}, 0),  # another channel's 7 is somebody else
        ({"sender_id": "8", "channel": "signal"}, 2),
        ({"sender_id": "telegram:7", "channel": "signal"}, 0),
        ({"sender_id": "9"}, 0),
    ],
)
def test_a_listed_sender_is_who_the_list_names(facts: dict[str, Any], more: int) -> None:
    assert find_priority(LISTED, source(**facts), "alice").priority == 10 + more


@pytest.mark.parametrize(
    ("session", "priority"),
    [
        ("agent:main:signal:dm:7", 10),
        ("agent:main:signal:group:7", 5),
        ("agent:main:main:main", 5),
        ("hook:deploy", 3),
        ("cron:tidy", 5),
        ("alice", 5),
        ("agent:", 5),
    ],
)
def test_of_a_message_without_a_source_the_session_tells(session: str, priority: int) -> None:
    assert find_priority(PLAIN, None, session).priority == priority


def test_what_the_caller_says_counts() -> None:
    found = find_priority(LISTED, source(), "alice", said=-3)
    assert (found.priority, found.reason) == (-3, "as its caller says")
