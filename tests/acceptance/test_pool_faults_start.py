"""A real pool whose workers cannot start, or resume no session: a clear error, and no other session suffers."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from errors import AcquireTimeout, PoolError, ProfileBroken, ResumeFailed, WorkerStartFailed
from pool.stimuli import ForgetSession, SessionKnown
from profiles import CapabilityProfile
from tests.acceptance.hostile_pool import TIME_LIMIT, HostilePool, hostile_pool, no_room_for_descriptors, profile_of
from wire.units import Seconds

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]


async def broken_beside_a_good_one(
    world: HostilePool, good: CapabilityProfile, bad: CapabilityProfile, *, short: str = ""
) -> str:
    """The words that the bad profile's caller is told; the good profile is used before, meanwhile and after.

    ``short``: the time of the pool that is 0.5 s, from when on the good worker serves. It must need no start or no
    reset meanwhile then: it could be held up.
    """
    told: list[str] = []
    meanwhile = ["good"] * 5 if short == "reset_timeout" else [f"good-{number}" for number in range(5)]

    async def ask_in_vain() -> None:
        error = await world.fails("bad", bad, "hello")
        assert isinstance(error, ProfileBroken)
        told.append(f"{error} / {error.stderr_tail}")

    await world.say("good", good, "before")
    if short:
        world.reconfigure(**{short: Seconds(0.5)})
    async with trio.open_nursery() as callers:
        callers.start_soon(ask_in_vain)
        for session in meanwhile:
            await world.say(session, good, "meanwhile")
    again = await world.fails("bad", bad, "again")
    assert isinstance(again, ProfileBroken)
    assert again.retry_after is not None
    said = ["before", *["meanwhile"] * meanwhile.count("good")]
    assert await world.say("good", good, "after") == f"echo: after | before: {', '.join(said)}"
    return told[0]


@pytest.mark.parametrize(
    ("behaviour", "short", "words"),
    [
        ("never-ready", "start_timeout", "not ready after 0.5 s"),
        ("never-reads", "reset_timeout", "did not finish the reset within 0.5 s"),
        ("close-stdout --on=get_state", "", "closed its stdout"),
    ],
)
async def test_a_profile_whose_workers_never_serve_is_broken_and_says_why(
    tmp_path: Path, behaviour: str, short: str, words: str
) -> None:
    bad = profile_of(tmp_path, "--stderr", "last words", "--behaviour", *behaviour.split())
    async with hostile_pool(tmp_path, max_per_profile=1, breaker_failures=2) as world:
        assert words in await broken_beside_a_good_one(world, profile_of(tmp_path), bad, short=short)
        assert len(world.events.named("breaker_opened")) == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "--no-such-flag"], "unknown option --no-such-flag"),
        ([sys.executable, "-c", "raise SystemExit('no key')"], "no key"),
        (["no-such-program"], "there is no program 'no-such-program' on PATH"),
        (["/no/such/program"], "there is no program /no/such/program"),
        (["/etc/passwd"], "/etc/passwd is not executable"),
    ],
)
async def test_a_program_that_cannot_be_run_or_ends_its_start_with_an_exit_code_is_told_after_one_start(
    tmp_path: Path, command: list[str], words: str
) -> None:
    async with hostile_pool(tmp_path, breaker_failures=2) as world:
        bad = profile_of(tmp_path, command=command)
        error = await world.fails("bad", bad, "hello")
        assert isinstance(error, WorkerStartFailed)
        assert words in f"{error} / {error.stderr_tail}"
        assert world.pool.statistics().counters.spawned == 1
        assert isinstance(await world.fails("bad", bad, "again"), WorkerStartFailed)
        assert isinstance(await world.fails("bad", bad, "once more"), ProfileBroken)
        assert await world.say("good", profile_of(tmp_path), "beside") == "echo: beside"


async def test_a_working_directory_that_is_gone_is_named_and_the_profile_works_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    place = tmp_path / "workspace"
    profile = profile_of(place)
    async with hostile_pool(tmp_path) as world:
        error = await world.fails("bad", profile, "hello")
        assert isinstance(error, WorkerStartFailed)
        assert f"working directory {place} does not exist" in str(error)
        place.mkdir()
        assert await world.say("bad", profile, "now") == "echo: now"


async def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a directory belongs")
    async with hostile_pool(tmp_path) as world:
        error = await world.fails("s", profile_of(tmp_path), "hello")
        assert isinstance(error, ProfileBroken)
        assert f"{tmp_path}/data" in str(error)


@pytest.mark.parametrize("behaviour", ["no-ready-line", "late-ready=0.3"])
async def test_a_worker_that_says_ready_late_or_never_and_answers_is_used(tmp_path: Path, behaviour: str) -> None:
    profile = profile_of(tmp_path, "--behaviour", behaviour)
    async with hostile_pool(tmp_path) as world:
        assert isinstance(await world.fails("hasty", profile, "now", timeout=0.02), AcquireTimeout)
        assert await world.say("patient", profile, "one") == "echo: one"
        assert world.pool.statistics().counters.spawned == 1


async def test_a_start_that_fails_once_costs_its_caller_only_time(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "never-ready", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path) as world, world.limit_until_exit("start_timeout", 0.5):
        assert await world.say("s", profile, "one") == "echo: one"
        assert world.exits == {"start": 1}


async def test_a_machine_without_free_descriptors_refuses_new_workers_in_clear_words_and_keeps_the_others(
    tmp_path: Path,
) -> None:
    profile, other = profile_of(tmp_path), profile_of(tmp_path, "--behaviour", "one-byte")
    async with hostile_pool(tmp_path, breaker_half_open=0.2) as world:
        await world.say("s", profile, "one")
        with no_room_for_descriptors():
            error = await world.fails("new", other, "hello")
            assert isinstance(error, ProfileBroken)
            assert "ulimit -n" in str(error)
            assert await world.say("s", profile, "two") == "echo: two | before: one"
        await world.events.wait_for("breaker_half_open")
        assert await world.say("new", other, "hello") == "echo: hello"


async def test_a_start_may_run_out_of_descriptors_at_any_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """With ever more room: for no pipe, for some, for all pipes but not for what tells the worker's end, for all."""
    profile = profile_of(tmp_path)
    outcomes: list[str] = []
    for spare in (0, 2, 4, 6, 7, 8, 9, 10, 11, 15):
        async with hostile_pool(tmp_path, breaker_failures=1) as world:
            held = [os.open(os.devnull, os.O_RDONLY) for _ in range(spare)]
            with no_room_for_descriptors():
                for descriptor in held:
                    os.close(descriptor)
                try:
                    outcomes.append(await world.say("s", profile, "hello"))
                except PoolError as exc:
                    outcomes.append(str(exc))
    assert "ulimit -n" in outcomes[0]
    assert outcomes[-1] == "echo: hello"
    assert all("ulimit -n" in outcome or outcome == "echo: hello" for outcome in outcomes), outcomes


