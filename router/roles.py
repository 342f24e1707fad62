"""Which role a session has: the channel's tables, most specific first, then the agent's own. Pure."""

from collections.abc import Iterator

import msgspec

from router.settings import DiscordRoles, GuildRoles, RoleTables, TelegramGroupRoles, TelegramRoles
from router.source import MessageSource, account_of

__all__ = ["RoleFinding", "find_role"]

_Candidate = tuple[str, str | None]


class RoleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Which role, and the setting it comes from."""

    role: str
    source: str
    """Path below ``router.roles``, as ``telegram.groups.-100.topics.7``; ``default`` where no setting names one."""
    unset: list[str] = []
    """The more specific settings that were looked for and are not there."""


def find_role(tables: RoleTables, source: MessageSource, agent: str) -> RoleFinding:
    """The role for a message to an agent."""
    unset: list[str] = []
    for place, role in _candidates(tables, source, agent):
        if role is not None:
            return RoleFinding(role=role, source=place, unset=unset)
        unset.append(place)
    return RoleFinding(role="default", source="default", unset=unset)


def _candidates(tables: RoleTables, source: MessageSource, agent: str) -> Iterator[_Candidate]:
    match source.channel:
        case "telegram":
            yield from _telegram(tables.telegram, source)
        case "discord":
            yield from _discord(tables.discord, source)
        case channel:
            yield f"channels.{channel}", tables.channels.get(channel)
    yield f"agents.{agent}", tables.agents.get(agent)


def _telegram(table: TelegramRoles, source: MessageSource) -> Iterator[_Candidate]:
    if source.chat_type != "dm":
        groups = [(name, table.groups.get(name, TelegramGroupRoles())) for name in (source.chat_id, "*")]
        if topic := source.topic_id:
            for name, group in groups:
                yield f"telegram.groups.{name}.topics.{topic}", group.topics.get(topic)
        for name, group in groups:
            yield f"telegram.groups.{name}.role", group.role
    account = account_of(source)
    yield f"telegram.accounts.{account}", table.accounts.get(account)
    yield "telegram.default", table.default


def _discord(table: DiscordRoles, source: MessageSource) -> Iterator[_Candidate]:
    if source.guild_id:
        guild = table.guilds.get(source.guild_id, GuildRoles())
        for chat in _chats(source):
            yield f"discord.guilds.{source.guild_id}.channels.{chat}", guild.channels.get(chat)
        yield f"discord.guilds.{source.guild_id}.role", guild.role
    yield "discord.default", table.default


def _chats(source: MessageSource) -> list[str]:
    """The chat, and the channel that it is a thread of."""
    parent = source.parent_peer
    return [source.chat_id] if parent is None else [source.chat_id, parent.id]
