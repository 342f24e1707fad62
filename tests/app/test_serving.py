"""Other settings while a supervisor runs: what holds from now on, what waits for a restart, what stays on an error."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from app.serving import RunningServices, agent_parts
from cluster.settings import ClusterSettings, NodeSettings
from errors import UsageError
from heartbeat.cron.settings import CronJobSettings, CronSettings
from heartbeat.delivery.settings import DeliverySettings, WebhookSettings
from heartbeat.settings import HeartbeatSettings
from pool.settings import PoolSettings, Prewarm
from profiles import AgentSettings
from rpc.settings import RpcSettings
from settings.problems import SettingsError
from settings.schema import Settings
from store.settings import StoreSettings
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import World, open_world
from wire.units import ByteCount, Seconds

FEW = PoolSettings(min=0, max=2)

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Place:
    """A gateway that serves, with the settings file that the test writes."""

    def __init__(self, world: World, first: Settings) -> None:
        self.world = world
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.file: Settings | SettingsError = first
        self.launcher = world.launcher
        self.serving = RunningServices(
            first,
            pool=world.gateway.pool,
            gateway=world.gateway,
            autonomy=world.autonomy,
            launcher=self.launcher,  # type: ignore[arg-type]  # as much of a launcher as a reload needs
            cluster=None,
            reread=self._read,
            emit=lambda event, data: self.events.append((event, data)),
        )

    def _read(self, max_workers: int | None) -> Settings:
        if isinstance(self.file, SettingsError):
            raise self.file
        if max_workers is None:
            return self.file
        return replace(self.file, pool=replace(self.file.pool, max=max_workers))

    async def reload(self, file: Settings | SettingsError) -> dict[str, Any]:
        self.file = file
        answer = await self.serving.reload()
        await wait_all_tasks_blocked()
        return answer

    def workers(self) -> list[str]:
        return [worker.state for worker in self.world.gateway.pool.statistics().workers]

    def ids(self) -> list[str]:
        return [worker.id for worker in self.world.gateway.pool.statistics().workers]

    @property
    def max(self) -> int:
        return self.world.gateway.pool.statistics().pool.max


@asynccontextmanager
async def serving(tmp_path: Path, first: Settings) -> AsyncIterator[Place]:
    async with open_world(tmp_path, launcher=GatewayLauncher(), profiles=first) as world:
        world.gateway.reconfigure(first.gateway, agent_parts(first))
        yield Place(world, first)


def ops(text: str, **more: Any) -> Settings:
    return Settings(agents={"ops": AgentSettings(append_system_prompt=text)}, **{"pool": FEW, **more})


def in_own_directories(text: str, minimum: int = 0) -> Settings:
    agents = {"main": AgentSettings(workspace_per="session"), "other": AgentSettings(append_system_prompt=text)}
    return Settings(agents=agents, pool=PoolSettings(min=minimum, max=3))


async def test_limits_and_the_wires_times_hold_at_once_and_others_wait_for_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, Settings(pool=FEW)) as place:
        answer = await place.reload(Settings(pool=PoolSettings(min=0, max=3), rpc=RpcSettings(abort_grace=Seconds(7))))
        assert (place.max, place.launcher.settings.abort_grace) == (3, Seconds(7))
        assert answer["changed"] == ["pool.max", "rpc.abort_grace"]
        assert place.events == [("reloaded", answer)]
        for _ in range(2):  # reported each time, and not applied
            assert (await place.reload(Settings(store=StoreSettings(events=5))))["needs_restart"] == ["store.events"]


async def test_slots_of_a_cluster_hold_at_once_and_its_nodes_wait_for_a_restart(tmp_path: Path) -> None:
    first = Settings(pool=FEW, cluster=ClusterSettings(listen="127.0.0.1:0"))
    taken: list[tuple[int, int]] = []
    async with serving(tmp_path, first) as place:
        service = SimpleNamespace(
            reconfigure=lambda cluster, limits: taken.append((cluster.local_slots, limits.worker_memory))
        )
        place.serving.cluster = service  # type: ignore[assignment]  # as much of it as a reload needs
        nodes = {"one": NodeSettings(ssh="one")}
        pool = replace(FEW, worker_memory=ByteCount(1000))
        answer = await place.reload(
            replace(first, pool=pool, cluster=replace(first.cluster, local_slots=7, nodes=nodes))
        )
        assert (answer["changed"], answer["needs_restart"]) == (
            ["pool.worker_memory", "cluster.local_slots"],
            ["cluster.nodes.one"],
        )
        assert taken == [(7, 1000)]


async def test_a_changed_agent_stops_its_idle_workers_and_lets_a_turn_end(tmp_path: Path) -> None:
    async with serving(tmp_path, ops("Operate.")) as place:
        await place.world.ask("hello", "idle", agent="ops")
        await place.world.begin("hang", "busy", agent="ops")
        await place.reload(ops("Operate with care."))
        assert place.workers() == ["leased"]
        assert (await place.world.call("abort", session="busy"))["aborted"]
        await wait_all_tasks_blocked()
        assert place.workers() == []
        assert (await place.world.ask("hello again", "idle", agent="ops")).status == "ok"
        await place.reload(ops("Operate with care.", pool=PoolSettings(min=0, max=5)))
        assert place.workers() == ["idle"], "an unchanged agent keeps its workers"


async def test_a_session_with_a_model_of_its_own_keeps_its_worker(tmp_path: Path) -> None:
    def with_other(text: str) -> Settings:
        operate = AgentSettings(append_system_prompt="Operate.")
        return Settings(agents={"ops": operate, "other": AgentSettings(append_system_prompt=text)}, pool=FEW)

    async with serving(tmp_path, with_other("before")) as place:
        await place.world.ask("/model large", agent="ops")
        await place.world.ask("hello")
        before = place.ids()
        await place.reload(with_other("after"))
        assert place.ids() == before


async def test_of_profiles_of_single_sessions_those_used_last_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sessions.agent_profiles._MAX_PROFILES", 2)
    async with serving(tmp_path, in_own_directories("before")) as place:
        profiles = place.world.gateway.profile_cache
        for session in ("alice", "bob", "alice", "carol"):
            await profiles.get("main", "default", session=session)
        kept = [session for session in ("alice", "bob", "carol") if profiles.peek(session, "main", "default")]
        assert kept == ["alice", "carol"]
        assert (await profiles.get("main", "default", session="bob")).cwd.endswith("bob")  # built again


async def test_sessions_with_directories_of_their_own_have_workers_of_their_own_and_keep_them(tmp_path: Path) -> None:
    async with serving(tmp_path, in_own_directories("before")) as place:
        profiles = place.world.gateway.profile_cache
        for session in ("alice", "bob"):
            await place.world.ask("hello", session)
            profile = await profiles.get("main", "default", session=session)
            assert profile.cwd == str(tmp_path / "workspaces" / "default" / session)
            assert profiles.workspace_of("main", "default", session) == profile.cwd
            assert profiles.peek(session, "main", "default") == profile
        before = place.ids()
        await place.reload(in_own_directories("after"))
        for session in ("alice", "bob"):
            await place.world.ask("hello again", session)
        assert (place.ids(), len(before)) == (before, 2)


@pytest.mark.parametrize(
    ("settings", "workers"),
    [(in_own_directories("x", minimum=1), []), (Settings(pool=PoolSettings(min=1, max=2)), ["idle"])],
)
async def test_the_default_agent_is_kept_warm_unless_its_sessions_have_directories_of_their_own(
    tmp_path: Path, settings: Settings, workers: list[str]
) -> None:
    async with serving(tmp_path, settings) as place:
        await place.serving.prewarm()
        await wait_all_tasks_blocked()
        assert place.workers() == workers


async def test_what_is_refused_leaves_all_as_it_was(tmp_path: Path) -> None:
    """A bad file, limits that the machine cannot hold, a webhook without its secret."""
    hook = WebhookSettings(url="http://h/", secret_env="NOT_SET_ANYWHERE")
    more = PoolSettings(min=0, max=3)
    beats, hooks = HeartbeatSettings(every=Seconds(300)), DeliverySettings(webhooks={"ops": hook})
    greedy = PoolSettings(min=0, max=3, worker_memory=ByteCount(1 << 50))
    refused: list[tuple[Settings | SettingsError, str]] = [
        (SettingsError("line 3: no"), "line 3"),
        (ops("Operate with care.", pool=greedy), "3 workers"),
        (ops("Operate with care.", pool=more, heartbeat=beats, delivery=hooks), "NOT_SET_ANYWHERE"),
    ]
    async with serving(tmp_path, ops("Operate.")) as place:
        await place.world.ask("hello", agent="ops")
        for settings, words in refused:
            with pytest.raises(UsageError, match=words):
                await place.reload(settings)
            await wait_all_tasks_blocked()
            assert (place.workers(), place.events, place.max) == (["idle"], [], 2)
            assert place.serving.autonomy.stats().heartbeats == 0
        answer = await place.reload(ops("Operate with care."))
        assert answer["changed"] == ["agents.ops.append_system_prompt"], "compared with what still holds"


async def test_what_cannot_be_kept_warm_is_told_and_the_rest_holds(tmp_path: Path) -> None:
    nowhere = AgentSettings(workspace=str(tmp_path / "no" / "such"))
    warm = PoolSettings(min=0, max=3, prewarm=[Prewarm(agent="lost")])
    async with serving(tmp_path, Settings(pool=FEW)) as place:
        await place.reload(Settings(agents={"lost": nowhere}, pool=warm))
        assert ([event for event, _ in place.events], place.max) == (["prewarm_failed", "reloaded"], 3)


async def test_heartbeats_jobs_and_webhooks_hold_at_once_and_agents_learn_what_a_beat_is(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with serving(tmp_path, Settings(pool=FEW)) as place:
        profiles = place.world.gateway.profile_cache
        before = (await profiles.get("main", "default")).signature
        settings = Settings(
            pool=FEW,
            heartbeat=HeartbeatSettings(every=Seconds(300)),
            cron=CronSettings(jobs={"tidy": CronJobSettings(text="tidy up", every=Seconds(3600))}),
            delivery=DeliverySettings(webhooks={"ops": WebhookSettings(url="http://h/", secret="0123456789abcdef")}),
        )
        assert (await place.reload(settings))["needs_restart"] == []
        figures = place.serving.autonomy.stats()
        assert (figures.heartbeats, figures.cron.jobs) == (1, 1)
        assert (await profiles.get("main", "default")).signature != before
        await place.world.call("cron.add", text="x", every="1h", mode="isolated", delivery="webhook:ops")
        await place.reload(Settings(pool=FEW))
        figures = place.serving.autonomy.stats()
        assert (figures.heartbeats, figures.cron.jobs) == (0, 1)
        assert (await profiles.get("main", "default")).signature == before
