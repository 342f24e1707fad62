"""Which agent answers (bindings, ``/agent`` prefix, default), and the role of its session. Pure."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import msgspec

from router.settings import (
    Binding,
    DiscordRoles,
    GuildRoles,
    RoleTables,
    RouterSettings,
    TelegramGroupRoles,
    TelegramRoles,
)
from router.source import MessageSource, Peer, account_of, peer_of

_SCORES = {"peer": 8, "parent": 7, "roles": 6, "guild": 4, "account": 2, "channel": 1}
_PREFIX = re.compile(r"\s*/([A-Za-z0-9_-]{1,64})(?!\S)\s*")


class BindingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one binding; ``index`` counts from 0 in the order of the file."""

    index: int
    agent: str
    score: int | None
    """None: a condition does not hold."""
    failed: str | None = None
    """The first condition that does not hold."""


class AgentDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent, by which layer."""

    agent: str
    layer: Literal["binding", "prefix", "default"]
    text: str
    """The message without the prefix, where one chose the agent."""
    binding: int | None = None
    """Index of the binding that chose it."""
    score: int | None = None
    bindings: list[BindingDecision] = []
    """Every binding, in the order of the file."""
    reason: str


def find_agent(
    settings: RouterSettings, agents: Collection[str], commands: Collection[str], source: MessageSource, text: str
) -> AgentDecision:
    """The agent for a message: the first layer that knows one.

    ``agents``: names that may stand as a prefix; ``commands``: names (without the slash) of the gateway's own commands,
    which never are one.
    """
    bindings = [_evaluate_binding(index, binding, source) for index, binding in enumerate(settings.bindings)]
    best = _best_binding(settings.bindings, bindings)
    if best is not None:
        return AgentDecision(
            agent=best.agent,
            layer="binding",
            text=text,
            binding=best.index,
            score=best.score,
            bindings=bindings,
            reason=f"binding {best.index + 1} of {len(bindings)} matches with score {best.score}",
        )
    agent, rest, reason = _match_prefix(agents, commands, text)
    if agent is not None:
        return AgentDecision(agent=agent, layer="prefix", text=rest, bindings=bindings, reason=reason)
    reason = f"no binding matches, {reason}: the default agent"
    return AgentDecision(agent=settings.default_agent, layer="default", text=text, bindings=bindings, reason=reason)


def _best_binding(settings: Sequence[Binding], findings: Sequence[BindingDecision]) -> BindingDecision | None:
    """An exact peer beats every sum without one; of equals ``max`` takes the first."""
    matching = [finding for finding in findings if finding.score is not None]
    return max(matching, key=lambda finding: (settings[finding.index].peer is not None, finding.score), default=None)


def _evaluate_binding(index: int, binding: Binding, source: MessageSource) -> BindingDecision:
    conditions = list(_conditions(binding, source))
    failed = next((why for _, why in conditions if why), None)
    score = sum(_SCORES[name] for name, _ in conditions)
    return BindingDecision(index=index, agent=binding.agent, score=None if failed else score, failed=failed)


def _conditions(binding: Binding, source: MessageSource) -> Iterator[tuple[str, str]]:
    """The name of each condition, in the order in which a person would look, and why it fails; empty = it holds."""
    yield from _compare("channel", binding.channel, source.channel)
    yield from _compare("account", binding.account, account_of(source))
    yield from _compare("guild", binding.guild, source.guild_id)
    if binding.roles:
        has_one = not set(binding.roles).isdisjoint(source.member_role_ids)
        yield ("roles", "" if has_one else f"the sender has no role {' or '.join(binding.roles)}")
    yield from _compare("parent", _format_peer(binding.parent), _format_peer(source.parent_peer))
    yield from _compare("peer", _format_peer(binding.peer), _format_peer(peer_of(source)))


def _compare(name: str, wanted: str | None, found: str | None) -> Iterator[tuple[str, str]]:
    if wanted is not None:
        yield name, "" if wanted == found else f"{name} is {found or 'not given'}, not {wanted}"


def _format_peer(peer: Peer | None) -> str | None:
    """A peer as people write it; the kind has no blank, so that no two peers look the same."""
    return None if peer is None else f"{peer.kind} {peer.id}"


def _match_prefix(agents: Collection[str], commands: Collection[str], text: str) -> tuple[str | None, str, str]:
    """The agent that the text names, what is left of the text, and why; without an agent the text stays whole."""
    found = _PREFIX.match(text)
    if found is None:
        return None, text, "the text has no /AGENT prefix"
    name = found[1].lower()
    if name in commands:
        return None, text, f"/{name} is a command of the gateway"
    if name not in agents:
        return None, text, f"there is no agent {name}"
    return name, text[found.end() :], f"the text begins with /{name}"


class RoleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Which role, and the setting it comes from."""

    role: str
    source: str
    """Path below ``router.roles``, as ``telegram.groups.-100.topics.7``; ``default`` where no setting names one."""
    unset: list[str] = []
    """The more specific settings that were looked for and are not there."""


def find_role(tables: RoleTables, source: MessageSource, agent: str) -> RoleDecision:
    """The role for a message to an agent."""
    unset: list[str] = []
    for place, role in _candidates(tables, source, agent):
        if role is not None:
            return RoleDecision(role=role, source=place, unset=unset)
        unset.append(place)
    return RoleDecision(role="default", source="default", unset=unset)


def _candidates(tables: RoleTables, source: MessageSource, agent: str) -> Iterator[tuple[str, str | None]]:
    """The settings that may name the role, the most specific first, each with what it says."""
    match source.channel:
        case "telegram":
            yield from _telegram(tables.telegram, source)
        case "discord":
            yield from _discord(tables.discord, source)
        case channel:
            yield f"channels.{channel}", tables.channels.get(channel)
    yield f"agents.{agent}", tables.agents.get(agent)


def _telegram(table: TelegramRoles, source: MessageSource) -> Iterator[tuple[str, str | None]]:
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


def _discord(table: DiscordRoles, source: MessageSource) -> Iterator[tuple[str, str | None]]:
    if source.guild_id:
        guild = table.guilds.get(source.guild_id, GuildRoles())
        parent = source.parent_peer  # the channel that the chat is a thread of
        for chat in [source.chat_id] if parent is None else [source.chat_id, parent.id]:
            yield f"discord.guilds.{source.guild_id}.channels.{chat}", guild.channels.get(chat)
        yield f"discord.guilds.{source.guild_id}.role", guild.role
    yield "discord.default", table.default
