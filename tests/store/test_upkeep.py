from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from store.backlog import WriteBatch
from store.database import Database
from store.maintenance import Maintenance
from store.opening import open_database
from store.records import EventRow, FileLost
from store.settings import StoreSettings
from tests.store.rows import event, events
from wire.units import Seconds

HOUR = 3600.0
DAY = 24 * HOUR
BEGIN = 1_000 * DAY


class World:
    """A database, its upkeep and both clocks."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.wall = BEGIN
        self.steady = 0.0

    def upkeep(self, *, kept: int = 10**9, age: float = 0) -> Maintenance:
        settings = StoreSettings(events=kept, events_age=Seconds(age))
        return Maintenance(self.database, settings, clock=lambda: self.wall, monotonic=lambda: self.steady)

    def write(self, rows: list[EventRow]) -> None:
        batch = WriteBatch()
        batch.events.extend(rows)
        self.database.write(batch)

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def seqs(self) -> list[int]:
        return [row[0] for row in self.database.connection.execute("SELECT seq FROM events ORDER BY seq")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    database = open_database(tmp_path / "pool.db", clock=lambda: BEGIN).database
    yield World(database)
    database.close()


def do_all(upkeep: Maintenance) -> int:
    """Steps until nothing is left to do."""
    steps = 0
    while upkeep.step():
        steps += 1
        assert steps < 1000
    return steps


def hourly(world: World, hours: int) -> list[EventRow]:
    return [event(hour + 1, ts=world.wall + hour * HOUR) for hour in range(hours)]


def test_the_latest_events_are_kept_and_the_others_go_in_small_steps(world: World) -> None:
    world.write(events(1, 1501))
    upkeep = world.upkeep(kept=500)
    assert do_all(upkeep) == 5
    assert world.seqs() == list(range(1001, 1501))
    assert world.database.purged_through == 1000
    assert do_all(upkeep) == 0


CAUGHT_UP = {
    "without a waiting task twice as many rows may go as were written": (500, [False] * 99, 2000),
    "a waiting task does not wait for retention": (4900, [True] * 99, 0),
    "a task that arrives waits for one step of it": (4700, [False, True], 200),
    "far over the limit a flood has to wait for retention": (500, [True] * 99, 2000),
}


@pytest.mark.parametrize(("kept", "awaited", "deleted"), CAUGHT_UP.values(), ids=CAUGHT_UP)
def test_after_a_write_old_events_are_deleted(world: World, kept: int, awaited: Iterable[bool], deleted: int) -> None:
    world.write(events(1, 5001))
    answers = iter(awaited)
    world.upkeep(kept=kept).catch_up(1000, is_awaited=lambda: next(answers))
    assert world.database.event_count == 5000 - deleted


def test_events_go_when_they_are_older_than_their_age(world: World) -> None:
    upkeep = world.upkeep(age=2 * DAY)
    world.write(hourly(world, 48))
    world.pass_time(2 * DAY)
    do_all(upkeep)
    assert world.seqs() == list(range(1, 49))
    world.pass_time(10 * HOUR)
    do_all(upkeep)
    assert world.seqs() == list(range(11, 49))
    assert world.database.purged_through == 10


def test_many_old_events_go_in_small_steps_too(world: World) -> None:
    world.write(events(1, 701, ts=BEGIN))
    world.write(events(701, 711, ts=BEGIN + 3 * DAY))
    upkeep = world.upkeep(age=DAY)
    world.pass_time(3 * DAY)
    assert do_all(upkeep) == 4
    assert world.seqs() == list(range(701, 711))


@pytest.mark.parametrize(("age", "rest"), [(0, 10.0), (60, 1.0), (HOUR, 3.6), (DAY, 10.0)])
def test_the_rest_between_two_looks_follows_the_age_up_to_that_at_the_file(
    world: World, age: float, rest: float
) -> None:
    upkeep = world.upkeep(age=age)
    assert upkeep.interval == rest
    world.write(events(1, 3, ts=0.0))
    assert do_all(upkeep) == bool(age)


@pytest.mark.parametrize("age", [DAY, 30 * DAY, 365 * DAY])
def test_ages_are_looked_at_a_thousand_times_and_hourly_at_the_least(world: World, age: float) -> None:
    upkeep = world.upkeep(age=age)
    assert do_all(upkeep) == 0
    world.write(events(1, 3, ts=BEGIN - 400 * DAY))
    world.pass_time(min(age / 1000, HOUR) - 1)
    assert do_all(upkeep) == 0
    world.pass_time(2)
    assert do_all(upkeep) == 1


def test_a_clock_set_forward_an_hour_deletes_nothing_early(world: World) -> None:
    upkeep = world.upkeep(age=HOUR / 2)
    world.write([event(seq, ts=world.wall) for seq in range(1, 100)])
    world.wall += HOUR
    world.pass_time(60)
    do_all(upkeep)
    assert len(world.seqs()) == 99
    world.pass_time(HOUR / 2)
    do_all(upkeep)
    assert world.seqs() == []


def test_a_clock_set_back_an_hour_keeps_nothing_for_ever(world: World) -> None:
    upkeep = world.upkeep(age=HOUR / 2)
    world.write(events(1, 11, ts=world.wall))
    world.wall -= HOUR
    world.write(events(11, 41, ts=world.wall))
    world.pass_time(HOUR / 2 - 60)
    do_all(upkeep)
    assert len(world.seqs()) == 40
    world.pass_time(120)
    do_all(upkeep)
    assert world.seqs() == []  # the first ones are older than the others, whatever their clock said


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def remove_log(path: Path) -> None:
    path.with_name("pool.db-wal").unlink()


@pytest.mark.parametrize(
    ("harm", "told"),
    [(Path.unlink, "pool.db was removed"), (replace, "was replaced"), (remove_log, "-wal was removed")],
)
def test_a_file_that_is_no_longer_the_one_of_its_name_is_noticed(
    world: World, harm: Callable[[Path], None], told: str
) -> None:
    upkeep = world.upkeep()
    assert do_all(upkeep) == 0
    harm(world.database.path)
    world.pass_time(9)
    assert do_all(upkeep) == 0
    world.pass_time(1)
    with pytest.raises(FileLost, match=told):
        upkeep.step()
    world.pass_time(10)
    with pytest.raises(FileLost, match=told):
        upkeep.catch_up(1, is_awaited=lambda: True)


def test_a_long_log_is_moved_into_the_file_after_a_write(world: World) -> None:
    upkeep = world.upkeep()
    world.write(events(1, 1000, size=10_000))
    assert world.database.wal_bytes() > 8 * 1024**2
    upkeep.catch_up(0, is_awaited=lambda: True)
    world.write(events(1000, 1001))
    assert world.database.wal_bytes() < 1024**2


def test_a_file_that_is_mostly_unused_shrinks(world: World) -> None:
    world.write(events(1, 2001, size=20_000))
    world.database.checkpoint()
    before = world.database.path.stat().st_size
    do_all(world.upkeep(kept=10))
    world.database.checkpoint()
    unused, pages = world.database.free_pages()
    assert unused <= 4096
    assert world.database.path.stat().st_size == pages * 4096 < before / 2
    assert len(world.seqs()) == 10
