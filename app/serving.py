"""The running pool, gateway and autonomy, and the reload of their settings."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from doors.http.settings import HttpSettings
from errors import PoolError, UsageError
from gateway.autonomy import Autonomy, AutonomySettings
from gateway.gateway import Gateway
from gateway.sessions.agent_profiles import AgentParts
from pool import LocalLauncher, Pool
from pool.stimuli import ProfilesChanged, SetPrewarm, SettingsChanged
from profiles import CapabilityProfile
from settings.checks import check_settings
from settings.reload import changed_profiles, plan_reload
from settings.schema import Settings

if TYPE_CHECKING:
    from cluster.service import ClusterService


def agent_parts(settings: Settings) -> AgentParts:
    """The settings that decide how agents are started."""
    return AgentParts(
        profiles=settings,
        router=settings.router,
        prompts=settings.gateway_prompts,
        heartbeat_agents=frozenset(name for name in settings.agent_names() if settings.heartbeat_of(name).every),
        cron_agents=frozenset(job.agent or settings.router.default_agent for job in settings.cron.jobs.values()),
    )


_TOKENS = "the tokens of [http]"
"""What has changed where a token is another one under the same key, in a file say."""


def autonomy_settings(settings: Settings) -> AutonomySettings:
    """The settings of what agents do by themselves."""
    heartbeats = {name: settings.heartbeat_of(name) for name in settings.agent_names()}
    return AutonomySettings(heartbeats=heartbeats, cron=settings.cron, delivery=settings.delivery)


class RunningServices:
    """The pool and the gateway with the settings they run by. ``reread`` raises SettingsError.

    ``reread`` takes a ``pool.max`` in place of the settings' own, or None.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        pool: Pool,
        gateway: Gateway,
        autonomy: Autonomy,
        launcher: LocalLauncher,
        cluster: "ClusterService | None",
        reread: Callable[[int | None], Settings],
        emit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.pool = pool
        self.gateway = gateway
        self.autonomy = autonomy
        self.settings = settings
        """Those that hold now."""
        self._launcher = launcher
        self.cluster = cluster
        """The service for other machines, where there may be any."""
        self._reread = reread
        self._max_workers: int | None = None
        """In place of the settings' own, since ``scale``."""
        self._emit = emit
        self._reload_lock = trio.Lock()
        self.prepare_http: Callable[[HttpSettings], Callable[[], bool]] = _prepare_nothing
        """Looks at other settings of the HTTP door, and may raise PoolError; what it returns makes them hold.

        That tells whether the tokens are others now.
        """

    async def prewarm(self) -> None:
        """Say what to keep warm: as configured, else ``min`` of the default agent in the default role."""
        settings = self.settings.pool
        wanted = [(warm.agent, warm.role, warm.count) for warm in settings.prewarm]
        if not wanted and settings.min:
            wanted = [(self.settings.router.default_agent, "default", settings.min)]
        cache = self.gateway.profile_cache  # no worker fits a session whose directory is not known yet
        wanted = [each for each in wanted if not cache.parts.profiles.has_workspace_per_session(each[0])]
        self.pool.submit(SetPrewarm(tuple([(await cache.get(agent, role), count) for agent, role, count in wanted])))

    async def reload(self) -> dict[str, Any]:
        """Read the settings again and go by them; on any error the ones that hold stay. Raises SettingsError."""
        async with self._reload_lock:
            plan = plan_reload(self.settings, self._reread(self._max_workers))
            if plan.is_empty:
                are_tokens_new = self.prepare_http(self.settings.http)()  # read from files, which may be others
            else:
                are_tokens_new = await self._apply(plan.settings)
            changed = [*plan.changed, *([_TOKENS] if are_tokens_new else [])]
            answer = {"changed": changed, "needs_restart": list(plan.restart)}
            if not plan.is_empty or are_tokens_new:
                self._emit("reloaded", answer)
        return answer

    def check_settings(self) -> None:
        """Raise SettingsError where the settings as they are now would be refused at a start."""
        self._reread(None)

    async def scale(self, workers: int) -> dict[str, Any]:
        """Have another ``pool.max``, also after a reload, until this process ends. Raises UsageError."""
        async with self._reload_lock:
            before = self.settings.pool.max
            limits = msgspec.structs.replace(self.settings.pool, max=workers)
            wanted = msgspec.structs.replace(self.settings, pool=limits)
            if problems := check_settings(wanted):
                raise UsageError("; ".join(map(str, problems)))
            await self._apply(wanted)
            self._max_workers = workers
            self._emit("scaled", {"max": workers, "before": before})
        return {"max": workers, "before": before}

    async def _apply(self, settings: Settings) -> bool:
        """Have these hold; whether the tokens of the HTTP door are others now."""
        before = await self._profiles()
        set_http = self.prepare_http(settings.http)
        set_autonomy = self.autonomy.prepare(autonomy_settings(settings))  # it refuses webhooks without a secret
        if self.cluster is not None:
            self.cluster.reconfigure(settings.cluster, settings.pool)
        self.pool.submit(SettingsChanged(settings.pool))  # first: it refuses what this machine cannot hold
        are_tokens_new = set_http()
        self.settings = settings
        self._launcher.settings = settings.rpc
        self.gateway.reconfigure(settings.gateway, agent_parts(settings))
        set_autonomy()
        current = changed_profiles(before, await self._profiles())
        if current is not None:
            self.pool.submit(ProfilesChanged(current))
        try:
            await self.prewarm()
        except PoolError as exc:  # the settings hold by now; nothing is kept warm until the cause is mended
            self.pool.submit(SetPrewarm(()))
            self._emit("prewarm_failed", {"reason": exc.message})
        return are_tokens_new

    async def _profiles(self) -> list[CapabilityProfile]:
        """What every agent in every role yields, and every session with settings or a directory of its own."""
        found = []
        for agent, role, model, thinking, session in self._profile_keys():
            try:
                found.append(
                    await self.gateway.profile_cache.get(agent, role, model=model, thinking=thinking, session=session)
                )
            except PoolError:
                continue  # no worker of it can be started: each request for one gets the error
        return found

    def _profile_keys(self) -> Iterable[tuple[str, str, str | None, str | None, str | None]]:
        cache = self.gateway.profile_cache
        agents, roles = cache.parts.profiles.agent_names(), cache.parts.profiles.role_names()
        yield from ((agent, role, None, None, None) for agent in agents for role in roles)
        for entry in self.gateway.sessions:
            if entry.cwd is not None or cache.parts.profiles.has_workspace_per_session(entry.agent):
                if self.pool.placement(entry.key).worker is not None:
                    yield entry.agent, entry.role, entry.model, entry.thinking, entry.key
            elif entry.model is not None or entry.thinking is not None:
                yield entry.agent, entry.role, entry.model, entry.thinking, None


def _prepare_nothing(_settings: HttpSettings) -> Callable[[], bool]:
    """There is no HTTP door."""
    return lambda: False
