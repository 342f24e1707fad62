"""Slash commands: answered at once whatever the session is doing, never shown to a model, before every prefix."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from gateway.hooks import CommandReceived, SessionLifecycle
from profiles import AgentSettings, ProfilesSettings
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import World, open_world, telegram


async def _answer(world: World, command: str, session: str = "alice") -> str:
    outcome = await world.ask(command, session)
    assert outcome.status == "ok"
    return outcome.text


async def test_new_begins_another_conversation_and_keeps_the_old_transcript(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("one")
        for command, file in (("/new", "/t/1"), ("/reset", "/t/2")):
            assert await _answer(world, command) == "A new conversation begins; the earlier one is kept."
            assert (await world.ask("two")).text == "two"
            assert (await world.call("sessions.get", session="alice"))["transcript"] == file
        assert world.launcher.transcripts["/t/0"] == ["one"]
        resets = await world.events("session_reset")
        assert [event["data"] for event in resets] == [{"transcript": "/t/0"}, {"transcript": "/t/1"}]


async def test_new_ends_what_runs_and_what_waits(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        runs = [await world.begin(text, queue="followup") for text in ("hang", "one", "two")]
        await _answer(world, "/new")
        assert [(await run.wait()).reason for run in runs] == ["interrupted"] * 3
        assert (await world.ask("three")).text == "three"
        assert world.launcher.prompts == ["hang", "three"]


async def test_stop_ends_everything_and_says_how_much(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        assert await _answer(world, "/stop") == "Nothing was running."
        run = await world.begin("hang")
        assert await _answer(world, "/stop") == "Stopped: 1 run ended."
        assert (await run.wait()).reason == "interrupted"
        runs = [await world.begin(text, queue="followup") for text in ("hang", "one", "two")]
        assert await _answer(world, "/STOP please!") == "Stopped: 3 runs ended."
        assert [(await run.wait()).reason for run in runs] == ["interrupted"] * 3
        assert (await world.ask("say on")).text == "on"


async def test_status_is_answered_in_mid_turn(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await _answer(world, "/model big")
        await _answer(world, "/queue followup")
        assert (await _answer(world, "/status")).splitlines() == [
            "Session alice: READY, agent main, role default.",
            "Model: big.",
            "Queue: followup.",
            "Pool: 0 of 2 workers are busy, 0 requests wait.",
        ]
        await world.begin("hang")
        await world.begin("later")
        assert (await _answer(world, "/status")).splitlines() == [
            "Session alice: WORKING, agent main, role default.",
            "A turn runs on worker w1.",
            "1 messages wait.",
            "Model: big.",
            "Queue: followup.",
            "Pool: 1 of 2 workers are busy, 0 requests wait.",
        ]


async def test_a_model_reaches_the_worker_and_goes_with_default(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("one")
        assert await _answer(world, "/model acme/big") == "Model: acme/big."
        await world.ask("two")
        assert world.launcher.asked("set_model") == [{"provider": "acme", "model": "big"}]
        assert [worker.model for worker in world.launcher.workers] == ["big"]
        assert await _answer(world, "/model default") == "Model: as the settings say."
        assert (await world.call("sessions.get", session="alice"))["model"] is None
        assert (await world.ask("three")).text == "one|two|three"


async def test_a_run_may_have_a_model_of_its_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("one", model="acme/big")
        assert world.launcher.asked("set_model") == []
        assert [worker.model for worker in world.launcher.workers] == ["big"]
        await _answer(world, "/model acme/small")
        await world.ask("two", model="acme/big")
        await world.ask("three")
        assert [asked["model"] for asked in world.launcher.asked("set_model")] == ["small"]


async def test_an_agent_whose_definition_names_a_provider_is_asked_for_no_other(tmp_path: Path) -> None:
    agents = {"main": AgentSettings(provider="openai"), "other": AgentSettings(provider="openai", dialect="pi")}
    async with open_world(tmp_path, profiles=ProfilesSettings(agents=agents)) as world:
        with pytest.raises(UsageError, match="definition allows no other"):
            await world.send("x", model="acme/big")
        assert (await world.send("x", model="openai/big")).request.model == "openai/big"
        assert (await world.send("x", "bob", agent="other", model="acme/big")).request.model == "acme/big"


async def test_a_model_is_the_sessions_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await _answer(world, "/model big")
        await world.ask("one", "alice")
        await world.ask("one", "bob")
        assert sorted(str(worker.model) for worker in world.launcher.workers) == ["None", "big"]


async def test_a_thinking_level_reaches_the_worker(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("one")
        assert await _answer(world, "/think high") == "Thinking: high."
        await world.ask("two")
        assert [worker.thinking for worker in world.launcher.workers] == ["high"]
        assert await _answer(world, "/think default") == "Thinking: as the settings say."


async def test_compact_waits_for_the_running_turn_and_is_answered_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
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


async def test_a_compaction_that_fails_is_told_as_an_event(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        world.launcher.cannot_compact = True
        await world.ask("one")
        await _answer(world, "/compact")
        [error] = await world.events("error")
        assert error["session"] == "alice"
        assert "nothing to summarise" in error["data"]["message"]
        world.assert_at_rest()


async def test_verbose_and_reasoning_show_in_the_answers(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        assert (await world.ask("think hard")).text == "thought"
        assert await _answer(world, "/reasoning on") == "Reasoning: on."
        assert (await world.ask("think hard")).text == "Reasoning:\nhard\n\nthought"
        assert await _answer(world, "/reasoning off") == "Reasoning: off."
        assert (await world.ask("think hard")).text == "thought"
        assert await _answer(world, "/verbose on") == "Tool summaries: on."
        assert "bash" in (await world.ask("tool ls")).text


async def test_the_mode_of_the_session_can_be_set_and_taken_back(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        assert await _answer(world, "/queue collect") == "Messages while the session is busy: collect."
        assert await _answer(world, "/queue default") == "Messages while the session is busy: as the settings say."


async def test_help_and_a_command_that_is_wrong_are_answered_with_how_it_is_written(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        assert "/compact [INSTRUCTIONS]" in await _answer(world, "/help")
        assert (await _answer(world, "/think deeply")).startswith("Usage: /think off|")


# --- where they stand -------------------------------------------------------------------------------------------------


async def test_no_command_ever_reaches_a_worker(tmp_path: Path, autojump_clock: MockClock) -> None:
    commands = "new reset stop status model think compact queue verbose reasoning help".split()  # noqa: SIM905  # to read
    async with open_world(tmp_path) as world:
        for command in commands:
            for text in (f"/{command}", f" /{command.upper()}@mybot ", f"/{command} x y"):
                if text != "/queue x y":
                    await _answer(world, text)
        await wait_all_tasks_blocked()
        assert world.launcher.prompts == []


@pytest.mark.parametrize("text", ["/compactor", "/etc/passwd", "//new", "/nothing", "/ new", "see /new"])
async def test_what_is_no_command_of_ours_goes_to_the_agent_as_it_is(
    tmp_path: Path, autojump_clock: MockClock, text: str
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask(text)
        assert world.launcher.prompts == [text]


async def test_a_command_comes_before_an_agents_prefix_and_that_before_the_agents_own_commands(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    profiles = ProfilesSettings(agents={"status": AgentSettings(), "ops": AgentSettings()})
    async with open_world(tmp_path, profiles=profiles) as world:
        assert (await world.ask("/status", source=telegram())).text.startswith("Session agent:main")
        run = await world.send("/ops /deploy now", source=telegram())
        assert (run.request.agent, run.request.session) == ("ops", "agent:ops:main:main")
        await run.wait()
        await world.ask("/deploy now", source=telegram())
        assert world.launcher.prompts == ["/deploy now", "/deploy now"]


async def test_a_command_behind_a_prefix_is_for_that_agents_session(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        text = (await world.ask("/ops /status", source=telegram())).text
        assert text.startswith("Session agent:ops:main:main")


async def test_a_command_is_a_run_with_an_outcome_and_keeps_its_key(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("one")
        for _ in range(2):
            answer = await world.call("prompt", text="/new", session="alice", run="k1")
            assert answer["text"].startswith("A new conversation")
        assert len(await world.events("session_reset")) == 1
        assert (await world.call("agent.wait", run_id="k1"))["status"] == "ok"
        types = [event["type"] for _, data in world.caller.pushed for event in data["events"]]
        assert types == ["run:accepted", "done"]


async def test_a_command_that_a_channel_hands_over_twice_is_carried_out_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("one", source=telegram(message_id="m0"))
        for _ in range(2):
            await world.ask("/new", source=telegram(message_id="m1"))
        assert len(await world.events("session_reset")) == 1


async def test_two_commands_of_a_channel_that_numbers_nothing_are_two(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        first = await world.ask("/status", source=telegram())
        await world.begin("hang", source=telegram())
        second = await world.ask("/status", source=telegram())
        assert ("READY" in first.text, "WORKING" in second.text) == (True, True)


async def test_commands_are_not_for_a_worker_that_somebody_holds_either(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        hold = await world.call("acquire", session="alice")
        with pytest.raises(UsageError, match="without the hold"):
            await world.call("prompt", text="/status", session="alice", hold=hold["hold"])
        assert (await _answer(world, "/status")).startswith("Session alice")
        assert world.launcher.prompts == []


async def test_a_command_whose_giver_leaves_is_cut_off_and_nobody_waits_for_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
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


# --- hooks ------------------------------------------------------------------------------------------------------------


async def test_hooks_hear_of_commands_and_of_the_end_of_a_conversation(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    heard: list[Any] = []

    async def listen(event: CommandReceived | SessionLifecycle) -> None:
        heard.append(event)

    names: tuple[Any, ...] = ("command:new", "command:reset", "command:stop", "session:end")
    async with open_world(tmp_path, hooks=dict.fromkeys(names, (listen,))) as world:
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


async def test_settings_of_a_session_stay_with_it_over_a_new_conversation(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    launcher = GatewayLauncher()
    async with open_world(tmp_path, launcher=launcher) as world:
        await _answer(world, "/model big")
        await world.ask("one")
        await _answer(world, "/new")
        await world.ask("two")
        assert [worker.model for worker in launcher.workers] == ["big"]
