"""The whole gateway over the real store: a crash after each commit, and a disk that refuses from any write on."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from store.backlog import WriteBacklog
from store.records import RunState
from store.settings import StoreSettings
from store.store import Store, open_store
from tests.acceptance.every_way import HANDED, LEFT, PATIENCE, FirstLife, next_life, rows, torn, words_in
from tests.gateway.world import open_world
from wire.units import Seconds

_WRITES = ("BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT")


class Disk:
    """What SQLite writes to in the tests. ``connect``: as ``store.database.connect_to``."""

    def connect(self, uri: str) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                disk.before(sql)
                cursor = super().execute(sql, parameters)
                disk.after(sql)
                return cursor

        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=Connection)

    def before(self, sql: str) -> None:
        """SQLite sees nothing of what raises here."""

    def after(self, sql: str) -> None:
        """It is done."""


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def copy_store(source: Path, target: Path) -> None:
    """What a crash leaves."""
    target.mkdir(parents=True)
    for name in ("pool.db", "pool.db-wal"):
        shutil.copyfile(source / name, target / name)


# --- a crash ----------------------------------------------------------------------------------------------------------


class KeepingDisk(Disk):
    """Each commit's file is kept in a directory of its own; ``commits`` counts those that are complete."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commits = 0

    def after(self, sql: str) -> None:
        """Nothing else writes meanwhile: this is the only writer's own thread."""
        if sql == "COMMIT":
            copy_store(self.directory, self.directory / "kept" / str(self.commits))
            self.commits += 1


