"""A real pool over workers that die, hang and print what they should not: one turn fails, each conversation goes on."""

import os
import re
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from errors import ProtocolViolation, RequestTimeout, ResumeFailed, WorkerExited, WorkerRefused, WorkerStalled
from pool.stimuli import ForgetSession
from rpc.settings import RpcSettings
from tests.acceptance.hostile_pool import (
    HASTY_RPC,
    IMPATIENT_PINGS,
    QUICK_PINGS,
    RPC,
    TIME_LIMIT,
    HostilePool,
    hostile_pool,
    profile_of,
    until_suspended,
)
from wire.units import ByteCount, Seconds

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]

STALL = {"turn_stall": 0.3, "ping_timeout": 0.2}
PINGS: dict[str, float] = {"ping_failures": 2}
BREAKS_OFF = "--behaviour ignore-eof --skip 1"
Row = tuple[str, dict[str, float], type[Exception], str, str]
FAULTS: list[Row] = [
    # five requests are served well: get_state twice, new_session, get_state and a prompt
    ("exit-before-read --skip 5 --exit-code 7", {}, WorkerExited, "exited with code 7", "crashed"),
    ("exit-after-read --skip 1 --exit-code -9", {}, WorkerExited, "killed by signal 9", "crashed"),
    ("half-line-exit --skip 1 --exit-code 7", {}, WorkerExited, "exited with code 7", "crashed"),
    (f"garbage=5000 {BREAKS_OFF}", {}, ProtocolViolation, "(limit 100)", "protocol"),
    (f"half-line-eof {BREAKS_OFF}", {}, ProtocolViolation, "closed its stdout", "protocol"),
    (f"close-stdout {BREAKS_OFF}", {}, ProtocolViolation, "closed its stdout", "protocol"),
    (f"close-stdin {BREAKS_OFF}", {}, ProtocolViolation, "closed its stdin", "protocol"),
    (f"endless-line {BREAKS_OFF}", {}, ProtocolViolation, "over the limit of 67108864", "protocol"),
    # the worker has said that the run is done, answers pings or not, and keeps the answer to itself
    ("no-answer --skip 1", STALL, WorkerStalled, "silent for 0.3 s", "stalled"),
    ("half-line-stall --skip 1", STALL, WorkerStalled, "silent for 0.3 s", "stalled"),
    ("suspend --skip 1", PINGS, WorkerStalled, "it is suspended by a signal", "unresponsive"),
    ("ignore-pings", PINGS, WorkerStalled, "pings in a row unanswered", "unresponsive"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[row[0] for row in FAULTS])
async def test_a_worker_that_fails_in_its_turn_fails_that_turn_alone_and_is_replaced(
    tmp_path: Path, fault: Row
) -> None:
    behaviour, times, error, words, cause = fault
    profile = profile_of(tmp_path, *f"--behaviour {behaviour} --once {tmp_path}/once".split())
    pings = IMPATIENT_PINGS if times == PINGS else QUICK_PINGS
    if behaviour.startswith("exit-before-read"):
        pings = {}  # a ping on a busy machine would be one of the requests that it counts
    async with hostile_pool(tmp_path, max=3, **pings) as world:
        await world.say("s", profile, "one")
        await world.say("other", profile_of(tmp_path), "o1")
        async with world.pool.lease("s", profile) as lease:
            stream = lease.prompt("wait" if behaviour == "ignore-pings" else "lost")
            if times == PINGS:
                await stream.next_batch()
            if behaviour.startswith("suspend"):
                await until_suspended(world.pid_of("s"))
            if times:
                world.hurry(world.life_of("s"), **times)
            with pytest.raises(error, match=re.escape(words)) as failed:
                await stream.wait()
            assert getattr(failed.value, "sent", True)
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")
        assert await world.say("other", profile_of(tmp_path), "o2") == "echo: o2 | before: o1"
        assert world.exits == {cause: 1}


@pytest.mark.parametrize(
    "behaviour", ["garbage", "garbage=99", "bad-utf8", "one-byte", "duplicate", "unknown-id", "line=1000000"]
)
async def test_a_worker_whose_output_can_be_passed_over_keeps_its_session(tmp_path: Path, behaviour: str) -> None:
    profile = profile_of(tmp_path, "--behaviour", behaviour)
    async with hostile_pool(tmp_path) as world:
        assert await world.say("s", profile, "one") == "echo: one"
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert world.pool.statistics().counters.spawned == 1


# --- between two turns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [
        "exit-after-read --on get_state --skip 1",  # the first get_state is that of the start
        "refuse --on get_state --skip 1",
        "no-answer --on new_session",
        *(f"{how} --on switch_session" for how in ("exit-after-read", "wrong-session", "no-answer", "refuse")),
    ],
)
async def test_a_worker_that_fails_at_a_reset_or_a_resume_is_replaced_and_the_caller_sees_nothing_of_it(
    tmp_path: Path, behaviour: str
) -> None:
    profile = profile_of(tmp_path, *f"--behaviour {behaviour} --once {tmp_path}/once".split())

    never_answered = {"no-answer --on new_session": "a1", "no-answer --on switch_session": "a2"}.get(behaviour)
    async with hostile_pool(tmp_path, max=1) as world:
        for answer in ("echo: a1", "echo: b1", "echo: a2 | before: a1", "echo: b2 | before: b1"):
            text = answer.split()[1]
            async with AsyncExitStack() as stack:
                if text == never_answered:
                    await stack.enter_async_context(world.limit_until_exit("reset_timeout", 0.5))
                assert await world.say(text[0], profile, text) == answer
        assert len(world.events.named("worker_exited")) == 1