# --- transcripts ------------------------------------------------------------------------------------------------------


def vanish(transcript: Path) -> None:
    transcript.unlink()


def become_garbage(transcript: Path) -> None:
    transcript.write_bytes(b"\x00\xff this is no transcript\n" * 3)


def become_empty(transcript: Path) -> None:
    transcript.write_bytes(b"")


def become_a_directory(transcript: Path) -> None:
    transcript.unlink()
    transcript.mkdir()


def become_a_loop(transcript: Path) -> None:
    transcript.unlink()
    transcript.symlink_to(transcript)


def become_a_fifo(transcript: Path) -> None:
    transcript.unlink()
    os.mkfifo(transcript)


DAMAGES = [vanish, become_garbage, become_empty, become_a_directory, become_a_loop, become_a_fifo]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_transcript_that_cannot_be_resumed_fails_its_session_until_that_is_forgotten(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1, breaker_failures=10) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        damage(world.transcript_of("alice"))
        error = await world.fails("alice", profile, "a2")
        assert (type(error), "alice" in str(error)) == (ResumeFailed, True)
        assert await world.say("bob", profile, "b2") == "echo: b2 | before: b1"
        world.pool.submit(ForgetSession("alice"))
        assert await world.say("alice", profile, "again") == "echo: again"


async def test_a_torn_last_line_is_mended_and_the_whole_turns_before_it_are_kept(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        with world.transcript_of("alice").open("ab") as transcript:
            transcript.write(b'{"type":"message","id":"torn","mess')
        assert await world.say("alice", profile, "a2") == "echo: a2 | before: a1"


async def test_a_resume_that_finds_no_free_descriptor_fails_in_clear_words_and_the_pool_goes_on(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1, breaker_half_open=0.2) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        with no_room_for_descriptors():
            error = await world.fails("alice", profile, "a2")
        assert isinstance(error, ResumeFailed | ProfileBroken)
        assert "Too many open files" in str(error)
        await world.events.wait_for("breaker_half_open")
        assert await world.say("bob", profile, "b2") == "echo: b2 | before: b1"


async def test_a_transcript_path_that_is_none_fails_its_own_session(tmp_path: Path) -> None:
    """The path is the worker's word, and so may be anything."""
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1) as world:
        world.pool.submit(SessionKnown("alice", "no\0path"))
        assert isinstance(await world.fails("alice", profile, "a1"), ResumeFailed)
        assert await world.say("bob", profile, "b1") == "echo: b1"
