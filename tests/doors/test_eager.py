"""A coroutine that is begun at once: what never waits costs nothing, what waits says so in time."""

import contextvars

import pytest
import trio

from doors.control.connection import run_eagerly

name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


class Waits:
    """Counts how often it was told of a first wait."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_what_never_waits_is_done_before_any_other_task_has_its_turn(nursery: trio.Nursery) -> None:
    others = Waits()

    async def take_a_turn() -> None:
        others()

    async def answer() -> str:
        return "42"

    waits = Waits()
    nursery.start_soon(take_a_turn)
    assert await run_eagerly(answer(), waits) == "42"
    assert (waits.count, others.count) == (0, 0)


async def test_the_first_wait_is_told_before_it_begins_and_no_other_is() -> None:
    told_before: list[bool] = []
    waits = Waits()

    async def answer() -> str:
        await trio.lowlevel.checkpoint()
        told_before.append(waits.count == 1)
        await trio.lowlevel.checkpoint()
        return "42"

    assert await run_eagerly(answer(), waits) == "42"
    assert told_before == [True]
    assert waits.count == 1


@pytest.mark.parametrize("waits_first", [False, True])
async def test_an_error_comes_out_as_it_is(*, waits_first: bool) -> None:
    async def fail() -> None:
        if waits_first:
            await trio.lowlevel.checkpoint()
        raise KeyError("nothing")

    with pytest.raises(KeyError, match="nothing"):
        await run_eagerly(fail(), Waits())


async def test_a_cancellation_reaches_it_and_may_be_caught_in_it(autojump_clock: trio.testing.MockClock) -> None:
    async def give_up() -> str:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
        return "gave up"

    assert await run_eagerly(give_up(), Waits()) == "gave up"
    with trio.move_on_after(5) as scope:
        await run_eagerly(trio.Event().wait(), Waits())
    assert scope.cancelled_caught


async def test_context_variables_stay_its_own_through_every_wait_and_reach_what_it_starts() -> None:
    seen: list[str] = []

    async def note() -> None:
        seen.append(name.get())

    async def answer() -> None:
        await note()
        name.set("alice")
        await trio.lowlevel.checkpoint()
        await note()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)
        await note()

    await run_eagerly(answer(), Waits())
    await note()
    assert seen == ["nobody", "alice", "alice", "alice", "nobody"]
