"""The ``[router]`` table of the settings file, and its checks against the agents and roles there are. Pure."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from profiles import ProfilesSettings
from router.source import Peer

DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]


class Binding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[router.bindings]]``: the agent for all messages of which every condition named here holds."""

    agent: str
    channel: str | None = None
    account: str | None = None
    """Our own account on the channel that received the message; ``default`` where the channel names none."""
    peer: Peer | None = None
    """``{kind = "dm", id = SENDER}``, or a group, channel or thread by its chat id."""
    parent: Peer | None = None
    """The chat that a thread belongs to."""
    guild: str | None = None
    """A server or workspace with many channels, by id."""
    roles: list[str] = []
    """The sender has one of these roles in ``guild``."""

    def __post_init__(self) -> None:
        """Refuse what would bind everything, or nothing that was meant."""
        if not any((self.channel, self.account, self.peer, self.parent, self.guild, self.roles)):
            msg = "a binding needs a condition; the agent for everything else is router.default_agent"
            raise ValueError(msg)
        if self.roles and self.guild is None:
            msg = "roles belong to a guild; name it too"
            raise ValueError(msg)


class TelegramGroupRoles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Roles of one Telegram group: ``[router.roles.telegram.groups."-100123"]``, or ``"*"`` for every group."""

    role: str | None = None
    topics: dict[str, str] = {}
    """By id of the forum topic."""


class TelegramRoles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[router.roles.telegram]``. First of: group's topic, ``*``'s topic, group, ``*``, account, default."""

    default: str | None = None
    accounts: dict[str, str] = {}
    """By our own account; ``default`` is the one that is not named."""
    groups: dict[str, TelegramGroupRoles] = {}


class GuildRoles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Roles of one Discord guild: ``[router.roles.discord.guilds."123"]``."""

    role: str | None = None
    channels: dict[str, str] = {}
    """By channel id; holds for the channel's threads too, unless they have an entry of their own."""


class DiscordRoles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[router.roles.discord]``. First of: guild's channel, guild, default."""

    default: str | None = None
    guilds: dict[str, GuildRoles] = {}


class RoleTables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[router.roles]``: the role of a session. First of: the channel's tables, the agent's own role, ``default``."""

    telegram: TelegramRoles = TelegramRoles()
    discord: DiscordRoles = DiscordRoles()
    channels: dict[str, str] = {}
    """Default of any other channel by its name: ``slack = "team"``."""
    agents: dict[str, str] = {}
    """An agent's own role, where the channel says nothing."""

    def __post_init__(self) -> None:
        """One place for each default."""
        for name in ("telegram", "discord"):
            if name in self.channels:
                msg = f"the default role of {name} is router.roles.{name}.default"
                raise ValueError(msg)


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[router]``: from where a message came to whose it is."""

    dm_scope: DmScope = "main"
    """What direct messages share a conversation: ``main`` = all of an agent's; ``per-peer`` = those of one sender id,
    on any channel; ``per-channel-peer`` = those of one sender on one channel; ``per-account-channel-peer`` = those of
    one sender to one of our accounts there. On Telegram a sender always counts per account, unless linked."""
    default_agent: str = "main"
    """Answers what no binding and no ``/AGENT`` prefix gives to another."""
    identity_links: dict[str, list[str]] = {}
    """People with more than one id: ``alice = ["telegram:111", "discord:222"]``; an id without its channel holds on
    every channel, one with a colon in it must name the channel. Not used where ``dm_scope`` is ``main``."""
    bindings: list[Binding] = []
    """Best score first (exact peer before all others, then the sum of peer 8, parent 7, roles 6, guild 4, account 2,
    channel 1), of equals the first in the file."""
    roles: RoleTables = RoleTables()
    priority_senders: list[str] = []
    """Senders whose messages get a worker before those of others of their kind: ``["telegram:111", "alice"]``; an id
    without its channel holds on every channel, one with a colon in it must name the channel."""
    workspace_dirs: dict[str, str] = {}
    """Working directory by role, before the ``workspace`` of the role or the agent."""

    def __post_init__(self) -> None:
        """A link must say who is meant, and an id can be one person only."""
        owners: dict[str, str] = {}
        for name, ids in self.identity_links.items():
            if not name or not all(ids):
                msg = "names and ids of identity links cannot be empty"
                raise ValueError(msg)
            for peer in ids:
                if owners.setdefault(peer, name) != name:
                    msg = f"{peer!r} is linked to both {owners[peer]!r} and {name!r}"
                    raise ValueError(msg)


_Path = tuple[str | int, ...]


def router_problems(settings: RouterSettings, profiles: ProfilesSettings) -> Iterator[tuple[_Path, str]]:
    """Every problem: the path of its setting, as ``("router", "bindings", 0, "agent")``, and what is wrong with it."""
    yield from _unknown("agent", profiles.agent_names(), _agents_named(settings))
    yield from _unknown("role", profiles.role_names(), _roles_named(settings))
    for role, directory in settings.workspace_dirs.items():
        own = profiles.roles[role].workspace if role in profiles.roles else None
        if own is not None and own != directory:
            yield ("router", "workspace_dirs", role), f"roles.{role}.workspace says {own!r}; keep one of them"


def _unknown(kind: str, known: list[str], named: Iterator[tuple[_Path, str]]) -> Iterator[tuple[_Path, str]]:
    for path, name in named:
        if name not in known:
            yield ("router", *path), f"there is no {kind} {name!r}; there are: {', '.join(known)}"


def _agents_named(settings: RouterSettings) -> Iterator[tuple[_Path, str]]:
    yield ("default_agent",), settings.default_agent
    for index, binding in enumerate(settings.bindings):
        yield ("bindings", index, "agent"), binding.agent
    for agent in settings.roles.agents:
        yield ("roles", "agents", agent), agent


def _roles_named(settings: RouterSettings) -> Iterator[tuple[_Path, str]]:
    """Every role that routing knows of, under the path of its setting below ``router``."""
    yield from ((("workspace_dirs", role), role) for role in settings.workspace_dirs)
    yield from _texts_in(msgspec.to_builtins(settings.roles), ("roles",))


def _texts_in(value: Any, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Every text in nested tables, under its path; in the tables of roles they are roles."""
    if isinstance(value, str):
        yield path, value
    elif value is not None:
        for name, inner in value.items():
            yield from _texts_in(inner, (*path, name))
