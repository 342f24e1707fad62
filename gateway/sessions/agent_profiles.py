"""Profiles by agent and role, built once: where the agent works, what the gateway adds to its system prompt."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from errors import UsageError
from gateway.hook_types import AgentBootstrap
from gateway.hooks import HookRunner
from gateway.sessions.session_entry import SessionEntry
from gateway.settings import GatewayPrompts, build_gateway_prompt
from profiles import CapabilityProfile, ProfilesSettings, build_profile, with_soft
from router.settings import RouterSettings
from router.workspaces import check_directory, find_workspace, make_workspace

_MAX_PROFILES = 2_000
"""Profiles in the cache, one for each agent, role and directory. The least recently used one is dropped."""


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how an agent is started: the parts of the settings that are not the gateway's own.

    ``heartbeat_agents``: agents with a heartbeat; ``cron_agents``: those with scheduled tasks in the settings.
    """

    profiles: ProfilesSettings
    router: RouterSettings
    prompts: GatewayPrompts
    heartbeat_agents: frozenset[str] = frozenset()
    cron_agents: frozenset[str] = frozenset()


class _CacheKey(NamedTuple):
    """What decides about a profile. ``session``: where each has its workspace. ``cwd``: a session's own directory."""

    agent: str
    role: str
    session: str | None = None
    cwd: str | None = None


class ProfileCache:
    """Builds each profile at its first use from ``parts``, the settings; new settings empty the cache."""

    def __init__(
        self,
        parts: AgentParts,
        hooks: HookRunner,
        *,
        data_dir: Path,
        cwd_of: Callable[[str], str | None] = lambda _session: None,
    ) -> None:
        """``cwd_of``: the directory that a session's front end has chosen for it."""
        self.parts = parts
        self._cwd_of = cwd_of
        self._hooks = hooks
        self.data_dir = data_dir
        self._cache: OrderedDict[_CacheKey, CapabilityProfile] = OrderedDict()
        self._checked: set[tuple[str, str]] = set()
        self._directories: dict[_CacheKey, str] = {}
        """Where the sessions of an agent in a role work that have no directory of their own."""
        self.overrides: dict[str, CapabilityProfile] = {}
        """Profiles of sessions that take the place of those of their agent and role."""

    def reconfigure(self, parts: AgentParts) -> None:
        """Other settings: every profile is built again."""
        self.parts = parts
        self._cache.clear()
        self._checked.clear()
        self._directories.clear()

    def check(self, agent: str, role: str) -> None:
        """Raise UsageError for an unknown agent or role."""
        if (agent, role) not in self._checked:
            build_profile(self.parts.profiles, agent, role, "/")
            self._checked.add((agent, role))

    def peek(
        self, session: str, agent: str, role: str, *, model: str | None = None, thinking: str | None = None
    ) -> CapabilityProfile | None:
        """The same as ``get`` without waiting; None if the cache does not hold the profile."""
        place = self._cache_key(agent, role, session)
        profile = self.overrides.get(session) or self._cache.get(place)
        if profile is None:
            return None
        if place in self._cache:
            self._cache.move_to_end(place)
        return _with_session_model(profile, model, thinking)

    def workspace_of(self, agent: str, role: str, session: str) -> str:
        """Where the agent works in that role, for that session; need not be there yet. Raises UsageError."""
        own = self._cwd_of(session)
        if own is not None:
            return own
        return find_workspace(self.parts.router, self.parts.profiles, agent, role, self.data_dir, session=session).path

    def directory_of(self, entry: SessionEntry) -> str | None:
        """The same for a session; None where its agent or role is not in the settings any more."""
        place = self._cache_key(entry.agent, entry.role, entry.key)
        if place not in self._directories:
            try:
                found = self.workspace_of(entry.agent, entry.role, entry.key)
            except UsageError:
                return None
            if place.session is not None or place.cwd is not None:
                return found
            self._directories[place] = found
        return self._directories[place]

    async def get(
        self,
        agent: str,
        role: str,
        *,
        model: str | None = None,
        thinking: str | None = None,
        session: str | None = None,
    ) -> CapabilityProfile:
        """The profile, with a session's own model (``provider/model`` or ``model``) and thinking level.

        ``session``: may have an override, or a directory of its own.

        Raises UsageError for an unknown agent or role, and where the workspace cannot be had.
        """
        known = self.peek(session or "", agent, role, model=model, thinking=thinking)
        if known is not None:
            return known
        profile = await self._build_and_cache(self._cache_key(agent, role, session))
        return _with_session_model(profile, model, thinking)

    async def for_session(self, entry: SessionEntry) -> CapabilityProfile:
        """The same for a session as it is set now."""
        return await self.get(entry.agent, entry.role, model=entry.model, thinking=entry.thinking, session=entry.key)

    def _cache_key(self, agent: str, role: str, session: str | None) -> _CacheKey:
        own = None if session is None else self._cwd_of(session)
        is_per_session = own is None and self.parts.profiles.has_workspace_per_session(agent)
        return _CacheKey(agent, role, session if is_per_session else None, own)

    async def _build_and_cache(self, place: _CacheKey) -> CapabilityProfile:
        while True:
            parts = self.parts
            profile = await self._build(parts, place)
            if parts is self.parts:  # they may have changed while hooks were asked
                self._cache[place] = profile
                while len(self._cache) > _MAX_PROFILES:
                    self._cache.popitem(last=False)
                return profile

    async def _build(self, parts: AgentParts, place: _CacheKey) -> CapabilityProfile:
        agent, role, session, own = place
        if own is None:
            settings, is_left = parts.profiles, parts.profiles.has_remote_workspace(agent)
            cwd = make_workspace(
                parts.router, settings, agent, role, self.data_dir, session=session, is_left_to_host=is_left
            )
        else:
            cwd = check_directory(own, self.data_dir)
        conventions = build_gateway_prompt(
            parts.prompts, is_woken=agent in parts.heartbeat_agents, has_tasks=agent in parts.cron_agents
        )
        more = await self._hooks.bootstrap(AgentBootstrap(agent=agent, role=role, workspace=cwd))
        prompt = "\n\n".join(text for text in [conventions, *more.texts] if text)
        return build_profile(parts.profiles, agent, role, cwd, gateway_prompt=prompt or None, left_out=more.left_out)


def _with_session_model(profile: CapabilityProfile, model: str | None, thinking: str | None) -> CapabilityProfile:
    if model is None and thinking is None:
        return profile
    provider, slash, name = (model or "").partition("/")
    return with_soft(profile, provider=provider if slash else None, model=name if slash else model, thinking=thinking)
