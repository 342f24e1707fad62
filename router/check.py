"""What routing settings say that cannot be meant, seen together with the agents and roles there are. Pure."""

from collections.abc import Iterator

from profiles import ProfilesSettings
from router.settings import RoleTables, RouterSettings

__all__ = ["router_problems"]

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
    tables = settings.roles
    for path, role in (*_in_tables(tables), *_in_telegram(tables), *_in_discord(tables)):
        if role is not None:
            yield ("roles", *path), role


def _in_tables(tables: RoleTables) -> Iterator[tuple[_Path, str | None]]:
    yield from ((("channels", channel), role) for channel, role in tables.channels.items())
    yield from ((("agents", agent), role) for agent, role in tables.agents.items())


def _in_telegram(tables: RoleTables) -> Iterator[tuple[_Path, str | None]]:
    yield ("telegram", "default"), tables.telegram.default
    yield from ((("telegram", "accounts", account), role) for account, role in tables.telegram.accounts.items())
    for name, group in tables.telegram.groups.items():
        yield ("telegram", "groups", name, "role"), group.role
        yield from ((("telegram", "groups", name, "topics", topic), role) for topic, role in group.topics.items())


def _in_discord(tables: RoleTables) -> Iterator[tuple[_Path, str | None]]:
    yield ("discord", "default"), tables.discord.default
    for name, guild in tables.discord.guilds.items():
        yield ("discord", "guilds", name, "role"), guild.role
        yield from ((("discord", "guilds", name, "channels", chat), role) for chat, role in guild.channels.items())
