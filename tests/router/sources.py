"""Message sources and keys for tests: plain ones to vary, and Hypothesis strategies for any."""

from typing import Any

from hypothesis import strategies as st

from router.keys import ChannelKey, CronKey, DmKey, FreeKey, GroupKey, HookKey, MainKey, SessionKey
from router.source import MessageSource, Peer

any_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
tricky = st.sampled_from(
    [
        *("a", "A", "a:b", "a%3Ab", "a%3ab", "%", "%25", "/", "..", ".", "../../x", "\x00", "\n", " ", "\u202e"),
        *("\xe9", "\xe9", "main", "dm", "direct", "account", "group", "channel", "topic", "thread", "unlinked"),
        *("default", "*", "agent", "telegram", "webchat", "alice", "bob", "telegram:1", "1"),
    ]
)
identifiers = st.one_of(tricky, any_text)
agents = st.from_regex(r"[a-z0-9_-]{1,9}", fullmatch=True)
maybe = st.none() | identifiers

_places = st.one_of(
    st.just({"channel": None, "account": None}),
    st.fixed_dictionaries({"channel": identifiers, "account": maybe}),
)


@st.composite
def dm_keys(draw: st.DrawFn) -> DmKey:
    return DmKey(agent=draw(agents), sender=draw(identifiers), unlinked=draw(st.booleans()), **draw(_places))


def _is_free(text: str) -> bool:
    is_a_name = text.isprintable() and text.strip() not in ("", "*")
    return is_a_name and text.partition(":")[0].lower() not in ("agent", "cron", "hook")


keys: st.SearchStrategy[SessionKey] = st.one_of(
    st.builds(MainKey, agents),
    dm_keys(),
    st.builds(GroupKey, agent=agents, channel=identifiers, chat=identifiers, account=maybe, topic=maybe),
    st.builds(ChannelKey, agent=agents, channel=identifiers, chat=identifiers, thread=maybe),
    st.builds(CronKey, identifiers),
    st.builds(HookKey, identifiers),
    st.builds(FreeKey, identifiers.filter(_is_free)),
)

_few = st.sampled_from(["1", "2", "alice", "telegram:1", "1:2", "a/b", "unlinked"])
_few_or_none = st.none() | st.sampled_from(["", "1", "default", "1:2"])
sources = st.builds(
    MessageSource,
    channel=st.sampled_from(["telegram", "discord", "webchat", "dm", "account", "1"]),
    chat_type=st.sampled_from(["dm", "group", "channel", "thread"]),
    chat_id=_few,
    sender_id=_few,
    account_id=_few_or_none,
    thread_id=_few_or_none,
    topic_id=_few_or_none,
    guild_id=_few_or_none,
    member_role_ids=st.lists(_few, max_size=2),
    parent_peer=st.none() | st.builds(Peer, st.sampled_from(["group", "channel"]), _few),
)
"""Few values, so that two sources often share some of theirs."""


def source(**changes: Any) -> MessageSource:
    """A direct message of sender ``5`` on Telegram, with changes."""
    plain: dict[str, Any] = {"channel": "telegram", "chat_type": "dm", "chat_id": "5", "sender_id": "5"}
    return MessageSource(**{**plain, **changes})
