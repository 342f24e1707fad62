"""What a session is told with its next turn: how it comes in, and which turn tells it."""

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from tests.gateway.telling import BUILT, end_command, inject, pending
from tests.gateway.world import WholeStore, World, open_world

# --- ends of commands -------------------------------------------------------------------------------------------------


async def test_the_end_of_a_command_between_two_turns_is_told_once_and_with_the_next_turn(world: World) -> None:
    await world.ask("background")
    await world.events()
    end_command(world.launcher.workers[0])
    queued, told = await world.events("exec_exit", "system_event")
    assert (told["type"], told["session"], told["channel"]) == ("exec_exit", "alice", "monitor")
    assert told["data"] == {"session_id": "calm-fox", "summary": BUILT, "worker": "w1", "exit_code": 0}
    (event,) = (await world.call("events.peek", session="alice"))["events"]
    assert (event["kind"], event["text"], event["context"]) == ("exec", BUILT, "exec:calm-fox:exit")
    assert (queued["type"], queued["data"]["id"]) == ("system_event", event["id"])
    await world.ask("what now?")
    await world.ask("and now?")
    assert world.launcher.prompts == ["background", f"[SYSTEM] {BUILT}\n\nwhat now?", "and now?"]
    assert await pending(world) == []


async def test_the_end_of_a_command_within_a_turn_is_told_once_and_with_the_next_turn(world: World) -> None:
    worker = await world.hanging()
    end_command(worker)
    ends = [event["type"] for event in await world.events() if "exec" in event["type"]]
    assert ends == ["exec_exit"]
    worker.finish()
    await world.ask("what now?")
    assert world.launcher.prompts[1] == f"[SYSTEM] {BUILT}\n\nwhat now?"
    assert len(await world.events("exec_exit")) == 0


async def test_a_command_without_a_word_about_its_end_is_named(world: World) -> None:
    await world.ask("hello")
    end_command(world.launcher.workers[0], "  ", session_id="x" * 300)
    await wait_all_tasks_blocked()
    assert await pending(world) == [f"Exec ended ({'x' * 256})"]


async def test_what_a_worker_says_of_an_end_is_cut(world: World) -> None:
    await world.ask("hello")
    end_command(world.launcher.workers[0], "y" * 100_000, exit_code=None, signal="S" * 300)
    (told,) = await world.events("exec_exit")
    assert (len(told["data"]["summary"]), len(told["data"]["signal"])) == (2_000, 256)
    assert await pending(world) == ["y" * 2_000]


async def test_the_end_of_a_command_of_a_conversation_that_is_over_is_told_nobody_but_those_who_watch(
    world: World,
) -> None:
    await world.ask("hello")
    worker, old = world.launcher.workers[0], world.launcher.workers[0].file
    await world.ask("/new")
    await world.ask("hello again")
    end_command(worker, session_key=old)
    (told,) = await world.events("exec_exit")
    assert told["session"] == ""
    assert await pending(world) == []


@pytest.mark.parametrize(
    ("names", "commands", "what"),
    [
        ({}, 1, "a background command"),
        ({}, 2, "2 background commands"),
        ({"names": ["calm-fox", "brave-owl"]}, 2, "calm-fox, brave-owl"),
    ],
)
async def test_a_worker_that_dies_tells_of_the_commands_that_die_with_it(
    world: World, names: dict[str, list[str]], commands: int, what: str
) -> None:
    await world.ask("hello")
    worker = world.launcher.workers[0]
    worker.tell("background", running=commands, **names)
    worker.die()
    (told,) = await world.events("exec_lost")
    reason = "worker w1 killed by signal 9"
    facts = {"worker": "w1", "commands": commands, **names, "reason": reason}
    assert (told["session"], told["data"]) == ("alice", facts)
    assert await pending(world) == [f"Exec failed ({what}) :: ended with what it ran on: {reason}"]


async def test_commands_that_end_with_the_supervisor_are_told_in_its_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("background")
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        (text,) = await pending(world)
        assert text.endswith("worker w1 was stopped (closed)")


KILLED = "ended with what it ran on: the supervisor was killed, and its workers with it"


async def test_commands_that_are_killed_with_the_supervisor_are_told_once_in_its_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello")
        world.launcher.workers[0].tell("background", running=2, names=["calm-fox", "brave-owl"])
        await world.ask("hello", session="bob")
        killed = store.after_a_crash()
    async with open_world(tmp_path, store=killed) as world:
        assert await pending(world) == [f"Exec failed (calm-fox, brave-owl) :: {KILLED}"]
        assert await pending(world, "bob") == []
        await world.ask("what now?")
        again = killed.after_a_crash()
    async with open_world(tmp_path, store=again) as world:
        assert await pending(world) == []