async def test_a_worker_that_says_it_has_resumed_a_session_and_has_not_is_never_granted(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "wrong-session")
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        assert isinstance(await world.fails("alice", profile, "a2"), ResumeFailed)
        await world.events.wait_for("worker_exited", 2)
        assert world.exits == {"resume": 2}
        assert await world.say("carol", profile, "c1") == "echo: c1"
        world.pool.submit(ForgetSession("alice"))
        assert await world.say("alice", profile, "again") == "echo: again"


def kill(world: HostilePool) -> None:
    os.kill(world.pid_of("s"), signal.SIGKILL)


def suspend(world: HostilePool) -> None:
    os.kill(world.pid_of("s"), signal.SIGSTOP)
    world.hurry(world.life_of("s"), ping_failures=2)


def leave_pings(world: HostilePool) -> None:
    world.hurry(world.life_of("s"), ping_failures=2)


@pytest.mark.parametrize(
    ("behaviour", "harm", "words", "cause"),
    [
        ("", kill, "killed by signal 9", "crashed"),
        ("", suspend, "it is suspended by a signal", "unresponsive"),
        ("ignore-pings", leave_pings, r"left \d+ pings in a row unanswered; its process is alive", "unresponsive"),
    ],
)
async def test_an_idle_worker_that_is_lost_costs_its_session_nothing(
    tmp_path: Path, behaviour: str, harm: Callable[[HostilePool], None], words: str, cause: str
) -> None:
    flags = ("--behaviour", behaviour, "--once", str(tmp_path / "once")) if behaviour else ()
    profile = profile_of(tmp_path, *flags)
    async with hostile_pool(tmp_path, **IMPATIENT_PINGS) as world:
        await world.say("s", profile, "one")
        await world.say("other", profile, "o1")
        harm(world)
        exited = await world.events.wait_for("worker_exited")
        assert re.search(words, exited["error"])
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert await world.say("other", profile, "o2") == "echo: o2 | before: o1"
        assert world.exits == {cause: 1}


async def test_a_worker_that_exits_at_a_ping_is_replaced_before_anybody_asks_for_it(tmp_path: Path) -> None:
    now = tmp_path / "now"
    flags = f"--behaviour exit-after-read --on ping --while {now} --once {tmp_path}/once"
    profile = profile_of(tmp_path, *flags.split())
    async with hostile_pool(tmp_path, **QUICK_PINGS) as world:
        await world.say("s", profile, "one")
        now.touch()
        await world.events.wait_for("worker_ready", 2)
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert world.pool.statistics().counters.spawned == 2


async def test_the_answer_of_a_worker_that_exits_right_after_it_always_arrives(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "exit-after-answer")
    async with hostile_pool(tmp_path) as world:
        for number, before in enumerate(("", " | before: p0", " | before: p0, p1")):
            assert await world.say("s", profile, f"p{number}") == f"echo: p{number}{before}"
            await world.events.wait_for("worker_exited", number + 1)
        assert world.exits == {"crashed": 3}


# --- another model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [("refuse", WorkerRefused, "I would rather not"), ("no-answer", RequestTimeout, "set_model")],
)
async def test_a_model_that_cannot_be_set_fails_the_request_and_leaves_the_session_alone(
    tmp_path: Path, behaviour: str, error: type[Exception], words: str
) -> None:
    flags = ["--behaviour", behaviour, "--on", "set_model"]
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("s", profile_of(tmp_path, *flags, provider="p", model="small"), "one")
        if behaviour == "no-answer":
            client = world.life_of("s").worker.client
            client.settings = msgspec.structs.replace(client.settings, request_timeout=Seconds(0.3))
        failed = await world.fails("s", profile_of(tmp_path, *flags, provider="p", model="big"), "lost")
        assert (type(failed), words in str(failed)) == (error, True)
        assert world.pool.statistics().counters.active == 0


