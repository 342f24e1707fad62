"""Where a message came from, as a channel tells it."""

from typing import Annotated, Literal

import msgspec

ChatType = Literal["dm", "group", "channel", "thread"]

Identifier = Annotated[str, msgspec.Meta(max_length=512)]
"""A channel's own name for a chat, a person, a message: any Unicode, bounded."""


class Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chat or a person by kind and id: the parent of a thread, or what a binding names."""

    kind: ChatType
    id: Identifier


class MessageSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything a channel knows about a message but its text. ``timestamp`` is Unix time in seconds.

    ``from_session``: the key of another session, where the message is what its agent said and not a person's.
    """

    channel: Identifier
    chat_type: ChatType
    chat_id: Identifier
    sender_id: Identifier
    account_id: Identifier | None = None
    thread_id: Identifier | None = None
    topic_id: Identifier | None = None
    guild_id: Identifier | None = None
    member_role_ids: Annotated[list[Identifier], msgspec.Meta(max_length=256)] = []
    parent_peer: Peer | None = None
    sender_name: Identifier | None = None
    message_id: Identifier | None = None
    timestamp: float | None = None
    from_session: Identifier | None = None


def account_of(source: MessageSource) -> str:
    """Which of our accounts on the channel received the message; a channel with one account need not name it."""
    return source.account_id or "default"


def peer_of(source: MessageSource) -> Peer:
    """Whom we talk to: the sender of a direct message, else the chat."""
    return Peer(source.chat_type, source.sender_id if source.chat_type == "dm" else source.chat_id)
