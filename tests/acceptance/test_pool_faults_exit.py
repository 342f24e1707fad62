"""A real pool over workers that end at any moment: one caller is told, nobody else notices, no turn is forgotten."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from errors import ResumeFailed, WorkerExited
from pool.stimuli import ForgetSession
from tests.acceptance.hostile_pool import POOL, QUICK_PINGS, TIME_LIMIT, HostilePool, hostile_pool, profile_of
from wire.messages import PromptResult
from wire.units import Seconds

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]

BEFORE_THE_SECOND_PROMPT = {"exit-before-read": "5", "exit-after-read": "1", "half-line-exit": "1"}
"""How many requests are served well: get_state twice, new_session, get_state and a prompt; or one prompt."""


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        ("exit-before-read", "7", "exited with code 7"),
        ("exit-after-read", "-9", "killed by signal 9"),
        ("half-line-exit", "7", "exited with code 7"),
    ],
)
async def test_an_exit_during_a_turn_fails_that_turn_and_the_session_goes_on_elsewhere(
    tmp_path: Path, behaviour: str, code: str, words: str
) -> None:
    good_until = ["--skip", BEFORE_THE_SECOND_PROMPT[behaviour], "--once", str(tmp_path / "once")]
    profile = profile_of(tmp_path, "--behaviour", behaviour, "--exit-code", code, *good_until)
    async with hostile_pool(tmp_path) as world:
        await world.say("s", profile, "one")
        error = await world.fails("s", profile, "lost")
        assert isinstance(error, WorkerExited)
        assert words in str(error)
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")
        assert world.exits == {"crashed": 1}


async def test_the_answer_of_a_worker_that_exits_right_after_it_always_arrives(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "exit-after-answer")
    async with hostile_pool(tmp_path) as world:
        said: list[str] = []
        for number in range(3):
            answer = await world.say("s", profile, f"p{number}")
            assert answer == f"echo: p{number}" + (f" | before: {', '.join(said)}" if said else "")
            said.append(f"p{number}")
            await world.events.wait_for("worker_exited", number + 1)
        assert world.exits == {"crashed": 3}


@asynccontextmanager
async def resets_given_up_soon(world: HostilePool, behaviour: str) -> AsyncIterator[None]:
    """Where they are never answered, until the worker is gone: the next one is good, and may be held up."""

    async def allow_the_usual_time_again() -> None:
        await world.events.wait_for("worker_exited")
        world.reconfigure(reset_timeout=POOL.reset_timeout)

    if behaviour == "no-answer":
        world.reconfigure(reset_timeout=Seconds(0.5))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(allow_the_usual_time_again)
        yield


@pytest.mark.parametrize(
    ("behaviour", "method"), [("exit-after-read", "get_state"), ("no-answer", "new_session"), ("refuse", "get_state")]
)
async def test_a_worker_that_fails_before_its_first_turn_is_replaced_and_the_caller_sees_nothing_of_it(
    tmp_path: Path, behaviour: str, method: str
) -> None:
    skip = {"new_session": "0", "get_state": "1"}[method]  # the first get_state is that of the start
    flags = ["--behaviour", behaviour, "--on", method, "--skip", skip, "--once", str(tmp_path / "once")]
    profile = profile_of(tmp_path, *flags)
    async with hostile_pool(tmp_path) as world:
        async with resets_given_up_soon(world, behaviour):
            assert await world.say("s", profile, "one") == "echo: one"
        assert world.exits in ({"reset": 1}, {"crashed": 1})


@pytest.mark.parametrize("behaviour", ["exit-after-read", "wrong-session", "no-answer", "refuse"])
async def test_a_worker_that_fails_to_resume_a_session_is_replaced_and_the_session_resumed_by_the_next(
    tmp_path: Path, behaviour: str
) -> None:
    once = str(tmp_path / "once")
    profile = profile_of(tmp_path, "--behaviour", behaviour, "--on", "switch_session", "--once", once)
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        async with resets_given_up_soon(world, behaviour):
            assert await world.say("alice", profile, "a2") == "echo: a2 | before: a1"
        assert await world.say("bob", profile, "b2") == "echo: b2 | before: b1"


async def test_a_worker_that_says_it_has_resumed_a_session_and_has_not_is_never_granted(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "wrong-session")
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        error = await world.fails("alice", profile, "a2")
        assert isinstance(error, ResumeFailed)
        await world.events.wait_for("worker_exited", 2)
        assert world.exits == {"resume": 2}
        assert await world.say("carol", profile, "c1") == "echo: c1"
        world.pool.submit(ForgetSession("alice"))
        assert await world.say("alice", profile, "anew") == "echo: anew"


async def test_an_exit_while_the_model_is_changed_is_no_failure_of_the_session(tmp_path: Path) -> None:
    flags = ["--behaviour", "exit-after-read", "--on", "set_model", "--once", str(tmp_path / "once")]
    small = profile_of(tmp_path, *flags, provider="p", model="small")
    big = profile_of(tmp_path, *flags, provider="p", model="big")
    async with hostile_pool(tmp_path) as world:
        await world.say("s", small, "one")
        async with world.pool.lease("s", big) as lease:
            state = bytes(await lease.request("get_state"))
            assert b'"model":"big"' in state
            assert (await lease.prompt("two").wait()).text == "echo: two | before: one"


async def test_a_worker_that_exits_at_a_ping_is_replaced_before_anybody_asks_for_it(tmp_path: Path) -> None:
    now, once = tmp_path / "now", tmp_path / "once"
    flags = ["--on", "ping", "--while", str(now), "--once", str(once)]
    profile = profile_of(tmp_path, "--behaviour", "exit-after-read", *flags)
    async with hostile_pool(tmp_path, **QUICK_PINGS) as world:
        await world.say("s", profile, "one")
        now.touch()
        await world.events.wait_for("worker_exited")
        await world.events.wait_for("worker_ready", 2)
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert world.pool.statistics().counters.spawned == 2


async def test_a_worker_killed_in_mid_turn_fails_that_turn_only_and_its_session_knows_the_earlier_turns(
    tmp_path: Path,
) -> None:
    profile = profile_of(tmp_path)
    outcomes: list[PromptResult | WorkerExited] = []
    async with hostile_pool(tmp_path) as world:
        await world.say("s", profile, "one")

        async def wait_in_vain() -> None:
            async with world.pool.lease("s", profile) as lease:
                stream = lease.prompt("wait")
                await stream.next_batch()
                running.set()
                try:
                    outcomes.append(await stream.wait())
                except WorkerExited as exc:
                    outcomes.append(exc)

        async with trio.open_nursery() as callers:
            running = trio.Event()
            callers.start_soon(wait_in_vain)
            await running.wait()
            await world.say("other", profile, "meanwhile")
            os.kill(world.pid_of("s"), signal.SIGKILL)
        (error,) = outcomes
        assert isinstance(error, WorkerExited)
        assert "killed by signal 9" in str(error)
        assert error.sent
        assert await world.say("other", profile, "still here") == "echo: still here | before: meanwhile"
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")


async def test_a_worker_killed_while_idle_costs_its_session_nothing(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path) as world:
        said: list[str] = []
        for number in range(2):
            await world.say("s", profile, f"p{number}")
            said.append(f"p{number}")
            os.kill(world.pid_of("s"), signal.SIGKILL)
            await world.events.wait_for("worker_exited", number + 1)
        assert await world.say("s", profile, "end") == f"echo: end | before: {', '.join(said)}"


async def test_two_callers_of_one_session_share_its_worker_and_the_one_told_busy_harms_nobody(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path) as world, world.pool.lease("s", profile) as lease:
        stream = lease.prompt("wait")
        await stream.next_batch()
        error = await world.fails("s", profile, "me too")
        assert "a run is in progress" in str(error)
        await lease.steer("go on")
        assert (await stream.wait()).text == "go on"
        assert world.exits == {}
