"""What goes with a turn's text: how much of the past the model sees, and whether another session speaks."""

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from errors import UsageError
from gateway.settings import GatewaySettings
from profiles import AgentSettings, ProfilesSettings
from router.settings import RouterSettings
from router.source import MessageSource
from tests.gateway.world import World, open_world, telegram

AGENTS = ProfilesSettings(
    agents={"brief": AgentSettings(history_turns=3), "long": AgentSettings(), "p": AgentSettings(dialect="pi")}
)


@pytest.mark.parametrize(
    ("source", "of_agent", "expected"),
    [
        (None, "long", None),
        (None, "brief", 3),
        (telegram(), "brief", 2),
        (telegram(), "long", 2),
        (telegram(channel="sms"), "brief", 3),
        (telegram(chat_type="group"), "brief", 3),
        (telegram(chat_type="group"), "long", None),
    ],
)
async def test_a_channel_limits_its_direct_messages_and_the_agent_all_others(
    source: MessageSource | None, of_agent: str, expected: int | None, tmp_path: Path, autojump_clock: MockClock
) -> None:
    router = RouterSettings(default_agent=of_agent)
    async with open_world(tmp_path, profiles=AGENTS, router=router, dm_history_limit={"telegram": 2}) as world:
        await (world.ask("hello", "alice") if source is None else world.ask("hello", source=source))
        assert world.launcher.asked("prompt")[0].get("history_turns") == expected


async def test_the_limit_of_an_agent_needs_no_worker_of_its_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path, profiles=AGENTS, workers=1) as world:
        for agent in ("brief", "long"):
            await world.ask("hello", f"s-{agent}", agent=agent)
        assert world.gateway.pool.statistics().counters.spawned == 1


async def test_a_session_keeps_the_limit_of_the_channel_that_spoke_last_and_new_settings_hold_from_then_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    router = RouterSettings(default_agent="brief")
    async with open_world(tmp_path, profiles=AGENTS, router=router, dm_history_limit={"telegram": 2}) as world:
        run = await world.send("hello", source=telegram())
        await run.wait()
        await world.ask("woken", run.request.session)
        world.gateway.reconfigure(GatewaySettings(), world.gateway.profile_cache.parts)
        await world.ask("woken again", run.request.session)
        assert [prompt.get("history_turns") for prompt in world.launcher.asked("prompt")] == [2, 2, 3]


async def test_an_agent_that_speaks_pi_sees_all(tmp_path: Path, autojump_clock: MockClock) -> None:
    router = RouterSettings(default_agent="p")
    async with open_world(tmp_path, profiles=AGENTS, router=router, dm_history_limit={"telegram": 2}) as world:
        await world.ask("hello", source=telegram())
        assert "history_turns" not in world.launcher.asked("prompt")[0]


# --- who speaks -------------------------------------------------------------------------------------------------------


async def test_a_delegated_task_says_which_session_gave_it(world: World) -> None:
    await world.ask("hello")
    await world.call("delegate", session="alice", agent="main", task="say done")
    assert [prompt.get("from_session") for prompt in world.launcher.asked("prompt")] == [None, "alice"]


async def test_a_source_may_say_that_another_session_speaks_and_its_message_stays_apart(world: World) -> None:
    first = await world.begin("hang", source=telegram())
    worker = world.launcher.running("hang")
    told = await world.begin("say by bob", source=telegram(from_session="agent:Bob:main"))
    assert (first.request.session, worker.steers) == (told.request.session, [])
    worker.finish()
    assert (await told.wait()).text == "by bob"
    assert world.launcher.asked("prompt")[-1]["from_session"] == "agent:bob:main:main"


@pytest.mark.parametrize("key", ["*", "agent:a\nb:main:main", ""])
async def test_what_is_no_session_cannot_speak(tmp_path: Path, key: str) -> None:
    async with open_world(tmp_path) as world:
        source: dict[str, Any] = {"source": telegram(from_session=key)}
        with pytest.raises(UsageError):
            await world.send("hello", **source)
        assert world.gateway.run_registry.live == 0
