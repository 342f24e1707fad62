"""What is kept of beats, and for how long."""

import trio

from heartbeat.beat_store import IN_PROGRESS_KIND, BeatStore
from heartbeat.ports import BeatRequest
from heartbeat.records import BeatInProgress
from heartbeat.wake import BeatTarget, WakeReason
from tests.heartbeat.house_around import EPOCH, MAIN, World

HERE = BeatTarget("main", MAIN)


def begun(*, has_failed: bool, at: float = EPOCH) -> BeatInProgress:
    request = BeatRequest(session=MAIN, agent="main", run_id="beat-1-0", text="[SYSTEM] one")
    return BeatInProgress(
        subject="beat-1", reason=WakeReason.EXEC, request=request, at=at, events=("e1",), has_failed=has_failed
    )


async def read_again(world: World, wall: float) -> BeatStore:
    book = BeatStore(world)
    await book.load(wall)
    return book


async def test_a_begun_beat_is_known_to_the_next_life_however_late_it_comes() -> None:
    world = World()
    await BeatStore(world).save_in_progress(begun(has_failed=False))
    book = await read_again(world, EPOCH + 10 * 86_400)
    assert book.in_progress(HERE) == begun(has_failed=False)


async def test_the_number_of_a_failed_attempt_is_known_for_a_day() -> None:
    world = World()
    await BeatStore(world).save_in_progress(begun(has_failed=True))
    assert (await read_again(world, EPOCH + 86_000)).all_in_progress() == [begun(has_failed=True)]
    assert (await read_again(world, EPOCH + 87_000)).all_in_progress() == []
    assert world.disk.documents[IN_PROGRESS_KIND] == {}


async def test_forgetting_what_was_never_begun_writes_nothing() -> None:
    world = World()
    BeatStore(world).delete_in_progress(HERE)
    await trio.lowlevel.checkpoint()
    assert world.steps == 0


def test_pauses_that_are_over_are_not_kept() -> None:
    book = BeatStore(World())
    book.save_pause(BeatTarget("main", "alice"), EPOCH + 300, EPOCH)
    book.save_pause(BeatTarget("main", "bob"), EPOCH + 500, EPOCH + 200)
    assert book.agent_record("main").paused == {"alice": EPOCH + 300, "bob": EPOCH + 500}
    book.save_pause(BeatTarget("main", "carol"), EPOCH + 700, EPOCH + 400)
    assert book.agent_record("main").paused == {"bob": EPOCH + 500, "carol": EPOCH + 700}
