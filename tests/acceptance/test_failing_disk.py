"""The whole gateway over the real store on a disk that refuses from any write on: runs end, and nothing is lost."""

import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from store import StoreSettings, open_store
from store.database import connect_to
from store.records import RunState
from tests.acceptance.crash_points import PATIENCE, kept_store
from tests.acceptance.every_way import HANDED, LEFT, FirstLife, PlainWorker, rows, torn
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import open_world
from wire.units import Seconds

REFUSALS = ("database or disk is full", "attempt to write a readonly database", "disk I/O error")
_WRITES = ("BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT")


class FailingDisk:
    """Once it is begun: refuses each write after the first ``writes`` ones, until it is mended.

    SQLite sees none of what is refused.
    """

    def __init__(self, writes: int, refusal: str) -> None:
        self.writes_left = writes
        self.refused = 0
        self.is_begun = False
        self.is_mended = False
        self._refusal = refusal

    def connect(self, uri: str) -> sqlite3.Connection:
        """As ``store.database.connect_to``."""
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql.startswith(_WRITES):
                    disk.write()
                return super().execute(sql, parameters)

        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=Connection)

    def write(self) -> None:
        """Raises sqlite3.OperationalError where the disk refuses."""
        self.writes_left -= self.is_begun
        if self.writes_left < 0 and not self.is_mended:
            self.refused += 1
            raise sqlite3.OperationalError(self._refusal)


class Told:
    """What the store has said about its disk."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.recovered = trio.Event()

    def __call__(self, kind: str, _facts: dict[str, Any]) -> None:
        self.kinds.append(kind)
        if kind == "store_recovered":
            self.recovered.set()


async def first_life(directory: Path, disk: FailingDisk) -> tuple[FirstLife, int]:
    """Live on the disk until all is said, mend it, and crash once it has caught up; the last seq given out too."""
    told = Told()
    settings = StoreSettings(retry=Seconds(0.01), stall=PATIENCE)
    async with (
        open_store(directory / "pool.db", settings, on_trouble=told, connect=disk.connect) as store,
        open_world(directory, store=store, queue={"debounce": 0.001}) as world,
    ):
        disk.is_begun = True
        life = FirstLife(world)
        await life.live()
        if disk.refused:
            assert store.is_degraded
            disk.is_mended = True
            with trio.fail_after(10):
                await told.recovered.wait()
        assert await store.flush()
        assert (store.is_degraded, store.statistics().lost) == (False, 0)
        assert told.kinds == (["store_degraded", "store_recovered"] if disk.refused else [])
        for name in ("pool.db", "pool.db-wal"):
            shutil.copyfile(directory / name, directory / "crashed" / name)
        return life, world.gateway.bus.statistics().last_seq


async def check_next_life(place: Path, life: FirstLife, last_seq: int) -> None:
    """Outcomes are as they were told, the one in its turn is interrupted, the one that waited is run."""
    assert list(torn(place)) == []
    assert Counter(heard.run_id for heard in life.handed) == Counter(HANDED)
    states = dict(rows(place, f"SELECT run_id, state FROM runs WHERE state != '{RunState.ENDED}'"))
    assert states == LEFT
    launcher = GatewayLauncher()
    launcher.kind = PlainWorker
    async with kept_store(place, connect_to) as store:
        assert store.loaded.first_seq > last_seq
        async with open_world(place, store=store, launcher=launcher) as world:
            for run_id, outcome in life.outcomes.items():
                assert msgspec.json.encode(await world.run(run_id).wait()) == msgspec.json.encode(outcome)
            with trio.fail_after(10):
                assert (await world.run("m12").wait()).reason == "interrupted"
                assert (await world.run("m13").wait()).status == "ok"
    assert launcher.prompts == ["say m13"]


def directories(tmp_path: Path, name: str) -> Path:
    """One for each life."""
    (tmp_path / name / "crashed").mkdir(parents=True)
    return tmp_path / name


async def writes_of_a_life(directory: Path) -> int:
    """How many writes there are while nothing is refused."""
    plenty = 10**6
    disk = FailingDisk(plenty, "")
    await first_life(directory, disk)
    return plenty - disk.writes_left


SOME = [pytest.param(refusal, 2 * number, 6) for number, refusal in enumerate(REFUSALS)]
ALL = [pytest.param(refusal, 0, 1, marks=[pytest.mark.soak, pytest.mark.timeout(180)]) for refusal in REFUSALS]


@pytest.mark.parametrize(("refusal", "first", "step"), [*SOME, *ALL])
async def test_a_disk_that_refuses_from_any_write_on_loses_nothing_and_holds_nobody_up(
    tmp_path: Path, refusal: str, first: int, step: int
) -> None:
    for writes in range(first, await writes_of_a_life(directories(tmp_path, "healthy")), step):
        directory = directories(tmp_path, str(writes))
        life, last_seq = await first_life(directory, FailingDisk(writes, refusal))
        await check_next_life(directory / "crashed", life, last_seq)
