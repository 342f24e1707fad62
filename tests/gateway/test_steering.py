"""Messages put into the running turn: taken, refused, never seen, out of time, cut off."""

import re
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import Conflict, UsageError
from tests.gateway.workers import GatewayWorker
from tests.gateway.world import WholeStore, World, error_of, open_world

FLAGS = {"refuses": ("refuses_steers", True), "ignores": ("ignores_steers", True), "quiet": ("tells_queue", False)}
"""What the worker does from then on: refuse steers, leave them unanswered, not say how many of them wait."""

OPTIONS: dict[str, dict[str, Any]] = {"safe": {"retry_safe": True}, "5s": {"timeout": 5}, "10s": {"timeout": 10}}

STORIES = """
one that the model saw is answered by the turn
  hang; a; consume; finish -> hang=done a=done
one that the worker refuses has a turn of its own and comes first
  hang; refuses; a; b followup; finish -> hang=done a=a b=b
those that the turn never saw have turns of their own
  hang; a; consume; b; c; finish -> hang=done a=done b=b c=c
one that a dying worker took and the model never saw is left to the next
  hang; a; consume; b; die -> hang=worker_exited a=worker_exited b=b
of several the last are those that were not seen, also where one was never answered
  hang; a; consume; ignores; b; die -> hang=worker_exited a=worker_exited b=b
one that was seen is not repeated where a later one was never answered
  hang; a; consume; ignores; b; finish; wait 600 -> hang=done a=done b=b
the same where the worker dies and the later one may be repeated
  hang; a; consume; ignores; b safe; die -> hang=worker_exited a=worker_exited b=b
one that waits for the answer to another when its turn ends has a turn of its own
  hang; ignores; a; b; finish; wait 600 -> hang=done a=a b=b
one that a dying worker may have acted upon is not repeated
  hang; ignores; quiet; a; die -> hang=worker_exited a=worker_exited
the same is repeated where it may be
  hang; ignores; quiet; a safe; die -> hang=worker_exited a=a
beside a prompt that is sent again it has a turn of its own
  hang safe; a safe; consume; die; finish -> hang*2=done a=a
what one worker said of its steers does not hold for the next
  hang safe; a safe; die; quiet; b 9; finish -> hang*2=done a=a b=done
those of the first attempt are not taken for those of the second
  stubborn safe; a safe; die; b 9; consume; c interrupt; finish -> stubborn*2=done a=aborted b=done c=c
an abort ends them with the turn and leaks nothing into the next
  hang; a; consume; b; abort; c -> hang=aborted a=aborted b=aborted c=c
an abort of one ends it alone
  hang; a; abort a; consume; finish -> hang=done a=aborted
an abort of one that is under way ends it alone
  hang; ignores; a; abort a; finish; wait 60 -> hang=done a=aborted
an abort ends one that is under way with its turn
  stubborn; ignores; a; abort; wait 60; b -> stubborn=aborted a=aborted b=b
an abort ends one that is under way when its turn has ended and waits for it
  hang; ignores; a; finish; abort; b -> hang=done a=aborted b=b
the end of the turn's time ends one that is under way
  stubborn 10s; ignores; a; wait 60; b -> stubborn=request_timeout a=request_timeout b=b
a turn that is being aborted takes none
  stubborn; abort; a; wait 60 -> stubborn=aborted a=a
one that was not seen is not answered by a turn that ends before it heeds an interruption
  stubborn; a; consume; b; ignores; c; d interrupt; empty; finish -> stubborn=done a=done b=aborted c=aborted d=d
it ends when its own time is over and its turn goes on
  hang; a 5s; wait 5; finish -> hang=done a=request_timeout
one that is never answered ends in its time too
  hang; ignores; a 5s; wait 5; abort -> hang=aborted a=request_timeout
one that came back keeps the time it had
  hang; refuses; a 5s; wait 5; finish -> hang=done a=request_timeout
"""
"""A title, the steps, how each run ends: with the text ``done`` of the turn, in a turn of its own, or an error."""


def _busy(world: World) -> GatewayWorker:
    return next(worker for worker in world.launcher.workers if worker.running is not None)


async def _perform(world: World, name: str, words: list[str]) -> None:
    """What the worker does, or a message: ``hang`` and ``stubborn`` begin the turn, any other says its own name."""
    if name in FLAGS:
        setattr(_busy(world), *FLAGS[name])
    elif name in {"consume", "finish", "die"}:
        getattr(_busy(world), name)()
    elif name == "empty":
        _busy(world).tell("queue_update", steers=0, follow_ups=0)
    elif name == "abort":
        assert (await world.call("abort", session="alice", **({"run": words[0]} if words else {})))["aborted"] is True
    elif name == "wait":
        await trio.sleep(float(words[0]))
    else:
        params: dict[str, Any] = {}
        for word in words:
            if word.isdigit():
                params["priority"] = int(word)
            else:
                params |= OPTIONS.get(word, {"queue": word})
        await world.begin(name if name in {"hang", "stubborn"} else f"say {name}", run=name, **params)
    await wait_all_tasks_blocked()


