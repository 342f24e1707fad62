"""What is kept of beats, and for how long."""

import trio

from heartbeat.beat_store import BEGUN, BeatBook
from heartbeat.ports import BeatRequest
from heartbeat.records import Begun
from heartbeat.wake import Reason, Target
from tests.heartbeat.house_around import EPOCH, MAIN, World

HERE = Target("main", MAIN)


def begun(*, has_failed: bool, at: float = EPOCH) -> Begun:
    request = BeatRequest(session=MAIN, agent="main", run_id="beat-1-0", text="[SYSTEM] one")
    return Begun(subject="beat-1", reason=Reason.EXEC, request=request, at=at, events=("e1",), has_failed=has_failed)


async def read_again(world: World, wall: float) -> BeatBook:
    book = BeatBook(world)
    await book.load(wall)
    return book


async def test_a_begun_beat_is_known_to_the_next_life_however_late_it_comes() -> None:
    world = World()
    await BeatBook(world).keep_begun(begun(has_failed=False))
    book = await read_again(world, EPOCH + 10 * 86_400)
    assert book.begun(HERE) == begun(has_failed=False)


async def test_the_number_of_a_failed_attempt_is_known_for_a_day() -> None:
    world = World()
    await BeatBook(world).keep_begun(begun(has_failed=True))
    assert (await read_again(world, EPOCH + 86_000)).all_begun() == [begun(has_failed=True)]
    assert (await read_again(world, EPOCH + 87_000)).all_begun() == []
    assert world.disk.documents[BEGUN] == {}


async def test_forgetting_what_was_never_begun_writes_nothing() -> None:
    world = World()
    BeatBook(world).forget_begun(HERE)
    await trio.lowlevel.checkpoint()
    assert world.steps == 0


def test_pauses_that_are_over_are_not_kept() -> None:
    book = BeatBook(World())
    book.keep_pause(Target("main", "alice"), EPOCH + 300, EPOCH)
    book.keep_pause(Target("main", "bob"), EPOCH + 500, EPOCH + 200)
    assert book.record("main").paused == {"alice": EPOCH + 300, "bob": EPOCH + 500}
    book.keep_pause(Target("main", "carol"), EPOCH + 700, EPOCH + 400)
    assert book.record("main").paused == {"bob": EPOCH + 500, "carol": EPOCH + 700}