def commit_each_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change, or group of them, is committed before its call returns: no two share a transaction by chance."""

    def commit_after(make: Callable[..., None]) -> Callable[..., None]:
        def make_and_commit(backlog: WriteBacklog, *values: Any) -> None:
            make(backlog, *values)
            assert backlog.is_grouping or store.commit()

        return make_and_commit

    for name in ("_record_change", "__exit__"):
        monkeypatch.setattr(WriteBacklog, name, commit_after(getattr(WriteBacklog, name)))


async def check_life_after(place: Path, complete: int, life: FirstLife) -> None:
    """What was promised is there, what was handed over is not repeated, what was told stays as it was."""
    assert list(torn(place)) == [], f"after {complete} commits"
    states = dict(rows(place, "SELECT run_id, state FROM runs"))
    assert {heard.run_id for heard in life.promised if heard.now <= complete} <= states.keys()
    handed = {heard.run_id for heard in life.handed if heard.now <= complete}
    assert handed <= {run_id for run_id, state in states.items() if state != RunState.ACCEPTED}
    told = {heard.run_id for heard in life.told if heard.now <= complete}
    assert told <= {run_id for run_id, state in states.items() if state == RunState.ENDED}
    outcomes = dict(rows(place, "SELECT run_id, outcome FROM runs WHERE state = 'ended'"))
    async with next_life(place) as world:
        with trio.fail_after(10):
            ended = {run_id: await world.run(run_id).wait() for run_id in states}
        prompted = Counter(words_in(" ".join(world.launcher.prompts)))
    assert prompted == Counter(run_id for run_id, state in states.items() if state == RunState.ACCEPTED)
    for run_id, state in states.items():
        match state:
            case RunState.ACCEPTED:
                assert ended[run_id].status == "ok"
            case RunState.STARTED:
                assert ended[run_id].reason == "interrupted"
            case _:
                assert msgspec.json.encode(ended[run_id]) == outcomes[run_id]
    assert list(torn(place)) == []


@pytest.mark.parametrize("is_stepwise", [True, False])
async def test_after_a_crash_at_any_commit_promises_are_kept_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stepwise: bool
) -> None:
    disk = KeepingDisk(tmp_path)
    settings = StoreSettings(stall=PATIENCE)
    async with open_store(
        tmp_path / "pool.db", settings, on_trouble=lambda *_: pytest.fail("a disk in order"), connect=disk.connect
    ) as store:
        opened = disk.commits
        if is_stepwise:
            for limit in ("_PATIENCE", "_QUICK_COMMIT"):
                monkeypatch.setattr(f"store.writer.{limit}", 10.0)
            commit_each_change(store, monkeypatch)
        async with open_world(tmp_path, store=store, queue={"debounce": 0.001}) as world:
            life = FirstLife(world, lambda: disk.commits)
            await life.live()
        monkeypatch.undo()
    assert Counter(heard.run_id for heard in life.handed) == Counter(HANDED)
    for commit in range(opened, disk.commits):
        await check_life_after(tmp_path / "kept" / str(commit), commit + 1, life)


# --- a disk that refuses ----------------------------------------------------------------------------------------------


class FailingDisk(Disk):
    """Once it is begun: refuses each write after the first ``writes`` ones, until it is mended."""

    def __init__(self, writes: int, refusal: str) -> None:
        self.writes_left = writes
        self.refused = 0
        self.is_begun = self.is_mended = False
        self._refusal = refusal

    def before(self, sql: str) -> None:
        if sql.startswith(_WRITES):
            self.writes_left -= self.is_begun
            if self.writes_left < 0 and not self.is_mended:
                self.refused += 1
                raise sqlite3.OperationalError(self._refusal)


async def first_life(directory: Path, disk: FailingDisk) -> tuple[FirstLife, int]:
    """Live on the disk until all is said, mend it, and crash once it has caught up; the last seq given out too."""
    told: list[str] = []
    recovered = trio.Event()

    def hear(kind: str, _facts: dict[str, Any]) -> None:
        told.append(kind)
        if kind == "store_recovered":
            recovered.set()

    settings = StoreSettings(retry=Seconds(0.01), stall=PATIENCE)
    async with (
        open_store(directory / "pool.db", settings, on_trouble=hear, connect=disk.connect) as store,
        open_world(directory, store=store, queue={"debounce": 0.001}) as world,
    ):
        disk.is_begun = True
        life = FirstLife(world)
        await life.live()
        if disk.refused:
            assert store.is_degraded
            disk.is_mended = True
            with trio.fail_after(10):
                await recovered.wait()
        assert await store.flush()
        assert (store.is_degraded, store.statistics().lost) == (False, 0)
        assert told == (["store_degraded", "store_recovered"] if disk.refused else [])
        copy_store(directory, directory / "crashed")
        return life, world.gateway.bus.statistics().last_seq


async def check_next_life(place: Path, life: FirstLife, last_seq: int) -> None:
    """Outcomes are as they were told, the one in its turn is interrupted, the one that waited is run."""
    assert list(torn(place)) == []
    assert Counter(heard.run_id for heard in life.handed) == Counter(HANDED)
    assert dict(rows(place, f"SELECT run_id, state FROM runs WHERE state != '{RunState.ENDED}'")) == LEFT
    async with next_life(place, last_seq=last_seq) as world:
        for run_id, outcome in life.outcomes.items():
            assert msgspec.json.encode(await world.run(run_id).wait()) == msgspec.json.encode(outcome)
        with trio.fail_after(10):
            assert (await world.run("m12").wait()).reason == "interrupted"
            assert (await world.run("m13").wait()).status == "ok"
        assert world.launcher.prompts == ["say m13"]


REFUSALS = ("database or disk is full", "attempt to write a readonly database", "disk I/O error")
SOME = [pytest.param(refusal, 3 * number, 9) for number, refusal in enumerate(REFUSALS)]
ALL = [pytest.param(refusal, 0, 1, marks=[pytest.mark.soak, pytest.mark.timeout(180)]) for refusal in REFUSALS]


@pytest.mark.parametrize(("refusal", "first", "step"), [*SOME, *ALL])
async def test_a_disk_that_refuses_from_any_write_on_loses_nothing_and_holds_nobody_up(
    tmp_path: Path, refusal: str, first: int, step: int
) -> None:
    healthy = FailingDisk(plenty := 10**6, "")
    await first_life(made(tmp_path / "healthy"), healthy)
    for writes in range(first, plenty - healthy.writes_left, step):
        directory = made(tmp_path / str(writes))
        life, last_seq = await first_life(directory, FailingDisk(writes, refusal))
        await check_next_life(directory / "crashed", life, last_seq)
