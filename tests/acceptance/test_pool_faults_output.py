"""A real pool over workers that print what they should not: the caller ends once, the conversation goes on."""

from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from errors import ProtocolViolation, RequestTimeout, WorkerRefused
from tests.acceptance.hostile_pool import HASTY_RPC, QUICK_PINGS, RPC, TIME_LIMIT, hostile_pool, profile_of
from wire.units import ByteCount, Seconds

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]


@pytest.mark.parametrize(
    "behaviour", ["garbage", "garbage=99", "bad-utf8", "one-byte", "duplicate", "unknown-id", "line=1000000"]
)
async def test_a_worker_whose_output_can_be_passed_over_keeps_its_session(tmp_path: Path, behaviour: str) -> None:
    profile = profile_of(tmp_path, "--behaviour", behaviour)
    async with hostile_pool(tmp_path) as world:
        assert await world.say("s", profile, "one") == "echo: one"
        assert await world.say("s", profile, "two") == "echo: two | before: one"
        assert world.pool.statistics().counters.spawned == 1


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("garbage=5000", "(limit 100)"),
        ("half-line-eof", "closed its stdout"),
        ("close-stdout", "closed its stdout"),
        ("close-stdin", "closed its stdin"),
        ("endless-line", "over the limit of 67108864"),
    ],
)
async def test_a_worker_that_breaks_the_protocol_fails_its_turn_and_is_replaced(
    tmp_path: Path, behaviour: str, words: str
) -> None:
    profile = profile_of(
        tmp_path, "--behaviour", behaviour, "--behaviour", "ignore-eof", "--skip", "1", "--once", str(tmp_path / "once")
    )
    async with hostile_pool(tmp_path, **QUICK_PINGS) as world:
        await world.say("s", profile, "one")
        error = await world.fails("s", profile, "lost")
        assert isinstance(error, ProtocolViolation)
        assert words in str(error)
        answer = await world.say("s", profile, "two")
        assert answer.startswith("echo: two | before: one")
        assert world.exits == {"protocol": 1}


async def test_half_a_line_ends_the_turn_at_its_deadline_and_that_worker_is_never_used_again(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "half-line-stall", "--skip", "1", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path, rpc=HASTY_RPC) as world:
        await world.say("s", profile, "one")
        async with world.pool.lease("s", profile) as lease:
            with pytest.raises(RequestTimeout):
                await lease.prompt("lost", timeout=0.2).wait()
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")
        assert world.pool.statistics().counters.spawned == 2


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


async def test_a_worker_that_refuses_a_prompt_keeps_its_session_and_its_words_arrive(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "refuse")
    async with hostile_pool(tmp_path) as world:
        error = await world.fails("s", profile, "please")
        assert isinstance(error, WorkerRefused)
        assert "I would rather not" in str(error)
        assert isinstance(await world.fails("s", profile, "please"), WorkerRefused)
        assert world.pool.statistics().counters.spawned == 1


async def test_a_flood_at_a_slow_reader_is_held_back_in_the_worker_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    """Nor is the worker taken for dead, which can answer no ping meanwhile."""
    pieces, room, slowness = 50_000, 64 * 1024, 1.5
    pings = QUICK_PINGS | {"ping_timeout": Seconds(0.5)}
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
        async for batch in stream.batches():
            events += batch
        flood = [msgspec.json.decode(event.data)["partial"] for event in events if event.event == "assistant_message"]
        assert flood[-pieces:] == [f"{number} " for number in range(pieces)]
        assert stream.result is not None
        assert world.exits == {}
