"""Slash commands: answered at once whatever the session is doing, never shown to a model, given twice or cut off."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import PoolSaturated, UsageError
from gateway.hook_types import CommandReceived, SessionLifecycle
from gateway.sessions.commands import COMMANDS
from profiles import AgentSettings, ProfilesSettings
from tests.gateway.world import Heard, World, error_of, telegram


async def _answer(world: World, command: str, session: str = "alice") -> str:
    outcome = await world.ask(command, session)
    assert outcome.status == "ok"
    return outcome.text


async def test_new_begins_another_conversation_and_keeps_the_old_transcript(world: World) -> None:
    await world.ask("one")
    for command, file in (("/new", "/t/1"), ("/reset", "/t/2")):
        assert await _answer(world, command) == "A new conversation begins; the earlier one is kept."
        assert (await world.ask("two")).text == "two"
        assert (await world.call("sessions.get", session="alice"))["transcript"] == file
    assert world.launcher.transcripts["/t/0"] == ["one"]
    resets = await world.events("session_reset")
    assert [event["data"] for event in resets] == [{"transcript": "/t/0"}, {"transcript": "/t/1"}]


async def test_new_ends_what_runs_and_what_waits(world: World) -> None:
    runs = [await world.begin(text, queue="followup") for text in ("hang", "one", "two")]
    await _answer(world, "/new")
    assert [(await run.wait()).reason for run in runs] == ["interrupted"] * 3
    assert (await world.ask("three")).text == "three"
    assert world.launcher.prompts == ["hang", "three"]


async def test_stop_ends_everything_and_says_how_much(world: World) -> None:
    assert await _answer(world, "/stop") == "Nothing was running."
    run = await world.begin("hang")
    assert await _answer(world, "/stop") == "Stopped: 1 run ended."
    assert (await run.wait()).reason == "interrupted"
    runs = [await world.begin(text, queue="followup") for text in ("hang", "one", "two")]
    assert await _answer(world, "/STOP please!") == "Stopped: 3 runs ended."
    assert [(await run.wait()).reason for run in runs] == ["interrupted"] * 3
    assert (await world.ask("say on")).text == "on"


async def test_status_is_answered_in_mid_turn(world: World) -> None:
    await _answer(world, "/model big")
    await _answer(world, "/queue followup")
    assert (await _answer(world, "/status")).splitlines() == [
        "Session alice: idle, agent main, role default.",
        "Model: big.",
        "Queue: followup.",
        "Pool: 0 of 2 workers are busy, 0 requests wait.",
    ]
    await world.begin("hang")
    await world.begin("later")
    assert (await _answer(world, "/status")).splitlines() == [
        "Session alice: working, agent main, role default.",
        "A turn runs on worker w1.",
        "1 messages wait.",
        "Model: big.",
        "Queue: followup.",
        "Pool: 1 of 2 workers are busy, 0 requests wait.",
    ]


async def test_a_model_and_a_thinking_level_reach_the_sessions_own_worker_and_go_with_default(world: World) -> None:
    await world.ask("one")
    assert await _answer(world, "/think high") == "Thinking: high."
    assert await _answer(world, "/model acme/big") == "Model: acme/big."
    await world.ask("two")
    await world.ask("one", "bob")
    assert {worker.model: worker.thinking for worker in world.launcher.workers} == {"big": "high", None: None}
    assert await _answer(world, "/think default") == "Thinking: as the settings say."
    assert world.launcher.asked("set_model") == [{"provider": "acme", "model": "big"}]
    assert await _answer(world, "/model default") == "Model: as the settings say."
    assert (await world.call("sessions.get", session="alice"))["model"] is None
    assert (await world.ask("three")).text == "one|two|three"


async def test_a_level_of_thinking_that_the_agent_does_not_have_changes_nothing(world: World) -> None:
    await world.ask("one")
    levels = "off, minimal, low, medium, high, xhigh"
    told = f"Nothing is changed: thinking: there is no level 'ultra'; there are {levels}."
    assert await _answer(world, "/think ultra") == told
    with pytest.raises(UsageError, match="there is no level 'ultra'"):
        await world.call("sessions.patch", session="alice", thinking="ultra")
    assert (await world.call("sessions.get", session="alice"))["thinking"] is None


async def test_a_run_may_have_a_model_of_its_own(world: World) -> None:
    await world.ask("one", model="acme/big")
    assert world.launcher.asked("set_model") == []
    assert [worker.model for worker in world.launcher.workers] == ["big"]
    await _answer(world, "/model acme/small")
    await world.ask("two", model="acme/big")
    await world.ask("three")
    assert [asked["model"] for asked in world.launcher.asked("set_model")] == ["small"]


AGENTS = {"main": AgentSettings(provider="openai"), "other": AgentSettings(provider="openai", dialect="pi")}


@pytest.mark.world(profiles=ProfilesSettings(agents=AGENTS))
async def test_an_agent_whose_definition_names_a_provider_is_asked_for_no_other(world: World) -> None:
    with pytest.raises(UsageError, match="definition allows no other"):
        await world.send("x", model="acme/big")
    assert (await world.send("x", model="openai/big")).request.model == "openai/big"
    assert (await world.send("x", "bob", agent="other", model="acme/big")).request.model == "acme/big"


async def test_compact_waits_for_the_running_turn_and_is_answered_at_once(world: World) -> None:
    await world.begin("hang")
    answer = "The conversation will be summarised as soon as the session is free."
    assert await _answer(world, "/compact keep the names") == answer
    later = await world.begin("say later", queue="followup")
    assert world.launcher.asked("compact") == []
    world.launcher.running("hang").finish()
    assert (await later.wait()).text == "later"
    assert world.launcher.asked("compact") == [{"instructions": "keep the names"}]
    methods = [method for method, _ in world.launcher.requests if method in ("compact", "prompt")]
    assert methods == ["prompt", "compact", "prompt"]
    world.assert_at_rest()


async def test_a_compaction_that_fails_is_told_as_an_event(world: World) -> None:
    world.launcher.cannot_compact = True
    await world.ask("one")
    await _answer(world, "/compact")
    [error] = await world.events("error")
    assert error["session"] == "alice"
    assert "nothing to summarise" in error["data"]["message"]
    world.assert_at_rest()


async def test_verbose_and_reasoning_show_in_the_answers(world: World) -> None:
    assert (await world.ask("think hard")).text == "thought"
    assert await _answer(world, "/reasoning on") == "Reasoning: on."
    assert (await world.ask("think hard")).text == "Reasoning:\nhard\n\nthought"
    assert await _answer(world, "/reasoning off") == "Reasoning: off."
    assert (await world.ask("think hard")).text == "thought"
    assert await _answer(world, "/verbose on") == "Tool summaries: on."
    assert "bash" in (await world.ask("tool ls")).text


async def test_the_mode_of_the_session_can_be_set_and_help_says_how(world: World) -> None:
    assert await _answer(world, "/queue collect") == "Messages while the session is busy: collect."
    assert await _answer(world, "/queue default") == "Messages while the session is busy: as the settings say."
    assert "/compact [INSTRUCTIONS]" in await _answer(world, "/help")
    assert (await _answer(world, "/think very deeply")).startswith("Usage: /think off|")


# --- where they stand -------------------------------------------------------------------------------------------------


async def test_no_command_ever_reaches_a_worker_and_what_is_none_goes_there_as_it_is(world: World) -> None:
    for command in COMMANDS:
        for text in (f"/{command}", f" /{command.upper()}@mybot ", f"/{command} x y"):
            if text != "/queue x y":
                await _answer(world, text)
    await wait_all_tasks_blocked()
    assert world.launcher.prompts == []
    others = ["/compactor", "/etc/passwd", "//new", "/ new", "see /new"]
    for text in others:
        await world.ask(text)
    assert world.launcher.prompts == others


@pytest.mark.world(profiles=ProfilesSettings(agents={"status": AgentSettings(), "ops": AgentSettings()}))
async def test_a_command_comes_before_an_agents_prefix_and_that_before_the_agents_own_commands(world: World) -> None:
    assert (await world.ask("/status", source=telegram())).text.startswith("Session agent:main")
    run = await world.send("/ops /deploy now", source=telegram())
    assert (run.request.agent, run.request.session) == ("ops", "agent:ops:main:main")
    await run.wait()
    await world.ask("/deploy now", source=telegram())
    assert world.launcher.prompts == ["/deploy now", "/deploy now"]
    assert (await world.ask("/ops /status", source=telegram())).text.startswith("Session agent:ops:main:main")


async def test_a_command_is_a_run_with_an_outcome_and_keeps_its_key(world: World) -> None:
    await world.ask("one")
    for _ in range(2):
        answer = await world.call("prompt", text="/new", session="alice", run="k1")
        assert answer["text"].startswith("A new conversation")
    assert len(await world.events("session_reset")) == 1
    assert (await world.call("agent.wait", run_id="k1"))["status"] == "ok"
    types = [event["type"] for _, data in world.caller.pushed for event in data["events"]]
    assert types == ["run:accepted", "done"]


async def test_a_command_of_a_channel_is_carried_out_once_for_each_number_and_each_time_without_one(
    world: World,
) -> None:
    await world.ask("one", source=telegram(message_id="m0"))
    for _ in range(2):
        await world.ask("/new", source=telegram(message_id="m1"))
    assert len(await world.events("session_reset")) == 1
    first = await world.ask("/status", source=telegram())
    await world.begin("hang", source=telegram())
    second = await world.ask("/status", source=telegram())
    assert ("idle" in first.text, "working" in second.text) == (True, True)


async def test_commands_are_not_for_a_worker_that_somebody_holds_either(world: World) -> None:
    hold = await world.call("acquire", session="alice")
    with pytest.raises(UsageError, match="without the hold"):
        await world.call("prompt", text="/status", session="alice", hold=hold["hold"])
    assert (await _answer(world, "/status")).startswith("Session alice")
    assert world.launcher.prompts == []


async def test_a_command_whose_giver_leaves_is_cut_off_and_nobody_waits_for_it(world: World) -> None:
    await world.begin("stubborn")
    answers: list[Any] = []

    async def give() -> None:
        answers.append(await world.call("prompt", text="/new", session="alice", run="k1"))

    async with trio.open_nursery() as connection:
        connection.start_soon(give)
        await wait_all_tasks_blocked()
        world.nursery.start_soon(give)
        await wait_all_tasks_blocked()
        connection.cancel_scope.cancel()
    await trio.sleep(60)
    assert [answer["error"]["code"] for answer in answers] == ["aborted"]
    world.assert_at_rest()
    assert (await world.ask("/new", run="k1")).status == "ok"


async def _reset(world: World) -> None:
    await world.call("prompt", text="/reset", session="alice", run="k1")


async def test_a_command_given_twice_under_one_key_is_carried_out_once(world: World) -> None:
    hold = await world.call("acquire", session="alice")
    async with trio.open_nursery() as twins:
        for _ in range(2):
            twins.start_soon(_reset, world)
        await wait_all_tasks_blocked()
        await world.call("release", hold=hold["hold"])
    assert len(await world.events("session_reset")) == 1


async def test_a_second_sender_of_a_command_learns_that_the_first_has_left(world: World) -> None:
    hold = await world.call("acquire", session="alice")
    async with trio.open_nursery() as connection:
        connection.start_soon(_reset, world)
        await wait_all_tasks_blocked()
        twin = await world.send("/reset", run="k1")
        connection.cancel_scope.cancel()
    with trio.fail_after(1):
        outcome = await twin.wait()
    assert (error_of(outcome).code, outcome.reason) == ("aborted", "interrupted")
    await world.call("release", hold=hold["hold"])
    assert (await world.ask("/reset", run="k1")).status == "ok"  # the key is free again


async def test_a_second_sender_of_a_command_learns_that_it_has_failed(world: World) -> None:
    async def fails() -> None:
        with pytest.raises(PoolSaturated):
            await _reset(world)

    hold = await world.call("acquire", session="alice")
    async with trio.open_nursery() as connection:
        connection.start_soon(fails)
        await wait_all_tasks_blocked()
        twin = await world.send("/reset", run="k1")
        world.gateway.scheduler.clear("alice")
    outcome = await twin.wait()
    assert error_of(outcome).code == "saturated"
    await world.call("release", hold=hold["hold"])


# --- hooks ------------------------------------------------------------------------------------------------------------


async def test_hooks_hear_of_commands_and_of_the_end_of_a_conversation(world: World) -> None:
    heard = Heard()
    names: tuple[Any, ...] = ("command:new", "command:reset", "command:stop", "session:end")
    world.hooks.replace(dict.fromkeys(names, (heard.listen,)))
    await world.ask("one", source=telegram())
    for command in ("/new", "/reset", "/stop", "/status"):
        await world.ask(command, source=telegram())
    key = "agent:main:main:main"
    ended = {"session": key, "agent": "main", "role": "default", "reason": "reset"}
    assert heard == [
        SessionLifecycle(**ended, transcript="/t/0"),
        CommandReceived(command="new", session=key, source=telegram()),
        SessionLifecycle(**ended, transcript=None),
        CommandReceived(command="reset", session=key, source=telegram()),
        CommandReceived(command="stop", session=key, source=telegram()),
    ]
