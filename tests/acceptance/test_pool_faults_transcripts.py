"""A real pool whose transcripts are damaged between two turns: that session is told, its neighbour is served."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from errors import ProfileBroken, ResumeFailed
from pool.stimuli import ForgetSession, SessionKnown
from tests.acceptance.hostile_pool import TIME_LIMIT, hostile_pool, no_room_for_descriptors, profile_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]


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


def tear(transcript: Path) -> None:
    transcript.write_bytes(transcript.read_bytes() + b'{"type":"message","id":"torn","mess')


@pytest.mark.parametrize(
    "damage", [vanish, become_garbage, become_empty, become_a_directory, become_a_loop, become_a_fifo]
)
async def test_a_transcript_that_cannot_be_resumed_fails_its_session_until_that_is_forgotten(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1, breaker_failures=10) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        damage(world.transcript_of("alice"))
        error = await world.fails("alice", profile, "a2")
        assert isinstance(error, ResumeFailed)
        assert "alice" in str(error)
        assert await world.say("bob", profile, "b2") == "echo: b2 | before: b1"
        world.pool.submit(ForgetSession("alice"))
        assert await world.say("alice", profile, "anew") == "echo: anew"


async def test_a_torn_last_line_is_mended_and_the_whole_turns_before_it_are_kept(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("alice", profile, "a1")
        await world.say("bob", profile, "b1")
        tear(world.transcript_of("alice"))
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