@pytest.mark.parametrize("how", ["ended", "reset", "deleted", "worker died", "worker changed"])
async def test_commands_that_are_over_are_not_told_as_killed(
    tmp_path: Path, autojump_clock: MockClock, how: str
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello")
        worker = world.launcher.workers[0]
        worker.tell("background", running=1, names=["calm-fox"])
        await wait_all_tasks_blocked()
        match how:
            case "ended":
                worker.tell("exec_exit", session_id="calm-fox", summary="it ended", session_key=worker.file)
            case "reset":
                await world.call("sessions.reset", session="alice", force=True)
            case "deleted":
                await world.call("sessions.delete", session="alice")
            case "worker died":
                worker.die()
            case _:
                await world.ask("/new force")
                worker.tell("background", running=2, names=["calm-fox", "brave-owl"])
        await wait_all_tasks_blocked()
        await world.ask("what now?")
        killed = store.after_a_crash()
    async with open_world(tmp_path, store=killed) as world:
        assert [text for text in await pending(world) if KILLED in text] == []


# --- which turn tells it ----------------------------------------------------------------------------------------------


async def test_a_turn_tells_all_that_waits_in_the_order_of_its_coming(world: World) -> None:
    await inject(world, "the bell\nrang")
    await inject(world, "it is five", kind="cron")
    await inject(world, "for another", "bob")
    assert (await world.ask("hello")).status == "ok"
    assert world.launcher.prompts == ["[SYSTEM] the bell rang\n[SYSTEM] it is five\n\nhello"]
    assert (await pending(world), await pending(world, "bob")) == ([], ["for another"])


async def test_what_comes_while_a_turn_runs_is_for_the_next_one(world: World) -> None:
    await inject(world, "before")
    worker = await world.hanging()
    await inject(world, "meanwhile")
    assert await pending(world) == ["before", "meanwhile"]
    worker.finish()
    await wait_all_tasks_blocked()
    assert await pending(world) == ["meanwhile"]
    await world.ask("next")
    assert world.launcher.prompts[1] == "[SYSTEM] meanwhile\n\nnext"


async def test_a_steer_tells_nothing(world: World) -> None:
    worker = await world.hanging()
    await inject(world, "meanwhile")
    await world.begin("left")
    assert worker.steers == ["left"]
    worker.consume()
    worker.finish()
    await wait_all_tasks_blocked()
    assert await pending(world) == ["meanwhile"]


async def test_a_hold_is_told_too(world: World) -> None:
    hold = (await world.call("acquire", session="alice"))["hold"]
    await inject(world, "the bell rang")
    await world.call("prompt", text="hello", hold=hold)
    assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhello"]
    assert await pending(world) == []


@pytest.mark.parametrize(
    "message", [{"text": "/skill tidy"}, {"text": "", "tool_results": [{"tool_use_id": "t1", "content": "7"}]}]
)
async def test_what_must_reach_the_agent_as_it_is_tells_nothing_else(world: World, message: dict[str, Any]) -> None:
    await inject(world, "the bell rang")
    assert (await world.ask(session="alice", **message)).status == "ok"
    assert world.launcher.prompts == [message["text"]]
    assert await pending(world) == ["the bell rang"]


async def test_an_image_without_a_word_is_told_with_the_events_alone(world: World) -> None:
    await inject(world, "the bell rang")
    await world.ask("", images=[{"data": "AA=="}])
    assert world.launcher.prompts == ["[SYSTEM] the bell rang"]


# --- injecting --------------------------------------------------------------------------------------------------------


async def test_an_injected_event_is_answered_with_all_that_is_known_of_it(world: World) -> None:
    answer = await inject(world, " the bell rang ", kind="channel")
    event = answer["event"]
    assert event == {**event, "session": "alice", "kind": "channel", "text": "the bell rang"}
    assert (await world.call("events.peek", session="alice"))["events"] == [event]


async def test_the_same_again_is_no_event(world: World) -> None:
    await inject(world, "the bell rang")
    assert (await inject(world, "the bell rang"))["event"] is None
    assert await pending(world) == ["the bell rang"]
    assert len(await world.events("system_event")) == 1


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_nothing_is_no_event(world: World, text: str) -> None:
    with pytest.raises(UsageError, match="the text is empty"):
        await inject(world, text)


@pytest.mark.parametrize("method", ["events.inject", "events.peek"])
async def test_what_is_no_session_key_is_refused(tmp_path: Path, autojump_clock: MockClock, method: str) -> None:
    more = {"text": "x"} if method == "events.inject" else {}
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match=r"session key|\*"):
            await world.call(method, session="*", **more)


async def test_a_session_that_does_not_exist_yet_is_told_with_its_first_turn(world: World) -> None:
    await inject(world, "the bell rang", "nobody yet")
    await world.ask("hello", "nobody yet")
    assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhello"]
