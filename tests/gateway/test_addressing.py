"""Whose a message is: routes, keys in one spelling, agents that stay, duplicates that are noticed, hooks."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import Conflict, PoolSaturated, UsageError
from gateway.hook_types import AgentBootstrap, Drop, ExcludeFiles, HookMessage
from profiles import AgentSettings, ProfilesSettings
from router.settings import Binding, RoleTables, RouterSettings, TelegramRoles
from tests.gateway.world import Heard, World, telegram

ROUTER = RouterSettings(
    dm_scope="per-channel-peer",
    bindings=[Binding(agent="ops", channel="telegram")],
    roles=RoleTables(telegram=TelegramRoles(default="writer")),
    priority_senders=["telegram:8"],
)


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.world(router=ROUTER)
async def test_a_message_with_a_source_goes_where_the_router_says_and_asking_for_the_route_starts_nothing(
    world: World,
) -> None:
    route = await world.call("route", source=telegram(), text="hello")
    expected = ["agent:ops:telegram:account:default:dm:7", "ops", "writer"]
    assert [route[name] for name in ("session", "agent", "role")] == expected
    assert route["reasons"].keys() == {"agent", "session", "role", "workspace", "priority"}
    world.gateway.intake.route(telegram(), "/main hello")
    assert (len(world.gateway.sessions), world.gateway.run_registry.live) == (0, 0)
    run = await world.send("hello", source=telegram())
    assert [run.request.session, run.request.agent, run.request.role] == expected
    await run.wait()
    [worker] = world.gateway.pool.statistics().workers
    assert (worker.agent, worker.role) == ("ops", "writer")
    with pytest.raises(UsageError, match="sender"):
        await world.send("hello", source=telegram(sender_id=""))


@pytest.mark.world(router=ROUTER)
async def test_direct_messages_come_before_groups_and_both_after_what_their_caller_says(world: World) -> None:
    group = telegram(chat_type="group", chat_id="-100")
    runs = [
        await world.send("hello", source=telegram()),
        await world.send("hello", source=group),
        await world.send("hello", source=telegram(sender_id="8")),
        await world.send("hello again", source=group, priority=7),
        await world.send("hello", "alice"),
    ]
    assert [run.request.priority for run in runs] == [10, 5, 12, 7, 5]
    assert (await world.call("route", source=group))["priority"] == 5


async def test_a_prefix_is_taken_off_and_chooses_the_agent(world: World) -> None:
    run = await world.send("/ops restart it", source=telegram())
    assert (run.request.session, run.request.agent, run.request.text) == ("agent:ops:main:main", "ops", "restart it")


async def test_the_session_remembers_where_its_latest_message_came_from(world: World) -> None:
    for text, params, channel in (
        *(("one", {"source": telegram()}, "telegram"), ("two", {"session": "agent:main:main"}, "telegram")),
        ("three", {"source": telegram(channel="slack")}, "slack"),
    ):
        await world.ask(text, **params)
        assert (await world.call("sessions.get", session="agent:main:main:main"))["channel"] == channel


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["agent:ops:main", "agent:OPS:main:main", "agent:ops:main:main"])
async def test_every_spelling_of_a_key_is_one_session(world: World, spelling: str) -> None:
    key = "agent:ops:main:main"
    run = await world.send("one", spelling, run="k1")
    assert (run.request.session, run.request.agent) == (key, "ops")
    await run.wait()
    assert (await world.call("agent.wait", run_id="k1", session=spelling))["text"] == "one"
    assert (await world.call("sessions.get", session=spelling))["key"] == key
    assert (await world.call("sessions.history", session=spelling))["messages"] == []
    await world.begin("hang", spelling)
    assert await world.call("abort", session=spelling) == {"session": key, "aborted": True}
    hold = await world.call("acquire", session=spelling)
    assert hold["session"] == key
    await world.call("release", hold=hold["hold"])
    assert (await world.call("explain", session=spelling))["session"] == key
    assert (await world.call("sessions.reset", session=spelling))["session"] == key
    await world.call("sessions.delete", session=spelling)
    assert await world.call("sessions.list") == []


async def test_a_session_keeps_its_agent_and_role_when_none_is_named(world: World) -> None:
    await world.ask("one", agent="ops", role="writer")
    run = await world.send("two")
    assert (run.request.agent, run.request.role) == ("ops", "writer")
    assert (await run.wait()).text == "one|two"
    hold = await world.call("acquire", session="alice")
    await world.call("release", hold=hold["hold"])
    view = await world.call("sessions.get", session="alice")
    assert (view["agent"], view["role"], world.launcher.starts) == ("ops", "writer", ["w1"])


async def test_another_agent_is_refused_while_the_session_has_a_conversation(world: World) -> None:
    await world.ask("one", role="writer")
    text: Any = {"text": "two"}
    for method, params in (("agent", text), ("prompt", text), ("acquire", {}), ("attach.open", {"cwd": "/"})):
        with pytest.raises(UsageError, match="session alice is a conversation with agent 'main'; to ask 'ops'"):
            await world.call(method, session="alice", agent="ops", **params)
    assert (world.launcher.starts, world.gateway.run_registry.live) == (["w1"], 0)
    assert (await world.ask("two")).text == "one|two"
    await world.call("sessions.reset", session="alice")
    run = await world.send("three", agent="ops")
    assert (run.request.agent, run.request.role) == ("ops", "default")
    assert (await run.wait()).text == "three"


async def test_another_agent_is_refused_where_the_conversation_is_only_about_to_begin(world: World) -> None:
    await world.begin("hang")
    await world.send("waits behind it", "bob", queue="followup")
    for session in "alice", "bob":
        with pytest.raises(UsageError, match="is a conversation with agent 'main'"):
            await world.send("two", session, agent="ops")


@pytest.mark.world(router=RouterSettings(default_agent="ops"))
async def test_a_new_session_has_the_default_agent_of_the_settings(world: World) -> None:
    assert (await world.send("one")).request.agent == "ops"
    assert (await world.call("acquire", session="bob"))["session"] == "bob"
    assert (await world.call("sessions.get", session="bob"))["agent"] == "ops"


# --- duplicates -------------------------------------------------------------------------------------------------------


async def test_a_message_that_a_channel_hands_over_twice_is_one_run(world: World) -> None:
    first = await world.send("hello", source=telegram(message_id="m1"))
    assert await world.send("hello, edited", source=telegram(message_id="m1")) is first
    await first.wait()
    assert (await world.ask("hello", source=telegram(message_id="m1"))).run_id == first.request.run_id
    await world.ask("hello", source=telegram(message_id="m2"))
    assert len(world.launcher.prompts) == 2
    await world.ask("hello", source=telegram(message_id="m3"), run="m3")
    with pytest.raises(Conflict):
        await world.send("hello, edited", source=telegram(message_id="m3"), run="m3")


@pytest.mark.parametrize(
    ("other", "later", "prompts"),
    [({"sender_id": "8"}, 0, 2), ({}, 59, 1), ({}, 61, 2), (None, 0, 2)],
    ids=["of another sender", "again", "after a minute", "without a source"],
)
async def test_the_same_words_are_the_same_message_for_a_minute_of_one_sender_in_one_chat(
    world: World, other: dict[str, str] | None, later: float, prompts: int
) -> None:
    first: Any = {} if other is None else {"source": telegram()}
    second: Any = {} if other is None else {"source": telegram(**other)}
    await world.ask("hello", **first)
    await trio.sleep(later)
    await world.ask("hello", **second)
    assert len(world.launcher.prompts) == prompts


@pytest.mark.world(runs=1)
async def test_a_message_that_was_refused_is_new_when_it_comes_again(world: World) -> None:
    run = await world.begin("hang")
    with pytest.raises(PoolSaturated):
        await world.send("hello", source=telegram(message_id="m1"))
    world.launcher.running("hang").finish()
    await run.wait()
    for _ in range(2):
        assert (await world.ask("hello", source=telegram(message_id="m1"))).text == "hello"
    assert world.launcher.prompts == ["hang", "hello"]


# --- hooks ------------------------------------------------------------------------------------------------------------


async def test_a_hook_changes_what_is_received_and_the_next_sees_the_change(world: World) -> None:
    seen = Heard()

    async def shout(message: HookMessage) -> str:
        return message.text.upper()

    world.hooks.replace({"message:received": (shout, seen.listen)})
    await world.ask("hello", source=telegram())
    assert world.launcher.prompts == ["HELLO"]
    assert seen == [HookMessage(session="agent:main:main:main", text="HELLO", source=telegram())]


async def test_a_hook_drops_a_message_which_is_an_outcome_without_words(world: World) -> None:
    async def drop(message: HookMessage) -> Drop | None:
        return Drop("a note") if message.text.startswith("#") else None

    world.hooks.replace({"message:received": (drop,)})
    outcome = await world.call("prompt", text="#hello", session="alice", run="k1")
    assert (outcome["status"], outcome["silent"], outcome.get("text", "")) == ("ok", True, "")
    assert (await world.call("agent.wait", run_id="k1"))["silent"] is True
    assert world.launcher.prompts == []
    assert (await world.ask("hello")).text == "hello"
    world.assert_at_rest()


async def test_a_hook_that_says_something_else_every_time_makes_no_other_request(world: World) -> None:
    async def stamp(message: HookMessage) -> str:
        return f"[{trio.current_time()}] {message.text}"

    world.hooks.replace({"message:received": (stamp,)})
    first = await world.ask("hello", run="k1")
    await trio.sleep(1)
    again = await world.call("prompt", text="hello", session="alice", run="k1")
    assert again["text"] == first.text == "[0.0] hello"


async def test_a_hook_can_make_a_command_of_a_message(world: World) -> None:
    async def reset(message: HookMessage) -> str | None:
        return "/new" if message.text == "forget it" else None

    world.hooks.replace({"message:received": (reset,)})
    await world.ask("one")
    await world.ask("forget it")
    assert (await world.ask("two")).text == "two"


async def test_bootstrap_hooks_add_to_the_system_prompt_and_take_context_files_away_once_for_a_profile(
    world: World,
) -> None:
    heard: list[AgentBootstrap] = []

    async def add(event: AgentBootstrap) -> list[str | ExcludeFiles]:
        heard.append(event)
        return ["Mind the gap.", ExcludeFiles(("AGENTS.md",))]

    world.hooks.replace({"agent:bootstrap": (add,)})
    for session in ("alice", "bob"):
        await world.ask("one", session)
    profile = await world.gateway.profile_cache.get("main", "default")
    assert "Mind the gap." in "\n".join(profile.hard_args)
    assert profile.hard_args[-2:] == ("--without-context", f"{profile.cwd}/AGENTS.md")
    assert [(event.agent, event.role, event.workspace) for event in heard] == [("main", "default", profile.cwd)]


async def test_a_profile_of_the_old_settings_is_not_kept_when_they_change_while_it_is_built(world: World) -> None:
    going = trio.Event()

    async def slow(_: AgentBootstrap) -> None:
        await going.wait()

    world.hooks.replace({"agent:bootstrap": (slow,)})
    run = await world.begin("one", agent="ops")
    parts = world.gateway.profile_cache.parts
    changed = ProfilesSettings(agents={"ops": AgentSettings(append_system_prompt="New words.")})
    world.gateway.profile_cache.reconfigure(msgspec.structs.replace(parts, profiles=changed))
    going.set()
    await run.wait()
    assert "New words." in "\n".join((await world.gateway.profile_cache.get("ops", "default")).hard_args)


async def test_messages_of_a_session_keep_their_order_however_long_a_hook_takes_for_each(world: World) -> None:
    async def think(message: HookMessage) -> str:
        await trio.sleep(2.5 - int(message.text) / 2)
        return f"say {message.text}"

    world.hooks.replace({"message:received": (think,)})
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(lambda text: world.ask(text, queue="followup"), str(number))
            await wait_all_tasks_blocked()
        nursery.start_soon(world.ask, "4", "bob")
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        assert world.launcher.prompts == ["say 4"]  # of another session
    assert world.launcher.prompts == ["say 4", *(f"say {number}" for number in range(5))]
    assert len(world.gateway.intake._order) == 0
