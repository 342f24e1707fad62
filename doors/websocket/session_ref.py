"""The session that a request names by ``sessionKey``, ``sessionId``, ``to`` or ``groupId``. Pure.

``sessionKey`` and ``sessionId`` name a session; given both, they must agree. Without them, ``to`` is a person and
``groupId`` a group, on ``channel`` (of ``accountId``, in the topic ``threadId``), each with a session of its own.
Beside a session's name these members only say where an answer is delivered, which has no effect here.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from errors import UsageError
from router.keys import DmKey, format_session_key, main_session_key, normalize_session_key, parse_session_key
from router.sessions import find_session
from router.settings import DmScope, RouterSettings
from router.source import MessageSource


class ConversationMembers(msgspec.Struct, rename="camel"):
    """The members of a request that can name its conversation."""

    session_key: str | None = None
    session_id: str | None = None
    to: str | None = None
    channel: str | None = None
    account_id: str | None = None
    thread_id: str | int | None = None
    group_id: str | None = None
    group_channel: str | None = None
    group_space: str | None = None
    agent_id: str | None = None


class ResolvedConversation(NamedTuple):
    """A session, and the members that had no part in naming it."""

    session: str
    unused: list[str]


_ADDRESS_MEMBERS = ("to", "channel", "account_id", "thread_id", "group_id", "group_channel", "group_space")
_GROUP_ONLY_MEMBERS = ("thread_id", "group_channel", "group_space")


def named_session(session_key: str | None, session_id: str | None) -> str | None:
    """The session that the two members name, in its one spelling; None where neither is given. Raises UsageError."""
    keys = dict(_checked_keys(sessionKey=session_key, sessionId=session_id))
    if len(set(keys.values())) > 1:
        both = " and ".join(f"{member} {key!r}" for member, key in keys.items())
        raise UsageError(f"{both} name two conversations; give one of them, or the same for both")
    return next(iter(keys.values()), None)


def resolve_conversation(named: ConversationMembers, default_agent: str) -> ResolvedConversation:
    """The session that a message belongs to; the agent's main session where nothing names another.

    Raises UsageError: two members name two conversations, or one names a conversation only together with another.
    """
    session = named_session(named.session_key, named.session_id)
    if session is not None:
        _check_agent(session, named.agent_id)
        return ResolvedConversation(session, _given_members(named, _ADDRESS_MEMBERS))
    agent = (named.agent_id or default_agent).lower()
    if named.to is not None and named.group_id is not None:
        raise UsageError("to and groupId name two conversations; give one of them, or sessionKey")
    if named.group_id is not None:
        return ResolvedConversation(
            _group_session(named, agent), _given_members(named, ("group_channel", "group_space"))
        )
    for member in _given_members(named, _GROUP_ONLY_MEMBERS):
        raise UsageError(f"{member} names a conversation only together with groupId; give that, or sessionKey")
    if named.to is not None:
        return ResolvedConversation(_dm_session(named, agent), [])
    return ResolvedConversation(main_session_key(agent), _given_members(named, ("channel", "account_id")))


def _checked_keys(**members: str | None) -> Iterator[tuple[str, str]]:
    for member, text in members.items():
        if text is None:
            continue
        try:
            yield member, normalize_session_key(text)
        except UsageError as exc:
            raise UsageError(f"{member}: {exc.message}") from exc


def _check_agent(session: str, agent: str | None) -> None:
    owner = getattr(parse_session_key(session), "agent", None)
    if agent is not None and owner is not None and agent.lower() != owner:
        raise UsageError(f"session {session} is agent {owner}'s, not {agent[:64]}'s", session=session)


def _given_members(named: ConversationMembers, fields: tuple[str, ...]) -> list[str]:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(ConversationMembers)}
    return [names[field] for field in fields if getattr(named, field) is not None]


def _group_session(named: ConversationMembers, agent: str) -> str:
    if named.channel is None:
        raise UsageError("groupId names a conversation only together with channel; give that, or sessionKey")
    source = MessageSource(
        channel=named.channel,
        chat_type="group",
        chat_id=named.group_id or "",
        sender_id="",
        account_id=named.account_id,
        topic_id=None if named.thread_id is None else str(named.thread_id),
    )
    return find_session(RouterSettings(), source, agent).key


def _dm_session(named: ConversationMembers, agent: str) -> str:
    """The person's own session: never the main one, which ``dm_scope`` could choose."""
    person = named.to or ""
    if named.channel is None:
        return format_session_key(DmKey(agent=agent, sender=person, account=named.account_id))
    scope: DmScope = "per-channel-peer" if named.account_id is None else "per-account-channel-peer"
    source = MessageSource(
        channel=named.channel, chat_type="dm", chat_id=person, sender_id=person, account_id=named.account_id
    )
    return find_session(RouterSettings(dm_scope=scope), source, agent).key