@pytest.mark.parametrize("story", STORIES.splitlines()[2::2], ids=STORIES.splitlines()[1::2])
async def test_what_becomes_of_a_message_that_was_put_into_a_turn(world: World, story: str) -> None:
    steps, _, ends = story.strip().partition(" -> ")
    for step in steps.split("; "):
        name, *words = step.split()
        await _perform(world, name, words)
    prompts: list[str] = []
    for run_id, attempts, expected in re.findall(r"(\w+)(\*2)?=(\w+)", ends):
        with trio.fail_after(0.001):
            outcome = await world.run(run_id).wait()
        assert (run_id, outcome.error.code if outcome.error else outcome.text) == (run_id, expected)
        if not prompts or expected == run_id:
            prompts += [f"say {run_id}" if prompts else run_id] * (2 if attempts else 1)
    assert world.launcher.prompts == prompts
    starts = [event["run_id"] for event in await world.events("run:start")]
    assert len(starts) == len(set(starts)), "a run starts once"
    world.assert_at_rest()


async def test_a_steered_run_tells_its_own_story_and_whose_turn_it_is_in(world: World) -> None:
    worker = await world.hanging(run="first")
    await world.begin("left", run="second")
    worker.consume()
    worker.finish()
    events = [event for event in await world.events() if event.get("run_id") == "second"]
    assert [event["type"] for event in events] == ["run:accepted", "run:start", "done"]
    assert events[1]["data"]["leader"] == "first"


async def test_before_its_first_word_and_during_a_compaction_a_turn_takes_nothing(world: World) -> None:
    await world.begin("mute")
    worker = world.launcher.running("mute")
    await world.begin("say 1")
    with pytest.raises(Conflict, match="takes messages now"):
        await world.call("steer", session="alice", text="now")
    worker.transport.say(
        {"event": "run_start", "data": {}}, {"event": "compaction", "data": {"phase": "start", "reason": "overflow"}}
    )
    await world.begin("say 2", priority=6)
    assert worker.steers == []
    worker.tell("compaction", phase="end", reason="overflow")
    await wait_all_tasks_blocked()
    await world.begin("in time", priority=7)
    assert worker.steers == ["in time"]


async def test_what_a_worker_throws_away_at_the_end_of_its_run_was_never_seen(world: World) -> None:
    worker = await world.hanging(run="first")
    steered = await world.begin("say again")
    worker.steers.clear()
    worker.tell("done", stop_reason="error")
    worker.tell("queue_update", steers=0, follow_ups=0)
    worker.end_turn({"text": "", "stop_reason": "error", "error": "the model is ill"})
    assert (await world.run("first").wait()).status == "error"
    assert (await steered.wait()).text == "again"


async def test_steers_of_the_method_go_into_the_turn_or_are_refused(world: World) -> None:
    with pytest.raises(Conflict, match="send it as a run"):
        await world.call("steer", session="alice", text="left")
    worker = await world.hanging(run="first")
    for command in ("/reset", "/status", " /stop now", "/queue followup text"):
        with pytest.raises(UsageError, match="a slash command is no message for a turn"):
            await world.call("steer", session="alice", text=command)
    accepted = await world.call("steer", session="alice", text="/etc/hosts is a file", run="k1")
    assert (accepted["run_id"], accepted["status"]) == ("k1", "accepted")
    await wait_all_tasks_blocked()
    worker.consume()
    worker.ignores_steers = True
    await world.begin("left")
    worker.finish("went on")
    await wait_all_tasks_blocked()
    with pytest.raises(Conflict, match="takes messages now"):  # it has ended and waits for the steer's answer
        await world.call("steer", session="alice", text="right")
    assert (await world.run("k1").wait()).text == "went on"


async def test_steers_reach_the_worker_in_the_order_of_their_arrival(world: World) -> None:
    worker = await world.hanging()
    world.store.hold_commits()
    texts = [f"text {number}" for number in range(5)]
    for text in texts:
        world.nursery.start_soon(world.send, text)
        await wait_all_tasks_blocked()
    assert worker.steers == []
    world.store.let_commit()
    await wait_all_tasks_blocked()
    assert worker.steers == texts


async def test_an_image_is_never_steered(world: World) -> None:
    worker = await world.hanging()
    run = await world.begin("say look", images=[{"data": "AA=="}])
    assert worker.steers == []
    worker.finish()
    assert (await run.wait()).text == "look"


@pytest.mark.parametrize("ignores", [False, True])
async def test_a_steer_at_the_very_moment_of_the_turns_end_is_not_lost(world: World, *, ignores: bool) -> None:
    worker = await world.hanging(run="first")
    worker.ignores_steers = ignores
    worker.finish("end")
    steered = await world.send("say late")
    with trio.fail_after(120):
        assert (await steered.wait()).text == "late"
    assert (await world.run("first").wait()).text == "end"
    world.assert_at_rest()


async def test_an_abort_of_a_collected_run_ends_that_run_alone_and_the_leaders_all(world: World) -> None:
    for number in range(4):
        await world.begin("hang", run=f"k{number}", queue="collect")
    world.launcher.slow = True
    world.launcher.running("hang").finish()
    await trio.sleep(5)  # what is collected waits for more
    await world.begin("left", run="steered")
    await world.call("abort", session="alice", run="k2")
    assert (await world.run("k2").wait()).reason == "interrupted"
    assert world.run("k1").is_live
    await world.call("abort", session="alice", run="k1")
    assert {(await world.run(key).wait()).reason for key in ("k1", "k3", "steered")} == {"interrupted"}
    world.assert_at_rest()


async def test_the_end_of_the_gateway_while_a_steer_is_under_way_leaves_it_told(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        worker = await world.hanging(run="first")
        worker.ignores_steers = True
        await world.begin("left", run="second")
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        outcome = await world.run("second").wait()
        assert error_of(outcome).code == "interrupted"
