"""Session keys: written and read back, one spelling for each conversation, a directory of its own for each key."""

import unicodedata
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from router.keys import (
    MAX_KEY_LENGTH,
    ChannelKey,
    CronKey,
    DmKey,
    FreeKey,
    GroupKey,
    HookKey,
    MainKey,
    NamedKey,
    SessionKey,
    encode_part,
    format_session_key,
    main_session_key,
    normalize_session_key,
    parse_session_key,
    session_dir,
)
from tests.router.sources import any_text, identifiers, keys

DATA = Path("/data")

WRITTEN: list[tuple[SessionKey, str]] = [
    (MainKey("ops"), "agent:ops:main:main"),
    (DmKey(agent="a", sender="5"), "agent:a:dm:5"),
    (DmKey(agent="a", sender="main"), "agent:a:dm:main"),
    (DmKey(agent="a", sender="alice", unlinked=True), "agent:a:dm:unlinked:alice"),
    (DmKey(agent="a", sender="unlinked"), "agent:a:dm:unlinked"),
    (DmKey(agent="a", channel="irc", sender="5"), "agent:a:irc:dm:5"),
    (DmKey(agent="a", channel="dm", sender="5"), "agent:a:dm:dm:5"),
    (DmKey(agent="a", channel="irc", account="x", sender="5"), "agent:a:irc:account:x:dm:5"),
    (DmKey(agent="a", channel="irc", account="x", sender="5", unlinked=True), "agent:a:irc:account:x:dm:unlinked:5"),
    (GroupKey(agent="a", channel="irc", chat="-1"), "agent:a:irc:group:-1"),
    (GroupKey(agent="a", channel="irc", chat="-1", topic="7"), "agent:a:irc:group:-1:topic:7"),
    (GroupKey(agent="a", channel="telegram", account="x", chat="-1"), "agent:a:telegram:account:x:group:-1"),
    (
        GroupKey(agent="a", channel="telegram", account="x", chat="-1", topic="7"),
        "agent:a:telegram:account:x:group:-1:topic:7",
    ),
    (ChannelKey(agent="a", channel="discord", chat="c"), "agent:a:discord:channel:c"),
    (ChannelKey(agent="a", channel="discord", chat="c", thread="t"), "agent:a:discord:channel:c:thread:t"),
    (NamedKey("a", ("docs",)), "agent:a:docs"),
    (NamedKey("a", ("project", "docs", "x:y")), "agent:a:project:docs:x%3Ay"),
    (NamedKey("a", ("irc", "channel", "c", "topic", "1")), "agent:a:irc:channel:c:topic:1"),
    (CronKey("nightly"), "cron:nightly"),
    (HookKey("github"), "hook:github"),
    (FreeKey("alice"), "alice"),
    (FreeKey("agent"), "agent"),
    (FreeKey("a:b/c%3A"), "a:b/c%3A"),
    (FreeKey("a" * MAX_KEY_LENGTH), "a" * MAX_KEY_LENGTH),
    (CronKey("x" * 507), "cron:" + "x" * 507),
]


@pytest.mark.parametrize(("key", "text"), WRITTEN)
def test_every_form_is_written_and_read(key: SessionKey, text: str) -> None:
    assert format_session_key(key) == text
    assert parse_session_key(text) == key
    assert normalize_session_key(text) == text


@given(keys)
def test_what_is_written_reads_back_as_the_same_key(key: SessionKey) -> None:
    assert parse_session_key(format_session_key(key)) == key


def test_of_all_keys_made_of_the_words_of_the_grammar_no_two_are_written_alike() -> None:
    words = ["main", "dm", "unlinked", "account", "group", "a:dm"]
    made: list[SessionKey] = []
    for one, two, three in product(words, words, [None, *words]):
        made += [GroupKey(agent="a", channel=one, chat=two, account=three, topic=topic) for topic in (None, *words)]
        made += [DmKey(agent="a", channel=one, sender=two, account=three, unlinked=marked) for marked in (True, False)]
        made.append(ChannelKey(agent="a", channel=one, chat=two, thread=three))
    made += [DmKey(agent="a", sender=word, unlinked=marked) for word in words for marked in (True, False)]
    made.append(MainKey("a"))
    named = [tuple(name) for length in (1, 2, 3) for name in product(words, repeat=length)]
    made += [key for name in named if (key := _named(name)) is not None]
    texts = {format_session_key(key) for key in made}
    assert len(texts) == len(made) == len({session_dir(DATA, text) for text in texts})
    assert [parse_session_key(format_session_key(key)) for key in made] == made


