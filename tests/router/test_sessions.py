"""Each row of the table from source to session key, and that no two conversations share one."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from router.keys import main_session_key, normalize_session_key
from router.sessions import SenderIdentity, find_identity, find_session
from router.settings import DmScope, RouterSettings
from router.source import MessageSource, Peer
from tests.router.sources import source, sources

LINKS = {"alice": ["telegram:1", "discord:2"], "1": ["dm:alice"]}


def key(scope: DmScope = "main", *, links: dict[str, list[str]] | None = None, **changes: Any) -> str:
    settings = RouterSettings(dm_scope=scope, identity_links=links or {})
    return find_session(settings, source(**changes), "a").key


DIRECT: list[tuple[DmScope, dict[str, Any], str]] = [
    ("main", {}, main_session_key("a")),
    ("main", {"channel": "irc", "sender_id": ""}, "agent:a:main:main"),
    ("per-peer", {"channel": "irc"}, "agent:a:dm:5"),
    ("per-peer", {"channel": "irc", "account_id": "x"}, "agent:a:dm:5"),
    ("per-peer", {}, "agent:a:telegram:account:default:dm:5"),
    ("per-peer", {"account_id": "x"}, "agent:a:telegram:account:x:dm:5"),
    ("per-channel-peer", {"channel": "irc", "account_id": "x"}, "agent:a:irc:dm:5"),
    ("per-channel-peer", {}, "agent:a:telegram:account:default:dm:5"),
    ("per-account-channel-peer", {"channel": "irc"}, "agent:a:irc:account:default:dm:5"),
    ("per-account-channel-peer", {"channel": "irc", "account_id": "x"}, "agent:a:irc:account:x:dm:5"),
    ("per-account-channel-peer", {"account_id": "x"}, "agent:a:telegram:account:x:dm:5"),
    ("main", {"channel": "webchat", "chat_id": "tab"}, "agent:a:webchat:dm:tab"),
    ("per-peer", {"channel": "webchat", "chat_id": "tab"}, "agent:a:webchat:dm:tab"),
    ("per-account-channel-peer", {"channel": "webchat", "chat_id": "tab", "account_id": "x"}, "agent:a:webchat:dm:tab"),
]


@pytest.mark.parametrize(("scope", "changes", "expected"), DIRECT)
def test_a_direct_message_has_the_key_of_its_scope(scope: DmScope, changes: dict[str, Any], expected: str) -> None:
    assert key(scope, **changes) == expected


ROOMS: list[tuple[dict[str, Any], str]] = [
    ({"chat_type": "group", "chat_id": "-1"}, "agent:a:telegram:account:default:group:-1"),
    ({"chat_type": "group", "chat_id": "-1", "account_id": "x"}, "agent:a:telegram:account:x:group:-1"),
    ({"chat_type": "group", "chat_id": "-1", "topic_id": "7"}, "agent:a:telegram:account:default:group:-1:topic:7"),
    ({"chat_type": "group", "chat_id": "-1", "thread_id": "7"}, "agent:a:telegram:account:default:group:-1"),
    ({"channel": "irc", "chat_type": "group", "chat_id": "#x"}, "agent:a:irc:group:#x"),
    ({"channel": "irc", "chat_type": "group", "chat_id": "#x", "account_id": "b"}, "agent:a:irc:account:b:group:#x"),
    ({"channel": "irc", "chat_type": "group", "chat_id": "#x", "topic_id": "t"}, "agent:a:irc:group:#x:topic:t"),
    ({"channel": "slack", "chat_type": "channel", "chat_id": "c"}, "agent:a:slack:channel:c"),
    ({"channel": "slack", "chat_type": "channel", "chat_id": "c", "account_id": "b"}, "agent:a:slack:channel:c"),
    (
        {"channel": "slack", "chat_type": "channel", "chat_id": "c", "thread_id": "t"},
        "agent:a:slack:channel:c:thread:t",
    ),
    ({"channel": "slack", "chat_type": "thread", "chat_id": "c", "thread_id": "t"}, "agent:a:slack:channel:c:thread:t"),
    ({"channel": "discord", "chat_type": "thread", "chat_id": "t"}, "agent:a:discord:channel:t:thread:t"),
    (
        {"channel": "discord", "chat_type": "thread", "chat_id": "t", "parent_peer": Peer("channel", "c")},
        "agent:a:discord:channel:t:thread:t",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), ROOMS)
@pytest.mark.parametrize("scope", get_args(DmScope))
def test_a_message_in_a_room_has_the_rooms_key_whatever_the_scope_of_direct_messages(
    scope: DmScope, changes: dict[str, Any], expected: str
) -> None:
    assert key(scope, **changes) == expected


@pytest.mark.parametrize(
    ("scope", "changes", "expected"),
    [
        ("main", {"sender_id": "1"}, "agent:a:main:main"),
        ("per-peer", {"sender_id": "1"}, "agent:a:dm:alice"),
        ("per-peer", {"sender_id": "1", "account_id": "x"}, "agent:a:dm:alice"),
        ("per-peer", {"channel": "discord", "sender_id": "2"}, "agent:a:dm:alice"),
        ("per-peer", {"channel": "irc", "sender_id": "alice"}, "agent:a:dm:unlinked:alice"),
        ("per-peer", {"channel": "irc", "sender_id": "unlinked"}, "agent:a:dm:unlinked"),
        ("per-channel-peer", {"channel": "discord", "sender_id": "2"}, "agent:a:discord:dm:alice"),
        ("per-channel-peer", {"channel": "discord", "sender_id": "alice"}, "agent:a:discord:dm:unlinked:alice"),
        ("per-account-channel-peer", {"sender_id": "1"}, "agent:a:telegram:account:default:dm:alice"),
        ("per-peer", {"channel": "webchat", "chat_id": "alice"}, "agent:a:webchat:dm:alice"),
    ],
)
def test_a_linked_sender_has_one_name_and_a_namesake_another_conversation(
    scope: DmScope, changes: dict[str, Any], expected: str
) -> None:
    assert key(scope, links=LINKS, **changes) == expected


def test_the_finding_says_what_the_key_depends_on() -> None:
    found = find_session(RouterSettings(dm_scope="per-peer", identity_links=LINKS), source(sender_id="1"), "a")
    assert (found.form, found.identity, found.link) == ("per-peer", "alice", "telegram:1")
    assert found.reason == "dm_scope per-peer: the sender is alice by identity link telegram:1"
    assert "all direct messages to the agent" in find_session(RouterSettings(), source(), "a").reason
    namesake = source(channel="irc", sender_id="alice")
    assert "kept apart" in find_session(RouterSettings(dm_scope="per-peer", identity_links=LINKS), namesake, "a").reason


@pytest.mark.parametrize(
    ("scope", "changes", "missing"),
    [
        ("per-peer", {"sender_id": ""}, "sender"),
        ("per-channel-peer", {"sender_id": "\ud800"}, "sender"),
        ("main", {"channel": "webchat", "chat_id": ""}, "sender"),
        ("main", {"chat_type": "group", "chat_id": ""}, "chat"),
        ("main", {"chat_type": "channel", "chat_id": ""}, "chat"),
        ("main", {"chat_type": "thread", "chat_id": ""}, "chat"),
        ("main", {"chat_type": "group", "channel": ""}, "channel"),
    ],
)
def test_a_source_without_what_its_key_needs_is_refused(scope: DmScope, changes: dict[str, Any], missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        key(scope, **changes)


def test_a_source_whose_key_would_be_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="512 characters, this one has"):
        key(chat_type="group", chat_id="x" * 512)


def conversation(scope: DmScope, links: dict[str, list[str]], message: MessageSource) -> tuple[object, ...]:
    """What tells the conversation of a message from any other, in the words of the rules, not of the keys."""
    account = message.account_id or "default"
    on_telegram = message.channel == "telegram"
    match message.chat_type:
        case "dm" if message.channel == "webchat":
            return ("tab", message.chat_id)
        case "dm" if scope == "main":
            return ("main",)
        case "dm":
            return person(scope, links, message)
        case "group":
            ours = account if on_telegram else message.account_id or None
            return ("group", message.channel, ours, message.chat_id, message.topic_id or None)
        case "channel":
            return ("channel", message.channel, message.chat_id, message.thread_id or None)
        case "thread":
            return ("channel", message.channel, message.chat_id, message.thread_id or message.chat_id)


def person(scope: DmScope, links: dict[str, list[str]], message: MessageSource) -> tuple[object, ...]:
    account = message.account_id or "default"
    on_telegram = message.channel == "telegram"
    named = [name for name, ids in links.items() if f"{message.channel}:{message.sender_id}" in ids]
    who = ("linked", named[0]) if named else ("sender", message.sender_id)
    if scope == "per-peer":
        return who if named or not on_telegram else (*who, "telegram", account)
    if scope == "per-channel-peer":
        return (*who, message.channel, account if on_telegram else None)
    return (*who, message.channel, account)


links_of_some = st.sampled_from(
    [{}, {"alice": ["telegram:1", "discord:2"]}, {"alice": ["dm:1"], "1": ["dm:alice"]}, LINKS]
)


@given(st.sampled_from(get_args(DmScope)), links_of_some, sources, sources)
def test_two_messages_share_a_key_exactly_when_they_belong_to_one_conversation(
    scope: DmScope, links: dict[str, list[str]], one: MessageSource, other: MessageSource
) -> None:
    settings = RouterSettings(dm_scope=scope, identity_links=links)
    same_key = find_session(settings, one, "a").key == find_session(settings, other, "a").key
    assert same_key == (conversation(scope, links, one) == conversation(scope, links, other))


@given(st.sampled_from(get_args(DmScope)), links_of_some, sources)
def test_two_agents_never_share_a_conversation_and_every_key_is_one_that_front_ends_can_give(
    scope: DmScope, links: dict[str, list[str]], message: MessageSource
) -> None:
    settings = RouterSettings(dm_scope=scope, identity_links=links)
    keys = [find_session(settings, message, agent).key for agent in ("a", "b")]
    assert keys[0] != keys[1]
    assert [normalize_session_key(each) for each in keys] == keys


PEOPLE = {"alice": ["telegram:1", "discord:a:b", "7"], "bob": ["telegram:7", "alice2"]}


@pytest.mark.parametrize(
    ("channel", "sender", "identity"),
    [
        ("telegram", "1", SenderIdentity(name="alice", link="telegram:1")),
        ("discord", "a:b", SenderIdentity(name="alice", link="discord:a:b")),
        ("discord", "7", SenderIdentity(name="alice", link="7")),
        ("telegram", "7", SenderIdentity(name="bob", link="telegram:7")),
        ("irc", "alice2", SenderIdentity(name="bob", link="alice2")),
        ("discord", "1", SenderIdentity(name="1")),
        ("telegram", "5", SenderIdentity(name="5")),
        ("irc", "telegram:1", SenderIdentity(name="telegram:1")),
        ("irc", "alice", SenderIdentity(name="alice", is_namesake=True)),
    ],
)
def test_a_sender_is_the_person_that_the_most_specific_link_names(
    channel: str, sender: str, identity: SenderIdentity
) -> None:
    assert find_identity(PEOPLE, channel, sender) == identity
    assert find_identity({}, channel, sender) == SenderIdentity(name=sender)
