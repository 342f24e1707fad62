"""A supervisor that stops says what it waits for, and waits for nothing that nobody uses."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateway.front_ends.front_end import attached
from tests.gateway.world import World, error_of, open_world


async def test_it_says_for_whose_turns_it_waits_and_how_to_end_them(world: World) -> None:
    await world.begin("hang", "bob")
    await world.begin("ask")
    await trio.sleep(3)
    told = (await world.call("shutdown"))["waits_for"]
    assert told == [
        "session bob: a turn on worker w1, 3 s so far",
        "session alice: a turn on worker w2, 3 s so far, which waits for a person (pool approve -s alice c1)",
    ]


@pytest.mark.world(workers=12)
async def test_of_many_turns_it_names_the_first(world: World) -> None:
    for number in range(12):
        await world.begin("hang", f"s{number}")
    await trio.sleep(5)  # so many workers are not started at once
    told = (await world.call("shutdown"))["waits_for"]
    assert (len(told), told[-1]) == (11, "and 2 more")


async def test_a_hold_that_nobody_uses_is_given_back_at_once_and_another_after_its_turn(world: World) -> None:
    await world.call("acquire", session="alice")
    hold = (await world.call("acquire", session="bob"))["hold"]
    answers: list[Any] = []

    async def prompt() -> None:
        answers.append(await world.call("prompt", text="hang", session="bob", hold=hold))

    world.nursery.start_soon(prompt)
    await wait_all_tasks_blocked()
    await world.call("shutdown")
    await wait_all_tasks_blocked()
    assert world.gateway.pool.statistics().pool.leased == 1
    world.launcher.running("hang").finish()
    assert await world.gateway.pool.drain(timeout=1)
    assert [answer["text"] for answer in answers] == ["done"]


async def test_a_front_end_with_a_worker_to_itself_gives_it_back_when_it_is_answered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with (
        open_world(tmp_path) as world,
        attached(world, None, arguments=["--no-session"]) as idle,
        attached(world, None, arguments=["--no-session"]) as busy,
    ):
        await busy.prompt("hang")
        await world.call("shutdown")
        await wait_all_tasks_blocked()
        assert idle.ended == {"attachment": idle.view["attachment"], "code": "pool_closed", "message": STOPPING}
        assert busy.ended is None
        world.launcher.running("hang").finish()
        assert await world.gateway.pool.drain(timeout=1)
        assert busy.answer(1)["result"]["text"] == "done"
        assert busy.ended == {"attachment": busy.view["attachment"], "code": "pool_closed", "message": STOPPING}


STOPPING = "the supervisor is stopping"


async def test_what_a_person_was_asked_is_closed_at_the_end_and_its_run_is_told_as_interrupted(world: World) -> None:
    run = await world.begin("ask")
    other = await world.begin("hang", "bob")
    await world.call("shutdown")
    assert not await world.gateway.pool.drain(timeout=1)
    await world.gateway.scheduler.end_turns_awaiting_person()
    outcome = await run.wait()
    assert (outcome.reason, error_of(outcome).code) == ("interrupted", "interrupted")
    assert world.gateway.pending_permissions.count == 0
    assert other.is_live


async def test_a_message_that_is_left_to_the_next_supervisor_is_shown_with_the_reason(world: World) -> None:
    await world.hanging()
    behind = await world.begin("behind", queue="followup")
    await world.call("shutdown")
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert behind.is_live
    why = "the supervisor is stopping; the next one begins it"
    view = await world.call("sessions.get", session="alice")
    assert (view["state"], view["waiting"], view["waits_for"]) == ("READY", 1, why)
    wait = (await world.call("explain", session="alice"))["wait"]
    assert (wait["why"], wait["needs"]) == ("1 message waits in the session", why)