def _named(name: tuple[str, ...]) -> NamedKey | None:
    try:
        return NamedKey("a", name)
    except UsageError:
        return None


@given(st.lists(identifiers, min_size=1, max_size=5))
def test_any_tail_after_an_agent_is_a_session_of_that_agent(name: list[str]) -> None:
    key = parse_session_key(":".join(["agent", "ops", *map(encode_part, name)]))
    assert getattr(key, "agent", None) == "ops"
    assert parse_session_key(format_session_key(key)) == key


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_text_is_refused_or_has_one_spelling_that_stays(text: str) -> None:
    try:
        spelling = normalize_session_key(text)
    except UsageError:
        return
    assert normalize_session_key(spelling) == spelling
    assert len(spelling) <= MAX_KEY_LENGTH


words = st.sampled_from(["main", "dm", "direct", "unlinked", "account", "group", "channel", "topic", "a", "%3A", ""])


@given(st.lists(words, min_size=1, max_size=9))
def test_what_begins_like_a_structured_key_is_one_or_is_refused(parts: list[str]) -> None:
    try:
        key = parse_session_key(":".join(["agent", *parts]))
    except UsageError:
        return
    assert not isinstance(key, FreeKey)
    assert parse_session_key(format_session_key(key)) == key


@pytest.mark.parametrize(
    ("sender", "written"),
    [
        ("a:b", "a%3Ab"),
        ("a%3Ab", "a%253Ab"),
        ("100%", "100%25"),
        ("a/b", "a%2Fb"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("../../x", "..%2F..%2Fx"),
        ("...", "..."),
        ("\0", "%00"),
        ("a\nb", "a%0Ab"),
        ("\x7f\x85", "%7F%C2%85"),
        ("\u2028", "%E2%80%A8"),
        ("\u202e", "%E2%80%AE"),
        ("ユーザー ä 😀", "ユーザー ä 😀"),
    ],
)
def test_only_what_could_be_misread_is_escaped(sender: str, written: str) -> None:
    assert format_session_key(DmKey(agent="a", sender=sender)) == f"agent:a:dm:{written}"


def test_every_class_of_unicode_can_stand_in_an_identifier() -> None:
    categories = {
        category: chr(code) for code in range(0x110000) if (category := unicodedata.category(chr(code))) != "Cs"
    }
    for character in categories.values():
        for key in (GroupKey(agent="a", channel=character, chat=character * 2, topic=character), CronKey(character)):
            text = format_session_key(key)
            assert parse_session_key(text) == key
            assert not any(unicodedata.category(each) in ("Cc", "Zl", "Zp") for each in text)


@given(identifiers)
def test_an_escaped_identifier_cannot_leave_its_place_in_the_key(identifier: str) -> None:
    text = format_session_key(CronKey(identifier))
    assert text.count(":") == 1
    assert "/" not in text
    assert text.partition(":")[2] not in (".", "..")


UNREADABLE: list[tuple[type[Any], Any]] = [
    *((MainKey, (agent,)) for agent in ("Ops", "", "a" * 65, "a:b", "a\n")),
    *(
        (DmKey, {"agent": "a", **facts})
        for facts in ({"sender": ""}, {"sender": "\ud800"}, {"sender": "5", "account": "x"})
    ),
    (GroupKey, {"agent": "a", "channel": "", "chat": "1"}),
    *((NamedKey, ("a", name)) for name in ((), ("",), ("x", "\ud800"), ("main",), ("direct", "5"))),
    *((CronKey, (job,)) for job in ("x" * 508, "\n" * 200)),
    *((FreeKey, (text,)) for text in ("agent:x", "Cron:x", "", "a" * 513, "a\u200bb", "*", " ", "   ")),
]


@pytest.mark.parametrize(("kind", "fields"), UNREADABLE)
def test_a_key_that_could_not_be_read_back_cannot_be_made(kind: type[Any], fields: Any) -> None:
    with pytest.raises(UsageError, match="session key"):
        kind(**fields) if isinstance(fields, dict) else kind(*fields)


@pytest.mark.parametrize(
    ("given", "spelling"),
    [
        ("agent:main:main", "agent:main:main:main"),
        ("agent:OPS:main:main", "agent:ops:main:main"),
        ("agent:a:direct:5", "agent:a:dm:5"),
        ("agent:a:irc:direct:5", "agent:a:irc:dm:5"),
        ("agent:a:irc:account:x:direct:5", "agent:a:irc:account:x:dm:5"),
        ("agent:a:direct:unlinked:5", "agent:a:dm:unlinked:5"),
        ("agent:a:direct:direct:5", "agent:a:direct:dm:5"),
        ("agent:a:dm:%61%3ab", "agent:a:dm:a%3Ab"),
        ("agent:a:dm:a/..", "agent:a:dm:a%2F.."),
        ("agent:a:dm:..", "agent:a:dm:%2E%2E"),
        ("agent:a:dm:100%25", "agent:a:dm:100%25"),
        ("agent:OPS:Docs:%61/b", "agent:ops:Docs:a%2Fb"),
    ],
)
def test_an_alias_is_understood_and_written_in_the_one_spelling(given: str, spelling: str) -> None:
    assert normalize_session_key(given) == spelling


@pytest.mark.parametrize(
    "text",
    [
        *("agent:", "agent:ops", "agent:ops:", "agent::main:main", "agent:ops:dm:", "agent:ops:mian:"),
        *("agent:ops::main", "agent:a b:main", "agent:a:%6Dain:main", "agent:a:irc:group:1:topic:"),
        *("agent:a:irc:group:", "agent:a:%64m:5", "agent:a:dm:a\nb", "agent:a:dm:" + "x" * 10_240),
        *("agent:a:dm:%", "agent:a:dm:%4", "agent:a:dm:%zz", "agent:a:dm:%FF", "cron:%ED%A0%80"),
        *("Agent:main:main:main", "CRON:x", "cron:", "cron:a:b", "cron:\u202e", "cron:\ud800", "hook:", "hook:a:b"),
        *("", "*", "   ", "\0", "a\0b", "a\nb", "\x1b[2J", "\ud800", "a" * 513),
    ],
)
def test_what_can_be_no_key_is_refused_in_words_that_can_be_shown(text: str) -> None:
    with pytest.raises(UsageError, match="session key") as refused:
        normalize_session_key(text)
    assert refused.value.message.isprintable()
    assert len(refused.value.message.encode()) < 600


def _is_a_name(text: str) -> bool:
    return text.isprintable() and text.strip() not in ("", "*")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(_is_a_name))
