"""What goes with a turn's text: how much of the past the model sees, and whether another session speaks."""

from typing import Any

import pytest

from errors import UsageError
from gateway.settings import GatewaySettings
from profiles import AgentSettings, ProfilesSettings
from router.settings import RouterSettings
from router.source import MessageSource
from tests.gateway.world import World, telegram

AGENTS = ProfilesSettings(
    agents={"brief": AgentSettings(history_turns=3), "long": AgentSettings(), "p": AgentSettings(dialect="pi")}
)
LIMITED: dict[str, Any] = {"profiles": AGENTS, "dm_history_limit": {"telegram": 2}}


def history_turns(world: World) -> list[int | None]:
    return [prompt.get("history_turns") for prompt in world.launcher.asked("prompt")]


def by_default(agent: str) -> pytest.MarkDecorator:
    return pytest.mark.world(**LIMITED, router=RouterSettings(default_agent=agent))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(source, expected, marks=by_default(agent))
        for source, agent, expected in (
            (None, "brief", 3),
            (telegram(), "brief", 2),
            (telegram(), "long", 2),
            (telegram(), "p", None),
            (telegram(channel="sms"), "brief", 3),
            (telegram(chat_type="group"), "brief", 3),
            (telegram(chat_type="group"), "long", None),
        )
    ],
)
async def test_a_channel_limits_its_direct_messages_and_the_agent_all_others_where_it_can(
    world: World, source: MessageSource | None, expected: int | None
) -> None:
    await (world.ask("hello", "alice") if source is None else world.ask("hello", source=source))
    assert history_turns(world) == [expected]


@pytest.mark.world(profiles=AGENTS, workers=1)
async def test_the_limit_of_an_agent_needs_no_worker_of_its_own(world: World) -> None:
    for agent in ("brief", "long"):
        await world.ask("hello", f"s-{agent}", agent=agent)
    assert world.gateway.pool.statistics().counters.spawned == 1


@by_default("brief")
async def test_a_session_keeps_the_limit_of_the_channel_that_spoke_last_and_new_settings_hold_from_then_on(
    world: World,
) -> None:
    session = (await world.ask("hello", source=telegram())).session
    await world.ask("woken", session)
    world.gateway.reconfigure(GatewaySettings(), world.gateway.profile_cache.parts)
    await world.ask("woken again", session)
    assert history_turns(world) == [2, 2, 3]


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
async def test_what_is_no_session_cannot_speak(world: World, key: str) -> None:
    with pytest.raises(UsageError):
        await world.send("hello", source=telegram(from_session=key))
    assert world.gateway.run_registry.live == 0
