"""Messages put into the running turn: taken, refused, never seen, kept out of a compaction."""

import pytest
from trio.testing import wait_all_tasks_blocked

from errors import UsageError
from tests.gateway.world import World


async def test_a_message_while_the_session_is_busy_goes_into_the_running_turn(world: World) -> None:
    worker = await world.hanging(run="first")
    steered = await world.begin("left")
    assert worker.steers == ["left"]
    worker.consume()
    worker.finish("went left")
    outcome = await steered.wait()
    assert (outcome.text, outcome.status) == ("went left", "ok")
    assert (await world.run("first").wait()).text == "went left"
    assert world.launcher.prompts == ["hang"]
    world.assert_at_rest()


async def test_a_steered_run_tells_its_own_story_and_whose_turn_it_is_in(world: World) -> None:
    worker = await world.hanging(run="first")
    await world.begin("left", run="second")
    worker.consume()
    worker.finish()
    events = [event for event in await world.events() if event.get("run_id") == "second"]
    assert [event["type"] for event in events] == ["run:accepted", "run:start", "done"]
    assert events[1]["data"]["leader"] == "first"


async def test_a_steer_that_the_worker_refuses_has_a_turn_of_its_own_and_comes_first(world: World) -> None:
    worker = await world.hanging(run="first")
    worker.refuses_steers = True
    steered = await world.begin("say second")
    later = await world.begin("say third", queue="followup")
    worker.finish()
    assert [(await run.wait()).text for run in (steered, later)] == ["second", "third"]
    assert world.launcher.prompts == ["hang", "say second", "say third"]


async def test_a_steer_that_the_turn_never_saw_has_a_turn_of_its_own(world: World) -> None:
    worker = await world.hanging(run="first")
    seen = await world.begin("say 1")
    worker.consume()
    unseen = [await world.begin(f"say {number}") for number in (2, 3)]
    worker.finish("end")
    assert (await seen.wait()).text == "end"
    assert [(await run.wait()).text for run in unseen] == ["2", "3"]
    assert world.launcher.prompts == ["hang", "say 2", "say 3"]
    starts = [event["run_id"] for event in await world.events("run:start")]
    assert len(starts) == len(set(starts)) == 4
    world.assert_at_rest()


async def test_before_its_first_word_and_during_a_compaction_a_turn_takes_nothing(world: World) -> None:
    await world.begin("mute")
    worker = world.launcher.running("mute")
    await world.begin("say 1")
    assert worker.steers == []
    with pytest.raises(UsageError, match="takes messages now"):
        await world.call("steer", session="alice", text="now")
    await world.call("abort", session="alice", clear=True)
    worker = await world.hanging(run="first")
    worker.tell("compaction", phase="start", reason="threshold")
    await wait_all_tasks_blocked()
    follow_up = await world.begin("say 2")
    assert worker.steers == []
    worker.tell("compaction", phase="end", reason="threshold")
    await wait_all_tasks_blocked()
    steered = await world.begin("in time", priority=6)
    assert worker.steers == ["in time"]
    worker.consume()
    worker.finish("end")
    assert [(await run.wait()).text for run in (steered, follow_up)] == ["end", "2"]


async def test_a_turn_that_begins_with_a_compaction_takes_nothing_until_its_end(world: World) -> None:
    await world.begin("mute")
    worker = world.launcher.running("mute")
    worker.transport.say(
        {"event": "run_start", "data": {}},
        {"event": "compaction", "data": {"phase": "start", "reason": "overflow"}},
    )
    await wait_all_tasks_blocked()
    await world.begin("say 1")
    assert worker.steers == []


async def test_what_a_worker_throws_away_at_the_end_of_its_run_was_never_seen(world: World) -> None:
    worker = await world.hanging(run="first")
    steered = await world.begin("say again")
    worker.steers.clear()
    worker.tell("done", stop_reason="error")
    worker.tell("queue_update", steers=0, follow_ups=0)
    worker.end_turn({"text": "", "stop_reason": "error", "error": "the model is ill"})
    assert (await world.run("first").wait()).status == "error"
    assert (await steered.wait()).text == "again"


async def test_of_a_prompt_that_is_sent_again_the_steers_have_turns_of_their_own(world: World) -> None:
    await world.begin("hang", run="first", retry_safe=True)
    worker = world.launcher.running("hang")
    steered = await world.begin("say other", retry_safe=True)
    worker.consume()
    worker.die()
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish("second attempt")
    assert (await world.run("first").wait()).text == "second attempt"
    assert (await steered.wait()).text == "other"
    assert world.launcher.prompts == ["hang", "hang", "say other"]
    world.assert_at_rest()


async def test_a_steer_that_was_not_seen_is_not_answered_by_a_turn_that_ends_before_it_heeds_an_interruption(
    world: World,
) -> None:
    await world.begin("stubborn", run="first")
    worker = world.launcher.running("stubborn")
    seen = await world.begin("seen")
    worker.consume()
    unseen = await world.begin("unseen")
    worker.ignores_steers = True
    unanswered = await world.begin("unanswered")
    newer = await world.begin("say newer", queue="interrupt")
    worker.tell("queue_update", steers=0, follow_ups=0)
    worker.finish("well before it")
    outcomes = [await run.wait() for run in (world.run("first"), seen, unseen, unanswered, newer)]
    assert [outcome.text for outcome in outcomes] == ["well before it", "well before it", "", "", "newer"]
    assert [outcome.error.code if outcome.error else "" for outcome in outcomes] == [
        "",
        "",
        "aborted",
        "aborted",
        "",
    ]
    assert world.launcher.prompts == ["stubborn", "say newer"]
    world.assert_at_rest()


async def test_steers_of_the_method_go_into_the_turn_or_are_refused(world: World) -> None:
    with pytest.raises(UsageError, match="send it as a run"):
        await world.call("steer", session="alice", text="left")
    worker = await world.hanging(run="first")
    accepted = await world.call("steer", session="alice", text="left", run="k1")
    assert (accepted["run_id"], accepted["status"]) == ("k1", "accepted")
    await wait_all_tasks_blocked()
    worker.consume()
    worker.finish("went left")
    assert (await world.call("agent.wait", run_id="k1"))["text"] == "went left"


async def test_a_slash_command_is_no_steer(world: World) -> None:
    worker = await world.hanging(run="first")
    for command in ("/reset", "/status", " /stop now", "/queue followup text"):
        with pytest.raises(UsageError, match="a slash command is no message for a turn"):
            await world.call("steer", session="alice", text=command)
    await world.call("steer", session="alice", text="/etc/hosts is a file", run="k1")
    await wait_all_tasks_blocked()
    worker.consume()
    worker.finish("went on")
    assert (await world.call("agent.wait", run_id="k1"))["text"] == "went on"


@pytest.mark.parametrize("count", [2, 5])
async def test_steers_reach_the_worker_in_the_order_of_their_arrival(world: World, count: int) -> None:
    store = world.store
    worker = await world.hanging(run="first")
    store.hold_commits()
    texts = [f"text {number}" for number in range(count)]
    for text in texts:
        world.nursery.start_soon(world.send, text)
        await wait_all_tasks_blocked()
    assert worker.steers == []
    store.let_commit()
    await wait_all_tasks_blocked()
    assert worker.steers == texts


async def test_an_image_is_never_steered(world: World) -> None:
    worker = await world.hanging(run="first")
    run = await world.begin("say look", images=[{"data": "AA=="}])
    assert worker.steers == []
    worker.finish()
    assert (await run.wait()).text == "look"
