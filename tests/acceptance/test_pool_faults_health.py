"""A real pool over workers that live and do not answer: each is told apart, replaced, and its session goes on."""

import os
import re
import signal
from pathlib import Path

import msgspec
import pytest
import trio

from errors import RequestTimeout, WorkerRefused, WorkerStalled
from tests.acceptance.hostile_pool import (
    IMPATIENT_PINGS,
    QUICK_PINGS,
    TIME_LIMIT,
    hostile_pool,
    profile_of,
    until_suspended,
)
from wire.units import Seconds

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]


async def test_an_idle_worker_that_answers_no_ping_is_replaced_before_anybody_asks_for_it(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "ignore-pings", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path, **IMPATIENT_PINGS) as world:
        await world.say("s", profile, "one")
        world.hurry(world.life_of("s"), ping_failures=2)
        exited = await world.events.wait_for("worker_exited")
        left = re.search(r"left (\d+) pings in a row unanswered; its process is alive", exited["error"])
        assert left is not None
        assert int(left[1]) >= 2
        await world.events.wait_for("worker_ready", 2)
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert world.exits == {"unresponsive": 1}


async def test_a_worker_that_answers_no_ping_in_a_turn_fails_that_turn_with_the_reason(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "ignore-pings", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path, **IMPATIENT_PINGS) as world:
        await world.say("s", profile, "one")
        async with world.pool.lease("s", profile) as lease:
            stream = lease.prompt("wait")
            await stream.next_batch()
            world.hurry(world.life_of("s"), ping_failures=2)
            with pytest.raises(WorkerStalled, match="pings in a row unanswered"):
                await stream.wait()
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")


async def test_a_suspended_worker_is_recognised_as_such_and_replaced_while_others_are_served(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, **IMPATIENT_PINGS) as world:
        await world.say("s", profile, "one")
        await world.say("other", profile, "o1")
        os.kill(world.pid_of("s"), signal.SIGSTOP)
        await until_suspended(world.pid_of("s"))
        assert [worker.session for worker in world.pool.statistics().workers if worker.suspended] == ["s"]
        assert await world.say("other", profile, "o2") == "echo: o2 | before: o1"
        world.hurry(world.life_of("s"), ping_failures=2)
        exited = await world.events.wait_for("worker_exited")
        assert "it is suspended by a signal" in exited["error"]
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert world.exits == {"unresponsive": 1}


async def test_a_worker_that_suspends_itself_in_a_turn_fails_that_turn_with_the_reason(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "suspend", "--skip", "1", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path, **IMPATIENT_PINGS) as world:
        await world.say("s", profile, "one")
        async with world.pool.lease("s", profile) as lease:
            stream = lease.prompt("lost")
            await stream.next_batch()
            await until_suspended(world.pid_of("s"))
            world.hurry(world.life_of("s"), ping_failures=2)
            with pytest.raises(WorkerStalled, match="it is suspended by a signal"):
                await stream.wait()
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")


async def test_a_turn_that_is_silent_for_too_long_is_aborted_and_its_worker_goes_on(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, **QUICK_PINGS) as world:
        async with world.pool.lease("s", profile) as lease:
            stream = lease.prompt("wait")
            await stream.next_batch()
            world.hurry(world.life_of("s"), turn_stall=0.3)
            assert (await stream.wait()).stop_reason == "aborted"
            world.hurry(world.life_of("s"))
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: wait")
        assert world.exits == {}


@pytest.mark.parametrize("behaviour", ["no-answer", "half-line-stall"])
async def test_a_turn_that_never_gets_its_answer_ends_even_so(tmp_path: Path, behaviour: str) -> None:
    """The worker has said that the run is done, answers pings or not, and keeps the answer to itself."""
    profile = profile_of(tmp_path, "--behaviour", behaviour, "--skip", "1", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path, **QUICK_PINGS) as world:
        await world.say("s", profile, "one")
        world.hurry(world.life_of("s"), turn_stall=0.3, ping_timeout=0.2)
        error = await world.fails("s", profile, "lost")
        assert isinstance(error, WorkerStalled)
        assert "silent for 0.3 s" in str(error)
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")
        assert world.exits == {"stalled": 1}


async def test_a_model_that_is_refused_fails_the_request_in_the_workers_words_and_leaves_the_session_alone(
    tmp_path: Path,
) -> None:
    flags = ["--behaviour", "refuse", "--on", "set_model"]
    small = profile_of(tmp_path, *flags, provider="p", model="small")
    big = profile_of(tmp_path, *flags, provider="p", model="big")
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("s", small, "one")
        error = await world.fails("s", big, "lost")
        assert isinstance(error, WorkerRefused)
        assert "I would rather not" in str(error)
        assert world.exits == {}
        assert world.pool.statistics().counters.active == 0


async def test_a_model_change_that_gets_no_answer_fails_the_request_at_its_deadline(tmp_path: Path) -> None:
    flags = ["--behaviour", "no-answer", "--on", "set_model"]
    small = profile_of(tmp_path, *flags, provider="p", model="small")
    big = profile_of(tmp_path, *flags, provider="p", model="big")
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("s", small, "one")
        client = world.life_of("s").worker.client
        client.settings = msgspec.structs.replace(client.settings, request_timeout=Seconds(0.3))
        error = await world.fails("s", big, "lost")
        assert isinstance(error, RequestTimeout)
        assert "set_model" in str(error)


async def test_a_turn_with_a_limit_is_aborted_at_it_and_its_worker_goes_on(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path) as world:
        async with world.pool.lease("s", profile) as lease:
            with pytest.raises(RequestTimeout):
                await lease.prompt("wait", timeout=0.2).wait()
        assert (await world.say("s", profile, "two")).startswith("echo: two")
        assert world.exits == {}


async def test_a_worker_that_stops_reading_holds_up_nobody_but_its_own_caller(tmp_path: Path) -> None:
    """More is sent to it than its pipe takes."""
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, **QUICK_PINGS) as world:
        await world.say("s", profile, "one")
        await world.say("other", profile, "o1")
        os.kill(world.pid_of("s"), signal.SIGSTOP)
        told: list[str] = []

        async def send_much() -> None:
            told.append(str(await world.fails("s", profile, "x" * 4_000_000)))

        async with trio.open_nursery() as callers:
            callers.start_soon(send_much)
            for number in range(10):
                await world.say("other", profile, f"{number}")
            assert not told
            world.hurry(world.life_of("s"), turn_stall=0.4, ping_timeout=0.2)
        assert "silent for 0.4 s" in told[0]
        assert await world.say("s", profile, "two") == "echo: two | before: one"
