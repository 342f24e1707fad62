"""From the source of a message to its session key; identity links: several ids of one person. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from router.keys import ChannelKey, DmKey, GroupKey, MainKey, SessionKey, format_session_key
from router.settings import DmScope, RouterSettings
from router.source import MessageSource, account_of


class SenderIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a sender is: ``name`` stands in the session key."""

    name: str
    link: str | None = None
    """The id in the settings by which the sender was recognised; None = the sender is not linked."""
    is_namesake: bool = False
    """An unlinked sender whose id is the name of a link: who may choose an id could otherwise be that person."""


def find_identity(links: Mapping[str, Sequence[str]], channel: str, sender: str) -> SenderIdentity:
    """The person behind a sender. ``channel:id`` comes before the bare id.

    An entry with a colon is always ``channel:id``: else a sender who calls himself ``telegram:111`` elsewhere would be
    taken for that person.
    """
    for entry in (f"{channel}:{sender}", *([] if ":" in sender else [sender])):
        for name, ids in links.items():
            if entry in ids:
                return SenderIdentity(name=name, link=entry)
    return SenderIdentity(name=sender, is_namesake=sender in links)


KeyForm = Literal["webchat", "main", "per-peer", "per-channel-peer", "per-account-channel-peer", "group", "channel"]


class SessionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversation, and what it depends on."""

    key: str
    form: KeyForm
    """Which row of the table: for direct messages the ``dm_scope``."""
    identity: str | None = None
    """Whose conversation it is, in the forms of direct messages that tell people apart."""
    link: str | None = None
    """The identity link's entry that names the sender."""
    reason: str
    """The same in a sentence."""


def find_session(settings: RouterSettings, source: MessageSource, agent: str) -> SessionDecision:
    """The conversation of a message with an agent. Raises UsageError for a source that lacks what its key needs."""
    if source.chat_type == "dm":
        return _direct(settings, source, agent)
    if source.chat_type == "group":
        reason = "one conversation for each group" + (" and topic" if source.topic_id else "")
        return SessionDecision(key=format_session_key(_group(source, agent)), form="group", reason=reason)
    thread = source.thread_id or (source.chat_id if source.chat_type == "thread" else None)
    key = ChannelKey(agent=agent, channel=source.channel, chat=source.chat_id, thread=thread)
    reason = "one conversation for each " + ("thread" if thread else "channel")
    return SessionDecision(key=format_session_key(key), form="channel", reason=reason)


def _group(source: MessageSource, agent: str) -> GroupKey:
    return GroupKey(
        agent=agent,
        channel=source.channel,
        account=account_of(source) if source.account_id or _always_has_account(source) else None,
        chat=source.chat_id,
        topic=source.topic_id or None,
    )


def _always_has_account(source: MessageSource) -> bool:
    """On Telegram two bots in one group, or with one person, are two conversations, also before the second is added."""
    return source.channel == "telegram"


def _direct(settings: RouterSettings, source: MessageSource, agent: str) -> SessionDecision:
    if source.channel == "webchat":
        key = DmKey(agent=agent, channel=source.channel, sender=source.chat_id)
        return SessionDecision(key=format_session_key(key), form="webchat", reason="one conversation for each tab")
    if settings.dm_scope == "main":
        reason = "dm_scope main: all direct messages to the agent are one conversation"
        return SessionDecision(key=format_session_key(MainKey(agent)), form="main", reason=reason)
    identity = find_identity(settings.identity_links, source.channel, source.sender_id)
    return SessionDecision(
        key=format_session_key(_person_key(settings.dm_scope, source, agent, identity)),
        form=settings.dm_scope,
        identity=identity.name,
        link=identity.link,
        reason=f"dm_scope {settings.dm_scope}: {_scope_reason(settings.dm_scope, source, identity)}",
    )


def _person_key(scope: DmScope, source: MessageSource, agent: str, identity: SenderIdentity) -> SessionKey:
    """A linked person is no single account: ``per-peer`` finds them on every channel, also on Telegram."""
    channel: str | None = source.channel
    account: str | None = account_of(source)
    if scope == "per-peer" and (identity.link or not _always_has_account(source)):
        channel = account = None
    elif scope == "per-channel-peer" and not _always_has_account(source):
        account = None
    return DmKey(agent=agent, channel=channel, account=account, sender=identity.name, unlinked=identity.is_namesake)


def _scope_reason(scope: DmScope, source: MessageSource, identity: SenderIdentity) -> str:
    if identity.link:
        return f"the sender is {identity.name} by identity link {identity.link}"
    if identity.is_namesake:
        return "the sender only has the name of an identity link as an id, and is kept apart from that person"
    if _always_has_account(source) and scope != "per-account-channel-peer":
        return "on telegram one conversation for each sender to each of our accounts"
    return "one conversation for each sender"