async def test_an_exit_while_the_model_is_changed_is_no_failure_of_the_session(tmp_path: Path) -> None:
    flags = f"--behaviour exit-after-read --on set_model --once {tmp_path}/once".split()
    async with hostile_pool(tmp_path) as world:
        await world.say("s", profile_of(tmp_path, *flags, provider="p", model="small"), "one")
        async with world.pool.lease("s", profile_of(tmp_path, *flags, provider="p", model="big")) as lease:
            assert b'"model":"big"' in bytes(await lease.request("get_state"))
            assert (await lease.prompt("two").wait()).text == "echo: two | before: one"


# --- a turn that is ended, or refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("behaviour", "rpc", "spawned"), [("", RPC, 1), ("half-line-stall", HASTY_RPC, 2)])
async def test_a_turn_with_a_limit_is_aborted_at_it_and_a_worker_that_cannot_abort_is_never_used_again(
    tmp_path: Path, behaviour: str, rpc: RpcSettings, spawned: int
) -> None:
    flags = f"--behaviour {behaviour} --skip 1 --once {tmp_path}/once".split() if behaviour else []
    profile = profile_of(tmp_path, *flags)
    async with hostile_pool(tmp_path, rpc=rpc) as world:
        await world.say("s", profile, "one")
        async with world.pool.lease("s", profile) as lease:
            with pytest.raises(RequestTimeout):
                await lease.prompt("wait", timeout=0.2).wait()
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")
        assert world.pool.statistics().counters.spawned == spawned


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


async def test_a_worker_that_refuses_a_prompt_keeps_its_session_and_its_words_arrive(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "refuse")
    async with hostile_pool(tmp_path) as world:
        for _ in range(2):
            error = await world.fails("s", profile, "please")
            assert (type(error), "I would rather not" in str(error)) == (WorkerRefused, True)
        assert world.pool.statistics().counters.spawned == 1


async def test_two_callers_of_one_session_share_its_worker_and_the_one_told_busy_harms_nobody(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path) as world, world.pool.lease("s", profile) as lease:
        stream = lease.prompt("wait")
        await stream.next_batch()
        assert "a run is in progress" in str(await world.fails("s", profile, "me too"))
        await lease.steer("go on")
        assert (await stream.wait()).text == "go on"
        assert world.exits == {}


# --- slow pipes -------------------------------------------------------------------------------------------------------


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


async def test_an_answer_that_comes_when_its_caller_has_left_reaches_nobody_else(tmp_path: Path) -> None:
    """Alice's answer is held back until a request of bob, who has the same worker by then."""
    profile = profile_of(tmp_path, "--behaviour", "late-answer", "--on", "get_messages")
    async with hostile_pool(tmp_path, max=1) as world:
        async with world.pool.lease("alice", profile) as lease:
            await lease.prompt("secret").wait()
            async with trio.open_nursery() as callers:
                callers.start_soon(lease.request, "get_messages")
                await trio.testing.wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
            assert callers.cancel_scope.cancelled_caught
        async with world.pool.lease("bob", profile) as lease:
            assert (await lease.prompt("mine").wait()).text == "echo: mine"
            assert lease._worker.client.statistics().late_answers == 1
        assert await world.say("alice", profile, "again") == "echo: again | before: secret"
        assert world.pool.statistics().counters.spawned == 1


async def test_a_flood_at_a_slow_reader_is_held_back_in_the_worker_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    """Nor is the worker taken for dead, which can answer no ping meanwhile."""
    pieces, room, slowness = 50_000, 64 * 1024, 1.0
    pings: dict[str, Any] = QUICK_PINGS | {"ping_timeout": Seconds(0.3)}
    profile, other = profile_of(tmp_path, "--behaviour", f"flood={pieces}"), profile_of(tmp_path)
    rpc = msgspec.structs.replace(RPC, subscriber_bytes=ByteCount(room))
    async with hostile_pool(tmp_path, rpc=rpc, **pings) as world, world.pool.lease("s", profile) as lease:
        stream = lease.prompt("flood")
        events = await stream.next_batch() or []
        assert await world.say("other", other, "not held up") == "echo: not held up"
        client, life = lease._worker.client, world.life_of("s")
        while not client.statistics().backpressured:  # noqa: ASYNC110  # nothing tells of it
            await trio.sleep(0.01)
        world.hurry(life, ping_failures=life.health.failures + 2)
        await trio.sleep(slowness)
        taken = client.statistics()
        assert taken.backpressured
        assert taken.bytes_in < room + 1024 * 1024
        world.hurry(life)
        while (batch := await stream.next_batch()) is not None:
            events += batch
        flood = [msgspec.json.decode(event.data)["partial"] for event in events if event.event == "assistant_message"]
        assert flood[-pieces:] == [f"{number} " for number in range(pieces)]
        assert stream.result is not None
        assert world.exits == {}