def test_any_printable_text_that_does_not_begin_like_another_key_is_a_key(text: str) -> None:
    if text.partition(":")[0].lower() not in ("agent", "cron", "hook") or ":" not in text:
        assert normalize_session_key(text) == text


def test_an_agents_main_conversation_has_one_key() -> None:
    assert main_session_key("ops") == main_session_key("OPS") == "agent:ops:main:main"
    assert parse_session_key("agent:ops:main") == parse_session_key(main_session_key("ops")) == MainKey("ops")
    with pytest.raises(UsageError):
        main_session_key("a/b")


def test_a_copy_of_a_key_is_checked_too() -> None:
    with pytest.raises(UsageError):
        msgspec.structs.replace(MainKey("a"), agent="B")


@given(keys)
def test_a_sessions_directory_is_right_below_the_one_for_all_of_them(key: SessionKey) -> None:
    directory = session_dir(DATA, key)
    assert directory.parent == DATA / "by-session"
    assert directory == session_dir(DATA, format_session_key(key))
    assert directory.resolve().parent == directory.parent


@given(any_text | st.sampled_from(["../../x", "..", "/etc", "\0", "x" * 10_240, "\ud800", ""]))
def test_not_even_a_text_that_is_no_key_leads_out_of_the_data_directory(text: str) -> None:
    directory = session_dir(DATA, text)
    assert directory.parent == DATA / "by-session"
    assert directory.name not in ("", ".", "..")
    assert len(str(directory)) < 255
